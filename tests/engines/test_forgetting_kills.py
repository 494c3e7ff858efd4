"""Kills of a process that forgets accesses: what is summed and what is left are always all."""

from __future__ import annotations

import sys
from pathlib import Path

import apsw
import pytest

from processes import started
from rlm_memory import Memory

ACCESSES = 60_000
FORGETFUL = """
from datetime import UTC, datetime
with Memory.open(sys.argv[1], embedder=None, sweep=False) as memory:
    print("begins", flush=True)
    memory.sweep(datetime(2026, 6, 1, tzinfo=UTC))
"""
BEGUN = 1_767_225_600_000
"""2026-01-01 in milliseconds."""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not killed like that there")
def test_a_kill_while_accesses_are_forgotten_loses_none_and_counts_none_twice(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=None, sweep=False) as memory:
        memory.add(["a", "b", "c"], ids=["a", "b", "c"])
        for name in ("s1", "s2"):
            with memory.session(name) as session:
                session.record_access(["a", "b", "c"])
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO accesses (session, node, turn, at, confidence, writer) "
        "SELECT session, node, 10 + i, ?, 0.5, 'w' FROM n JOIN nodes ON node % 3 = i % 3 "
        "JOIN sessions ON session % 2 = i / 3 % 2",
        (ACCESSES - 6, BEGUN),
    )
    connection.execute("UPDATE sessions SET last_active = ?, ended_at = ?", (BEGUN, BEGUN))

    def left() -> int:
        return int(connection.execute("SELECT count(*) FROM accesses").fetchone()[0])

    def summed() -> int:
        return int(connection.execute("SELECT coalesce(sum(accesses), 0) FROM forgotten_accesses").fetchone()[0])

    assert left() == ACCESSES
    in_the_middle = 0
    for _ in range(5):
        before = left()
        with started(FORGETFUL, path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            while left() == before and process.poll() is None:
                pass
            process.kill()
            process.communicate()
        in_the_middle += 0 < left() < before
        assert left() + summed() == ACCESSES
    assert in_the_middle > 1, "the kills come too late to tear anything"
    with Memory.open(path, embedder=None, sweep=False) as memory:
        assert memory.check()
        memory.sweep()
        assert (left(), summed()) == (0, ACCESSES)
        assert memory.check()
    connection.close()
