"""What a session journals besides its operations: events, turns that are over for good, and what ends at once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


def test_turns_that_end_with_an_event_outlive_a_crash(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=3)
    for number in range(5):
        session.record({"type": "step", "n": number}, journal=True)
        session.end_turn({"type": "end", "n": number})
    restored = RLMSession.restore("s", store=store)
    assert restored.turn == 5
    assert "restored at turn 5.\nIts variables are as they were saved after turn 3." in restored.resume_note()
    assert restored.trajectory_events == session.trajectory_events
    assert [event["turn"] for event in restored.trajectory_events] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_turns_and_events_without_a_journal_are_those_of_the_checkpoint(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=2)
    for number in range(3):
        session.record({"n": number})
        session.end_turn()
    restored = RLMSession.restore("s", store=store)
    assert (restored.turn, [event["n"] for event in restored.trajectory_events]) == (2, [0, 1])


def test_a_call_of_a_turn_that_is_not_run_again_is_recognised_in_the_turn_that_is(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=0)
    session.checkpoint()
    for number in range(2):
        session.call("f", "x", lambda: "before")
        session.end_turn({"n": number})
    session.call("f", "x", lambda: "in the third turn")
    restored = RLMSession.restore("s", store=store)
    assert [each.result for each in restored.resume().replayed] == ["in the third turn"]
    assert restored.call("f", "x", lambda: "again") == "in the third turn"


def test_an_operation_its_usage_and_its_event_are_kept_together(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    session.checkpoint()
    done = session.begin_operation("f", 1, idempotent=True)
    failed = session.begin_operation("f", 2, idempotent=True)
    session.complete_operation(done, usage=("m", 3, 4, 0.5), event={"what": "done"})
    session.fail_operation(failed, "no", event={"what": "failed"})
    restored = RLMSession.restore("s", store=store)
    assert [event["what"] for event in restored.trajectory_events] == ["done", "failed"]
    assert (restored.cost_so_far, restored.pending_operations) == (0.5, [])


def test_events_of_the_journal_are_bounded_too(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, max_events=3)
    session.checkpoint()
    for number in range(9):
        session.record({"n": number}, journal=True)
    restored = RLMSession.restore("s", store=store, max_events=3)
    assert [event["n"] for event in restored.trajectory_events] == [6, 7, 8]


@pytest.mark.parametrize(("tokens", "cost"), [(-1, None), (1, -0.5), (1, math.nan), (1, math.inf)])
def test_a_usage_that_cannot_be_is_refused_before_it_is_journalled(
    tokens: int, cost: float | None, store: CheckpointStore
) -> None:
    session = RLMSession("s", store=store)
    session.checkpoint()
    id = session.begin_operation("f", 1, idempotent=True)
    with pytest.raises(InvalidInputError):
        session.add_usage("m", tokens, 1, cost)
    with pytest.raises(InvalidInputError):
        session.complete_operation(id, usage=("m", tokens, 1, cost))
    assert RLMSession.restore("s", store=store).usage == session.usage == {"models": {}, "depths": {}}


def test_a_reply_whose_tokens_nobody_counted_has_no_price(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    session.add_usage("gpt-4o", 0, 0)
    assert session.usage["models"]["gpt-4o"]["unpriced"] == 1


def test_threads_that_report_at_once_lose_nothing(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=4, max_events=10_000)
    session.checkpoint()

    def work(number: int) -> None:
        for _ in range(5):
            id = session.begin_operation("f", number, idempotent=True)
            session.complete_operation(id, usage=("m", 1, 2, 0.25), event={"n": number})
            session.end_turn({"end": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    restored = RLMSession.restore("s", store=store, max_events=10_000)
    for each in (session, restored):
        assert (each.turn, len(each.trajectory_events), each.cost_so_far) == (40, 80, 10)
        assert each.usage["models"]["m"]["calls"] == 40
    assert [info.turn for info in store.list("s")] == [0, *range(4, 41, 4)]


def test_a_fork_has_a_journal_of_its_own(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    for number in range(20):
        session.record({"n": number, "text": "x" * 100}, journal=True)
    store.fork(session.checkpoint().checkpoint_id, "t")
    fork = RLMSession.restore("t", store=store)
    fork.add_usage("m", 1, 1, 0.5)
    assert RLMSession.restore("t", store=store).cost_so_far == 0.5


def test_a_fork_goes_back_to_the_turn_of_its_checkpoint(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=2)
    for number in range(3):
        session.end_turn({"n": number})
    store.fork(store.list("s")[-1].checkpoint_id, "t")
    fork = RLMSession.restore("t", store=store)
    assert (fork.turn, [event["n"] for event in fork.trajectory_events]) == (2, [0, 1])
