"""What the metadata of a node holds, as rows that a filter can look up: (key, value) under the names of the dialect.

====================================  =================================================================================
entry of the metadata                 rows: key = value
====================================  =================================================================================
`"a": "text"`, `"a": 5`               `a = 'text'`, `a = 5`
`"a": True`, `"a": False`             `a = x'01'`, `a = x'00'`: a boolean is not a number
`"a": None`                           none: null and missing are one
`"a": ["x", 5]`                       `a = x'02'`, and each element: `a[] = 'x'`, `a[] = 5`
`"a": {"b": 1}`                       `a = x'02'`, and what is inside: `a.b = 1`
`"a.b": 1`                            `a.b = 1`, and then nothing for "b" of an object "a"
a text of more than 256 characters,   `a = x'02'`
a whole number beyond 64 bits, unless
a float is equal to it
an element like these, or null        `a[] = x'02'` in its place
a list of more than 64 elements       `a = x'02'`, and `a[] = x'02'` in place of all elements
an object with more than 64 rows      `a = x'02'`, and `a = x'03'` in place of what is inside
inside
`"a[]": 1`                            `a[]= = 1`: the key of an entry never looks like that of elements
====================================  =================================================================================

UNLISTED (x'02') and CLOSED (x'03') say "there is more in the JSON": it is the JSON of a node so marked, and of no
other, that a filter has to read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from rlm_memory.filters import MAX_PATH, Comparison, Filter, Not, Operator, Or, is_storable

FieldValue: TypeAlias = str | int | float | bytes

FALSE: Final = b"\x00"
TRUE: Final = b"\x01"
UNLISTED: Final = b"\x02"
CLOSED: Final = b"\x03"

_LISTED_TEXT = 256
_LISTED_ELEMENTS = 64
_LISTED_INSIDE = 64


def field_rows(metadata: Mapping[str, Any]) -> list[tuple[str, FieldValue]]:
    """Return the distinct (key, value) pairs that stand for a node with this metadata."""
    rows: dict[tuple[str, FieldValue], None] = {}  # 5 and 5.0 are one key of a dict, as they are one key of the index
    for name, value in metadata.items():
        if isinstance(value, (str, int, float)):
            form = listed_form(value)
            rows[entry_name(name), UNLISTED if form is None else form] = None
            continue
        rows.update(dict.fromkeys(_rows(name, value)))
        if isinstance(value, Mapping) and "." not in name:
            inside = list(itertools.islice(_rows_inside(metadata, [name], value), _LISTED_INSIDE + 1))
            rows.update(dict.fromkeys(inside if len(inside) <= _LISTED_INSIDE else [(entry_name(name), CLOSED)]))
    return list(rows)


def _rows(name: str, value: Any) -> Iterator[tuple[str, FieldValue]]:
    if value is None:
        return
    form = listed_form(value)
    yield entry_name(name), UNLISTED if form is None else form
    if isinstance(value, (list, tuple)):
        elements = value if len(value) <= _LISTED_ELEMENTS else [None]
        for element in map(listed_form, elements):
            yield element_name(name), UNLISTED if element is None else element


def _rows_inside(
    metadata: Mapping[str, Any], path: list[str], value: Mapping[str, Any]
) -> Iterator[tuple[str, FieldValue]]:
    if len(path) == MAX_PATH:
        return
    for part, child in value.items():
        if "." in part:
            continue
        inner = [*path, part]
        name = ".".join(inner)
        if name not in metadata:
            yield from _rows(name, child)
        if isinstance(child, Mapping):
            yield from _rows_inside(metadata, inner, child)


def listed_form(value: Any) -> FieldValue | None:
    """Return what the index holds for a value, None if it holds only that there is one."""
    if isinstance(value, str):
        return value if len(value) <= _LISTED_TEXT and is_storable(value) else None
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, (int, float)):
        return value if is_bindable(value) else _equal_float(value)
    return None


def _equal_float(value: float) -> float | None:
    """Return the float that equals a whole number beyond 64 bits, if there is one: as a float it may be stored too."""
    try:
        return float(value) if float(value) == value else None
    except OverflowError:
        return None


def is_bindable(value: str | float) -> bool:
    """Return whether a database can be given the value: a text without lone surrogates, a number of 64 bits."""
    if isinstance(value, str):
        return is_storable(value)
    return isinstance(value, float) or -(2**63) <= value < 2**63


def element_name(name: str) -> str:
    """Return the key of the rows for the elements of a list."""
    return f"{name}[]"


@lru_cache(maxsize=4096)  # few names, of many nodes
def entry_name(name: str) -> str:
    """Return the key of the rows for an entry."""
    # A name that itself ends in [] must not look like the elements of another one.
    return f"{name}=" if name.rstrip("=").endswith("[]") else name


def simplified(comparison: Comparison) -> Filter:
    """Return the same in fewer operators: none that a node without the field matches, save under a NOT."""
    value = comparison.value
    match comparison.operator:
        case Operator.NE:
            return Not(replace(comparison, operator=Operator.EQ))
        case Operator.NIN:
            return Not(replace(comparison, operator=Operator.IN))
        case Operator.EXISTS if not value:
            return Not(replace(comparison, value=True))
        case Operator.EMPTY if value:
            return Not(replace(comparison, value=False))
        case Operator.EQ if value is None:
            return Not(replace(comparison, operator=Operator.EXISTS, value=True))
        case Operator.IN if None in value:
            missing = Not(replace(comparison, operator=Operator.EXISTS, value=True))
            return Or((missing, replace(comparison, value=tuple(one for one in value if one is not None))))
        case _:
            return comparison


def successor(prefix: str) -> str | None:
    """Return the first text after all those that start with the prefix; None if no text comes after them."""
    shortened = prefix.rstrip("\U0010ffff")
    if not shortened:
        return None
    after = ord(shortened[-1]) + 1
    return shortened[:-1] + chr(0xE000 if after == 0xD800 else after)  # the surrogates between them are no characters
