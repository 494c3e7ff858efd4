"""LangChain's index() over the store, with a record manager: what is skipped, updated and cleaned up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, aindex, index

from langchain_rlm import RLMVectorStore


@pytest.fixture
def records() -> InMemoryRecordManager:
    manager = InMemoryRecordManager("rlm")
    manager.create_schema()
    return manager


@pytest.fixture
def empty(embeddings: Any) -> Iterator[RLMVectorStore]:
    store = RLMVectorStore(embeddings)
    yield store
    assert store.memory.check()
    store.memory.close()


def page(text: str, source: str) -> Document:
    return Document(page_content=text, metadata={"source": source})


def contents(store: RLMVectorStore) -> list[str]:
    return sorted(node.text for node in store.memory.list())


BOTH = [page("a1", "a"), page("a2", "a"), page("b1", "b")]
CHANGED = [page("a1", "a"), page("a3", "a")]

EXPECTED = {
    None: ["a1", "a2", "a3", "b1"],
    "incremental": ["a1", "a3", "b1"],
    "scoped_full": ["a1", "a3", "b1"],
    "full": ["a1", "a3"],
}


@pytest.mark.parametrize("cleanup", EXPECTED)
@pytest.mark.parametrize("batch_size", [2, 100])
def test_each_way_to_clean_up_leaves_what_it_says(
    empty: RLMVectorStore, records: InMemoryRecordManager, cleanup: Any, batch_size: int
):
    run = partial(
        index, cleanup=cleanup, batch_size=batch_size, source_id_key="source", key_encoder="sha256",
    )  # fmt: skip
    assert run(BOTH, records, empty)["num_added"] == 3
    assert run(BOTH, records, empty)["num_skipped"] == 3
    outcome = run(CHANGED, records, empty)
    assert (outcome["num_added"], outcome["num_skipped"]) == (1, 1)
    assert outcome["num_deleted"] == 4 - len(EXPECTED[cleanup])
    assert contents(empty) == EXPECTED[cleanup]
    assert {document.page_content for document in empty.similarity_search("a3", k=9)} == set(EXPECTED[cleanup])


@pytest.mark.parametrize("cleanup", EXPECTED)
async def test_each_way_to_clean_up_leaves_the_same_when_awaited(
    empty: RLMVectorStore, records: InMemoryRecordManager, cleanup: Any
):
    run = partial(aindex, cleanup=cleanup, source_id_key="source", key_encoder="sha256")
    assert (await run(BOTH, records, empty))["num_added"] == 3
    outcome = await run(CHANGED, records, empty)
    assert (outcome["num_added"], outcome["num_skipped"]) == (1, 1)
    assert contents(empty) == EXPECTED[cleanup]


def test_a_full_clean_up_of_nothing_empties_the_index(empty: RLMVectorStore, records: InMemoryRecordManager):
    run = partial(index, cleanup="full", key_encoder="sha256")
    run(BOTH, records, empty)
    assert run([], records, empty)["num_deleted"] == 3
    assert contents(empty) == []


def test_a_forced_update_writes_again_and_asks_for_no_vector_twice(
    empty: RLMVectorStore, records: InMemoryRecordManager, embeddings: Any
):
    run = partial(index, source_id_key="source", cleanup="incremental", key_encoder="sha256")
    run(BOTH, records, empty)
    asked = len(embeddings.words.asked)
    assert run(BOTH, records, empty, force_update=True)["num_updated"] == 3
    assert contents(empty) == ["a1", "a2", "b1"]
    assert len(embeddings.words.asked) == asked


def test_columns_of_the_memory_go_through_index(empty: RLMVectorStore, records: InMemoryRecordManager):
    index(BOTH, records, empty, key_encoder="sha256", upsert_kwargs={"tier": "longterm", "provenance": "wiki"})
    assert {(node.tier, node.provenance) for node in empty.memory.list()} == {("longterm", "wiki")}
