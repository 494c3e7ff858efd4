"""What a LangGraph store keeps and finds; most of it in scenarios that LangGraph's own stores run too."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from langchain_rlm import RLMRetriever, RLMStore
from rlm_memory import Memory, Node
from rlm_memory.errors import EmbeddingUnavailableError, InvalidInputError, InvalidNodeError
from support import SettableClock, WordEmbedder


@pytest.fixture(params=["file", "server"])
def memory(request: pytest.FixtureRequest, store_path: Path, clock: SettableClock) -> Iterator[Memory]:
    location = store_path if request.param == "file" else request.getfixturevalue("postgres_url")
    with Memory.open(location, embedder=WordEmbedder(), clock=clock) as memory:
        yield memory


@pytest.fixture
def store(memory: Memory) -> RLMStore:
    return RLMStore(memory)


def keys(items: Sequence[Any]) -> list[str]:
    return [item.key for item in items]


def namespaces(items: Sequence[Any]) -> list[tuple[str, ...]]:
    return sorted({item.namespace for item in items})


# -- scenarios: a store goes in, what its user sees comes out -------------------------------------------------------

Scenario: TypeAlias = Callable[[BaseStore], Any]
SCENARIOS: dict[str, Scenario] = {}
PLACES = [
    ("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f"),
    ("users", "123"), ("users", "456", "settings"), ("admin", "users", "789"), ("guests", "456", "preferences"),
]  # fmt: skip


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def put_all(store: BaseStore, places: Sequence[tuple[str, ...]]) -> None:
    for i, place in enumerate(places):
        store.put(place, f"key {i}", {"n": i})


@scenario
def put_get_update_delete(store: BaseStore) -> Any:
    place, seen = ("test", "documents"), []
    for value in ({"title": "One", "deep": {"a": [1, None, True]}}, {"title": "Two"}):
        store.put(place, "doc", value)
        item = store.get(place, "doc")
        seen.append((item.namespace, item.key, item.value))  # type: ignore[union-attr]  # it was put
    store.delete(place, "doc")
    return seen, store.get(place, "doc"), store.get(("test", "other"), "doc"), store.get(("ghost",), "k")


@scenario
def reads_of_a_batch_see_the_state_before_it(store: BaseStore) -> Any:
    store.put(("t",), "old", {"v": 1})
    results = store.batch(
        [
            PutOp(("t",), "new", {"v": 2}),
            GetOp(("t",), "new"),
            PutOp(("t",), "old", None),
            GetOp(("t",), "old"),
            SearchOp(("t",)),
            ListNamespacesOp(),
            PutOp(("u",), "other", {"v": 3}),
        ]
    )
    return (
        results[:3],
        results[3].value,  # type: ignore[union-attr]  # an item
        keys(results[4]),  # type: ignore[arg-type]  # items
        results[5:],
        sorted(keys(store.search(()))),
    )


@scenario
def the_last_put_of_a_key_wins(store: BaseStore) -> Any:
    store.batch([PutOp(("t",), "k", {"v": 1}), PutOp(("t",), "k", {"v": 2}), PutOp(("t",), "gone", {"v": 1})])
    store.batch([PutOp(("t",), "gone", {"v": 2}), PutOp(("t",), "gone", None)])
    return [item.value for item in store.search(("t",))]


@scenario
def a_batch_may_repeat_what_it_gets(store: BaseStore) -> Any:
    store.put(("t",), "a", {"v": 1})
    got = store.batch([GetOp(("t",), "a"), GetOp(("t",), "none"), GetOp(("t",), "a")])
    return [item and item.value for item in got], store.batch([])  # type: ignore[union-attr]  # items


@scenario
def namespaces_by_conditions(store: BaseStore) -> Any:
    put_all(store, PLACES)
    asked: list[dict[str, Any]] = [
        {},
        {"prefix": ("a", "b")},
        {"suffix": ("f",)},
        {"prefix": ("a",), "suffix": ("f",)},
        {"prefix": ("a", "*", "f")},
        {"prefix": ("*", "users")},
        {"prefix": ("*",)},
        {"suffix": ("*", "f")},
        {"suffix": ("*", "preferences")},
        {"prefix": ("users", "*")},
        {"prefix": ("*", "users"), "suffix": ("*", "settings")},
        {"prefix": ("nonexistent",)},
        {"prefix": ("users", "123")},
        {"prefix": ("a", "b", "c", "d", "e")},
        {"prefix": ["a", "b"], "suffix": ["f"]},
    ]
    return [store.list_namespaces(**arguments) for arguments in asked]


@scenario
def namespaces_cut_to_a_depth(store: BaseStore) -> Any:
    put_all(store, PLACES)
    return (
        [store.list_namespaces(max_depth=depth) for depth in (1, 2, 3, 9)],
        store.list_namespaces(prefix=("a", "b"), max_depth=3),
        store.list_namespaces(suffix=("f",), max_depth=1),
    )


@scenario
def namespaces_page_by_page(store: BaseStore) -> Any:
    put_all(store, [("n", f"{i:02d}") for i in range(20)])
    return [store.list_namespaces(prefix=("n",), limit=5, offset=offset) for offset in (0, 5, 15, 18, 20)]


@scenario
def many_namespaces_of_many_items(store: BaseStore) -> Any:
    store.batch([PutOp(("n", f"{i % 7}", f"{i % 11}"), f"{i}", {}) for i in range(1_500)])
    store.batch([PutOp(("m", f"{i}"), "k", {}) for i in range(600)])
    return store.list_namespaces(limit=999), store.list_namespaces(prefix=("n",), max_depth=2)


@scenario
def a_namespace_without_items_is_gone(store: BaseStore) -> Any:
    put_all(store, [("a", "x"), ("a", "y")])
    store.delete(("a", "x"), "key 0")
    return [item.namespace for item in store.search(("a",))]


@scenario
def searches_stay_under_their_namespace(store: BaseStore) -> Any:
    places = [
        ("foo",), ("foo", "child"), ("foo", "child", "deep"), ("foobar",), ("foobar", "baz"), ("foo2",), ("Foo",),
        ("john_doe",), ("john-doe",), ("johnXdoe",), ("user_1",), ("userX1",), ("a%b",), ("axxb",), ("star*",),
        ("starX",), ("*",), ("%",), ("q?m",), ("qXm",), ("br[ack]et",), ("brXacXket",), ("plus+",), ("plusX",),
        ("line",), ("line\n",), (" ",), ("'",), ('"',), ("\\",), ("::",), ("naïve",), ("naive",),
    ]  # fmt: skip
    put_all(store, places)
    by_search = [namespaces(store.search(place, limit=100)) for place in [*places, ("fo",), ()]]
    return by_search, [store.list_namespaces(prefix=place) for place in places if place != ("*",)]


@scenario
def suffixes_align_to_labels(store: BaseStore) -> Any:
    put_all(store, [("u", "users", "alice"), ("u", "users", "malice"), ("u", "a", "b", "alice"), ("users", "alice\n")])
    return store.list_namespaces(suffix=("alice",)), store.list_namespaces(prefix=("u", "*", "alice"))


@scenario
def filters_of_values(store: BaseStore) -> Any:
    values = {
        "a": {"color": "red", "size": 4.5, "on": True, "who": "O'Brien", "tags": ["x"], "access-level": 1, "1a": "ok"},
        "b": {"color": "red", "size": 3, "on": False, "who": "public", "tags": ["x", "y"], "user": {"level": 2}},
        "c": {"color": "green", "size": -10, "on": True, "who": "x", "tags": [], "user": {"level": 3}},
    }
    for key, value in values.items():
        store.put(("t",), key, value)
    asked: list[dict[str, Any]] = [
        {"color": "red"},
        {"color": {"$eq": "red"}},
        {"color": {"$ne": "red"}},
        {"size": {"$gt": 3}},
        {"size": {"$gte": 3}},
        {"size": {"$lt": 3}},
        {"size": {"$lte": 3}},
        {"size": {"$gt": -11, "$lt": 4}},
        {"size": {"$gte": 3}, "color": "red"},
        {"size": 3.0},
        {"on": True},
        {"on": False},
        {"tags": ["x"]},
        {"who": "O'Brien"},
        {"who": "public' OR '1'='1"},
        {"who": "public\x00' OR '1'='1"},
        {"who": "''''"},
        {"access-level": 1},
        {"1a": "ok"},
        {"missing": None},
        {"missing": "x"},
        {"size": {"$lt": 10**100}},
    ]
    return [sorted(keys(store.search(("t",), filter=filter))) for filter in asked]


@scenario
def searches_page_by_page(store: BaseStore) -> Any:
    put_all(store, [("t", "x")] * 5)
    pages = [keys(store.search(("t",), limit=2, offset=offset)) for offset in (0, 2, 4, 6)]
    return [len(page) for page in pages], sorted(key for page in pages for key in page), store.search(("t",), limit=0)


@scenario
def a_query_without_words_is_none(store: BaseStore) -> Any:
    store.put(("t",), "k", {"text": "test"})
    return [[(item.key, item.score) for item in store.search(("t",), query=query)] for query in (None, "")]


@scenario
def names_that_are_refused(store: BaseStore) -> Any:
    refused = []
    for place in [(), ("the", "thing.about"), ("some", "fun", ""), ("langgraph", "foo"), (1,), ("nul\0",)]:
        with pytest.raises(InvalidNamespaceError):
            store.put(place, "k", {})  # type: ignore[arg-type]  # the mistake under test
        refused.append(place)
    store.put(("foo", "langgraph", "foo"), "bar", {"v": 1})
    store.batch([PutOp(("langgraph", "foo"), "bar", {"v": 2})])  # past the public door
    return len(refused), [item.value for item in store.search(("langgraph",))], len(store.search(()))


@scenario
def texts_of_all_scripts(store: BaseStore) -> Any:
    for i, text in enumerate(["这是中文", "これは日本語です", "이건 한국어야", "Это русский", "यह रूसी है", "🦉"]):
        store.put(("user", text), text, {"text": text, text: i})
    return [(item.namespace, item.key, item.value) for item in store.search((), filter={"text": "Это русский"})]


@pytest.fixture(params=["a store in memory", "a store in a file", "a store on a server"])
def ours(request: pytest.FixtureRequest, store_path: Path) -> Iterator[RLMStore]:
    places: dict[str, Any] = {"a store in memory": None, "a store in a file": store_path}
    is_local = request.param in places
    store = RLMStore(path=places[request.param] if is_local else request.getfixturevalue("postgres_url"))
    yield store
    store.memory.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_store_does_as_langgraphs_own_do(ours: RLMStore, name: str):
    """B034, B115, B132, B173"""
    with ExitStack() as stack:
        sqlite = stack.enter_context(SqliteStore.from_conn_string(":memory:"))
        seen = SCENARIOS[name](ours)
        assert seen == SCENARIOS[name](sqlite)
        assert seen == SCENARIOS[name](InMemoryStore())


@pytest.mark.parametrize("name", SCENARIOS)
async def test_awaited_it_does_the_same(ours: RLMStore, name: str):
    assert await asyncio.to_thread(SCENARIOS[name], Awaited(ours)) == SCENARIOS[name](InMemoryStore())
    assert ours.memory.check()


class Awaited(BaseStore):
    """A store whose every batch is awaited, in an event loop of its own."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store

    def batch(self, ops: Any) -> Any:
        return asyncio.run(self.store.abatch(ops))

    async def abatch(self, ops: Any) -> Any:
        return await self.store.abatch(ops)


