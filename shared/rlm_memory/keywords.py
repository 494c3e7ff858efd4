"""The words that the keyword leg sees: scripts without spaces cut into tokens, stop words dropped.

Pure. SQLite's `porter unicode61` takes a run of letters as one token, and so a whole clause of Chinese, Japanese or
Thai as one word that no question will ever contain. Such runs are cut here, the same way for texts and questions,
before the tokenizer sees them. Single characters and overlapping pairs need no dictionary, and find every word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from rlm_memory.errors import InvalidInputError
from rlm_memory.stop_words import STOP_WORDS

# Letters and combining marks; digits and punctuation of these scripts are left to the tokenizer, which knows them.
_LETTERS = "".join(
    (
        "\u0e01-\u0e3a\u0e40-\u0e4e",  # Thai
        "\u0e81-\u0ece\u0edc-\u0edf",  # Lao
        "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f",  # Myanmar
        "\u1780-\u17d3\u17d7\u17dc\u17dd",  # Khmer
        # Hangul: Korean has spaces, but a word carries its particles. Jamo, compatibility jamo, syllables, half width.
        "\u1100-\u11ff\u3131-\u3163\u3165-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb\uffa1-\uffdc",
        "\u3005-\u3007\u3031-\u3035\u303b\u303c\U00016fe3",  # iteration marks, the Han zero
        "\u3041-\u3096\u3099\u309a\u309d-\u309f",  # Hiragana
        "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f",  # Katakana, long mark, old kana
        "\u3105-\u312f\u31a0-\u31bf",  # Bopomofo
        # Han; the radicals are what text copied out of a PDF often has in place of the ideographs.
        "\u2e80-\u2fd5\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd",
    )
)
# Zero-width spaces and joiners, and variation selectors: nobody types them in a question.
_INVISIBLE = "\u200b-\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef"
_FULL_WIDTH = "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
_MARKS = frozenset({"Mn", "Mc", "Me", "Cf"})  # combining marks, invisible characters
_UNSPACED = re.compile(f"(?P<run>[{_LETTERS}][{_LETTERS}{_INVISIBLE}]*)|[{_FULL_WIDTH}]+")


def segment(text: str) -> str | None:
    """Return the text to index in place of `text`, or None where `text` itself will do, as for most languages.

    A run of characters of a script without spaces (Han, kana, Hangul, Thai, Lao, Khmer, Myanmar) becomes its single
    characters and then its overlapping pairs, set apart from what stands beside it. Combining marks are dropped, since
    the tokenizer would split at them; half and full width become the usual width.

    >>> segment("重跑gen-itgc后50条")
    ' 重 跑 重跑 gen-itgc 后 50 条 '
    >>> segment("no such script") is None
    True
    """
    return _rewritten(text, _singles_and_pairs)


def segment_query(text: str) -> str:
    """Return a question cut as `segment` cuts texts, with the pairs alone of runs longer than one character.

    >>> segment_query("设备清单 db")
    ' 设备 备清 清单  db'
    """
    rewritten = _rewritten(text, _pairs)
    return text if rewritten is None else rewritten


def stop_words(words: str | Iterable[str] | None) -> frozenset[str]:
    """Return the stop words that `words` stands for: of a language by its code, those given, or none for None.

    Lower case, each with and without its accents, since the default tokenizer takes the accents away.

    Raises:
        InvalidInputError: The code is not known, or what is given is not words.
    """
    if words is None:
        return frozenset()
    if isinstance(words, str):
        if words not in STOP_WORDS:
            known = ", ".join(sorted(STOP_WORDS))
            message = (
                f"No stop words for the language {words!r}. Known are {known}; or pass the words, or None for none."
            )
            raise InvalidInputError(message)
        chosen: Iterable[object] = STOP_WORDS[words]
    elif isinstance(words, Iterable):
        chosen = words
    else:
        message = f"stop_words is {words!r}; expected a language code, words, or None for none."
        raise InvalidInputError(message)
    result: set[str] = set()
    for word in chosen:
        if not isinstance(word, str):
            message = f"A stop word is {word!r}; expected a string."
            raise InvalidInputError(message)
        result.update((word.lower(), _without_accents(word.lower())))
    return frozenset(result)


def keep_words(words: Sequence[str], stop: frozenset[str]) -> list[str]:
    """Return the words of a question, in order, that are no stop words: all of them where nothing else is left.

    >>> keep_words(["Who", "is", "Ada"], stop_words("en"))
    ['Ada']
    >>> keep_words(["to", "be", "or", "not"], stop_words("en"))
    ['to', 'be', 'or', 'not']
    """
    return [word for word in words if word.lower() not in stop] or list(words)


def _rewritten(text: str, cut: Callable[[str], list[str]]) -> str | None:
    if text.isascii() or _UNSPACED.search(text) is None:
        return None

    def tokens(match: re.Match[str]) -> str:
        usual = unicodedata.normalize("NFKC", match.group())
        if match["run"] is None:
            return usual
        return f" {' '.join(cut(_without_marks(usual)))} "

    return _UNSPACED.sub(tokens, text)


def _singles_and_pairs(run: str) -> list[str]:
    return [*run, *map(str.__add__, run, run[1:])]


def _pairs(run: str) -> list[str]:
    return list(map(str.__add__, run, run[1:])) or list(run)


def _without_marks(run: str) -> str:
    if run.isalnum():  # nearly every run of Han and kana, and ten times as fast
        return run
    return "".join(character for character in run if unicodedata.category(character) not in _MARKS)


def _without_accents(word: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
