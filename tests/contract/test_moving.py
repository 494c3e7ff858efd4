"""A namespace is moved whole: by a file, or by a copy, between engines, and answers as before."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
from support import SettableClock, WordEmbedder
from whole_namespace import answers, filled, goes_on

from .conftest import OpenMemory


@pytest.fixture
def other(tmp_path: Path, embedder: WordEmbedder, clock: SettableClock) -> Iterator[Callable[..., Memory]]:
    """Opens another store, a file."""
    opened: list[Memory] = []

    def open_other(name: str = "other.db", **options: Any) -> Memory:
        memory = Memory.open(tmp_path / name, **{"embedder": embedder, "clock": clock, **options})
        opened.append(memory)
        return memory

    yield open_other
    for memory in opened:
        memory.close()


def documents(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def seal(path: Path, lines: list[bytes]) -> None:
    """Write lines with the end that belongs to them."""
    content = b"".join(line + b"\n" for line in lines)
    end = {"end": {"lines": len(lines), "sha256": hashlib.sha256(content).hexdigest()}}
    path.write_bytes(content + json.dumps(end).encode() + b"\n")


# -- files ------------------------------------------------------------------------------------------------------------


def test_an_imported_namespace_answers_as_the_exported_one(
    open_memory: OpenMemory, other: Callable[..., Memory], tmp_path: Path, clock: SettableClock
) -> None:
    memory = open_memory()
    filled(memory, clock)
    before = answers(memory)
    assert all(before.values()), "there is something of each kind"
    memory.export(tmp_path / "all.jsonl")
    new = other()
    new.import_(tmp_path / "all.jsonl")
    assert answers(new) == before
    assert list(new.promotion_log()) == list(memory.promotion_log()), "hashes and numbers are kept"
    assert new.check()
    new.export(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    now = clock.now
    went_on = goes_on(new, clock)
    clock.now = now
    assert goes_on(memory, clock) == went_on
    assert not went_on["sound"]


def test_a_file_written_from_a_file_is_read_by_every_engine(
    open_memory: OpenMemory, other: Callable[..., Memory], tmp_path: Path, clock: SettableClock
) -> None:
    old = other()
    filled(old, clock)
    old.export(tmp_path / "all.jsonl")
    memory = open_memory()
    memory.import_(tmp_path / "all.jsonl")
    assert answers(memory) == answers(old)
    assert memory.check()


def test_under_another_name_the_log_is_chained_anew(
    open_memory: OpenMemory, tmp_path: Path, clock: SettableClock
) -> None:
    memory = open_memory()
    filled(memory, clock)
    memory.export(tmp_path / "all.jsonl")
    with Memory.open(tmp_path / "other.db", embedder=None, namespace="first", clock=clock) as first:
        first.add("x", tier="longterm")
    with Memory.open(tmp_path / "other.db", embedder=WordEmbedder(), namespace="new", clock=clock) as new:
        new.import_(tmp_path / "all.jsonl")
        assert answers(new) == answers(memory)
        ours, theirs = list(memory.promotion_log()), list(new.promotion_log())
        assert [entry.decision for entry in ours] == [entry.decision for entry in theirs]
        assert {entry.hash for entry in ours}.isdisjoint(entry.hash for entry in theirs)
        assert new.check()
        new.pin("ada")
        assert new.check()


def test_what_was_imported_can_be_imported_again(open_memory: OpenMemory, tmp_path: Path, clock: SettableClock) -> None:
    memory = open_memory()
    memory.add(["a", "b"], ids=["a", "b"], tier="longterm")
    with memory.session("s") as session:
        session.record_access("a")
    memory.export(tmp_path / "all.jsonl")
    before = memory.accesses("a"), list(memory.promotion_log()), memory.sessions()
    memory.import_(tmp_path / "all.jsonl")
    assert (memory.accesses("a"), list(memory.promotion_log()), memory.sessions()) == before
    memory.pin("a")
    memory.delete("b")
    memory.import_(tmp_path / "all.jsonl")
    assert memory.get("b")[0].tier == "longterm"
    assert memory.get("a")[0].pinned
    assert memory.check()


def test_nodes_that_are_there_take_the_tiers_of_a_log_that_comes(
    open_memory: OpenMemory, other: Callable[..., Memory], tmp_path: Path, clock: SettableClock
) -> None:
    memory = open_memory()
    memory.add(["here", "mine"], ids=["ada", "mine"])
    old = other()
    filled(old, clock)
    old.export(tmp_path / "all.jsonl")
    memory.import_(tmp_path / "all.jsonl")
    assert [memory.get(id)[0].tier for id in ("ada", "mine")] == [old.get("ada")[0].tier, "task"]
    assert memory.explain_promotion("ada") == old.explain_promotion("ada")
    assert memory.check()


@pytest.mark.parametrize("what", ["log", "session", "thread"])
def test_what_cannot_be_merged_is_refused_before_anything_is_written(
    open_memory: OpenMemory, other: Callable[..., Memory], tmp_path: Path, clock: SettableClock, what: str
) -> None:
    old = other()
    filled(old, clock)
    old.export(tmp_path / "all.jsonl")
    memory = open_memory()
    memory.add("mine", ids=["mine"])
    if what == "log":
        memory.promote("mine", "longterm", reason="mine")
    elif what == "session":
        with memory.session("s1") as session:
            session.record_access("mine")
    else:
        memory.threads("graph").put_writes("t\0", "", "x", [])
        assert memory.threads("graph").ids() == ["t\0"]
    with pytest.raises(InvalidInputError, match=r"^Line \d+: .*--nodes-only"):
        memory.import_(tmp_path / "all.jsonl")
    assert [node.id for node in memory.list()] == ["mine"]
    memory.import_(tmp_path / "all.jsonl", history=False)
    assert {"mine", "ada", "late"} <= {node.id for node in memory.list(include_archived=True)}
    assert memory.key_values("settings").get("b") == "again"
    assert [(edge.source, edge.target) for edge in memory.links("dup")]
    assert memory.accesses("ada") == []
    assert memory.check()


@pytest.mark.parametrize("cut", ["a line", "the end", "half a line"])
def test_a_file_that_was_cut_short_is_refused(
    memory: Memory, other: Callable[..., Memory], tmp_path: Path, clock: SettableClock, cut: str
) -> None:
    old = other()
    filled(old, clock)
    path = tmp_path / "all.jsonl"
    old.export(path)
    lines = path.read_bytes().splitlines(keepends=True)
    kept = {"a line": [*lines[:40], *lines[41:]], "the end": lines[:-1], "half a line": [*lines[:50], lines[50][:30]]}
    path.write_bytes(b"".join(kept[cut]))
    with pytest.raises(InvalidInputError, match=r"^Line \d+ "):
        memory.import_(path)
    assert memory.count() == 0
    assert list(memory.promotion_log()) == memory.sessions() == memory.threads("graph").ids() == []
    assert memory.check()


def test_any_bit_that_flips_is_found_out(other: Callable[..., Memory], tmp_path: Path, clock: SettableClock) -> None:
    old, new = other(), other("new.db")
    old.add(["a", "b"], ids=["a", "b"], tier="session")
    old.export(tmp_path / "all.jsonl")
    content = (tmp_path / "all.jsonl").read_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        (tmp_path / "changed.jsonl").write_bytes(changed)
        with pytest.raises(InvalidInputError):
            new.import_(tmp_path / "changed.jsonl")
    assert new.count() == 0


def changed(kind: str, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(document: dict[str, Any]) -> dict[str, Any]:
        return {kind: {**document[kind], **fields}}

    return change


def without(kind: str, field: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: {kind: {name: value for name, value in document[kind].items() if name != field}}


HOSTILE = {
    "a log entry with another reason": ("log", changed("log", reason="other")),
    "a log entry with another hash": ("log", changed("log", hash="0" * 64)),
    "a log entry of another tier": ("log", changed("log", to_tier="nowhere")),
    "a log entry with conditions of another form": ("log", changed("log", conditions=[["a"]])),
    "a log entry with a giant number": ("log", changed("log", sequence=2**70)),
    "a link to nowhere": ("edge", changed("edge", target="nobody")),
    "a link with an unknown field": ("edge", changed("edge", weight=1)),
    "a session with a turn below zero": ("session", changed("session", turn=-1)),
    "a session without a start": ("session", without("session", "started_at")),
    "a session of the year 300000": ("session", changed("session", last_active=10**16)),
    "an access in an unknown session": ("access", changed("access", session="nobody's")),
    "an access to an unknown node": ("access", changed("access", node="nobody")),
    "an access with too much confidence": ("access", changed("access", confidence=1.5)),
    "an access judged by a number": ("access", changed("access", judged=1)),
    "a use of an unknown node": ("use", changed("use", node="nobody")),
    "an outcome that is a text": ("outcome", changed("outcome", success="yes")),
    "a value that is not JSON": ("key_value", changed("key_value", value="{")),
    "a value that is JSON no longer": ("key_value", changed("key_value", value="NaN")),
    "a value that is too deep": ("key_value", changed("key_value", value="[" * 5000 + "]" * 5000)),
    "a key with a lone surrogate": ("key_value", changed("key_value", key="\ud800")),
    "a thread without a kind": ("thread", without("thread", "kind")),
    "a chunk of an unknown thread": ("chunk", changed("chunk", thread="nobody's")),
    "a chunk that is no base64": ("chunk", changed("chunk", content="***")),
    "a chunk number beyond its place": ("chunk", changed("chunk", number=2**32)),
    "a checkpoint of an unknown thread": ("checkpoint", changed("checkpoint", thread="nobody's")),
    "metadata that is a list": ("checkpoint", changed("checkpoint", metadata="[]")),
    "values that are text": ("checkpoint", changed("checkpoint", values="x")),
    "a value of unknown chunks": ("checkpoint", changed("checkpoint", values=[
        {"channel": "c", "version": 1, "encoding": "raw", "depth": 1, "content": "////fw=="}])),
    "a value too deep": ("checkpoint", changed("checkpoint", values=[
        {"channel": "c", "version": 1, "encoding": "raw", "depth": 2**40, "content": "AQAAAA=="}])),
    "a version that is a list": ("checkpoint", changed("checkpoint", values=[
        {"channel": "c", "version": [], "encoding": "raw", "depth": 0, "content": ""}])),
    "a write at no place": ("write", changed("write", place="first")),
    "a write of half a chunk": ("write", changed("write", depth=1, content="AQ==")),
    "a sweep that is a time": ("sweep", changed("sweep", at="2026-01-01T00:00:00+00:00")),
    "an unknown kind": ("sweep", lambda document: {"sweeps": document["sweep"]}),
}  # fmt: skip


@pytest.fixture
def in_memory(embedder: WordEmbedder, clock: SettableClock) -> Iterator[Memory]:
    """A store in memory: what is refused is refused before an engine sees it."""
    with Memory.open(":memory:", embedder=embedder, clock=clock) as memory:
        yield memory


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of an export with something of every kind, without its end."""
    clock = SettableClock()
    path = tmp_path_factory.mktemp("export") / "all.jsonl"
    with Memory.open(path.with_suffix(".db"), embedder=WordEmbedder(), clock=clock) as memory:
        filled(memory, clock)
        memory.sweep()
        memory.export(path)
    return path.read_bytes().splitlines()[:-1]


