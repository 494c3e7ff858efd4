"""What a session reports of use and outcome without waiting for anybody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError


def outcomes(path: Path) -> list[Any]:
    """Return (node, run, success) as they are in the file of a store that is closed."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute(
        "SELECT n.id, o.run_id, o.success FROM outcomes o JOIN nodes n ON n.node = o.node ORDER BY o.outcome"
    ).fetchall()
    connection.close()
    return [(id, run_id, bool(success)) for id, run_id, success in rows]


def test_reader_of_a_read_only_store_leaves_no_trace(store_path: Path) -> None:
    """B143"""
    with Memory.open(store_path, embedder=None) as memory:
        [id] = memory.add("Oslo is in Norway.")
    before = sorted(os.listdir(store_path.parent))
    with Memory.open(store_path, embedder=None, read_only=True) as memory:
        assert memory.read_only
        session = memory.session("s")
        session.record_access(id)
        session.record(memory.get(id))
        memory.search("Oslo", session=session)
        assert memory.accesses(id) == []
    left = [name for name in os.listdir(store_path.parent) if not name.endswith(("-wal", "-shm"))]
    assert left == [name for name in before if not name.endswith(("-wal", "-shm"))]


def test_unknown_ids_are_passed_over(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        [id] = memory.add("Oslo is in Norway.")
        memory.session("s").record_access([id, "elsewhere"], run_id="run")
        assert [(access.node_id, access.run_id) for access in memory.accesses(id)] == [(id, "run")]
        assert memory.accesses("elsewhere") == []


def test_reported_outcome_is_attached_to_the_accesses_of_its_run_alone(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(["a", "b", "c"], ids=["a", "b", "c"])
        session = memory.session("s")
        session.record_access(["a", "b"], run_id="first")
        session.record_access(["c"], run_id="second")
        session.record_outcome(True, run_id="first")
        session.record_outcome(False, run_id="unknown")
        memory.session("other").record_outcome(False, run_id="first")
    assert outcomes(store_path) == [("a", "first", True), ("b", "first", True)]


def test_later_outcome_of_a_run_corrects_a_reported_one(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(["a", "b"], ids=["a", "b"])
        session = memory.session("s")
        session.record_access("a", run_id="first")
        session.record_outcome(True, run_id="first")
        session.record_outcome(False, run_id="first")
        session.record_access("b", run_id="second")
        session.record_outcome(True, run_id="second")
        assert session.outcome(False, run_id="second") == 1
    assert outcomes(store_path) == [("a", "first", False), ("b", "second", False)]


def test_reports_wait_for_no_writer_and_are_not_lost(store_path: Path) -> None:
    """B076"""
    with Memory.open(store_path, embedder=None) as memory:
        memory.add("a", ids=["a"])
        session = memory.session("s")
        writer = apsw.Connection(str(store_path))
        writer.execute("BEGIN IMMEDIATE")
        session.record_access("a", run_id="first")  # would wait ten seconds, and fail
        session.record_outcome(True, run_id="first")
        writer.execute("ROLLBACK")
        writer.close()
        decision = memory.explain_promotion("a")
        assert decision.to_tier == "session"
    assert outcomes(store_path) == [("a", "first", True)]


def test_reports_survive_a_kill(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.add("a", ids=["a"])
    program = (
        "import os, signal\n"
        "from rlm_memory import Memory\n"
        f"session = Memory.open({str(store_path)!r}, embedder=None).session('s')\n"
        "session.record_access('a', run_id='first')\n"
        "session.record_outcome(False, run_id='first')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    with Memory.open(store_path, embedder=None) as memory:
        assert [access.run_id for access in memory.accesses("a")] == ["first"]
    assert outcomes(store_path) == [("a", "first", False)]


def test_outcome_that_says_nothing_is_refused(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        session = memory.session("s")
        for success, run_id in ((None, "run"), (1, "run"), (True, ""), (True, None), (True, 5)):
            with pytest.raises(InvalidInputError):
                session.record_outcome(success, run_id=run_id)  # type: ignore[arg-type]  # that is the point
    with Memory.open(store_path, embedder=None, read_only=True) as memory:
        memory.session("s").record_outcome(True, run_id="run")  # keeps nothing, as with accesses
