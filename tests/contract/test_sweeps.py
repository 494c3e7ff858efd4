"""Sweeps, ends of sessions, fading and learning of many memories: part by part, others writing in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rlm_memory import Memory, Node, PromotionDecision, PromotionPolicy, lifecycle
from rlm_memory.engines import weighing
from rlm_memory.errors import StoreError
from support import SettableClock

OpenMemory = Callable[..., Memory]
MANY = 240


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that these are enough for a dozen transactions of one sweep."""
    monkeypatch.setattr(lifecycle, "_WEIGHED_AT_ONCE", 20)
    monkeypatch.setattr(lifecycle, "_CHANGED_AT_ONCE", 20)


def prove(memory: Memory, ids: list[str]) -> None:
    """Take what is in session to the brink of longterm: it has all but the confidence, where it lacks that."""
    for name in ("s1", "s2", "s3"):
        session = memory.session(name)
        session.record_access(ids)
        session.outcome(True)


def fill(memory: Memory, count: int = MANY) -> list[str]:
    """Add memories in session that a sweep has to weigh, and return their ids; every third is too doubtful to move."""
    ids = [f"{i:05}" for i in range(count)]
    memory.add([Node(text=id, id=id, tier="session", confidence=0.1 if int(id) % 3 else 0.9) for id in ids])
    prove(memory, ids)
    return ids


def sure(ids: list[str]) -> list[str]:
    return [id for id in ids if int(id) % 3 == 0]


def moved(memory: Memory) -> list[str]:
    """Return the ids of what the rules have moved, by the log."""
    decisions = [entry.decision for entry in memory.promotion_log()]
    return [decision.node_id for decision in decisions if decision.actor == "auto" and decision.moved]


def test_a_sweep_of_many_moves_each_once_and_the_next_one_nothing(memory: Memory) -> None:
    ids = fill(memory)
    expected = sure(ids)
    assert [decision.node_id for decision in memory.sweep(dry_run=True)] == expected
    assert moved(memory) == []
    assert [decision.node_id for decision in memory.sweep()] == expected
    assert memory.sweep() == []
    assert moved(memory) == expected
    assert memory.check()


def test_others_write_while_many_are_swept_and_what_they_change_is_judged_as_it_is_then(
    open_shared: OpenMemory,
) -> None:
    sweeping, other = open_shared(embedder=None), open_shared(embedder=None, sweep=False)
    ids = fill(sweeping)
    last = sure(ids)[-3:]
    decisions: list[PromotionDecision] = []
    thread = threading.Thread(target=lambda: decisions.extend(sweeping.sweep()))
    thread.start()
    try:
        while other.get(ids[0])[0].tier == "session" and thread.is_alive():
            pass
        other.update(last[0], confidence=0.1)
        other.delete(last[1])
        other.promote(last[2], "archive", reason="put away")
        other.update(ids[-2], confidence=0.9)  # among its accesses are doubtful ones: not enough
        slowest, writes = 0.0, 0
        while thread.is_alive() and writes < 30:
            start = time.monotonic()
            other.add("written in between")
            slowest = max(slowest, time.monotonic() - start)
            writes += thread.is_alive()
    finally:
        thread.join()
    assert writes >= 2, "others got no turn"
    assert slowest < 5, "the time-out of a write is 10 s"
    assert [decision.node_id for decision in decisions] == sure(ids)[:-3]
    assert sorted(moved(other)) == sure(ids)[:-3]
    assert [node.tier for node in other.get(last)] == ["session", "archive"]
    assert other.sweep() == []
    other.update(last[0], confidence=0.9)
    assert [decision.node_id for decision in other.sweep()] == last[:1]
    assert other.check()


