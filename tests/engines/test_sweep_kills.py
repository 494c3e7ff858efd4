"""Kills of a process that sweeps: what it has decided stays, and the next sweep goes on from there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import apsw
import pytest

from processes import started
from rlm_memory import Memory, Node

NODES = 900
SWEEPING = """
from rlm_memory import lifecycle
lifecycle._WEIGHED_AT_ONCE = 20
with Memory.open(sys.argv[1], embedder=None, sweep=False) as memory:
    print("begins", flush=True)
    memory.sweep()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not killed like that there")
def test_a_sweep_that_is_killed_goes_on_and_decides_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    ids = [f"{i:05}" for i in range(NODES)]
    with Memory.open(path, embedder=None, sweep=False) as memory:
        memory.add([Node(text=id, id=id, tier="session", confidence=0.1 if int(id) % 3 else 0.9) for id in ids])
        for name in ("s1", "s2", "s3"):
            session = memory.session(name)
            session.record_access(ids)
            session.outcome(True)
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)

    def weighed() -> int:
        [(text,)] = connection.execute("SELECT weighed_by FROM namespaces").fetchall()
        return int(json.loads(text)[0][2]) if text else 0

    places = [weighed()]
    for _ in range(4):
        with started(SWEEPING, path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            while weighed() <= places[-1] and process.poll() is None:
                pass
            process.kill()
            process.communicate()
        places.append(weighed())
    connection.close()
    assert places == sorted(set(places)), "each goes on where the one before was killed"
    with Memory.open(path, embedder=None, sweep=False) as memory:
        before = len([entry for entry in memory.promotion_log() if entry.decision.actor == "auto"])
        assert 0 < before < NODES / 3, "the kills come too late to tear anything"
        assert len(memory.sweep()) == NODES / 3 - before
        moved = [entry.decision.node_id for entry in memory.promotion_log() if entry.decision.actor == "auto"]
        assert moved == ids[::3]
        assert memory.sweep() == []
        assert memory.check()
