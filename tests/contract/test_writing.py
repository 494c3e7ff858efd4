"""What add and update keep, replace and refuse."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from rlm_memory import Node
from rlm_memory.errors import InvalidInputError, InvalidNodeError, NodeNotFoundError
from rlm_memory.records import NODE_TYPES, TIERS
from support import WordEmbedder

TEXTS = [
    "",
    " ",
    "alpha\0beta tail",
    "\0",
    "\0\0 leading and trailing \0",
    "línea\r\nlinha\rZeile\n",
    "\ufeffwith a byte order mark",
    "设备清单测试",
    "サンドボックス修正テスト",
    "한국어는 조사가 붙습니다",
    "ภาษาไทยไม่มีช่องว่าง",
    "مرحبا بالعالم \u202eright to left",
    "👩\u200d👩\u200d👧 🇩🇪 \U0001f9d1🏽\u200d🚀",
    "e\u0301 is not é",
    "\u0000\u0001\u001f\u007f\u0085\ufffe\uffff\U0010ffff",
    "x' OR 1=1 --",
    '"; DROP TABLE nodes; --',
    "<|endoftext|>",
    "a" * 1_000_000,
    "设备 gen-itgc " * 70_000,
]


def contents(memory):
    return {node.id: (node.text, node.metadata, node.type, node.confidence) for node in memory.list(limit=1000)}


# -- ids ------------------------------------------------------------------------------------------------------------


def test_every_text_gets_an_id_in_order(memory):
    """B090"""
    ids = memory.add(["one", "two", "three"], metadatas=[{"n": 1}, {"n": 2}, {"n": 3}])
    assert [node.text for node in memory.get(ids)] == ["one", "two", "three"]
    assert len(set(ids)) == 3
    assert all(uuid.UUID(id).version == 4 for id in ids)


def test_adding_nothing_returns_nothing(memory, embedder):
    """B090"""
    assert memory.add([]) == []
    assert embedder.asked == []
    assert memory.count() == 0


def test_an_empty_id_asks_for_a_new_one(memory):
    """B068"""
    first, second, third = memory.add(["a", "b", "c"], ids=["mine", None, ""])
    fourth, fifth = memory.add([Node(text="d", id=""), Node(text="e", id="")])
    assert first == "mine"
    assert len({second, third, fourth, fifth, ""}) == 5
    assert memory.count() == 5


def test_the_last_of_equal_ids_in_a_call_wins(memory):
    """B018 B120"""
    ids = memory.add(["A", "B", "C"], ids=["1", "2", "1"], metadatas=[{"v": 1}, {"v": 2}, {"v": 3}])
    assert ids == ["1", "2", "1"]
    assert contents(memory) == {"1": ("C", {"v": 3}, "fact", 0.5), "2": ("B", {"v": 2}, "fact", 0.5)}
    assert memory.add([Node(text="x", id="x"), Node(text="y", id="x")]) == ["x", "x"]
    assert memory.get("x")[0].text == "y"


def test_what_a_later_item_replaces_is_not_embedded(memory, embedder):
    """B018"""
    memory.add(["never paid", "paid"], ids=["1", "1"])
    assert embedder.asked == ["paid"]


IDS = ["O'Brien", "x' OR 1=1 --", "a\0b", "\0", "[", '["default", "1"]', "%", "1", " ", "设备", "👩", "i" * 5000]


@pytest.mark.parametrize("id", IDS, ids=lambda text: ascii(text[:20]))
def test_an_id_is_any_text(memory, id):
    """B132"""
    memory.add(["first", "second"], ids=[id, "other"])
    memory.add("again", ids=[id])
    assert [node.text for node in memory.get([id, "other"])] == ["again", "second"]
    assert [hit.id for hit in memory.search("again", k=1)] == [id]
    assert [node.id for node in memory.list(after=id)] == ["other"]
    assert memory.delete([id]) == 1
    assert memory.get(id) == []
    assert memory.check()


def test_ids_are_compared_exactly(memory):
    memory.add(["a", "b", "c", "d"], ids=["é", "e\u0301", "E", "e"])
    assert [node.text for node in memory.get(["e", "E", "e\u0301", "é"])] == ["d", "c", "b", "a"]
    assert memory.get(["É", "e\u0301\0"]) == []


def test_get_keeps_the_order_asked_for(memory):
    """B128"""
    memory.add(["a", "b", "c"], ids=["a", "b", "c"])
    assert [node.id for node in memory.get(["c", "nobody", "a", "c"])] == ["c", "a", "c"]
    assert memory.get([]) == []
    assert memory.get("b")[0].text == "b"
    assert memory.get(["lone \ud800 surrogate"]) == []


@pytest.mark.parametrize("ids", [[1], [None], ["a", b"a"], 5])
def test_an_id_that_is_no_text_is_refused(memory, ids):
    memory.add("a", ids=["a"])
    for call in (memory.get, memory.delete):
        with pytest.raises((InvalidInputError, TypeError)):
            call(ids)
    assert memory.count() == 1


# -- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_a_text_comes_back_as_it_was(open_memory, text):
    """B127 B094"""
    memory = open_memory(embedder=None)
    (id,) = memory.add(text, provenance=text or None)
    (node,) = memory.get(id)
    assert node.text == text
    assert node.provenance == (text or None)
    assert memory.check()


def test_a_node_keeps_what_the_caller_says(memory, clock):
    given = Node(
        text="Ada wrote notes.",
        id="ada",
        type="entity",
        subtype="person",
        tier="longterm",
        confidence=0.9,
        provenance="archive.txt",
        metadata={"year": 1843},
    )
    memory.add(given)
    (node,) = memory.get("ada")
    assert node == Node(
        text="Ada wrote notes.",
        id="ada",
        type="entity",
        subtype="person",
        tier="longterm",
        confidence=0.9,
        provenance="archive.txt",
        metadata={"year": 1843},
        created_at=clock(),
        updated_at=clock(),
    )


def test_texts_get_the_columns_that_are_given_beside_them(memory):
    columns = {"type": "entity", "subtype": "person", "tier": "longterm", "confidence": 0.9, "provenance": "a.txt"}
    nodes = memory.get(memory.add(["Ada wrote notes.", "Mary climbed."], **columns))
    assert [{name: getattr(node, name) for name in columns} for node in nodes] == [columns, columns]


def test_what_the_store_keeps_is_not_taken_from_a_caller(memory, clock):
    long_ago = datetime(1999, 1, 1, tzinfo=UTC)
    memory.add(
        Node(
            text="t",
            id="t",
            namespace="somebody else",
            created_at=long_ago,
            updated_at=long_ago,
            last_accessed=long_ago,
            access_count=7,
            pinned=True,
        )
    )
    (node,) = memory.get("t")
    assert (node.namespace, node.access_count, node.pinned, node.last_accessed) == ("default", 0, False, None)
    assert node.created_at == node.updated_at == clock()


def test_texts_take_the_arguments_and_nodes_their_own(memory):
    memory.add(
        ["text", Node(text="node", id="n", type="entity", confidence=0.1)],
        ids=["t", "n"],
        type="decision",
        tier="session",
        confidence=0.7,
        provenance="call",
    )
    text, node = memory.get(["t", "n"])
    assert (text.type, text.tier, text.confidence, text.provenance) == ("decision", "session", 0.7, "call")
    assert (node.type, node.tier, node.confidence, node.provenance) == ("entity", "task", 0.1, None)


def test_texts_may_come_from_a_generator(memory):
    assert len(memory.add(f"text {i}" for i in range(3))) == 3


def test_every_type_and_tier_can_be_stored(memory):
    kinds = {f"{type} {tier}": (type, tier) for type in NODE_TYPES for tier in TIERS}
    for id, (type, tier) in kinds.items():
        memory.add("text", ids=[id], type=type, tier=tier)
    assert {node.id: (node.type, node.tier) for node in memory.get(kinds)} == kinds


@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, Fraction(1, 2), np.float32(0.5), np.float64(0.25)])
def test_confidence_is_a_number_from_0_to_1(memory, confidence):
    memory.add("text", ids=["n"], confidence=confidence)
    assert memory.get("n")[0].confidence == float(confidence)


METADATA = {
    "tags": ["x", "y"],
    "a": {"b": [1, {"c": None}]},
    "n": None,
    "t": True,
    "f": False,
    "i": 5,
    "x": 5.0,
    "big": 2**80,
    "tiny": 5e-324,
    "": "the empty key",
    "key.with.dots": "\0 and 'quotes' and \"more\"",
    "设备": "👩\u200d👧",
    "$eq": 1,
    "empty": [{}, [], ""],
}


def test_metadata_comes_back_as_it_was(memory):
    """B038 B078"""
    memory.add(["a", "b", "c"], ids=["a", "b", "c"], metadatas=[METADATA, None, {}])
    stored, none, empty = memory.get(["a", "b", "c"])
    assert stored.metadata == METADATA
    assert [type(stored.metadata[key]) for key in ("i", "x", "t")] == [int, float, bool]
    assert list(stored.metadata) == list(METADATA)
    assert none.metadata == empty.metadata == {}


# -- upsert ---------------------------------------------------------------------------------------------------------


def test_an_upsert_changes_text_keywords_vector_and_metadata_together(memory):
    """B026 B093"""
    memory.add(["cats purr", "something else"], ids=["a", "b"], metadatas=[{"v": 1, "old": True}, None])
    memory.add("rockets fly", ids=["a"], metadatas=[{"v": 2}])
    assert contents(memory)["a"] == ("rockets fly", {"v": 2}, "fact", 0.5)
    assert all(hit.keyword in (None, 0.0) for hit in memory.search("cats", alpha=0))
    (by_word, by_vector) = (memory.search("rockets", k=1, alpha=alpha)[0] for alpha in (0, 1))
    assert by_word.id == by_vector.id == "a"
    assert by_word.keyword > 0
    assert memory.search("rockets fly", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
    assert memory.list(where={"old": True}) == memory.list(where={"v": 1}) == []
    assert [node.id for node in memory.list(where={"v": 2})] == ["a"]
    assert memory.check()


def test_an_upsert_keeps_the_history(memory, clock):
    memory.add("first", ids=["n"], tier="longterm")
    created = clock()
    clock.advance(days=1)
    memory.add(Node(text="second", id="n", tier="task", type="entity"))
    (node,) = memory.get("n")
    assert (node.text, node.type, node.tier) == ("second", "entity", "longterm")
    assert (node.created_at, node.updated_at) == (created, clock())


def test_changing_metadata_alone_embeds_nothing(memory, embedder):
    """B121"""
    memory.add("x", ids=["x"], metadatas=[{"v": 1}])
    embedder.asked.clear()
    memory.add("x", ids=["x"], metadatas=[{"v": 2}])
    memory.update("x", metadata={"v": 3}, confidence=0.9)
    assert embedder.asked == []
    assert memory.get("x")[0].metadata == {"v": 3}
    assert memory.search("x", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)


def test_the_order_of_listing_is_the_order_of_adding(memory):
    memory.add(["a", "b"], ids=["z", "y"])
    memory.add(["c", "again"], ids=["x", "z"])
    assert [node.id for node in memory.list()] == ["z", "y", "x"]


def test_pages_cover_every_node_once(memory):
    ids = memory.add([f"text {i}" for i in range(25)], compute_embedding=False)
    seen, after = [], None
    while page := memory.list(limit=7, after=after):
        seen += [node.id for node in page]
        after = seen[-1]
    assert seen == ids
    assert memory.list(limit=0) == []
    for nobody in ("nobody", "lone \ud800 surrogate"):
        with pytest.raises(NodeNotFoundError, match="no node"):
            memory.list(after=nobody)


# -- what is refused ------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


def ring():
    value: dict = {}
    value["self"] = value
    return value


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


REFUSED_METADATA = {
    "datetime": {"d": datetime(2026, 1, 1, tzinfo=UTC)},
    "timedelta": {"d": timedelta(1)},
    "Path": {"p": Path("x")},
    "set": {"s": {1}},
    "bytes": {"b": b"x"},
    "tuple": {"t": (1, 2)},
    "tuple in a list": {"t": [[(1,)]]},
    "Decimal": {"d": Decimal("1.5")},
    "complex": {"c": 1j},
    "Enum": {"e": Colour.RED},
    "object": {"o": object()},
    "array": {"a": np.zeros(2)},
    "numpy integer": {"a": np.int64(1)},
    "NaN": {"n": math.nan},
    "Inf in a list": {"n": [1, {"m": -math.inf}]},
    "numpy NaN": {"n": np.float64("nan")},
    "key of int": {1: "x"},
    "key of None inside": {"a": {None: 1}},
    "key of bool": {True: 1},
    "surrogate": {"a": "lone \ud83d"},
    "surrogate in a key": {"lone \udc00": 1},
    "surrogate deep inside": {"a": [{"b": ["\ud800"]}]},
    "itself": ring(),
    "too deep": {"a": nested(900)},
    "much too deep": {"a": nested(100_000)},
    "a number of many digits": {"a": 10**5000},
    "list": ["a"],
    "text": "a",
}


@pytest.mark.parametrize("metadata", REFUSED_METADATA.values(), ids=REFUSED_METADATA.keys())
def test_metadata_that_is_not_json_is_refused(memory, embedder, metadata):
    """B038 B101 B042"""
    memory.add("here before", ids=["bad"], metadatas=[{"v": 1}])
    embedder.asked.clear()
    with pytest.raises(InvalidNodeError, match="Item 1"):
        memory.add(["good", "bad"], ids=["good", "bad"], metadatas=[{}, metadata])
    if isinstance(metadata, dict):
        with pytest.raises(InvalidNodeError, match="'bad'"):
            memory.update("bad", metadata=metadata)
    assert embedder.asked == []
    assert contents(memory) == {"bad": ("here before", {"v": 1}, "fact", 0.5)}


def test_the_error_leads_to_the_entry_that_cannot_be_stored(memory):
    with pytest.raises(InvalidNodeError, match=r"Item 0: metadata\['a'\]\[1\]\['d'\] is of the type datetime"):
        memory.add("text", metadatas=[{"a": [1, {"d": datetime.now(UTC)}]}])


REFUSED_NODES = {
    "text is bytes": Node(text=b"bytes"),
    "text is None": Node(text=None),
    "surrogate in the text": Node(text="bad \ud83d end"),
    "surrogate in the id": Node(text="t", id="\udfff"),
    "id is a number": Node(text="t", id=7),
    "surrogate in the provenance": Node(text="t", provenance="\ud800"),
    "provenance is a path": Node(text="t", provenance=Path("x")),
    "surrogate in the subtype": Node(text="t", subtype="\ud800"),
    "unknown type": Node(text="t", type="opinion"),
    "type is None": Node(text="t", type=None),
    "unknown tier": Node(text="t", tier="forever"),
    "tier is a number": Node(text="t", tier=1),
    **{
        f"confidence {value!r}": Node(text="t", confidence=value)
        for value in (-0.1, 1.1, math.nan, math.inf, "0.5", True, None, Decimal("0.5"), [0.5])
    },
    "metadata is None": Node(text="t", metadata=None),
    "metadata is a proxy": Node(text="t", metadata=MappingProxyType({"a": {1}})),
}


@pytest.mark.parametrize("bad", REFUSED_NODES.values(), ids=REFUSED_NODES.keys())
def test_a_node_that_cannot_be_stored_leaves_nothing(memory, embedder, bad):
    """B101 B108"""
    with pytest.raises(InvalidNodeError, match="Item 2"):
        memory.add([Node(text="good"), "text", bad])
    assert embedder.asked == []
    assert memory.count() == 0


@pytest.mark.parametrize("item", [None, 5, b"x", ["nested"], {"text": "x"}, ("a", {})])
def test_an_item_that_is_neither_text_nor_node_is_refused(memory, item):
    with pytest.raises(InvalidNodeError, match="Item 1"):
        memory.add(["good", item])
    assert memory.count() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"ids": ["a"]},
        {"ids": ["a", "b", "c"]},
        {"ids": "ab"},
        {"metadatas": [{}]},
        {"metadatas": {"a": 1, "b": 2}},
        {"embeddings": [[1.0] * 64]},
        {"compute_embedding": [True]},
        {"compute_embedding": [True, False, True]},
    ],
    ids=str,
)
def test_lists_of_another_length_are_refused(memory, embedder, arguments):
    with pytest.raises(InvalidNodeError, match="expected"):
        memory.add(["one", "two"], **arguments)
    assert embedder.asked == []
    assert memory.count() == 0


# -- update ---------------------------------------------------------------------------------------------------------


def test_update_changes_what_is_named(memory, clock):
    memory.add("old words", ids=["n"], metadatas=[{"a": 1}], provenance="here")
    clock.advance(hours=1)
    node = memory.update("n", text="new words", type="decision", subtype="s", confidence=1, provenance=None)
    assert node == memory.get("n")[0]
    assert (node.text, node.type, node.subtype, node.confidence, node.provenance) == (
        "new words",
        "decision",
        "s",
        1.0,
        None,
    )
    assert node.metadata == {"a": 1}
    assert node.updated_at == clock() > node.created_at
    assert memory.search("new words", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
    assert memory.search("old", k=1, alpha=0)[0].keyword in (None, 0.0)
    assert memory.update("n", metadata={"age": None}).metadata == {"age": None}
    assert memory.update("n", metadata=None).metadata == {}


@pytest.mark.parametrize(
    "changes",
    [{"tier": "archive"}, {"pinned": True}, {"created_at": None}, {"namespace": "x"}, {"txt": "x"}],
    ids=str,
)
def test_update_names_what_it_cannot_change(memory, changes):
    memory.add("text", ids=["n"])
    with pytest.raises(InvalidNodeError, match=next(iter(changes))):
        memory.update("n", **changes)


@pytest.mark.parametrize("changes", [{"text": "\ud800"}, {"type": "x"}, {"confidence": 2}, {"text": 5}], ids=str)
def test_a_refused_update_leaves_the_node(memory, changes):
    """B108"""
    memory.add("text", ids=["n"])
    before = memory.get("n")
    with pytest.raises(InvalidNodeError, match="'n'"):
        memory.update("n", **changes)
    assert memory.get("n") == before


@pytest.mark.parametrize("id", ["nobody", "", "lone \ud800 surrogate"])
def test_updating_an_unknown_node_raises(memory, id):
    with pytest.raises(NodeNotFoundError, match="no node"):
        memory.update(id, text="x")
    assert memory.count() == 0


class Interrupted(WordEmbedder):
    """Does something once while a text is being embedded, as another process might."""

    meanwhile = None

    def embed(self, texts):
        if self.meanwhile is not None:
            step, self.meanwhile = self.meanwhile, None
            step()
        return super().embed(texts)


def test_update_changes_nothing_that_it_was_not_asked_to(open_shared):
    """B108"""
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=None)
    memory.add("one", ids=["n"])
    embedder.meanwhile = lambda: other.update("n", metadata={"v": 1}, confidence=0.9)
    node = memory.update("n", text="two")
    assert (node.text, node.metadata, node.confidence) == ("two", {"v": 1}, 0.9)


def test_update_does_not_bring_back_what_was_deleted_meanwhile(open_shared):
    """B129"""
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=None)
    memory.add("one", ids=["n"])
    embedder.meanwhile = lambda: other.delete(["n"])
    with pytest.raises(NodeNotFoundError, match="'n'"):
        memory.update("n", text="two")
    assert memory.count() == 0


def test_a_vector_never_stays_with_another_text(open_shared):
    """B026"""
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=None)
    memory.add("one", ids=["n"])
    embedder.meanwhile = lambda: other.update("n", text="from elsewhere")
    memory.update("n", text="two")
    assert memory.search("two", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
    other.update("n", text="from elsewhere")
    assert memory.search("two", k=1, alpha=1)[0].semantic is None
    assert memory.stats().pending == 1


def test_any_number_of_ids_can_be_deleted_with_a_filter(memory):
    """B150: a filter takes 10,000 values, a list of ids has no such end."""
    ids = [str(number) for number in range(12_000)]
    memory.add(["text"] * 4, ids=["1", "2", "11000", "other"], metadatas=[{"n": 1}, {"n": 2}, {"n": 1}, {"n": 1}])
    memory.promote("11000", "archive", reason="a test wants it")
    assert memory.delete(ids, where={"n": 1}) == 2
    assert [node.id for node in memory.list(include_archived=True)] == ["2", "other"]
    assert memory.delete([], where={"n": 1}) == memory.delete(["2", "2", "\ud800"], where={"n": 1}) == 0
    assert memory.check()
