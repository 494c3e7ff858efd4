"""Filters of LangGraph's stores and checkpointers that chance makes: refused by a typed error, or answered rightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from fuzzing import KEYS, METADATA, OPERATORS
from langchain_rlm import RLMSaver, RLMStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidFilterError
from rlm_memory.filters import is_storable

texts = st.text(st.characters(exclude_categories=()), max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from(["a", "%", "x' OR 1=1 --"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, *OPERATORS]) | texts, inner, max_size=2)
    ),
    max_leaves=5,
)
wild = st.dictionaries(st.sampled_from([*KEYS, *OPERATORS]) | texts, values, max_size=2)
ITEMS = [metadata for metadata in METADATA if metadata and all(map(is_storable, metadata))]


@pytest.fixture(scope="module")
def store() -> Iterator[RLMStore]:
    with Memory.open(":memory:", embedder=None) as memory:
        store = RLMStore(memory)
        for number, metadata in enumerate(ITEMS):
            store.put(("of", "filters"), str(number), metadata)
        yield store


@given(where=wild)
def test_filter_of_a_store_is_refused_or_narrows(store: RLMStore, where: dict[str, Any]) -> None:
    try:
        found = store.search(("of",), filter=where, limit=100)
    except InvalidFilterError as error:
        str(error).encode()
        return
    assert {item.key for item in found} <= set(map(str, range(len(ITEMS))))
    assert {item.namespace for item in found} <= {("of", "filters")}
    assert where or len(found) == len(ITEMS)
    assert store.search(("of",), filter={"$not": [where]} if where else None, limit=100) is not None


@given(number=st.integers(0, len(ITEMS) - 1))
def test_item_is_found_by_its_whole_value(store: RLMStore, number: int) -> None:
    where = {f"{key}": {"$eq": value} for key, value in ITEMS[number].items() if not key.startswith(("$", "node."))}
    assert str(number) in {item.key for item in store.search(("of",), filter=where, limit=100)}


@pytest.fixture(scope="module")
def saver() -> Iterator[RLMSaver]:
    with RLMSaver() as saver:
        for number in range(5):
            config: Any = {"configurable": {"thread_id": str(number), "checkpoint_ns": ""}}
            metadata: Any = {"source": "loop", "step": number, "a": [number, None], "b": "a"}
            saver.put(config, {**empty_checkpoint(), "id": str(number)}, metadata, {})
        yield saver


@given(
    where=st.dictionaries(st.sampled_from(["source", "step", "a", "b", *KEYS, *OPERATORS]) | texts, values, max_size=2)
)
def test_filter_of_a_checkpointer_is_refused_or_narrows(saver: RLMSaver, where: dict[str, Any]) -> None:
    try:
        found = list(saver.list(None, filter=where))
    except InvalidFilterError as error:
        str(error).encode()
        return
    assert len(found) <= 5
    assert where or len(found) == 5
    if len(where) == 1 and "step" in where and isinstance(where["step"], int) and not isinstance(where["step"], bool):
        assert [each.metadata["step"] for each in found] == [step for step in range(5) if step == where["step"]]
