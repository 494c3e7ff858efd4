"""A session: when it saves, what it costs, what it calls again after a crash, and what it tells the model."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from checkpoints.processes import command, environment
from rlm_memory.checkpoints import (
    CheckpointNotFoundError,
    CheckpointStore,
    Operation,
    OperationError,
    RLMSession,
)
from rlm_memory.errors import InvalidInputError


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store", trust="key")


def run(session: RLMSession, source: str) -> None:
    """Run a cell as a REPL does."""
    try:
        exec(source, session.namespace)
    except Exception as error:  # noqa: BLE001  # a cell may raise anything
        session.record_cell(source, error=error)
    else:
        session.record_cell(source)


def reasons(store: CheckpointStore, session_id: str = "s") -> list[Any]:
    return [store.get(info.checkpoint_id).metadata["reason"] for info in store.list(session_id)]


@pytest.mark.parametrize(("every", "saved"), [(5, [5, 10]), (1, [*range(1, 13)]), (0, [])])
def test_a_checkpoint_is_taken_after_every_n_turns(every: int, saved: list[int], store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=every)
    returned = [session.end_turn() for _ in range(12)]
    assert [info.turn for info in store.list("s")] == saved
    assert [each.turn for each in returned if each is not None] == saved


def test_functions_and_classes_of_the_repl_work_after_a_restore(store: CheckpointStore) -> None:
    """Answers B145."""
    session = RLMSession("s", store=store)
    run(session, "import math\nK = 2\ndef area(r): return K * math.pi * r\nclass P:\n    def f(self): return area(1)")
    run(session, "p = P()\ntotal = [area(n) for n in range(3)]")
    session.checkpoint()
    restored = RLMSession.restore("s", store=store)
    run(restored, "K = 10\nagain = p.f() == area(1) and isinstance(p, P)")
    assert restored.namespace["again"] is True
    assert restored.namespace["total"] == session.namespace["total"]
    restored.checkpoint()
    assert RLMSession.restore("s", store=store).namespace["p"].f() == pytest.approx(31.4159, abs=1e-3)


def test_a_cell_that_fails_keeps_what_it_bound_and_is_recorded(store: CheckpointStore) -> None:
    """Answers B085."""
    run(RLMSession("s", store=store), "x = 1\ny = [2]\n1 / 0")
    restored = RLMSession.restore("s", store=store)
    assert (restored.namespace["x"], restored.namespace["y"]) == (1, [2])
    assert "ZeroDivisionError" in restored.trajectory_events[-1]["error"]


def test_a_block_saves_before_it_works_when_it_fails_and_at_its_end(store: CheckpointStore) -> None:
    """Answers B166."""
    with RLMSession("s", store=store, namespace={"context": "the input"}) as session:
        assert reasons(store) == ["start"]
        session.end_turn()
    for error in (KeyboardInterrupt, SystemExit, ValueError):
        with pytest.raises(error):
            fail_inside(RLMSession.restore("s", store=store), error)
    assert reasons(store) == ["start", "end", "KeyboardInterrupt", "SystemExit", "ValueError"]
    assert RLMSession.restore("s", store=store).namespace["ValueError"] is True


def fail_inside(session: RLMSession, error: type[BaseException]) -> None:
    with session:
        session.namespace[error.__name__] = True
        raise error


@pytest.mark.parametrize("way", ["sigterm", "exit"])
def test_a_process_that_is_stopped_saves_first(way: str, store: CheckpointStore) -> None:
    process = subprocess.Popen(
        command("session_process", store.root, way), env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if way == "sigterm":
        process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == (128 + signal.SIGTERM if way == "sigterm" else 0)
    assert store.latest("s").repl_state["x"] == "the last value"


def test_a_budget_and_a_time_limit_are_saved_at_and_told(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=0, budget=0.5, time_limit=0)
    session.add_usage("m", 10, 10, cost=0.4)
    assert session.limit_reached is None
    session.add_usage("m", 10, 10, cost=0.4)
    assert session.limit_reached == "budget"
    other = RLMSession("t", store=store, every=0, time_limit=0)
    assert other.end_turn() is not None
    assert other.limit_reached == "time"
    assert (reasons(store), reasons(store, "t")) == (["budget"], ["time"])


def test_costs_of_children_and_of_the_time_after_the_checkpoint_are_counted_once(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    session.add_usage("big", 100, 10, cost=0.25)
    session.child("a").add_usage("small", 50, 5, cost=0.125)
    session.checkpoint()
    session.child("b").child("c").add_usage("small", 50, 5, cost=0.5)
    session.add_usage("big", 1, 1, cost=1.0)
    session.add_usage("of nobody knows what price", 1, 1)
    restored = RLMSession.restore("s", store=store)
    assert restored.cost_so_far == session.cost_so_far == 1.875
    assert restored.usage == session.usage
    assert restored.usage["depths"] == {"0": 1.25, "1": 0.125, "2": 0.5}
    assert restored.usage["models"]["of nobody knows what price"]["unpriced"] == 1


def test_a_child_that_is_restored_goes_on_and_counts_for_its_parent(tmp_path: Path) -> None:
    def provided() -> str:
        return "the child's own"

    own = CheckpointStore(tmp_path, provided={"provided": provided})
    session = RLMSession("s", store=CheckpointStore(tmp_path))
    first = session.child("a", store=own, restore=True)
    assert (first.turn, first.depth, first.cost_so_far) == (0, 1, 0)
    first.namespace["calls"] = [provided]
    first.end_turn()
    first.add_usage("small", 50, 5, cost=0.125)
    first.checkpoint()
    again = session.child("a", store=own, restore=True)
    assert (again.session_id, again.turn, again.depth, again.cost_so_far) == ("s/a", 1, 1, 0.125)
    assert again.namespace["calls"] == [provided]
    again.add_usage("small", 50, 5, cost=0.25)
    assert (again.cost_so_far, session.cost_so_far) == (0.375, 0.375)


def test_a_price_is_looked_up_when_the_provider_gives_none(store: CheckpointStore) -> None:
    pytest.importorskip("genai_prices")
    session = RLMSession("s", store=store)
    session.add_usage("gpt-4o", 1_000_000, 0)
    assert session.cost_so_far > 0


def test_a_call_that_finished_is_not_made_again(store: CheckpointStore) -> None:
    """Answers B098."""
    session = RLMSession("s", store=store)
    session.checkpoint()
    made: list[str] = []

    def ask(prompt: str) -> Any:
        made.append(prompt)
        return {"reply": (prompt, len(made))}

    first = [session.call("llm", prompt, lambda prompt=prompt: ask(prompt)) for prompt in ("a", "b", "a")]
    restored = RLMSession.restore("s", store=store)
    assert [operation.payload for operation in restored.resume().replayed] == ["a", "b", "a"]
    again = [restored.call("llm", prompt, lambda prompt=prompt: ask(prompt)) for prompt in ("a", "b", "a", "a")]
    assert again[:3] == first
    assert made == ["a", "b", "a", "a"]


def test_a_finished_call_is_found_when_the_checkpoint_was_taken_within_the_turn(
    store: CheckpointStore,
) -> None:
    session = RLMSession("s", store=store)
    session.end_turn()
    session.call("llm", "p", lambda: 1)
    session.add_usage("m", 1, 1, cost=0.5)
    session.checkpoint()
    restored = RLMSession.restore("s", store=store)
    assert restored.call("llm", "p", lambda: 2) == 1
    assert restored.cost_so_far == 0.5


def test_calls_of_all_turns_since_the_checkpoint_are_found_also_after_a_second_crash(store: CheckpointStore) -> None:
    """B098"""
    made: list[str] = []

    def turns(session: RLMSession, count: int) -> RLMSession:
        for _ in range(count):
            prompt = f"turn {session.turn}"
            assert session.call("llm", prompt, lambda prompt=prompt: made.append(prompt) or prompt) == prompt
            session.end_turn()
        return session

    first = RLMSession("s", store=store)
    first.checkpoint()
    turns(first, 3)
    turns(RLMSession.restore("s", store=store), 1).checkpoint()  # the second process dies after this
    turns(RLMSession.restore("s", store=store), 3)
    assert made == ["turn 0", "turn 1", "turn 2", "turn 3"]


def test_a_call_that_failed_may_be_made_again(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    session.checkpoint()
    with pytest.raises(ZeroDivisionError):
        session.call("tool", 1, lambda: 1 / 0)
    restored = RLMSession.restore("s", store=store)
    assert restored.pending_operations == []
    assert restored.call("tool", 1, lambda: 2) == 2


def left_pending(store: CheckpointStore) -> RLMSession:
    """Return the session after a crash that left one call of each sort, one of them since before the checkpoint."""
    session = RLMSession("s", store=store)
    session.begin_operation("llm", "early", idempotent=True)
    session.checkpoint()
    session.begin_operation("llm", "late", idempotent=True)
    session.begin_operation("mail", "to all", idempotent=False)
    return RLMSession.restore("s", store=store)


def payloads(operations: list[Operation]) -> list[Any]:
    return [operation.payload for operation in operations]


def test_rerun_makes_only_calls_again_that_do_no_harm(store: CheckpointStore) -> None:
    session = left_pending(store)
    mails: list[Any] = []
    outcome = session.resume({"llm": str.upper, "mail": mails.append})
    assert payloads(outcome.rerun) == ["early", "late"]
    assert payloads(outcome.undecided) == ["to all"]
    assert mails == []
    assert session.call("llm", "late", lambda: "asked again") == "LATE"
    with pytest.raises(OperationError, match="may have happened"):
        session.call("mail", "to all", lambda: mails.append("twice"), idempotent=False)
    session.complete_operation(outcome.undecided[0].id, "it had been sent")
    assert session.call("mail", "to all", lambda: "again", idempotent=False) == "it had been sent"


def test_ask_decides_call_by_call(store: CheckpointStore) -> None:
    session = left_pending(store)
    outcome = session.resume({"llm": str.upper, "mail": str.title}, "ask", ask=lambda each: each.kind == "mail")
    assert payloads(outcome.rerun) == ["to all"]
    assert payloads(outcome.skipped) == ["early", "late"]
    with pytest.raises(InvalidInputError):
        session.resume(policy="ask")


def test_skip_makes_none_and_stays_decided(store: CheckpointStore) -> None:
    outcome = left_pending(store).resume(policy="skip")
    assert len(outcome.skipped) == 3
    assert RLMSession.restore("s", store=store).pending_operations == []


def test_a_handler_that_fails_does_not_stop_the_others(store: CheckpointStore) -> None:
    outcome = left_pending(store).resume({"llm": lambda payload: 1 / (payload != "early")})
    assert payloads(outcome.failed) == ["early"]
    assert payloads(outcome.rerun) == ["late"]


def test_an_operation_ends_once(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store)
    id = session.begin_operation("llm", 1, idempotent=True)
    session.complete_operation(id, "r", usage=("m", 1, 2, 0.5))
    assert session.cost_so_far == 0.5
    for end in (session.complete_operation, session.fail_operation):
        with pytest.raises(OperationError):
            end(id, "again")
        with pytest.raises(OperationError):
            end("nobody", "x")


def test_the_note_tells_the_model_what_is_back_and_what_is_not(store: CheckpointStore, tmp_path: Path) -> None:
    session = RLMSession("s", store=CheckpointStore(store.root))
    run(session, "data = [1]\ndef helper(): return 1\ngen = (i for i in data)")
    session.begin_operation("mail", "to all", idempotent=False)
    session.end_turn()
    session.checkpoint()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        note = RLMSession.restore("s", store=CheckpointStore(store.root)).resume_note()
    finally:
        os.chdir(before)
    assert "turn 1" in note
    assert "back: data." in note
    assert "NOT restored: helper" in note
    assert "def helper(): return 1" in note
    assert "NOT restored: gen" in note
    assert "generator" in note
    assert "mail (NOT safe to repeat)" in note
    assert str(before) in note


def test_events_are_bounded_and_hold_no_secrets(store: CheckpointStore) -> None:
    """Answers B117."""
    session = RLMSession("s", store=store, max_events=3)
    for number in range(5):
        session.record({"n": number, "headers": {"Authorization": "Bearer x", "api_key": "k"}, "t": "sk-" + "a" * 30})
    assert [event["n"] for event in session.trajectory_events] == [2, 3, 4]
    assert session.trajectory_events[0]["headers"] == {"Authorization": "[redacted]", "api_key": "[redacted]"}
    assert session.trajectory_events[0]["t"] == "[redacted]"


def test_a_restored_namespace_holds_what_was_saved_and_nothing_else(store: CheckpointStore) -> None:
    """Answers B168."""
    RLMSession("s", store=store, namespace={"x": 1}).checkpoint()
    namespace = {"old": 1}
    assert RLMSession.restore("s", store=store, namespace=namespace).namespace is namespace
    assert namespace == {"x": 1}


def test_a_session_goes_on_from_a_file(store: CheckpointStore, tmp_path: Path) -> None:
    RLMSession("s", store=store, namespace={"x": 1}).checkpoint()
    path = store.export(store.list()[0].checkpoint_id, tmp_path / "a.rlmc")
    elsewhere = CheckpointStore(tmp_path / "elsewhere", trust="key")
    session = RLMSession.restore(path, store=elsewhere)
    session.end_turn()
    session.checkpoint()
    assert [info.parent_id for info in elsewhere.list("s")] == [store.list()[0].checkpoint_id]
    with pytest.raises(CheckpointNotFoundError):
        RLMSession.restore("another", store=elsewhere)


def test_older_checkpoints_are_pruned_when_that_is_asked_for(store: CheckpointStore) -> None:
    session = RLMSession("s", store=store, every=1, keep=2)
    for _ in range(5):
        session.end_turn()
    assert [info.turn for info in store.list("s")] == [4, 5]
