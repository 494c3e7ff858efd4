"""The file: no changed byte gets past, no key but the owner's opens its code, no version is guessed at."""

from __future__ import annotations

import json
import stat
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlm_memory.checkpoints import (
    CheckpointDamagedError,
    CheckpointLimitError,
    CheckpointNotFoundError,
    CheckpointSignatureError,
    CheckpointVersionError,
    CheckpointWriteError,
    Limits,
    RLMCheckpoint,
    Unrestored,
    UnrestoredValueError,
    UnsavableValueError,
    dumps,
    loads,
    register_migration,
)
from rlm_memory.checkpoints.container import pack
from rlm_memory.checkpoints.heap import Heap
from rlm_memory.checkpoints.sources import Sources
from rlm_memory.errors import CheckpointError, InvalidInputError

CELL = "def double(x):\n    return 2 * x\n"


def checkpoint_with_code() -> RLMCheckpoint:
    namespace: dict[str, Any] = {}
    exec(CELL, namespace)
    sources = Sources()
    sources.add(CELL, namespace)
    namespace["data"] = [1, 2]
    return RLMCheckpoint(session_id="s", repl_state=namespace, sources=sources)


def changed_version(data: bytes, version: str) -> bytes:
    """Return a sound file that says it has another version."""
    archive = zipfile.ZipFile(BytesIO(data))
    manifest = json.loads(archive.read("manifest.json"))
    document = json.loads(archive.read("heap.json"))
    heap = Heap([tuple(root) for root in document["roots"]], document["segments"])
    return pack({**manifest, "version": version}, heap)


def test_every_flipped_bit_and_every_truncation_is_refused() -> None:
    data = dumps({"a": [1, 2.5, "x"], "b": np.arange(3)}, trust="k")
    accepted = []
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= mask
            accepted += _accepted(bytes(changed), (place, mask))
        accepted += _accepted(data[:place], (place, None))
    assert accepted == []


def _accepted(data: bytes, what: object) -> list[object]:
    try:
        loads(data)
    except CheckpointError:
        return []
    return [what]


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = RLMCheckpoint(session_id="s").save(tmp_path / "new folder" / "a.rlmc")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == ["a.rlmc"]


def test_every_field_comes_back(tmp_path: Path) -> None:
    saved = RLMCheckpoint(
        session_id="../../etc/passwd",
        depth=2,
        repl_state={"b": (1,), "a": {2}},
        working_memory={"goal": "x"},
        pending_operations=[{"id": "1"}],
        trajectory_events=[{"t": (1, 2)}],
        cost_so_far=0.1 + 0.2,
        turn=7,
        messages=[{"role": "user", "content": "\ud83d"}],
        usage={"models": {}},
        parent_id="p",
        metadata={"k": {1: 2}},
    )
    loaded = RLMCheckpoint.load(saved.save(tmp_path / "a.rlmc"))
    assert loaded == saved
    assert list(loaded.repl_state) == ["b", "a"]
    assert loaded.size == saved.size == (tmp_path / "a.rlmc").stat().st_size


def test_the_manifest_tells_a_person_what_the_file_is(tmp_path: Path) -> None:
    """Answers B167."""
    path = RLMCheckpoint(session_id="s", repl_state={"xs": [1]}).save(tmp_path / "a.rlmc")
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["variables"] == {"xs": "list"}
    assert {"python", "numpy", "rlm-memory"} <= manifest["writer"].keys()


def test_code_comes_back_for_the_key_that_signed_it_alone() -> None:
    data = checkpoint_with_code().to_bytes(trust="right")
    assert RLMCheckpoint.from_bytes(data, trust="right").repl_state["double"](4) == 8
    with pytest.raises(CheckpointSignatureError):
        RLMCheckpoint.from_bytes(data, trust="wrong")
    unsigned = RLMCheckpoint.from_bytes(data)
    assert unsigned.repl_state["data"] == [1, 2]
    assert isinstance(unsigned.repl_state["double"], Unrestored)
    assert unsigned.repl_state["double"].unrestored_source == CELL
    assert [issue.path for issue in unsigned.issues] == ["double"]


