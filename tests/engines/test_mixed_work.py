"""Everything at once with one store: spawned processes with threads, and asyncio that is cancelled in the middle."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

from processes import environment
from rlm_memory import AsyncMemory
from support import WordEmbedder


def test_processes_with_threads_wait_for_each_other_and_lose_nothing() -> None:
    program = Path(__file__).parents[1] / "bench" / "mixed.py"
    done = subprocess.run(
        [sys.executable, program, "--seconds", "3"], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() >= {"add", "search", "update", "promote", "list", "delete"}


def test_eight_clients_of_a_server_wait_for_each_other_and_lose_nothing(postgres_url: str) -> None:
    program = Path(__file__).parents[1] / "bench" / "mixed.py"
    command = [sys.executable, program, "--url", postgres_url, "--processes", "2", "--seconds", "3"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() >= {"add", "search", "update", "promote", "list", "delete"}


async def test_calls_that_are_cancelled_in_the_middle_are_whole_or_not_there(store_path: Path) -> None:
    chance = random.Random(3)
    async with await AsyncMemory.open(store_path, embedder=WordEmbedder(16)) as memory:
        await memory.add("kept", ids=["kept"])
        for attempt in range(60):
            ids = [f"{attempt}-{i}" for i in range(20)]
            tasks = [
                asyncio.create_task(memory.add([f"text {id}" for id in ids], ids=ids)),
                asyncio.create_task(memory.search("text kept", k=1)),
                asyncio.create_task(memory.update("kept", metadata={"attempt": attempt})),
            ]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert [hit.id for hit in await memory.search("kept", k=1, alpha=0)] == ["kept"]
        await memory.add("after all", ids=["after"])
        nodes = await memory.list(limit=10_000)
        whole: dict[str, int] = {}
        for node in nodes:
            batch = str(node.id).partition("-")[0]
            whole[batch] = whole.get(batch, 0) + 1
        del whole["kept"], whole["after"]
        assert set(whole.values()) <= {20}
        assert not list(await memory.check())
