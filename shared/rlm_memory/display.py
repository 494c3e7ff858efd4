"""How records look to people: a table in a notebook, the same in plain text in a terminal. Pure."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

_WIDTH: Final = 80
_NARROWEST: Final = 24
_GAP: Final = "  "
_WITHOUT_COLUMN: Final = frozenset({"Mn", "Me", "Cf"})
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
        """Return it as lines of at most 80 columns of a terminal, with aligned cells.

        The last column is broken into lines where it is too wide. Columns that are left no room stand below their row,
        each with its name.
        """
        names = [_line(column) for column in self.columns]
        rows = [[_line(shown(cell)) for cell in row] for row in self.rows]
        widths = [max(map(columns_of, column)) for column in zip(names, *rows, strict=True)]
        beside = _fitting(widths)
        lines = [*_wrapped(_line(self.caption)), *_beside(names[:beside], widths)]
        for row in rows:
            lines += _beside(row[:beside], widths)
            lines += _below(names[beside:], row[beside:], min(widths[0] + len(_GAP), 4))
        return "\n".join(lines)


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

    >>> shown(0.123456), shown(1.8e-7), shown(None), shown(True), shown(["a", 1])
    ('0.123', '0.0', '', 'yes', 'a, 1')
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            if 0 < abs(value) < 1e-4:
                return "0.0"
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


def measured(value: float, threshold: float | None = None) -> str:
    """Return a measurement with up to four digits, or with as many as tell on which side of a threshold it lies.

    >>> measured(0.000112210648, 90), measured(91.23456), measured(0.8, 0.8), measured(0.79999, 0.8)
    ('0', '91.23', '0.8', '0.79999')
    """

    def side(number: float) -> tuple[bool, bool] | None:
        return None if threshold is None else (number > threshold, number >= threshold)

    for decimals in range(max(0, 4 - len(f"{abs(value):.0f}")), 18):
        text = f"{value:.{decimals}f}"
        if side(float(text)) == side(value):
            break
    else:
        return repr(value)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a line takes: letters of East Asia and most emoji two, accents none.

    >>> columns_of("tea"), columns_of("\N{CJK UNIFIED IDEOGRAPH-8336}"), columns_of("e\N{COMBINING ACUTE ACCENT}")
    (3, 2, 1)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.category(letter) in _WITHOUT_COLUMN for letter in text)


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
    return shortened("".join(letter if letter.isprintable() else " " for letter in text))


def _start(widths: Sequence[int], column: int) -> int:
    return sum(widths[:column]) + len(_GAP) * column


def _fitting(widths: Sequence[int]) -> int:
    """Return how many columns stand beside each other."""
    last = len(widths) - 1
    if _start(widths, last) + min(widths[last], _NARROWEST) <= _WIDTH:
        return last + 1
    return next((column for column in range(last, 1, -1) if _start(widths, column) - len(_GAP) <= _WIDTH), 1)


def _beside(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    *aligned, last = cells
    start = _start(widths, len(aligned))
    begin = "".join(
        cell + " " * (width - columns_of(cell)) + _GAP for cell, width in zip(aligned, widths, strict=False)
    )
    first, *more = _wrapped(last, _WIDTH - start)
    return [(begin + first).rstrip(), *(" " * start + line for line in more)]


def _below(names: Sequence[str], cells: Sequence[str], indent: int) -> list[str]:
    lines: list[str] = []
    for text in (f"{name}: {cell}" for name, cell in zip(names, cells, strict=True) if cell):
        if lines and indent + columns_of(lines[-1]) + len(_GAP) + columns_of(text) <= _WIDTH:
            lines[-1] += _GAP + text
        else:
            lines.append(text)
    return [" " * indent + part for line in lines for part in _wrapped(line, _WIDTH - indent)]


def _wrapped(text: str, width: int = _WIDTH) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and columns_of(lines[-1]) + 1 + columns_of(word) <= width:
            lines[-1] += " " + word
        else:
            lines += _pieces(word, width)
    return lines or [""]


def _pieces(word: str, width: int) -> list[str]:
    """Return a word in pieces that fit: what is written without blanks is broken wherever the line ends."""
    pieces = [""]
    filled = 0
    for letter in word:
        columns = columns_of(letter)
        if filled + columns > width:
            pieces.append("")
            filled = 0
        pieces[-1] += letter
        filled += columns
    return pieces
