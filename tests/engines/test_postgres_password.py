"""The password of a server is in nothing that a store shows or writes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rlm_memory import Memory
from support import WordEmbedder

pytest.importorskip("psycopg", reason="needs the extra postgres")


def test_password_is_shown_nowhere(postgres_url: str, tmp_path: Path) -> None:
    with Memory.open(f"{postgres_url}&password=planted", embedder=WordEmbedder()) as memory:
        memory.add("a text", ids=["a"])
        memory.promote("a", "longterm", reason="tested")
        memory.export(tmp_path / "export.jsonl")
        things = [memory, memory.location, memory.stats(), memory.check(), list(memory.promotion_log())]
        assert b"planted" not in pickle.dumps(memory)
    assert "planted" not in "".join([*map(repr, things), *map(str, things)])
    assert b"planted" not in (tmp_path / "export.jsonl").read_bytes()
