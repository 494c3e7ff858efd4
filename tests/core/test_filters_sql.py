"""Compiled filters select, on a real database, exactly the nodes that `matches` lets through."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filter_examples import EXAMPLES, MANY
from rlm_memory.engines.sqlite.filters import compile_filter, compile_numbers, field_rows, register_functions
from rlm_memory.filters import (
    MAX_DEPTH,
    MAX_PARTS,
    MAX_VALUES,
    And,
    Column,
    Comparison,
    Filter,
    Key,
    Not,
    Operator,
    Or,
    matches,
    parse_filter,
)
from rlm_memory.records import NODE_TYPES, TIERS, Node
from rlm_memory.times import milliseconds

SCHEMA = """
CREATE TABLE nodes (
    node INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, text TEXT NOT NULL,
    tier TEXT NOT NULL, confidence REAL NOT NULL, provenance TEXT, metadata TEXT NOT NULL, created_at INTEGER,
    updated_at INTEGER, last_accessed INTEGER, access_count INTEGER NOT NULL, pinned INTEGER NOT NULL
) STRICT;
CREATE TABLE node_fields (
    key TEXT NOT NULL, value, node INTEGER NOT NULL, PRIMARY KEY (key, value, node)
) WITHOUT ROWID;
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "x" * 256


def stored(moment: datetime | None) -> int | None:
    return None if moment is None else milliseconds(moment)


class Store:
    """The two tables that a compiled filter reads."""

    tries = 40  # filters for each set of nodes

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        register_functions(self.connection)
        self.connection.execute(SCHEMA)

    def put(self, nodes: list[Node]) -> None:
        with self.connection:
            self.connection.execute("DELETE FROM nodes; DELETE FROM node_fields")
            self.connection.executemany(
                f"INSERT INTO nodes VALUES ({', '.join('?' * 14)})",
                [
                    (
                        *(number, node.id, node.type, node.subtype, node.text, node.tier, node.confidence),
                        *(node.provenance, json.dumps(node.metadata, ensure_ascii=False), stored(node.created_at)),
                        *(stored(node.updated_at), stored(node.last_accessed), node.access_count, node.pinned),
                    )
                    for number, node in enumerate(nodes)
                ],
            )
            self.connection.executemany(
                "INSERT INTO node_fields (key, value, node) VALUES (?, ?, ?)",
                [(key, value, number) for number, node in enumerate(nodes) for key, value in field_rows(node.metadata)],
            )

    def select(self, where) -> list[int]:
        sql, values = compile_filter(where)
        rows = self.connection.execute(f"SELECT n.node FROM nodes n WHERE {sql} ORDER BY 1", values)
        found = [row[0] for row in rows]
        numbers = self.connection.execute(*compile_numbers(where, 0, 1 << 40))
        assert sorted({row[0] for row in numbers}) == found
        return found

    def plan(self, where) -> list[str]:
        sql, values = compile_filter(where)
        query = f"EXPLAIN QUERY PLAN SELECT n.node FROM nodes n WHERE n.node BETWEEN 0 AND 1 << 40 AND {sql}"
        return [row[3] for row in self.connection.execute(query, values)]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request):
    if request.param == "sqlite":
        yield Store()
        return
    pytest.importorskip("psycopg", reason="needs the extra postgres")
    from postgres_filters import PostgresStore

    store = PostgresStore(request.getfixturevalue("postgres_server"))
    yield store
    store.close()


@pytest.fixture(scope="module")
def sqlite_store():
    return Store()


def nodes_with(*metadatas) -> list[Node]:
    return [Node(text=f"text {number}", id=str(number), metadata=one) for number, one in enumerate(metadatas)]


# -- random metadata and random filters -----------------------------------------------------------------------------