# -- where LangGraph's own stores differ from each other, or are better left alone ----------------------------------


def test_a_filter_on_what_an_item_lacks_passes_it_over():
    """InMemoryStore raises a TypeError, SqliteStore passes it over."""
    store = RLMStore()
    store.put(("t",), "with", {"n": 1})
    store.put(("t",), "without", {})
    assert keys(store.search(("t",), filter={"n": {"$gte": 0}})) == ["with"]
    assert keys(store.search(("t",), filter={"n": {"$ne": 2}})) == ["without", "with"]


def test_an_object_in_a_filter_is_contained_in_the_value():
    """InMemoryStore agrees, SqliteStore knows no objects."""
    for store in (RLMStore(), InMemoryStore()):
        store.put(("t",), "a", {"user": {"name": "Ada", "at": {"city": "Oslo", "n": 1}}})
        store.put(("t",), "b", {"user": {"name": "Bo"}})
        assert keys(store.search(("t",), filter={"user": {"at": {"city": "Oslo"}}})) == ["a"]
        assert keys(store.search(("t",), filter={"user": {"at": {"n": {"$gt": 0}}, "name": "Ada"}})) == ["a"]
        assert keys(store.search(("t",), filter={"user": {"at": {"city": "Rome"}}})) == []


def test_dots_in_a_filter_lead_into_the_value():
    """SqliteStore agrees, for InMemoryStore they are part of the key."""
    store = RLMStore()
    store.put(("t",), "path", {"user": {"level": 1}})
    store.put(("t",), "key", {"user.level": 1})
    assert sorted(keys(store.search(("t",), filter={"user.level": 1}))) == ["key", "path"]


