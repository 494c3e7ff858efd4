"""What AsyncMemory has beside the memories, threads and key-values, does the same as what Memory has."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from rlm_memory import AsyncConversations, AsyncMemory, Conversations, Memory
from rlm_memory.aio import AsyncKeyValues, AsyncThreads
from rlm_memory.errors import InvalidInputError
from rlm_memory.key_values import KeyValues
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite
from rlm_memory.threads import Threads


def checkpoint(id: str, parent: str | None = None) -> ThreadCheckpoint:
    return ThreadCheckpoint(
        thread_id="t", id=id, parent_id=parent, head=Encoded("raw", b""), metadata={"run_id": f"run of {id}"}
    )


async def ids(threads: AsyncThreads, *place: str, **options: Any) -> list[str]:
    return [each.id async for each in threads.list(*place, **options)]


async def test_awaited_threads_do_what_the_others_do(store_path: Path) -> None:
    async with await AsyncMemory.open(store_path, embedder=None) as memory:
        threads, plain = memory.threads("test"), memory.memory.threads("test")
        await memory.add("a", ids=["a"])
        for number in range(40):
            await threads.put(checkpoint(f"{number:02}", f"{number - 1:02}" if number else None))
        await threads.put_writes(
            "t", "", "39", [ThreadWrite(task_id="task", place=0, channel="c", value=Encoded("raw", b"w"))]
        )
        assert (
            await ids(threads, "t") == [each.id for each in plain.list("t")] == [f"{n:02}" for n in range(39, -1, -1)]
        )
        assert await ids(threads, where={"run_id": "run of 07"}, limit=1) == ["07"]
        assert await threads.get("t") == plain.get("t")
        assert await threads.tiers_at("t") == {"a": "task"}
        await threads.copy("t", "copy")
        await threads.delete_runs(["run of 39"])
        await threads.prune(["copy"], lambda outlines: ())
        assert (await ids(threads, "t"), await ids(threads, "copy")) == ([f"{n:02}" for n in range(38, -1, -1)], ["38"])
        await threads.delete("t")
        await threads.delete("copy")
        assert await threads.ids() == plain.ids() == []


async def test_awaited_key_values_do_what_the_others_do(store_path: Path) -> None:
    async with await AsyncMemory.open(store_path, embedder=None) as memory:
        values, plain = memory.key_values("c"), memory.memory.key_values("c")
        await asyncio.gather(*(values.put({str(number): {"n": number}}) for number in range(20)))
        assert await values.get("7") == plain.get("7") == {"n": 7}
        assert await values.get_many(["3", "none"]) == {"3": {"n": 3}}
        assert await values.delete(["3", "none"]) == ["3"]
        assert list(await values.items()) == list(plain.items())
        assert len(list(plain.items())) == 19
        with pytest.raises(InvalidInputError, match="JSON"):
            await values.put({"bad": object()})


async def test_event_loop_is_free_while_they_wait_for_the_lock(store_path: Path) -> None:
    async with await AsyncMemory.open(store_path, embedder=None) as memory:
        with Memory.open(store_path, embedder=None) as other:
            with other._engine.transaction():
                waiting = [
                    asyncio.create_task(memory.threads("test").put(checkpoint("1"))),
                    asyncio.create_task(memory.key_values("c").put({"k": 1})),
                ]
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not any(task.done() for task in waiting)
            await asyncio.gather(*waiting)


@pytest.mark.parametrize(
    ("awaited", "plain"), [(AsyncThreads, Threads), (AsyncKeyValues, KeyValues), (AsyncConversations, Conversations)]
)
def test_every_method_can_be_awaited_and_takes_the_same(awaited: type[Any], plain: type[Any]) -> None:
    def methods(of: type[Any]) -> dict[str, Any]:
        return {name: each for name, each in vars(of).items() if not name.startswith("_")}

    assert methods(awaited).keys() == methods(plain).keys()
    for name, method in methods(awaited).items():
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method), name
        taken = inspect.signature(method).parameters
        wanted = inspect.signature(methods(plain)[name]).parameters
        shared = [each for each in taken if each != "options"]
        assert [each for each in wanted if each in shared] == shared, name
        assert "options" in taken or taken.keys() == wanted.keys(), name


def test_memory_and_its_awaited_form_offer_the_same_parts() -> None:
    for name in ("threads", "key_values"):
        assert list(inspect.signature(getattr(AsyncMemory, name)).parameters) == list(
            inspect.signature(getattr(Memory, name)).parameters
        )
