"""The rules of the tiers: scenarios as a table, then what holds for any history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.errors import InvalidInputError
from rlm_memory.promotion import (
    FIRST_HASH,
    PromotionPolicy,
    Usage,
    confidence_after,
    decayed,
    decide_after_session,
    decide_after_use,
    decide_in_sweep,
    entry_hash,
    explain,
    first_broken,
)
from rlm_memory.records import TIERS, Access, Condition, LogEntry, Node, PromotionDecision, Tier
from use_model import Outcome, usage_of

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = PromotionPolicy()
Moment = Literal["use", "session end", "sweep"]
MOMENTS: tuple[Moment, ...] = ("use", "session end", "sweep")


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def access(session: str, turn: int = 1, at: float = 0, confidence: float = 0.9, run: str | None = None) -> Access:
    return Access(node_id="n", session_id=session, turn=turn, at=day(at), confidence=confidence, run_id=run)


def outcome(success: bool, session: str = "s1", at: float = 0, run: str | None = None) -> Outcome:
    return Outcome(session_id=session, success=success, at=day(at), run_id=run)


def node(tier: Tier, confidence: float = 0.9, pinned: bool = False) -> Node:
    return Node(id="n", text="t", tier=tier, confidence=confidence, pinned=pinned, created_at=START)


def decide(moment: Moment, subject: Node, usage: Usage, policy: PromotionPolicy, now: datetime) -> Any:
    match moment:
        case "use":
            return decide_after_use(subject, usage, policy, session_id="s9", at=now)
        case "session end":
            return decide_after_session(subject, usage, policy, session_id="s9", at=now)
        case "sweep":
            return decide_in_sweep(subject, usage, policy, now=now)


THREE = (access("s1", at=0), access("s2", at=1), access("s3", at=2))
GOOD, BAD = outcome(True), outcome(False)


@dataclass(frozen=True)
class Scenario:
    name: str
    moment: Moment
    tier: Tier
    to: Tier | Literal["stays", "no rule"]
    accesses: tuple[Access, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    confidence: float = 0.9
    pinned: bool = False
    now: float = 3
    moved: float | None = None
    policy: PromotionPolicy = POLICY
    missing: tuple[str, ...] = field(default=())


LOWEST = "lowest confidence in its last 3 sessions and now"
USES, SESSIONS, SUCCESSES, FAILURES = (
    "uses in one session",
    "distinct sessions",
    "successful outcomes",
    "failed outcomes",
)

SCENARIOS = [
    # task -> session
    Scenario("one use", "use", "task", "stays", (access("s1"),), missing=(USES,)),
    Scenario("two turns of one session", "use", "task", "session", (access("s1", 1), access("s1", 2))),
    Scenario("two hits in one turn", "use", "task", "stays", (access("s1", 1), access("s1", 1)), missing=(USES,)),
    Scenario("one use in each of two sessions", "use", "task", "stays", THREE[:2], missing=(USES,)),
    Scenario("confidence does not matter yet", "use", "task", "session", (access("s1", 1), access("s1", 2)),
             confidence=0),
    Scenario("pinned rises too", "use", "task", "session", (access("s1", 1), access("s1", 2)), pinned=True),
    Scenario("three wanted", "use", "task", "stays", (access("s1", 1), access("s1", 2)),
             policy=PromotionPolicy(min_uses=3), missing=(USES,)),
    Scenario("task at session end", "session end", "task", "no rule", THREE, (GOOD,)),
    Scenario("task in a sweep", "sweep", "task", "no rule", THREE, (GOOD,), now=1000),
    # session -> longterm
    Scenario("all conditions", "session end", "session", "longterm", THREE, (GOOD,)),
    Scenario("all conditions, in a sweep", "sweep", "session", "longterm", THREE, (GOOD,)),
    Scenario("not at a use", "use", "session", "no rule", THREE, (GOOD,)),
    Scenario("two sessions", "session end", "session", "stays", THREE[:2], (GOOD,), missing=(SESSIONS,)),
    Scenario("many uses in two sessions", "session end", "session", "stays",
             (*THREE[:2], access("s1", 2), access("s1", 3)), (GOOD,), missing=(SESSIONS,)),
    Scenario("never judged", "session end", "session", "stays", THREE, missing=(SUCCESSES,)),
    Scenario("a failure alone", "session end", "session", "stays", THREE, (BAD,), missing=(SUCCESSES, FAILURES)),
    Scenario("as many failures as successes", "session end", "session", "stays", THREE, (GOOD, BAD),
             missing=(FAILURES,)),
    Scenario("one success more", "session end", "session", "longterm", THREE, (GOOD, BAD, GOOD)),
    Scenario("exactly 0.8", "session end", "session", "longterm",
             tuple(replace(a, confidence=0.8) for a in THREE), (GOOD,), confidence=0.8),
    Scenario("just under 0.8 once", "session end", "session", "stays",
             (replace(THREE[0], confidence=0.7999), *THREE[1:]), (GOOD,), missing=(LOWEST,)),
    Scenario("confident now, doubtful at an access", "session end", "session", "stays",
             (*THREE[:2], access("s3", 1, 2, 0.5), access("s3", 2, 2, 0.95)), (GOOD,), missing=(LOWEST,)),
    Scenario("doubtful now", "session end", "session", "stays", THREE, (GOOD,), confidence=0.5, missing=(LOWEST,)),
    Scenario("doubtful before the last three sessions", "session end", "session", "longterm",
             (access("s0", at=-9, confidence=0.1), *THREE), (GOOD,)),
    Scenario("a doubtful old session used again last", "session end", "session", "stays",
             (access("s0", at=-9, confidence=0.1), *THREE, access("s0", 2, 2.5)), (GOOD,), missing=(LOWEST,)),
    Scenario("failure corrected by feedback", "session end", "session", "longterm", THREE,
             (outcome(False, run="r", at=1), outcome(True, run="r", at=2))),
    Scenario("success corrected by feedback", "session end", "session", "stays", THREE,
             (outcome(True, run="r", at=1), outcome(False, run="r", at=2)), missing=(SUCCESSES, FAILURES)),
    Scenario("pinned proves itself too", "session end", "session", "longterm", THREE, (GOOD,), pinned=True),
    Scenario("unused for long is promoted, not archived", "sweep", "session", "longterm", THREE, (GOOD,), now=1000),
    Scenario("unused for long stays", "sweep", "session", "stays", THREE[:1], now=1000, missing=(SESSIONS, SUCCESSES)),
    Scenario("no outcomes asked for", "session end", "session", "longterm", THREE,
             policy=PromotionPolicy(min_successes=0)),
    Scenario("no outcomes asked for, a failure", "session end", "session", "stays", THREE, (BAD,),
             policy=PromotionPolicy(min_successes=0), missing=(FAILURES,)),
    Scenario("every number changed", "session end", "session", "longterm", THREE[2:], (GOOD, GOOD), confidence=0.3,
             policy=PromotionPolicy(min_sessions=1, min_successes=2, min_confidence=0.3, confident_sessions=1)),
    # longterm -> archive
    Scenario("used 91 days ago", "sweep", "longterm", "archive", (access("s1", at=9),), now=100),
    Scenario("exactly 90 days", "sweep", "longterm", "stays", (access("s1", at=10),), now=100,
             missing=("days unused",)),
    Scenario("a millisecond over 90 days", "sweep", "longterm", "archive", (access("s1", at=10),),
             now=100 + 1 / 86_400_000),
    Scenario("used today", "sweep", "longterm", "stays", (access("s1"), access("s2", at=100)), now=100,
             missing=("days unused",)),
    Scenario("pinned", "sweep", "longterm", "stays", THREE, pinned=True, now=1000, missing=("pinned",)),
    Scenario("pinned and used", "sweep", "longterm", "stays", THREE, pinned=True, now=3,
             missing=("days unused", "pinned")),
    Scenario("never used, added 91 days ago", "sweep", "longterm", "archive", now=91),
    Scenario("never used, added 90 days ago", "sweep", "longterm", "stays", now=90, missing=("days unused",)),
    Scenario("just restored", "sweep", "longterm", "stays", THREE, now=1000, moved=999, missing=("days unused",)),
    Scenario("restored and unused again", "sweep", "longterm", "archive", THREE, now=1000, moved=909),
    Scenario("the clock went back", "sweep", "longterm", "stays", THREE, now=-500, missing=("days unused",)),
    Scenario("not at session end", "session end", "longterm", "no rule", THREE, now=1000),
    Scenario("not at a use", "use", "longterm", "no rule", THREE, now=1000),
    Scenario("a week is enough", "sweep", "longterm", "archive", now=8, policy=PromotionPolicy(archive_after_days=7)),
    Scenario("never archived", "sweep", "longterm", "stays", now=10**6,
             policy=PromotionPolicy(archive_after_days=math.inf), missing=("days unused",)),
    # the archive
    *(Scenario("no way out by a rule", m, "archive", "no rule", (*THREE, access("s1", 2)), (GOOD,)) for m in MOMENTS),
]  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: f"{case.moment}, {case.tier}: {case.name}")
def test_scenario(case: Scenario):
    """B165"""
    moved_at = None if case.moved is None else day(case.moved)
    usage = usage_of(case.accesses, case.outcomes, moved_at=moved_at)
    subject = node(case.tier, case.confidence, case.pinned)
    decision = decide(case.moment, subject, usage, case.policy, day(case.now))
    if case.to == "no rule":
        assert decision is None
        return
    assert decision.moved is (case.to != "stays")
    assert tuple(condition.name for condition in decision.missing) == case.missing
    assert (decision.node_id, decision.from_tier, decision.actor, decision.at) == (
        "n",
        case.tier,
        "auto",
        day(case.now),
    )
    assert decision.session_id == (None if case.moment == "sweep" else "s9")
    if decision.moved:
        assert decision.to_tier == case.to


def test_a_decision_carries_the_numbers_it_saw():
    accesses = (*THREE[:2], access("s2", 5, 1, 0.6))
    decision = decide_after_session(
        node("session"), usage_of(accesses, [GOOD, GOOD, BAD]), POLICY, session_id="s2", at=day(3)
    )
    assert decision is not None
    assert decision.rule == "session-to-longterm"
    assert decision.conditions == (
        Condition(SESSIONS, 2, ">= 3", False),
        Condition(SUCCESSES, 2, ">= 1", True),
        Condition(FAILURES, 1, "< 2", True),
        Condition(LOWEST, 0.6, ">= 0.8", False),
    )
    assert decision.reason == f"missing: {SESSIONS} 2 (required: >= 3); {LOWEST} 0.6 (required: >= 0.8)"


def test_a_node_of_unknown_age_is_not_archived():
    unknown = Node(id="n", text="t", tier="longterm")
    decision = decide_in_sweep(unknown, Usage(), POLICY, now=day(10**5))
    assert decision is not None
    assert not decision.moved
    assert decision.missing[0].found is None


def test_the_last_access_known_to_the_node_counts_as_a_use():
    used = replace(node("longterm"), last_accessed=day(50))
    decision = decide_in_sweep(used, Usage(), POLICY, now=day(100))
    assert decision is not None
    assert decision.conditions[0].found == 50
    assert not decision.moved


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (timedelta(seconds=9, milliseconds=695), "days unused 0 (required: > 90)"),
        (timedelta(hours=30), "days unused 1.25 (required: > 90)"),
        (timedelta(days=81, hours=7), "days unused 81.29 (required: > 90)"),
        (timedelta(days=1234, hours=7), "days unused 1234 (required: > 90)"),
        (timedelta(days=90, milliseconds=1), "days unused 90.00000001 (required: > 90)"),
        (timedelta(days=90), "days unused 90 (required: > 90)"),
    ],
)
def test_a_reason_has_as_few_digits_as_tell_whether_its_condition_holds(ago: timedelta, told: str):
    decision = decide_in_sweep(node("longterm"), Usage(), POLICY, now=day(0) + ago)
    assert decision is not None
    assert told in decision.reason
    assert told.removeprefix("days unused ").partition(" ")[0] in str(decision)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_number_that_is_shown_lies_where_it_was_found(found: float, threshold: float):
    shown = Condition("x", found, f">= {threshold}", found >= threshold).measured
    assert (float(shown) >= threshold, float(shown) > threshold) == (found >= threshold, found > threshold)
    assert shown.startswith("-") is False


# --- explaining ---


def test_an_explanation_says_when_the_move_will_come_and_moves_nothing():
    explanation = explain(node("session"), usage_of(THREE, [GOOD]), POLICY, now=day(3))
    assert (explanation.moved, explanation.missing, explanation.to_tier) == (False, (), "longterm")
    assert explanation.reason.startswith("moves when a session that used it ends, or in a sweep: ")


def test_an_archived_node_is_explained_too():
    explanation = explain(node("archive"), usage_of(THREE, [GOOD]), POLICY, now=day(3))
    assert (explanation.from_tier, explanation.to_tier) == ("archive", "archive")
    assert (explanation.moved, explanation.conditions) == (False, ())
    assert "restore" in explanation.reason


# --- properties of any history ---

tiers = st.sampled_from(TIERS)
confidences = st.sampled_from([0.0, 0.5, 0.79, 0.8, 0.9, 1.0])
accesses_lists = st.lists(
    st.builds(
        access,
        session=st.sampled_from(["s1", "s2", "s3", "s4", "s5"]),
        turn=st.integers(1, 3),
        at=st.integers(0, 20),
        confidence=confidences,
    ),
    max_size=12,
)
outcome_lists = st.lists(
    st.builds(
        outcome,
        success=st.booleans(),
        session=st.sampled_from(["s1", "s2"]),
        at=st.integers(0, 20),
        run=st.sampled_from([None, "r1", "r2"]),
    ),
    max_size=6,
)
policies = st.builds(
    PromotionPolicy,
    min_uses=st.integers(1, 4),
    min_sessions=st.integers(1, 4),
    min_successes=st.integers(0, 3),
    min_confidence=confidences,
    confident_sessions=st.integers(1, 4),
    archive_after_days=st.sampled_from([0, 1, 90, math.inf]),
)
nodes = st.builds(node, tier=tiers, confidence=confidences, pinned=st.booleans())
moments = st.sampled_from(MOMENTS)
times = st.integers(0, 200).map(day)


@given(moments, nodes, accesses_lists, outcome_lists, policies, times)
def test_a_rule_moves_one_tier_up_and_never_a_pinned_or_archived_node_out(
    moment: Moment,
    subject: Node,
    accesses: list[Access],
    outcomes: list[Outcome],
    policy: PromotionPolicy,
    now: datetime,
):
    decision = decide(moment, subject, usage_of(accesses, outcomes), policy, now)
    if subject.tier == "archive":
        assert decision is None
    elif decision is not None:
        assert TIERS.index(decision.to_tier) == TIERS.index(decision.from_tier) + 1
        assert decision.moved == all(condition.holds for condition in decision.conditions)
        assert not (decision.moved and decision.to_tier == "archive" and subject.pinned)


@given(moments, nodes, accesses_lists, outcome_lists, policies, times)
def test_an_explanation_agrees_with_the_decision(
    moment: Moment,
    subject: Node,
    accesses: list[Access],
    outcomes: list[Outcome],
    policy: PromotionPolicy,
    now: datetime,
):
    usage = usage_of(accesses, outcomes)
    decision = decide(moment, subject, usage, policy, now)
    explanation = explain(subject, usage, policy, now=now)
    assert not explanation.moved
    if decision is not None:
        assert explanation.conditions == decision.conditions
        assert (explanation.rule, explanation.to_tier) == (decision.rule, decision.to_tier)
        assert decision.moved == (not explanation.missing)


@given(nodes, accesses_lists, outcome_lists, policies, st.integers(0, 20), st.sampled_from([None, "r1", "r3"]))
def test_another_success_never_takes_a_promotion_back(
    subject: Node,
    accesses: list[Access],
    outcomes: list[Outcome],
    policy: PromotionPolicy,
    at: int,
    run: str | None,
):
    more = [*outcomes, outcome(True, at=at, run=run)]
    for moment in ("session end", "sweep"):
        before = decide(moment, subject, usage_of(accesses, outcomes), policy, day(20))
        after = decide(moment, subject, usage_of(accesses, more), policy, day(20))
        if before is not None and before.moved:
            assert after.moved


@given(nodes, accesses_lists, outcome_lists, policies, times)
def test_another_use_never_takes_the_first_promotion_back_nor_archives(
    subject: Node, accesses: list[Access], outcomes: list[Outcome], policy: PromotionPolicy, now: datetime
):
    more = usage_of([*accesses, access("s1", 9, 20)], outcomes)
    less = usage_of(accesses, outcomes)
    used, once_more = (decide("use", subject, usage, policy, now) for usage in (less, more))
    assert used is None or not used.moved or once_more.moved
    if subject.tier == "longterm":
        swept, once_more = (decide("sweep", subject, usage, policy, now) for usage in (less, more))
        assert swept.moved or not once_more.moved


@given(accesses_lists, outcome_lists, st.randoms(use_true_random=False))
def test_the_evidence_does_not_depend_on_the_order_it_comes_in(
    accesses: list[Access], outcomes: list[Outcome], chance: Any
):
    shuffled = usage_of(chance.sample(accesses, len(accesses)), chance.sample(outcomes, len(outcomes)))
    assert shuffled == usage_of(accesses, outcomes)


@given(accesses_lists)
def test_a_hit_that_comes_twice_is_one_use(accesses: list[Access]):
    assert usage_of(accesses * 2) == usage_of(accesses)


def test_sessions_stand_in_the_order_of_their_last_use():
    usage = usage_of([access("s1", 1, 5), access("s2", 1, 1), access("s2", 2, 3), access("s3", 1, 4, 0.4)])
    assert [(s.session_id, s.uses, s.lowest_confidence) for s in usage.sessions] == [
        ("s2", 2, 0.9),
        ("s3", 1, 0.4),
        ("s1", 1, 0.9),
    ]


def test_a_run_is_judged_once_and_runs_of_two_sessions_are_two():
    usage = usage_of([], [outcome(True, "s1", 1, "r"), outcome(True, "s1", 1, "r"), outcome(False, "s2", 1, "r"), GOOD])
    assert (usage.successes, usage.failures) == (2, 1)


def test_of_two_verdicts_at_one_moment_the_failure_counts():
    usage = usage_of([], [outcome(False, run="r"), outcome(True, run="r")])
    assert (usage.successes, usage.failures) == (0, 1)


# --- the policy ---


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("min_uses", [0, -1, 1.5, True, "2", None]),
        ("min_sessions", [0, math.nan, True]),
        ("min_successes", [-1, 0.5, False]),
        ("confident_sessions", [0, 2.0]),
        ("min_confidence", [-0.1, 1.1, math.nan, "0.8", True]),
        ("archive_after_days", [-1, math.nan, "90", True, None]),
        ("decay_per_day", [-0.1, 1.1, math.nan]),
        ("success_step", [-0.1, 1.5, None]),
        ("failure_step", [-0.1, math.inf]),
        ("duplicate_similarity", [-1, 1.1]),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_name(name: str, values: list[Any]):
    for value in values:
        with pytest.raises(InvalidInputError, match=name):
            PromotionPolicy(**{name: value})


def test_a_policy_is_a_value():
    assert PromotionPolicy(min_uses=2) == POLICY
    assert hash(PromotionPolicy()) == hash(POLICY)
    with pytest.raises(AttributeError):
        POLICY.min_uses = 5  # type: ignore[misc]  # the point of the test


# --- confidence ---


def test_confidence_decays_by_the_day():
    policy = PromotionPolicy(decay_per_day=0.5)
    assert [decayed(0.8, days, policy) for days in (0, 1, 2, 0.5)] == pytest.approx([0.8, 0.4, 0.2, 0.8 * 0.5**0.5])
    assert decayed(0.8, -3, policy) == 0.8


@given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1))
def test_decay_stays_in_range_and_never_raises_confidence(confidence: float, days: float, factor: float):
    assert 0 <= decayed(confidence, days, PromotionPolicy(decay_per_day=factor)) <= confidence


def test_three_successes_reach_the_threshold_from_the_default():
    confidence = 0.5
    for _ in range(3):
        confidence = confidence_after(confidence, True, POLICY)
    assert confidence == 0.8 == POLICY.min_confidence


def test_a_failure_weighs_more_than_a_success():
    assert confidence_after(0.8, False, POLICY) == 0.6


@given(st.floats(0, 1), st.booleans(), st.floats(0, 1), st.floats(0, 1))
def test_confidence_stays_in_range_and_goes_the_right_way(confidence: float, success: bool, up: float, down: float):
    changed = confidence_after(confidence, success, PromotionPolicy(success_step=up, failure_step=down))
    assert 0 <= changed <= 1
    assert changed >= confidence - 1e-9 if success else changed <= confidence + 1e-9


# --- the chain of the log ---


def log_of(decisions: list[PromotionDecision], first: int = 1) -> list[LogEntry]:
    entries: list[LogEntry] = []
    previous = FIRST_HASH
    for sequence, decision in enumerate(decisions, first):
        own = entry_hash(previous, sequence, decision)
        entries.append(LogEntry(sequence=sequence, decision=decision, previous_hash=previous, hash=own))
        previous = own
    return entries


DECISION = PromotionDecision(
    node_id="n",
    from_tier="session",
    to_tier="longterm",
    rule="session-to-longterm",
    moved=True,
    actor="auto",
    reason="because",
    conditions=(Condition("distinct sessions", 3, ">= 3", True), Condition("pinned", "no", "no", True)),
    session_id="s1",
    at=day(1),
)
decisions = st.builds(
    PromotionDecision,
    node_id=st.text(max_size=5),
    from_tier=tiers,
    to_tier=tiers,
    rule=st.text(max_size=5),
    moved=st.booleans(),
    actor=st.sampled_from(["auto", "manual"]),
    reason=st.text(max_size=5),
    session_id=st.none() | st.text(max_size=5),
    at=st.none() | times,
)


@pytest.mark.parametrize(
    "change",
    [
        {"node_id": "m"},
        {"from_tier": "task"},
        {"to_tier": "archive"},
        {"rule": "x"},
        {"moved": False},
        {"actor": "manual"},
        {"reason": "another"},
        {"session_id": None},
        {"session_id": "s2"},
        {"at": None},
        {"at": day(1) + timedelta(milliseconds=1)},
        {"conditions": ()},
        {"conditions": DECISION.conditions[::-1]},
        {"conditions": (replace(DECISION.conditions[0], found=4), DECISION.conditions[1])},
        {"conditions": (replace(DECISION.conditions[0], found="3"), DECISION.conditions[1])},
        {"conditions": (replace(DECISION.conditions[0], found=None), DECISION.conditions[1])},
        {"conditions": (replace(DECISION.conditions[0], holds=False), DECISION.conditions[1])},
        {"conditions": (replace(DECISION.conditions[0], required=">= 2"), DECISION.conditions[1])},
        {"conditions": (replace(DECISION.conditions[0], name="sessions"), DECISION.conditions[1])},
    ],
    ids=str,
)
def test_a_change_of_any_field_breaks_the_chain_at_its_entry(change: dict[str, Any]):
    entries = log_of([DECISION] * 5)
    entries[2] = replace(entries[2], decision=replace(DECISION, **change))
    assert first_broken(entries) == 3


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (lambda log: log, None),
        (lambda log: [], None),
        (lambda log: log[1:], 2),
        (lambda log: [*log[:2], *log[3:]], 4),
        (lambda log: [log[0], log[2], log[1], *log[3:]], 3),
        (lambda log: [log[0], *log], 1),
        (lambda log: [*log[:3], replace(log[3], hash="0" * 64), log[4]], 4),
        (lambda log: [*log[:3], replace(log[3], previous_hash="0" * 64), log[4]], 4),
        (lambda log: [*log[:3], replace(log[3], sequence=9), log[4]], 9),
    ],
    ids=["whole", "empty", "first removed", "one removed", "swapped", "doubled", "hash", "previous hash", "sequence"],
)
def test_a_log_with_entries_removed_moved_or_altered_is_broken_there(damage: Any, broken: int | None):
    assert first_broken(damage(log_of([DECISION] * 5))) == broken


def test_an_entry_forged_with_its_own_hash_breaks_the_next():
    entries = log_of([DECISION] * 5)
    forged = replace(DECISION, to_tier="archive")
    own = entry_hash(entries[1].hash, 3, forged)
    entries[2] = replace(entries[2], decision=forged, hash=own)
    assert first_broken(entries) == 4


def test_entries_whose_numbers_do_not_rise_are_broken_though_their_hashes_fit():
    first, second = log_of([DECISION] * 2, first=7)
    again = replace(second, sequence=7, hash=entry_hash(first.hash, 7, DECISION))
    assert first_broken([first, again]) == 7


def test_a_part_of_a_log_is_checked_from_the_hash_before_it():
    entries = log_of([DECISION] * 5)
    assert first_broken(entries[2:], previous_hash=entries[1].hash) is None
    assert first_broken(entries[2:], previous_hash=entries[0].hash) == 3


def test_a_decision_that_was_stored_and_read_back_has_the_same_hash():
    """B112"""
    seen = replace(DECISION, at=day(1) + timedelta(microseconds=123))
    stored = replace(
        seen,
        at=day(1).astimezone(timezone(timedelta(hours=9))),
        conditions=(replace(DECISION.conditions[0], found=3.0), DECISION.conditions[1]),
    )
    assert entry_hash(FIRST_HASH, 1, stored) == entry_hash(FIRST_HASH, 1, seen)


def test_the_format_of_the_hash_does_not_change():
    # A store written by an earlier release must still verify.
    assert entry_hash(FIRST_HASH, 1, DECISION) == "4812a7c098df0bf778130fe779230d26ef07cc60a67627894b4ce7b092a7c67d"


def test_a_time_without_a_zone_is_refused():
    """B112"""
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  (the naive time is the point)
    with pytest.raises(InvalidInputError, match="no time zone"):
        entry_hash(FIRST_HASH, 1, replace(DECISION, at=naive))
    with pytest.raises(InvalidInputError, match="no time zone"):
        explain(node("longterm"), Usage(), POLICY, now=naive)


@given(st.lists(decisions, max_size=8), st.data())
def test_any_log_verifies_and_any_loss_inside_it_is_found(history: list[PromotionDecision], data: st.DataObject):
    entries = log_of(history)
    assert first_broken(entries) is None
    if len(entries) > 1:
        lost = data.draw(st.integers(0, len(entries) - 2))
        assert first_broken(entries[:lost] + entries[lost + 1 :]) == entries[lost + 1].sequence


def test_lone_surrogates_in_a_reason_are_hashed():
    assert len(entry_hash(FIRST_HASH, 1, replace(DECISION, reason="\ud800"))) == 64