def test_more_operators_than_the_six_are_understood():
    """Both of LangGraph's stores refuse them."""
    store = RLMStore()
    for key, value in {"a": {"n": 1, "tags": ["x"]}, "b": {"n": 2}, "c": {"n": 3, "tags": ["x", "y"]}}.items():
        store.put(("t",), key, value)
    for filter, found in [
        ({"n": {"$in": [1, 3]}}, ["c", "a"]),
        ({"n": {"$nin": [1, 3]}}, ["b"]),
        ({"tags": {"$contains": "y"}}, ["c"]),
        ({"tags": {"$exists": False}}, ["b"]),
        ({"$or": [{"n": 1}, {"n": 2}]}, ["b", "a"]),
        ({"node.type": "fact", "n": 1}, ["a"]),
    ]:
        assert keys(store.search(("t",), filter=filter)) == found


@pytest.mark.parametrize(
    "filter",
    [{"n": {"$regex": "x"}}, {"n": {"$gt": 1, "and": 2}}, {"$nope": []}, {"n": math.nan}, {"n": object()}, {"n": {1}}],
)
def test_what_a_filter_cannot_mean_is_refused(filter: dict[str, Any]):
    """B089: refused as a ValueError, never everything"""
    store = RLMStore()
    store.put(("t",), "k", {"n": 1})
    with pytest.raises(ValueError, match=r"\$|nan|NaN|object|set|and"):
        store.search(("t",), filter=filter)


def test_no_filter_leads_out_of_its_namespace():
    """B020, B044, B053"""
    store = RLMStore()
    store.put(("users", "me"), "mine", {"m": 1})
    store.put(("users", "you"), "yours", {"m": 1})
    for filter in [
        {"$or": [{"m": 1}, {"node.id": {"$ne": ""}}]},
        {"$or": [{"_langgraph.within": {"$contains": "users.you"}}, {"m": 1}]},
        {"$not": {"_langgraph.namespace": "users.me"}},
        {"x') OR 1=1 --": {"$ne": "y"}},
        {"access') = 'public' OR '1'='1' OR json_extract(value, '$.": {"$ne": 1}},
    ]:
        assert {item.key for item in store.search(("users", "me"), filter=filter)} <= {"mine"}


