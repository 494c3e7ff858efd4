"""A store is copied whole from engine to engine, also by processes that are killed and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_memory import Memory
from rlm_memory.copying import copy_store
from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError, StoreError
from rlm_memory.records import Encoded, ThreadCheckpoint
from support import SettableClock, WordEmbedder
from whole_namespace import answers, filled

RAW = Encoded("raw", b"")
WAYS = ["sqlite to sqlite", "sqlite to postgres", "postgres to sqlite"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where a store is copied from, and to."""
    names = request.param.split(" to ")
    url = request.getfixturevalue("postgres_url") if "postgres" in names else ""
    source, target = (
        url if name == "postgres" else str(tmp_path / file)
        for name, file in zip(names, ("from.db", "to.db"), strict=True)
    )
    return source, target


Opened = Callable[..., Memory]


@pytest.fixture
def opened(clock: SettableClock) -> Iterator[Opened]:
    """Opens stores, which are closed after the test."""
    memories: list[Memory] = []

    def open_at(location: object, namespace: str = "default", **options: Any) -> Memory:
        options = {"embedder": WordEmbedder(), "clock": clock, "sweep": False, **options}
        memories.append(Memory.open(str(location), namespace=namespace, **options))
        return memories[-1]

    yield open_at
    for memory in memories:
        memory.close()


