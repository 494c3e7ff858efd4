"""What a filter means, told by examples; what is refused, and how the refusal helps."""

from __future__ import annotations

import enum
import time
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filter_examples import EXAMPLES
from rlm_memory.errors import InvalidFilterError
from rlm_memory.filters import (
    MAX_DEPTH,
    MAX_PARTS,
    MAX_PATTERN,
    MAX_VALUES,
    And,
    Column,
    Comparison,
    Key,
    Not,
    Operator,
    Or,
    matches,
    parse_field,
    parse_filter,
)
from rlm_memory.records import Node
from rlm_memory.times import milliseconds


def lets_through(where, metadata) -> bool:
    return matches(parse_filter(where), Node(text="text", metadata=metadata))


@pytest.mark.parametrize(("where", "yes", "no"), EXAMPLES)
def test_filter_lets_through_what_it_says(where, yes, no):
    assert [metadata for metadata in yes if not lets_through(where, metadata)] == []
    assert [metadata for metadata in no if lets_through(where, metadata)] == []


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_filter_lets_everything_through(nothing):
    assert parse_filter(nothing) is None
    assert matches(None, Node(text="text"))


NOON = datetime(2026, 5, 1, 12, 0, 0, 123_456, tzinfo=UTC)
NODE = Node(
    text="Berlin is the capital",
    id="n1",
    type="entity",
    subtype="city",
    tier="session",
    confidence=0.75,
    provenance=None,
    metadata={"node": {"tier": "task"}, "node.tier": "task"},
    created_at=NOON,
    updated_at=NOON,
    last_accessed=None,
    access_count=3,
    pinned=True,
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"node.id": "n1"}, True),
        ({"node.id": {"$in": ["n2", "n1"]}}, True),
        ({"node.tier": "session"}, True),
        ({"node.tier": "task"}, False),
        ({"node.tier": {"$nin": ["archive", "task"]}}, True),
        ({"node.type": {"$ne": "fact"}}, True),
        ({"node.subtype": {"$like": "c%"}}, True),
        ({"node.text": {"$ilike": "berlin%"}}, True),
        ({"node.text": {"$text_match": "berlin"}}, False),
        ({"node.provenance": None}, True),
        ({"node.provenance": {"$ne": "x"}}, True),
        ({"node.provenance": {"$empty": True}}, True),
        ({"node.provenance": {"$lt": "x"}}, False),
        ({"node.confidence": {"$gte": 0.75, "$lt": 1}}, True),
        ({"node.access_count": 3.0}, True),
        ({"node.pinned": True}, True),
        ({"node.pinned": {"$in": [False]}}, False),
        ({"node.last_accessed": {"$exists": False}}, True),
        ({"node.last_accessed": {"$lt": datetime.now(UTC)}}, False),
        ({"node.created_at": NOON}, True),
        ({"node.created_at": NOON.replace(tzinfo=None)}, True),
        ({"node.created_at": NOON.astimezone(timezone(timedelta(hours=-8)))}, True),
        ({"node.created_at": "2026-05-01T12:00:00.123Z"}, True),
        ({"node.created_at": "2026-05-01T12:00:00.123"}, True),
        ({"node.created_at": "2026-05-01T14:00:00.123+02:00"}, True),
        ({"node.created_at": milliseconds(NOON)}, True),
        ({"node.created_at": NOON.replace(microsecond=122_999)}, False),
        ({"node.created_at": {"$gt": NOON - timedelta(milliseconds=1)}}, True),
        ({"node.created_at": {"$gt": NOON}}, False),
        ({"node.created_at": {"$gte": date(2026, 5, 1)}}, True),
        ({"node.created_at": {"$lt": "2026-05-01"}}, False),
        ({"node.created_at": {"$between": [date(2026, 4, 30), date(2026, 5, 2)]}}, True),
    ],
    ids=repr,
)
def test_columns_are_compared_as_what_they_are(where, expected):
    assert matches(parse_filter(where), NODE) is expected


