"""Filters as SQL over `rlm_nodes`, aliased n, and the table `rlm_node_fields` that makes them fast.

`rlm_node_fields (namespace, field, value, node)` holds the rows of `rlm_memory.engines.fields`: a field is the hash of
a key, and a value is bytes in the order of the values, so that one index serves equality and ranges of every kind:

==================  ===================================================================================================
false, true, marks  the byte x'00', x'01', x'02', x'03'
a number            x'10', the bits of the nearest float so that they sort, and what a whole number has beyond it: 5 and
                    5.0 are the same bytes, and 2**53 + 1 lies between its neighbours
a text              x'20' and its UTF-8; one with a NUL, which no text of the server can hold, is marked x'02'
==================  ===================================================================================================

The SQL looks for rows that answer by themselves. Where it cannot tell (marks, patterns without regard to case over
other letters than ASCII), the rows in question are read first, in the same snapshot, and given to `predicate`, the
meaning itself; the nodes that it lets through are then bound as a list.

Every key and value is bound. Every expression is true or false, never NULL, so that NOT is the complement.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from rlm_memory.engines.fields import (
    CLOSED,
    UNLISTED,
    FieldValue,
    element_name,
    entry_name,
    field_rows,
    is_bindable,
    listed_form,
    simplified,
    successor,
)
from rlm_memory.engines.postgres.values import ESCAPE, RawText, key_of
from rlm_memory.errors import InvalidFilterError
from rlm_memory.filters import (
    And,
    Column,
    Comparison,
    Filter,
    Key,
    Not,
    Operator,
    Or,
    is_storable,
    like_prefix,
    predicate,
)

Ask: TypeAlias = Callable[[str, Sequence[Any]], list[Any]]
"""Executes a SELECT in the snapshot that the filter is for, and returns its rows."""

_NUMBER: Final = b"\x10"
_PAST_NUMBERS: Final = b"\x11"
_TEXT: Final = b"\x20"
_PAST_TEXTS: Final = b"\x21"

_COMPARED: Final = {Operator.LT: "<", Operator.LTE: "<=", Operator.GT: ">", Operator.GTE: ">="}
_TEXTUAL: Final = (Operator.LIKE, Operator.ILIKE, Operator.TEXT_MATCH, Operator.TEXT_MATCH_INSENSITIVE)


class _Clause(NamedTuple):
    sql: str
    values: list[Any]


_NEVER: Final = _Clause("false", [])

_MOST_PARTS: Final = 16
"""A filter of more parts is taken apart: the planner would look for the best order in which to join its conditions, for
minutes where there are hundreds."""

_AT_ONCE: Final = 100
"""So many comparisons of a filter that was taken apart are asked for by one statement."""


class Compiler:
    """Compiles filters for one namespace, in one snapshot of the database."""

    def __init__(self, namespace: UUID, ask: Ask) -> None:
        self._namespace = namespace
        self._ask = ask
        self._read: dict[tuple[str, bytes], list[Any]] = {}

    def compile(self, filter: Filter | None) -> tuple[str, list[Any]]:
        """Return a boolean expression over `rlm_nodes AS n`, and the values to bind in it, in order.

        None gives an expression that is always true.
        """
        if filter is not None and filter.extent.parts > _MOST_PARTS:
            return "n.node = ANY (%s::bigint[])", [sorted(self._chosen(filter))]
        sql, values = self._compile(filter)
        return sql, values

    def _chosen(self, filter: Filter) -> set[int]:
        """Return the nodes that a filter of many parts lets through, by asking for each comparison alone."""
        match filter:
            case And():
                return self._selected("true", []).intersection(*self._chosen_by_each(filter.parts))
            case Or():
                return set[int]().union(*self._chosen_by_each(filter.parts))
            case Not():
                return self._selected("true", []) - self._chosen(filter.part)
            case _:
                return self._selected(*self._compile(filter))

    def _chosen_by_each(self, parts: Sequence[Filter]) -> list[set[int]]:
        """Return what `_chosen` returns for each; comparisons among them share journeys to the server."""
        chosen: list[set[int]] = [set() for _ in parts]
        alone = [i for i, part in enumerate(parts) if isinstance(part, Comparison)]
        for start in range(0, len(alone), _AT_ONCE):
            some = {i: self._compile(parts[i]) for i in alone[start : start + _AT_ONCE]}
            select = " UNION ALL ".join(
                f"SELECT {i}, n.node FROM rlm_nodes n WHERE n.namespace = %s AND {clause.sql}"
                for i, clause in some.items()
            )
            values = [value for clause in some.values() for value in (self._namespace, *clause.values)]
            for i, node in self._ask(select, values):
                chosen[i].add(node)
        for i in set(range(len(parts))).difference(alone):
            chosen[i] = self._chosen(parts[i])
        return chosen

    def _selected(self, sql: str, values: list[Any]) -> set[int]:
        select = f"SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND {sql}"
        return {node for (node,) in self._ask(select, [self._namespace, *values])}

    def _compile(self, filter: Filter | None) -> _Clause:
        match filter:
            case None:
                return _Clause("true", [])
            case And():
                return _joined("AND", [self._compile(part) for part in filter.parts], empty="true")
            case Or():
                return _joined("OR", [self._compile(part) for part in filter.parts], empty="false")
            case Not():
                clause = self._compile(filter.part)
                return _Clause(f"NOT ({clause.sql})", clause.values)
            case Comparison(field=Column() as column):
                return self._on_column(column, filter)
            case Comparison(field=Key() as key):
                return self._on_key(key, filter)
            case _:
                raise InvalidFilterError(f"Expected the tree that parse_filter returns, got {type(filter).__name__}.")

    # -- columns ------------------------------------------------------------------------------------------------

    def _on_column(self, column: Column, comparison: Comparison) -> _Clause:
        simple = simplified(comparison)
        if simple is not comparison:
            return self._compile(simple)
        name, value = f"n.{column.name}", comparison.value
        match comparison.operator:
            case Operator.EXISTS:
                return _Clause(f"{name} IS NOT NULL", [])
            case Operator.EMPTY:
                nonempty = f"{name} <> ''" if column.kind in ("text", "choice") else "true"
                return _where_not_null(name, _Clause(nonempty, []))
            case operator if operator in _TEXTUAL:
                return self._on_text(name, comparison)
            case Operator.EQ:
                return _where_not_null(name, _equal(column, name, [value]))
            case Operator.IN:
                return _where_not_null(name, _equal(column, name, value))
            case Operator.BETWEEN:
                low, high = value
                return _where_not_null(
                    name,
                    _joined("AND", [_compared(column, name, ">=", low), _compared(column, name, "<=", high)], empty=""),
                )
            case operator:
                return _where_not_null(name, _compared(column, name, _COMPARED[operator], value))

    def _on_text(self, name: str, comparison: Comparison) -> _Clause:
        """Compare a text column with a pattern, or look for a text within it."""
        if not is_storable(comparison.value):
            return _NEVER
        clause, plain = _pattern(name, comparison)
        rows = self._ask(
            f"SELECT n.node, {name} FROM rlm_nodes n WHERE n.namespace = %s AND NOT ({plain.sql})",
            [self._namespace, *plain.values],
        )
        test = predicate(comparison)
        chosen = [node for node, stored in rows if test(stored)]
        sql = f"CASE WHEN {plain.sql} THEN {clause.sql} ELSE n.node = ANY (%s::bigint[]) END"
        return _where_not_null(name, _Clause(sql, [*plain.values, *clause.values, chosen]))

    # -- metadata -----------------------------------------------------------------------------------------------

    def _on_key(self, key: Key, comparison: Comparison) -> _Clause:
        if not is_storable(key.name):
            return _Clause("true" if predicate(comparison)(None) else "false", [])
        simple = simplified(comparison)
        if simple is not comparison:
            return self._compile(simple)
        conditions, marks = _rows_that_tell(key, comparison)
        if key.path:
            marks = [*marks, (entry_name(key.path[0]), CLOSED)]
        selects = [
            _Clause(
                f"SELECT f.node FROM rlm_node_fields f WHERE f.namespace = %s AND {condition.sql}",
                [self._namespace, *condition.values],
            )
            for condition in conditions
        ]
        chosen = sorted({node for mark in marks for node in self._marked(mark, comparison, key)})
        if comparison.operator in (Operator.ILIKE, Operator.TEXT_MATCH_INSENSITIVE):
            chosen += self._other_letters(key, comparison)
        if chosen:
            selects.append(_Clause("SELECT unnest(%s::bigint[])", [chosen]))
        if not selects:
            return _NEVER
        sql = " UNION ALL ".join(select.sql for select in selects)
        return _Clause(f"n.node IN ({sql})", [value for select in selects for value in select.values])

    def _marked(self, mark: tuple[str, bytes], comparison: Comparison, key: Key) -> list[int]:
        """Return the nodes so marked whose JSON passes."""
        name, value = mark
        if (rows := self._read.get(mark)) is None:
            rows = self._read[mark] = self._ask(
                "SELECT m.node, m.metadata FROM rlm_node_fields f JOIN rlm_nodes m "
                "ON m.namespace = f.namespace AND m.node = f.node "
                "WHERE f.namespace = %s AND f.field = %s AND f.value = %s",
                [self._namespace, key_of(name), value],
            )
        test = predicate(comparison)
        return [node for node, metadata in rows if test(key.find(json.loads(metadata)))]

    def _other_letters(self, key: Key, comparison: Comparison) -> list[int]:
        """Return the nodes whose text under the key has other letters than ASCII and passes."""
        under, plain = _texts_under(key), _ascii("convert_from(substr(f.value, 2), 'UTF8')")
        rows = self._ask(
            "SELECT f.node, substr(f.value, 2) FROM rlm_node_fields f "
            f"WHERE f.namespace = %s AND {under.sql} AND NOT ({plain})",
            [self._namespace, *under.values],
        )
        test = predicate(comparison)
        return [node for node, stored in rows if test(bytes(stored).decode())]


def encoded_rows(metadata: Mapping[str, Any]) -> list[tuple[UUID, bytes]]:
    """Return the distinct (field, value) that `rlm_node_fields` holds for a node with this metadata."""
    return list(dict.fromkeys((key_of(name), _encoded(value) or UNLISTED) for name, value in field_rows(metadata)))


# -- values ---------------------------------------------------------------------------------------------------------


def _encoded(value: FieldValue) -> bytes | None:
    """Return the bytes of a value, None for a text that they cannot hold."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return None if "\0" in value else _TEXT + value.encode()
    return _NUMBER + _sortable(value)


