"""Many checkpoints of many sessions: their order, what is written twice, what damage costs, what pruning keeps."""

from __future__ import annotations

import json
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.processes import command, environment
from rlm_memory.checkpoints import (
    CheckpointBusyError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointStore,
    CheckpointWriteError,
    RLMCheckpoint,
)
from rlm_memory.errors import InvalidInputError


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


def checkpoint(turn: int, session_id: str = "s", **state: Any) -> RLMCheckpoint:
    return RLMCheckpoint(session_id=session_id, turn=turn, repl_state=state)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_last_that_was_put_is_the_latest_whatever_its_clock_and_id_say(store: CheckpointStore) -> None:
    """Answers B125, B136."""
    for turn in range(100):
        made = datetime(2026, 1, 1, 12, 0, 0, 999_999 - turn, tzinfo=UTC)
        store.put(RLMCheckpoint(session_id="s", turn=turn, created_at=made, checkpoint_id=f"{999 - turn}"))
    assert store.latest("s").turn == 99
    assert [info.turn for info in store.list("s")] == list(range(100))


def test_sessions_do_not_see_each_other_and_ids_are_no_paths(store: CheckpointStore) -> None:
    ids = ["s", "s_2", "../../evil", "/etc/passwd", "a/b", "a_b", "..", "", "é" * 300, "s\x00"]
    for turn, session_id in enumerate(ids):
        if session_id:
            store.put(checkpoint(turn, session_id))
    assert store.sessions() == sorted(filter(None, ids))
    for turn, session_id in enumerate(ids):
        if session_id:
            assert store.latest(session_id).turn == turn
    assert {path.parent for path in store.root.iterdir()} == {store.root}
    assert [path.name for path in store.root.parent.iterdir()] == ["store"]


def test_files_and_folders_are_for_their_owner_alone(store: CheckpointStore) -> None:
    store.put(checkpoint(1, big=np.zeros(100_000)))
    for path in store.root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_did_not_change_is_not_written_again(store: CheckpointStore) -> None:
    state: dict[str, Any] = {
        "array": np.random.default_rng(0).random(1_000_000),
        "records": [{"id": number, "tags": ("a", number)} for number in range(5_000)],
        "text": "word " * 100_000,
    }
    store.put(checkpoint(1, **state, turn_counter=1))
    first = bytes_in(store.root)
    store.put(checkpoint(2, **state, turn_counter=2))
    assert bytes_in(store.root) - first < 0.01 * first


def test_a_damaged_newest_is_kept_aside_and_the_one_before_is_used(store: CheckpointStore) -> None:
    store.put(checkpoint(1, x=1))
    path = store.put(checkpoint(2, x=2))
    path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    with pytest.raises(CheckpointDamagedError):
        store.latest("s", strict=True)
    found = store.latest("s")
    assert found.repl_state == {"x": 1}
    assert path.name in str(found.issues[0])
    assert path.with_suffix(".rlmc.corrupt").exists()
    assert store.put(checkpoint(3)).name.startswith("00000003")
    assert [finding.problem is None for finding in store.verify("s")] == [True, False, True]


def test_a_damaged_large_value_is_noticed_and_repaired_by_the_next_checkpoint(store: CheckpointStore) -> None:
    array = np.random.default_rng(0).random(100_000)
    path = store.put(checkpoint(1, array=array))
    (blob,) = (path.parent.parent / "b").iterdir()
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    assert [finding.problem is None for finding in store.verify("s")] == [False]
    with pytest.raises(CheckpointDamagedError, match="damaged"):
        RLMCheckpoint.load(path)
    store.put(checkpoint(2, array=array))
    assert all(finding.problem is None for finding in store.verify("s"))