def in_child(work: Callable[[], object]) -> int:
    """Do something in a process of its own; return its exit code, the number of the signal below zero."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(parts: int) -> Callable[[int, int], None]:
    """Return a progress that kills its process when so many parts are done."""

    def advance(done: int, total: int) -> None:
        if done >= parts:
            os.kill(os.getpid(), signal.SIGKILL)

    return advance


def test_a_copy_answers_as_what_was_copied(way: tuple[str, str], opened: Opened, clock: SettableClock) -> None:
    source, target = way
    with opened(source) as old:
        filled(old, clock)
        before, log = answers(old), list(old.promotion_log())
    with opened(source, "another tenant") as tenant:
        tenant.add(["theirs"], ids=["x"], tier="longterm")
        theirs = answers(tenant)
    told: list[tuple[int, int]] = []
    copies = copy_store(source, target, progress=lambda done, total: told.append((done, total)))
    assert [each.namespace for each in copies] == ["another tenant", "default"]
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 2 * len(before["nodes"])
    assert copies[1].counts["node"] == len(before["nodes"])
    assert {"log", "checkpoint", "key_value", "message", "session", "use"} <= copies[1].counts.keys()
    new = opened(target)
    assert answers(new) == before
    assert [entry.decision for entry in new.promotion_log()] == [entry.decision for entry in log]
    assert copies[1].log_kept == (list(new.promotion_log()) == log)
    assert answers(opened(target, "another tenant")) == theirs
    assert new.check()
    assert opened(target, "another tenant").check()


def test_a_log_alone_in_its_store_keeps_its_hashes(way: tuple[str, str], opened: Opened, clock: SettableClock) -> None:
    source, target = way
    with opened(source) as old:
        filled(old, clock)
    [copied] = copy_store(source, target)
    assert copied.log_kept
    assert list(opened(target).promotion_log()) == list(opened(source).promotion_log())


def test_a_copy_that_is_killed_goes_on_to_the_same_end(
    way: tuple[str, str], opened: Opened, clock: SettableClock
) -> None:
    source, target = way
    with opened(source) as old:
        old.add([f"text {number}" for number in range(1100)], compute_embedding=[n % 9 == 0 for n in range(1100)])
        filled(old, clock)
        parts = 1000 + sum(1 for _ in old.promotion_log())
        before = answers(old)
    for killed_after in (1, parts // 2, 2 * parts - 500, 2 * parts + 100):
        assert in_child(lambda at=killed_after: copy_store(source, target, progress=killed_at(at))) == -signal.SIGKILL
    [copied] = copy_store(source, target)
    assert copied.log_kept
    new = opened(target)
    assert answers(new) == before
    assert new.check()
    with opened(target) as again, opened(source) as old:
        assert again.stats().with_vector == old.stats().with_vector
    [once_more] = copy_store(source, target)
    assert once_more == copied


def test_a_copy_that_ends_at_any_moment_goes_on(way: tuple[str, str], opened: Opened, clock: SettableClock) -> None:
    source, target = way
    with opened(source) as old:
        old.add([f"text {number}" for number in range(600)])
        filled(old, clock)
        before = answers(old)

    def stopped_after(seconds: float) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process where it stands
        signal.setitimer(signal.ITIMER_REAL, seconds)
        copy_store(source, target)

    codes = [in_child(lambda s=seconds: stopped_after(s)) for seconds in (0.03, 0.08, 0.15, 0.22, 0.3)]
    assert set(codes) <= {0, -signal.SIGALRM}
    copy_store(source, target)
    new = opened(target)
    assert answers(new) == before
    assert new.check()


def test_what_was_reported_of_use_comes_along(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    with opened(source) as old:
        old.add("text", ids=["a"])

    def dies_reporting() -> None:
        opened(source).session("s").record_access("a")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(dies_reporting) == -signal.SIGKILL
    copy_store(source, target)
    assert [access.session_id for access in opened(target).accesses("a")] == ["s"]


@pytest.mark.parametrize("storage", ["int8", "bit"])
def test_rounded_vectors_are_copied_as_they_are(tmp_path: Path, opened: Opened, storage: str) -> None:
    with opened(tmp_path / "from.db", embedding_storage=storage) as old:
        old.add([f"text {number}" for number in range(50)])
    copy_store(tmp_path / "from.db", tmp_path / "to.db")
    new = opened(tmp_path / "to.db")
    assert new.stats().embedding_storage == storage
    assert new.check()
    with opened(tmp_path / "other.db", embedding_storage="bit" if storage == "int8" else "int8"):
        pass
    with pytest.raises(EmbeddingMismatchError, match="would be rounded"):
        copy_store(tmp_path / "from.db", tmp_path / "other.db")


@pytest.mark.parametrize("storage", ["int8", "bit"])
def test_rounded_vectors_of_a_server_are_copied_to_a_file_and_a_server(
    postgres_url: str, tmp_path: Path, opened: Opened, storage: str
) -> None:
    with opened(postgres_url, embedding_storage=storage) as old:
        old.add([f"text {number}" for number in range(50)])
        with opened(postgres_url, "beside") as beside:
            old.copy_to(beside)
            before = [(hit.text, round(hit.semantic or 0, 3)) for hit in old.search("text 7", k=50, alpha=1)]
            assert before == [(hit.text, round(hit.semantic or 0, 3)) for hit in beside.search("text 7", k=50, alpha=1)]
    copy_store(postgres_url, tmp_path / "to.db")
    assert opened(tmp_path / "to.db").stats().embedding_storage == "float32"
    copy_store(tmp_path / "to.db", tmp_path / "again.db")
    assert opened(tmp_path / "again.db").check()


def test_a_target_that_holds_something_else_is_refused(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    with opened(source) as old:
        old.add("one", ids=["a"])
    with opened(target) as new:
        new.add("two", ids=["a"])
    with pytest.raises(InvalidInputError, match=r"'default' of .* has something else in it \(node: 1 there, 1 here\)"):
        copy_store(source, target)
    assert opened(target).get("a")[0].text == "two"


def test_which_side_of_a_finished_copy_has_gone_on_is_told(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    old = opened(source)
    old.add("one", ids=["a"])
    copy_store(source, target)
    old.add("two", ids=["b"])

    def told() -> str:
        with pytest.raises(InvalidInputError) as caught:
            copy_store(source, target)
        return str(caught.value)

    assert f"has a finished copy in it, and {old.location} has gone on since (node: 2 there, 1 here)." in told()
    assert told().endswith("Copy to a store that is new, or bring nodes alone over: export, and import --nodes-only.")
    old.delete("b")
    assert copy_store(source, target)[0].counts["node"] == 1, "it is a copy again"
    with opened(target) as new:
        new.update("a", text="another")
    assert "has a finished copy in it that was written to since (node: 1 there, 1 here)." in told()
    old.delete("a")
    assert f"of something else, or it was written to since and {old.location} too (node: 0 there, 1 here)." in told()


def test_a_finished_copy_in_which_nothing_is_left_is_made_again(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    with opened(source) as old:
        old.add("none")
        old.clear()
        assert copy_store(source, target)[0].counts == {}, "a copy of nothing"
        old.add("one", ids=["a"])
    for _ in range(2):
        assert copy_store(source, target)[0].counts == {"node": 1}
        with opened(target) as new:
            assert new.delete("a") == 1
            assert new.check()


def test_a_copy_of_a_copy_is_a_copy(way: tuple[str, str], opened: Opened, tmp_path: Path) -> None:
    source, target = way
    with opened(source) as old:
        old.add("one", ids=["a"])
    [first] = copy_store(source, target)
    [second] = copy_store(target, tmp_path / "again.db")
    assert second == first
    opened(tmp_path / "again.db").export(tmp_path / "again.jsonl")
    opened(source).export(tmp_path / "first.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "first.jsonl").read_bytes()


def test_a_source_that_changes_between_two_attempts_is_told(
    way: tuple[str, str], opened: Opened, clock: SettableClock
) -> None:
    source, target = way
    with opened(source) as old:
        old.add([f"text {number}" for number in range(1200)], ids=[str(n) for n in range(1200)])
    assert in_child(lambda: copy_store(source, target, progress=killed_at(500))) == -signal.SIGKILL
    with opened(source) as old:
        old.update("3", text="changed")
    with pytest.raises(InvalidInputError, match="has changed since the copy"):
        copy_store(source, target)


def test_what_somebody_else_writes_into_a_copy_under_way_is_found(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    with opened(source) as old:
        old.add([f"text {number}" for number in range(1200)])

    def intrude(done: int, total: int) -> None:
        if done == 500:
            opened(target).conversations.append("chat", ["intruder"])

    with pytest.raises(StoreError, match=r"is not what was copied \(message: 0 there, 1 here\)"):
        copy_store(source, target, progress=intrude)
    with pytest.raises(StoreError, match="is not what was copied"):
        copy_store(source, target)
    opened(target).conversations.clear()
    [copied] = copy_store(source, target)
    assert copied.counts == {"node": 1200}


def test_two_copies_into_one_store_at_once_end_as_one(way: tuple[str, str], opened: Opened) -> None:
    source, target = way
    with opened(source) as old:
        threads = old.threads("graph")
        for number in range(600):  # each with chunks, which are there once
            large = f"{number:06}".encode() * 3000
            state = ThreadCheckpoint(thread_id="t", id=str(number), head=RAW, values={"c": Encoded("raw", large)})
            threads.put(state)
    overtaken = []

    def overtake(done: int, total: int) -> None:
        if done and not overtaken:
            overtaken.append(done)
            overtaken.extend(copy_store(source, target))

    with pytest.raises(InvalidInputError, match="Somebody else is writing"):
        copy_store(source, target, progress=overtake)
    [copied] = copy_store(source, target)
    assert overtaken[1:] == [copied]


def test_a_copy_into_itself_or_of_what_is_not_there_is_refused(tmp_path: Path, opened: Opened) -> None:
    with pytest.raises(StoreError):
        copy_store(tmp_path / "nowhere.db", tmp_path / "to.db")
    assert list(tmp_path.iterdir()) == []
    opened(tmp_path / "from.db").add("a")
    with pytest.raises(InvalidInputError, match="into itself"):
        copy_store(tmp_path / "from.db", tmp_path / "from.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "from.db")
    with pytest.raises(InvalidInputError, match="into itself"):
        copy_store(tmp_path / "from.db", tmp_path / "link.db")
    with pytest.raises(InvalidInputError, match="has no namespace 'x'; it has default"):
        copy_store(tmp_path / "from.db", tmp_path / "to.db", namespaces=["x"])


def test_a_file_that_may_only_be_read_is_copied(tmp_path: Path, opened: Opened, clock: SettableClock) -> None:
    with opened(tmp_path / "from.db") as old:
        filled(old, clock)
        before = answers(old)
    (tmp_path / "from.db").chmod(0o400)
    copy_store(tmp_path / "from.db", tmp_path / "to.db")
    assert answers(opened(tmp_path / "to.db")) == before


def test_a_namespace_is_copied_beside_itself_under_another_name(
    tmp_path: Path, opened: Opened, clock: SettableClock
) -> None:
    old, new = opened(tmp_path / "a.db"), opened(tmp_path / "a.db", "copy")
    filled(old, clock)
    assert not old.copy_to(new).log_kept
    assert answers(new) == answers(old)
    assert new.check()
