"""What the commands print: tables for people, tab-separated lines for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, TypeAlias

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rlm_memory.display import size as size
from rlm_memory.records import Hit, LogEntry, Node, Stats

Advance: TypeAlias = Callable[[int, int], None]
"""Takes how many are done, and of how many."""

_WORTH_COMPACTING: Final = 1 << 20
"""Free bytes; less are no reason to rebuild a file."""


def printable(text: str) -> str:
    r"""Return the text in one line, without what a terminal would take for an order.

    >>> printable("two\n lines \x1b[2J")
    'two lines �[2J'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return the text with its lines and indentation, without what a terminal would take for an order."""
    return "\n".join(
        "".join(letter if letter.isprintable() else "�" for letter in line.expandtabs()) for line in text.splitlines()
    )


def print_json(document: Any) -> None:
    """Print one JSON document on one line."""
    # a stdout that is not UTF-8 would lose letters, so they are escaped there
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    print(json.dumps(document, ensure_ascii=ascii_only, default=_plain))


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Cannot print a {type(value).__name__} as JSON.")


def node_document(node: Node) -> dict[str, Any]:
    """Return a node as `--json` prints it: all its fields, times in ISO 8601."""
    return {each.name: getattr(node, each.name) for each in fields(node)}


def hit_document(hit: Hit) -> dict[str, Any]:
    """Return a hit as `--json` prints it: its scores, then its node."""
    scores = {name: getattr(hit, name) for name in ("score", "relevance", "semantic", "keyword")}
    return {**scores, "node": node_document(hit.node)}


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "node"), plural(1200, "node")
    ('1 node', '1,200 nodes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def number(score: float | None) -> str:
    """Return a score with three decimals, or a dash where there is none."""
    return "-" if score is None else f"{score:.3f}"


def local_time(at: datetime | None) -> str:
    """Return a moment in the time zone of this computer, with its offset, or a dash where there is none."""
    return "-" if at is None else at.astimezone().isoformat(" ", "seconds")


def yes_or_no(holds: bool) -> str:
    """Return yes or no."""
    return "yes" if holds else "no"


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """Print a table on a terminal and tab-separated lines elsewhere; the last column is shortened, no other is.

    `numbers` tells how many of the first columns hold numbers: they are set to the right.
    """
    console = Console()
    if not console.is_terminal:
        for row in [headings, *rows]:
            print("\t".join(printable(cell) for cell in row))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", expand=True)
    for position, heading in enumerate(headings):
        if position == len(headings) - 1:
            table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1)
        else:
            table.add_column(heading, justify="right" if position < numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values: in two columns on a terminal, separated by a tab elsewhere."""
    console = Console()
    if not console.is_terminal:
        for name, value in pairs:
            print(f"{name}\t{printable(value)}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(printable(value)))
    console.print(table)


def print_node(node: Node) -> None:
    """Print a node with all that is known of it, and its text as it is."""
    moments = {"created": node.created_at, "updated": node.updated_at, "last access": node.last_accessed}
    pairs = {
        "id": node.id,
        "type": f"{node.type}, {node.subtype}" if node.subtype else node.type,
        "tier": f"{node.tier}, pinned" if node.pinned else node.tier,
        "confidence": f"{node.confidence:.2f}",
        "provenance": node.provenance or "",
        **{name: at.astimezone().isoformat(" ", "seconds") for name, at in moments.items() if at is not None},
        "accesses": str(node.access_count),
        "metadata": json.dumps(dict(node.metadata), ensure_ascii=False) if node.metadata else "",
    }
    print_pairs([(name, value) for name, value in pairs.items() if value])
    print(f"\n{printable_lines(node.text)}\n")


def print_log(entries: Sequence[LogEntry]) -> None:
    """Print decisions about tiers: in a few lines each on a terminal, as a tab-separated line each elsewhere."""
    console = Console()
    if not console.is_terminal:
        print_rows(
            ["entry", "at", "id", "from", "to", "moved", "rule", "reason"],
            [
                [str(entry.sequence), local_time(move.at), move.node_id, move.from_tier, move.to_tier,
                 yes_or_no(move.moved), move.rule, move.reason]
                for entry in entries
                for move in [entry.decision]
            ],
        )  # fmt: skip
        return
    # a table has no room for reasons, which are what a log is read for
    for entry in entries:
        move = entry.decision
        if move.moved:
            what = f"from {move.from_tier} to {move.to_tier}"
        else:
            what = f"stays in {move.from_tier}" + (f", not {move.to_tier}" if move.to_tier != move.from_tier else "")
        console.print(Text(f"{local_time(move.at)}  {printable(move.node_id)}", style="bold"))
        console.print(Padding(Text(f"{what} ({move.rule}): {printable(move.reason)}"), (0, 0, 0, 4)))


def print_stats(stats: Stats) -> None:
    """Print what a store holds and what it costs."""
    vectors = (
        f"{stats.embedding_model or 'of an unnamed model'}, {stats.dimensions} dimensions, {stats.embedding_storage}"
    )
    waiting = f", {stats.pending:,} waiting for one" if stats.pending else ""
    wasted = stats.free_bytes > max(_WORTH_COMPACTING, stats.file_bytes // 4)
    print_pairs(
        [
            ("store", stats.location),
            ("namespace", stats.namespace),
            ("nodes", f"{stats.nodes:,}"),
            ("by tier", _counts(stats.by_tier)),
            ("by type", _counts(stats.by_type)),
            ("with a vector", f"{stats.with_vector:,}{waiting}"),
            ("embedding", vectors if stats.dimensions else "none yet"),
            ("tokenizer", stats.tokenizer),
            ("text", size(stats.text_bytes)),
            ("keywords", size(stats.keyword_bytes)),
            ("vectors", size(stats.vector_bytes)),
            ("other", size(stats.other_bytes)),
            ("free", size(stats.free_bytes) + (": rlm-memory compact gives it back" if wasted else "")),
            ("file", size(stats.file_bytes)),
        ]
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or "-"


def note(message: str) -> None:
    """Tell a person something about the run, on stderr, where it is in no program's way."""
    print(printable(message), file=sys.stderr)


@contextmanager
def progress_bar(what: str, *, size: bool = False) -> Iterator[Advance]:
    """Show a bar on stderr, if that is a terminal, for as long as the block runs; `size`: it is bytes that count."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if size else MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
