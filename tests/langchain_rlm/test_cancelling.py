"""Awaited calls for LangChain and LangGraph that are cancelled at any of their awaits: whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.base import PutOp, SearchOp

from cancelling import cancelled_at_each_await
from langchain_rlm import RLMRetriever, RLMSaver, RLMStore, RLMVectorStore
from rlm_memory import Memory
from support import WordEmbedder

NUMBERS = range(10)
MOST = 12


@pytest.fixture
def memory(store_path: Path) -> Iterator[Memory]:
    with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
        memory.add("kept", ids=["kept"])
        yield memory
        assert [hit.id for hit in memory.search("kept", k=1)] == ["kept"]
        memory.add("after all")
        assert list(memory.check()) == []


def documents(attempt: int) -> list[Document]:
    return [Document(f"text {number}", id=f"{attempt}-{number}", metadata={"attempt": attempt}) for number in NUMBERS]


async def test_documents_are_added_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMVectorStore(memory=memory)

    def verify(attempt: int, ended: bool) -> None:
        found = store.get_by_ids([document.id for document in documents(attempt) if document.id])
        assert found == documents(attempt) or (not ended and found == [])

    assert await cancelled_at_each_await(lambda attempt: store.aadd_documents(documents(attempt)), verify) > 2


async def test_documents_are_deleted_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMVectorStore(memory=memory)
    for attempt in range(MOST):
        store.add_documents(documents(attempt))

    def verify(attempt: int, ended: bool) -> None:
        assert memory.count(where={"attempt": attempt}) in ((0,) if ended else (0, len(NUMBERS)))

    def delete(attempt: int) -> Any:
        return store.adelete(filter={"attempt": attempt})

    assert 2 < await cancelled_at_each_await(delete, verify) <= MOST


@pytest.mark.parametrize("kind", ["store", "retriever", "of the store"])
async def test_searches(memory: Memory, kind: str) -> None:
    store = RLMVectorStore(memory=memory)

    async def search(attempt: int) -> None:
        match kind:
            case "store":
                found = await store.asimilarity_search("kept", k=1, session_id="s")
            case "retriever":
                found = await RLMRetriever(memory=memory, k=1).ainvoke("kept", {"metadata": {"session_id": "s"}})
            case _:
                found = await store.as_retriever(search_kwargs={"k": 1}).ainvoke("kept")
        assert [document.id for document in found] == ["kept"]

    def verify(attempt: int, ended: bool) -> None:
        assert store.similarity_search("kept", k=1)[0].id == "kept"
        assert len(memory.accesses("kept")) <= attempt + 1

    assert await cancelled_at_each_await(search, verify) > 2


async def test_batch_of_a_store_is_put_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMStore(memory)

    def put(attempt: int) -> Any:
        ops = [PutOp(("n", str(attempt)), str(number), {"n": number}) for number in NUMBERS]
        return store.abatch([*ops, SearchOp(("n",), query="n")])

    def verify(attempt: int, ended: bool) -> None:
        found = store.search(("n", str(attempt)), limit=100)
        assert len(found) in ((len(NUMBERS),) if ended else (0, len(NUMBERS)))

    assert await cancelled_at_each_await(put, verify) > 2


async def test_checkpoint_and_writes_are_there_whole_or_not_at_all(memory: Memory) -> None:
    saver = RLMSaver(memory=memory)

    async def put(attempt: int) -> None:
        config: Any = {"configurable": {"thread_id": str(attempt), "checkpoint_ns": ""}}
        value: Any = {**empty_checkpoint(), "channel_values": {"a": [attempt] * 50, "b": attempt},
                      "channel_versions": {"a": 1, "b": 1}}  # fmt: skip
        stored = await saver.aput(config, value, {"source": "input"}, {"a": 1, "b": 1})
        await saver.aput_writes(stored, [("a", 1), ("b", 2)], "task")
        assert len([each async for each in saver.alist(config)]) == 1

    def verify(attempt: int, ended: bool) -> None:
        config: Any = {"configurable": {"thread_id": str(attempt), "checkpoint_ns": ""}}
        if (found := saver.get_tuple(config)) is None:
            assert not ended
            return
        assert found.checkpoint["channel_values"] == {"a": [attempt] * 50, "b": attempt}
        assert len(found.pending_writes or []) in ((2,) if ended else (0, 2))

    assert await cancelled_at_each_await(put, verify) > 6


async def test_thread_is_deleted_whole_or_not_at_all(memory: Memory) -> None:
    saver = RLMSaver(memory=memory)
    for attempt in range(MOST):
        config: Any = {"configurable": {"thread_id": str(attempt), "checkpoint_ns": ""}}
        for number in range(3):
            config = saver.put(config, {**empty_checkpoint(), "id": str(number)}, {"source": "loop"}, {})

    def verify(attempt: int, ended: bool) -> None:
        left = list(saver.list({"configurable": {"thread_id": str(attempt)}}))
        assert len(left) in ((0,) if ended else (0, 3))

    assert 2 < await cancelled_at_each_await(lambda attempt: saver.adelete_thread(str(attempt)), verify) <= MOST
