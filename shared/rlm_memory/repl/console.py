"""A REPL over a session, and the REPLs of many sessions."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl.cells import CellResult, run_cell
from rlm_memory.repl.worker import Worker

DEFAULT_OUTPUT: Final = 20_000
DEFAULT_LIVE: Final = 64


class Repl:
    r"""Runs cells in the namespace of a session, one at a time; it may be used from any thread.

    This is no sandbox: a cell can do what the program can.

    The text of each cell is kept, so that functions and classes come back with the session. A cell that fails ends
    neither the session nor what it had assigned before: its error is recorded, and a checkpoint is taken.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     repl = Repl(RLMSession("demo", store=CheckpointStore(folder)))
    ...     print(repl.run("x = [1, 2]\nprint('made x')\nsum(x)").text)
    ...     print(repl.run("y = 1\nx / 0").text)
    made x
    3
    TypeError: unsupported operand type(s) for /: 'list' and 'int'
      line 2: x / 0
    """

    def __init__(
        self,
        session: RLMSession,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        max_output: int = DEFAULT_OUTPUT,
        time_limit: float | None = None,
        turn_per_cell: bool = True,
    ) -> None:
        """Run cells in the namespace of `session`.

        Args:
            session: Whose namespace it is; who made it closes it.
            functions: Functions of the program that cells may call by name, `llm_query` for instance. With
                `time_limit` they still run in this process, and what is passed must be what a checkpoint can hold.
            max_output: The most characters of a cell's stdout, of its stderr, and of its value that are kept.
            time_limit: Seconds that a cell may run, without those that `functions` take. With it cells run in a process
                of their own, whose variables are copied here after each cell; without it they run in this process and
                cannot be stopped.
            turn_per_cell: Count each cell as a turn of the session, which takes a checkpoint every few of them. Set
                it to False where something else counts turns.

        Raises:
            InvalidInputError: `max_output` or `time_limit` is not positive, or a name of a function is no identifier.
        """
        if max_output < 2 or (time_limit is not None and not time_limit > 0):
            raise InvalidInputError("Expected max_output of 2 or more, and time_limit of more than 0 seconds or None.")
        for name in functions or {}:
            if not name.isidentifier():
                raise InvalidInputError(f"Expected the names of functions to be identifiers; got {name!r}.")
        self.session = session
        self._functions = dict(functions or {})
        self._max_output = max_output
        self._time_limit = time_limit
        self._turn_per_cell = turn_per_cell
        self._lock = threading.RLock()
        self._worker = Worker(self._functions) if time_limit is not None else None
        self._notes: tuple[str, ...] = ()
        for name, function in self._functions.items():
            session.namespace[name] = function  # what a restored session has under this name is another program's

    def run(self, source: str) -> CellResult:
        """Run a cell and return what came of it.

        Raises:
            CheckpointError: the session could not be saved; the cell has run.
        """
        with self._lock:
            try:
                result = self._result(source)
            except KeyboardInterrupt:
                self.session.record_cell(source)
                raise
            notes, self._notes = self._notes, ()
            self.session.record_cell(source)
            if result.error is not None:
                self.session.record({"type": "error", "error": result.error})
            saved = self._turn_per_cell and self.session.end_turn() is not None
            if result.error is not None and not saved:
                self.session.checkpoint(reason="error")
            return replace(result, notes=(*notes, *result.notes))

    def tell(self, note: str) -> None:
        """Let the model read this before the result of the next cell, `session.resume_note()` for instance."""
        with self._lock:
            self._notes += (note,)

    def close(self) -> None:
        """End the worker process, if there is one; the session stays open."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()

    def _result(self, source: str) -> CellResult:
        if self._worker is None or self._time_limit is None:
            return run_cell(source, self.session.namespace, sources=self.session.sources, max_output=self._max_output)
        return self._worker.run(source, self.session, max_output=self._max_output, time_limit=self._time_limit)


class Repls:
    """The REPLs of many sessions in one store, each restored when its session is first asked for.

    A session that is restored tells so before the result of its first cell: which variables are back, and which are
    not. The `live` that were used last are kept in the computer's memory; others are saved and forgotten until they
    are asked for again.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        every: int = 5,
        keep: int | None = 3,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        max_output: int = DEFAULT_OUTPUT,
        time_limit: float | None = None,
        turn_per_cell: bool = True,
        live: int = DEFAULT_LIVE,
    ) -> None:
        """Run cells in the namespaces of the sessions of `store`.

        Args:
            store: Where the sessions are; with `trust`, functions and classes come back, too.
            every: Turns between two checkpoints, as `RLMSession` has it.
            keep: Checkpoints of each session that are kept; None keeps all.
            functions: As `Repl` has it, and likewise the others.
            max_output: Characters.
            time_limit: Seconds.
            turn_per_cell: Whether each cell is a turn.
            live: The most sessions in the computer's memory, besides those whose cells are running.
        """
        if live < 1:
            raise InvalidInputError(f"Expected live of 1 or more; got {live}.")
        self._store = store
        self._every = every
        self._keep = keep
        self._live = live
        self._options: dict[str, Any] = {
            "functions": functions,
            "max_output": max_output,
            "time_limit": time_limit,
            "turn_per_cell": turn_per_cell,
        }
        self._lock = threading.Lock()
        self._repls: OrderedDict[str, Repl] = OrderedDict()
        self._users: Counter[str] = Counter()

    def run(self, session_id: str, source: str) -> CellResult:
        """Run a cell in the namespace of a session and return what came of it.

        Raises:
            CheckpointError: the session could not be restored, or not be saved.
        """
        with self._used(session_id) as repl:
            return repl.run(source)

    def session(self, session_id: str) -> RLMSession:
        """Return a session, restored if it is stored and not live; it is the one that `run` uses while it is live."""
        with self._used(session_id) as repl:
            return repl.session

    def close(self) -> None:
        """Save the sessions that are live and end their workers; they can be asked for again."""
        with self._lock:
            for session_id in [*self._repls]:
                self._forget(session_id)

    @contextmanager
    def _used(self, session_id: str) -> Iterator[Repl]:
        """Lend a REPL; it is not forgotten while it is in use."""
        with self._lock:
            repl = self._repls.get(session_id) or self._opened(session_id)
            self._repls[session_id] = repl
            self._repls.move_to_end(session_id)
            self._users[session_id] += 1
        try:
            yield repl
        finally:
            with self._lock:
                self._users[session_id] -= 1
                idle = [each for each in self._repls if not self._users[each]]
                for each in idle[: max(0, len(self._repls) - self._live)]:
                    self._forget(each)

    def _opened(self, session_id: str) -> Repl:
        try:
            session = RLMSession.restore(session_id, store=self._store, every=self._every, keep=self._keep)
        except CheckpointNotFoundError:
            repl = Repl(RLMSession(session_id, store=self._store, every=self._every, keep=self._keep), **self._options)
        else:
            repl = Repl(session, **self._options)
            repl.tell(session.resume_note())
        repl.session.start()
        return repl

    def _forget(self, session_id: str) -> None:
        repl = self._repls.pop(session_id)
        repl.close()
        repl.session.close()