def test_a_key_does_not_make_an_unsigned_file_trusted() -> None:
    loaded = RLMCheckpoint.from_bytes(checkpoint_with_code().to_bytes(), trust="key")
    assert isinstance(loaded.repl_state["double"], Unrestored)
    assert "not signed" in str(loaded.issues[0])


def test_signing_a_strangers_code_does_not_bring_it_to_life() -> None:
    """Loaded without trust, saved with the finder's key: the source stays a text."""
    found = RLMCheckpoint.from_bytes(checkpoint_with_code().to_bytes())
    again = RLMCheckpoint.from_bytes(found.to_bytes(trust="mine"), trust="mine")
    assert isinstance(again.repl_state["double"], Unrestored)
    assert again.repl_state["double"].unrestored_source == CELL


def test_a_placeholder_says_why_when_it_is_used() -> None:
    lost = RLMCheckpoint.from_bytes(checkpoint_with_code().to_bytes()).repl_state["double"]
    for use in (
        lambda: lost(1),
        lambda: lost.name,
        lambda: list(lost),
        lambda: bool(lost),
        lambda: lost[0],
        lambda: lost + 1,
    ):
        with pytest.raises(UnrestoredValueError, match="not signed"):
            use()
    assert {lost: 1}[lost] == 1


def test_pickled_values_need_a_choice_a_key_and_another_choice() -> None:
    value = {"x": complex}
    state = {"it": iter([1, 2])}
    saved = RLMCheckpoint(session_id="s", repl_state={**state, "v": value})
    data = saved.to_bytes(trust="k", pickle=True)
    assert [issue.path for issue in saved.issues] == ["it"]
    assert list(RLMCheckpoint.from_bytes(data, trust="k", allow_pickle=True).repl_state["it"]) == [1, 2]
    assert isinstance(RLMCheckpoint.from_bytes(data, trust="k").repl_state["it"], Unrestored)
    assert isinstance(RLMCheckpoint.from_bytes(data, allow_pickle=True).repl_state["it"], Unrestored)


@pytest.mark.parametrize("policy", ["placeholder", "skip", "raise"])
def test_the_policy_for_what_cannot_be_saved(policy: Any, tmp_path: Path) -> None:
    saved = RLMCheckpoint(session_id="s", repl_state={"gen": (i for i in [1]), "x": 1})
    if policy == "raise":
        with pytest.raises(UnsavableValueError, match="gen"):
            saved.save(tmp_path / "a.rlmc", unsavable=policy)
        assert list(tmp_path.iterdir()) == []
        return
    loaded = RLMCheckpoint.load(saved.save(tmp_path / "a.rlmc", unsavable=policy))
    assert ("gen" in loaded.repl_state) == (policy == "placeholder")
    assert loaded.repl_state["x"] == 1
    assert [issue.path for issue in saved.issues] == [issue.path for issue in loaded.issues] == ["gen"]


def test_another_major_version_is_refused_until_a_migration_is_registered() -> None:
    data = changed_version(RLMCheckpoint(session_id="s", repl_state={"x": 1}).to_bytes(), "0.3")
    with pytest.raises(CheckpointVersionError, match=r"0\.3"):
        RLMCheckpoint.from_bytes(data)
    register_migration(0, lambda manifest, document: (manifest, document))
    loaded = RLMCheckpoint.from_bytes(data)
    assert loaded.repl_state == {"x": 1}
    assert "migrated" in str(loaded.issues[0])
    with pytest.raises(CheckpointVersionError):
        RLMCheckpoint.from_bytes(changed_version(data, "2.0"))


def test_a_newer_minor_version_loads_with_a_report() -> None:
    data = changed_version(RLMCheckpoint(session_id="s", repl_state={"x": 1}).to_bytes(), "1.7")
    loaded = RLMCheckpoint.from_bytes(data)
    assert loaded.repl_state == {"x": 1}
    assert "1.7" in str(loaded.issues[0])


def test_a_kind_that_this_version_does_not_know_is_a_placeholder() -> None:
    heap = Heap([(0, [0])], [[["list", [1, [1]]], ["hologram", [2], {"depth": 3}]]])
    back = loads(pack({}, heap))
    assert back[0] == 1
    assert "hologram" in back[1].unrestored_reason


