"""The promotion log in a file: the database keeps its entries, and `check` finds what was done to it all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rlm_memory import Memory

ENTRIES = 5
VALUES = "namespace, node_id, from_tier, to_tier, rule, moved, actor, reason, conditions, session_id, at"
COPY = f"SELECT 3, {VALUES}, previous_hash, hash FROM promotion_log WHERE sequence = 2"


@pytest.fixture
def logged(store_path: Path) -> Path:
    """A store that is closed, with five entries in its log."""
    with Memory.open(store_path, embedder=None) as memory:
        memory.add("Oslo is in Norway.", ids=["oslo"])
        for tier in ("session", "longterm", "archive", "longterm", "session"):
            memory.promote("oslo", tier, reason="a test wants it")
        assert len(list(memory.promotion_log())) == ENTRIES
    return store_path


@pytest.fixture
def raw(logged: Path) -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(str(logged))) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE promotion_log SET reason = 'forged' WHERE sequence = 3",
        "UPDATE promotion_log SET sequence = 77 WHERE sequence = 5",
        "UPDATE OR REPLACE promotion_log SET sequence = 1 WHERE sequence = 3",
        "UPDATE OR IGNORE promotion_log SET moved = 0",
        "DELETE FROM promotion_log WHERE sequence = 5",
        "DELETE FROM promotion_log",
        f"REPLACE INTO promotion_log {COPY}",
        f"INSERT OR REPLACE INTO promotion_log {COPY}",
        f"INSERT INTO promotion_log {COPY} ON CONFLICT (sequence) DO UPDATE SET reason = 'forged'",
        "INSERT INTO promotion_log SELECT 0" + COPY.removeprefix("SELECT 3"),
    ],
)
def test_the_database_refuses_every_change_of_its_log(raw: apsw.Connection, logged: Path, statement: str) -> None:
    for recursive in ("ON", "OFF"):  # which decides if a row that is replaced is seen by the trigger for DELETE
        raw.execute(f"PRAGMA recursive_triggers = {recursive}")
        with pytest.raises(apsw.ConstraintError, match="append-only"):
            raw.execute(statement)
    with Memory.open(logged, embedder=None) as memory:
        assert [entry.decision.reason for entry in memory.promotion_log()] == ["a test wants it"] * ENTRIES
        assert memory.check()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE promotion_log SET reason = 'forged' WHERE sequence IN (2, 4)", "entry 2 "),
        ("UPDATE promotion_log SET at = at + 1 WHERE sequence = 4", "entry 4 "),
        ("UPDATE promotion_log SET moved = 0 WHERE sequence = 1", "entry 1 "),
        ("UPDATE promotion_log SET hash = previous_hash WHERE sequence = 3", "entry 3 "),
        ("UPDATE promotion_log SET conditions = 'nonsense' WHERE sequence = 3", "entry 3 "),
        ("UPDATE promotion_log SET sequence = 77 WHERE sequence = 3", "entry 4 "),
        ("DELETE FROM promotion_log WHERE sequence = 1", "entry 2 "),
        ("DELETE FROM promotion_log WHERE sequence = 3", "entry 4 "),
        ("DELETE FROM promotion_log WHERE sequence >= 4", "last entries are missing"),
        ("DELETE FROM promotion_log", "last entries are missing"),
        (f"REPLACE INTO promotion_log {COPY}", "entry 3 "),
    ],
)
def test_check_names_the_first_broken_link(raw: apsw.Connection, logged: Path, statement: str, found: str) -> None:
    triggers = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'promotion_log'")
    for (name,) in triggers.fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    raw.execute(statement)
    with Memory.open(logged, embedder=None, read_only=True) as memory:
        problems = [problem for problem in memory.check() if "promotion log" in problem.where]
    assert [problem.where for problem in problems] == ["promotion log of namespace 'default'"]
    assert found in problems[0].what