def test_the_time_of_creation_stays(store: RLMStore, clock: SettableClock):
    """As in PostgresStore; InMemoryStore and SqliteStore reset it."""
    store.put(("t",), "k", {"v": 1})
    created = clock.now
    clock.advance(seconds=1)
    store.put(("t",), "k", {"v": 2})
    item = store.get(("t",), "k")
    assert item is not None
    assert (item.created_at, item.updated_at) == (created, clock.now)


def test_items_come_newest_first(store: RLMStore, clock: SettableClock):
    """As in SqliteStore and PostgresStore; InMemoryStore keeps the order of the first put."""
    for key in ("a", "b", "c", "a"):
        store.put(("t",), key, {"v": key})
        clock.advance(seconds=1)
    store.batch([PutOp(("t",), "d", {}), PutOp(("t",), "e", {})])
    assert keys(store.search(("t",))) == ["e", "d", "a", "c", "b"]
    assert keys(store.search((), limit=2, offset=1)) == ["d", "a"]


# -- what a key and a value may be ----------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_LABEL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=".\0"), min_size=1, max_size=6)
_ADDRESS = st.tuples(
    st.lists(_LABEL, min_size=1, max_size=3).map(tuple), st.text(".:*%a_-\0 '\"[]", max_size=5) | _TEXT
)


@settings(max_examples=40)
@given(addresses=st.lists(_ADDRESS, min_size=1, max_size=8, unique=True))
def test_no_two_addresses_are_one_item(addresses: list[tuple[tuple[str, ...], str]]):
    store = RLMStore()
    store.batch([PutOp(place, key, {"at": [*place, key]}) for place, key in addresses])
    for place, key in addresses:
        item = store.get(place, key)
        assert item is not None
        assert (item.namespace, item.key, item.value) == (place, key, {"at": [*place, key]})
    assert {(item.namespace, item.key) for item in store.search((), limit=99)} == set(addresses)
    place, key = addresses[0]
    assert {item.namespace for item in store.search(place, limit=99)} == {
        other for other, _ in addresses if other[: len(place)] == place
    }
    store.delete(place, key)
    assert len(store.search((), limit=99)) == len(addresses) - 1
    store.memory.close()


def test_a_value_is_a_copy(store: RLMStore):
    value = {"list": [1]}
    store.put(("t",), "k", value)
    value["list"].append(2)
    got = store.get(("t",), "k")
    assert got is not None
    got.value["list"].append(3)
    assert store.get(("t",), "k").value == {"list": [1]}  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize(
    "value",
    [
        {"when": object()},
        {"x": {1, 2}},
        {"x": math.inf},
        {"x": "bad \ud83d"},
        {1: "a key that is no text"},
        {"_langgraph": {}},
        {"_langgraph.within": ["users.you"]},
        {"_llamaindex": {"node": {}}},
    ],
)
def test_a_value_that_cannot_be_stored_leaves_everything_as_it_was(store: RLMStore, value: dict[Any, Any]):
    """B038, B101"""
    store.put(("t",), "old", {"v": 1})
    with pytest.raises(InvalidNodeError):
        store.batch([PutOp(("t",), "old", None), PutOp(("t",), "new", {"v": 2}), PutOp(("t",), "bad", value)])
    assert keys(store.search(())) == ["old"]


def test_raw_operations_are_checked(store: RLMStore):
    for op in (PutOp(("a.b",), "k", {}), GetOp(("",), "k"), SearchOp(("a.b",)), PutOp((), "k", {})):
        with pytest.raises(InvalidNamespaceError):
            store.batch([op])
    condition = MatchCondition("middle", ("a",))  # type: ignore[arg-type]  # the mistake under test
    store.put(("a",), "k", {})
    for bad in (ListNamespacesOp((condition,)), SearchOp(("a",), limit=-1), SearchOp(("a",), offset=-1), "get"):
        with pytest.raises(InvalidInputError):
            store.batch([bad])  # type: ignore[list-item]  # the mistake under test


def test_a_key_that_cannot_be_stored_is_not_there(store: RLMStore):
    assert store.get(("t",), "\ud83d") is None
    assert store.search(("\ud83d",)) == []


def test_reading_what_is_not_there_writes_nothing(store: RLMStore, memory: Memory):
    """B173"""
    assert (store.get(("ghost",), "k"), store.search(("ghost",)), store.list_namespaces()) == (None, [], [])
    assert (memory.sessions(), memory.count()) == ([], 0)


# -- search by a question -------------------------------------------------------------------------------------------


@pytest.fixture
def notes(memory: Memory) -> RLMStore:
    store = RLMStore(memory, fields=["text"])
    values = {
        "apple": {"text": "red apple", "color": "red", "score": 4.5},
        "car": {"text": "red car", "color": "red", "score": 3.0},
        "green": {"text": "green apple", "color": "green", "score": 4.0},
        "blue": {"text": "blue car", "color": "blue", "score": 3.5},
    }
    store.batch([PutOp(("t", value["color"]), key, value) for key, value in values.items()])
    return store