# An example draws from one family of names and one of values: values that are nearly the same meet under one name.
FAMILIES_OF_NAMES = [
    ["a", "b"],
    ["a", "a.b", "b"],
    ["a", "a.b", "a.b.a", "a.b.b"],
    ["a", "a[]", "a[]=", "a[]=="],
    ["a.b", "a.b[]", "a"],
    ["", ".", ".a", "a."],
    [".".join("ab" * 8), ".".join("ab" * 8) + ".a", "a"],
    ['a"b', "a'b", "a b", "a\\b", '"a"'],
    ["$x", "$.a", "node.tier", "node", "a[0]"],
    ["\0", "a\0b", "a", "é", "\ud800"],
]
FAMILIES_OF_VALUES = [
    [True, False, 0, 1, 1.0, "1", "true", None],
    ["", None, " ", "\0", "[]"],
    [LONG, LONG + "x", LONG + "y", "x", LONG[1:]],
    [2**53, 2**53 + 1, float(2**53), 2**63, 2**63 - 1, float(2**63), -(2**63) - 1, -(2**63)],
    [2**70, 2**70 + 1, float(2**70), 10**400, -(10**400), 1e300, 5],
    [5, 5.0, "5", 0.1, 1 / 3, -0.0, 0, 5e-324],
    ["a", "A", "ab", "a%b", "a_b", "a\\b", "%", "a\0b"],
    ["straße", "STRASSE", "é", "É", "🙂", "\uffff"],
    ["a\U0010ffff", "a\U0010ffffb", "a\ud7ff", "a\ud7ffb", "a\ue000", "b", "a"],
    ["x' OR 1=1 --", '{"a": 1}', "null", None, "a\udfff"],
]


