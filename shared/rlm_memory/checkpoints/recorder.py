"""What the hooks of a framework tell a session of the runs that they see: turns, calls, usage, and how each has ended.

A run is a tree of steps, of which the hooks tell the beginning and the end. Its root is a turn of the session. A call
of a model or of a tool is an operation: it is in the journal before it is made, so that a process that dies leaves word
of what was pending. Each run, call, search and interrupt is an event of the trajectory:

    {"type": "run", "status": "started", "run_id", "name", "input"}
    {"type": "run", "status": …, "run_id", "name", "seconds", "output" | "error"}
    {"type": "model" | "tool", "status": …, "run_id", "name", "input", "seconds", "usage", "output" | "error"}
    {"type": "retrieval", …}              as a call, but no operation: to search again does no harm
    {"type": "interrupt" | "resume", "run_id", …}

A status is "done", "failed", "cancelled" or "interrupted". What an event says of a value is abridged, see `redaction`.
"""

from __future__ import annotations

import builtins
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rlm_memory.checkpoints.redaction import abridge, abridged
from rlm_memory.checkpoints.session import RLMSession
from rlm_memory.checkpoints.usage import Usage

Kind = Literal["model", "tool", "retrieval"]
RunStatus = Literal["done", "failed", "cancelled", "interrupted"]
Describe = Callable[[Any], Any]
"""Tells what there is of an object of the framework's, as plain data, or None."""

_REMEMBERED: Final = 10_000
"""How many steps and how many calls are remembered that have not ended; the oldest are then given up."""


@dataclass(slots=True)
class _Run:
    id: str
    name: str
    is_turn: bool
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    waiting: bool = False
    saved: bool = False


@dataclass(slots=True)
class _Step:
    id: str
    run: _Run
    outer: _Step | None
    owner: int | None


@dataclass(slots=True)
class _Call:
    run: _Run
    kind: Kind
    name: str
    input: Any
    is_part: bool  # of another call, which is the one that counts
    operation: str | None = None
    began: float = field(default_factory=time.monotonic)


