"""What a filter says about a node: a tree, its dialect of dicts, and its meaning in plain Python.

`parse_filter` reads the dialect; adapters whose framework has filters of its own build the tree. Every tree that exists
is sound: its parts refuse what they cannot mean with `InvalidFilterError`. `matches` is the meaning; an engine may be
faster, never different.

**The shape**

=====================================  ================================================================================
`None`, `{}`                           no filter: every node
`{"a": 1, "b": 2}`                     both hold
`{"a": 1}`                             short for `{"a": {"$eq": 1}}`, also for a list or an object
`{"a": {"$gt": 1, "$lt": 9}}`          both hold
`{"$and": [F, G]}`, `{"$or": [F, G]}`  all hold, at least one holds; `{"$and": []}` is every node, `{"$or": []}` is none
`{"$not": F}`, `{"$not": [F, G]}`      F does not hold; none of them holds
`{"$or": [F, G], "a": 1}`              operators and fields side by side: all hold
=====================================  ================================================================================

A part may also be a tree. `$not` is the exact complement: `{"$not": {"a": 1}}` matches the nodes without `a` too.

**The field**

=================  ====================================================================================================
`"node.tier"`      a column of the node: id, text, type, subtype, tier, confidence, provenance, pinned, access_count,
                   created_at, updated_at, last_accessed
`"a"`              the entry of the metadata with this key; any text is a key, the empty one too
`"a.b"`            the entry whose key is "a.b" if there is one (even null), else the entry "b" of the object "a";
                   a path leads through objects, not into lists, and has at most 16 parts
`"$…"`, `"node.…"` refused if it is no operator, no column; a metadata key of such a name is reached by `Key` in a tree
=================  ====================================================================================================

A missing field and null are one and the same.

**The operators** (v: the stored value; x: the one in the filter)

======================  ===============================================================================================
`$eq` x                 v equals x. 5 equals 5.0, not "5"; true is not 1; "a" is not "A"; lists and objects are compared
                        by their content. `$eq` null: the field is missing or null
`$ne` x                 not `$eq` x: a node without the field matches, unless x is null
`$in` [x, …]            v equals one of them; `[]` matches no node
`$nin` [x, …]           not `$in`: a node without the field matches, unless null is listed; `[]` matches every node
`$lt $lte $gt $gte` x   numbers with numbers, texts with texts (by code point); anything else does not match
`$between` [x, y]       x ≤ v ≤ y
`$exists` true / false  the field is there and not null / it is missing or null
`$empty` true / false   v is missing, null, "" or [] / it is not
`$like` x               the whole text v, with % for any characters, _ for one, a backslash before a literal one
`$ilike` x              the same without regard to case (`str.casefold`, so that "STRASSE" finds "straße")
`$text_match` x         the text v contains x
`$text_match_           the same without regard to case
insensitive` x
`$contains` x           the list v has an element that equals x; a text, number or boolean counts as a list of itself,
                        so "testing" does not contain "test" (that is `$text_match`)
`$any` [x, …]           the list v has at least one of them; `[]` matches no node
`$all` [x, …]           the list v has all of them; `[]` matches every node with a list, text, number or boolean
======================  ===============================================================================================

Only `$ne`, `$nin`, `$exists` false, `$empty` true, and null in `$eq` or `$in`, match a node without the field.

**Columns**: text columns take texts, `node.confidence` and `node.access_count` numbers, `node.pinned` true or false,
`node.type` and `node.tier` the known words, by equality alone. Times take a `datetime`, a `date` (its midnight), an
ISO 8601 text or milliseconds since 1970; without a time zone they are UTC; they are compared in whole milliseconds,
rounded down, as they are stored. A column takes no list operator. Null is allowed in `$eq`, `$ne`, `$in` and `$nin`.

**Limits**: 64 levels; 1,000 comparisons and operators around them; 10,000 values; 10,000 characters in a pattern.
Values are those of JSON: NaN, sets, bytes, dates (but for times) and other objects are refused. Text with a lone
surrogate cannot be stored: it is allowed here and matches nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never

from rlm_memory.errors import InvalidFilterError
from rlm_memory.records import NODE_TYPES, TIERS, Node
from rlm_memory.times import milliseconds

MAX_DEPTH = 64
MAX_PARTS = 1_000
"""Comparisons, and the operators around them."""
MAX_VALUES = 10_000
MAX_PATTERN = 10_000
MAX_PATH = 16
"""Parts of a path into the metadata; a longer name is a key of the top level only."""

ColumnKind: TypeAlias = Literal["text", "choice", "number", "flag", "time"]

_COLUMNS: dict[str, ColumnKind] = {
    "id": "text",
    "text": "text",
    "type": "choice",
    "subtype": "text",
    "tier": "choice",
    "confidence": "number",
    "provenance": "text",
    "pinned": "flag",
    "access_count": "number",
    "created_at": "time",
    "updated_at": "time",
    "last_accessed": "time",
}
_LIKE_PREFIX = re.compile(r"(?:[^\\%_]|\\.)*", re.DOTALL)
_CHOICES: dict[str, Sequence[str]] = {"type": NODE_TYPES, "tier": TIERS}


class Operator(StrEnum):
    """How a comparison compares; its value is its name in the dialect."""

    EQ = "$eq"
    NE = "$ne"
    LT = "$lt"
    LTE = "$lte"
    GT = "$gt"
    GTE = "$gte"
    BETWEEN = "$between"
    IN = "$in"
    NIN = "$nin"
    EXISTS = "$exists"
    EMPTY = "$empty"
    LIKE = "$like"
    ILIKE = "$ilike"
    TEXT_MATCH = "$text_match"
    TEXT_MATCH_INSENSITIVE = "$text_match_insensitive"
    CONTAINS = "$contains"
    ANY = "$any"
    ALL = "$all"


_LOGICAL = ("$and", "$or", "$not")
_OPERATORS = tuple(operator.value for operator in Operator)
_RANGES = (Operator.LT, Operator.LTE, Operator.GT, Operator.GTE, Operator.BETWEEN)
_TEXTUAL = (Operator.LIKE, Operator.ILIKE, Operator.TEXT_MATCH, Operator.TEXT_MATCH_INSENSITIVE)
_OF_LISTS = (Operator.CONTAINS, Operator.ANY, Operator.ALL)
_TAKING_NULL = (Operator.EQ, Operator.NE, Operator.IN, Operator.NIN)


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the node, by its name without `node.`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _COLUMNS:
            raise InvalidFilterError(_unknown("column", f"node.{self.name}", [f"node.{name}" for name in _COLUMNS]))

    def __str__(self) -> str:
        return f"node.{self.name}"

    @property
    def kind(self) -> ColumnKind:
        """What the column holds."""
        return _COLUMNS[self.name]

    def find(self, node: Node) -> Any:
        """Return the node's value as it is compared: None, a text, a number, a boolean; a time in milliseconds."""
        value = getattr(node, self.name)
        return milliseconds(value) if isinstance(value, datetime) else value


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A field of the metadata: a key, or with dots also the path to an entry of an object in it."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidFilterError(f"A field is named by a text, got {_shown(self.name)}.")

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> list[str]:
        """The parts of the path; empty if the name is only a key."""
        parts = self.name.split(".")
        return parts if 1 < len(parts) <= MAX_PATH else []

    def find(self, metadata: Mapping[str, Any]) -> Any:
        """Return the value of the field in this metadata, None if there is none."""
        if self.name in metadata:
            return metadata[self.name]
        if not self.path:
            return None
        value: Any = metadata
        for part in self.path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value


