"""A store tells where it is, so that what holds it can be stored as a reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlm_memory import Memory


def test_location_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory.open("memory.db", embedder=None) as memory:
        assert memory.location == str(tmp_path / "memory.db")


def test_location_of_a_store_in_memory() -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        assert memory.location == ":memory:"
