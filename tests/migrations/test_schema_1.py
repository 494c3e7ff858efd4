"""Stores of the first schema, brought to that of today.

`schema-1.db.xz` is such a file, with a vector of two dimensions for each node. In three sessions, a day each from
2026-01-01 on, `ada` was used twice and `bo` once, with success; `cy` was used in a session that has not ended.
"""

from __future__ import annotations

import lzma
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from rlm_memory import Memory
from rlm_memory.copying import copy_store
from rlm_memory.engines.sqlite.schema import migrations
from rlm_memory.errors import StoreVersionError

FIRST = Path(__file__).with_name("schema-1.db.xz")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    path.write_bytes(lzma.decompress(FIRST.read_bytes()))
    return path


def version(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


def test_a_file_of_the_first_schema_keeps_all_and_is_copied_first(path: Path) -> None:
    assert version(path) == 1
    with Memory.open(path, embedder=None, sweep=False) as memory:
        assert {node.id: (node.tier, node.access_count) for node in memory.list()} == {
            "ada": ("longterm", 6), "bo": ("task", 3), "cy": ("task", 1),
        }  # fmt: skip
        assert [hit.id for hit in memory.search("tea", k=1)] == ["ada"]
        assert [hit.id for hit in memory.search(embedding=[0.0, 1.0], k=1)] == ["bo"]
        assert len(memory.accesses("ada")) == 6
        assert memory.forgotten_accesses("ada") == []
        assert [entry.decision.to_tier for entry in memory.promotion_log("ada") if entry.decision.moved] == [
            "session", "longterm",
        ]  # fmt: skip
        assert memory.check()
    assert version(path) == migrations()[-1][0]
    backup = path.with_name("memory.db.schema-1.backup")
    assert version(backup) == 1
    connection = apsw.Connection(str(backup), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.execute("SELECT count(*) FROM accesses").fetchone() == (10,)
    connection.close()


def test_accesses_of_the_first_schema_are_forgotten_like_others(path: Path) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    with Memory.open(path, embedder=None, sweep=False, clock=lambda: now) as memory:
        explained = memory.explain_promotion("bo")
        memory.sweep()
        assert memory.accesses("ada") == memory.accesses("bo") == []
        assert [each.accesses for each in memory.forgotten_accesses("ada")] == [2, 2, 2]
        assert memory.explain_promotion("bo") == explained
        assert memory.check()


def test_the_first_sweep_weighs_what_was_proved_before(path: Path) -> None:
    connection = apsw.Connection(str(path))
    # as it stands before the end of the last session: the log is not asked, `check` would tell
    connection.execute("UPDATE nodes SET tier = 'session' WHERE id = 'bo'")
    connection.close()
    with Memory.open(path, embedder=None, sweep=False) as memory:
        assert [decision.node_id for decision in memory.sweep(datetime(2026, 1, 5, tzinfo=UTC))] == ["bo"]


def test_reading_alone_changes_no_schema(path: Path) -> None:
    with pytest.raises(StoreVersionError, match="schema version 1, this release reads"):
        Memory.open(path, embedder=None, read_only=True)
    assert version(path) == 1


def test_a_file_of_the_first_schema_is_brought_up_to_date_before_it_is_copied(path: Path, tmp_path: Path) -> None:
    [copied] = copy_store(path, tmp_path / "copied.db")
    assert copied.counts["node"] == 3
    assert copied.log_kept
    assert version(path) == migrations()[-1][0]
    assert version(path.with_name("memory.db.schema-1.backup")) == 1
