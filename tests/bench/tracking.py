"""What it costs a search to report what it found, and whether it ever waits for a writer.

    python tests/bench/tracking.py [--nodes 10000] [--kind clustered] [--rounds 10] [--hold 3]

with session  median milliseconds of a search with `session=` over those without, for the same questions, asked in turns
              and in either order, so that whatever else the machine does slows both; the goal is 1.15
all in        processor time of the whole process for a search, with what it reports written down, over that without;
              blocks in turns. Not part of the goal: the writing is done in the background
held          p95 of searches with `session=` while another process holds the write lock for `--hold` seconds, over p95
              while nobody does, by turns; the goal is 1.5. The longest of them tells that none waited

Vectors have 1,536 dimensions, and come with the question: no model is in the figures. In the end every access is looked
for. The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Final, TypeAlias, get_args

import numpy as np
import synthetic

from rlm_memory import Memory

GOALS: Final = {"with session": 1.15, "held": 1.5}
FOUND: Final = 4
QUESTIONS: Final = ("hybrid", "dense")
HOLDER: Final = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)
connection.execute("BEGIN IMMEDIATE")
print("holding", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""

Search: TypeAlias = Callable[[str | None], object]
"""Asks a question, reporting to this session if there is one."""


def asked(memory: Memory, data: synthetic.Data, kind: str) -> list[Search]:
    """Return the questions of a kind."""
    questions, vectors = data.questions()

    def search(text: str | None, vector: synthetic.Vectors) -> Search:
        return lambda session: memory.search(text, embedding=vector, k=FOUND, session=session)

    return [
        search(question.text if kind == "hybrid" else None, vector)
        for question, vector in zip(questions, vectors, strict=True)
    ]


class Tracking:
    """One store, and how many searches reported to it."""

    def __init__(self, memory: Memory, data: synthetic.Data) -> None:
        self.memory = memory
        self.data = data
        self.reported = 0

    def milliseconds(self, search: Search, session: str | None) -> float:
        self.reported += session is not None
        start = time.perf_counter()
        search(session)
        return 1000 * (time.perf_counter() - start)

    def in_turns(self, kind: str, rounds: int) -> tuple[float, float]:
        """Return the median milliseconds without a session, and with one."""
        searches = asked(self.memory, self.data, kind)
        taken: dict[bool, list[float]] = {False: [], True: []}
        for search in searches:
            search(None)
        for turn in range(rounds):
            for number, search in enumerate(searches):
                for tracked in (False, True) if (turn + number) % 2 else (True, False):
                    taken[tracked].append(self.milliseconds(search, f"{kind} {turn}" if tracked else None))
        return statistics.median(taken[False]), statistics.median(taken[True])

    def all_in(self, kind: str, rounds: int) -> tuple[float, float]:
        """Return the milliseconds of processor time of a search without a session, and with one."""
        searches = asked(self.memory, self.data, kind)
        taken: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(rounds):
            for tracked in (False, True) if turn % 2 else (True, False):
                start = time.process_time()
                for search in searches:
                    self.milliseconds(search, f"all {kind} {turn}" if tracked else None)
                self.memory.sessions(limit=1)  # writes down what is still queued
                taken[tracked].append(1000 * (time.process_time() - start) / len(searches))
        return statistics.median(taken[False]), statistics.median(taken[True])

    def held(self, kind: str, rounds: int, seconds: float) -> tuple[float, float, float]:
        """Return p95 with nobody writing, p95 while another process holds the lock, and the longest then."""
        searches = cycle(asked(self.memory, self.data, kind))
        idle: list[float] = []
        held: list[float] = []
        for turn in range(rounds):
            idle += self._for(seconds, searches, f"idle {kind} {turn}")
            with held_by_another(Path(self.memory.location)):
                held += self._for(seconds, searches, f"held {kind} {turn}")
        return float(np.percentile(idle, 95)), float(np.percentile(held, 95)), max(held)

    def _for(self, seconds: float, searches: Iterator[Search], session: str) -> list[float]:
        end = time.perf_counter() + seconds
        taken = []
        while time.perf_counter() < end:
            taken += [self.milliseconds(search, session) for search in islice(searches, 10)]
        return taken


@contextmanager
def held_by_another(path: Path) -> Iterator[None]:
    """Have another process hold the write lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "holding\n"
            yield
        finally:
            process.communicate("\n")
    assert process.returncode == 0


def fill(memory: Memory, data: synthetic.Data) -> None:
    for batch in data.batches(0, data.count, 1000):
        memory.add(batch.texts, ids=batch.ids, metadatas=batch.metadatas, embeddings=list(batch.vectors))


def expect_every_access(path: Path, searches: int) -> None:
    """Fail if an access was lost, or counted twice, in a store that is closed."""
    with Memory.open(path, embedder=None) as memory:
        counted = sum(node.access_count for node in memory.list(limit=memory.count()))
        assert counted == searches * FOUND, f"{searches} searches reported {FOUND} each, {counted} accesses are there"
        problems = list(memory.check())
        assert not problems, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--kind", choices=get_args(synthetic.Kind), default="clustered", help="of vectors")
    parser.add_argument("--rounds", type=int, default=10, help="of 200 questions")
    parser.add_argument("--hold", type=float, default=3, help="seconds")
    parser.add_argument("--work", type=Path, help="where to keep the documents; else a temporary folder")
    options = parser.parse_args()
    missed = False

    def show(part: str, kind: str, without: float, with_it: float, more: str = "") -> None:
        nonlocal missed
        ratio, goal = with_it / without, GOALS.get(part)
        missed |= goal is not None and ratio > goal
        told = "" if goal is None else f"goal {goal:.2f}, {'met' if ratio <= goal else 'MISSED'}"
        load = os.getloadavg()[0]
        print(f"{part:13}{kind:8}{without:9.3f} ms{with_it:9.3f} ms{ratio:7.2f}  {told:17} load {load:.1f}{more}")

    with tempfile.TemporaryDirectory() as folder:
        data = synthetic.made((options.work or Path(folder)) / "data", options.nodes, options.kind)
        path = Path(folder) / "memory.db"
        with Memory.open(path, embedder=None) as memory:
            fill(memory, data)
            tracking = Tracking(memory, data)
            print(f"{memory.count():,} nodes, {FOUND} hits a search, {os.cpu_count()} cores")
            for kind in QUESTIONS:
                show("with session", kind, *tracking.in_turns(kind, options.rounds))
            for kind in QUESTIONS:
                show("all in", kind, *tracking.all_in(kind, options.rounds))
            for kind in QUESTIONS:
                idle, held, longest = tracking.held(kind, 2, options.hold)
                show("held", kind, idle, held, f", longest {longest:.1f} ms")
        expect_every_access(path, tracking.reported)
        print(f"{tracking.reported:,} searches reported, each access is there once")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
