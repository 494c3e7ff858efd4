"""The demonstration: Python's own language reference, searched by keywords, by vectors and by both."""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rlm_memory.cli import output
from rlm_memory.cli.passages import split_text
from rlm_memory.memory import Memory
from rlm_memory.records import Hit, Node

_SHOWN = 3
_RANKED = 10
_LEGS: Mapping[str, float] = {"keywords alone": 0.0, "vectors alone": 1.0, "hybrid": 0.5}
_HEADING = re.compile(r"^(?P<title>\S.*)\n(?P<line>[*=\-~^\"#+])(?P=line){2,}[ ]*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.:;!?])\s+|\n\s*\n")


_TABLE_LINES = re.compile(r"[-=+]{3,}|\|")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and words that stand only in a passage that answers it."""

    text: str
    answer: str

    def is_answered_by(self, hit: Hit) -> bool:
        """Tell whether this hit holds the answer."""
        return self.answer in " ".join(hit.text.split())


QUESTIONS = (
    Question("print a number with thousands separators", "use of a comma for a thousands separator"),
    Question("several exceptions at once", "in the case of exception groups we can have partial matches"),
    Question("make text uppercase", "cased characters [4] converted to uppercase"),
    Question("default value shared between calls", "the same “pre- computed” value is used for each call"),
)


def reference() -> list[Node]:
    """Return the language reference as nodes: passages of its sections, each under its section's title.

    Sections that stand in several topics are taken once.
    """
    nodes: list[Node] = []
    seen: set[tuple[str, str]] = set()
    # the smallest first, so that a section keeps the name of its own topic and not that of a chapter
    for topic, text in sorted(topics.items(), key=lambda item: (len(item[1]), item[0])):
        position = 0
        for title, body in _sections(topic, text):
            section = (title, " ".join(body.split()))
            if section in seen:
                continue
            seen.add(section)
            for passage in split_text(body, size=800):
                position += 1
                nodes.append(
                    Node(
                        id=f"python-{topic}-{position}",
                        text=f"{title}\n\n{passage.text}",
                        type="snippet",
                        metadata={"topic": topic, "section": title, "position": position},
                    )
                )
    return nodes


def _sections(topic: str, text: str) -> Iterator[tuple[str, str]]:
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    if not headings or headings[0].start() > 0:
        yield topic, text[: headings[0].start() if headings else len(text)]
    for heading, end in zip(headings, ends, strict=False):
        yield heading["title"].strip().replace('"', ""), text[heading.end() : end]


def run(memory: Memory, *, location: str, program: str, as_json: bool) -> None:
    """Store the language reference in `memory`, ask it the questions, and print what each way of searching finds."""
    began = time.perf_counter()
    nodes = reference()
    with output.progress_bar("Embedding and storing the language reference") as advance:
        memory.add(nodes, progress=advance)
    seconds = time.perf_counter() - began
    found: list[dict[str, list[Hit]]] = []
    times: list[float] = []
    for question in QUESTIONS:
        found.append({})
        for leg, alpha in _LEGS.items():
            began = time.perf_counter()
            found[-1][leg] = memory.search(question.text, k=_RANKED, alpha=alpha, where={"topic": {"$exists": True}})
            times.append(time.perf_counter() - began)
    if as_json:
        output.print_json(_document(location, len(nodes), found))
        return
    console = Console(highlight=False)
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    characters = sum(len(node.text) for node in nodes)
    console.print(
        f"\n[bold]{len(nodes)} passages[/] of the {version} language reference, {characters:,} characters.\n"
        f"Embedded and stored in [bold]{seconds:.1f} s[/]; a search takes "
        f"[bold]{statistics.median(times) * 1000:.1f} ms[/], embedding included.\n"
        "Each question is asked in three ways; [green]✓[/] marks the passage with the answer."
    )
    for question, legs in zip(QUESTIONS, found, strict=True):
        console.print(_comparison(console, question, legs))
    console.print(_summary(found))
    _print_next_steps(console, location, program)


def _document(location: str, nodes: int, found: Sequence[Mapping[str, Sequence[Hit]]]) -> dict[str, Any]:
    return {
        "store": location,
        "nodes": nodes,
        "questions": [
            {
                "question": question.text,
                **{leg: [output.hit_document(hit) for hit in hits[:_SHOWN]] for leg, hits in legs.items()},
            }
            for question, legs in zip(QUESTIONS, found, strict=True)
        ],
    }


def _comparison(console: Console, question: Question, legs: Mapping[str, Sequence[Hit]]) -> Group:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
    for leg, alpha in _LEGS.items():
        table.add_column(Text.assemble((leg, "bold"), (f"  alpha {alpha:g}", "dim")), ratio=1)
    width = console.width // len(_LEGS) - 3
    for rank in range(_SHOWN):
        if rank:
            table.add_row()
        table.add_row(*(_cell(question, leg, hits[rank], width) for leg, hits in legs.items() if rank < len(hits)))
    return Group("", Rule(Text(question.text, style="bold cyan"), align="left", style="cyan"), table)


def _cell(question: Question, leg: str, hit: Hit, width: int) -> Text:
    score = {
        "keywords alone": f"bm25 {hit.keyword or 0:.2f}",
        "vectors alone": f"cosine {hit.semantic or 0:.3f}",
        "hybrid": f"score {hit.score:.3f}",
    }[leg]
    mark = ("✓ ", "bold green") if question.is_answered_by(hit) else ("", "")
    title, _, body = hit.text.partition("\n\n")
    excerpt = Text(_excerpt(body, question.text, length=2 * width - 4), style="dim")
    excerpt.highlight_regex(_word_beginnings(question.text), "not dim bold")
    return Text.assemble(mark, (output.printable(title), "bold"), "\n", (score, "yellow"), "\n", excerpt)


def _excerpt(text: str, question: str, *, length: int) -> str:
    """Return the sentence that holds most words of the question, the first one of equals, shortened to `length`."""
    words = _word_beginnings(question)
    sentences = [output.printable(sentence) for sentence in _SENTENCE_END.split(_TABLE_LINES.sub(" ", text))]
    best = max(sentences, key=lambda sentence: len({match.lower() for match in words.findall(sentence)}))
    first = words.search(best)
    start = max(0, first.start() - length // 2) if first and first.end() > length else 0
    start = best.rfind(" ", 0, start) + 1 if start else 0
    piece = best[start:]
    return ("… " if start else "") + (piece if len(piece) <= length else piece[: length - 1].rsplit(" ", 1)[0] + "…")


def _word_beginnings(question: str) -> re.Pattern[str]:
    """Return a pattern of the question's longer words and of words that begin like them."""
    words = [word[:6] for word in re.findall(r"\w+", question) if len(word) > 2]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\w*", re.IGNORECASE)


