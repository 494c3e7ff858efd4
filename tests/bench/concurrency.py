"""Readers beside readers, beside an open transaction, and beside another process that fills the store.

    python tests/bench/concurrency.py [--count 10000] [--kind clustered] [--rounds 5] [--seconds 2] [--json OUT]

threads      queries a second of 8 threads over those of one; the goal of 1.7 is for two cores with nothing else to do
transaction  p95 of a query while another connection holds a transaction that has written, over p95 without; goal 1.5
filling      p95 of a query while another process adds documents, 500 at once, over p95 without; goal 3

Each is measured in turns with what it is compared with; printed are medians of the rounds, and the load average. The
exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Final, get_args

import apsw
import numpy as np
import synthetic
from peers import StoreProcess
from stores import Known, Rlm
from synthetic import Data

GOALS: Final = {"threads": 1.7, "transaction": 1.5, "filling": 3.0}
THREADS: Final = 8


def rate(search: Callable[[str], object], questions: list[str], threads: int, seconds: float) -> float:
    """Return the queries a second that so many threads ask, each beginning with another question."""
    asked = [0] * threads
    end = time.perf_counter() + seconds

    def ask(thread: int) -> None:
        for question in cycle(questions[thread * 7 :] + questions[: thread * 7]):
            search(question)
            asked[thread] += 1
            if time.perf_counter() > end:
                return

    running = [threading.Thread(target=ask, args=(thread,)) for thread in range(threads)]
    start = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(asked) / (time.perf_counter() - start)


def p95(search: Callable[[str], object], questions: list[str], seconds: float) -> float:
    """Return the 95th percentile of the milliseconds of queries asked one after the other for so long."""
    taken = []
    end = time.perf_counter() + seconds
    for question in cycle(questions):
        start = time.perf_counter()
        search(question)
        taken.append(time.perf_counter() - start)
        if time.perf_counter() > end:
            return 1000 * float(np.percentile(taken, 95))
    raise AssertionError("there are questions")


@contextmanager
def transaction(path: Path) -> Iterator[None]:
    """Hold a transaction open that has written to the file, and take it back at the end."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE written_by_a_transaction (x)")
        connection.execute("INSERT INTO written_by_a_transaction VALUES (zeroblob(1000000))")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


@contextmanager
def filling(process: StoreProcess, starts: Iterator[int], data: Data) -> Iterator[None]:
    """Let the process add documents until the block ends."""
    done = threading.Event()

    def fill() -> None:
        while not done.is_set():
            start = next(starts) % data.count
            process.tell("extend", start=start, stop=min(start + 500, data.count))

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def measure(data: Data, folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return for each part and query the median, of the rounds, of both sides and of their ratio."""
    with StoreProcess("rlm", folder, data) as process:
        process.tell("fill", count=data.count // 2)
    asked, vectors = data.questions()
    questions = [question.text for question in asked]
    known = Known()
    known.replace(questions, vectors)
    store = Rlm(folder, known)
    store.load()
    store.open()
    found: dict[str, dict[str, float]] = {}
    starts = count(data.count // 2, 500)
    with StoreProcess("rlm", folder, data) as process:
        process.tell("reopen")
        for query, search in (("dense", store.dense), ("hybrid", store.hybrid)):
            for question in questions:
                search(question)
            pairs: dict[str, list[tuple[float, float]]] = {part: [] for part in GOALS}
            for _ in range(rounds):
                alone = rate(search, questions, 1, seconds)
                pairs["threads"].append((alone, rate(search, questions, THREADS, seconds)))
                idle = p95(search, questions, seconds)
                with transaction(folder / "memory.db"):
                    pairs["transaction"].append((idle, p95(search, questions, seconds)))
                idle = p95(search, questions, seconds)
                with filling(process, starts, data):
                    pairs["filling"].append((idle, p95(search, questions, seconds)))
            for part, measured in pairs.items():
                found[f"{part}, {query}"] = {
                    "without": statistics.median(without for without, _ in measured),
                    "with": statistics.median(beside for _, beside in measured),
                    "ratio": statistics.median(beside / without for without, beside in measured),
                }
        process.tell("save_and_close")
    store.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="documents; it is half full at the start")
    parser.add_argument("--kind", choices=get_args(synthetic.Kind), default="clustered", help="of vectors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each side of each round")
    parser.add_argument("--work", type=Path, help="where to keep what is made; else a temporary folder")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        data = synthetic.made((options.work or Path(folder)) / "data", options.count, options.kind)
        (store := Path(folder) / "store").mkdir()
        before = os.getloadavg()[0]
        figures = measure(data, store, options.rounds, options.seconds)
    print(f"load average {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    print(f"{'':22}{'without':>10}{'with':>10}{'ratio':>8}")
    missed = False
    for label, row in figures.items():
        part = label.split(",")[0]
        met = row["ratio"] >= GOALS[part] if part == "threads" else row["ratio"] <= GOALS[part]
        missed |= not met
        unit = "queries/s" if part == "threads" else "ms p95"
        print(
            f"{label:22}{row['without']:>10.2f}{row['with']:>10.2f}{row['ratio']:>8.2f}  {unit}, goal {GOALS[part]}"
            f" {'met' if met else 'MISSED'}"
        )
    if options.json:
        options.json.write_text(json.dumps({"load": before, "figures": figures}, indent=2), "utf-8")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
