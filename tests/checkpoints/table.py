"""The table of types: one cell of a REPL each, and what becomes of its variable `v`.

The cells are in `table.txt`, each below a line `### name`, with `signed=` and `unsigned=` where the outcome in a file
that is trusted, or in one that is not, is another than "exact", and `needs=` where the cell needs a library.

"exact": the same type and value. "reported": a placeholder with a reason, in its place or in the place of a part of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    name: str
    cell: str
    signed: str = "exact"
    unsigned: str = "exact"
    needs: str | None = None


def _row(text: str) -> Row:
    head, _, cell = text.partition("\n")
    name, *options = head.split(" | ")
    return Row(name, cell.strip() + "\n", **dict(option.split("=") for option in options))


def markdown() -> str:
    """Return the table as Markdown, for the documentation: what the tests of this folder prove row by row."""
    lines = ["| value | signed and trusted | not signed |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.signed} | {row.unsigned} |" for row in TABLE]
    return "\n".join(lines) + "\n"


_TEXT = Path(__file__).with_name("table.txt").read_text(encoding="utf-8")
TABLE = [_row(text) for text in _TEXT.split("### ") if text.strip()]
