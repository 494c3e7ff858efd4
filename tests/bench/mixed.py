"""Let processes with several threads each do everything at once with one store, and look whether anything is lost.

    python tests/bench/mixed.py [--url postgresql://…] [--processes 4] [--threads 4] [--seconds 60]

The store is a file, or the one at `--url`, in which nothing may be yet.

Each thread adds, searches in a session, updates, promotes, lists and deletes. It fails when an error reaches a caller
("database is locked", first of all), when something that had returned is not there afterwards, or when `check` finds
anything. Prints for each kind of call how many there were, and their median and 99th percentile in milliseconds. The
processes are spawned, not forked.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import random
import tempfile
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlm_memory import Memory
from rlm_memory.ports import Vector

WORDS = [f"word{i}" for i in range(2000)]


class TextEmbedder:
    """Gives each text a direction of its own, the same in every process."""

    model = "texts"
    dimensions = 64

    def embed(self, texts: Sequence[str]) -> Vector:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vector:
        return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.dimensions).astype(np.float32)


def work(path: str, process: int, threads: int, seconds: float, answers: Any) -> None:
    """Be one of the processes; put on the queue what is kept, the times of the calls, and the errors."""
    kept: dict[str, str] = {}
    accesses: dict[str, int] = {}
    times: dict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    with Memory.open(path, embedder=TextEmbedder()) as memory:

        def run(number: int) -> None:
            try:
                one_thread(memory, f"{process}-{number}", time.monotonic() + seconds, kept, accesses, times)
            except Exception as error:  # noqa: BLE001  # whatever it is, it must not reach a caller
                errors.append(f"{type(error).__name__}: {error}")

        running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    answers.put((kept, accesses, dict(times), errors))


def one_thread(
    memory: Memory,
    name: str,
    end: float,
    kept: dict[str, str],
    accesses: dict[str, int],
    times: dict[str, list[float]],
) -> None:
    chance = random.Random(name)
    session = memory.session(name)
    own: list[str] = []
    number = used = 0

    def timed(kind: str, call: Any) -> Any:
        start = time.perf_counter()
        result = call()
        times[kind].append(time.perf_counter() - start)
        return result

    def sentence() -> str:
        return " ".join(chance.choices(WORDS, k=8))

    while time.monotonic() < end:
        kind = chance.choices(["add", "search", "update", "promote", "list", "delete"], [4, 10, 2, 1, 2, 1])[0]
        if kind == "add" or not own:
            ids = [f"{name}-{number + i}" for i in range(chance.randint(1, 5))]
            number += len(ids)
            texts = [sentence() for _ in ids]
            timed("add", partial(memory.add, texts, ids=ids))
            kept.update(zip(ids, texts, strict=True))
            own += ids
        elif kind == "search":
            used += len(timed(kind, lambda: memory.search(sentence(), session=session)))
        elif kind == "update":
            id, text = chance.choice(own), sentence()
            timed(kind, partial(memory.update, id, text=text))
            kept[id] = text
        elif kind == "promote":
            id = chance.choice(own)
            timed(kind, partial(memory.promote, id, "session", reason="it is needed"))
        elif kind == "list":
            timed(kind, lambda: memory.list(limit=20, newest_first=True))
        else:
            id = own.pop(chance.randrange(len(own)))
            timed(kind, partial(memory.delete, id))
            del kept[id]
    timed("end of a session", session.end)
    accesses[name] = used


def mixed(path: str, *, processes: int, threads: int, seconds: float) -> dict[str, Any]:
    """Run it all and return the times; fail if an error reached a caller, or anything is lost."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    Memory.open(path, embedder=TextEmbedder()).close()
    running = [spawn.Process(target=work, args=(path, p, threads, seconds, answers)) for p in range(processes)]
    for process in running:
        process.start()
    told: list[Any] = []
    while len(told) < len(running):
        try:
            told.append(answers.get(timeout=1))
        except queue.Empty:  # a process that died says nothing more
            codes = [process.exitcode for process in running]
            assert not any(codes), f"exit codes {codes}"
    for process in running:
        process.join()
    errors = [error for *_, some in told for error in some]
    assert not errors, errors
    expected: dict[str, str] = {}
    times: dict[str, list[float]] = defaultdict(list)
    used: dict[str, int] = {}
    for kept, accesses, took, _ in told:
        expected.update(kept)
        used.update(accesses)
        for kind, some in took.items():
            times[kind] += some
    with Memory.open(path, embedder=TextEmbedder()) as memory:
        found = {str(node.id): node.text for node in memory.list(limit=10_000_000, include_archived=True)}
        lost = [id for id in expected.keys() | found.keys() if expected.get(id) != found.get(id)]
        assert not lost, lost[:10]
        assert {session.id for session in memory.sessions(limit=1000)} >= {name for name, n in used.items() if n}
        problems = list(memory.check())
        assert not problems, problems
    return {
        kind: {
            "calls": len(some),
            "median ms": round(float(np.median(some)) * 1000, 2),
            "p99 ms": round(float(np.percentile(some, 99)) * 1000, 1),
            "longest ms": round(max(some) * 1000, 1),
        }
        for kind, some in sorted(times.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--url", help="of a store on a server, in place of a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = mixed(
            options.url or str(Path(folder) / "mixed.db"),
            processes=options.processes, threads=options.threads, seconds=options.seconds,
        )  # fmt: skip
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