def test_pruning_keeps_the_newest_the_pinned_and_the_forked(store: CheckpointStore) -> None:
    for turn in range(1, 8):
        store.put(checkpoint(turn, array=np.full(50_000, float(turn))))
    ids = [info.checkpoint_id for info in store.list("s")]
    store.pin(ids[0], reason="the start")
    store.fork(ids[2], "other")
    assert store.prune("s", keep=2) == [ids[1], ids[3], ids[4]]
    kept = store.list("s")
    assert [info.turn for info in kept] == [1, 3, 6, 7]
    assert [info.pinned for info in kept] == ["the start", "forked as other", None, None]
    assert all(store.get(info.checkpoint_id).repl_state["array"][0] == info.turn for info in kept)
    blobs = list((kept[0].path.parent.parent / "b").iterdir())
    assert len(blobs) == 4
    store.unpin(ids[0])
    assert store.prune("s", keep=2) == [ids[0]]


def test_a_fork_goes_its_own_way(store: CheckpointStore) -> None:
    store.put(checkpoint(1, xs=[1]))
    origin = store.latest("s")
    fork = store.fork(origin.checkpoint_id, "fork")
    assert (fork.parent_id, fork.turn, fork.session_id) == (origin.checkpoint_id, 1, "fork")
    store.put(checkpoint(2, "fork", xs=[1, 2]))
    assert store.latest("s").repl_state == {"xs": [1]}
    with pytest.raises(InvalidInputError):
        store.fork(origin.checkpoint_id, "fork")


def test_an_export_needs_nothing_beside_it_and_stays_signed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", trust="k")
    array = np.random.default_rng(0).random(100_000)
    store.put(checkpoint(1, array=array))
    (info,) = store.list()
    path = CheckpointStore(tmp_path / "store").export(info.checkpoint_id, tmp_path / "elsewhere.rlmc")
    loaded = RLMCheckpoint.load(path, trust="k")
    assert np.array_equal(loaded.repl_state["array"], array)
    assert loaded.issues == []


def test_reading_writes_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    """Answers B173."""
    for ask in (lambda: store.latest("ghost"), lambda: store.get("ghost")):
        with pytest.raises(CheckpointNotFoundError):
            ask()
    assert store.list() == store.sessions() == store.verify() == []
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_session_does_not_pass_for_this_ones(store: CheckpointStore) -> None:
    mine = store.put(checkpoint(1, "mine"))
    other = store.put(checkpoint(9, "other"))
    mine.write_bytes(other.read_bytes())
    with pytest.raises(CheckpointNotFoundError, match="other"):
        store.latest("mine")


def test_a_full_disk_leaves_what_was_there(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(checkpoint(1, x=1))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(CheckpointWriteError):
        store.put(checkpoint(2, big=np.zeros(100_000)))
    monkeypatch.undo()
    assert store.latest("s").repl_state == {"x": 1}
    assert all(finding.problem is None for finding in store.verify())


def test_two_processes_write_one_session_in_one_order(store: CheckpointStore) -> None:
    """Answers B008."""
    writers = [subprocess.Popen(command("writer_process", store.root, name, 15), env=environment()) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    infos = store.list("shared")
    assert [info.sequence for info in infos] == list(range(1, 31))
    for name in "ab":
        assert [info.turn for info in infos if info.variables["by_" + name] == "int"] == list(range(15))
    assert all(finding.problem is None for finding in store.verify())


def test_a_session_that_is_held_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, lock_timeout=0.01)
    with store.locked("s"), pytest.raises(CheckpointBusyError, match="another process"):
        store.put(checkpoint(1))


def test_temporary_files_of_a_killed_writer_are_swept(store: CheckpointStore) -> None:
    path = store.put(checkpoint(1))
    stale = [path.parent / ".tmp-dead", path.parent.parent / "b" / ".tmp-dead"]
    for each in stale:
        each.write_bytes(b"half")
    store.put(checkpoint(2))
    assert not any(each.exists() for each in stale)


def test_pins_are_readable(store: CheckpointStore) -> None:
    path = store.put(checkpoint(1))
    store.pin(store.latest("s").checkpoint_id)
    assert json.loads(path.with_suffix(".pin").read_text()) == {"reason": "pinned"}
