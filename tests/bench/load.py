"""Measure a large store beside one of 10,000 nodes: search, promote, explain, sweep, log and forgetting, as ratios.

Each by the clock and by the time of the processor, which says more where others share it; the ratio is of the latter.

    python tests/bench/load.py [--nodes 300000] [--accesses 10000000] [--dimensions 64]

Nodes are added through the public door. Accesses are written into the tables at once, with what the rules weigh of
them, each to a random node in one of a thousand sessions: reporting ten million of them would take hours.

A search for words looks at each text that has one of them, in a session or not. So words are looked for that as many
texts have in either store ("a rare word"), and words of which the large store has more ("a word"). The first sweep of a
store weighs all that it has in session; those after it, what has changed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import numpy as np

from rlm_memory import Memory, PromotionPolicy

Times: TypeAlias = tuple[float, float]
"""Seconds by the clock, and of the processor."""

BEFORE = 10_000
WORDS = [f"word{i}" for i in range(20_000)]
RARE = [f"rare{i}" for i in range(100)]
RARE_IN = 10
"""How many texts have one of these, however large the store is."""
SESSIONS = 1000
ENDED = 20
"""The sessions whose accesses are forgotten; the others go on."""
BATCH = 5000
INDEXES = ("accesses_by_session", "accesses_by_node", "uses_by_session")
COUNTED = "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < ?1)"


def fill(path: Path, nodes: int, accesses: int, dimensions: int) -> None:
    chance, generator = random.Random(1), np.random.default_rng(1)
    with Memory.open(path, embedder=None, sweep=False) as memory:
        for start in range(0, nodes, BATCH):
            ids = [str(i) for i in range(start, min(nodes, start + BATCH))]
            vectors = generator.standard_normal((len(ids), dimensions)).astype(np.float32)
            texts = [" ".join(chance.choices(WORDS, k=12)) + rare(int(id), nodes) for id in ids]
            some = len(ids) // 10  # in session: a sweep looks at those that enough sessions have used
            memory.add(texts[:some], ids=ids[:some], embeddings=list(vectors[:some]), tier="session")
            memory.add(texts[some:], ids=ids[some:], embeddings=list(vectors[some:]))
    now = time.time_ns() // 1_000_000
    connection = apsw.Connection(str(path))
    connection.pragma("cache_size", -400_000)
    with connection:
        connection.execute(
            f"{COUNTED} INSERT INTO sessions (session, namespace, id, started_at, last_active, ended_at, turn) "
            "SELECT i, 1, 's' || i, ?2, ?2, CASE WHEN i <= ?3 THEN ?2 END, 100 FROM counted", (SESSIONS, now, ENDED),
        )  # fmt: skip
        (first,) = connection.execute("SELECT min(node) FROM nodes").fetchone() or (0,)
        # Ten million rows in the order of no index: these are made afterwards, each in one go.
        indexes = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name IN (?, ?, ?)", INDEXES).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        connection.execute(
            f"{COUNTED} INSERT INTO accesses (session, node, turn, at, confidence, writer, judged) "
            "SELECT 1 + abs(random() % ?2), ?3 + abs(random() % ?4), i, ?5, 0.5, 'load', 1 FROM counted",
            (accesses, SESSIONS, first, nodes, now),
        )
        connection.execute(
            "INSERT INTO uses SELECT node, session, count(*), min(confidence), max(at) FROM accesses "
            "GROUP BY node, session"
        )
        for _, sql in indexes:
            connection.execute(sql)
    connection.close()


def rare(i: int, nodes: int) -> str:
    """Return the rare word of a text, for few of them."""
    every = nodes // (len(RARE) * RARE_IN)
    return f" {RARE[i // every % len(RARE)]}" if i % every == 0 else ""


def measured(path: Path, dimensions: int) -> dict[str, Times]:
    """Return the median times of each call."""
    chance, generator = random.Random(2), np.random.default_rng(2)
    policy = PromotionPolicy(session_idle_hours=math.inf)
    with Memory.open(path, embedder=None, sweep=False, policy=policy) as memory:
        nodes = memory.count()

        def vector() -> Any:
            return generator.standard_normal(dimensions).astype(np.float32)

        def some() -> str:
            return str(chance.randrange(nodes))

        memory.search("word1", embedding=vector())  # reads the index once
        found = {
            "search": median(lambda: memory.search(" ".join(chance.choices(WORDS, k=4)), embedding=vector()), 30),
            "search for a rare word": median(lambda: memory.search(chance.choice(RARE)), 60),
            "the same in a session": median(lambda: memory.search(chance.choice(RARE), session="now"), 60),
            "search for a word": median(lambda: memory.search(chance.choice(WORDS)), 60),
            "the same in a session, too": median(lambda: memory.search(chance.choice(WORDS), session="now"), 60),
            "promote": median(lambda: memory.promote(some(), "longterm", reason="load"), 30),
            "explain_promotion": median(lambda: memory.explain_promotion(some()), 30),
            "accesses of a node": median(lambda: memory.accesses(some()), 30),
            "log of a node": median(lambda: list(memory.promotion_log(some())), 30),
            "end of a session of 20": median(used_and_ended(memory, some), 9),
            "the first sweep": median(memory.sweep, 1),
            "sweep": median(used_and_swept(memory, some), 9),
        }
        clock, processor = median(lambda: memory.sweep(datetime.now(UTC) + timedelta(days=95)), 1)
    thousands = forgotten(path) / 1000
    found["forget 1,000 accesses"] = clock / thousands, processor / thousands
    return found


def used_and_swept(memory: Memory, some: Callable[[], str]) -> Callable[[], object]:
    """Return a sweep after some use, whose writing down is part of it."""

    def sweep() -> None:
        memory.session("now").record_access([some() for _ in range(100)])
        memory.sweep()

    return sweep


def used_and_ended(memory: Memory, some: Callable[[], str]) -> Callable[[], object]:
    """Return the end of a session after some use, whose writing down is part of it."""
    numbers = count()

    def end() -> None:
        with memory.session(f"ends {next(numbers)}") as session:
            session.record_access([some() for _ in range(20)])

    return end


def forgotten(path: Path) -> int:
    connection = apsw.Connection(str(path))
    (accesses,) = connection.execute("SELECT sum(accesses) FROM forgotten_accesses").fetchone() or (0,)
    connection.close()
    return int(accesses)


def median(call: Callable[[], object], times: int) -> Times:
    taken = []
    for _ in range(times):
        start, begun = time.perf_counter(), time.process_time()
        call()
        taken.append((time.perf_counter() - start, time.process_time() - begun))
    clock, processor = zip(*taken, strict=True)
    return statistics.median(clock), statistics.median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--accesses", type=int, default=10_000_000)
    parser.add_argument("--dimensions", type=int, default=64)
    options = parser.parse_args()
    found: dict[int, dict[str, Times]] = {}
    for nodes, accesses in ((BEFORE, options.accesses * BEFORE // options.nodes), (options.nodes, options.accesses)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "load.db"
            fill(path, nodes, accesses, options.dimensions)
            found[nodes] = measured(path, options.dimensions)
            print(f"{nodes:,} nodes measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            megabytes = path.stat().st_size / 1e6
    small, large = found[BEFORE], found[options.nodes]
    report = {
        name: {"10,000": milliseconds(small[name]), "large": milliseconds(large[name]),
               "ratio": round(large[name][1] / small[name][1], 2)}
        for name in small
    }  # fmt: skip
    print(json.dumps({"milliseconds": report, "file MB": round(megabytes)}, indent=1))


def milliseconds(times: Times) -> dict[str, float]:
    """Return the times as they are reported."""
    return {"clock": round(times[0] * 1000, 2), "processor": round(times[1] * 1000, 2)}


if __name__ == "__main__":
    main()
