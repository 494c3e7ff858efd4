"""Function words by language: the words of a question that say nothing about what it asks for.

Lower case, with their accents. Elided and split forms stand as a word tokenizer leaves them: "don't" is `don` and `t`.
"""

from __future__ import annotations

ENGLISH = """
a about above after again against all am an and any are aren as at
be because been before being below between both but by
can cannot could couldn d did didn do does doesn doing don down during
each either else ever every few for from further
had hadn has hasn have haven having he her here hers herself him himself his how however
i if in into is isn it its itself just let ll
m many me might mightn more most much must mustn my myself
needn neither no nor not now of off on once only or other ought our ours ourselves out over own
per re s same shall shan she should shouldn since so some such
t than that the their theirs them themselves then there these they this those though through to too
under until up upon us ve very was wasn we were weren what whatever when whenever where whether which while
who whoever whom whose why will with within without won would wouldn
yet you your yours yourself yourselves
"""

GERMAN = """
ab aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus
bei beim bin bis bist da dabei dadurch dafür damit danach daran darauf daraus darin darüber darum das dass daß
dazu dein deine deinem deinen deiner deines dem den denen denn der deren derer des dessen dich die dies diese
diesem diesen dieser dieses dir doch dort du durch
ein eine einem einen einer eines einige einigem einigen einiger einiges er es etwas euch euer eure eurem euren
eurer eures für gegen gewesen
hab habe haben habt hast hat hatte hatten hattest hattet hier hin hinter
ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist
ja je jede jedem jeden jeder jedes jene jenem jenen jener jenes jetzt kann kannst können könnt könnte könnten
kein keine keinem keinen keiner keines
man manche manchem manchen mancher manches mein meine meinem meinen meiner meines mich mir mit
muss musste mussten muß müssen müsste nach neben nicht nichts noch nun nur ob obwohl oder ohne
s sehr sein seine seinem seinen seiner seines seit selbst sich sie sind so solche solchem solchen solcher solches
soll sollen sollte sollten sondern sonst
über um und uns unser unsere unserem unseren unserer unseres unter
viel viele vom von vor während wann war waren warst wart warum was weg weil welche welchem welchen welcher
welches wem wen wenn wer werde werden werdet wessen weshalb wie wieder wieso wieviel will wir wird wirst wo wobei
wofür woher wohin womit woran worauf worden worin worüber wovon wozu wollen wollte wollten würde würden wurde wurden
zu zum zur zwar zwischen
"""

FRENCH = """
a à afin ai aie aient ainsi alors après as au aucun aucune auquel aura aurait auront aussi autre autres aux
auxquelles auxquels avaient avais avait avant avec avez aviez avions avoir avons ayant
c car ce ceci cela celle celles celui ces cet cette ceux chaque chez ci combien comme comment contre
d dans de depuis derrière des dès desquelles desquels devant doit donc dont du duquel durant
elle elles en encore entre es est et étaient étais était étant été êtes étiez étions être eu eurent eut eux
fait faut font fut furent il ils j jamais je jusqu jusque
l la là laquelle le lequel les lesquelles lesquels leur leurs lorsqu lorsque lui
m ma mais malgré me même mêmes mes moi moins mon n ne ni non nos notre nôtre nôtres nous
on ont or ou où par parce parmi pas pendant peu peut peuvent plus plusieurs pour pourquoi puis puisqu puisque
qu quand que quel quelle quelles quelqu quelque quelques quels qui quoi
s sa sans se selon sera serai seraient serait seront ses seulement si sien sienne sinon soi soit sommes son sont
sous suis sur
t ta tandis te tel telle telles tels tes toi ton toujours tous tout toute toutes très trop tu
un une unes uns vers voici voilà vos votre vôtre vôtres vous y
"""

SPANISH = """
a acaso adonde adónde al algo algún alguna algunas alguno algunos ante antes aquel aquella aquellas aquello aquellos
aquí así aún aunque bajo bien
cada casi como cómo con conmigo contigo contra cual cuál cuales cuáles cualquier cuando cuándo cuanta cuánta cuantas
cuántas cuanto cuánto cuantos cuántos
de debe deben del desde después donde dónde dos durante
e el él ella ellas ello ellos en entonces entre era eran éramos eras eres es esa esas ese eso esos esta está estaba
estaban estado estamos estan están estar estará estas estás este esté esto estos estoy estuvo
fue fuera fueron fui fuimos ha había habían haber habrá habría han has hasta hay he hemos hubo
la las le les lo los
más me mediante mi mí mía mías mientras mío míos mis mismo misma mismas mismos mucha muchas mucho muchos muy
nada ni ningún ninguna ninguno no nos nosotras nosotros nuestra nuestras nuestro nuestros
o os otra otras otro otros para pero poco por porque pues puede pueden
que qué quien quién quienes quiénes
se sea sean según ser será serán sería si sí sido siempre siendo sin sino so sobre sois solo sólo somos son soy
su sus suya suyas suyo suyos
tal tales también tampoco tan tanto te tenemos tener tengo tenía tenían ti tiene tienen toda todas todavía todo todos
tras tu tú tus tuya tuyas tuyo tuyos
u un una unas uno unos usted ustedes va vosotras vosotros vuestra vuestras vuestro vuestros y ya yo
"""