def test_the_best_come_first_each_with_its_score(notes: RLMStore):
    found = notes.search((), query="a red apple")
    assert found[0].key == "apple"
    assert [item.score for item in found] == sorted((item.score or 0 for item in found), reverse=True)
    assert found[0].score == 1.0
    assert len(found) == 4


def test_a_query_is_combined_with_filters_and_namespaces(notes: RLMStore):
    assert keys(notes.search(("t",), query="apple", filter={"color": "red"})) == ["apple", "car"]
    assert keys(notes.search(("t",), query="car", filter={"color": "red"})) == ["car", "apple"]
    assert keys(notes.search(("t",), query="blue", filter={"score": {"$gt": 3.2}}))[0] == "blue"
    assert keys(notes.search(("t", "green"), query="car")) == ["green"]
    assert keys(notes.search(("t",), query="apple", filter={"score": {"$gte": 4}, "color": "green"})) == ["green"]


@pytest.mark.parametrize("query", ["test!@#$%^&*()", "AND", '"', "it's", "a-b", "test " * 300, "\0", "這"])
def test_a_query_is_text_and_never_syntax(notes: RLMStore, query: str):
    assert len(notes.search((), query=query)) == 4


async def test_pages_of_a_query_are_cut_from_one_list(memory: Memory):
    store, some = RLMStore(memory, fields=["text"]), random.Random(0)
    texts = [" ".join(some.choices([f"word{i}" for i in range(30)], k=some.randint(2, 12))) for _ in range(400)]
    store.batch([PutOp(("t",), f"{i}", {"text": text}) for i, text in enumerate(texts)])
    query = "word1 word2 word3 word4"
    pages = [await store.asearch(("t",), query=query, limit=5, offset=offset) for offset in (0, 5, 10, 15)]
    assert [item.key for page in pages for item in page] == keys(store.search(("t",), query=query, limit=20))
    assert len(set(keys(store.search(("t",), query=query, limit=500)))) == 400


def test_a_text_that_changes_is_found_by_its_new_words(memory: Memory):
    """B026"""
    store = RLMStore(memory, fields=["text"])
    store.put(("t",), "1", {"text": "zany zebra Xerxes"})
    store.put(("t",), "2", {"text": "something about dogs"})
    assert keys(store.search(("t",), query="Zany Xerxes", limit=1)) == ["1"]
    store.put(("t",), "1", {"text": "a parrot"})
    assert keys(store.search(("t",), query="a parrot", limit=1)) == ["1"]
    assert [hit.relevance for hit in memory.search("Xerxes", alpha=0)] == [0, 0]


def test_what_is_not_indexed_is_got_and_listed_and_comes_last_without_a_score(notes: RLMStore):
    notes.put(("t",), "hidden", {"text": "a red apple"}, index=False)
    assert notes.get(("t",), "hidden") is not None
    assert "hidden" in keys(notes.search(("t",)))
    found = notes.search(("t",), query="a red apple")
    assert (found[0].key, found[-1].key, found[-1].score) == ("apple", "hidden", None)
    notes.put(("t", "red"), "apple", {"text": "red apple"}, index=False)  # was indexed before
    assert notes.search(("t",), query="apple", limit=1)[0].key == "green"


def test_fields_say_what_is_searched(memory: Memory):
    store = RLMStore(memory, fields=["title", "notes[*].body", "nothing"])
    store.put(("t",), "a", {"title": "xxx", "notes": [{"body": "yyy"}, {"body": "zzz", "by": "vvv"}], "other": "www"})
    store.put(("t",), "b", {"title": "www"}, index=["title"])
    store.put(("t",), "c", {"title": "qqq", "extra": "rrr"}, index=["extra"])
    assert [node.text for node in memory.list()] == ["xxx\nyyy\nzzz", "www", "rrr"]
    for question, key in {"zzz": "a", "www": "b", "rrr": "c"}.items():
        assert keys(store.search(("t",), query=question, limit=1)) == [key]
    with pytest.raises(InvalidInputError, match="list of paths"):
        RLMStore(memory, fields="title")


def test_the_whole_value_is_searched_unless_fields_are_named(store: RLMStore, memory: Memory):
    store.put(("t",), "k", {"b": ["é", 1], "a": None})
    assert memory.list()[0].text == '{"a": null, "b": ["é", 1]}'


def test_words_are_searched_without_an_embedder():
    store = RLMStore()
    store.put(("t",), "tea", {"text": "Ada drinks tea"})
    store.put(("t",), "rome", {"text": "Bo lives in Rome"})
    assert keys(store.search(("t",), query="Rome", limit=1)) == ["rome"]
    with pytest.raises(EmbeddingUnavailableError):
        RLMStore(memory=store.memory, alpha=1).search(("t",), query="Rome")