Field: TypeAlias = Column | Key


class Extent(NamedTuple):
    """How much a filter asks for: levels above its comparisons; comparisons and operators; values in them."""

    levels: int
    parts: int
    values: int


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A field, an operator and the value it is held against.

    The value is kept in the form it is compared in: lists become tuples, times milliseconds.

    Raises:
        InvalidFilterError: The operator is unknown, does not fit the column, or cannot take the value.
    """

    field: Field
    operator: Operator
    value: Any
    extent: Extent = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        operator = _operator(self.operator)
        counter = itertools.count(1)
        value = _operand(self.field, operator, self.value, counter)
        object.__setattr__(self, "operator", operator)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "extent", Extent(0, 1, next(counter)))


@dataclasses.dataclass(frozen=True, slots=True)
class And:
    """All parts hold; without parts it matches every node."""

    parts: tuple[Filter, ...]
    extent: Extent = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _gather(self, "$and")


@dataclasses.dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; without parts it matches no node."""

    parts: tuple[Filter, ...]
    extent: Extent = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _gather(self, "$or")


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter
    extent: Extent = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", _extent((self.part,), "$not"))


Filter: TypeAlias = Comparison | And | Or | Not


def parse_filter(where: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Return the tree of a filter in the dialect of dicts; a tree comes back as it is, `None` and `{}` as None.

    >>> parse_filter({"topic": "db", "node.tier": {"$in": ["session", "longterm"]}}).parts[0]
    Comparison(field=Key(name='topic'), operator=<Operator.EQ: '$eq'>, value='db')

    Raises:
        InvalidFilterError: The filter says something that has no meaning; the message names it.
    """
    if where is None or (isinstance(where, Mapping) and not where):
        return None
    return _parse(where, MAX_DEPTH)


def parse_field(name: str) -> Field:
    """Return the column or metadata key that a name of the dialect stands for.

    Raises:
        InvalidFilterError: The name starts with `$`, or with `node.` and is no column.
    """
    if not isinstance(name, str):
        raise InvalidFilterError(f"A field is named by a text, got {_shown(name)}.")
    if name.startswith("$"):
        if name in _OPERATORS:
            raise InvalidFilterError(f'{name} stands inside a field: {{"field": {{"{name}": …}}}}.')
        raise InvalidFilterError(_unknown("operator", name, [*_LOGICAL, *_OPERATORS]))
    if name.startswith("node."):
        return Column(name.removeprefix("node."))
    return Key(name)


def matches(filter: Filter | None, node: Node) -> bool:
    """Tell whether the node is one that the filter lets through; None lets every node through.

    >>> matches(parse_filter({"year": {"$gte": 2020}}), Node(text="…", metadata={"year": 2024}))
    True
    """
    match filter:
        case None:
            return True
        case Comparison(field=Column() as column):
            return predicate(filter)(column.find(node))
        case Comparison(field=Key() as key):
            return predicate(filter)(key.find(node.metadata))
        case And():
            return all(matches(part, node) for part in filter.parts)
        case Or():
            return any(matches(part, node) for part in filter.parts)
        case Not():
            return not matches(filter.part, node)
        case _:
            raise InvalidFilterError(_not_a_filter(filter))


def predicate(comparison: Comparison) -> Callable[[Any], bool]:
    """Return what a comparison asks of the value that its field has in a node; None stands for "not there"."""
    value = comparison.value
    match comparison.operator:
        case Operator.EQ:
            return lambda stored: _equal(stored, value)
        case Operator.NE:
            return lambda stored: not _equal(stored, value)
        case Operator.IN:
            return lambda stored: any(_equal(stored, one) for one in value)
        case Operator.NIN:
            return lambda stored: not any(_equal(stored, one) for one in value)
        case Operator.LT:
            return lambda stored: _ordered(stored, value) and bool(stored < value)
        case Operator.LTE:
            return lambda stored: _ordered(stored, value) and bool(stored <= value)
        case Operator.GT:
            return lambda stored: _ordered(stored, value) and bool(stored > value)
        case Operator.GTE:
            return lambda stored: _ordered(stored, value) and bool(stored >= value)
        case Operator.BETWEEN:
            low, high = value
            return lambda stored: _ordered(stored, low) and _ordered(stored, high) and bool(low <= stored <= high)
        case Operator.EXISTS:
            return lambda stored: (stored is not None) is value
        case Operator.EMPTY:
            return lambda stored: (stored is None or (isinstance(stored, (str, list, tuple)) and not stored)) is value
        case Operator.LIKE:
            pattern = _pattern(value)
            return lambda stored: isinstance(stored, str) and pattern.fullmatch(stored) is not None
        case Operator.ILIKE:
            folded = _pattern(value.casefold())
            return lambda stored: isinstance(stored, str) and folded.fullmatch(stored.casefold()) is not None
        case Operator.TEXT_MATCH:
            return lambda stored: isinstance(stored, str) and value in stored
        case Operator.TEXT_MATCH_INSENSITIVE:
            within = value.casefold()
            return lambda stored: isinstance(stored, str) and within in stored.casefold()
        case Operator.CONTAINS:
            return lambda stored: any(_equal(element, value) for element in _elements(stored) or ())
        case Operator.ANY:
            return lambda stored: any(_equal(element, one) for element in _elements(stored) or () for one in value)
        case Operator.ALL:
            return lambda stored: (
                (elements := _elements(stored)) is not None
                and all(any(_equal(element, one) for element in elements) for one in value)
            )
        case _:
            assert_never(comparison.operator)


def like_prefix(pattern: str) -> str:
    r"""Return the literal text that a `$like` pattern starts with.

    >>> like_prefix(r"100\%_a%")
    '100%'
    """
    literal = _LIKE_PREFIX.match(pattern)
    return re.sub(r"\\(.)", r"\1", literal[0], flags=re.DOTALL) if literal else ""


def is_storable(text: str) -> bool:
    """Tell whether the text can be written as UTF-8: not if it has a lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- the dialect ----------------------------------------------------------------------------------------------------


def _parse(where: Any, levels: int) -> Filter:
    if isinstance(where, (Comparison, And, Or, Not)):
        return where
    if not isinstance(where, Mapping):
        raise InvalidFilterError(_not_a_filter(where))
    if levels < 0:
        raise InvalidFilterError(f"The filter is nested more than {MAX_DEPTH} levels deep.")
    return _all([part for name, value in where.items() for part in _parse_entry(name, value, levels)])


def _parse_entry(name: Any, value: Any, levels: int) -> Iterator[Filter]:
    match name:
        case "$and":
            yield _all(_parse_parts(name, value, levels))
        case "$or":
            yield Or(tuple(_parse_parts(name, value, levels)))
        case "$not":
            parts = [value] if isinstance(value, (Mapping, Comparison, And, Or, Not)) else value
            yield _all([Not(part) for part in _parse_parts(name, parts, levels)])
        case _:
            field = parse_field(name)
            for operator, operand in _operations(name, value):
                yield Comparison(field, operator, operand)


def _parse_parts(name: str, parts: Any, levels: int) -> list[Filter]:
    if not isinstance(parts, (list, tuple)):
        wanted = "a filter or a list of filters" if name == "$not" else "a list of filters"
        raise InvalidFilterError(f"{name} takes {wanted}, got {_shown(parts)}.")
    return [_parse(part, levels - 1) for part in parts]


def _operations(name: str, value: Any) -> Iterable[tuple[Operator, Any]]:
    """Return what is asked of a field: its operators, or one equality for a bare value."""
    if not isinstance(value, Mapping) or not value:
        return [(Operator.EQ, value)]
    marked = [isinstance(key, str) and key.startswith("$") for key in value]
    if all(marked):
        return [(_operator(key), operand) for key, operand in value.items()]
    if any(marked):
        raise InvalidFilterError(
            f"{_shown(name)}: operators and other keys are mixed in {_shown(value)}. "
            'To compare with an object, write {"$eq": {…}}.'
        )
    if all(f"${key}" in _OPERATORS for key in value):
        raise InvalidFilterError(
            f"{_shown(name)}: operators start with $, as in {_shown({f'${key}': v for key, v in value.items()})}. "
            'To compare with an object, write {"$eq": {…}}.'
        )
    return [(Operator.EQ, value)]


def _all(parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _operator(name: Any) -> Operator:
    try:
        return Operator(name)
    except ValueError:
        if name in _LOGICAL:
            wanted = f'{name} stands around fields, not inside one: {{"{name}": …}}.'
            raise InvalidFilterError(wanted) from None
        raise InvalidFilterError(_unknown("operator", name, _OPERATORS)) from None


# -- what a comparison may hold -------------------------------------------------------------------------------------


def _operand(field: Field, operator: Operator, value: Any, counter: Iterator[int]) -> Any:
    """Return the value in the form it is compared in, and count the values in it."""
    if not isinstance(field, (Column, Key)):
        raise InvalidFilterError(f"A field is a Column or a Key, got {_shown(field)}.")
    if isinstance(field, Column):
        _check_column_takes(field, operator)

    name = str(field) if isinstance(field, Column) else _shown(field.name)

    def scalar(one: Any) -> Any:
        if isinstance(field, Key):
            return _json_value(name, one, counter, MAX_DEPTH)
        _count(name, counter)
        return _column_value(field, one, null=operator in _TAKING_NULL)

    what = f"{name} {operator}"
    match operator:
        case Operator.EXISTS | Operator.EMPTY:
            if not isinstance(value, bool):
                raise InvalidFilterError(f"{what} takes true or false, got {_shown(value)}.")
            return value
        case Operator.LIKE | Operator.ILIKE | Operator.TEXT_MATCH | Operator.TEXT_MATCH_INSENSITIVE:
            if not isinstance(value, str):
                raise InvalidFilterError(f"{what} takes a text, got {_shown(value)}.")
            if operator in (Operator.LIKE, Operator.ILIKE):
                if len(value) > MAX_PATTERN:
                    raise InvalidFilterError(f"{what}: the pattern has more than {MAX_PATTERN} characters.")
                _pattern(value)
            return str.__str__(value)
        case Operator.IN | Operator.NIN | Operator.ANY | Operator.ALL:
            if not isinstance(value, (list, tuple)):
                raise InvalidFilterError(f"{what} takes a list, got {_shown(value)}.")
            return tuple(scalar(one) for one in value)
        case Operator.BETWEEN:
            if not isinstance(value, (list, tuple)) or len(value) != 2:
                raise InvalidFilterError(f"{what} takes a list of two values, got {_shown(value)}.")
            low, high = scalar(value[0]), scalar(value[1])
            if not _same_kind(low, high):
                raise InvalidFilterError(f"{what} takes two numbers or two texts, got {_shown(value)}.")
            return low, high
        case Operator.LT | Operator.LTE | Operator.GT | Operator.GTE:
            bound = scalar(value)
            if not _same_kind(bound, bound):
                raise InvalidFilterError(f"{what} takes a number or a text, got {_shown(value)}.")
            return bound
        case Operator.EQ | Operator.NE | Operator.CONTAINS:
            return scalar(value)
        case _:
            assert_never(operator)


def _check_column_takes(column: Column, operator: Operator) -> None:
    if operator in _OF_LISTS:
        raise InvalidFilterError(f"{column} {operator}: a column holds one value, not a list. Use $in or $eq.")
    if operator in _TEXTUAL and column.kind != "text":
        raise InvalidFilterError(f"{column} {operator}: the column holds no text ({column.kind}).")
    if operator in _RANGES and column.kind in ("choice", "flag"):
        raise InvalidFilterError(f"{column} {operator}: the column has no order. Use $in to list what may match.")


def _column_value(column: Column, value: Any, *, null: bool) -> Any:
    if value is None and null:
        return None
    match column.kind:
        case "text":
            if isinstance(value, str):
                return str.__str__(value)
            wanted = "a text"
        case "choice":
            known = _CHOICES[column.name]
            if value in known:
                return str.__str__(value)
            if isinstance(value, str):
                raise InvalidFilterError(_unknown(column.name, value, known))
            wanted = "one of " + ", ".join(known)
        case "number":
            if _is_number(value):
                return _plain_number(str(column), value)
            wanted = "a number"
        case "flag":
            if isinstance(value, bool):
                return value
            wanted = "true or false"
        case "time":
            if (moment := _time(column, value)) is not None:
                return moment
            wanted = "a datetime, a date, an ISO 8601 text or milliseconds since 1970"
        case _:
            assert_never(column.kind)
    raise InvalidFilterError(f"{column} is compared with {wanted}, got {_shown(value)}.")


def _time(column: Column, value: Any) -> int | float | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, date):
        return milliseconds(datetime(value.year, value.month, value.day, tzinfo=UTC))
    return _plain_number(str(column), value) if _is_number(value) else None


def _count(name: str, counter: Iterator[int]) -> None:
    if next(counter) > MAX_VALUES:  # asked on the way, so that a list that holds itself ends too
        raise InvalidFilterError(f"{name}: a filter holds at most {MAX_VALUES} values.")


def _json_value(name: str, value: Any, counter: Iterator[int], levels: int) -> Any:
    _count(name, counter)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if _is_number(value):
        return _plain_number(name, value)
    if not isinstance(value, (list, tuple, Mapping)):
        raise InvalidFilterError(_not_json(name, value))
    if levels == 0:
        raise InvalidFilterError(f"{name}: the value is nested more than {MAX_DEPTH} levels deep.")
    if not isinstance(value, Mapping):
        return tuple(_json_value(name, one, counter, levels - 1) for one in value)
    if not all(isinstance(entry, str) for entry in value):
        raise InvalidFilterError(f"{name}: the keys of an object are texts, got {_shown(value)}.")
    return {str.__str__(entry): _json_value(name, one, counter, levels - 1) for entry, one in value.items()}


def _plain_number(name: str, value: float) -> int | float:
    """Return a number of a subclass (an IntEnum, a numpy float) as the number it is."""
    if isinstance(value, int):
        return int(value)
    if math.isnan(value):
        raise InvalidFilterError(f"{name}: NaN equals nothing and cannot be compared.")
    return float(value)


def _gather(filter: And | Or, name: str) -> None:
    if not isinstance(filter.parts, (list, tuple)):
        raise InvalidFilterError(f"{name} takes a list of filters, got {_shown(filter.parts)}.")
    object.__setattr__(filter, "parts", tuple(filter.parts))
    object.__setattr__(filter, "extent", _extent(filter.parts, name))


def _extent(parts: Sequence[Filter], name: str) -> Extent:
    for part in parts:
        if not isinstance(part, (Comparison, And, Or, Not)):
            raise InvalidFilterError(f"{name}: {_not_a_filter(part)}")
    extents = [part.extent for part in parts]
    extent = Extent(
        1 + max((one.levels for one in extents), default=0),
        1 + sum(one.parts for one in extents),  # also of parts without a comparison, or they could double at each level
        sum(one.values for one in extents),
    )
    for found, limit, what in zip(
        extent, (MAX_DEPTH, MAX_PARTS, MAX_VALUES), ("levels", "parts", "values"), strict=True
    ):
        if found > limit:
            raise InvalidFilterError(f"The filter has {found} {what}, the limit is {limit}. To list values, use $in.")
    return extent


# -- how values compare ---------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same_kind(one: Any, other: Any) -> bool:
    return (isinstance(one, str) and isinstance(other, str)) or (_is_number(one) and _is_number(other))


def _ordered(stored: Any, value: Any) -> bool:
    return _same_kind(stored, value) and (not isinstance(value, str) or is_storable(value))


def _equal(stored: Any, value: Any) -> bool:
    # Python's == would say that True is 1, at any depth.
    if isinstance(value, tuple):
        return (
            isinstance(stored, (list, tuple))
            and len(stored) == len(value)
            and all(_equal(one, other) for one, other in zip(stored, value, strict=True))
        )
    if isinstance(value, dict):
        return (
            isinstance(stored, Mapping)
            and stored.keys() == value.keys()
            and all(_equal(stored[name], other) for name, other in value.items())
        )
    if isinstance(value, bool) or value is None:
        return stored is value
    return _same_kind(stored, value) and bool(stored == value)


def _elements(stored: Any) -> Sequence[Any] | None:
    """Return what a list operator looks through; None if there is nothing of the kind."""
    if stored is None or isinstance(stored, Mapping):
        return None
    return stored if isinstance(stored, (list, tuple)) else (stored,)


@lru_cache(maxsize=256)
def _pattern(like: str) -> re.Pattern[str]:
    """Return the regular expression of a LIKE pattern, for `fullmatch`."""
    segments, rest = [""], iter(like)
    for character in rest:
        match character:
            case "%":
                segments.append("")
            case "_":
                segments[-1] += "."
            case "\\":
                literal = next(rest, None)
                if literal is None:
                    raise InvalidFilterError(
                        f"The pattern {_shown(like)} ends with a single backslash. Write two for a literal one."
                    )
                segments[-1] += re.escape(literal)
            case _:
                segments[-1] += re.escape(character)
    if len(segments) == 1:
        return re.compile(segments[0], re.DOTALL)
    first, *middle, last = segments
    # A segment is taken where it comes first and never moved (atomic): hostile patterns stay linear in each segment.
    found = "".join(f"(?>.*?{segment})" for segment in middle if segment)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


# -- messages -------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # an int with more digits than Python writes
        return f"a value of type {type(value).__name__}"


def _unknown(what: str, name: Any, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) and len(name) < 100 else []
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Unknown {what} {_shown(name)}.{hint} Known: {', '.join(known)}."


def _not_a_filter(value: Any) -> str:
    return f'Expected a filter such as {{"field": {{"$gt": 1}}}}, got {_shown(value)}.'


def _not_json(name: str, value: Any) -> str:
    if isinstance(value, (date, timedelta)):
        return (
            f"{name}: metadata holds no times, got {_shown(value)}. Compare with the text or number that you stored; "
            "node.created_at, node.updated_at and node.last_accessed take times."
        )
    if isinstance(value, (set, frozenset)):
        return f"{name}: expected a list, got the set {_shown(value)}."
    return f"{name}: expected a text, number, boolean, null, list or object, got {_shown(value)}."
