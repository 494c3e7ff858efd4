"""Calls that are cancelled at any of their awaits: whole or not there, and the store goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cancelling import cancelled_at_each_await
from rlm_memory import AsyncMemory, Memory
from rlm_memory.errors import NodeNotFoundError
from support import WordEmbedder

IDS = [str(number) for number in range(20)]


class AwaitedEmbedder(WordEmbedder):
    """An embedder that is awaited, as one that asks a provider is."""

    async def aembed(self, texts: list[str]) -> object:
        await pause()
        return self.embed(texts)

    async def aembed_query(self, text: str) -> object:
        await pause()
        return self.embed_query(text)


async def pause() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture(params=[WordEmbedder, AwaitedEmbedder], ids=["in a thread", "awaited"])
async def memory(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[AsyncMemory]:
    async with await AsyncMemory.open(store_path, embedder=request.param(16)) as memory:
        await memory.add("kept", ids=["kept"])
        yield memory
        assert [hit.id for hit in await memory.search("kept", k=1)] == ["kept"]
        await memory.add("after all", ids=["after"])
        assert list(await memory.check()) == []
        assert (await memory.stats()).pending == 0


def ids_of(memory: AsyncMemory, attempt: int) -> list[str]:
    return [node.id for node in memory.memory.get([f"{attempt}-{id}" for id in IDS])]


async def test_addition(memory: AsyncMemory) -> None:
    def verify(attempt: int, ended: bool) -> None:
        found = ids_of(memory, attempt)
        assert len(found) in ((len(IDS),) if ended else (0, len(IDS)))

    async def add(attempt: int) -> None:
        await memory.add([f"text {attempt}-{id}" for id in IDS], ids=[f"{attempt}-{id}" for id in IDS])

    assert await cancelled_at_each_await(add, verify) > 4


async def test_search(memory: AsyncMemory) -> None:
    await memory.add(["one text", "another text"], ids=["one", "another"])

    def verify(attempt: int, ended: bool) -> None:
        used = {access.turn for access in memory.memory.accesses("one")}
        assert len(used) <= attempt + 1

    async def search(attempt: int) -> None:
        assert len(await memory.search("text", k=2, session="s")) == 2

    assert await cancelled_at_each_await(search, verify) > 2


async def test_deletion(memory: AsyncMemory) -> None:
    for attempt in range(8):
        await memory.add([f"text {id}" for id in IDS], ids=[f"{attempt}-{id}" for id in IDS])

    def verify(attempt: int, ended: bool) -> None:
        assert len(ids_of(memory, attempt)) in ((0,) if ended else (0, len(IDS)))

    async def delete(attempt: int) -> None:
        await memory.delete([f"{attempt}-{id}" for id in IDS])

    assert 2 < await cancelled_at_each_await(delete, verify) <= 8


async def test_update_and_promotion(memory: AsyncMemory) -> None:
    def verify(attempt: int, ended: bool) -> None:
        [node] = memory.memory.get("kept")
        moved = [entry.decision.to_tier for entry in memory.memory.promotion_log("kept") if entry.decision.moved]
        assert node.tier == (moved[-1] if moved else "task")
        assert node.text.removeprefix("kept ") == str(node.metadata.get("attempt", "kept"))
        assert not ended or (node.metadata["attempt"], node.tier) == (attempt, ("session", "longterm")[attempt % 2])

    async def update(attempt: int) -> None:
        await memory.promote("kept", ("session", "longterm")[attempt % 2], reason=f"attempt {attempt}")
        await memory.update("kept", text=f"kept {attempt}", metadata={"attempt": attempt})

    assert await cancelled_at_each_await(update, verify) > 4


async def test_import_and_export(memory: AsyncMemory, tmp_path: Path) -> None:
    with Memory.open(":memory:", embedder=WordEmbedder(16)) as other:
        for attempt in range(8):
            other.add([f"text {id}" for id in IDS], ids=[f"{attempt}-{id}" for id in IDS])
            other.conversations.append(f"chat {attempt}", ["hello", "bye"])
            other.export(tmp_path / f"{attempt}.jsonl")
            other.clear()
            other.conversations.clear()

    def verify(attempt: int, ended: bool) -> None:
        found, said = ids_of(memory, attempt), memory.memory.conversations.count(f"chat {attempt}")
        assert (len(found), said) in (((len(IDS), 2),) if ended else ((0, 0), (len(IDS), 2)))
        assert {path.suffix for path in tmp_path.glob("*.out*")} <= {".out"}

    async def import_(attempt: int) -> None:
        await memory.import_(tmp_path / f"{attempt}.jsonl")
        await memory.export(tmp_path / f"{attempt}.out")

    assert 2 < await cancelled_at_each_await(import_, verify) <= 8


async def test_conversation(memory: AsyncMemory) -> None:
    await memory.conversations.append("chat", ["first"] * 3)

    def verify(attempt: int, ended: bool) -> None:
        said = [message.content for message in memory.memory.conversations.list("chat")]
        assert len(set(said)) == 1
        assert len(said) == 3
        assert not ended or said == [attempt] * 3

    async def replace(attempt: int) -> None:
        await memory.conversations.replace("chat", [attempt] * 3)

    assert await cancelled_at_each_await(replace, verify) > 2


async def test_session(memory: AsyncMemory) -> None:
    async def run(attempt: int) -> None:
        session = await memory.session(f"s{attempt}")
        session.record_access(["kept"])
        await memory.outcome(session, True)
        await memory.end_session(session)

    def verify(attempt: int, ended: bool) -> None:
        known = {record.id: record for record in memory.memory.sessions()}
        assert not ended or known[f"s{attempt}"].ended_at is not None

    assert await cancelled_at_each_await(run, verify) > 4
    with pytest.raises(NodeNotFoundError):
        await memory.promote("unknown", "archive", reason="no such node")
