"""What `check` tells of damaged threads in a file, and how they are read and copied then."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from rlm_memory import Memory
from rlm_memory.errors import StoreCorruptError
from rlm_memory.records import Encoded, ThreadCheckpoint

BIG = random.Random(1).randbytes(400_000)


@pytest.fixture
def damaged_by(store_path: Path) -> Any:
    """Make a file with a large value in a thread, change it by SQL, and return what `check` says."""
    with Memory.open(store_path, embedder=None) as memory:
        memory.key_values("c").put({"k": 1})
        memory.threads("test").put(
            ThreadCheckpoint(thread_id="t", id="1", head=Encoded("raw", b""), values={"big": Encoded("raw", BIG)})
        )
        assert memory.check()

    def damage(sql: str) -> list[str]:
        connection = apsw.Connection(str(store_path))
        connection.execute(sql)
        connection.close()
        with Memory.open(store_path, embedder=None) as memory:
            return [problem.what for problem in memory.check()]

    return damage


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "UPDATE thread_chunks SET content = x'00' WHERE chunk = (SELECT min(chunk) FROM thread_chunks)",
            "not the one",
        ),
        ("DELETE FROM thread_chunks WHERE chunk = (SELECT min(chunk) FROM thread_chunks)", "not there"),
        ("DELETE FROM thread_chunks WHERE chunk = (SELECT max(chunk) FROM thread_chunks)", "not there"),
        ("UPDATE thread_checkpoints SET channels = '[]', contents = x''", "belong to no value"),
        ("UPDATE thread_checkpoints SET channels = '['", "not JSON"),
        ("UPDATE thread_checkpoints SET channels = '[1]'", "damaged"),
        ("UPDATE thread_checkpoints SET contents = x'00'", "not as long"),
        ("UPDATE thread_chunks SET chunk = chunk + (1 << 40)", "which is not there"),
        ("UPDATE thread_checkpoints SET metadata = '{'", "not JSON"),
        ("UPDATE key_values SET value = 'x'", "not JSON"),
    ],
)
def test_check_tells_what_is_damaged(damaged_by: Any, sql: str, expected: str) -> None:
    if "metadata" in sql:
        sql = f"DROP INDEX thread_checkpoints_by_run; {sql}"
    assert any(expected in what for what in damaged_by(sql))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM thread_chunks WHERE chunk = (SELECT min(chunk) FROM thread_chunks)", "lacks a part"),
        ("UPDATE thread_chunks SET content = zeroblob(length(content))", "not what was stored"),
        ("UPDATE thread_checkpoints SET channels = '[[1,2]]'", "damaged"),
        ("UPDATE thread_checkpoints SET contents = x''", "not as long"),
        ("UPDATE thread_checkpoints SET channels = '{'", "damaged"),
    ],
)
def test_damaged_value_is_never_returned(damaged_by: Any, store_path: Path, sql: str, expected: str) -> None:
    damaged_by(sql)
    with Memory.open(store_path, embedder=None) as memory, pytest.raises(StoreCorruptError, match=expected):
        memory.threads("test").get("t")
