"""Awaited calls for LlamaIndex that are cancelled at any of their awaits: whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step

from cancelling import cancelled_at_each_await
from llamaindex_rlm import (
    RLMChatStore,
    RLMKVStore,
    RLMMemoryBlock,
    RLMRetriever,
    RLMVectorStore,
    load_context,
    save_context,
)
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
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


def nodes(attempt: int) -> list[TextNode]:
    return [TextNode(id_=f"{attempt}-{n}", text=f"text {n}", metadata={"attempt": attempt}) for n in NUMBERS]


def ids(attempt: int) -> list[str]:
    return [node.node_id for node in nodes(attempt)]


async def test_nodes_are_added_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMVectorStore(memory)

    def verify(attempt: int, ended: bool) -> None:
        found = store.get_nodes(ids(attempt))
        assert found == nodes(attempt) or (not ended and found == [])

    assert await cancelled_at_each_await(lambda attempt: store.async_add(nodes(attempt)), verify) > 2


async def test_nodes_are_deleted_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMVectorStore(memory)
    for attempt in range(MOST):
        store.add(nodes(attempt))

    def verify(attempt: int, ended: bool) -> None:
        assert len(store.get_nodes(ids(attempt))) in ((0,) if ended else (0, len(NUMBERS)))

    assert 2 < await cancelled_at_each_await(lambda attempt: store.adelete_nodes(ids(attempt)), verify) <= MOST


@pytest.mark.parametrize("kind", ["store", "retriever"])
async def test_searches(memory: Memory, kind: str) -> None:
    store = RLMVectorStore(memory)

    async def search(attempt: int) -> None:
        if kind == "store":
            query = VectorStoreQuery(query_str="kept", mode=VectorStoreQueryMode.HYBRID, similarity_top_k=1)
            assert (await store.aquery(query, session_id="s")).ids == ["kept"]
        else:
            found = await RLMRetriever(memory, similarity_top_k=1, session_id="s").aretrieve("kept")
            assert [node.node_id for node in found] == ["kept"]

    def verify(attempt: int, ended: bool) -> None:
        assert len(memory.accesses("kept")) <= attempt + 1

    assert await cancelled_at_each_await(search, verify) > 2


async def test_history_is_replaced_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMChatStore(memory)
    await store.set_messages("k", [ChatMessage("first")] * 5)

    def verify(attempt: int, ended: bool) -> None:
        said = [message.content for message in memory.conversations.list("llamaindex:k")]
        texts = [each["blocks"][0]["text"] for each in said]
        assert len(texts) == 5
        assert len(set(texts)) == 1
        assert not ended or texts[0] == str(attempt)

    def replace(attempt: int) -> Any:
        return store.set_messages("k", [ChatMessage(str(attempt))] * 5)

    assert await cancelled_at_each_await(replace, verify) > 2


async def test_values_are_put_whole_or_not_at_all(memory: Memory) -> None:
    store = RLMKVStore(memory)

    def verify(attempt: int, ended: bool) -> None:
        assert len(store.get_all(str(attempt))) in ((len(NUMBERS),) if ended else (0, len(NUMBERS)))

    def put(attempt: int) -> Any:
        return store.aput_all([(str(number), {"n": number}) for number in NUMBERS], str(attempt))

    assert await cancelled_at_each_await(put, verify) > 2


async def test_messages_become_memories_whole_or_not_at_all(memory: Memory) -> None:
    block = RLMMemoryBlock(memory, tokenizer_fn=str.split)

    async def put(attempt: int) -> None:
        await block.aput([ChatMessage(f"{attempt} said {n}") for n in NUMBERS], session_id=f"s{attempt}")
        assert "kept" in await block.aget([ChatMessage("what was kept?")], session_id=f"s{attempt}")

    def verify(attempt: int, ended: bool) -> None:
        found = memory.count(where={"session_id": f"s{attempt}"})
        assert found in ((len(NUMBERS),) if ended else (0, len(NUMBERS)))

    assert await cancelled_at_each_await(put, verify) > 6


async def test_messages_that_a_cancelled_call_did_not_keep_are_kept_by_the_next(memory: Memory) -> None:
    block = RLMMemoryBlock(memory, tokenizer_fn=str.split)
    said = [ChatMessage(f"said {n}") for n in NUMBERS]
    await cancelled_at_each_await(lambda attempt: block.aput(said, session_id="s"), lambda attempt, ended: None)
    await block.aput(said, session_id="s")
    assert memory.count(where={"session_id": "s"}) == len(NUMBERS)


class Waiting(Workflow):
    """A workflow of one step."""

    @step
    async def start(self, event: StartEvent) -> StopEvent:
        return StopEvent(result="done")


async def test_context_is_saved_whole_or_not_at_all(memory: Memory) -> None:
    loaded: dict[int, Any] = {}

    async def save(attempt: int) -> None:
        ctx: Context[Any] = Context(Waiting())
        await ctx.store.set("n", attempt)
        await save_context(memory, ctx, session_id=str(attempt))
        again = await load_context(memory, Waiting(), session_id=str(attempt))
        loaded[attempt] = await again.store.get("n")

    def verify(attempt: int, ended: bool) -> None:
        found = memory.threads("llamaindex").get(str(attempt))
        assert found is not None or not ended
        assert not ended or loaded[attempt] == attempt

    assert await cancelled_at_each_await(save, verify) > 4
    with pytest.raises(InvalidInputError, match="no saved context"):
        await load_context(memory, Waiting(), session_id="none")
