"""A run of an agent that survives its process: its namespace, turns, operations and costs, saved as it goes."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, NoReturn, Self, TypeVar

from rlm_memory.checkpoints.checkpoint import RLMCheckpoint
from rlm_memory.checkpoints.errors import CheckpointNotFoundError, OperationError
from rlm_memory.checkpoints.heap import Issue
from rlm_memory.checkpoints.journal import Entry, from_document, to_document
from rlm_memory.checkpoints.ledger import Ledger, checked, price
from rlm_memory.checkpoints.operations import Operation, Operations
from rlm_memory.checkpoints.placeholder import Unrestored
from rlm_memory.checkpoints.redaction import redacted
from rlm_memory.checkpoints.sources import Sources
from rlm_memory.checkpoints.store import CheckpointStore
from rlm_memory.errors import CheckpointError, InvalidInputError
from rlm_memory.ports import Clock, system_clock

Policy = Literal["rerun", "ask", "skip"]
Result = TypeVar("Result")
_JOURNAL = "journal"
_SOURCE_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class Resumption:
    """What became of the operations that an earlier process left.

    `replayed` had finished: their results are in the journal and are used when the turn is run again. `undecided` may
    have happened, must not happen twice, and wait for `complete_operation`, `fail_operation`, or `resume` with another
    policy.
    """

    replayed: list[Operation] = field(default_factory=list)
    rerun: list[Operation] = field(default_factory=list)
    failed: list[Operation] = field(default_factory=list)
    skipped: list[Operation] = field(default_factory=list)
    undecided: list[Operation] = field(default_factory=list)


class RLMSession:
    """A run of an agent, with checkpoints after every `every` turns (0: none but those that are asked for).

    `namespace` is the dict of the REPL; `working_memory`, `messages` and `metadata` are the caller's to change, and are
    saved as they are. `budget` in US dollars and `time_limit` in seconds: when one is passed, a checkpoint is taken and
    `limit_reached` says which; to stop is up to the caller. `keep` prunes older checkpoints after each new one.

    As a context manager it takes a checkpoint at the start, when the block raises (KeyboardInterrupt included), on
    SIGTERM, and at the end; one that is started and never closed takes one when the interpreter exits.

    Turns, events, operations and costs may be reported from several threads. What cells do to the namespace is theirs
    to keep apart from a checkpoint.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: CheckpointStore,
        every: int = 5,
        namespace: dict[str, Any] | None = None,
        depth: int = 0,
        keep: int | None = None,
        budget: float | None = None,
        time_limit: float | None = None,
        max_events: int = 1000,
        clock: Clock = system_clock,
    ) -> None:
        if every < 0 or max_events < 0 or depth < 0:
            raise InvalidInputError("Expected every, max_events and depth to be 0 or more.")
        self.session_id = session_id
        self.store = store
        self.every = every
        self.namespace: dict[str, Any] = {} if namespace is None else namespace
        self.depth = depth
        self.turn = 0
        self.working_memory: dict[str, Any] = {}
        self.messages: list[Any] = []
        self.metadata: dict[str, Any] = {}
        self.trajectory_events: list[dict[str, Any]] = []
        self.issues: list[Issue] = []
        self.limit_reached: Literal["budget", "time"] | None = None
        self.sources = Sources()
        self._keep = keep
        self._budget = budget
        self._time_limit = time_limit
        self._max_events = max_events
        self._clock = clock
        self._began = time.monotonic()
        self._journal = store.journal(session_id)
        self._operations = Operations(self._journal, depth)
        self._ledger = Ledger()
        self._parent: RLMSession | None = None
        self._turn_position = self._journal.position
        self._last_checkpoint: str | None = None
        self._saved_turn: int | None = None
        self._restored_turn: int | None = None
        self._saving = threading.RLock()
        self._sigterm_before: Any = None
        self._started = False

    # Turns

    def end_turn(self, event: Mapping[str, Any] | None = None) -> RLMCheckpoint | None:
        """Count a turn and, every `every` turns and when a limit is passed, return the checkpoint that was taken.

        A turn that ends with an `event` is over for good: both are journalled, and a crash before the next checkpoint
        takes neither back. So it is for agents whose steps are kept elsewhere; those that run the turns since the
        checkpoint again, as a REPL does, end them without.
        """
        with self._saving:
            kept = None if event is None else self._remember(event)
            self.turn += 1
            self._operations.new_turn(self.turn)
            if kept is not None:
                self._journal.append({"event": "turn", "turn": self.turn, "record": to_document(kept)}, durable=True)
            if not self._operations.finished_before:  # else a later checkpoint still needs what the journal has of them
                self._turn_position = self._journal.position
            if self._time_limit is not None and time.monotonic() - self._began > self._time_limit:
                reached = self._reach("time")
                if reached is not None:
                    return reached
            if self.every and self.turn % self.every == 0 and self._saved_turn != self.turn:
                return self.checkpoint(reason="turn")
            return None

    def checkpoint(self, *, reason: str = "manual") -> RLMCheckpoint:
        """Save the state as it is now and return the checkpoint; its `issues` say what could not be saved.

        Raises:
            CheckpointWriteError: the disk refused; the checkpoints before are intact.
        """
        with self._saving:
            position = self._journal.position
            checkpoint = RLMCheckpoint(
                session_id=self.session_id,
                depth=self.depth,
                repl_state=self.namespace,
                working_memory=self.working_memory,
                pending_operations=[_description(operation) for operation in self.pending_operations],
                trajectory_events=self.trajectory_events,
                cost_so_far=self.cost_so_far,
                turn=self.turn,
                messages=self.messages,
                usage=self._ledger.usage,
                parent_id=self._last_checkpoint,
                created_at=self._clock(),
                metadata={
                    **self.metadata,
                    "reason": reason,
                    "cwd": os.getcwd(),
                    _JOURNAL: {"turn": self._turn_position, "usage": position},
                },
                sources=self.sources,
            )
            self.store.put(checkpoint)
            self.issues = checkpoint.issues
            self._last_checkpoint, self._saved_turn = checkpoint.checkpoint_id, self.turn
            if self._keep is not None:
                self.store.prune(self.session_id, keep=self._keep)
            return checkpoint

    @property
    def last_checkpoint(self) -> str | None:
        """The id of the newest checkpoint that this session has taken or was restored from, None if there is none."""
        return self._last_checkpoint

    def record(self, event: Mapping[str, Any], *, journal: bool = False) -> None:
        """Add an event to the trajectory, with its turn and time and without secrets; the oldest make room.

        With `journal` it outlives a crash before the next checkpoint.
        """
        with self._saving:
            kept = self._remember(event)
            if journal:
                self._journal.append({"event": "record", "record": to_document(kept)}, durable=False)

    def record_cell(self, source: str, *, error: BaseException | None = None) -> None:
        """Keep the text of a cell that was executed in the namespace: functions and classes come back by it.

        Call it after the cell ran. With `error`, what the cell raised, the event is recorded and a checkpoint taken:
        what the cell had bound before it failed is kept.
        """
        self.sources.add(source, self.namespace)
        if error is not None:
            self.record({"type": "error", "error": f"{type(error).__name__}: {error}"})
            self.checkpoint(reason="error")

    # Operations

    def begin_operation(self, kind: str, payload: Any, *, idempotent: bool) -> str:
        """Journal that a call begins, and return the id to end it with; see `call`, which can replay."""
        return self._operations.begin(kind, payload, self.turn, idempotent=idempotent).id

    def complete_operation(
        self,
        id: str,
        result: Any = None,
        *,
        usage: tuple[str, int, int, float | None] | None = None,
        event: Mapping[str, Any] | None = None,
    ) -> None:
        """Journal that a call ended; when this returns it is on the disk.

        `usage` is (model, input tokens, output tokens, cost), and `event` one for the trajectory: given here, they are
        journalled together with the result, so that a crash cannot keep one without the other.

        Raises:
            OperationError: there is no such operation, or it is finished already.
            InvalidInputError: a number of the usage is negative or not finite.
        """
        entry = self._priced(*usage) if usage is not None else None
        with self._saving:
            self._operations.finish(id, "done", result=result, also=self._noted(entry, event))
            if entry is not None:
                self._charge(entry)

    def fail_operation(self, id: str, error: BaseException | str, *, event: Mapping[str, Any] | None = None) -> None:
        """Journal that a call failed: it may be made again. `event` is one for the trajectory, journalled with it.

        Raises:
            OperationError: there is no such operation, or it is finished already.
        """
        with self._saving:
            self._operations.finish(id, "failed", error=str(error), also=self._noted(None, event))

    def call(self, kind: str, payload: Any, function: Callable[[], Result], *, idempotent: bool = True) -> Result:
        """Return what the function returns, or what it returned in a process that was killed since.

        A call is recognised by the turn, the kind, the payload and its place among equal ones. One that was skipped by
        decision returns None.

        Raises:
            OperationError: the call was begun by a process that died, may have happened, and must not happen twice.
        """
        left = self._operations.claim(kind, payload, self.turn)
        if left is not None and left.status == "pending":
            raise OperationError(
                f"The operation {left.id!r} ({kind}) was begun before the crash and may have happened. "
                "Decide with complete_operation, fail_operation, or resume(policy='ask')."
            )
        if left is not None:
            return left.result  # type: ignore[no-any-return]  # it is what this function returned
        id = self.begin_operation(kind, payload, idempotent=idempotent)
        try:
            result = function()
        except Exception as error:
            self.fail_operation(id, error)
            raise
        self.complete_operation(id, result)
        return result

    @property
    def pending_operations(self) -> list[Operation]:
        """The operations that have begun and have no end, oldest first."""
        return self._operations.pending

    # Costs

    def add_usage(self, model: str, input_tokens: int, output_tokens: int, cost: float | None = None) -> None:
        """Add a reply of a model; without `cost` in US dollars, its list price counts if `genai-prices` knows it.

        Raises:
            InvalidInputError: a number is negative or not finite.
        """
        entry = self._priced(model, input_tokens, output_tokens, cost)
        with self._saving:
            self._journal.append({"event": "usage", "usage": entry}, durable=False)
            self._charge(entry)

    @property
    def cost_so_far(self) -> float:
        """US dollars, children included."""
        return self._ledger.total

    @property
    def usage(self) -> dict[str, Any]:
        """`{"models": {name: {calls, input_tokens, output_tokens, cost, unpriced}}, "depths": {depth: dollars}}`."""
        return self._ledger.usage

    def child(
        self,
        name: str,
        *,
        namespace: dict[str, Any] | None = None,
        store: CheckpointStore | None = None,
        restore: bool = False,
    ) -> RLMSession:
        """Return a session one level deeper, with checkpoints of its own; what it costs counts here, too.

        With `restore` it is as it was at its newest sound checkpoint, if it has one. `store` is that of this session
        unless given, with other `provided` values for instance.
        """
        session_id, store = f"{self.session_id}/{name}", store if store is not None else self.store
        options: dict[str, Any] = {
            "every": self.every,
            "keep": self._keep,
            "max_events": self._max_events,
            "clock": self._clock,
        }
        child: RLMSession | None = None
        if restore:
            try:
                child = RLMSession.restore(session_id, store=store, namespace=namespace, **options)
            except CheckpointNotFoundError:
                child = None
        if child is None:
            child = RLMSession(session_id, store=store, namespace=namespace, depth=self.depth + 1, **options)
        child._parent = self
        return child

    # Restoring

    @classmethod
    def restore(
        cls, source: str | Path, *, store: CheckpointStore, namespace: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        """Return the session as it was at its newest sound checkpoint, or as the file at a `Path` has it.

        `namespace` is emptied and becomes the session's; `options` are those of the class. Operations, costs, events
        and turns that were journalled after the checkpoint are taken over: call `resume` to settle what was pending,
        and `CheckpointStore.fork` to go back to a checkpoint without them.

        Raises:
            CheckpointNotFoundError: there is no such checkpoint.
            CheckpointDamagedError: the file at the path is damaged.
        """
        if isinstance(source, Path):
            checkpoint = store.load(source, namespace=namespace)
        else:
            checkpoint = store.latest(source, namespace=namespace)
        session = cls(
            checkpoint.session_id, store=store, namespace=checkpoint.repl_state, depth=checkpoint.depth, **options
        )
        session._take_over(checkpoint)
        return session

    def resume(
        self,
        handlers: Mapping[str, Callable[[Any], Any]] | None = None,
        policy: Policy = "rerun",
        *,
        ask: Callable[[Operation], bool] | None = None,
    ) -> Resumption:
        """Settle the operations that were pending when the process died, and return what became of each.

        "rerun" gives the payload of each idempotent one to the handler of its kind; "ask" asks for every one whether to
        run it; "skip" runs none. One that is not idempotent is run only after `ask` said so. A kind without a handler
        is left undecided.

        Raises:
            InvalidInputError: the policy is "ask" and there is nobody to ask.
        """
        if policy == "ask" and ask is None:
            raise InvalidInputError(
                'The policy "ask" needs ask=, a function that gets the operation and returns a bool.'
            )
        outcome = Resumption(replayed=self._operations.finished_before)
        for operation in self.pending_operations:
            match policy:
                case "skip":
                    outcome.skipped.append(self._operations.finish(operation.id, "skipped"))
                case "ask" if ask is not None and not ask(operation):
                    outcome.skipped.append(self._operations.finish(operation.id, "skipped"))
                case "rerun" if not operation.idempotent:
                    outcome.undecided.append(operation)
                case _:
                    self._run_again(operation, handlers or {}, outcome)
        return outcome

    def _run_again(
        self, operation: Operation, handlers: Mapping[str, Callable[[Any], Any]], outcome: Resumption
    ) -> None:
        handler = handlers.get(operation.kind)
        if handler is None:
            outcome.undecided.append(operation)
            return
        try:
            result = handler(operation.payload)
        except Exception as error:  # noqa: BLE001  # one that fails must not keep the others from running
            outcome.failed.append(self._operations.finish(operation.id, "failed", error=str(error)))
        else:
            outcome.rerun.append(self._operations.finish(operation.id, "done", result=result))

    def resume_note(self) -> str:
        """Return the text that tells the model which variables are back, which are not, and what is still pending."""
        lost = {name: value for name, value in self.namespace.items() if isinstance(value, Unrestored)}
        back = [name for name in self.namespace if name not in lost and not name.startswith("__")]
        lines = [f"The session was restored at turn {self.turn}."]
        if self._restored_turn not in (None, self.turn):
            lines.append(f"Its variables are as they were saved after turn {self._restored_turn}.")
        lines.append("Variables that are back: " + (", ".join(back) if back else "none") + ".")
        for name, value in lost.items():
            lines.append(f"NOT restored: {name} ({value.unrestored_type}): {value.unrestored_reason}.")
            source = value.unrestored_source
            if source is not None and len(source) <= _SOURCE_SHOWN:
                lines.append(f"  {name} was made by this cell, which was not run:\n{source.rstrip()}")
        lines += [f"Changed: {issue}." for issue in self.issues if issue.path not in lost]
        lines += [
            f"Pending: {each.kind} ({'safe' if each.idempotent else 'NOT safe'} to repeat): {str(each.payload)[:200]}"
            for each in self.pending_operations
        ]
        cwd = self.metadata.get("cwd")
        if cwd is not None and cwd != os.getcwd():
            lines.append(f"The working directory was {cwd}; it is {os.getcwd()} now.")
        return "\n".join(lines)

    def _take_over(self, checkpoint: RLMCheckpoint) -> None:
        self.turn = self._restored_turn = checkpoint.turn
        self.working_memory = checkpoint.working_memory
        self.messages = checkpoint.messages
        self.trajectory_events = checkpoint.trajectory_events
        self.metadata = dict(checkpoint.metadata)
        self.issues = checkpoint.issues
        self.sources = checkpoint.sources
        self._last_checkpoint, self._saved_turn = checkpoint.checkpoint_id, checkpoint.turn
        self._ledger = Ledger.of(checkpoint.usage)
        positions = self.metadata.pop(_JOURNAL, None) or {
            "turn": self._journal.position,
            "usage": self._journal.position,
        }
        self._turn_position = positions["turn"]
        saved = [Operation(**each) for each in checkpoint.pending_operations if isinstance(each, dict)]
        self._operations.take_over(saved, self._journal.entries(after=positions["turn"]))
        for entry in self._journal.entries(after=positions["usage"]):
            if isinstance(entry.get("usage"), dict):
                self._ledger.add(**entry["usage"])
            if "record" in entry:
                self._append(from_document(entry["record"]))
            if entry.get("event") == "turn":
                self.turn = entry["turn"]
                self._operations.new_turn(self.turn)

    # Being stopped

    def start(self) -> None:
        """Take a first checkpoint, so that the input is safe before work starts, and save when the process stops."""
        if self._started:
            return
        if self._last_checkpoint is None:
            self.checkpoint(reason="start")
        self._started = True
        atexit.register(self._save_quietly, "exit")  # keeps the session alive until it is closed
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._sigterm_before = signal.signal(signal.SIGTERM, _exit_on_signal)

    def close(self, *, reason: str = "end") -> None:
        """Take a last checkpoint and stop watching the process; the store stays usable."""
        try:
            if self._started:
                self.checkpoint(reason=reason)
        finally:
            self._started = False
            atexit.unregister(self._save_quietly)
            if self._sigterm_before is not None:
                signal.signal(signal.SIGTERM, self._sigterm_before)
                self._sigterm_before = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.record({"type": "error", "error": f"{type(error).__name__}: {error}"})
        self.close(reason="end" if error is None else type(error).__name__)

    def _save_quietly(self, reason: str) -> None:
        """Save while the interpreter exits: there is nobody left to tell that it failed."""
        try:
            self.checkpoint(reason=reason)
        except CheckpointError:
            return

    def _reach(self, limit: Literal["budget", "time"]) -> RLMCheckpoint | None:
        if self.limit_reached is not None:
            return None
        self.limit_reached = limit
        self.record({"type": "limit", "limit": limit})
        return self.checkpoint(reason=limit)

    def _remember(self, event: Mapping[str, Any]) -> dict[str, Any]:
        kept = {"turn": self.turn, "at": self._clock().isoformat(), **redacted(dict(event))}
        self._append(kept)
        return kept

    def _append(self, event: dict[str, Any]) -> None:
        self.trajectory_events.append(event)
        del self.trajectory_events[: max(0, len(self.trajectory_events) - self._max_events)]

    def _noted(self, usage: Entry | None, event: Mapping[str, Any] | None) -> Entry:
        """Return what is journalled with the end of an operation."""
        return {
            **({} if usage is None else {"usage": usage}),
            **({} if event is None else {"record": to_document(self._remember(event))}),
        }

    def _priced(self, model: str, input_tokens: int, output_tokens: int, cost: float | None) -> Entry:
        checked(input_tokens, output_tokens, cost)  # before it is journalled: it would be refused at each restoring
        known = cost if cost is not None else price(model, input_tokens, output_tokens)
        return {
            "model": model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost": known,
            "depth": self.depth,
        }

    def _charge(self, entry: Entry) -> None:
        self._ledger.add(**entry)
        if self._parent is not None:
            with self._parent._saving:
                self._parent._journal.append({"event": "usage", "usage": entry}, durable=False)
                self._parent._charge(entry)
        if self._budget is not None and self._ledger.total > self._budget:
            self._reach("budget")


def _description(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "kind": operation.kind,
        "payload": operation.payload,
        "idempotent": operation.idempotent,
        "turn": operation.turn,
        "key": operation.key,
    }


def _exit_on_signal(number: int, _: FrameType | None) -> NoReturn:
    """Leave by an exception, so that `with` blocks end and a write in progress is undone."""
    raise SystemExit(128 + number)