def _summary(found: Sequence[Mapping[str, Sequence[Hit]]]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title="Rank of the answer",
        title_justify="left",
        title_style="bold",
        caption="No alpha is the best for every question; the hybrid is seldom far off.\n",
        caption_justify="left",
        caption_style="dim",
    )
    table.add_column("question")
    for leg in _LEGS:
        table.add_column(leg, justify="right")
    for question, legs in zip(QUESTIONS, found, strict=True):
        table.add_row(question.text, *(_rank(question, hits) for hits in legs.values()))
    return table


def _rank(question: Question, hits: Sequence[Hit]) -> Text:
    for rank, hit in enumerate(hits, start=1):
        if question.is_answered_by(hit):
            return Text(str(rank), style="bold green" if rank == 1 else "")
    return Text(f"> {_RANKED}", style="red")


def _print_next_steps(console: Console, location: str, program: str) -> None:
    command = f"{program} --db {location}"
    steps = {
        "The store is one file:": [location],
        "Ask it something else:": [f'{command} search "what is garbage collected"'],
        "Look at what it holds:": [f"{command} stats", f'{command} list --where \'{{"topic": "lambda"}}\''],
        "Add a text of your own:": [f"{command} add README.md"],
    }
    for title, lines in steps.items():
        console.print(title, style="bold")
        for line in lines:
            # no line is broken: they are there to be copied
            console.print(Text(f"  {line}"), soft_wrap=True)