def _sortable(number: float) -> bytes:
    """Return a number of 64 bits so that the order of the bytes is that of the numbers, and equal ones are the same.

    >>> _sortable(5) == _sortable(5.0), _sortable(0) == _sortable(-0.0), _sortable(-1.5) < _sortable(-1) < _sortable(7)
    (True, True, True)
    >>> _sortable(2**53) < _sortable(2**53 + 1) < _sortable(2**53 + 2)
    True
    """
    nearest = float(number) + 0.0
    (bits,) = struct.unpack(">Q", struct.pack(">d", 0.0 if nearest == 0 else nearest))
    bits = bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63
    beyond = number - int(nearest) if isinstance(number, int) else 0
    return int(bits).to_bytes(8, "big") + (beyond + 0x8000).to_bytes(2, "big")


def _listable(values: Iterable[Any]) -> list[bytes]:
    forms = (listed_form(value) for value in values)
    return [encoded for form in forms if form is not None and (encoded := _encoded(form)) is not None]


# -- conditions -----------------------------------------------------------------------------------------------------


def _joined(word: str, clauses: Sequence[_Clause], *, empty: str) -> _Clause:
    if not clauses:
        return _Clause(empty, [])
    if len(clauses) == 1:
        return clauses[0]
    sql = f" {word} ".join(clause.sql for clause in clauses)
    return _Clause(f"({sql})", [value for clause in clauses for value in clause.values])