def test_embeddings_of_langchain_are_used(embeddings: Embeddings):
    store = RLMStore(embedding=embeddings, alpha=1)
    store.put(("t",), "tea", {"text": "Ada drinks tea"})
    store.put(("t",), "rome", {"text": "Bo lives in Rome"})
    assert keys(store.search(("t",), query="lives in Rome", limit=1)) == ["rome"]


# -- time to live ---------------------------------------------------------------------------------------------------


def minutes(clock: SettableClock, count: float) -> None:
    clock.advance(seconds=60 * count)


def test_an_item_expires_so_many_minutes_after_its_last_use(memory: Memory, clock: SettableClock):
    """B097"""
    store = RLMStore(memory, ttl={"default_ttl": 10})
    for key in ("read", "searched", "written", "left"):
        store.put(("t",), key, {"v": key})
    store.put(("t",), "own", {"v": "own"}, ttl=30)
    store.put(("t",), "never", {"v": "never"}, ttl=None)
    minutes(clock, 9)
    assert store.sweep_ttl() == 0
    store.get(("t",), "read")
    store.search(("t",), filter={"v": "searched"})
    store.put(("t",), "written", {"v": 2})
    minutes(clock, 9)
    assert store.sweep_ttl() == 1
    assert sorted(keys(store.search((), refresh_ttl=False))) == ["never", "own", "read", "searched", "written"]
    minutes(clock, 9)
    assert (store.sweep_ttl(), store.sweep_ttl()) == (3, 0)
    minutes(clock, 9)
    assert (store.sweep_ttl(), keys(store.search(()))) == (1, ["never"])


@pytest.mark.parametrize("refresh", [{"ttl": {"refresh_on_read": False}}, {"each": False}])
def test_reads_that_do_not_refresh_are_no_use(memory: Memory, clock: SettableClock, refresh: dict[str, Any]):
    store = RLMStore(memory, ttl=refresh.get("ttl"))
    store.put(("t",), "k", {}, ttl=10)
    minutes(clock, 9)
    store.get(("t",), "k", refresh_ttl=refresh.get("each"))
    store.search(("t",), refresh_ttl=refresh.get("each"))
    assert memory.list()[0].access_count == 0
    minutes(clock, 2)
    assert store.sweep_ttl() == 1


def test_expired_items_are_omitted_where_that_is_asked(memory: Memory, clock: SettableClock):
    store, plain = RLMStore(memory, ttl={"omit_expired": True}), RLMStore(memory)
    for i in range(30):
        store.put(("t", "gone"), f"{i}", {"text": "tea"}, ttl=5)
    for key in ("a", "b", "c"):
        store.put(("t", "there"), key, {"text": "tea"}, ttl=20)
    minutes(clock, 6)
    assert store.get(("t", "gone"), "1") is None
    assert sorted(keys(store.search(("t",), limit=3))) == ["a", "b", "c"]
    assert sorted(keys(store.search(("t",), query="tea", limit=3))) == ["a", "b", "c"]
    assert store.list_namespaces() == [("t", "there")]
    store.put(("t", "gone"), "new", {})
    assert store.list_namespaces(prefix=("t",)) == [("t", "gone"), ("t", "there")]
    store.delete(("t", "gone"), "new")
    store.batch([PutOp(("more",), f"{i}", {}, ttl=0) for i in range(600)])  # more than are read at once
    assert store.list_namespaces() == [("t", "there")]
    assert store.sweep_ttl() == 600 + 30
    for i in range(30):
        store.put(("t", "gone"), f"{i}", {"text": "tea"}, ttl=0)
    assert plain.get(("t", "gone"), "1", refresh_ttl=False) is not None
    assert len(plain.search(("t",), limit=99, refresh_ttl=False)) == 33
    assert plain.list_namespaces() == [("t", "gone"), ("t", "there")]
    store.search(("t",), query="tea", limit=99)
    assert store.sweep_ttl() == 30  # omitted, so not refreshed


@pytest.mark.parametrize("query", [None, "tea"])
def test_what_was_read_a_moment_ago_is_not_omitted(memory: Memory, clock: SettableClock, query: str | None):
    store = RLMStore(memory, ttl={"omit_expired": True})
    for key in ("read", "left"):
        store.put(("t",), key, {"text": "tea"}, ttl=10)
    for _ in range(3):
        minutes(clock, 9)
        assert store.get(("t",), "read") is not None
        assert "read" in keys(store.search(("t",), query=query, refresh_ttl=False))
    assert keys(store.search(("t",), query=query)) == ["read"]


def test_what_has_proved_itself_or_is_pinned_does_not_expire(memory: Memory, clock: SettableClock):
    """B084, B165"""
    store = RLMStore(memory)
    for key in ("longterm", "archived", "pinned", "task"):
        store.put(("t",), key, {}, ttl=7 * 24 * 60)
    ids = {key: node.id for node in memory.list() for key in ("longterm", "archived", "pinned") if key in node.id}
    memory.promote(ids["longterm"], "longterm", reason="proved")
    memory.promote(ids["archived"], "archive", reason="old")
    memory.pin(ids["pinned"])
    clock.advance(days=8)
    omitting = RLMStore(memory, ttl={"omit_expired": True})
    assert sorted(keys(omitting.search(("t",)))) == ["archived", "longterm", "pinned"]
    assert store.sweep_ttl() == 1
    assert store.get(("t",), "task") is None