class Chance:
    """Random metadata and filters about them. Even draws: hypothesis' own prefer the small and the same."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.one = random.choice
        self.names = self.one(FAMILIES_OF_NAMES)
        self.family = self.one(FAMILIES_OF_VALUES)
        self.nodes = [self.node() for _ in range(8)]

    def value(self, depth: int = 2):
        scalar = self.one([one for one in self.family if _is_storable(one)])
        if depth == 0 or self.random.random() < 0.4:
            return scalar
        some = [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        match self.random.randrange(6):
            case 0 | 1:
                return some
            case 2 | 3:
                return {self.one(["a", "b", "a.b", "", "b[]"]): one for one in some}
            # more elements, entries, levels than the index lists
            case 4:
                return [*some, *range(100, 165 - len(some) * self.random.randrange(2))]
            case _:
                inner = {self.one(["a", "b"]): scalar, **{f"k{number}": 0 for number in range(63 + len(some) % 3)}}
                return self.one([inner, {"b": inner}, _deep(scalar)])

    def node(self) -> Node:
        names = [name for name in self.names if _is_storable(name)]
        return Node(
            text=self.one(["", "a", "AB", "a\0b"]),
            id=self.one(["a", "ab", "b"]),
            type=self.one(NODE_TYPES),
            tier=self.one(TIERS),
            subtype=self.one([None, "", "a"]),
            provenance=self.one([None, "", "b"]),
            confidence=self.one([0.0, 0.25, 0.5, 1.0]),
            metadata={self.one(names): self.value() for _ in range(self.random.randrange(4))},
            created_at=self.moment(),
            updated_at=self.moment(),
            last_accessed=self.one([None, self.moment()]),
            access_count=self.random.randrange(4),
            pinned=self.one([True, False]),
        )

    def moment(self) -> datetime:
        return START + timedelta(hours=self.random.randrange(4))

    def about_metadata(self) -> Comparison:
        names = [name for node in self.nodes for name in _names(node.metadata)]
        key = Key(self.one([self.one(names or self.names), self.one(self.names)]))
        present = [within for node in self.nodes for within in _within(key.find(node.metadata))]
        operator = self.one(list(Operator))
        return Comparison(key, operator, self._operand(operator, present))

    def _operand(self, operator: Operator, present: list):
        def some():
            return self.one([self.one(present), self.one(present), self.one(self.family)])

        texts = [one for one in present + self.family if isinstance(one, str)] + ["", LONG]
        numbers = [one for one in present + self.family if type(one) in (int, float)] + [0, 2**70, float("inf")]
        match operator:
            case Operator.EXISTS | Operator.EMPTY:
                return self.one([True, False])
            case Operator.LIKE | Operator.ILIKE:
                literal = self.one(texts).replace("\\", "\\\\")
                return self.one(
                    ["%", literal, literal[:2] + "%", "%" + literal[-1:], "_" + literal[1:], literal.upper()]
                )
            case Operator.TEXT_MATCH | Operator.TEXT_MATCH_INSENSITIVE:
                return self.one([self.one(texts), self.one(texts)[1:2], self.one(texts).swapcase()])
            case Operator.IN | Operator.NIN | Operator.ANY | Operator.ALL:
                return [some() for _ in range(self.random.randrange(4))]
            case Operator.BETWEEN:
                return sorted(self.random.choices(self.one([texts, numbers]), k=2))
            case Operator.LT | Operator.LTE | Operator.GT | Operator.GTE:
                return self.one(self.one([texts, numbers]))
            case _:
                return some()

    def about_columns(self) -> Comparison:
        name = self.one(["id", "text", "subtype", "provenance", "type", "tier", "confidence", "access_count", "pinned"])
        name = self.one([name, name, name, self.one(["created_at", "updated_at", "last_accessed"])])
        column = Column(name)
        values = {
            "text": ["", "a", "AB", "b", "a\0b", "\ud800"],
            "choice": TIERS if name == "tier" else NODE_TYPES,
            "number": [0, 1, 2, 1.0, 0.25, 2**70, -(2**70), 10**400, -(10**400)],
            "flag": [True, False],
            "time": [self.moment(), self.moment().isoformat(), START.date(), milliseconds(self.moment()), 10**30],
        }[column.kind]
        operators = [Operator.EQ, Operator.NE, Operator.IN, Operator.NIN, Operator.EXISTS, Operator.EMPTY]
        if column.kind in ("text", "number", "time"):
            operators += [Operator.LT, Operator.LTE, Operator.GT, Operator.GTE, Operator.BETWEEN]
        if column.kind == "text":
            operators += [Operator.LIKE, Operator.ILIKE, Operator.TEXT_MATCH, Operator.TEXT_MATCH_INSENSITIVE]
        operator = self.one(operators)
        match operator:
            case Operator.EXISTS | Operator.EMPTY:
                value = self.one([True, False])
            case Operator.LIKE | Operator.ILIKE:
                value = self.one(["%", "a%", "_", "%b", "", "%\0%"])
            case Operator.IN | Operator.NIN:
                value = [self.one([*values, None]) for _ in range(self.random.randrange(4))]
            case Operator.BETWEEN:
                value = [self.one(values), self.one(values)]
            case Operator.EQ | Operator.NE:
                value = self.one([*values, None])
            case _:
                value = self.one(values)
        return Comparison(column, operator, value)

    def combination(self, depth: int = 3) -> Filter:
        parts = [self.combination(depth - 1) for _ in range(self.random.randrange(4))] if depth else []
        return self.one(
            [
                self.about_metadata,
                self.about_columns,
                lambda: And(tuple(parts)),
                lambda: Or(tuple(parts)),
                lambda: Not(self.combination(depth - 1) if depth else self.about_metadata()),
            ][: 5 if depth else 2]
        )()


def _deep(value):
    for part in ("ab" * 9)[:0:-1]:
        value = {part: value}
    return value


def _within(value) -> list:
    """The value and what is inside it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(deeper for one in list(inner)[:3] for deeper in _within(one))]


def _names(metadata, path=()) -> list[str]:
    """The names of the entries of an object, dotted where they are inside another one."""
    names = []
    for key, value in list(metadata.items())[:3]:
        names.append(".".join((*path, key)))
        if isinstance(value, dict):
            names += _names(value, (*path, key))
    return names


