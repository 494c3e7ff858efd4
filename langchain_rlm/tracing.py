"""Callback handlers that tell a memory what was found in a run, and how the run ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler, BaseCallbackManager
from langchain_core.documents import Document
from langchain_core.runnables.config import ensure_config

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
from rlm_memory.turns import Sessions, Turn

_REMEMBERED: Final = 10_000

_logger = logging.getLogger("langchain_rlm")


@dataclass(slots=True)
class _Root:
    """The outermost run that a handler sees: one turn in each session that something was found for."""

    run_id: UUID
    thread: str | None
    turns: dict[str, Turn] = field(default_factory=dict)
    paused: bool = False


@dataclass(slots=True)
class _Retrieval:
    """A retriever's run: what may name its session, the one it is part of, and the ids that those within it found."""

    places: tuple[Mapping[str, Any], ...]
    outer: _Retrieval | None
    inner: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    """Where a run is; chains and tools are where their parent is."""

    root: _Root
    retrieval: _Retrieval | None = None


class _Tracking:
    """What both handlers do: keep the runs that go on, and report. The reports touch the store, the rest does not."""

    ignore_llm = True
    ignore_chat_model = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, memory: Memory, *, session_id: str | None = None, remembered_runs: int = _REMEMBERED) -> None:
        """Report to a memory.

        Args:
            memory: The memory whose documents are watched for.
            session_id: The session of every run whose configuration does not name one as `session_id`.
            remembered_runs: How many runs are remembered, of those that go on and of those that ended: `feedback`
                knows the last so many, and runs that never end do not pile up.

        Raises:
            InvalidInputError: An argument cannot be used.
        """
        if remembered_runs < 1:
            raise InvalidInputError(f"remembered_runs is {remembered_runs!r}; expected 1 or more.")
        self.memory = memory
        self._sessions = Sessions(memory, session_id)
        self._remembered = remembered_runs
        self._lock = threading.Lock()
        self._steps: dict[UUID, _Step] = {}
        self._reported: dict[str, list[str]] = {}  # the sessions that a root run has reported to
        self._told: dict[str, None] = {}  # the root runs that feedback was given on
        self._waiting: dict[str, list[Turn]] = {}  # turns that were interrupted, by thread

    def turn_of(self, run_id: UUID | None, session_id: str) -> Turn | None:
        """Return the turn of a session that a run belongs to, None for a run that this handler does not see.

        Whatever reports to the memory from within a run reports to this turn: the run is one use, with one outcome.
        """
        step = None if run_id is None else self._steps.get(run_id)
        return None if step is None else self._turn(step.root, session_id)

    # -- runs ---------------------------------------------------------------------------------------------------

    def _start(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        metadata: Mapping[str, Any] | None,
        *,
        places: tuple[Mapping[str, Any], ...] | None = None,
    ) -> None:
        """Note where a run is; one with places is a retriever's."""
        with self._lock:
            step = None if parent_run_id is None else self._steps.get(parent_run_id)
            if step is None:  # the outermost, or its parent does not have this handler
                thread = (metadata or {}).get("thread_id")
                step = _Step(_Root(run_id, None if thread is None else str(thread)))
                self._reported[str(run_id)] = []
                _shorten(self._reported, self._remembered)
            if places is not None:
                step = _Step(step.root, _Retrieval(places, step.retrieval))
            self._steps[run_id] = step
            _shorten(self._steps, self._remembered)

    def _start_retrieval(self, run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any] | None) -> None:
        # what is configurable is not in the metadata, but in the configuration of the run around this one
        places = (metadata or {}, ensure_config().get("configurable", {}))
        self._start(run_id, parent_run_id, metadata, places=places)

    def _interrupt(self, run_id: UUID, error: BaseException) -> None:
        """Note that a part of a run was interrupted: its root will end as if all were done."""
        with self._lock:
            step = self._steps.get(run_id)
            if step is not None and _is(error, "GraphInterrupt"):
                step.root.paused = True

    def _end(self, run_id: UUID, success: bool | None) -> list[Turn]:
        """Forget a run; return the turns that its end, well, badly or (None) in a way that says nothing, tells of."""
        with self._lock:
            step = self._steps.pop(run_id, None)
            if step is None or step.root.run_id != run_id:
                return []
            root = step.root
            if root.paused and root.thread is not None:
                self._waiting.setdefault(root.thread, []).extend(root.turns.values())
                _shorten(self._waiting, self._remembered)
            if root.paused or success is None:
                return []
            turns = [*self._waiting.pop(root.thread or "", []), *root.turns.values()]
            return [turn for turn in turns if turn.run_id not in self._told]

    def _turn(self, root: _Root, session_id: str) -> Turn:
        session = self._sessions.get(session_id)
        with self._lock:
            if (turn := root.turns.get(session_id)) is None:
                turn = root.turns[session_id] = Turn(session, session.next_turn(), str(root.run_id), self._tell)
                self._reported.setdefault(turn.run_id, []).append(session_id)
                _shorten(self._reported, self._remembered)
            return turn

    # -- reports: these alone touch the store -------------------------------------------------------------------

    def _record(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """Report what a retriever has found; the memory knows its own documents by their ids.

        What a retriever within another one finds are candidates: the outer one decides which it hands over. They
        count where it hands over documents of its own making, without their ids.
        """
        with self._lock:
            step = self._steps.pop(run_id, None)
        if step is None or (retrieval := step.retrieval) is None:
            return
        ids = [document.id for document in documents if document.id]
        if retrieval.inner and not retrieval.inner.keys() & ids:
            ids = list(retrieval.inner)
        if retrieval.outer is not None:
            retrieval.outer.inner.update(dict.fromkeys(ids))
        elif ids:
            self._turn(step.root, self._sessions.name(*retrieval.places)).record_access(ids)

    @staticmethod
    def _judge(turns: Sequence[Turn], success: bool | None) -> None:
        for turn in turns:
            turn.session.outcome(success is True, run_id=turn.run_id)

    def _tell(self, run_id: str) -> None:
        with self._lock:
            self._told[run_id] = None
            _shorten(self._told, self._remembered)

    def _feedback(self, run_id: UUID | str, success: bool, session_id: str | None) -> int:
        key = str(run_id)
        if session_id is not None:
            sessions = [session_id]
        elif (known := self._reported.get(key)) is not None:
            sessions = list(known)
        else:
            raise InvalidInputError(
                f"This handler has not seen run {key!r} as the outermost one, or not among the last "
                f"{self._remembered}. Name the session it was in: feedback(run_id, success, session_id=…)."
            )
        self._tell(key)
        return sum(self._sessions.get(id).outcome(success, run_id=key) for id in sessions)


class RLMCallbackHandler(_Tracking, BaseCallbackHandler):
    """Tells a memory which of its documents a run has found, and whether the run has succeeded.

    Pass it in the configuration of a call: `chain.invoke(question, {"callbacks": [handler]})`. It may serve any number
    of calls at once, of chains, tools, agents and LangGraph graphs.

    **Accesses.** A document that a retriever hands over is an access of the node with its id; other documents are
    passed over, so the chain may have retrievers of other stores. What a retriever within a retriever finds (that of a
    reranker, for instance) counts if the outer one hands it on. `RLMRetriever` leaves it to the handler to report.

    **Turns.** The outermost run is one turn: a memory that is found twice in it has one use. Each input of `batch` is
    a run of its own.

    **Outcomes.** The outermost run, if it is a chain, a graph or a tool, tells by its end how what was found has
    served: a success, or after an error a failure. `feedback` corrects that, or tells it before. A graph that was
    interrupted is judged when its thread ends, a run that was cancelled not at all; a stream that is closed early has
    ended, which is how LangChain reports it.

    **Sessions.** A run is in the session that its configuration names: `session_id` in its `metadata` or
    `configurable`, else the `session_id` of this handler, else `thread_id`; else in one that this handler has alone. A
    retriever of another package that is called by itself is told in `metadata` alone. Sessions go on:
    `memory.session(id).end()` ends one, and `memory.sweep()` those that have been still for long.

    A run is never broken: what goes wrong here is logged under "langchain_rlm". In a run that is awaited it works in a
    thread; `AsyncRLMCallbackHandler` needs fewer of them.

    >>> from langchain_core.runnables import RunnableLambda
    >>> from langchain_rlm import RLMRetriever
    >>> memory = Memory.open(":memory:", embedder=None)
    >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
    >>> handler = RLMCallbackHandler(memory)
    >>> chain = RLMRetriever(memory=memory) | RunnableLambda(lambda found: found[0].page_content)
    >>> chain.invoke("tea", {"callbacks": [handler], "configurable": {"session_id": "monday"}})
    'Ada likes tea.'
    >>> [(access.session_id, access.turn) for access in memory.accesses("tea")]
    [('monday', 1)]
    """

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        with _logged():
            self._judge(self._end(run_id, True), True)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        with _logged():
            self._interrupt(run_id, error)
            self._judge(self._end(run_id, verdict(error)), False)

    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        with _logged():
            self._judge(self._end(run_id, True), True)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        with _logged():
            self._interrupt(run_id, error)
            self._judge(self._end(run_id, verdict(error)), False)

    def on_retriever_start(
        self,
        serialized: Any,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is, and in which session."""
        with _logged():
            self._start_retrieval(run_id, parent_run_id, metadata)

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Report what was found."""
        with _logged():
            self._record(run_id, documents)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the run."""
        with _logged():
            self._end(run_id, None)

    def feedback(self, run_id: UUID | str, success: bool, *, session_id: str | None = None) -> int:
        """Tell whether an outermost run has served, whatever its end said; return to how many nodes it was attached.

        Args:
            run_id: The run: `RunnableConfig` has a `run_id` for it.
            success: Whether it has.
            session_id: The session it was in. It is needed where another handler, or another process, saw the run.

        Raises:
            InvalidInputError: This handler does not know the run, and no session is named.
            StoreError: It could not be written down.
        """
        return self._feedback(run_id, success, session_id)


class AsyncRLMCallbackHandler(_Tracking, AsyncCallbackHandler):
    """The same as `RLMCallbackHandler` for runs that are awaited: it works on the store in a thread.

    >>> from langchain_rlm import RLMRetriever
    >>> memory = Memory.open(":memory:", embedder=None)
    >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
    >>> async def main():
    ...     handler = AsyncRLMCallbackHandler(memory, session_id="monday")
    ...     await RLMRetriever(memory=memory).ainvoke("tea", {"callbacks": [handler]})
    >>> asyncio.run(main())
    >>> memory.get("tea")[0].access_count
    1
    """

    async def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)

    async def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        await self._aend(run_id, True)

    async def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        self._interrupt(run_id, error)
        await self._aend(run_id, verdict(error))

    async def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        await self._aend(run_id, True)

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        self._interrupt(run_id, error)
        await self._aend(run_id, verdict(error))

    async def on_retriever_start(
        self,
        serialized: Any,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is, and in which session."""
        with _logged():
            self._start_retrieval(run_id, parent_run_id, metadata)

    async def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Report what was found."""
        with _logged():
            await asyncio.to_thread(self._record, run_id, documents)

    async def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the run."""
        await self._aend(run_id, None)

    async def _aend(self, run_id: UUID, success: bool | None) -> None:
        with _logged():
            if turns := self._end(run_id, success):
                await asyncio.to_thread(self._judge, turns, success)

    async def feedback(self, run_id: UUID | str, success: bool, *, session_id: str | None = None) -> int:
        """Await what `RLMCallbackHandler.feedback` returns."""
        return await asyncio.to_thread(self._feedback, run_id, success, session_id)


def present_turn(memory: Memory, session_id: str) -> Turn | None:
    """Return the turn that a handler of this memory, in the configuration of the present run, is in; None if none is.

    What reports to the memory from within the run reports to this turn: the run is one use, and has one outcome.
    """
    callbacks = ensure_config().get("callbacks")
    if not isinstance(callbacks, BaseCallbackManager):
        return None
    for handler in callbacks.handlers:
        if isinstance(handler, _Tracking) and handler.memory is memory:
            return handler.turn_of(callbacks.parent_run_id, session_id)
    return None


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Log what goes wrong in place of raising it: the run that is watched has its own work to do."""
    try:
        yield
    except Exception:
        _logger.exception("What happened in a run could not be reported to the memory.")


def verdict(error: BaseException) -> bool | None:
    """Return False for a failure, None for what is none: a cancelled run, a paused graph."""
    return False if isinstance(error, Exception) and not _is(error, "GraphBubbleUp") else None


def _is(error: BaseException, name: str) -> bool:
    """Return whether an error is of a class of LangGraph's, which need not be installed to run a chain."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and isinstance(error, getattr(errors, name))


def _shorten(remembered: dict[Any, Any], length: int) -> None:
    while len(remembered) > length:
        del remembered[next(iter(remembered))]