def test_an_item_put_without_a_time_to_live_loses_the_one_it_had(store: RLMStore, clock: SettableClock):
    store.put(("t",), "k", {}, ttl=1)
    store.put(("t",), "k", {})
    minutes(clock, 2)
    assert store.sweep_ttl() == 0


@pytest.mark.parametrize("ttl", [-1, math.inf, math.nan, "5", True])
def test_a_time_to_live_is_a_number_of_minutes(store: RLMStore, ttl: Any):
    with pytest.raises(InvalidInputError, match="minutes"):
        store.put(("t",), "k", {}, ttl=ttl)
    store.put(("t",), "k", {}, ttl=1e300)
    assert store.sweep_ttl() == 0


async def test_expired_items_are_swept_in_the_background(memory: Memory, clock: SettableClock):
    store = RLMStore(memory, ttl={"sweep_interval_minutes": 1})
    store.put(("t",), "k", {}, ttl=1)
    minutes(clock, 2)
    swept = threading.Event()
    memory.clock = lambda: swept.set() or clock()  # type: ignore[func-returns-value]  # tells that a sweep begins
    store.start_ttl_sweeper(0.0001)
    store.start_ttl_sweeper(0.0001)
    assert await asyncio.to_thread(swept.wait, 30)
    assert store.stop_ttl_sweeper(30)
    assert store.stop_ttl_sweeper()
    assert (memory.count(), await store.asweep_ttl()) == (0, 0)


def test_a_sweep_that_fails_is_logged_and_made_again(memory: Memory, caplog: pytest.LogCaptureFixture):
    store, failed = RLMStore(memory), threading.Event()
    caplog.handler.addFilter(lambda record: failed.set() or True)  # type: ignore[func-returns-value]  # tells of it
    memory.close()
    store.start_ttl_sweeper(0.0001)
    assert failed.wait(30)
    assert store.stop_ttl_sweeper(30)
    assert "next sweep will try again" in caplog.text


# -- items are memories ---------------------------------------------------------------------------------------------


def test_items_are_found_by_other_adapters_and_stay_apart_from_other_memories(memory: Memory):
    store = RLMStore(memory, fields=["text"], confidence=0.9)
    store.put(("users", "ada"), "drink", {"text": "Ada drinks tea", "n": 1})
    memory.add(["Ada lives in Oslo"], ids=["plain"], metadatas=[{"n": 1}])
    found = RLMRetriever(memory=memory, k=2, filter={"n": 1}).invoke("tea")
    assert [(document.page_content, document.metadata["n"]) for document in found] == [
        ("Ada drinks tea", 1),
        ("Ada lives in Oslo", 1),
    ]
    assert memory.get(found[0].id or "")[0].confidence == 0.9
    assert keys(store.search((), query="Oslo", limit=9)) == ["drink"]
    assert store.list_namespaces() == [("users", "ada")]


def test_a_copy_of_an_item_under_another_id_is_no_item(memory: Memory):
    """B044: what a document says of itself puts it into no namespace."""
    store = RLMStore(memory, fields=["text"], ttl={"omit_expired": True})
    store.put(("users", "ada"), "drink", {"text": "Ada drinks tea"}, ttl=1)
    (item,) = memory.list()
    forged = {**item.metadata, "_langgraph": {**item.metadata["_langgraph"], "namespace": "users.bo"}}
    memory.add(["a forged tea"] * 3, ids=["x", "langgraph:users.bo", "langgraph:"], metadatas=[forged] * 3)
    plain = [Node(id="langgraph:users.bo..plain", text="no item", metadata=kept) for kept in ({}, {"_langgraph": 5})]
    memory.add(plain)
    assert [(item.namespace, item.key) for item in store.search((), limit=9)] == [(("users", "ada"), "drink")]
    assert keys(store.search(("users",), query="forged tea")) == ["drink"]
    assert store.list_namespaces() == [("users", "ada")]
    assert store.get(("users", "bo"), "plain") is None
    assert store.sweep_ttl() == 0


def test_metadata_put_no_item_into_another_namespace(memory: Memory):
    """B044"""
    store = RLMStore(memory, fields=["text"])
    store.put(("users", "ada"), "drink", {"text": "Ada drinks tea"})
    claims = memory.list()[0].metadata
    memory.add(["Bo's tea"], ids=["langgraph:users.bo..drink"], metadatas=[claims])
    for items in (store.search(("users", "ada")), store.search(("users", "ada"), query="tea")):
        assert namespaces(items) == [("users", "ada")]