@pytest.mark.parametrize(("kind", "change"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_part_that_is_not_sound_is_named_and_nothing_is_kept(
    in_memory: Memory, export: list[bytes], tmp_path: Path, kind: str, change: Callable[[Any], Any]
) -> None:
    """B101"""
    place = next(place for place, line in enumerate(export) if json.loads(line).keys() == {kind})
    lines = list(export)
    lines[place] = json.dumps(change(json.loads(lines[place]))).encode()
    seal(tmp_path / "changed.jsonl", lines)
    with pytest.raises(InvalidInputError, match=rf"^Line {place + 1}\b"):
        in_memory.import_(tmp_path / "changed.jsonl")
    assert in_memory.count() == 0
    assert in_memory.threads("graph").ids() == in_memory.sessions() == list(in_memory.promotion_log()) == []
    assert in_memory.check()


@pytest.mark.parametrize(
    "kind", ["log", "edge", "session", "use", "key_value", "thread", "chunk", "checkpoint", "write"]
)
def test_a_part_that_comes_twice_is_refused(in_memory: Memory, export: list[bytes], tmp_path: Path, kind: str) -> None:
    place = next(place for place, line in enumerate(export) if json.loads(line).keys() == {kind})
    seal(tmp_path / "twice.jsonl", [*export[: place + 1], *export[place:]])
    with pytest.raises(InvalidInputError, match=rf"^Line {place + 2}\b"):
        in_memory.import_(tmp_path / "twice.jsonl")
    assert in_memory.check()


def test_values_that_would_fill_the_memory_are_refused(memory: Memory, tmp_path: Path) -> None:
    header = {"format": "rlm-memory nodes", "version": 2, "namespace": "default", "model": "", "dimensions": None}
    chunk = {"kind": "k", "thread": "t", "number": 1, "content": "A" * 4096}
    lists: list[dict[str, Any]] = []
    for number in range(2, 7):  # each lists the one before a thousand times
        content = base64.b64encode((number - 1).to_bytes(4, "little") * 1000).decode()
        lists.append({"kind": "k", "thread": "t", "number": number, "content": content})
    value = {"channel": "c", "version": 1, "encoding": "raw", "depth": 6, "content": "BgAAAA=="}
    state = {"kind": "k", "thread": "t", "graph": "", "id": "1", "parent_id": None, "created_at": 0, "entries": 0,
             "nodes": 0, "metadata": "{}", "encoding": "raw", "head": "", "values": [value]}  # fmt: skip
    told = [header, {"thread": {"kind": "k", "id": "t"}}, *({"chunk": each} for each in (chunk, *lists))]
    seal(tmp_path / "bomb.jsonl", [json.dumps(each).encode() for each in (*told, {"checkpoint": state})])
    with pytest.raises(InvalidInputError, match="Line 9: a value has more than"):
        memory.import_(tmp_path / "bomb.jsonl")
    assert memory.threads("k").ids() == []


def test_chunks_of_no_value_are_refused(memory: Memory, export: list[bytes], tmp_path: Path) -> None:
    kept = [line for line in export if json.loads(line).keys() not in ({"checkpoint"}, {"write"})]
    seal(tmp_path / "lost.jsonl", kept)
    with pytest.raises(InvalidInputError, match="belong to no value"):
        memory.import_(tmp_path / "lost.jsonl")
    assert memory.check()


def test_a_node_in_a_tier_that_the_log_does_not_lead_to_is_refused(
    memory: Memory, export: list[bytes], tmp_path: Path
) -> None:
    place = next(place for place, line in enumerate(export) if json.loads(line).get("id") == "late")
    lines = list(export)
    lines[place] = json.dumps({**json.loads(lines[place]), "tier": "archive"}).encode()
    seal(tmp_path / "tier.jsonl", lines)
    with pytest.raises(InvalidInputError, match=rf"^Line {place + 1}: node 'late' is in archive, the log leads to lon"):
        memory.import_(tmp_path / "tier.jsonl")
    assert memory.count() == 0
