"""Paths that mean something to whoever does not treat them as paths: the file of this name, or a typed refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hostile_texts import HOSTILE, is_text
from rlm_memory import Memory, RLMError
from rlm_memory.checkpoints import CheckpointStore, RLMCheckpoint, RLMSession

PATHS = {
    **HOSTILE,
    "half a surrogate pair": "a\udc80b",  # of a name that is no UTF-8; a file can have it
    "URI": "file:x?mode=memory&cache=shared",
    "memory": ":memory:x",
    "home": "~root",
    "journal": "memory.db-wal",
    "bell": "\a\n\r\x1b[31m",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder six levels below the test's own, which is where a path that climbs would lead."""
    place = tmp_path / "1/2/3/4/5/6"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def written(folder: Path, call: Callable[[], object]) -> set[str] | None:
    """Return the files that a call adds to the folder; None if it is refused, by a typed error and without a trace."""
    before = set(folder.iterdir())
    try:
        call()
    except (RLMError, OSError) as error:
        str(error).encode("utf-8", "backslashreplace")
        assert set(folder.iterdir()) == before
        return None
    return {each.name for each in set(folder.iterdir()) - before}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_store_is_in_the_file_of_this_name_or_refused(folder: Path, path: str) -> None:
    def open_and_add() -> None:
        with Memory.open(path, embedder=None) as memory:
            memory.add("a text", ids=["a"])
            assert memory.backup(f"{path} copy") is None

    assert written(folder, open_and_add) in (None, {path, f"{path} copy"})


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_backup_and_export_are_in_the_file_of_this_name_or_refused(folder: Path, path: str) -> None:
    with Memory.open(folder.parent / "memory.db", embedder=None) as memory:
        memory.add("a text", ids=["a"])
        for write in (memory.backup, memory.export):
            assert written(folder, lambda write=write: write(path)) in (None, {path})  # type: ignore[misc]
            for each in folder.iterdir():
                each.unlink()
        memory.add("another", ids=["b"])
        assert written(folder, lambda: memory.import_(path)) is None
        assert [node.id for node in memory.list()] == ["a", "b"]
        assert memory.check()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_checkpoint_is_in_the_file_of_this_name_or_refused(folder: Path, path: str) -> None:
    checkpoint = RLMSession("s", store=CheckpointStore(folder.parent / "checkpoints"), namespace={"a": 1}).checkpoint()
    assert written(folder, lambda: RLMCheckpoint.load(path)) is None
    if (done := written(folder, lambda: checkpoint.save(path))) is not None:
        assert done == (set() if path.startswith("..") else {path})
        assert RLMCheckpoint.load(path).repl_state == {"a": 1}


@pytest.mark.parametrize("text", [text for text in PATHS.values() if text and is_text(text)])
def test_sessions_of_any_name_are_folders_of_their_own(folder: Path, text: str) -> None:
    store = CheckpointStore(folder / "checkpoints")
    for name in (text, f"{text}x"):
        RLMSession(name, store=store, namespace={"name": name}).checkpoint()
    assert {store.latest(name).repl_state["name"] for name in (text, f"{text}x")} == {text, f"{text}x"}
    assert len(list(store.root.iterdir())) == 2
    assert {each.name for each in folder.iterdir()} == {"checkpoints"}