def test_metadata_key_that_looks_like_a_column_is_reached_by_a_tree():
    assert matches(Comparison(Key("node.tier"), Operator.EQ, "task"), NODE)
    assert parse_field("node.tier") == Column("tier")
    assert parse_field("tier") == Key("tier")


REFUSED = [
    # filter, what the message says
    pytest.param({"a": {"$eq); DROP TABLE x; --": 1}}, r"\$eq\); DROP TABLE", id="B020"),
    pytest.param({"a": {"$gtt": 1}}, r"\$gtt.*Did you mean \$gt\?.*\$between", id="unknown operator"),
    pytest.param({"$nor": [{"a": 1}]}, r"\$nor.*Did you mean \$or.*\$and", id="unknown logical operator"),
    pytest.param({"$gt": 5}, r"\$gt stands inside a field", id="operator without a field"),
    pytest.param({"a": {"$and": [1]}}, r"\$and stands around", id="logical operator inside a field"),
    pytest.param({"$AND": []}, r"\$AND", id="upper case"),
    pytest.param({"node.tire": "x"}, r"node\.tire.*Did you mean node\.tier\?.*node\.confidence", id="unknown column"),
    pytest.param({"node.namespace": "other"}, r"node\.namespace", id="B044-no way into another namespace"),
    pytest.param({"node.tier": "longtrem"}, r"longtrem.*Did you mean longterm\?", id="unknown tier"),
    pytest.param({"node.type": {"$in": ["fact", "thing"]}}, "thing", id="unknown type"),
    pytest.param({"node.tier": {"$gte": "session"}}, "no order", id="order of tiers"),
    pytest.param({"node.pinned": 1}, "true or false", id="pinned is a boolean"),
    pytest.param({"node.confidence": "high"}, "a number", id="confidence is a number"),
    pytest.param({"node.confidence": True}, "a number", id="a boolean is no number"),
    pytest.param({"node.confidence": {"$gt": None}}, "a number", id="order of null"),
    pytest.param({"node.text": 5}, "a text", id="text is a text"),
    pytest.param({"node.text": {"$contains": "x"}}, r"not a list", id="list operator on a column"),
    pytest.param({"node.created_at": {"$like": "2026%"}}, "no text", id="pattern on a time"),
    pytest.param({"node.created_at": {"$gt": "yesterday"}}, "ISO 8601.*yesterday", id="no time"),
    pytest.param({"node.created_at": {"$gt": True}}, "ISO 8601", id="boolean as a time"),
    pytest.param({"node.created_at": {"$gt": float("nan")}}, "NaN", id="NaN as a time"),
    pytest.param({"k": object()}, "'k'.*object", id="B089-object"),
    pytest.param({"k": {"$in": [123, {1, 2}]}}, "'k'.*set", id="B089-set in a list"),
    pytest.param({"k": {"$in": {"x"}}}, r"\$in takes a list", id="B089-set"),
    pytest.param({"k": {1, 2}}, "expected a list", id="B089-set as a value"),
    pytest.param({"k": {"$in": "abc"}}, r"\$in takes a list", id="B089-text as a list"),
    pytest.param({"k": {"$nin": None}}, r"\$nin takes a list", id="B089-null as a list"),
    pytest.param({"k": {"$in": (x for x in "ab")}}, r"\$in takes a list", id="B089-generator"),
    pytest.param({"k": float("nan")}, "NaN", id="NaN"),
    pytest.param({"k": [1, [float("nan")]]}, "NaN", id="NaN inside"),
    pytest.param({"k": np.float64("nan")}, "NaN", id="NaN of numpy"),
    pytest.param({"k": b"x"}, "bytes|b'x'", id="bytes"),
    pytest.param({"k": {"$eq": {1: 2}}}, "keys of an object", id="number as a key"),
    pytest.param({"k": NOON}, "node.created_at", id="time in metadata"),
    pytest.param({"k": {"$lt": date(2026, 1, 1)}}, "node.created_at", id="date in metadata"),
    pytest.param({"k": {"$lt": True}}, "a number or a text", id="order of booleans"),
    pytest.param({"k": {"$lt": None}}, "a number or a text", id="order of nothing"),
    pytest.param({"k": {"$lt": [1]}}, "a number or a text", id="order of lists"),
    pytest.param({"k": {"$between": [1]}}, "list of two", id="one bound"),
    pytest.param({"k": {"$between": [1, "z"]}}, "two numbers or two texts", id="bounds of two kinds"),
    pytest.param({"k": {"$exists": 1}}, "true or false", id="$exists takes a boolean"),
    pytest.param({"k": {"$empty": None}}, "true or false", id="$empty takes a boolean"),
    pytest.param({"k": {"$like": 5}}, "takes a text", id="$like takes a text"),
    pytest.param({"k": {"$text_match": ["x"]}}, "takes a text", id="$text_match takes a text"),
    pytest.param({"k": {"$like": "x\\"}}, "single backslash", id="unfinished pattern"),
    pytest.param({"k": {"$like": "x" * (MAX_PATTERN + 1)}}, "characters", id="long pattern"),
    pytest.param({"k": {"$gt": 1, "x": 2}}, "mixed", id="operators and keys mixed"),
    pytest.param({"k": {"gt": 5}}, r"start with \$.*\$gt", id="operator without $"),
    pytest.param({"$and": {"a": 1}}, r"\$and takes a list", id="$and takes a list"),
    pytest.param({"$or": "ab"}, r"\$or takes a list", id="$or takes a list"),
    pytest.param({"$not": None}, r"\$not takes", id="$not takes a filter"),
    pytest.param({"$and": ["a"]}, "Expected a filter", id="text as a part"),
    pytest.param({"$and": [None]}, "Expected a filter", id="null as a part"),
    pytest.param({5: 1}, "named by a text", id="number as a field"),
    pytest.param([("a", 1)], "Expected a filter", id="list as a filter"),
    pytest.param("a = 1", "Expected a filter", id="text as a filter"),
    pytest.param(lambda document: True, "Expected a filter", id="function as a filter"),
    pytest.param({"k": {"$in": list(range(MAX_VALUES + 1))}}, str(MAX_VALUES), id="too many values"),
    pytest.param({"node.id": {"$in": ["x"] * (MAX_VALUES + 1)}}, str(MAX_VALUES), id="too many ids"),
    pytest.param({"$or": [{"k": n} for n in range(MAX_PARTS + 1)]}, r"use \$in", id="too many comparisons"),
    pytest.param({"$or": [{"k": {"$in": list(range(2000))}}] * 6}, "values", id="too many values together"),
]