def _is_storable(text) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in str(text))


def check(store, nodes, where):
    expected = [number for number, node in enumerate(nodes) if matches(where, node)]
    assert store.select(where) == expected
    assert store.select(Not(where)) == sorted(set(range(len(nodes))) - set(expected))


@settings(max_examples=150)
@given(st.randoms(use_true_random=True))
def test_sql_selects_what_the_plain_meaning_lets_through(store, random):
    chance = Chance(random)
    store.put(chance.nodes)
    for _ in range(store.tries):
        check(store, chance.nodes, chance.about_metadata())


@settings(max_examples=50)
@given(st.randoms(use_true_random=True))
def test_sql_means_the_same_for_columns_and_combinations(store, random):
    chance = Chance(random)
    store.put(chance.nodes)
    for _ in range(store.tries // 2):
        check(store, chance.nodes, chance.about_columns())
        check(store, chance.nodes, chance.combination())


# -- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "yes", "no"), EXAMPLES)
def test_sql_agrees_with_every_example(store, where, yes, no):
    store.put(nodes_with(*yes, *no))
    assert store.select(parse_filter(where)) == list(range(len(yes)))
    assert store.select(Not(parse_filter(where))) == list(range(len(yes), len(yes) + len(no)))


def test_no_filter_selects_everything(store):
    store.put(nodes_with({}, {"a": 1}))
    assert store.select(None) == [0, 1]


@pytest.mark.parametrize(
    ("metadata", "rows"),
    [
        ({"a": "x", "b": 5, "c": 1.5}, [("a", "x"), ("b", 5), ("c", 1.5)]),
        ({"a": True, "b": False}, [("a", b"\x01"), ("b", b"\x00")]),
        ({"a": None}, []),
        ({"a": ["x", 5, 5.0, "x"]}, [("a", b"\x02"), ("a[]", "x"), ("a[]", 5)]),
        ({"a": ("x",)}, [("a", b"\x02"), ("a[]", "x")]),
        ({"a": {"b": 1, "c.d": 2}}, [("a", b"\x02"), ("a.b", 1)]),
        ({"a.b": 1, "a": {"b": 2}}, [("a.b", 1), ("a", b"\x02")]),
        ({"a": LONG}, [("a", LONG)]),
        ({"a": LONG + "x"}, [("a", b"\x02")]),
        ({"a": 2**63, "b": 2**63 + 1, "c": 10**400}, [("a", 2.0**63), ("b", b"\x02"), ("c", b"\x02")]),
        ({"a": [LONG + "x", "y"]}, [("a", b"\x02"), ("a[]", b"\x02"), ("a[]", "y")]),
        ({"a": list(range(65))}, [("a", b"\x02"), ("a[]", b"\x02")]),
        ({"a": MANY}, [("a", b"\x02"), ("a", b"\x03")]),
    ],
    ids=lambda one: str(one)[:30],
)
def test_index_lists_what_the_table_of_the_module_says(metadata, rows):
    assert field_rows(metadata) == rows


HOSTILE = [
    "",
    ".",
    "..",
    "'",
    '"',
    "`",
    "\\",
    "\0",
    "a\0b",
    "%",
    "_",
    "*",
    "?",
    ":name",
    "@name",
    "$.a",
    "$",
    "a.b",
    "a..b",
    "a[0]",
    "a[]",
    "{where}",
    "node.tier",
    "n.id",
    "rowid",
    "x') OR 1=1 --",
    "'; DROP TABLE nodes; --",
    "x') = '' OR 1=1) -- ",
    "O'Brien",
    "null",
    "\ud800",
    "\ufeff",
    "\u202e",
    "e\u0301",
    "🙂",
    " \t\n",
    "k" * 10_000,
    "k." * 100,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_hostile_text_as_key_and_value_selects_exactly_its_node(store, text):
    """B020, B044, B132."""
    there = [{text: "v"}, {"v": text}, {"l": [text]}] if _is_storable(text) else [{}, {}, {}]
    nodes = nodes_with(*there, {"x": "v", "v": "x", "l": ["x"]}, {})
    store.put(nodes)
    for number, (key, operator, value) in enumerate(
        [(text, Operator.EQ, "v"), ("v", Operator.EQ, text), ("l", Operator.CONTAINS, text)]
    ):
        assert store.select(Comparison(Key(key), operator, value)) == ([number] if _is_storable(text) else [])
    for operator in (Operator.LT, Operator.GTE, Operator.TEXT_MATCH, Operator.NE):
        check(store, nodes, Comparison(Key("v"), operator, text))
        check(store, nodes, Comparison(Key(text), operator, text))
    for column in ("id", "text", "subtype", "provenance"):
        check(store, nodes, Comparison(Column(column), Operator.EQ, text))
        check(store, nodes, Comparison(Column(column), Operator.IN, [text, None, "1"]))
    assert len(store.select(None)) == len(nodes)


def test_largest_filters_fit_into_a_statement(store):
    """B150."""
    nodes = nodes_with({"a": 5}, {"a": "x", "b": {"c": 0.5}})
    store.put(nodes)
    every = [0, 1]
    values = list(range(MAX_VALUES - 1))
    fractions = [number + 0.5 for number in range(MAX_VALUES - 2)]
    assert store.select(parse_filter({"a": {"$in": values}})) == [0]
    assert store.select(parse_filter({"a": {"$nin": [str(value) for value in values]}})) == every
    assert store.select(parse_filter({"b.c": {"$in": fractions}})) == [1]
    assert store.select(parse_filter({"a": {"$any": values}})) == [0]
    assert store.select(parse_filter({"a": {"$all": values}})) == []
    assert store.select(parse_filter({"node.id": {"$in": [str(value) for value in values]}})) == every
    wide = [{"b.c": {"$gte": number}} for number in range(MAX_PARTS - 2)]
    assert store.select(parse_filter({"$or": wide})) == [1]
    assert store.select(parse_filter({"$and": wide})) == []
    deep = parse_filter({"a": 5})
    for level in range(MAX_DEPTH - 1):
        deep = Not(deep) if level % 2 else Or((deep, *[Comparison(Key("a"), Operator.LT, level)] * 10))
    check(store, nodes, deep)


# -- speed ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_store():
    store = Store()
    store.put(
        nodes_with(
            *(
                {
                    "topic": f"t{n % 100}",
                    "year": 1900 + n % 120,
                    "done": n % 2 == 0,
                    "tags": [f"x{n % 50}"],
                    "o": {"p": n},
                }
                for n in range(10_000)
            )
        )
    )
    return store


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"topic": "t7"}, 100),
        ({"topic": {"$in": ["t7", "t8", 5]}}, 200),
        ({"year": {"$between": [1900, 1901]}}, 168),
        ({"year": {"$gte": 2018}}, 166),
        ({"tags": {"$contains": "x7"}}, 200),
        ({"o.p": 77}, 1),
        ({"topic": "t7", "year": 1907}, 17),
        ({"$or": [{"topic": "t7"}, {"o.p": {"$lt": 3}}]}, 103),
    ],
    ids=str,
)
def test_selective_filters_read_the_index_and_no_other_node(large_store, where, found):
    where = parse_filter(where)
    assert len(large_store.select(where)) == found
    plan = large_store.plan(where)
    assert not [step for step in plan if "SCAN" in step and "json_each" not in step]
    assert any("SEARCH node_fields USING PRIMARY KEY (key=?" in step for step in plan)
    assert any("SEARCH n USING INTEGER PRIMARY KEY (rowid=?)" in step for step in plan)
