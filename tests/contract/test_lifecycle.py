"""Sessions, accesses, outcomes, promotions and their log, as they look through Memory.

This core has no expiry: what a time to live would mean for a promotion (B084) or an access (B097) does not arise.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rlm_memory import AsyncMemory, Memory, Node, PromotionPolicy, Session
from rlm_memory.errors import InvalidInputError, NodeNotFoundError, StoreReadOnlyError
from rlm_memory.records import TIERS, Tier
from support import SettableClock, WordEmbedder

TEXTS = {"ada": "Ada likes green tea", "bo": "Bo lives in Rome", "cy": "Cy plays the cello"}


@pytest.fixture
def filled(memory: Memory) -> Memory:
    memory.add(list(TEXTS.values()), ids=list(TEXTS), confidence=0.9)
    return memory


def tier(memory: Memory, id: str) -> Tier:
    return memory.get(id)[0].tier


def moves(memory: Memory, id: str | None = None) -> list[tuple[str, str, str, str]]:
    return [
        (entry.decision.node_id, entry.decision.from_tier, entry.decision.to_tier, entry.decision.rule)
        for entry in memory.promotion_log(id)
        if entry.decision.moved
    ]


def use(memory: Memory, session_id: str, id: str = "ada", *, times: int = 1) -> Session:
    session = memory.session(session_id)
    for _ in range(times):
        session.record_access(id)
    return session


def climb(memory: Memory, id: str = "ada", *, sessions: int = 3) -> None:
    """Use a node in so many sessions, twice in each and with success: three of them take it from task to longterm."""
    for number in range(1, sessions + 1):
        with memory.session(f"s{number}") as session:
            session.record_access(id)
            session.record_access(id)
            session.outcome(True)


# -- accesses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "search",
    [
        {"query": "green tea"},
        {"query": "green tea", "alpha": 0},
        {"query": "green tea", "alpha": 1},
        {"query": "green tea", "mmr": 0.5},
        {"query": "green tea", "where": {"node.id": "ada"}},
        {"embedding": WordEmbedder().embed_query("green tea")},
    ],
    ids=["hybrid", "keywords", "vectors", "mmr", "filter", "embedding"],
)
def test_a_hit_of_a_search_in_a_session_is_an_access_however_it_was_found(filled: Memory, search: Any):
    """B135"""
    for session in (filled.session("s1"), "s1"):
        assert [hit.id for hit in filled.search(**search, k=1, session=session)] == ["ada"]
    assert [(access.session_id, access.node_id) for access in filled.accesses("ada")] == [("s1", "ada")] * 2
    assert {node.id: node.access_count for node in filled.list()} == {"ada": 2, "bo": 0, "cy": 0}
    assert tier(filled, "ada") == "session"


def test_looking_is_no_access(filled: Memory, tmp_path):
    """B135"""
    filled.search("tea")
    filled.get(list(TEXTS))
    filled.list()
    filled.count()
    filled.stats()
    filled.explain_promotion("ada")
    filled.candidates()
    filled.export(tmp_path / "nodes.jsonl")
    assert filled.sessions() == []
    assert [(node.access_count, node.last_accessed) for node in filled.list()] == [(0, None)] * 3


def test_an_access_tells_session_turn_time_run_and_the_confidence_then(filled: Memory, clock: SettableClock):
    session = filled.session("s1")
    session.record_access("ada", run_id="r1")
    first = clock.now
    clock.advance(seconds=1.5)
    filled.update("ada", confidence=0.4)
    session.record_access(["ada", "bo"], turn=7)
    one, two = filled.accesses("ada")
    assert (one.session_id, one.turn, one.at, one.confidence, one.run_id) == ("s1", 1, first, 0.9, "r1")
    assert (two.session_id, two.turn, two.at, two.confidence, two.run_id) == ("s1", 7, clock.now, 0.4, None)
    [node] = filled.get("ada")
    assert (node.access_count, node.last_accessed) == (2, clock.now)


def test_accesses_stand_in_the_order_of_their_time(filled: Memory, clock: SettableClock):
    for hours in (5, -3, 1):
        clock.advance(hours=hours)
        use(filled, "s1")
    at = [access.at for access in filled.accesses("ada")]
    assert at == sorted(at)
    assert filled.get("ada")[0].last_accessed == max(at)


def test_times_are_utc_whatever_zone_the_clock_is_in(open_memory: Any):
    """B112"""
    tokyo = timezone(timedelta(hours=9))
    for now in (datetime(2026, 3, 1, 9, tzinfo=tokyo), datetime(2026, 3, 1)):  # noqa: DTZ001 - naive is UTC
        memory = open_memory(clock=lambda now=now: now, namespace=str(now), embedder=None)
        memory.add("text", ids=["a"], tier="longterm")
        use(memory, "s1", "a")
        [access] = memory.accesses("a")
        [entry] = memory.promotion_log()
        assert access.at == entry.decision.at == datetime(2026, 3, 1, tzinfo=UTC)
        assert access.at.tzinfo is UTC
        assert memory.sweep(datetime(2026, 12, 1))[0].at == datetime(2026, 12, 1, tzinfo=UTC)  # noqa: DTZ001
        assert memory.check()


def test_unknown_ids_are_passed_over(filled: Memory):
    session = filled.session("s1")
    session.record_access(["nobody", "ada", "\ud800"])
    session.record_access("nobody")
    assert filled.get("ada")[0].access_count == 1
    assert filled.accesses("nobody") == []


def test_a_session_without_accesses_leaves_no_trace(filled: Memory):
    with filled.session("s1") as session:
        filled.search("tea", k=0, session=session)
        session.record_access([])
        assert session.outcome(True) == 0
    assert filled.sessions() == []


@pytest.mark.parametrize("session", ["", 5, "\ud800", ["s1"]])
def test_a_session_id_is_a_text(filled: Memory, session: Any):
    with pytest.raises(InvalidInputError, match="session_id"):
        filled.session(session)
    with pytest.raises(InvalidInputError, match="session_id"):
        filled.search("tea", session=session)


@pytest.mark.parametrize(
    "options",
    [
        {"turn": -1},
        {"turn": 1.5},
        {"turn": True},
        {"turn": 1 << 63},
        {"run_id": 5},
        {"run_id": ""},
        {"run_id": "\ud800"},
    ],
    ids=str,
)
def test_what_could_not_be_written_down_is_refused_when_it_is_reported(filled: Memory, options: Any):
    session = filled.session("s1")
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        session.record_access("ada", **options)
    session.record_access("ada", turn=(1 << 63) - 1, run_id="r")
    assert filled.get("ada")[0].access_count == 1


def test_a_search_reports_to_sessions_of_its_own_memory_alone(open_shared: Any):
    one, other = open_shared(namespace="one"), open_shared(namespace="other")
    with pytest.raises(InvalidInputError, match="not of this memory"):
        other.search("tea", session=one.session("s1"))


def test_sixteen_threads_in_one_session_lose_no_access(open_memory: Any):
    """B135"""
    memory = open_memory()
    memory.add(list(TEXTS.values()), ids=list(TEXTS))
    session = memory.session("s1")

    def work() -> None:
        for _ in range(10):
            memory.search("green tea", k=1, session=session)
            memory.search("green tea", k=1, session="s1")

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.get("ada")[0].access_count == len(memory.accesses("ada")) == 320
    assert len({(access.writer, access.turn) for access in memory.accesses("ada")}) == 320
    assert moves(memory) == [("ada", "task", "session", "task-to-session")]
    assert memory.check()


# -- sessions -------------------------------------------------------------------------------------------------------


def test_a_session_tells_when_it_began_was_active_and_ended(filled: Memory, clock: SettableClock):
    began = clock.now
    session = use(filled, "s1")
    clock.advance(hours=2)
    session.record_access("bo")
    [record] = filled.sessions()
    active = clock.now
    assert (record.id, record.started_at, record.last_active, record.ended_at) == ("s1", began, active, None)
    assert record.turn == 2
    clock.advance(hours=1)
    session.end()
    [record] = filled.sessions()
    assert (record.last_active, record.ended_at) == (active, clock.now)


def test_sessions_stand_the_latest_first(filled: Memory, clock: SettableClock):
    for name in ("s1", "s2", "s3", "s1"):
        use(filled, name)
        clock.advance(hours=1)
    assert [record.id for record in filled.sessions()] == ["s1", "s3", "s2"]
    assert [record.id for record in filled.sessions(limit=1)] == ["s1"]


def test_a_session_that_is_used_again_is_open_again_and_goes_on_with_its_turns(filled: Memory):
    use(filled, "s1").end()
    again = filled.session("s1")
    assert filled.sessions()[0].ended_at is not None
    again.record_access("ada")
    [record] = filled.sessions()
    assert (record.ended_at, record.turn) == (None, 2)
    assert tier(filled, "ada") == "session"
    again.end()
    assert filled.sessions()[0].ended_at is not None


class StoppingClock(SettableClock):
    """Fails while it is stopped."""

    stopped = False

    def __call__(self) -> datetime:
        if self.stopped:
            raise TimeoutError("the clock does not answer")
        return super().__call__()


def test_an_end_that_fails_leaves_what_was_reported_to_the_next_one(open_memory: Any):
    clock = StoppingClock()
    memory = open_memory(clock=clock)
    memory.add("Ada likes green tea", ids=["ada"])
    session = use(memory, "s", times=2)
    clock.stopped = True
    with pytest.raises(TimeoutError):
        session.end()
    clock.stopped = False
    session.end()
    assert len(memory.accesses("ada")) == 2
    assert memory.get("ada")[0].access_count == 2
    assert moves(memory) == [("ada", "task", "session", "task-to-session")]


def test_ending_twice_and_ending_the_unknown_is_fine(filled: Memory):
    session = use(filled, "s1")
    assert session.end() == session.end() == []
    assert filled.session("nobody").end() == []


def test_hits_of_one_turn_are_one_use(filled: Memory):
    session = filled.session("s1")
    turn = session.next_turn()
    for query in ("green tea", "Ada"):
        filled.search(query, k=1, session=session)  # each a turn of its own
    other = filled.session("s2")
    turn = other.next_turn()
    other.record_access("bo", turn=turn)
    other.record_access("cy", turn=other.next_turn())
    other.record_access(["bo", "bo"], turn=turn)  # late, and twice
    assert filled.get("bo")[0].access_count == 3
    assert [tier(filled, id) for id in TEXTS] == ["session", "task", "task"]


def test_a_block_that_fails_is_a_failure_of_what_it_used(filled: Memory):
    def work() -> None:
        with filled.session("s1") as session:
            session.record_access("ada")
            session.outcome(True)
            session.record_access(["ada", "bo"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert filled.sessions()[0].ended_at is not None
    assert explained(filled, "ada") == {"successful outcomes": 1, "failed outcomes": 1}
    assert filled.learn() == 3


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_is_interrupted_says_nothing_about_what_it_used(filled: Memory, interrupt: type[BaseException]):
    def work() -> None:
        with filled.session("s1") as session:
            session.record_access("ada")
            raise interrupt

    with pytest.raises(interrupt):
        work()
    assert filled.learn() == 0
    assert filled.sessions()[0].ended_at is not None


def explained(memory: Memory, id: str) -> dict[str, Any]:
    """What the rule from session to longterm has found in the outcomes of a node."""
    found = {condition.name: condition.found for condition in memory.explain_promotion(id).conditions}
    return {name: value for name, value in found.items() if "outcomes" in name}


# -- outcomes -------------------------------------------------------------------------------------------------------


def test_an_outcome_is_attached_to_what_was_not_judged_yet(filled: Memory):
    session = use(filled, "s1", times=2)
    session.record_access("bo")
    assert session.outcome(True) == 2
    assert session.outcome(False) == 0
    session.record_access("ada")
    assert session.outcome(True) == 1
    assert explained(filled, "ada") == {"successful outcomes": 2, "failed outcomes": 0}


def test_an_outcome_of_some_nodes_leaves_the_others_to_be_judged(filled: Memory):
    session = filled.session("s1")
    session.record_access(["ada", "bo"])
    session.record_access(["ada", "bo"])
    assert session.outcome(False, "ada") == 1
    assert session.outcome(True) == 1
    assert explained(filled, "ada") == {"successful outcomes": 0, "failed outcomes": 1}
    assert explained(filled, "bo") == {"successful outcomes": 1, "failed outcomes": 0}


def test_named_nodes_can_be_judged_again_and_only_if_the_session_used_them(filled: Memory):
    session = use(filled, "s1", times=2)
    session.outcome(True)
    assert session.outcome(False, ["ada", "bo", "nobody"]) == 1
    assert session.outcome(True, []) == 0
    assert explained(filled, "ada") == {"successful outcomes": 1, "failed outcomes": 1}


def test_an_outcome_of_a_run_is_that_of_what_the_run_used(filled: Memory):
    session = filled.session("s1")
    for id, run in (("ada", "r1"), ("ada", "r2"), ("bo", "r2"), ("cy", None)):
        session.record_access(id, run_id=run)
    assert session.outcome(True, run_id="r1") == 1
    assert session.outcome(False, run_id="r2") == 2
    assert session.outcome(True, run_id="r3") == 0
    assert session.outcome(False, "bo", run_id="r1") == 0
    assert session.outcome(True) == 1, "cy alone was left"
    assert explained(filled, "ada") == {"successful outcomes": 1, "failed outcomes": 1}


def test_a_later_outcome_of_a_run_corrects_the_earlier_one(filled: Memory):
    session = filled.session("s1")
    session.record_access("ada", run_id="r1")
    session.record_access("ada", run_id="r1")
    assert [session.outcome(success, run_id="r1") for success in (False, False, True)] == [1, 1, 1]
    assert explained(filled, "ada") == {"successful outcomes": 1, "failed outcomes": 0}
    other = filled.session("s2")
    other.record_access("ada", run_id="r1")
    assert other.outcome(False, run_id="r1") == 1, "the same name in another session is another run"
    assert explained(filled, "ada") == {"successful outcomes": 1, "failed outcomes": 1}


@pytest.mark.parametrize("success", [1, "yes", None])
def test_an_outcome_is_true_or_false(filled: Memory, success: Any):
    with pytest.raises(InvalidInputError, match="success"):
        use(filled, "s1").outcome(success)


def test_outcomes_of_a_session_can_be_told_elsewhere(open_shared: Any):
    one, other = open_shared(), open_shared()
    one.add("Ada likes tea", ids=["ada"])
    session = use(one, "s1", times=2)
    assert other.session("s1").outcome(True) == 1
    assert session.outcome(True) == 0
    assert explained(one, "ada") == {"successful outcomes": 1, "failed outcomes": 0}


# -- moves by rules -------------------------------------------------------------------------------------------------


def test_a_memory_climbs_from_task_to_longterm_by_itself(filled: Memory):
    for number, expected in ((1, "session"), (2, "session"), (3, "longterm")):
        session = use(filled, f"s{number}", times=2)
        session.outcome(True)
        decisions = session.end()
        assert [decision.moved for decision in decisions] == [number == 3]
        assert tier(filled, "ada") == expected
    last = list(filled.promotion_log("ada"))[-1].decision
    assert (last.actor, last.session_id, last.rule) == ("auto", "s3", "session-to-longterm")
    assert [(condition.found, condition.holds) for condition in last.conditions] == [
        (3, True),
        (3, True),
        (0, True),
        (0.9, True),
    ]
    assert decisions == [last]
    assert tier(filled, "bo") == "task"
    assert filled.check()


def test_a_refusal_is_logged_once_for_each_session(filled: Memory):
    for name in ("s1", "s1", "s2"):
        session = use(filled, name, times=2)
        [refusal] = session.end()
        session.end()
        assert not refusal.moved
        assert refusal.missing
    refusals = [entry.decision for entry in filled.promotion_log("ada") if not entry.decision.moved]
    assert [(decision.session_id, decision.rule) for decision in refusals] == [
        ("s1", "session-to-longterm"),
        ("s2", "session-to-longterm"),
    ]
    assert tier(filled, "ada") == "session"


def test_a_doubt_at_an_access_of_the_last_sessions_holds_a_memory_back(filled: Memory):
    climb(filled, sessions=2)
    filled.update("ada", confidence=0.5)
    use(filled, "s3")
    filled.update("ada", confidence=0.9)
    session = use(filled, "s3")
    session.outcome(True)
    [refusal] = session.end()
    assert [(condition.found, condition.holds) for condition in refusal.missing] == [(0.5, False)]
    climb(filled, sessions=6)
    assert tier(filled, "ada") == "longterm", "three later sessions without a doubt"


def test_a_memory_unused_for_ninety_days_is_archived_and_searched_only_when_asked(filled: Memory, clock: SettableClock):
    """B129"""
    climb(filled)
    used = clock.now
    clock.now = used + timedelta(days=90)
    assert filled.sweep() == []
    clock.now = used + timedelta(days=90, milliseconds=1)
    [decision] = filled.sweep()
    assert (decision.node_id, decision.from_tier, decision.to_tier, decision.moved) == (
        "ada",
        "longterm",
        "archive",
        True,
    )
    assert "ada" not in [hit.id for hit in filled.search("green tea")]
    assert "ada" not in [node.id for node in filled.list()]
    assert filled.search("green tea", include_archived=True, k=1)[0].text == TEXTS["ada"]
    assert [node.id for node in filled.list(tiers=["archive"])] == ["ada"]
    assert filled.stats().by_tier == {"task": 2, "session": 0, "longterm": 0, "archive": 1}
    assert filled.sweep(clock.now + timedelta(days=10_000)) == [], "nothing leaves the archive, and nothing is deleted"


def test_a_use_puts_the_archive_off(filled: Memory, clock: SettableClock):
    climb(filled)
    clock.advance(days=60)
    use(filled, "s9")
    clock.advance(days=60)
    assert filled.sweep() == []
    clock.advance(days=31)
    assert [decision.node_id for decision in filled.sweep()] == ["ada"]


def test_the_archive_is_read_when_asked_and_a_use_there_moves_nothing(filled: Memory):
    filled.promote("ada", "archive", reason="old")
    for _ in range(3):
        filled.search("green tea", k=1, include_archived=True, session="s1")
    filled.session("s1").end()
    assert (tier(filled, "ada"), filled.get("ada")[0].access_count) == ("archive", 3)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pinned_memory_is_never_archived_by_a_rule(filled: Memory, clock: SettableClock, pinned: bool):
    """B165"""
    climb(filled)
    filled.pin("ada")
    if not pinned:
        filled.unpin("ada")
    clock.advance(days=1000)
    assert [decision.to_tier for decision in filled.sweep()] == ([] if pinned else ["archive"])
    assert filled.get("ada")[0].pinned is pinned
    rules = [entry.decision.rule for entry in filled.promotion_log("ada")]
    assert rules[-1:] == ["pin"] if pinned else rules[-3:] == ["pin", "unpin", "longterm-to-archive"]


def test_a_dry_run_tells_what_a_sweep_does_and_does_nothing(filled: Memory, clock: SettableClock):
    climb(filled)
    before = list(filled.promotion_log())
    later = clock.now + timedelta(days=91)
    foretold = filled.sweep(later, dry_run=True)
    assert [(decision.node_id, decision.to_tier) for decision in foretold] == [("ada", "archive")]
    assert list(filled.promotion_log()) == before
    assert tier(filled, "ada") == "longterm"
    assert filled.sweep(later) == foretold


def test_a_sweep_ends_crashed_sessions_and_decides_as_their_end_would_have(filled: Memory, clock: SettableClock):
    use(filled, "crashed", times=2)
    clock.advance(hours=24)
    assert filled.sweep() == []
    assert filled.sessions()[0].ended_at is None, "24 hours are not more than 24"
    for number in (1, 2):
        use(filled, f"s{number}").end()
    use(filled, "crashed").outcome(True)
    clock.advance(hours=24, seconds=1)
    assert [(d.node_id, d.to_tier, d.session_id) for d in filled.sweep()] == [("ada", "longterm", "crashed")]
    assert {record.id: record.ended_at is None for record in filled.sessions()} == dict.fromkeys(
        ("s1", "s2", "crashed"), False
    )


def test_a_sweep_promotes_what_has_earned_longterm_since_its_sessions_ended(filled: Memory):
    for number in (1, 2, 3):
        use(filled, f"s{number}", times=2).end()
    assert tier(filled, "ada") == "session"
    filled.session("s2").outcome(True)
    use(filled, "s9", "bo", times=2).end()
    assert [(decision.node_id, decision.to_tier) for decision in filled.sweep()] == [("ada", "longterm")]


def test_the_numbers_of_the_policy_are_those_of_the_rules(open_memory: Any, clock: SettableClock):
    policy = PromotionPolicy(
        min_uses=3, min_sessions=1, min_successes=0, min_confidence=0.2, archive_after_days=7, session_idle_hours=1
    )
    memory = open_memory(policy=policy)
    memory.add("text", ids=["a"], confidence=0.2)
    use(memory, "s1", "a", times=2)
    assert tier(memory, "a") == "task"
    use(memory, "s1", "a")
    assert tier(memory, "a") == "session"
    clock.advance(hours=1, seconds=1)
    assert [decision.to_tier for decision in memory.sweep()] == ["longterm"]
    clock.advance(days=7, seconds=1)
    assert [decision.to_tier for decision in memory.sweep()] == ["archive"]


# -- moves by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", TIERS)
@pytest.mark.parametrize("start", TIERS)
def test_a_person_may_move_a_memory_anywhere(memory: Memory, start: Tier, to: Tier, clock: SettableClock):
    memory.add("text", ids=["a"], tier=start)
    decision = memory.promote("a", to, reason="because")
    assert tier(memory, "a") == to
    assert (decision.actor, decision.reason, decision.moved, decision.at) == (
        "manual",
        "because",
        start != to,
        clock.now,
    )
    assert list(memory.promotion_log("a"))[-1].decision == decision
    assert memory.check()


@pytest.mark.parametrize("reason", ["", "  ", None, 5, "\ud800"])
def test_a_move_by_hand_needs_a_reason(filled: Memory, reason: Any):
    for act in (lambda **why: filled.promote("ada", "longterm", **why), lambda **why: filled.pin("ada", **why)):
        with pytest.raises(InvalidInputError, match="reason"):
            act(reason=reason)
    assert list(filled.promotion_log()) == []
    assert tier(filled, "ada") == "task"


def test_what_is_not_there_cannot_be_moved(filled: Memory):
    for act in (
        lambda: filled.promote("nobody", "longterm", reason="x"),
        lambda: filled.pin("nobody"),
        lambda: filled.unpin("nobody"),
        lambda: filled.restore("nobody"),
        lambda: filled.explain_promotion("nobody"),
        lambda: filled.explain_promotion("\ud800"),
    ):
        with pytest.raises(NodeNotFoundError):
            act()
    with pytest.raises(InvalidInputError, match="attic"):
        filled.promote("ada", "attic", reason="x")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(InvalidInputError, match="not in the archive"):
        filled.restore("ada")
    assert list(filled.promotion_log()) == []


@pytest.mark.parametrize("down", ["task", "session"])
def test_a_demotion_by_hand_is_not_undone_at_the_next_access(filled: Memory, down: Tier):
    climb(filled)
    filled.promote("ada", down, reason="was wrong")
    session = use(filled, "s3")
    session.outcome(True)
    session.end()
    filled.sweep()
    assert tier(filled, "ada") == down
    for number in (4, 5, 6):
        with use(filled, f"s{number}", times=2) as session:
            session.outcome(True)
    assert tier(filled, "ada") == "longterm", "it can prove itself anew"


def test_a_demotion_counts_for_what_was_reported_before_it(filled: Memory):
    use(filled, "s1", times=2)
    filled.promote("ada", "task", reason="not yet")
    assert [move[1:3] for move in moves(filled)] == [("task", "session"), ("session", "task")]
    assert tier(filled, "ada") == "task"


def test_a_restored_memory_is_in_longterm_and_stays_there_for_ninety_days(filled: Memory, clock: SettableClock):
    climb(filled)
    clock.advance(days=91)
    filled.sweep()
    clock.advance(days=300)
    decision = filled.restore("ada", reason="needed again")
    assert (decision.from_tier, decision.to_tier, decision.actor, decision.rule) == (
        "archive",
        "longterm",
        "manual",
        "restore",
    )
    assert filled.search("green tea", k=1)[0].id == "ada"
    assert filled.sweep() == []
    clock.advance(days=91)
    assert [decision.to_tier for decision in filled.sweep()] == ["archive"]


def test_a_memory_added_in_a_tier_is_logged_as_such(memory: Memory):
    memory.add("one", ids=["a"], tier="longterm")
    memory.add("two", ids=["a"], tier="archive")
    assert tier(memory, "a") == "longterm", "writing again does not move"
    assert moves(memory) == [("a", "task", "longterm", "added")]
    assert memory.check()


# -- deleting -------------------------------------------------------------------------------------------------------


def test_a_deleted_memory_is_gone_with_its_history_and_the_log_keeps_what_was(filled: Memory):
    """B129"""
    climb(filled)
    filled.delete("ada")
    assert filled.accesses("ada") == []
    assert filled.learn() == 0
    assert moves(filled)[-1] == ("ada", "longterm", "task", "deleted")
    assert len(moves(filled, "ada")) == 3
    assert filled.check()


def test_an_id_that_is_added_again_starts_anew(filled: Memory):
    climb(filled)
    filled.session("s4").record_access("ada")
    filled.delete("ada")
    filled.add("Ada likes coffee", ids=["ada"])
    [node] = filled.get("ada")
    assert (node.tier, node.access_count, node.last_accessed, node.pinned) == ("task", 0, None, False)
    assert filled.accesses("ada") == []
    use(filled, "s4")
    assert tier(filled, "ada") == "task"
    assert filled.check()


def test_a_hit_that_was_deleted_before_it_is_reported_is_passed_over(filled: Memory):
    session = filled.session("s1")
    hits = filled.search("green tea", k=1)
    filled.delete("ada")
    session.record(hits)
    assert session.outcome(True) == 0
    assert filled.accesses("ada") == []
    assert filled.check()


def test_clear_logs_what_it_takes_away(filled: Memory):
    climb(filled)
    filled.clear()
    assert moves(filled)[-1] == ("ada", "longterm", "task", "deleted")
    assert filled.timeline() == []
    assert filled.check()


# -- namespaces -----------------------------------------------------------------------------------------------------


def test_namespaces_share_no_session_access_or_log(open_shared: Any):
    one, other = open_shared(namespace="one"), open_shared(namespace="other")
    for memory in (one, other):
        memory.add("Ada likes tea", ids=["ada"], confidence=0.9)
    climb(one)
    use(other, "s1")
    assert [record.id for record in other.sessions()] == ["s1"]
    assert len(other.accesses("ada")) == 1
    assert other.session("s2").outcome(True) == 0
    assert (tier(one, "ada"), tier(other, "ada")) == ("longterm", "task")
    assert moves(other) == []
    assert other.sweep(datetime(2050, 1, 1, tzinfo=UTC)) == []
    other.clear()
    assert tier(one, "ada") == "longterm"
    assert one.check()


# -- several handles ------------------------------------------------------------------------------------------------


def test_a_session_in_two_handles_is_one_session(open_shared: Any):
    one, other = open_shared(), open_shared()
    one.add("Ada likes tea", ids=["ada"])
    here, there = one.session("s1"), other.session("s1")
    here.record_access("ada")
    there.record_access("ada")
    [record] = one.sessions()
    assert (record.id, record.turn) == ("s1", 1)
    assert moves(one) == [("ada", "task", "session", "task-to-session")], "two uses, each the first turn of its writer"
    assert len(here.end()) == 1
    assert other.sessions()[0].ended_at is not None


def test_what_another_handle_has_just_reported_counts_at_once(open_shared: Any):
    one, other = open_shared(), open_shared()
    one.add("Ada likes tea", ids=["ada"])
    use(one, "s1", times=2)
    assert len(other.accesses("ada")) == 2
    use(one, "s2")
    assert other.sessions()[0].id in ("s1", "s2")
    assert other.explain_promotion("ada").conditions[0].found == 2
    use(one, "s3", times=2)
    assert [decision.session_id for decision in other.session("s3").end()] == ["s3"]
    use(one, "s4")
    other.delete("ada")
    other.add("Ada likes coffee", ids=["ada"])
    assert one.accesses("ada") == []
    assert one.check()


def test_a_store_that_is_open_for_reading_tracks_nothing(open_shared: Any):
    """B143"""
    writing = open_shared()
    writing.add("Ada likes tea", ids=["ada"], tier="archive")
    reading = open_shared(read_only=True)
    with reading.session("s1") as session:
        reading.search("tea", session=session, include_archived=True)
        reading.search("tea", session="s2", include_archived=True)
        session.record_access("ada")
        assert session.outcome(True) == 0
    assert session.end() == []
    assert reading.sweep(dry_run=True) == []
    assert (reading.accesses("ada"), reading.sessions(), writing.accesses("ada")) == ([], [], [])
    for act in (
        lambda: reading.promote("ada", "task", reason="x"),
        lambda: reading.pin("ada"),
        lambda: reading.restore("ada"),
        lambda: reading.sweep(),
        lambda: reading.decay(),
        lambda: reading.learn(),
        lambda: reading.consolidate(),
    ):
        with pytest.raises(StoreReadOnlyError):
            act()
    assert len(list(reading.promotion_log())) == 1


# -- the daily sweep ------------------------------------------------------------------------------------------------


def test_opening_sweeps_once_a_day(open_shared: Any, clock: SettableClock):
    def open_and_close(**options: Any) -> None:
        open_shared(**options).close()

    memory = open_shared()
    memory.add(["one", "two", "three"], ids=["a", "b", "c"], tier="longterm")
    memory.promote("b", "session", reason="x")
    memory.close()
    open_and_close()
    clock.advance(days=91)
    open_and_close(read_only=True)
    open_and_close(sweep=False)
    open_and_close()
    memory = open_shared()
    assert [tier(memory, id) for id in "abc"] == ["archive", "session", "archive"]
    memory.promote("c", "longterm", reason="x")
    memory.add("four", ids=["d"], tier="longterm")
    clock.advance(hours=23)
    memory.sweep(clock.now - timedelta(hours=23) + timedelta(days=0.5))
    logged = len(list(memory.promotion_log()))
    open_and_close()
    assert len(list(memory.promotion_log())) == logged
    assert tier(memory, "d") == "longterm"


def test_a_sweep_by_a_clock_that_was_wrong_does_not_put_the_next_one_off(open_shared: Any, clock: SettableClock):
    """B112"""
    memory = open_shared()
    memory.add("one", ids=["a"])
    memory.sweep(clock.now + timedelta(days=10_000))
    memory.promote("a", "longterm", reason="x")
    clock.advance(days=91)
    assert tier(open_shared(), "a") == "archive"


def test_opening_a_new_namespace_writes_nothing(open_shared: Any):
    open_shared().add("text")
    version = open_shared(namespace="new").stats()
    assert version.nodes == 0
    open_shared(namespace="new").add("text", ids=["a"])
    assert open_shared(namespace="new").check()


# -- telling --------------------------------------------------------------------------------------------------------


def test_the_log_can_be_asked_for_a_node_and_from_a_time_on(filled: Memory, clock: SettableClock):
    for day, id in enumerate(TEXTS):
        filled.promote(id, "longterm", reason=f"day {day}")
        clock.advance(days=1)
    since = clock.now - timedelta(days=2)
    assert [entry.decision.node_id for entry in filled.promotion_log(since=since)] == ["bo", "cy"]
    assert [entry.decision.reason for entry in filled.promotion_log("bo")] == ["day 1"]
    assert list(filled.promotion_log("nobody")) == []
    entries = list(filled.promotion_log())
    assert [entry.sequence for entry in entries] == sorted(entry.sequence for entry in entries)
    assert [entry.previous_hash for entry in entries[1:]] == [entry.hash for entry in entries[:-1]]
    with pytest.raises(InvalidInputError, match="not a time"):
        filled.promotion_log(since="2026-01-01")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(InvalidInputError, match="not an id"):
        filled.promotion_log(5)  # type: ignore[arg-type]  # the point of the test


def test_a_long_log_comes_page_by_page(memory: Memory):
    memory.add([f"text {i}" for i in range(1200)], compute_embedding=False, tier="session")
    assert len(list(memory.promotion_log())) == 1200
    assert memory.check()


def test_an_explanation_names_what_is_missing(filled: Memory):
    use(filled, "s1", times=2)
    explanation = filled.explain_promotion("ada")
    assert (explanation.from_tier, explanation.to_tier, explanation.moved) == ("session", "longterm", False)
    assert [(c.name, c.found, c.required) for c in explanation.missing] == [
        ("distinct sessions", 1, ">= 3"),
        ("successful outcomes", 0, ">= 1"),
    ]
    assert "distinct sessions 1 (required: >= 3)" in explanation.reason


def test_candidates_lack_a_single_condition(filled: Memory):
    use(filled, "s1", "bo")
    for number in (1, 2):
        use(filled, f"s{number}", "ada", times=2).outcome(True)
    found = filled.candidates()
    assert {d.node_id: [c.name for c in d.missing] for d in found} == {
        "ada": ["distinct sessions"],
        "bo": ["uses in one session"],
    }


def test_the_timeline_ends_with_the_tiers_of_today(filled: Memory, clock: SettableClock):
    began = clock.now
    clock.advance(days=1)
    climb(filled)
    clock.advance(days=1)
    filled.promote("bo", "archive", reason="x")
    filled.delete("cy")
    points = filled.timeline()
    assert [(point.at - began).days for point in points] == [0, 1, 2]
    assert [dict(point.counts) for point in points] == [
        {"task": 2, "session": 0, "longterm": 0, "archive": 0},
        {"task": 1, "session": 0, "longterm": 1, "archive": 0},
        {"task": 0, "session": 0, "longterm": 1, "archive": 1},
    ]


def test_the_timeline_holds_when_the_clock_goes_back_and_an_id_is_given_again(filled: Memory, clock: SettableClock):
    """B112"""
    filled.promote("ada", "longterm", reason="x")
    clock.advance(days=-5)
    filled.promote("ada", "session", reason="x")
    filled.promote("bo", "archive", reason="x")
    filled.delete("bo")
    filled.add("Bo again", ids=["bo"])
    assert dict(filled.timeline()[-1].counts) == {"task": 2, "session": 1, "longterm": 0, "archive": 0}
    assert filled.check()


# -- confidence -----------------------------------------------------------------------------------------------------


def test_decaying_twice_is_decaying_once_for_the_whole_time(open_memory: Any, clock: SettableClock):
    memory = open_memory(policy=PromotionPolicy(decay_per_day=0.9))
    memory.add(["one", "two"], ids=["once", "twice"], confidence=1.0)
    clock.advance(days=3)
    memory.promote("once", "session", reason="x")
    memory.pin("once")
    assert memory.decay() == 1
    assert memory.decay() == 0
    clock.advance(days=4)
    assert memory.decay() == 1
    assert memory.get("twice")[0].confidence == pytest.approx(0.9**7)
    assert memory.decay(clock.now - timedelta(days=30)) == 0, "the clock going back changes nothing"
    assert memory.get("once")[0].confidence == 1.0


def test_confidence_fades_from_the_last_access_write_or_unpinning_on(open_memory: Any, clock: SettableClock):
    memory = open_memory(policy=PromotionPolicy(decay_per_day=0.5))
    memory.add(["one", "two", "three", "four"], ids=["idle", "used", "written", "unpinned"], confidence=0.8)
    memory.pin("unpinned")
    clock.advance(days=10)
    use(memory, "s1", "used")
    memory.update("written", confidence=0.6)
    memory.unpin("unpinned")
    memory.unpin("idle")
    clock.advance(days=1)
    assert memory.decay() == 4
    faded = {node.id: node.confidence for node in memory.list()}
    assert faded == pytest.approx({"idle": 0.8 * 0.5**11, "used": 0.4, "written": 0.3, "unpinned": 0.4})


def test_a_policy_may_ask_for_more_sessions_than_a_database_can_count(open_memory: Any):
    """The daily sweep failed with an OverflowError, and so did opening the store."""
    memory = open_memory(policy=PromotionPolicy(min_sessions=10**30, archive_after_days=10**30))
    memory.add("one", ids=["ada"], confidence=0.9)
    climb(memory)
    assert memory.sweep(datetime(2050, 1, 1, tzinfo=UTC)) == []
    assert tier(memory, "ada") == "session"


def test_a_policy_without_decay_changes_nothing(open_memory: Any, clock: SettableClock):
    memory = open_memory(policy=PromotionPolicy(decay_per_day=1))
    memory.add("one", confidence=0.8)
    clock.advance(days=100)
    assert memory.decay() == 0


def test_each_outcome_changes_a_confidence_once(filled: Memory):
    filled.update("ada", confidence=0.5)
    session = use(filled, "s1")
    session.outcome(True)
    session.record_access(["ada", "bo"])
    session.outcome(False)
    assert filled.learn() == 3
    assert {node.id: node.confidence for node in filled.list()} == {"ada": 0.4, "bo": 0.7, "cy": 0.9}
    assert filled.learn() == 0
    assert filled.get("ada")[0].confidence == 0.4


def test_an_outcome_that_is_corrected_after_it_was_learned_is_learned_anew(filled: Memory):
    session = filled.session("s1")
    session.record_access("cy", run_id="r1")
    session.outcome(True, run_id="r1")
    assert filled.learn() == 1
    session.outcome(True, run_id="r1")
    assert filled.learn() == 0, "the same verdict again says nothing new"
    session.outcome(False, run_id="r1")
    assert filled.learn() == 1
    assert filled.get("cy")[0].confidence == 0.8


def test_an_outcome_that_was_only_just_reported_is_learned(filled: Memory):
    """`learn` did not see what `record_outcome` had reported until something else wrote it down."""
    session = filled.session("s1")
    session.record_access("ada", run_id="r1")
    session.record_outcome(True, run_id="r1")
    assert filled.learn() == 1
    assert filled.get("ada")[0].confidence == 1.0


def test_learning_does_not_hide_how_long_a_memory_was_unused(open_memory: Any, clock: SettableClock):
    memory = open_memory(policy=PromotionPolicy(decay_per_day=0.5, success_step=0.5))
    memory.add("one", ids=["a"], confidence=0.5)
    session = use(memory, "s1", "a")
    clock.advance(days=2)
    session.outcome(True)
    memory.learn()
    assert memory.get("a")[0].confidence == 1.0
    memory.decay()
    assert memory.get("a")[0].confidence == 0.25


# -- consolidating --------------------------------------------------------------------------------------------------


def test_near_duplicates_are_linked_to_the_best_and_archived(memory: Memory):
    same = "The key is rotated on Monday"
    memory.add([same, same, same, "Something else"], ids=["a", "b", "c", "d"])
    memory.update("b", confidence=0.9)
    before = {node.id: (node.text, node.metadata, node.created_at) for node in memory.list()}
    merged = memory.consolidate()
    assert set(merged) == {"b"}
    assert set(merged["b"]) == {"a", "c"}
    assert {node.id: node.tier for node in memory.list(include_archived=True)} == {
        "a": "archive",
        "b": "task",
        "c": "archive",
        "d": "task",
    }
    assert {edge.source: (edge.target, edge.kind) for edge in memory.links("b")} == dict.fromkeys(
        "ac", ("b", "duplicate_of")
    )
    assert memory.links("d") == []
    assert {n.id: (n.text, n.metadata, n.created_at) for n in memory.list(include_archived=True)} == before
    assert {entry.decision.rule for entry in memory.promotion_log()} == {"consolidate"}
    assert memory.consolidate() == {}
    memory.delete("a")
    assert [edge.source for edge in memory.links("b")] == ["c"]
    assert memory.check()


def test_of_equally_sure_duplicates_the_most_used_then_the_newest_is_kept(memory: Memory, clock: SettableClock):
    for id, text in (("old", "red"), ("used", "red"), ("older", "blue"), ("newer", "blue")):
        memory.add(f"The door is {text}", ids=[id])
        clock.advance(seconds=1)
    use(memory, "s1", "used")
    assert memory.consolidate() == {"used": ["old"], "newer": ["older"]}


def test_pinned_duplicates_stay(memory: Memory):
    memory.add(["The door is red"] * 3, ids=["a", "b", "c"])
    memory.update("a", confidence=1.0)
    memory.pin("b")
    memory.pin("c")
    [(best, rest)] = memory.consolidate().items()
    assert best in "bc"
    assert rest == ["a"]
    assert [tier(memory, id) for id in "abc"] == ["archive", "task", "task"]


def test_consolidation_keeps_to_the_tier_and_the_filter(memory: Memory):
    memory.add(["The door is red"] * 3, ids=["a", "b", "c"], metadatas=[{"task": 1}, {"task": 2}, {"task": 1}])
    memory.promote("c", "longterm", reason="x")
    assert memory.consolidate(where={"task": 1}) == {}
    assert list(memory.consolidate()) in (["a"], ["b"])
    assert tier(memory, "c") == "longterm"


def test_memories_without_a_vector_are_not_compared(memory: Memory):
    memory.add(["The door is red"] * 2, compute_embedding=False)
    assert memory.consolidate() == {}


# -- asyncio --------------------------------------------------------------------------------------------------------


async def test_a_memory_climbs_in_asyncio_too(open_memory: Any):
    memory = AsyncMemory(open_memory())
    await memory.add(["Ada likes tea"], ids=["ada"], confidence=0.9)
    for number in (1, 2, 3):
        session = await memory.session(f"s{number}")
        await memory.search("tea", session=session)
        await memory.search("tea", session=session)
        assert await memory.outcome(session, True) == 1
        decisions = await memory.end_session(session)
    assert [decision.to_tier for decision in decisions] == ["longterm"]
    assert len(await memory.accesses("ada")) == 6
    assert [entry.decision.to_tier for entry in await memory.promotion_log("ada")][-1] == "longterm"
    assert len(await memory.sessions()) == 3
    assert (await memory.explain_promotion("ada")).to_tier == "archive"
    await memory.promote("ada", "archive", reason="x")
    await memory.restore("ada")
    await memory.pin("ada")
    assert await memory.sweep(datetime(2050, 1, 1, tzinfo=UTC)) == []
    await memory.unpin("ada")
    assert await memory.learn() == 3
    assert await memory.decay() == 0
    assert await memory.candidates() == []
    assert await memory.links("ada") == []
    assert await memory.consolidate() == {}
    assert (await memory.timeline())[-1].counts["longterm"] == 1
    assert await memory.check()


def test_a_node_is_the_same_before_and_after_a_life_of_promotions(memory: Memory, clock: SettableClock):
    memory.add(Node(id="a", text="text", metadata={"k": [1, {"x": None}]}, type="decision", confidence=0.9))
    [before] = memory.get("a")
    clock.advance(days=1)
    climb(memory, "a")
    clock.advance(days=100)
    memory.sweep()
    memory.restore("a")
    memory.pin("a")
    [after] = memory.get("a")
    for name in ("id", "text", "metadata", "type", "confidence", "created_at", "updated_at", "namespace"):
        assert getattr(after, name) == getattr(before, name)
    assert memory.search("text", alpha=1, k=1)[0].semantic == pytest.approx(1.0)