def _where_not_null(name: str, clause: _Clause) -> _Clause:
    return _Clause(f"({name} IS NOT NULL AND {clause.sql})", clause.values)


def _equal(column: Column, name: str, wanted: Iterable[Any]) -> _Clause:
    """Return that a column, which is not NULL, has one of these values."""
    match column.kind:
        case "text" | "choice":
            return _Clause(f"{name} = ANY (%s::text[])", [[text for text in wanted if is_storable(text)]])
        case "flag":
            return _Clause(f"{name} = ANY (%s::boolean[])", [list(wanted)])
        case "number" | "time":
            clauses = [_compared(column, name, "=", value) for value in wanted]
            return _joined("OR", clauses, empty="false")


def _compared(column: Column, name: str, sign: str, value: Any) -> _Clause:
    if isinstance(value, str):
        return _Clause(f"{name} {sign} %s", [value]) if is_storable(value) else _NEVER
    if column.name == "confidence":
        return _Clause(f"{name} {sign} %s::float8", [_nearest_float(value)])
    return _Clause(f"{name}::numeric {sign} %s::numeric", [Decimal(value)])


def _nearest_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _pattern(name: str, comparison: Comparison) -> tuple[_Clause, _Clause]:
    """Return the comparison of a text column as SQL, and for which of its values the SQL means what Python means."""
    value = comparison.value
    # In a text with an escaped character, one character may be two.
    whole = f"strpos({name}, %s) = 0"
    match comparison.operator:
        case Operator.LIKE:
            return _Clause(f"{name} LIKE %s", [value]), _Clause(whole, [RawText(ESCAPE)])
        case Operator.TEXT_MATCH:
            return _Clause(f"strpos({name}, %s) > 0", [value]), _Clause(whole, [RawText(ESCAPE)])
        case Operator.ILIKE:
            sql = f'lower({name} COLLATE "C") LIKE %s'
        case _:
            sql = f'strpos(lower({name} COLLATE "C"), %s) > 0'
    return _Clause(sql, [value.casefold()]), _Clause(f"({whole} AND {_ascii(name)})", [RawText(ESCAPE)])


