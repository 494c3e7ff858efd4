"""How records look to people: a table in a notebook, the same in plain text in a terminal. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

_WIDEST: Final = 60
_CAPTION: Final = "text-align: left; white-space: nowrap"
_CELL: Final = "text-align: left; vertical-align: top; padding: 0.15em 1em 0.15em 0"


@dataclass(frozen=True, slots=True)
class Table:
    """A caption, the names of the columns, and the rows; whatever is in them is shown as text, never as markup."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def to_html(self) -> str:
        """Return it as HTML without colours of its own, so that it fits light and dark pages."""
        head = "".join(f'<th style="{_CELL}">{html.escape(column)}</th>' for column in self.columns)
        body = "".join(
            "<tr>" + "".join(f'<td style="{_CELL}">{html.escape(shown(cell))}</td>' for cell in row) + "</tr>"
            for row in self.rows
        )
        return (
            f'<table><caption style="{_CAPTION}"><b>{html.escape(self.caption)}</b></caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def to_text(self) -> str:
        """Return it as lines of text, with aligned columns."""
        cells = [
            [_line(column) for column in self.columns],
            *([_line(shown(cell)) for cell in row] for row in self.rows),
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )
        return "\n".join([_line(self.caption), *lines])


class Displayed:
    """Something that shows itself as a table."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # IPython asks the first class that has either this or a __repr__, which dataclasses have of their own.
        setattr(cls, "_repr_pretty_", Displayed._repr_pretty_)  # noqa: B010

    def as_table(self) -> Table:
        """Return what is shown."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.as_table().to_html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show itself in IPython's terminal."""
        printer.text("…" if cycle else str(self))

    def __str__(self) -> str:
        return self.as_table().to_text()


def shown(value: object) -> str:
    """Return a value as people read it.

    >>> shown(0.123456), shown(None), shown(True), shown(["a", 1])
    ('0.123', '', 'yes', 'a, 1')
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case list() | tuple():
            return ", ".join(shown(item) for item in value)
        case dict():
            return ", ".join(f"{key}: {shown(item)}" for key, item in value.items())
        case _:
            return str(value)


def size(count: int) -> str:
    """Return a number of bytes for people.

    >>> size(999), size(123_456), size(5 * 1024**3)
    ('999 B', '120.6 KiB', '5.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024 or unit == "TiB":
            break
    return f"{amount:,.1f} {unit}"


def shortened(text: str, length: int = 160) -> str:
    """Return the text in one line, its end left out if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def facts(caption: str, pairs: Iterable[tuple[str, Any]]) -> Table:
    """Return a table of names and values."""
    return Table(caption, ("", ""), [(name, value) for name, value in pairs])


def _line(text: str) -> str:
    return shortened("".join(letter if letter.isprintable() else " " for letter in text), _WIDEST)