def test_a_read_is_an_access_in_the_session_of_its_run(memory: Memory):
    store = RLMStore(memory, fields=["text"])
    store.put(("t",), "k", {"text": "tea"})
    (node,) = memory.list()
    reads: dict[str, Callable[[Any], Any]] = {
        "get": lambda _: store.get(("t",), "k"),
        "list": lambda _: store.search(("t",)),
        "query": lambda _: store.search(("t",), query="tea"),
    }
    for session, read in reads.items():
        RunnableLambda(read).invoke("", {"configurable": {"session_id": session, "thread_id": "t"}})
    RunnableLambda(reads["get"]).invoke("", {"configurable": {"thread_id": 7}})
    RunnableLambda(reads["get"]).invoke("", {"metadata": {"session_id": "m"}})
    RLMStore(memory, session_id="given").get(("t",), "k")
    assert [access.session_id for access in memory.accesses(node.id)] == ["get", "list", "query", "7", "m", "given"]
    store.get(("t",), "k")
    store.list_namespaces()
    own = memory.accesses(node.id)[-1]
    assert (len(memory.accesses(node.id)), own.turn) == (7, 1)


def test_a_batch_is_one_turn(store: RLMStore, memory: Memory):
    store.put(("t",), "k", {"text": "tea"})
    store.batch([GetOp(("t",), "k"), SearchOp(("t",)), SearchOp(("t",), query="tea")])
    assert (memory.list()[0].access_count, memory.list()[0].tier) == (1, "task")
    store.get(("t",), "k")
    assert (memory.list()[0].access_count, memory.list()[0].tier) == (2, "session")


def test_what_is_archived_is_got_and_listed_but_found_by_no_query(store: RLMStore, memory: Memory):
    store.put(("t",), "k", {"text": "tea"})
    memory.promote(memory.list()[0].id, "archive", reason="old")
    assert store.get(("t",), "k") is not None
    assert (keys(store.search(("t",))), store.list_namespaces()) == (["k"], [("t",)])
    assert store.search(("t",), query="tea") == []


def test_putting_an_item_again_keeps_its_tier_and_its_past(store: RLMStore, memory: Memory):
    store.put(("t",), "k", {"v": 1})
    memory.promote(memory.list()[0].id, "longterm", reason="proved")
    store.get(("t",), "k")
    store.put(("t",), "k", {"v": 2})
    (node,) = memory.list()
    assert (node.tier, node.access_count) == ("longterm", 1)


def test_namespaces_of_the_memory_are_apart(store_path: Path):
    first, other = (RLMStore(path=store_path, namespace=name) for name in ("one", "two"))
    first.put(("t",), "k", {"v": 1})
    assert (other.get(("t",), "k"), other.search(()), other.list_namespaces()) == (None, [], [])
    for store in (first, other):
        store.memory.close()


def test_what_was_put_is_there_again(store_path: Path):
    for count in range(2):
        store = RLMStore(path=store_path)
        assert len(store.search(())) == count
        store.put(("t",), f"{count}", {})
        store.memory.close()


def test_a_store_that_is_open_for_reading_reads(store_path: Path):
    """B143"""
    writing = RLMStore(path=store_path)
    writing.put(("t",), "k", {"v": 1}, ttl=5)
    writing.memory.close()
    before = store_path.read_bytes()
    reading = RLMStore(path=store_path, read_only=True)
    assert reading.get(("t",), "k") is not None
    assert len(reading.search(("t",), query="v")) == 1
    reading.memory.close()
    assert store_path.read_bytes() == before


# -- at once --------------------------------------------------------------------------------------------------------


async def test_many_tasks_use_a_store_at_once(store: RLMStore):
    await asyncio.gather(*(store.aput(("t", f"{i % 5}"), f"{i}", {"n": i, "text": f"note {i}"}) for i in range(50)))
    await asyncio.gather(*(store.adelete(("t", f"{i % 5}"), f"{i}") for i in range(0, 50, 2)))
    found = await asyncio.gather(*(store.asearch(("t", f"{i}"), query="note", limit=50) for i in range(5)))
    assert [len(items) for items in found] == [5] * 5
    assert await store.alist_namespaces(max_depth=1) == [("t",)]
    assert store.memory.check()


async def test_the_event_loop_is_free_while_the_store_is_waited_for(store_path: Path):
    store = RLMStore(path=store_path)
    other = apsw.Connection(str(store_path))
    store.put(("t",), "k", {})
    other.execute("BEGIN IMMEDIATE")

    async def let_go() -> None:
        other.execute("COMMIT")

    await asyncio.gather(store.aput(("t",), "k", {"v": 2}), let_go())
    other.close()
    item = await store.aget(("t",), "k")
    assert item is not None
    assert item.value == {"v": 2}
    store.memory.close()


async def test_an_embedder_that_can_be_awaited_is(store_path: Path):
    class Awaitable(WordEmbedder):
        async def aembed(self, texts: Sequence[str]) -> Any:
            return super().embed(texts)

        async def aembed_query(self, text: str) -> Any:
            return super().embed_query(text)

        def embed(self, texts: Sequence[str]) -> Any:
            raise AssertionError("it was not awaited")

        embed_query = embed

    store = RLMStore(path=store_path, embedding=Awaitable())
    await store.aput(("t",), "k", {"text": "tea"})
    assert keys(await store.asearch(("t",), query="tea")) == ["k"]
    store.memory.close()