@pytest.mark.parametrize(("where", "message"), REFUSED)
def test_what_has_no_meaning_is_refused_with_its_name(where, message):
    with pytest.raises(InvalidFilterError, match=message):
        parse_filter(where)


def nested(levels: int, wrap, inner):
    for _ in range(levels):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize(
    "wrap", [lambda part: {"$and": [part, {"b": 1}]}, lambda part: {"$not": part}], ids=["and", "not"]
)
def test_depth_is_limited(wrap):
    assert parse_filter(nested(MAX_DEPTH // 2, wrap, {"a": 1}))
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidFilterError, match="levels"):
            parse_filter(nested(levels, wrap, {"a": 1}))


def test_depth_of_a_value_is_limited():
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidFilterError, match="levels"):
            parse_filter({"a": nested(levels, lambda inner: [inner], 1)})


def test_depth_and_size_of_a_tree_are_limited():
    tree = Comparison(Key("a"), Operator.EQ, 1)
    with pytest.raises(InvalidFilterError, match="levels"):
        nested(MAX_DEPTH + 1, Not, tree)
    with pytest.raises(InvalidFilterError, match="parts"):
        nested(20, lambda part: And((part, part)), tree)


def test_values_that_hold_themselves_are_refused():
    round_list, round_filter = [], {}
    round_list += [round_list, round_list]
    round_filter["$or"] = [round_filter, round_filter]
    for where in ({"a": round_list}, {"a": {"$in": round_list}}):
        with pytest.raises(InvalidFilterError):
            parse_filter(where)
    with pytest.raises(InvalidFilterError, match="levels"):
        parse_filter(round_filter)
    with pytest.raises(InvalidFilterError, match="parts"):
        parse_filter(nested(MAX_DEPTH // 2, lambda part: {"$or": [part, part]}, {}))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Comparison("a", Operator.EQ, 1),
        lambda: Comparison(Key(5), Operator.EQ, 1),
        lambda: Comparison(Key("a"), "like", "x"),
        lambda: Comparison(Key("a"), Operator.IN, 5),
        lambda: Column("metadata"),
        lambda: And("ab"),
        lambda: Or(({"a": 1},)),
        lambda: Not(None),
        lambda: matches({"a": 1}, NODE),
    ],
)
def test_tree_that_makes_no_sense_cannot_be_built(build):
    with pytest.raises(InvalidFilterError):
        build()


