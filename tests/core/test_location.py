"""Where a store is: it tells, so that what holds it can be stored as a reference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlm_memory import Memory
from rlm_memory.errors import StoreError


def test_location_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Memory.open("memory.db", embedder=None) as memory:
        assert memory.location == str(tmp_path / "memory.db")


def test_location_of_a_store_in_memory() -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        assert memory.location == ":memory:"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has another data folder")
@pytest.mark.parametrize("read_only", [False, True])
def test_without_a_data_folder_the_error_says_how_to_name_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.delenv("RLM_MEMORY_DB", raising=False)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="RLM_MEMORY_DB"):
        Memory.open(embedder=None, read_only=read_only)
