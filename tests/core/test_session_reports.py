"""What a session reports of use and outcome without waiting for anybody."""

from __future__ import annotations

import os
from pathlib import Path

from rlm_memory import Memory


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