def _ascii(name: str) -> str:
    return f"octet_length({name}) = char_length({name})"


def _texts_under(key: Key) -> _Clause:
    return _Clause(
        "f.field = %s AND f.value >= %s AND f.value < %s", [key_of(entry_name(key.name)), _TEXT, _PAST_TEXTS]
    )


def _rows_that_tell(key: Key, comparison: Comparison) -> tuple[list[_Clause], list[tuple[str, bytes]]]:
    """Return conditions on the rows whose nodes match, and the marks under which a node may match for other reasons."""
    name, elements, value = entry_name(key.name), element_name(key.name), comparison.value
    field, both = key_of(name), [key_of(name), key_of(elements)]
    here, inside = [(name, UNLISTED)], [(elements, UNLISTED)]
    match comparison.operator:
        case Operator.EXISTS:
            return [_Clause("f.field = %s", [field])], []
        case Operator.EMPTY:
            return [_Clause("f.field = %s AND f.value <> ALL (%s::bytea[])", [field, [_TEXT, UNLISTED]])], here
        case Operator.EQ | Operator.IN:
            wanted = value if comparison.operator is Operator.IN else [value]
            listed = _listable(wanted)
            return _among("f.field = %s", [field], listed), here if len(listed) < len(wanted) else []
        case Operator.CONTAINS | Operator.ANY:
            wanted = value if comparison.operator is Operator.ANY else [value]
            listed = _listable(wanted)
            marks = here if len(listed) < len(wanted) else inside
            return _among("f.field = ANY (%s::uuid[])", [both], listed), marks if wanted else []
        case Operator.ALL if not value:
            return [_Clause("f.field = %s AND f.value <> ALL (%s::bytea[])", [field, [UNLISTED, CLOSED]])], here
        case Operator.ALL:
            listed = _listable(value)
            if len(listed) < len(value):
                return [], here
            listed = list(dict.fromkeys(listed))
            sql = (
                "f.field = ANY (%s::uuid[]) AND f.value = ANY (%s::bytea[]) GROUP BY f.node "
                "HAVING count(DISTINCT f.value) = %s"
            )
            return [_Clause(sql, [both, listed, len(listed)])], inside
        case Operator.LT | Operator.LTE | Operator.GT | Operator.GTE if (bound := _bound(value)) is not None:
            low, high = (_TEXT, _PAST_TEXTS) if isinstance(value, str) else (_NUMBER, _PAST_NUMBERS)
            sql = f"f.field = %s AND f.value >= %s AND f.value < %s AND f.value {_COMPARED[comparison.operator]} %s"
            return [_Clause(sql, [field, low, high, bound])], here
        case Operator.BETWEEN if None not in (bounds := [_bound(one) for one in value]):
            return [_Clause("f.field = %s AND f.value BETWEEN %s AND %s", [field, *bounds])], here
        case operator if operator in _TEXTUAL and is_storable(value) and "\0" not in value:
            return [_like(key, comparison)], here
        case _:  # a text that no listed value can have, or be compared with
            return [], here