class Recorder:
    """Writes down in a session what hooks see of runs; they may tell it from several threads.

    It raises what the session raises: to keep that from the run is up to the hooks.
    """

    def __init__(self, session: RLMSession) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._first = threading.Lock()
        self._steps: dict[str, _Step] = {}
        self._calls: dict[str, _Call] = {}

    def watches(self, id: str) -> bool:
        """Return whether a step has begun here and has not ended."""
        return id in self._steps

    # Steps

    def start(
        self,
        id: str,
        parent_id: str | None = None,
        *,
        name: str = "",
        input: Any = None,
        owner: object = None,
        is_turn: bool = True,
        describe: Describe | None = None,
    ) -> None:
        """Tell that a step begins; one whose parent is not known is the root of a run.

        Args:
            id: The step.
            parent_id: The one that it is a part of.
            name: What runs.
            input: What a run is given; of other steps nothing is kept.
            owner: The object whose method the step is, if it may call methods of its own that are steps, too: a call
                within a call of the same owner is a part of it.
            is_turn: Whether it is a turn if it is the root; the calls in another one are recorded all the same.
            describe: Tells what there is of the objects in the input.
        """
        with self._lock:
            if id in self._steps:
                return
            outer = None if parent_id is None else self._steps.get(parent_id)
            run = outer.run if outer is not None else _Run(id, name, is_turn)
            self._steps[id] = _Step(id, run, outer, None if owner is None else builtins.id(owner))
            while len(self._steps) > _REMEMBERED:
                del self._steps[next(iter(self._steps))]
        if outer is None and is_turn:
            self._save_first()
            event = {"type": "run", "status": "started", "run_id": id, "name": name}
            self.session.record({**event, "input": abridged(input, describe)}, journal=True)

    def stop(
        self,
        id: str,
        status: RunStatus = "done",
        *,
        output: Any = None,
        error: BaseException | None = None,
        describe: Describe | None = None,
    ) -> None:
        """Tell that a step has ended.

        The end of a run is a turn, and after an error a checkpoint. A run that was interrupted, in whatever part of it,
        is saved and is no turn: it goes on as another run, whose end is one.
        """
        with self._lock:
            if (step := self._steps.pop(id, None)) is None:
                return
            run, is_run = step.run, step.run.id == id
            run.interrupted |= status == "interrupted"
            given_up = [] if status == "done" else [id]
            if is_run and status in ("failed", "cancelled"):
                given_up += [each for each, call in self._calls.items() if call.run is run]
        with ExitStack() as all_of_it:  # the last first; one that cannot be written keeps none of the others from it
            if is_run and run.is_turn:
                all_of_it.callback(self._end, run, status, output, error, describe)
            for each in given_up:
                all_of_it.callback(self.finish, each, status, error=error)

    def _end(
        self,
        run: _Run,
        status: RunStatus,
        output: Any,
        error: BaseException | None,
        describe: Describe | None,
    ) -> None:
        if (run.interrupted and status == "done") or (run.waiting and status == "cancelled"):
            status, error = "interrupted", None
        event = {"type": "run", "status": status, "run_id": run.id, "name": run.name, "seconds": _since(run.began)}
        if error is not None:
            event["error"] = _message(error)
        elif status == "done":
            event["output"] = abridged(output, describe)
        if status == "interrupted":
            self.session.record(event, journal=True)
            if not run.saved:
                self.session.checkpoint(reason="interrupt")
        elif self.session.end_turn(event) is not None:
            return
        elif status == "failed":
            self.session.checkpoint(reason="error")
        elif isinstance(error, KeyboardInterrupt | SystemExit):
            self.session.checkpoint(reason=type(error).__name__)

    def note(self, id: str | None, type: str, **what: Any) -> None:
        """Tell of something else that happened in a step, in words of its own."""
        self.session.record({"type": type, "run_id": self._run_id(id), **abridged(what)}, journal=True)

    def interrupt(self, id: str | None, *, ends: bool = True, describe: Describe | None = None, **what: Any) -> None:
        """Tell that a run waits for somebody, and save it.

        One that `ends` goes on as another run. One that does not has been interrupted only if it is cancelled before it
        calls or searches again.
        """
        with self._lock:
            step = None if id is None else self._steps.get(id)
            is_saved = step is not None and step.run.saved
            if step is not None:
                step.run.interrupted |= ends
                step.run.waiting = step.run.saved = True
        event = {"type": "interrupt", "run_id": self._run_id(id), **abridged(what, describe)}
        self.session.record(event, journal=True)
        if not is_saved:
            self.session.checkpoint(reason="interrupt")

    # Calls

    def begin(
        self,
        id: str,
        kind: Kind,
        name: str,
        input: Any,
        *,
        idempotent: bool,
        describe: Describe | None = None,
    ) -> None:
        """Tell that a step calls a model or a tool, or searches; when this returns, a crash leaves a call as pending.

        Its kind as an operation is "model NAME" or "tool NAME", and its payload the input as far as it can be written
        down. The call of a tool is not idempotent if its payload is not the whole input: nobody could make the same
        call by it.
        """
        said, whole = abridge(input, describe)
        with self._lock:
            step = self._steps.get(id)
            if step is None or id in self._calls:
                return
            step.run.waiting = step.run.saved = False
            call = self._calls[id] = _Call(step.run, kind, name, said, self._is_part(step, kind))
            old = [next(iter(self._calls))] if len(self._calls) > _REMEMBERED else []
        for each in old:
            self.finish(each, status="cancelled")
        self._save_first()
        if not call.is_part and kind != "retrieval":
            safe = idempotent and (whole or kind == "model")
            call.operation = self.session.begin_operation(f"{kind} {name}", said, idempotent=safe)

    def finish(
        self,
        id: str,
        status: RunStatus = "done",
        *,
        output: Any = None,
        usage: Usage | None = None,
        error: BaseException | str | None = None,
        describe: Describe | None = None,
    ) -> None:
        """Tell that the call of a step has ended, and what it has cost; one that nobody has begun is passed over."""
        with self._lock:
            call = self._calls.pop(id, None)
        if call is None or call.is_part:
            return
        if usage is not None:
            usage = usage._replace(model=usage.model or call.name or "unknown")
        if usage is not None and (call.operation is None or status != "done"):
            self.session.add_usage(*usage)
        event: dict[str, Any] = {"type": call.kind, "status": status, "run_id": call.run.id, "name": call.name}
        event |= {"input": call.input, "seconds": _since(call.began)}
        if usage is not None:
            event["usage"] = {name: each for name, each in usage._asdict().items() if each is not None}
        if status == "done":
            said = event["output"] = abridged(output, describe)
        else:
            said = event["error"] = _message(error) if error is not None else status
        if call.operation is None:
            self.session.record(event, journal=True)
        elif status == "done":
            self.session.complete_operation(call.operation, said, usage=usage, event=event)
        else:
            self.session.fail_operation(call.operation, said, event=event)

    def _save_first(self) -> None:
        """Take a checkpoint unless there is one: what is journalled is found again by it."""
        with self._first:
            if self.session.last_checkpoint is None:
                self.session.checkpoint(reason="start")

    def _is_part(self, step: _Step, kind: Kind) -> bool:
        """Return whether a call of the same kind and owner is around a step."""
        outer = step.outer
        while step.owner is not None and outer is not None:
            call = self._calls.get(outer.id)
            if call is not None and call.kind == kind and outer.owner == step.owner:
                return True
            outer = outer.outer
        return False

    def _run_id(self, id: str | None) -> str | None:
        step = None if id is None else self._steps.get(id)
        return id if step is None else step.run.id


_recorders: weakref.WeakValueDictionary[int, Recorder] = weakref.WeakValueDictionary()
_recorders_lock = threading.Lock()


def recorder_of(session: RLMSession) -> Recorder:
    """Return the recorder of a session: one for all hooks that tell it of runs, for as long as one of them lives."""
    with _recorders_lock:
        recorder = _recorders.get(id(session))  # its session lives as long as it does: no other one can have that id
        if recorder is None:
            recorder = _recorders[id(session)] = Recorder(session)
        return recorder


def _message(error: BaseException | str) -> Any:
    return abridged(error if isinstance(error, str) else f"{type(error).__name__}: {error}")


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
