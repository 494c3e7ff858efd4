"""A namespace with something of every kind in it, and all that it answers: to see that it was moved whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlm_memory import Memory
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite
from support import SettableClock

LARGE = bytes(number * number % 251 for number in range(60_000))
TEXTS = {
    "ada": "Ada likes green tea", "bo": "Bo lives in Rome", "cy": "Cy plays the cello", "dup": "Ada likes green tea",
    "nul\0id": "text with a NUL \0 and 设备", "gone": "what is deleted", "pending": "has no vector",
}  # fmt: skip


def filled(memory: Memory, clock: SettableClock) -> None:
    """Fill a namespace whose store has this clock."""
    memory.add(list(TEXTS.values()), ids=list(TEXTS), confidence=0.9, compute_embedding=[*[True] * 6, False],
               metadatas=[{"n": number, "deep": [{"x": None}]} for number in range(7)])  # fmt: skip
    assert memory.consolidate() == {"ada": ["dup"]}
    _checkpoint(memory, "first", None)
    for number in range(1, 4):
        clock.advance(hours=1)
        with memory.session(f"s{number}") as session:
            session.record_access(["ada", "bo"], run_id=f"run {number}")
            session.record_access("ada")
            session.record_access(["cy", "nul\0id"])
            session.outcome(number != 2, run_id=f"run {number}")
            session.outcome(True, ["ada"])
        _checkpoint(memory, f"after {number}", "first" if number == 1 else f"after {number - 1}")
    clock.advance(days=1)
    memory.session("open").record_access(["bo", "cy"])
    memory.promote("bo", "longterm", reason="told so")
    memory.promote("bo", "task", reason="told otherwise")
    memory.pin("cy")
    memory.learn()
    clock.advance(days=3)
    memory.unpin("cy")
    memory.decay()
    memory.session("open").outcome(True, run_id=None)
    memory.promote("gone", "archive", reason="old")
    memory.delete("gone")
    memory.add("late", ids=["late"], tier="longterm")
    memory.conversations.append("chat", [{"says": "a\n\u2028b"}, None, "c\0"])
    memory.conversations.archive_oldest("chat", 1)
    memory.conversations.append("other", [1.5, 10**22])
    memory.key_values("settings").put({"b": {"x": 1}, "a": ["\ud800", None, 1e22], "nul\0": ""})
    memory.key_values("").put({"": None})
    memory.key_values("settings").put({"b": "again"})
    threads = memory.threads("graph")
    threads.put_writes("early", "", "not there yet", [_write("w", LARGE), _write("x", b"small", place=-3)])
    threads.put_writes("t\0", "", "last", [_write("fails", b"so", place=place) for place in (-1, -2)])  # hash alike
    threads.put(_state("thread 2", "1", None, {"run_id": "r"}, big=LARGE[::-1]))
    memory.threads("other kind").put(_state("thread 2", "1", None, {}, big=LARGE))
    _checkpoint(memory, "last", "after 3")


def _checkpoint(memory: Memory, id: str, parent: str | None) -> None:
    threads = memory.threads("graph")
    threads.put(_state("t\0", id, parent, {"step": id, "deep": {"x": [None]}}, big=LARGE + id.encode(), small=b"s"))
    threads.put_writes("t\0", "", id, [_write("task", LARGE[:9000]), _write("task", b"", place=1)])


def _state(thread: str, id: str, parent: str | None, metadata: dict[str, Any], **values: bytes) -> ThreadCheckpoint:
    return ThreadCheckpoint(
        thread_id=thread,
        id=id,
        parent_id=parent,
        graph="inner" if thread == "thread 2" else "",
        head=Encoded("raw", b"head \0"),
        metadata=metadata,
        values={name: Encoded("raw", content) for name, content in values.items()},
        versions=dict(zip(values, ["v", 2.5] if len(values) > 1 else [7], strict=True)),
    )


def _write(task: str, content: bytes, *, place: int = 0) -> ThreadWrite:
    return ThreadWrite(task_id=task, place=place, channel="c", task_path="~p", value=Encoded("raw", content))


def answers(memory: Memory) -> dict[str, Any]:
    """Return all that a namespace answers, but for numbers that are a store's own."""
    nodes = memory.list(include_archived=True, limit=10_000)
    ids = [node.id for node in nodes if node.id in (*TEXTS, "late")]
    kinds = {kind: memory.threads(kind) for kind in ("graph", "other kind")}
    return {
        "nodes": [replace(node, namespace="") for node in nodes],
        "explained": [memory.explain_promotion(id) for id in ids],
        "log": [entry.decision for entry in memory.promotion_log()],
        "sessions": memory.sessions(),
        "accesses": {id: memory.accesses(id) for id in ids},
        "links": {id: memory.links(id) for id in ids},
        "candidates": memory.candidates(),
        "timeline": memory.timeline(),
        "conversations": {
            key: [(each.content, each.status, each.created_at) for each in memory.conversations.list(key)]
            for key in memory.conversations.keys()  # noqa: SIM118 - no dict
        },
        "key-values": {name: list(memory.key_values(name).items()) for name in ("settings", "")},
        "threads": {kind: threads.ids() for kind, threads in kinds.items()},
        "checkpoints": {kind: [replace(each, sequence=0) for each in of_it.list()] for kind, of_it in kinds.items()},
        "tiers then": {
            each.id: kinds["graph"].tiers_at(each.thread_id, each.graph, each.id) for each in kinds["graph"].list()
        },
        "found": [(hit.id, round(hit.score, 4)) for hit in memory.search("green tea", k=5)],
    }


def goes_on(memory: Memory, clock: SettableClock) -> dict[str, Any]:
    """Return what becomes of a namespace that is used further: what no reading shows is in it."""
    clock.advance(days=2)
    memory.threads("graph").put(_state("early", "not there yet", None, {}, big=LARGE))
    arrived = memory.threads("graph").get("early", "", "not there yet")
    learned, faded = memory.learn(), memory.decay()
    with memory.session("open") as session:
        session.record_access(["cy", "bo"], run_id="run 9")
        judged = session.outcome(True)
    swept = memory.sweep()
    later = answers(memory)
    del later["accesses"]  # they name the process that counts the turns
    return {
        "arrived": arrived and arrived.writes, "learned": learned, "faded": faded, "judged": judged,
        "swept": swept, "sound": list(memory.check()), **later,
    }  # fmt: skip