ITALIAN = """
a abbia abbiamo abbiano ad agl agli ai al alcun alcuna alcune alcuni alcuno all alla alle allo allora altra altre
altri altro anche ancora aveva avevamo avevano avevo avendo avere avete avrà avrebbe avuto
c ce che chi ci ciascuno cioè ciò coi col come con contro cosa così cui
d da dagl dagli dai dal dall dalla dalle dallo degl degli dei del dell della delle dello dentro deve devono di
dopo dov dove dunque durante
e è ecco ed egli ella entrambi era erano eravamo ero essa esse essere essi esso
fa fino fosse fossero fra fu furono già gli ha hai hanno ho
i il in infatti io l la le lei li lo loro lui
m ma me mediante mentre mi mia mie miei mio molta molte molti molto
ne né negl negli nei nel nell nella nelle nello nessun nessuna nessuno niente no noi non nostra nostre nostri nostro
nulla o od ogni oltre oppure
per perché perciò però più poi poiché può possono pure
qual quale quali qualche qualcosa qualcuno quand quando quanta quante quanti quanto quasi quegli quei quel quell
quella quelle quelli quello quest questa queste questi questo qui quindi
s sarà saranno sarebbe se secondo sei sempre senza si sia siamo siano siate siete sono sopra sotto sta stanno stata
state stati stato stesso stessa stessi stesse su sua sue sugl sugli sui sul sull sulla sulle sullo suo suoi
t ta tale tali tanta tante tanti tanto te ti tra troppo tu tua tue tuo tuoi tutta tuttavia tutte tutti tutto
un una uno v ve verso vi voi vostra vostre vostri vostro
"""

PORTUGUESE = """
a à ainda algo alguém algum alguma algumas alguns ante antes ao aos apenas após aquela àquela aquelas aquele àquele
aqueles aquilo as às até através
cada com como comigo contra contudo cuja cujas cujo cujos
da daquela daquele das de dela delas dele deles depois desde dessa desse desta deste disso disto do dos durante
e é ela elas ele eles em enquanto entre era eram éramos essa essas esse esses esta está estamos estão estar estas
estava estavam este esteja estes esteve estive estou eu
foi fomos for fora foram fosse fossem fui
há haja havia houve isso isto já la lhe lhes lo logo
mais mas me mediante mesma mesmas mesmo mesmos meu meus mim minha minhas muita muitas muito muitos
na nada não nas nela nele nem nenhum nenhuma nessa nesse nesta neste no nos nós nossa nossas nosso nossos num numa
o onde os ou outra outras outro outros
para pela pelas pelo pelos per perante pode podem pois por porém porque porquê portanto pouca poucas pouco poucos
pôde qual quais qualquer quando quanta quantas quanto quantos quase que quê quem
são se seja sejam sem sempre sendo ser será serão seria seriam seu seus si sido sob sobre só sua suas somos sou
tal talvez também tampouco tanto tão te tem têm temos tenha tenho ter terá teu teus teve ti tinha tinham tive toda
todas todavia todo todos tu tua tuas tudo
um uma umas uns você vocês vos vós vossa vosso
"""

DUTCH = """
aan achter al alle alleen alles als altijd ander andere anders
ben bent bij binnen boven bijna buiten
d daar daarbij daarin daarmee daarna daarom daarop daaruit daarvan daarvoor dan dat de deze die dit doch doen doet door
dus een één eens elk elke en enige enkele er eraan erbij erin ermee erop eruit ervan ervoor even
ge geen gedurende geweest geworden had hadden hare heb hebben hebt heeft hem hen het hier hierin hiermee hij hoe hoeveel
hoewel hun
ieder iedere iedereen iemand iets ik in indien is
ja je jij jou jouw jullie
kan konden kon kunnen kunt
maar me mee meer meeste men met mij mijn mocht mogen moest moesten moet moeten
n na naar naast nadat niemand niet niets noch nog nooit nu
of om omdat ondanks onder ons onze ook op over
per s sinds sommige soms steeds
t te tegen tenzij terwijl ten ter tijdens toch toen tot totdat tussen
u uit uw van vanaf vanuit veel via voor voordat vooral
waar waarbij waardoor waarheen waarin waarmee waarom waarop waaruit waarvan waarvoor wanneer want waren was wat we wel
welk welke werd werden wezen wie wiens wij wil wilde wilden willen word worden wordt
z zal ze zeer zelf zelfs zich zichzelf zij zijn zo zoals zodat zonder zou zouden zowel zulk zulke zullen zult
"""

STOP_WORDS: dict[str, frozenset[str]] = {
    "de": frozenset(GERMAN.split()),
    "en": frozenset(ENGLISH.split()),
    "es": frozenset(SPANISH.split()),
    "fr": frozenset(FRENCH.split()),
    "it": frozenset(ITALIAN.split()),
    "nl": frozenset(DUTCH.split()),
    "pt": frozenset(PORTUGUESE.split()),
}
"""The words of each language, by its ISO 639-1 code."""
