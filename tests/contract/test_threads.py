"""Threads of checkpoints: their order, what they share, what deleting leaves, and the tiers of the time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite

OpenMemory: TypeAlias = Callable[..., Memory]

BIG = random.Random(1).randbytes(200_000)


def checkpoint(id: str, parent: str | None = None, *, thread: str = "t", graph: str = "", **values: bytes) -> Any:
    return ThreadCheckpoint(
        thread_id=thread,
        id=id,
        parent_id=parent,
        graph=graph,
        head=Encoded("raw", id.encode()),
        metadata={"name": id, "run_id": f"run of {id}"},
        values={name: Encoded("raw", value) for name, value in values.items()},
        versions=dict.fromkeys(values, 1),
    )


def write(task: str, place: int = 0, *, path: str = "", value: bytes = b"") -> ThreadWrite:
    return ThreadWrite(task_id=task, place=place, channel="c", task_path=path, value=Encoded("raw", value))


@pytest.mark.parametrize("size", [0, 1, 512, 513, 5_000, 200_000])
def test_values_of_any_size_come_back(memory: Memory, size: int) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("1", big=BIG[:size], small=b"x"))
    threads.put_writes("t", "", "1", [write("task", value=BIG[:size])])
    found = threads.get("t")
    assert found is not None
    assert {name: value.content for name, value in found.values.items()} == {"big": BIG[:size], "small": b"x"}
    assert [each.value.content for each in found.writes] == [BIG[:size]]
    assert (found.head, found.metadata, found.id) == (Encoded("raw", b"1"), {"name": "1", "run_id": "run of 1"}, "1")
    assert memory.check()


def test_order_is_that_of_commit_whatever_the_ids_say(memory: Memory) -> None:
    """B125 B136"""
    threads = memory.threads("test")
    threads.put(checkpoint("z-older"))
    threads.put(checkpoint("a-younger", "z-older"))
    latest = threads.get("t")
    assert latest is not None
    assert (latest.id, latest.parent_id) == ("a-younger", "z-older")
    assert [each.id for each in threads.list("t")] == ["a-younger", "z-older"]


def test_checkpoint_put_again_is_replaced_at_its_place(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("1", big=BIG))
    threads.put(checkpoint("2", "1"))
    threads.put(checkpoint("1", other=b"new"))
    assert [each.id for each in threads.list("t")] == ["2", "1"]
    again = threads.get("t", "", "1")
    assert again is not None
    assert list(again.values) == ["other"]
    assert memory.check(), "nothing is left of what was replaced"


def test_growing_value_is_stored_once(open_memory: OpenMemory) -> None:
    """B067"""
    memory = open_memory()
    threads = memory.threads("test")
    threads.put(checkpoint("0", big=BIG[:100_000]))
    before = memory.stats().file_bytes
    for i in range(1, 101):
        threads.put(checkpoint(str(i), str(i - 1), big=BIG[: 100_000 + 1000 * i]))
    growth = memory.stats().file_bytes - before
    assert growth < 8 * 100_000, "100 states of 150 kB on average share all but what was added"
    assert memory.check()


def test_kept_value_is_the_parents_and_is_asked_for_where_the_parent_has_another_version(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("1", a=BIG, b=b"b1"))
    asked = []

    def encode(channel: str) -> Encoded:
        asked.append(channel)
        return Encoded("raw", b"asked")

    threads.put(checkpoint("2", "1"), kept={"a": 1, "b": 2}, encode=encode)
    found = threads.get("t", "", "2")
    assert found is not None
    assert {name: value.content for name, value in found.values.items()} == {"a": BIG, "b": b"asked"}
    assert asked == ["b"]
    assert found.versions == {"a": 1, "b": 2}
    threads.put(checkpoint("3", "gone"), kept={"a": 1}, encode=encode)
    assert asked == ["b", "a"]


def test_writes_are_in_order_of_path_and_stay_unless_replaced(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("1"))
    threads.put_writes("t", "", "1", [write("a", 1, path="~2", value=b"a1"), write("a", 0, path="~2", value=b"a0")])
    threads.put_writes("t", "", "1", [write("z", 0, path="~1", value=b"z0")])
    threads.put_writes("t", "", "1", [write("z", 0, path="~1", value=b"ignored")])
    threads.put_writes("t", "", "1", [write("a", 1, path="~2", value=b"replaced")], replace=True)
    found = threads.get("t")
    assert found is not None
    assert [each.value.content for each in found.writes] == [b"z0", b"a0", b"replaced"]


def test_large_write_that_is_ignored_or_replaced_leaves_nothing(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put_writes("t", "", "1", [write("a", value=BIG)])
    threads.put_writes("t", "", "1", [write("a", value=BIG[::-1]), write("b", value=b"b")])
    assert memory.check()
    threads.put_writes("t", "", "1", [write("a", value=b"small")], replace=True)
    assert memory.check()
    threads.put(checkpoint("1"))
    found = threads.get("t")
    assert found is not None
    assert [each.value.content for each in found.writes] == [b"small", b"b"]


def test_writes_may_come_before_their_checkpoint(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put_writes("t", "", "1", [write("task", value=b"early")])
    assert threads.get("t") is None
    threads.put(checkpoint("1"))
    found = threads.get("t")
    assert found is not None
    assert [each.value.content for each in found.writes] == [b"early"]


def test_graphs_kinds_and_namespaces_are_apart(open_memory: OpenMemory) -> None:
    memory = open_memory()
    threads = memory.threads("test")
    threads.put(checkpoint("1", big=BIG))
    threads.put(checkpoint("2", graph="child:1"))
    assert [each.id for each in threads.list("t", "")] == ["1"]
    assert [each.id for each in threads.list("t", "child:1")] == ["2"]
    assert [each.id for each in threads.list("t")] == ["2", "1"]
    other = memory.threads("other")
    assert other.get("t") is None
    assert list(other.list()) == []
    other.delete("t")
    other.delete_runs(["run of 1"])
    assert threads.ids() == ["t"]


def test_tenants_share_no_thread(open_shared: OpenMemory) -> None:
    one, other = open_shared(namespace="one"), open_shared(namespace="other")
    one.threads("test").put(checkpoint("1", big=BIG))
    threads = other.threads("test")
    assert threads.get("t") is None
    assert list(threads.list()) == []
    threads.delete("t")
    threads.put(checkpoint("other"))
    assert [each.id for each in one.threads("test").list()] == ["1"]


def test_list_narrows_by_metadata_before_and_limit(memory: Memory) -> None:
    """B149"""
    threads = memory.threads("test")
    for i in range(40):
        threads.put(checkpoint(f"{i:02}", thread=f"t{i % 2}"))
    assert [each.id for each in threads.list("t1", limit=2)] == ["39", "37"]
    assert [each.id for each in threads.list(before="03")] == ["02", "01", "00"]
    assert [each.id for each in threads.list("t1", before="02x")] == ["01"], "an id that is gone is compared"
    assert [each.id for each in threads.list(where={"name": {"$in": ["07", "08"]}})] == ["08", "07"]
    assert [each.id for each in threads.list("t1", where={"name": "07"}, limit=1)] == ["07"]
    assert [each.id for each in threads.list(id="20")] == ["20"]
    assert len(list(threads.list())) == 40


def test_deleted_thread_gives_its_space_back(in_a_file: None, memory: Memory) -> None:
    """B067"""
    threads = memory.threads("test")
    threads.put(checkpoint("kept", thread="other", big=BIG))
    empty = memory.stats()
    for i in range(5):
        threads.put(checkpoint(str(i), big=BIG[i:]))
        threads.put_writes("t", "", str(i), [write("task", value=BIG)])
    threads.delete("t")
    after = memory.stats()
    assert after.file_bytes - after.free_bytes <= empty.file_bytes - empty.free_bytes + 16_384
    assert threads.ids() == ["other"]
    assert memory.check()


def test_prune_keeps_the_last_of_each_graph_and_what_it_is_put_together_from(memory: Memory) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("0", log=b"old snapshot"))
    threads.put(checkpoint("1", "0", log=b"snapshot", big=BIG))
    threads.put_writes("t", "", "1", [write("task", value=b"delta")])
    threads.put(checkpoint("2", "1"))
    threads.put(checkpoint("branch", "0"))
    threads.put(checkpoint("3", "2", other=b"x"))
    threads.put(checkpoint("c0", graph="child"))
    threads.put(checkpoint("c1", "c0", graph="child", log=b"child"))
    threads.prune(["t", "unknown"], lambda outlines: {"log"})
    assert [each.id for each in threads.list("t")] == ["c1", "3", "2", "1"]
    seed = threads.get("t", "", "1")
    assert seed is not None
    assert [each.value.content for each in seed.writes] == [b"delta"]
    threads.prune(["t"])
    assert [each.id for each in threads.list("t")] == ["c1", "3"]
    assert memory.check()


def test_copy_lives_on_when_the_source_is_deleted(memory: Memory) -> None:
    threads = memory.threads("test")
    for i in range(3):
        threads.put(checkpoint(str(i), str(i - 1) if i else None, big=BIG[: 50_000 + i]))
    threads.put_writes("t", "", "2", [write("task", value=BIG)])
    threads.copy("t", "copy")
    threads.delete("t")
    found = threads.get("copy")
    assert found is not None
    assert (found.id, found.values["big"].content, found.writes[0].value.content) == ("2", BIG[:50_002], BIG)
    assert [each.id for each in threads.list("copy")] == ["2", "1", "0"]
    with pytest.raises(InvalidInputError, match="delete it first"):
        threads.copy("copy", "copy")
    threads.copy("unknown", "new")
    assert threads.ids() == ["copy"]
    assert memory.check()


def test_runs_are_deleted_by_their_id(memory: Memory) -> None:
    threads = memory.threads("test")
    for id in ("1", "2"):
        threads.put(checkpoint(id, big=BIG))
    threads.put(checkpoint("1", thread="only"))
    threads.delete_runs(["run of 1", "unknown"])
    assert [(each.thread_id, each.id) for each in threads.list()] == [("t", "2")]
    assert threads.ids() == ["t"]
    assert memory.check()


def test_tiers_are_those_of_the_moment_of_the_checkpoint(memory: Memory) -> None:
    threads = memory.threads("test")
    memory.add(["a", "b", "c", "d"], ids=["a", "b", "c", "d"])
    memory.promote("a", "session", reason="test")
    memory.promote("c", "longterm", reason="test")
    threads.put(checkpoint("1"))
    memory.promote("a", "longterm", reason="test")
    memory.add("later", ids=["later"])
    memory.delete(["c", "d"])
    threads.put(checkpoint("2", "1"))
    assert threads.tiers_at("t", "", "1") == {"a": "session", "b": "task", "c": "longterm"}
    assert threads.tiers_at("t") == {"a": "longterm", "b": "task", "later": "task"}
    with pytest.raises(InvalidInputError, match="no checkpoint"):
        threads.tiers_at("t", "", "unknown")


def test_value_is_whole_whatever_another_handle_deleted_meanwhile(open_shared: OpenMemory) -> None:
    """Numbers of pieces are given again once pieces were deleted, here to others than the first handle knows."""
    one, other = open_shared(), open_shared()
    mine, theirs = one.threads("test"), other.threads("test")
    for round in range(4):
        mine.put(checkpoint("1", big=BIG[round:]))
        match round:
            case 0:
                theirs.delete("t")
                theirs.put(checkpoint("1", big=BIG[::-1]))
            case 1:
                theirs.put(checkpoint("2", "1", big=BIG[::-1]))
                theirs.prune(["t"])
                theirs.put(checkpoint("3", "2", big=BIG[:100_000][::-1] + b"x"))
            case 2:
                theirs.put(checkpoint("1", big=BIG[1000::-1]))
                theirs.delete_runs(["run of 1", "run of 2", "run of 3"])
        mine.put(checkpoint("4", "1", big=BIG[round + 1 :]))
        found = theirs.get("t", "", "4")
        assert found is not None
        assert found.values["big"].content == BIG[round + 1 :]
        assert other.check()


def test_failed_put_leaves_nothing(memory: Memory) -> None:
    threads = memory.threads("test")

    def fail(channel: str) -> Encoded:
        raise ValueError(channel)

    with pytest.raises(ValueError, match="asked"):
        threads.put(checkpoint("1", big=BIG), kept={"asked": 1}, encode=fail)
    assert threads.ids() == []
    assert threads.get("t") is None
    assert memory.check()


@pytest.mark.parametrize("metadata", [{"a": float("nan")}, {"a": object()}, {"a": b"x"}])
def test_metadata_that_is_not_json_is_refused(memory: Memory, metadata: dict[str, Any]) -> None:
    bad = ThreadCheckpoint(thread_id="t", id="1", head=Encoded("raw", b""), metadata=metadata)
    with pytest.raises(InvalidInputError, match="not JSON"):
        memory.threads("test").put(bad)


@pytest.mark.parametrize("name", ["", "it's", 'a"b', "nul\0in it", "🙂", "x" * 5000, "%", "-- drop", "a/b:c|d"])
def test_any_text_is_an_id(memory: Memory, name: str) -> None:
    threads = memory.threads("test")
    threads.put(checkpoint("1", thread=name, graph=name))
    threads.put_writes(name, name, "1", [write("task", value=b"w")])
    found = threads.get(name, name)
    assert found is not None
    assert (found.thread_id, found.graph, len(found.writes)) == (name, name, 1)
    threads.delete(name)
    assert threads.ids() == []


def test_id_that_is_no_unicode_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidInputError, match="lone surrogate"):
        memory.threads("test").put(checkpoint("1", thread="\ud800"))


@pytest.mark.parametrize("kind", ["lone \ud800 surrogate", None, 5])
def test_kind_that_cannot_be_stored_is_refused(open_memory, kind):
    with pytest.raises(InvalidInputError, match="kind"):
        open_memory().threads(kind)


@pytest.mark.parametrize(
    "call",
    [
        lambda threads, none: threads.get(none),
        lambda threads, none: threads.get("t", none),
        lambda threads, none: threads.get("t", "", none),
        lambda threads, none: list(threads.list(none)),
        lambda threads, none: list(threads.list("t", none)),
        lambda threads, none: list(threads.list("t", "", none)),
        lambda threads, none: list(threads.list(before=none)),
        lambda threads, none: threads.delete(none),
        lambda threads, none: threads.delete_runs([none]),
        lambda threads, none: threads.prune([none]),
    ],
)
def test_id_that_cannot_be_stored_is_not_there_or_refused(open_memory, call):
    threads = open_memory().threads("kind")
    threads.put(ThreadCheckpoint(thread_id="t", id="1", head=Encoded("bytes", b"h"), metadata={"run_id": "r"}))
    try:
        assert not call(threads, "lone \ud800 surrogate")
    except InvalidInputError as error:
        message = str(error)
        assert "surrogate" in message
    assert [each.id for each in threads.list("t")] == ["1"]