def test_tree_may_be_a_part_of_a_dict():
    scope = Comparison(Key("user"), Operator.EQ, "jack")
    for where in ({"$and": [scope, {"a": 1}]}, And((scope, parse_filter({"a": 1})))):
        assert lets_through(where, {"user": "jack", "a": 1})
        assert not lets_through(where, {"user": "eve", "a": 1})
    assert not lets_through({"$not": scope}, {"user": "jack"})


def test_values_of_subclasses_count_as_their_base():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    assert lets_through({"a": Colour.RED}, {"a": "red"})
    assert lets_through({"a": Level.HIGH}, {"a": 3.0})
    assert lets_through({"a": {"$gt": np.float64(1.5)}}, {"a": 2})
    assert [type(parse_filter({"a": one}).value) for one in (Colour.RED, Level.HIGH, np.float64(1))] == [
        str,
        int,
        float,
    ]


def test_filter_does_not_change_with_the_dict_it_came_from():
    value = {"x": [1]}
    where = parse_filter({"a": {"$eq": value}})
    value["x"].append(2)
    assert matches(where, Node(text="", metadata={"a": {"x": [1]}}))


@pytest.mark.parametrize(
    "value",
    [10**5000, "\ud800" * 100, nested(50, lambda inner: [inner], object())],
    ids=["digits", "surrogates", "nested"],
)
def test_refusal_can_be_written_whatever_it_names(value):
    with pytest.raises(InvalidFilterError) as refusal:
        parse_filter({"\ud800": {"$in": value}} if not isinstance(value, list) else {"\ud800": value})
    assert str(refusal.value).encode()


def test_hostile_pattern_takes_no_longer_than_a_friendly_one():
    where = parse_filter({"a": {"$like": "%a" * 200 + "b"}})
    started = time.perf_counter()
    assert not lets_through({"a": {"$like": "%a" * 200 + "b"}}, {"a": "a" * 5000})
    assert matches(where, Node(text="", metadata={"a": "a" * 5000 + "b"}))
    assert time.perf_counter() - started < 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(value=JSON, other=JSON)
def test_laws_of_equality(value, other):
    for stored in (value, other):
        equal = lets_through({"a": {"$eq": value}}, {"a": stored})
        assert lets_through({"a": {"$ne": value}}, {"a": stored}) is not equal
        assert lets_through({"a": {"$in": [value]}}, {"a": stored}) is equal
        assert lets_through({"a": {"$nin": [value]}}, {"a": stored}) is not equal
        assert lets_through({"a": {"$contains": value}}, {"a": [stored]}) is equal
    assert lets_through({"a": {"$eq": value}}, {"a": value})


@given(value=st.text(), stored=st.text())
def test_pattern_without_wildcards_is_equality_and_with_both_is_a_substring(value, stored):
    literal = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    for text in (stored, value, stored + value + stored):
        assert lets_through({"a": {"$like": literal}}, {"a": text}) is (text == value)
        inside = lets_through({"a": {"$like": f"%{literal}%"}}, {"a": text})
        assert inside is lets_through({"a": {"$text_match": value}}, {"a": text}) is (value in text)


@given(st.dictionaries(st.text(), JSON))
def test_any_dict_is_a_filter_or_refused(where):
    try:
        tree = parse_filter(where)
    except InvalidFilterError:
        return
    assert matches(tree, NODE) in (True, False)