def _bound(value: Any) -> bytes | None:
    """Return the bytes that a range ends with, None for a text that is no Unicode."""
    if isinstance(value, str):
        return _TEXT + value.encode() if is_storable(value) else None
    return _NUMBER + (_sortable(value) if is_bindable(value) else _sortable_big(value))


def _sortable_big(value: int) -> bytes:
    """Return where a whole number of more than 64 bits stands among the bytes of those that are listed."""
    try:
        nearest = float(value)
    except OverflowError:
        return b"\xff" * 10 if value > 0 else b"\x00" * 10
    beyond = min(max(value - int(nearest), -0x8000), 0x7FFF)
    return _sortable(nearest)[:8] + (beyond + 0x8000).to_bytes(2, "big")


def _like(key: Key, comparison: Comparison) -> _Clause:
    """Return the condition of a pattern, or of a text that is looked for, on the listed texts under a key."""
    under, value = _texts_under(key), comparison.value
    stored = "convert_from(substr(f.value, 2), 'UTF8')"
    match comparison.operator:
        case Operator.LIKE:
            after = successor(prefix := like_prefix(value))
            bounds = [_TEXT + prefix.encode(), _PAST_TEXTS if after is None else _TEXT + after.encode()]
            sql = f"f.field = %s AND f.value >= %s AND f.value < %s AND {stored} LIKE %s"
            return _Clause(sql, [key_of(entry_name(key.name)), *bounds, RawText(value)])
        case Operator.TEXT_MATCH:
            return _Clause(f"{under.sql} AND strpos({stored}, %s) > 0", [*under.values, RawText(value)])
        case Operator.ILIKE:
            found = f'lower({stored} COLLATE "C") LIKE %s'
        case _:
            found = f'strpos(lower({stored} COLLATE "C"), %s) > 0'
    return _Clause(f"{under.sql} AND {_ascii(stored)} AND {found}", [*under.values, RawText(value.casefold())])


def _among(sql: str, values: Sequence[Any], listed: Sequence[bytes]) -> list[_Clause]:
    if not listed:
        return []
    return [_Clause(f"{sql} AND f.value = ANY (%s::bytea[])", [*values, list(listed)])]
