"""Put checkpoints from many threads of several processes into one file, kill some of them, and look for every one.

    python tests/crash/saver.py --processes 3 --threads 8 --puts 200 --kills 20

Each thread of a process has a thread of checkpoints of its own and puts into a common one as well, adds memories and
key-values to the same file, and says so on its standard output after the call has returned. Meanwhile this process
reads all of it. Then as many processes as asked for are killed, each while it writes. Exits with a traceback when what
was acknowledged is lost, or anything is torn.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langchain_rlm.checkpoints import RLMSaver
from rlm_memory import Memory

COMMON = "common"
EVERY = 10
"""A memory and a key-value with every so many checkpoints."""


def content(name: str) -> str:
    """Return what a checkpoint holds: told by its name, and long enough to be stored in pieces."""
    return random.Random(name).randbytes(3000).hex()


def write(path: Path, process: str, threads: int, puts: int) -> None:
    """Be one of the writing processes; print a line for each acknowledged checkpoint."""
    lock = threading.Lock()
    with Memory.open(path, embedder=None) as memory:
        saver = RLMSaver(memory=memory)

        def put(thread_id: str, name: str, config: Any) -> Any:
            checkpoint = {
                **empty_checkpoint(),
                "id": str(uuid6()),
                "channel_values": {"name": name, "content": content(name)},
                "channel_versions": {"name": name, "content": name},
            }
            stored = saver.put(config, checkpoint, {"step": 0}, checkpoint["channel_versions"])
            saver.put_writes(stored, [("content", content(name))], "task", "path")
            with lock:
                print(thread_id, stored["configurable"]["checkpoint_id"], name, flush=True)
            return stored

        def run(number: int) -> None:
            own: Any = {"configurable": {"thread_id": f"{process}-{number}", "checkpoint_ns": ""}}
            for i in range(puts):
                name = f"{process}/{number}/{i}"
                own = put(f"{process}-{number}", name, own)
                if i % EVERY == 0:
                    put(COMMON, name, {"configurable": {"thread_id": COMMON, "checkpoint_ns": ""}})
                    memory.add(f"memory {name}", ids=[name])
                    memory.key_values("names").put({name: content(name)})

        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()


def start(path: Path, process: str, threads: int, puts: int) -> subprocess.Popen[str]:
    arguments = ["--worker", path, process, threads, puts]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, __file__, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environment
    )


def expect_whole(found: Any) -> str:
    """Return the name of a checkpoint; fail if any part of it is not that of its name."""
    name: str = found.checkpoint["channel_values"]["name"]
    assert found.checkpoint["channel_values"]["content"] == content(name), f"{name} is torn"
    assert found.checkpoint["channel_versions"]["name"] == name
    assert found.pending_writes in ([], [("task", "content", content(name))]), f"the writes of {name} are torn"
    return name


def expect_acknowledged(path: Path, lines: list[str]) -> int:
    """Fail if what was acknowledged is not there, or the store is not sound; return how many checkpoints there are."""
    acknowledged: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        thread_id, id, name = line.split()
        acknowledged.setdefault(thread_id, []).append((id, name))
    total = 0
    with RLMSaver(path) as saver:
        for thread_id, expected in acknowledged.items():
            found = {
                each.config["configurable"]["checkpoint_id"]: each
                for each in saver.list({"configurable": {"thread_id": thread_id}})
            }
            total += len(found)
            for id, name in expected:
                assert id in found, f"{name} was acknowledged and is lost"
                assert expect_whole(found[id]) == name
                assert found[id].pending_writes, f"the writes of {name} were acknowledged and are lost"
            for each in found.values():
                expect_whole(each)
        problems = list(saver.memory.check())
        assert not problems, problems
    return total


def race(path: Path, processes: int, threads: int, puts: int) -> int:
    """Let the processes write at the same time, reading meanwhile; return how many checkpoints there are."""
    workers = [start(path, f"p{number}", threads, puts) for number in range(processes)]
    lines: list[str] = []
    readers = [threading.Thread(target=lambda w=worker: lines.extend(w.stdout)) for worker in workers]
    for reader in readers:
        reader.start()
    with RLMSaver(path) as saver:
        while any(worker.poll() is None for worker in workers):
            latest = saver.get_tuple({"configurable": {"thread_id": COMMON}})
            if latest is not None:
                expect_whole(latest)
            for each in saver.list({"configurable": {"thread_id": "p0-0"}}, limit=3):
                expect_whole(each)
    for reader in readers:
        reader.join()
    assert [worker.returncode for worker in workers] == [0] * processes
    total = expect_acknowledged(path, lines)
    assert total == len(lines)
    common = puts // EVERY + (puts % EVERY > 0)
    assert Counter(line.split()[0] for line in lines)[COMMON] == processes * threads * common
    with Memory.open(path, embedder=None) as memory:
        assert memory.count() == processes * threads * common
        assert len(list(memory.key_values("names").items())) == memory.count()
    return total


def kill(path: Path, kills: int, seed: int) -> int:
    """Kill one writing process after another at a random moment; return how many checkpoints were acknowledged."""
    chance = random.Random(seed)
    lines: list[str] = []
    for number in range(kills):
        worker = start(path, f"k{number}", 2, 1_000_000)
        assert worker.stdout is not None
        lines += [worker.stdout.readline() for _ in range(chance.randint(1, 30))]
        end = time.perf_counter() + chance.random() / 200  # anywhere within a put
        while time.perf_counter() < end:
            pass
        worker.kill()
        lines += [line for line in worker.stdout if line.endswith("\n")]
        worker.wait()
        worker.stdout.close()
    expect_acknowledged(path, lines)
    return len(lines)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        path, process, threads, puts = sys.argv[2:]
        write(Path(path), process, int(threads), int(puts))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--puts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        total = race(Path(folder) / "race.db", options.processes, options.threads, options.puts)
        print(f"{total} checkpoints put at the same time in {time.perf_counter() - began:.0f} s: none lost, none torn")
        acknowledged = kill(Path(folder) / "kill.db", options.kills, options.seed)
        print(f"{options.kills} kills: {acknowledged} checkpoints acknowledged with their writes, none lost, none torn")


if __name__ == "__main__":
    main()
