"""What a recorder makes of what hooks tell it, whatever framework they are of."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory.checkpoints import (
    CheckpointStore,
    CheckpointWriteError,
    Recorder,
    RLMSession,
    Usage,
    recorder_of,
    usage_of,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
def session(store: CheckpointStore) -> RLMSession:
    return RLMSession("s", store=store)


@pytest.fixture
def recorder(session: RLMSession) -> Recorder:
    return recorder_of(session)


def told(session: RLMSession) -> list[tuple[str, str, str]]:
    return [(event["type"], event["name"], event["status"]) for event in session.trajectory_events]


def test_hooks_of_a_session_share_its_recorder_while_one_of_them_has_it(session: RLMSession) -> None:
    recorder = recorder_of(session)
    assert recorder_of(session) is recorder
    recorder.start("run")
    del recorder
    gc.collect()
    assert not recorder_of(session).watches("run")


def test_what_is_told_twice_is_recorded_once(recorder: Recorder, session: RLMSession) -> None:
    for act in (
        lambda: recorder.start("run", name="agent"),
        lambda: recorder.start("step", "run"),
        lambda: recorder.begin("step", "tool", "add", {}, idempotent=True),
        lambda: recorder.finish("step", usage=Usage("m", 1, 1)),
        lambda: recorder.stop("step"),
        lambda: recorder.stop("run"),
    ):
        act()
        act()
    assert told(session) == [("run", "agent", "started"), ("tool", "add", "done"), ("run", "agent", "done")]
    assert (session.turn, session.usage["models"]["m"]["calls"]) == (1, 1)


def test_what_was_never_begun_is_passed_over(recorder: Recorder, session: RLMSession) -> None:
    recorder.begin("nowhere", "tool", "add", {}, idempotent=True)
    recorder.finish("nowhere", usage=Usage("m", 1, 1))
    recorder.stop("nowhere")
    assert (session.trajectory_events, session.turn, session.usage["models"]) == ([], 0, {})


def test_call_is_in_the_journal_before_it_is_made(
    recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("run", input="question")
    recorder.start("step", "run")
    recorder.begin("step", "tool", "send", {"to": "Ada"}, idempotent=False)
    restored = RLMSession.restore("s", store=store)
    (pending,) = restored.pending_operations
    assert (pending.kind, pending.payload, pending.idempotent) == ("tool send", {"to": "Ada"}, False)
    assert "tool send (NOT safe to repeat): {'to': 'Ada'}" in restored.resume_note()


def test_call_outside_of_any_turn_is_found_after_a_crash(
    recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("chat", is_turn=False)
    recorder.begin("chat", "model", "m", "?", idempotent=True)
    assert [each.kind for each in RLMSession.restore("s", store=store).pending_operations] == ["model m"]


def test_call_of_the_same_owner_is_a_part_of_the_call_around_it(recorder: Recorder, session: RLMSession) -> None:
    model, other = object(), object()
    recorder.start("chat", name="chat", owner=model, is_turn=False)
    recorder.begin("chat", "model", "m", "?", idempotent=True)
    recorder.start("between", "chat")
    for id, owner in (("complete", model), ("other", other)):
        recorder.start(id, "between", owner=owner)
        recorder.begin(id, "model", id, "?", idempotent=True)
        recorder.finish(id, usage=Usage("", 1, 1))
        recorder.stop(id)
    recorder.finish("chat", usage=Usage("m", 1, 1))
    assert told(session) == [("model", "other", "done"), ("model", "m", "done")]
    assert {name: sums["calls"] for name, sums in session.usage["models"].items()} == {"other": 1, "m": 1}


@pytest.mark.parametrize(
    ("status", "turns", "reasons"),
    [
        ("done", 1, ["start"]),
        ("failed", 1, ["start", "error"]),
        ("cancelled", 1, ["start"]),
        ("interrupted", 0, ["start", "interrupt"]),
    ],
)
def test_how_a_run_ends(
    status: Any, turns: int, reasons: list[str], recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("run", name="agent")
    recorder.stop("run", status, error=ValueError("no") if status == "failed" else None)
    assert (told(session)[-1], session.turn) == (("run", "agent", status), turns)
    assert [store.get(info.checkpoint_id).metadata["reason"] for info in store.list("s")] == reasons


def test_part_that_is_interrupted_interrupts_the_run(recorder: Recorder, session: RLMSession) -> None:
    recorder.start("run")
    recorder.start("node", "run")
    recorder.stop("node", "interrupted")
    recorder.stop("run")
    assert (session.trajectory_events[-1]["status"], session.turn) == ("interrupted", 0)


def test_run_that_has_waited_and_gone_on_can_be_cancelled_and_wait_again(
    recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("run")
    for _ in range(2):
        recorder.interrupt("run", ends=False)
        recorder.begin("run", "tool", "add", {}, idempotent=True)
        recorder.finish("run")
    recorder.stop("run", "cancelled")
    assert (session.trajectory_events[-1]["status"], session.turn) == ("cancelled", 1)
    reasons = [store.get(info.checkpoint_id).metadata["reason"] for info in store.list("s")]
    assert reasons == ["start", "interrupt", "interrupt"]


def test_calls_that_a_failed_run_leaves_are_given_up(recorder: Recorder, session: RLMSession) -> None:
    recorder.start("run")
    for id in ("a", "b"):
        recorder.start(id, "run")
        recorder.begin(id, "tool", id, {}, idempotent=True)
    recorder.stop("run", "failed", error=ValueError("no"))
    assert session.pending_operations == []
    recorder.finish("a", output="too late")
    assert [each[2] for each in told(session)] == ["started", "failed", "failed", "failed"]


def test_run_is_counted_also_where_nothing_can_be_written(
    recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("run")
    recorder.start("a", "run")
    recorder.begin("a", "tool", "add", {}, idempotent=True)
    store.journal("s").path.unlink()
    store.journal("s").path.mkdir()
    with pytest.raises(CheckpointWriteError):
        recorder.stop("run", "failed", error=ValueError("no"))
    assert (session.turn, session.pending_operations, recorder.watches("run")) == (1, [], False)


def test_call_whose_beginning_could_not_be_written_is_paid_all_the_same(
    recorder: Recorder, session: RLMSession, store: CheckpointStore
) -> None:
    recorder.start("run", is_turn=False)
    session.checkpoint()
    store.journal("s").path.mkdir()
    with pytest.raises(CheckpointWriteError):
        recorder.begin("run", "model", "m", "?", idempotent=True)
    assert session.pending_operations == []
    store.journal("s").path.rmdir()
    recorder.finish("run", usage=Usage("m", 1, 1, 0.5))
    restored = RLMSession.restore("s", store=store)
    assert (restored.cost_so_far, told(restored)) == (0.5, [("model", "m", "done")])


def test_searches_are_no_operations(recorder: Recorder, session: RLMSession) -> None:
    recorder.start("run")
    recorder.begin("run", "retrieval", "store", "tea", idempotent=True)
    assert session.pending_operations == []
    recorder.finish("run", output=["a"])
    assert told(session)[-1] == ("retrieval", "store", "done")


def test_reply_that_broke_off_has_cost_what_it_has(recorder: Recorder, session: RLMSession) -> None:
    recorder.start("run")
    recorder.begin("run", "model", "m", "?", idempotent=True)
    recorder.finish("run", "failed", usage=Usage("", 3, 4, 0.5), error="broken")
    assert (session.cost_so_far, session.usage["models"]["m"]["calls"]) == (0.5, 1)


def test_steps_that_never_end_do_not_pile_up(recorder: Recorder, session: RLMSession) -> None:
    recorder.start("root", is_turn=False)
    for number in range(10_500):
        recorder.start(str(number), "root", is_turn=False)
    assert not recorder.watches("root")
    assert not recorder.watches("10")
    assert recorder.watches("10499")


ACTS: dict[str, Callable[[Recorder, str, str], None]] = {
    "start": lambda recorder, step, other: recorder.start(step, other),
    "begin": lambda recorder, step, other: recorder.begin(step, "tool", "t", other, idempotent=True),
    "search": lambda recorder, step, other: recorder.begin(step, "retrieval", "r", other, idempotent=True),
    "finish": lambda recorder, step, other: recorder.finish(step, output=other, usage=Usage("m", 1, 1)),
    "fail": lambda recorder, step, other: recorder.finish(step, "failed", error=other),
    "stop": lambda recorder, step, other: recorder.stop(step),
    "cancel": lambda recorder, step, other: recorder.stop(step, "cancelled"),
    "interrupt": lambda recorder, step, other: recorder.interrupt(step),
}


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from("abcd"), st.sampled_from("abcd"))))
def test_in_whatever_order_hooks_tell_a_restored_session_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str, str]]
) -> None:
    store = CheckpointStore(tmp_path_factory.mktemp("store"))
    session = RLMSession("s", store=store, every=2)
    session.checkpoint()
    recorder = Recorder(session)
    for act, id, other in acts:
        ACTS[act](recorder, id, other)
    restored = RLMSession.restore("s", store=store)
    assert restored.turn == session.turn
    assert restored.trajectory_events == session.trajectory_events
    assert restored.usage == session.usage
    assert {each.id for each in restored.pending_operations} == {each.id for each in session.pending_operations}


def test_threads_record_their_runs_in_one_session(session: RLMSession, store: CheckpointStore) -> None:
    recorder = recorder_of(session)

    def run(name: str) -> None:
        for number in range(5):
            recorder.start(f"{name}{number}")
            recorder.begin(f"{name}{number}", "model", "m", number, idempotent=True)
            recorder.finish(f"{name}{number}", usage=Usage("m", 1, 1))
            recorder.stop(f"{name}{number}")

    threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in (session, RLMSession.restore("s", store=store)):
        assert (each.turn, each.usage["models"]["m"]["calls"], len(each.trajectory_events)) == (20, 20, 60)


class Told:
    prompt_tokens = 3
    completion_tokens = 4
    cost = 0.25


@pytest.mark.parametrize(
    ("places", "usage"),
    [
        ([{"input_tokens": 1, "output_tokens": 2}], Usage("m", 1, 2)),
        ([None, {}, Told()], Usage("m", 3, 4, 0.25)),
        ([{"prompt_tokens": 1.0}, Told()], Usage("m", 1, 0, 0.25)),
        ([{"input_tokens": "1", "output_tokens": True}], None),
        ([{"input_tokens": float("nan"), "output_tokens": -1}, Told()], Usage("m", 3, 4, 0.25)),
        ([{"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}], Usage("m", 7, 1)),
        ([], None),
    ],
)
def test_usage_is_what_the_first_place_tells_that_knows(places: list[Any], usage: Usage | None) -> None:
    assert usage_of("m", *places) == usage
    assert usage is None or usage_of(None, *places) == usage._replace(model="")
