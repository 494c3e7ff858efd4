"""RLMSaver where others take its thread away, a loop ends under it or a call is cancelled, and with huge states."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint

import saver_races
from cancelling import cancelled_at_each_await
from langchain_rlm import RLMSaver
from processes import environment
from rlm_memory import Memory

CONFIG: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
RACERS = ["put", "put", "prune", "delete", "copy", "read"]
PROCESSES = ["put", "put", "take away"]


def checkpoint(id: str, **values: Any) -> Checkpoint:
    return {**empty_checkpoint(), "id": id, "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}


@pytest.fixture
def saver(store_path: Path) -> Iterator[RLMSaver]:
    with RLMSaver(store_path) as opened:
        yield opened
        assert list(opened.memory.check()) == []


def values_of(saver: RLMSaver, config: Any = CONFIG) -> Any:
    found = saver.get_tuple(config)
    return None if found is None else found.checkpoint["channel_values"]


# -- one thread of checkpoints, many who change it ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["file", "memory"])
def test_threads_that_put_prune_delete_and_copy_one_thread_tear_nothing(place: str, store_path: Path) -> None:
    with RLMSaver(store_path if place == "file" else None) as saver:
        start = threading.Barrier(len(RACERS))

        def race(role: str, name: str) -> None:
            start.wait(20)
            saver_races.ROLES[role](saver, name)

        with ThreadPoolExecutor(len(RACERS)) as pool:
            for ended in [pool.submit(race, role, str(number)) for number, role in enumerate(RACERS)]:
                ended.result()
        saver_races.put(saver, "last")
        saver_races.expect_whole(saver, "raced")
        assert values_of(saver, saver_races.THREAD)["name"] == f"last {saver_races.ROUNDS - 1}"
        assert list(saver.memory.check()) == []


def test_processes_that_put_prune_delete_and_copy_one_thread_tear_nothing(saver: RLMSaver, store_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, saver_races.__file__, str(store_path), role, str(number)],
            env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number, role in enumerate(PROCESSES)
    ]  # fmt: skip
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    for racer in racers:
        _, complaint = racer.communicate(timeout=100)
        assert racer.returncode == 0, complaint
    for thread_id in saver.memory.threads("langgraph").ids():
        saver_races.expect_whole(saver, thread_id)
    saver_races.put(saver, "last")
    assert saver_races.expect_whole(saver, "raced") >= saver_races.ROUNDS


# -- loops ----------------------------------------------------------------------------------------------------------


def test_put_goes_on_when_its_loop_is_closed_and_another_loop_uses_the_saver(saver: RLMSaver, store_path: Path) -> None:
    threads = ThreadPoolExecutor(2)
    with Memory.open(store_path, embedder=None) as other:
        with other._engine.transaction():  # so that the puts are under way when the loop ends
            loop = asyncio.new_event_loop()
            loop.set_default_executor(threads)

            async def begin() -> None:
                puts = [asyncio.create_task(saver.aput(CONFIG, checkpoint(id, a=id * 5000), {}, {})) for id in "ab"]
                await asyncio.sleep(0)
                for put in puts:
                    put.cancel()
                await asyncio.gather(*puts, return_exceptions=True)

            loop.run_until_complete(begin())
            loop.close()
        asyncio.run(saver.aput(CONFIG, checkpoint("c", a="c" * 5000), {}, {}))
    threads.shutdown(wait=True)
    found = asyncio.run(collected(saver))
    assert sorted(found) == ["a", "b", "c"]
    assert all(values == {"a": id * 5000} for id, values in found.items())


async def collected(saver: RLMSaver) -> dict[str, Any]:
    return {each.checkpoint["id"]: each.checkpoint["channel_values"] async for each in saver.alist(CONFIG)}


def test_loops_of_several_threads_put_into_one_thread_at_the_same_time(saver: RLMSaver) -> None:
    async def run(number: int) -> None:
        await asyncio.gather(
            *(saver.aput(CONFIG, checkpoint(f"{number} {i}", a=f"{number} {i} " * 1000), {}, {}) for i in range(10))
        )
        await saver.aget_tuple(CONFIG)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(run(number)), range(4)))
    found = asyncio.run(collected(saver))
    assert found == {f"{n} {i}": {"a": f"{n} {i} " * 1000} for n in range(4) for i in range(10)}


async def test_read_that_is_cancelled_leaves_the_saver_usable(saver: RLMSaver) -> None:
    stored = saver.put(CONFIG, checkpoint("1", a="x" * 50_000), {}, {"a": 1})

    def verify(attempt: int, ended: bool) -> None:
        assert values_of(saver) == {"a": "x" * 50_000}
        saver.put_writes(stored, [("a", attempt)], f"task {attempt}")

    assert await cancelled_at_each_await(lambda _: saver.aget_tuple(CONFIG), verify) > 2


# -- huge states ----------------------------------------------------------------------------------------------------


def test_huge_states_come_back_and_a_small_change_costs_little() -> None:
    noise = random.Random(0).randbytes(1 << 20)
    single = b"".join(bytes([number]) + noise for number in range(20))
    many = {f"channel {number}": single[number << 20 : (number + 1) << 20] for number in range(20)}
    with RLMSaver() as saver:
        stored = saver.put(CONFIG, checkpoint("1", single=single, **many), {}, dict.fromkeys(["single", *many], 1))
        saver.put_writes(stored, [("single", single)], "task")
        found = saver.get_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"single": single, **many}
        assert found.pending_writes == [("task", "single", single)]
        before = saver.memory.stats().file_bytes
        changed = b"new" + single + b"new"
        saver.put(stored, {**checkpoint("2", single=changed, **many)}, {}, {"single": 2})
        assert values_of(saver) == {"single": changed, **many}
        assert saver.memory.stats().file_bytes - before < 3_000_000
