"""Measure a large store beside one of 10,000 nodes: search, promote, explain, sweep and log, as ratios.

    python tests/bench/load.py [--nodes 300000] [--accesses 10000000] [--dimensions 64]

Nodes are added through the public door. Accesses are written into the tables at once, with what the rules weigh of
them, each to a random node in one of a thousand sessions: reporting ten million of them would take hours.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from rlm_memory import Memory

BEFORE = 10_000
WORDS = [f"word{i}" for i in range(20_000)]
SESSIONS = 1000
BATCH = 5000
COUNTED = "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < ?1)"


def fill(path: Path, nodes: int, accesses: int, dimensions: int) -> None:
    chance, generator = random.Random(1), np.random.default_rng(1)
    with Memory.open(path, embedder=None, sweep=False) as memory:
        for start in range(0, nodes, BATCH):
            ids = [str(i) for i in range(start, min(nodes, start + BATCH))]
            vectors = generator.standard_normal((len(ids), dimensions)).astype(np.float32)
            texts = [" ".join(chance.choices(WORDS, k=12)) for _ in ids]
            some = len(ids) // 10  # in session: a sweep looks at those that enough sessions have used
            memory.add(texts[:some], ids=ids[:some], embeddings=list(vectors[:some]), tier="session")
            memory.add(texts[some:], ids=ids[some:], embeddings=list(vectors[some:]))
    connection = apsw.Connection(str(path))
    with connection:
        connection.execute(
            f"{COUNTED} INSERT INTO sessions (session, namespace, id, started_at, last_active, ended_at, turn) "
            "SELECT i, 1, 's' || i, 0, 1000, 1000, 100 FROM counted", (SESSIONS,),
        )  # fmt: skip
        (first,) = connection.execute("SELECT min(node) FROM nodes").fetchone() or (0,)
        connection.execute(
            f"{COUNTED} INSERT INTO accesses (session, node, turn, at, confidence, writer, judged) "
            "SELECT 1 + abs(random() % ?2), ?3 + abs(random() % ?4), i, 1000, 0.5, 'load', 1 FROM counted",
            (accesses, SESSIONS, first, nodes),
        )
        connection.execute(
            "INSERT INTO uses SELECT node, session, count(*), min(confidence), max(at) FROM accesses "
            "GROUP BY node, session"
        )
    connection.close()


def measured(path: Path, dimensions: int) -> dict[str, float]:
    """Return the median seconds of each call."""
    chance, generator = random.Random(2), np.random.default_rng(2)
    with Memory.open(path, embedder=None, sweep=False) as memory:
        nodes = memory.count()

        def vector() -> Any:
            return generator.standard_normal(dimensions).astype(np.float32)

        def some() -> str:
            return str(chance.randrange(nodes))

        memory.search("word1", embedding=vector())  # reads the index once
        return {
            "search": median(lambda: memory.search(" ".join(chance.choices(WORDS, k=4)), embedding=vector()), 30),
            "search in a session": median(lambda: memory.search(chance.choice(WORDS), session="now"), 30),
            "promote": median(lambda: memory.promote(some(), "longterm", reason="load"), 30),
            "explain_promotion": median(lambda: memory.explain_promotion(some()), 30),
            "accesses of a node": median(lambda: memory.accesses(some()), 30),
            "log of a node": median(lambda: list(memory.promotion_log(some())), 30),
            "sweep": median(memory.sweep, 3),
        }


def median(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--accesses", type=int, default=10_000_000)
    parser.add_argument("--dimensions", type=int, default=64)
    options = parser.parse_args()
    found = {}
    for nodes, accesses in ((BEFORE, options.accesses * BEFORE // options.nodes), (options.nodes, options.accesses)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "load.db"
            fill(path, nodes, accesses, options.dimensions)
            found[nodes] = measured(path, options.dimensions)
            found[nodes]["file MB"] = path.stat().st_size / 1e6
    small, large = found[BEFORE], found[options.nodes]
    report = {
        name: {"10,000": round(small[name] * 1000, 2), "large": round(large[name] * 1000, 2),
               "ratio": round(large[name] / small[name], 2)}
        for name in small if name != "file MB"
    }  # fmt: skip
    print(json.dumps({"milliseconds": report, "file MB": round(large["file MB"])}, indent=1))


if __name__ == "__main__":
    main()