def test_limits_are_kept_before_anything_is_unpacked() -> None:
    data = dumps(["x" * 5000] * 10)
    for limits in (Limits(file=100), Limits(heap=1000), Limits(total=1000), Limits(manifest=10)):
        with pytest.raises(CheckpointLimitError):
            loads(data, limits=limits)


def test_what_is_no_checkpoint_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        RLMCheckpoint.load(tmp_path / "none.rlmc")
    for content in (b"", b"PK", b"x" * 1000, json.dumps({"a": 1}).encode()):
        (tmp_path / "bad.rlmc").write_bytes(content)
        with pytest.raises(CheckpointDamagedError):
            RLMCheckpoint.load(tmp_path / "bad.rlmc")


def test_a_disk_that_refuses_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = RLMCheckpoint(session_id="s", turn=1).save(tmp_path / "a.rlmc")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("os.fsync", "os.open", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(function, refuse)
            with pytest.raises(CheckpointWriteError, match="No space left"):
                RLMCheckpoint(session_id="s", turn=2).save(path)
        assert RLMCheckpoint.load(path).turn == 1
        assert [each.name for each in tmp_path.iterdir()] == ["a.rlmc"]


def test_names_of_the_interpreter_are_neither_saved_nor_taken_from_a_file() -> None:
    data = RLMCheckpoint(session_id="s", repl_state={"__builtins__": {}, "x": 1}).to_bytes()
    assert RLMCheckpoint.from_bytes(data).repl_state == {"x": 1}


def test_what_the_host_provides_is_stored_by_name() -> None:
    """Answers B109."""
    client = object()
    saved = RLMCheckpoint(session_id="s", repl_state={"client": client, "both": [client, 1]})
    data = saved.to_bytes(provided={"client": client})
    assert saved.issues == []
    anew = object()
    loaded = RLMCheckpoint.from_bytes(data, provided={"client": anew})
    assert loaded.repl_state["both"][0] is loaded.repl_state["client"] is anew
    assert "did not provide client" in RLMCheckpoint.from_bytes(data).repl_state["client"].unrestored_reason


def test_loading_into_a_namespace_leaves_what_was_saved_and_nothing_else() -> None:
    """Answers B168."""
    namespace = {"old": 1}
    loaded = RLMCheckpoint.from_bytes(checkpoint_with_code().to_bytes(trust="k"), trust="k", namespace=namespace)
    assert loaded.repl_state is namespace
    assert list(namespace) == ["double", "data"]
    assert namespace["double"].__globals__ is namespace


def test_an_allowed_class_comes_back_from_any_file() -> None:
    data = dumps(Allowed(3))
    assert isinstance(loads(data), Unrestored)
    assert loads(data, allow=[Allowed]).x == 3


class Allowed:
    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.parametrize(
    ("field", "value"),
    [("session_id", ""), ("session_id", 1), ("session_id", "\ud83d"), ("cost_so_far", float("nan"))],
    ids=str,
)
def test_a_checkpoint_that_makes_no_sense_is_refused(field: str, value: Any) -> None:
    """Answers B113."""
    with pytest.raises(InvalidInputError):
        RLMCheckpoint(**{"session_id": "s", field: value})


def test_diff_tells_values_types_and_identities_apart() -> None:
    shared = [1]
    old = RLMCheckpoint(session_id="s", repl_state={"a": 1, "b": [1], "c": 1, "p": shared, "q": shared, "gone": 0})
    new = RLMCheckpoint(session_id="s", repl_state={"a": 1, "b": [2], "c": 1.0, "p": [1], "q": [1], "here": 0})
    found = new.diff(old)
    assert (found.added, found.removed, found.changed, found.retyped) == (["here"], ["gone"], ["b"], ["c"])
    assert found.realiased == ["p", "q"]
    assert not new.diff(new)


def test_a_notebook_shows_a_checkpoint_without_running_its_text() -> None:
    shown = RLMCheckpoint(session_id="<script>", repl_state={"x": 1})._repr_html_()
    assert "<script>" not in shown
    assert ">x</td>" in shown
