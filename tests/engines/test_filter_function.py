"""Filters that the index alone cannot answer ask a function: every connection of a store has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlm_memory import Memory

WHERES = [{"author.name": "Ada"}, {"topic": {"$like": "d%"}}, {"long": "x" * 300}]


@pytest.mark.parametrize("where", WHERES, ids=["path", "pattern", "long text"])
def test_each_connection_can_filter(where: dict, store_path: Path) -> None:
    metadata = {"author": {"name": "Ada"}, "topic": "db", "long": "x" * 300}
    for location in (":memory:", store_path):
        with Memory.open(location, embedder=None) as memory:
            memory.add(["one", "two"], ids=["a", "b"], metadatas=[metadata, None])
            assert [node.id for node in memory.list(where=where)] == ["a"]
            assert [hit.id for hit in memory.search("one two", where=where)] == ["a"]
    with Memory.open(store_path, embedder=None, read_only=True) as memory:
        assert memory.count(where=where) == 1
    with Memory.open(store_path, embedder=None) as memory:
        assert memory.delete(where=where) == 1
        assert [node.id for node in memory.list()] == ["b"]
