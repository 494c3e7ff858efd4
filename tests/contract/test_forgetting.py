"""Single accesses that are forgotten, their sums that stay, and sweeps that weigh only what has changed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rlm_memory import ForgottenAccesses, Memory, PromotionPolicy, lifecycle
from support import SettableClock
from use_history import IDS, KINDS, SESSIONS, Step, begin, decided, play


def climb(memory: Memory, clock: SettableClock, id: str = "ada") -> None:
    """Use a node in three sessions, a day each, and let each succeed: it rises to longterm."""
    for name in ("s1", "s2", "s3"):
        with memory.session(name) as session:
            session.record_access(id)
            clock.advance(hours=1)
            session.record_access(id)
            session.outcome(True)
        clock.advance(days=1)


@pytest.fixture
def filled(memory: Memory) -> Memory:
    begin(memory)
    return memory


def test_a_sweep_forgets_old_accesses_and_keeps_their_sums(filled: Memory, clock: SettableClock) -> None:
    began = clock.now
    climb(filled, clock)
    [node] = filled.get("ada")
    filled.update("ada", confidence=0.5)
    clock.advance(days=87)
    assert filled.sweep() == []
    assert len(filled.accesses("ada")) == 4, "s1 ended more than 90 days ago"
    assert filled.forgotten_accesses("ada") == [
        ForgottenAccesses(
            node_id="ada",
            session_id="s1",
            accesses=2,
            first_at=began,
            last_at=began + timedelta(hours=1),
            lowest_confidence=0.9,
        )
    ]
    clock.advance(days=30)
    filled.sweep()
    assert filled.accesses("ada") == []
    assert [(each.session_id, each.accesses) for each in filled.forgotten_accesses("ada")] == [
        ("s1", 2), ("s2", 2), ("s3", 2),
    ]  # fmt: skip
    [later] = filled.get("ada")
    assert (later.access_count, later.last_accessed) == (node.access_count, node.last_accessed)
    assert filled.check()


def test_decisions_stay_explained_when_their_accesses_are_forgotten(
    open_memory: Callable[..., Memory], clock: SettableClock
) -> None:
    memory = open_memory(policy=PromotionPolicy(archive_after_days=math.inf))
    begin(memory)
    climb(memory, clock)
    memory.session("s4").record_access(["ada", "bo"])
    clock.advance(days=200)
    memory.sweep()  # ends s4
    log = list(memory.promotion_log())
    before = [(memory.explain_promotion(id), memory.get(id)) for id in IDS]
    memory.sweep()
    assert memory.accesses("ada") == memory.accesses("bo") == []
    assert list(memory.promotion_log()) == log
    assert [(memory.explain_promotion(id), memory.get(id)) for id in IDS] == before
    named = {(entry.decision.node_id, entry.decision.session_id) for entry in log if entry.decision.session_id}
    assert named
    for id, session_id in named:
        assert session_id in {each.session_id for each in memory.forgotten_accesses(id)}


@pytest.mark.parametrize(("days", "kept"), [(None, 6), (math.inf, 6), (0, 0), (2, 2)])
def test_the_policy_tells_for_how_long_accesses_are_kept(
    open_memory: Callable[..., Memory], clock: SettableClock, days: float | None, kept: int
) -> None:
    memory = open_memory(policy=PromotionPolicy(keep_accesses_days=days))
    begin(memory)
    climb(memory, clock)
    clock.advance(hours=1)
    memory.sweep()
    assert len(memory.accesses("ada")) == kept


def test_accesses_of_a_session_that_goes_on_are_not_forgotten(
    open_memory: Callable[..., Memory], clock: SettableClock
) -> None:
    memory = open_memory(policy=PromotionPolicy(session_idle_hours=math.inf))
    begin(memory)
    memory.session("s1").record_access("ada")
    clock.advance(days=500)
    memory.sweep()
    assert len(memory.accesses("ada")) == 1


def test_a_dry_run_forgets_nothing(filled: Memory, clock: SettableClock) -> None:
    climb(filled, clock)
    clock.advance(days=500)
    filled.sweep(dry_run=True)
    assert len(filled.accesses("ada")) == 6


def test_an_outcome_that_comes_late_is_attached_to_what_is_forgotten(filled: Memory, clock: SettableClock) -> None:
    for name in ("s1", "s2"):
        with filled.session(name) as session:
            session.record_access(["ada", "bo"])
    clock.advance(days=100)
    filled.sweep()
    assert filled.accesses("ada") == []
    assert filled.session("s1").outcome(True) == 2
    assert filled.session("s1").outcome(True) == 0, "all is judged"
    assert filled.session("s1").outcome(False, "bo") == 1, "named, it is judged again"
    assert filled.session("s2").outcome(True, "ada") == 1
    assert filled.session("s2").outcome(True) == 1, "bo alone was left"
    found = {condition.name: condition.found for condition in filled.explain_promotion("ada").conditions}
    assert found.get("successful outcomes", 2) == 2


def test_a_run_that_waits_for_its_outcome_is_not_forgotten_and_one_that_has_it_can_be_corrected(
    filled: Memory, clock: SettableClock
) -> None:
    with filled.session("s1") as session:
        session.record_access("ada", run_id="told")
        session.outcome(True, run_id="told")
        session.record_access("bo", run_id="waits")
    clock.advance(days=100)
    filled.sweep()
    assert filled.accesses("ada") == []
    assert [access.run_id for access in filled.accesses("bo")] == ["waits"]
    assert filled.session("s1").outcome(False, run_id="told") == 1
    assert filled.session("s1").outcome(True, run_id="waits") == 1
    filled.sweep()
    assert filled.accesses("bo") == []
    assert filled.session("s1").outcome(False, run_id="unknown") == 0


def test_a_run_that_was_passed_over_is_forgotten_when_its_session_is_judged(
    filled: Memory, clock: SettableClock
) -> None:
    with filled.session("s1") as session:
        session.record_access("ada", run_id="waits")
    clock.advance(days=100)
    filled.sweep()
    assert len(filled.accesses("ada")) == 1
    assert filled.session("s1").outcome(True) == 1
    filled.sweep()
    assert filled.accesses("ada") == []
    assert [forgotten.accesses for forgotten in filled.forgotten_accesses("ada")] == [1]


def test_deleting_a_node_deletes_the_sums_of_its_accesses(filled: Memory, clock: SettableClock) -> None:
    climb(filled, clock)
    clock.advance(days=500)
    filled.sweep()
    filled.delete("ada")
    filled.add("another Ada", ids=["ada"])
    assert filled.forgotten_accesses("ada") == []
    assert filled.check()


def test_what_stays_of_forgotten_accesses_is_exported_with_the_runs_they_belonged_to(
    open_memory: Callable[..., Memory], clock: SettableClock, tmp_path: Path
) -> None:
    memory = open_memory(namespace="here")
    begin(memory)
    with memory.session("s1") as session:
        session.record_access("ada", run_id="r1")
        session.record_access("ada")
        session.outcome(True, run_id="r1")
    clock.advance(days=100)
    memory.sweep()
    memory.export(tmp_path / "here.jsonl")
    other = open_memory(namespace="there")
    other.import_(tmp_path / "here.jsonl")
    assert other.accesses("ada") == []
    assert other.forgotten_accesses("ada") == memory.forgotten_accesses("ada")
    assert other.explain_promotion("ada") == memory.explain_promotion("ada")
    assert other.session("s1").outcome(False, run_id="r1") == 1, "the run is known by its name"
    assert other.session("s1").outcome(False) == 1
    assert other.check()


def test_opening_a_store_forgets_too(open_shared: Callable[..., Memory], clock: SettableClock) -> None:
    memory = open_shared()
    begin(memory)
    climb(memory, clock)
    memory.close()
    clock.advance(days=500)
    again = open_shared()
    assert again.accesses("ada") == []
    assert sum(each.accesses for each in again.forgotten_accesses("ada")) == 6


def test_opening_leaves_what_it_has_no_time_to_forget_to_a_sweep(
    open_shared: Callable[..., Memory], clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_FORGOTTEN_AT_ONCE", 2)
    monkeypatch.setattr(lifecycle, "_SWEEP_ON_OPEN", 0)
    policy = PromotionPolicy(archive_after_days=math.inf)
    memory = open_shared(sweep=False)
    begin(memory)
    climb(memory, clock)
    memory.sweep()
    clock.advance(days=500)
    memory = open_shared(policy=policy)
    assert len(memory.accesses("ada")) == 4
    memory.sweep()
    assert memory.accesses("ada") == []
    assert sum(each.accesses for each in memory.forgotten_accesses("ada")) == 6


def test_more_is_forgotten_than_fits_in_one_transaction(filled: Memory, clock: SettableClock) -> None:
    with filled.session("s1") as session:
        for _ in range(1700):
            session.record_access(list(IDS))
    clock.advance(days=100)
    filled.sweep()
    assert [sum(each.accesses for each in filled.forgotten_accesses(id)) for id in IDS] == [1700] * 3
    assert filled.accesses("ada") == []


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_leads_to_the_same_decisions_with_and_without_forgetting(
    open_memory: Callable[..., Memory], clock: SettableClock, seed: int
) -> None:
    chance = random.Random(seed)
    history = [
        Step(
            chance.choice(KINDS),
            hours=chance.choice([0, 1, 30, 500]),
            session=chance.choice(SESSIONS),
            ids=tuple(chance.sample(IDS, chance.randint(1, 3))),
            run=chance.random() < 0.4,
            success=chance.random() < 0.8,
            confidence=chance.choice([0.7, 0.85, 0.95]),
        )
        for _ in range(80)
    ]
    ends = []
    began = clock.now
    for days in (None, 5):
        clock.now = began
        memory = open_memory(namespace=f"kept for {days}", policy=PromotionPolicy(keep_accesses_days=days))
        begin(memory)
        play(memory, clock, history)
        ends.append(decided(memory))
    assert ends[0] == ends[1]


# -- what a sweep weighs --------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(filled: Memory, clock: SettableClock) -> Memory:
    """A store with a node in session that has all but the confidence for longterm, and was weighed by a sweep."""
    filled.update("ada", confidence=0.85)
    filled.promote("ada", "session", reason="begin")
    for name in ("s1", "s2", "s3"):
        session = filled.session(name)
        session.record_access("ada")
        session.outcome(True)
    filled.update("ada", confidence=0.1)
    assert filled.sweep() == []
    return filled


@pytest.mark.parametrize("change", ["update", "add", "learn", "other rules"])
def test_a_sweep_weighs_anew_what_has_changed(
    waiting: Memory, open_memory: Callable[..., Memory], clock: SettableClock, change: str
) -> None:
    memory = waiting
    match change:
        case "update":
            memory.update("ada", confidence=0.9)
        case "add":
            memory.add("what ada said", ids=["ada"], confidence=0.9)
        case "learn":
            memory.update("ada", confidence=0.6)
            assert memory.sweep() == []
            assert memory.learn() == 3
        case "other rules":
            assert memory.sweep() == []
            if memory.location == ":memory:":
                pytest.skip("a store in memory has one policy")
            memory = open_memory(policy=PromotionPolicy(min_confidence=0.05))
    memory.sweep()
    assert memory.get("ada")[0].tier == "longterm"


def test_an_outcome_that_turns_is_weighed_by_the_next_sweep(filled: Memory) -> None:
    filled.promote("ada", "session", reason="begin")
    for name in ("s1", "s2", "s3"):
        session = filled.session(name)
        session.record_access("ada", run_id=name)
        session.outcome(False, run_id=name)
    assert filled.sweep() == []
    for name in ("s1", "s2"):
        filled.session(name).outcome(True, run_id=name)
    assert [decision.node_id for decision in filled.sweep()] == ["ada"]


def test_a_use_is_weighed_by_the_next_sweep_and_a_dry_run_leaves_it_to_that(filled: Memory) -> None:
    filled.promote("ada", "session", reason="begin")
    for name in ("s1", "s2"):
        filled.session(name).record_access("ada")
        filled.session(name).outcome(True)
    assert filled.sweep() == []
    filled.session("s3").record_access("ada")
    assert [decision.moved for decision in filled.sweep(dry_run=True)] == [True]
    assert [decision.moved for decision in filled.sweep(dry_run=True)] == [True]
    assert [decision.node_id for decision in filled.sweep()] == ["ada"]