def test_sweeps_by_two_policies_at_once_each_weigh_all(open_shared: OpenMemory) -> None:
    strict = PromotionPolicy(min_sessions=4)
    one, two = open_shared(embedder=None, sweep=False), open_shared(embedder=None, policy=strict, sweep=False)
    ids = fill(one)
    two.session("s4").record_access(ids[100:])
    threads = [threading.Thread(target=memory.sweep) for memory in (two, one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(moved(one)) == sure(ids)
    assert two.sweep() + one.sweep() + two.sweep() == []
    assert one.check()


@pytest.mark.parametrize("most_missed", [500, 2])
def test_sweeps_by_policies_that_take_turns_weigh_what_has_changed(
    open_shared: OpenMemory, monkeypatch: pytest.MonkeyPatch, most_missed: int
) -> None:
    monkeypatch.setattr(weighing, "_MOST_MISSED", most_missed)
    policies = PromotionPolicy(), PromotionPolicy(min_sessions=4, min_confidence=0.05)
    one, two = (open_shared(embedder=None, sweep=False, policy=policy) for policy in policies)
    ids = fill(one, 30)

    def left() -> list[int]:
        return [
            len(one._engine.ledger.to_weigh(policy.min_sessions, policy.rules_across_sessions).numbers)
            for policy in policies
        ]

    one.sweep()
    two.sweep()
    assert left() == [0, 0]
    used = ids[1:3] + ids[4:6]  # not those that have gone to longterm
    two.session("s4").record_access(used)
    two.lifecycle.write_down()
    assert left() == [4, 4]
    assert one.sweep() == []
    assert left()[0] == 0
    assert left()[1] == 4  # four that changed, or all that have been in four sessions
    assert [decision.node_id for decision in two.sweep()] == used
    assert one.sweep() + two.sweep() == []
    assert left() == [0, 0]


def test_memories_in_longterm_are_archived_part_by_part(open_memory: OpenMemory, clock: SettableClock) -> None:
    memory = open_memory(embedder=None)
    ids = [f"{i:05}" for i in range(60)]
    memory.add([Node(text=id, id=id, tier="longterm") for id in ids])
    memory.pin(ids[30])
    clock.advance(days=91)
    assert [decision.node_id for decision in memory.sweep()] == ids[:30] + ids[31:]
    assert memory.count(tiers=["archive"]) == 59
    assert memory.sweep() == []


def test_crashed_sessions_end_in_parts_and_one_that_goes_on_does_not(
    open_memory: OpenMemory, clock: SettableClock
) -> None:
    memory = open_memory(embedder=None)
    ids = fill(memory, 60)
    for number in range(30):
        memory.session(f"small {number}").record_access(ids[1])
    clock.advance(hours=25)
    memory.session("s2").record_access(ids[2])
    assert [decision.node_id for decision in memory.sweep()] == sure(ids)
    refused = [entry.decision for entry in memory.promotion_log() if not entry.decision.moved]
    assert len({(each.node_id, each.session_id) for each in refused}) == len(refused) == 2 * 40 + 30
    still_open = [session.id for session in memory.sessions(limit=1000) if session.ended_at is None]
    assert still_open == ["s2"]
    assert memory.sweep() == []


def test_opening_leaves_what_takes_long_to_the_next_opening(
    open_shared: OpenMemory, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_shared(embedder=None, sweep=False)
    ids = fill(memory)
    memory.close()
    monkeypatch.setattr(lifecycle, "_SWEEP_ON_OPEN", 0)
    counts = []
    for _ in range(15):
        memory = open_shared(embedder=None)
        counts.append(len(moved(memory)))
        memory.close()
    assert 0 < counts[0] < counts[1] < len(sure(ids)) == counts[-1]
    assert counts == sorted(counts)
    memory = open_shared(embedder=None)
    assert moved(memory) == sure(ids)
    assert memory.sweep() == []


def in_between(memory: Memory, call: Callable[[], object], *, until: Callable[[], bool]) -> int:
    """Make a call beside this thread, and write with this memory meanwhile; return how often that was."""
    thread = threading.Thread(target=call)
    thread.start()
    writes = 0
    try:
        while thread.is_alive() and not until():
            pass
        while thread.is_alive() and writes < 30:
            memory.add("written in between")
            writes += thread.is_alive()
    finally:
        thread.join()
    return writes


def test_a_session_that_used_many_ends_part_by_part_with_each_decision_once(open_shared: OpenMemory) -> None:
    ending, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = fill(ending)
    decisions: list[PromotionDecision] = []
    writes = in_between(
        other,
        lambda: decisions.extend(ending.session("s3").end()),
        until=lambda: other.get(ids[0])[0].tier == "longterm",
    )
    assert writes >= 2, "others got no turn"
    assert [decision.node_id for decision in decisions] == ids
    assert [decision.node_id for decision in decisions if decision.moved] == sure(ids) == moved(other)
    refused = [entry.decision.node_id for entry in other.promotion_log() if not entry.decision.moved]
    assert sorted(refused) == [id for id in ids if id not in sure(ids)]
    (ended,) = [session for session in other.sessions() if session.id == "s3"]
    assert ended.ended_at is not None
    assert len(ending.session("s3").end()) == len(refused)
    assert len([entry for entry in other.promotion_log() if not entry.decision.moved]) == len(refused)
    assert other.check()


def test_a_session_that_is_used_while_it_ends_stays_open_and_all_it_used_before_is_decided_on(
    open_shared: OpenMemory, clock: SettableClock
) -> None:
    ending, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = fill(ending)
    decisions: list[PromotionDecision] = []
    thread = threading.Thread(target=lambda: decisions.extend(ending.session("s3").end()))
    thread.start()
    try:
        while other.get(ids[0])[0].tier == "session" and thread.is_alive():
            pass
        other.session("s3").record_access(ids[-1])
        other.lifecycle.write_down()
    finally:
        thread.join()
    assert [decision.node_id for decision in decisions] == ids
    assert [session.ended_at for session in other.sessions() if session.id == "s3"] == [None]
    clock.advance(hours=25)
    other.sweep()
    assert None not in [session.ended_at for session in other.sessions()]
    assert sorted(moved(other)) == sure(ids)


@pytest.mark.parametrize("call", ["sweep", "end"])
def test_an_error_tells_what_was_carried_out_before_it_and_the_next_call_goes_on(
    open_shared: OpenMemory, call: str
) -> None:
    def decisions_of(memory: Memory) -> list[PromotionDecision]:
        return memory.sweep() if call == "sweep" else memory.session("s3").end()

    memory, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = fill(memory)
    raised: list[StoreError] = []

    def interrupted() -> None:
        try:
            decisions_of(memory)
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=interrupted)
    thread.start()
    try:
        while other.get(ids[0])[0].tier == "session" and thread.is_alive():
            pass
        memory.close()
    finally:
        thread.join()
    (error,) = raised
    before = [decision.node_id for decision in error.decisions if decision.moved]
    assert 0 < len(before) < len(sure(ids))
    assert before == moved(other)
    after = [decision.node_id for decision in decisions_of(other) if decision.moved]
    assert before + after == sure(ids) == moved(other)
    with pytest.raises(StoreError) as nothing_done:
        decisions_of(memory)
    assert nothing_done.value.decisions == ()
    assert other.check()


def test_many_fade_part_by_part_each_once(open_shared: OpenMemory, clock: SettableClock) -> None:
    fading, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = [f"{i:05}" for i in range(MANY)]
    fading.add([Node(text=id, id=id, confidence=0.9) for id in ids])
    fading.pin(ids[100])
    clock.advance(days=10)
    counts: list[int] = []
    writes = in_between(
        other, lambda: counts.append(fading.decay()), until=lambda: other.get(ids[0])[0].confidence < 0.9
    )
    assert writes >= 2, "others got no turn"
    assert counts == [MANY - 1]
    faded = {node.id: node.confidence for node in fading.get(ids)}
    assert faded.pop(ids[100]) == 0.9
    assert faded == pytest.approx(dict.fromkeys(faded, 0.9 * 0.99**10))
    assert fading.decay() == 0


@pytest.mark.parametrize("call", ["decay", "learn"])
def test_fading_and_learning_that_are_interrupted_go_on_with_the_next_call(
    open_shared: OpenMemory, clock: SettableClock, call: str
) -> None:
    memory, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = [f"{i:05}" for i in range(MANY)]
    memory.add([Node(text=id, id=id, confidence=0.5) for id in ids])
    memory.session("s1").record_access(ids)
    memory.session("s1").outcome(True)
    clock.advance(days=10)
    raised: list[StoreError] = []

    def interrupted() -> None:
        try:
            getattr(memory, call)()
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=interrupted)
    thread.start()
    try:
        while other.get(ids[0])[0].confidence == 0.5 and thread.is_alive():
            pass
        memory.close()
    finally:
        thread.join()
    assert len(raised) == 1
    changed = sum(node.confidence != 0.5 for node in other.get(ids))
    assert 0 < changed < MANY
    assert getattr(other, call)() == MANY - changed
    expected = 0.6 if call == "learn" else 0.5 * 0.99**10
    assert [node.confidence for node in other.get(ids)] == pytest.approx([expected] * MANY)


def test_a_memory_that_is_used_while_others_fade_does_not_fade_after_it(
    open_shared: OpenMemory, clock: SettableClock
) -> None:
    fading, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = [f"{i:05}" for i in range(MANY)]
    fading.add([Node(text=id, id=id, confidence=0.9) for id in ids])
    clock.advance(days=10)
    thread = threading.Thread(target=fading.decay)
    thread.start()
    try:
        while other.get(ids[0])[0].confidence == 0.9 and thread.is_alive():
            pass
        other.update(ids[-1], confidence=0.5)
    finally:
        thread.join()
    assert other.get(ids[-1])[0].confidence == 0.5
    assert fading.decay() == 0


def test_many_outcomes_are_learned_part_by_part_in_their_order_each_once(open_shared: OpenMemory) -> None:
    learning, other = open_shared(embedder=None, sweep=False), open_shared(embedder=None, sweep=False)
    ids = [f"{i:05}" for i in range(MANY // 2)]
    learning.add([Node(text=id, id=id, confidence=0.9) for id in ids])
    for success in (False, True, True):  # 0.9, 0.7, 0.8, 0.9; in another order the top would cut some of it off
        session = learning.session(f"{success}")
        session.record_access(ids)
        session.outcome(success, ids)
        learning.session("another").record_access(ids)
        learning.session("another").outcome(success)
    counts: list[int] = []
    writes = in_between(
        other, lambda: counts.append(learning.learn()), until=lambda: other.get(ids[0])[0].confidence < 0.9
    )
    expected = learning.get(ids[0])[0].confidence
    assert writes >= 2, "others got no turn"
    assert len({node.confidence for node in learning.get(ids)}) == 1
    assert expected == 0.9
    assert counts == [6 * len(ids)]
    assert learning.learn() == 0
