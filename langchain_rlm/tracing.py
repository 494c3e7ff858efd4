"""Callback handlers that tell a memory what was found in a run, and how the run ended; and a session of every step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler, BaseCallbackManager
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import ensure_config

from langchain_rlm.recording import Recording, is_a
from rlm_memory import Memory
from rlm_memory.checkpoints import RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.turns import Sessions, Turn

_REMEMBERED: Final = 10_000
_UNRECORDED: Final = "What happened in a run could not be recorded in the session."

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

    def __init__(
        self,
        memory: Memory,
        *,
        session_id: str | None = None,
        remembered_runs: int = _REMEMBERED,
        rlm_session: RLMSession | None = None,
        idempotent_tools: Collection[str] = (),
    ) -> None:
        """Report to a memory, and to a session with checkpoints if one is given.

        Args:
            memory: The memory whose documents are watched for.
            session_id: The session of every run whose configuration does not name one as `session_id`.
            remembered_runs: How many runs are remembered, of those that go on and of those that ended: `feedback`
                knows the last so many, and runs that never end do not pile up.
            rlm_session: Where turns, calls, usage and events of the runs are recorded.
            idempotent_tools: The tools whose calls do no harm when they are made twice; of the others a restored
                session tells that they may have happened.

        Raises:
            InvalidInputError: An argument cannot be used.
        """
        if remembered_runs < 1:
            raise InvalidInputError(f"remembered_runs is {remembered_runs!r}; expected 1 or more.")
        self.memory = memory
        self._sessions = Sessions(memory, session_id)
        self._remembered = remembered_runs
        self._recording = None if rlm_session is None else Recording(rlm_session, idempotent_tools)
        self.ignore_llm = self.ignore_chat_model = rlm_session is None
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

    @property
    def rlm_session(self) -> RLMSession | None:
        """Where runs are recorded."""
        return None if self._recording is None else self._recording.session

    def records(self, run_id: UUID | None) -> bool:
        """Return whether a run is being recorded in a session."""
        return self._recording is not None and self._recording.watches(run_id)

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
            if step is not None and is_a(error, "GraphInterrupt"):
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

    # -- the session with checkpoints ---------------------------------------------------------------------------

    def _recorded(self, tell: Callable[[Recording], object]) -> None:
        if self._recording is not None:
            with _logged(_UNRECORDED):
                tell(self._recording)

    async def _arecorded(self, tell: Callable[[Recording], object]) -> None:
        """Record in a thread: it writes to a disk, and is done when the run goes on."""
        if self._recording is not None:
            with _logged(_UNRECORDED):
                await asyncio.to_thread(tell, self._recording)


class RLMCallbackHandler(_Tracking, BaseCallbackHandler):
    """Tells a memory which of its documents a run has found, and whether the run has succeeded.

    Pass it in the configuration of a call: `chain.invoke(question, {"callbacks": [handler]})`. It may serve any number
    of calls at once, of chains, tools, agents and LangGraph graphs.

    Setup:
        Install `rlm-memory[langchain]`.

    Instantiate:
        >>> import asyncio
        >>> from langchain_rlm import RLMCallbackHandler
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
        >>> handler = RLMCallbackHandler(memory)

    Use in a chain:
        >>> from uuid import uuid4
        >>> from langchain_core.runnables import RunnableLambda
        >>> from langchain_rlm import RLMRetriever
        >>> chain = RLMRetriever(memory=memory) | RunnableLambda(lambda found: found[0].page_content)
        >>> run_id = uuid4()
        >>> chain.invoke("tea", {"callbacks": [handler], "configurable": {"session_id": "monday"}, "run_id": run_id})
        'Ada likes tea.'
        >>> [(access.session_id, access.turn) for access in memory.accesses("tea")]
        [('monday', 1)]

        It goes into the configuration of an agent or a graph in the same way.

    Feedback:
        To how many memories it was attached:

        >>> handler.feedback(run_id, False)
        1

    Async:
        >>> asyncio.run(chain.ainvoke("tea", {"callbacks": [handler], "configurable": {"session_id": "monday"}}))
        'Ada likes tea.'
        >>> memory.get("tea")[0].access_count
        2

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

    **Checkpoints.** With `rlm_session` the outermost runs are turns of a session of `rlm_memory.checkpoints`, which
    saves itself every few turns and after an error. Calls of models and tools are in its journal before they are made,
    so that a session which is restored after a crash knows what was pending; usage, costs and the events of its
    trajectory outlive a crash, too. Events are cut, and hold no secrets that can be told by their names or their form;
    `rlm_memory.checkpoints.recorder` says what is in them. A run that was interrupted is saved, and no turn: the one
    that goes on with it is.

    A run is never broken: what goes wrong here is logged under "langchain_rlm". In a run that is awaited it works in a
    thread; `AsyncRLMCallbackHandler` needs fewer of them.
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
        self._recorded(lambda session: session.started(run_id, parent_run_id, _name(serialized, kwargs), inputs))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        with _logged():
            self._judge(self._end(run_id, True), True)
        self._recorded(lambda session: session.ended(run_id, outputs))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        with _logged():
            self._interrupt(run_id, error)
            self._judge(self._end(run_id, verdict(error)), False)
        self._recorded(lambda session: session.failed(run_id, error))

    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)
        given = input_str if inputs is None else inputs
        self._recorded(lambda session: session.tool_started(run_id, parent_run_id, _name(serialized, kwargs), given))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        with _logged():
            self._judge(self._end(run_id, True), True)
        self._recorded(lambda session: session.tool_ended(run_id, output))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        with _logged():
            self._interrupt(run_id, error)
            self._judge(self._end(run_id, verdict(error)), False)
        self._recorded(lambda session: session.failed(run_id, error))

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
        self._recorded(lambda session: session.search_started(run_id, parent_run_id, _name(serialized, kwargs), query))

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Report what was found."""
        with _logged():
            self._record(run_id, documents)
        self._recorded(lambda session: session.search_ended(run_id, documents))

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the run."""
        with _logged():
            self._end(run_id, None)
        self._recorded(lambda session: session.failed(run_id, error))

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a model is called."""
        self._recorded(
            lambda session: session.model_started(
                run_id, parent_run_id, _model(serialized, metadata, kwargs), messages[0]
            )
        )

    def on_llm_start(
        self,
        serialized: Any,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a model is called."""
        self._recorded(
            lambda session: session.model_started(
                run_id, parent_run_id, _model(serialized, metadata, kwargs), prompts[0]
            )
        )

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a model has answered, and what that cost."""
        self._recorded(lambda session: session.model_ended(run_id, response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a model gave no answer."""
        self._recorded(lambda session: session.model_failed(run_id, error, kwargs.get("response")))

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

    Setup:
        Install `rlm-memory[langchain]`.

    Instantiate:
        >>> import asyncio
        >>> from langchain_rlm import AsyncRLMCallbackHandler
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
        >>> handler = AsyncRLMCallbackHandler(memory, session_id="monday")

    Async, use in a chain:
        `feedback` is awaited, too.

        >>> from uuid import uuid4
        >>> from langchain_core.runnables import RunnableLambda
        >>> from langchain_rlm import RLMRetriever
        >>> chain = RLMRetriever(memory=memory) | RunnableLambda(lambda found: found[0].page_content)
        >>> async def main():
        ...     run_id = uuid4()
        ...     answer = await chain.ainvoke("tea", {"callbacks": [handler], "run_id": run_id})
        ...     return answer, await handler.feedback(run_id, True)
        >>> asyncio.run(main())
        ('Ada likes tea.', 1)
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
        await self._arecorded(lambda session: session.started(run_id, parent_run_id, _name(serialized, kwargs), inputs))

    async def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        await self._aend(run_id, True)
        await self._arecorded(lambda session: session.ended(run_id, outputs))

    async def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        self._interrupt(run_id, error)
        await self._aend(run_id, verdict(error))
        await self._arecorded(lambda session: session.failed(run_id, error))

    async def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the run is."""
        with _logged():
            self._start(run_id, parent_run_id, metadata)
        given = input_str if inputs is None else inputs
        await self._arecorded(
            lambda session: session.tool_started(run_id, parent_run_id, _name(serialized, kwargs), given)
        )

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a success, if the run was the outermost one."""
        await self._aend(run_id, True)
        await self._arecorded(lambda session: session.tool_ended(run_id, output))

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a failure, if the run was the outermost one."""
        self._interrupt(run_id, error)
        await self._aend(run_id, verdict(error))
        await self._arecorded(lambda session: session.failed(run_id, error))

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
        await self._arecorded(
            lambda session: session.search_started(run_id, parent_run_id, _name(serialized, kwargs), query)
        )

    async def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Report what was found."""
        with _logged():
            await asyncio.to_thread(self._record, run_id, documents)
        await self._arecorded(lambda session: session.search_ended(run_id, documents))

    async def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the run."""
        await self._aend(run_id, None)
        await self._arecorded(lambda session: session.failed(run_id, error))

    async def on_chat_model_start(
        self,
        serialized: Any,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a model is called."""
        await self._arecorded(
            lambda session: session.model_started(
                run_id, parent_run_id, _model(serialized, metadata, kwargs), messages[0]
            )
        )

    async def on_llm_start(
        self,
        serialized: Any,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a model is called."""
        await self._arecorded(
            lambda session: session.model_started(
                run_id, parent_run_id, _model(serialized, metadata, kwargs), prompts[0]
            )
        )

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a model has answered, and what that cost."""
        await self._arecorded(lambda session: session.model_ended(run_id, response))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a model gave no answer."""
        await self._arecorded(lambda session: session.model_failed(run_id, error, kwargs.get("response")))

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


def is_recorded(session: RLMSession) -> bool:
    """Return whether a handler in the configuration of the present run records it in this session."""
    callbacks = ensure_config().get("callbacks")
    return isinstance(callbacks, BaseCallbackManager) and any(
        isinstance(handler, _Tracking) and handler.rlm_session is session and handler.records(callbacks.parent_run_id)
        for handler in callbacks.handlers
    )


@contextlib.contextmanager
def _logged(message: str = "What happened in a run could not be reported to the memory.") -> Iterator[None]:
    """Log what goes wrong in place of raising it: the run that is watched has its own work to do."""
    try:
        yield
    except Exception:
        _logger.exception(message)


def _name(serialized: Mapping[str, Any] | None, options: Mapping[str, Any]) -> str:
    """Return the name of what runs."""
    about = serialized or {}
    path = about.get("id")
    return str(options.get("name") or about.get("name") or (path[-1] if isinstance(path, list) and path else "run"))


def _model(serialized: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, options: Mapping[str, Any]) -> str:
    """Return the name of a model that is called, as its provider has it if that is told."""
    parameters = options.get("invocation_params") or {}
    named = (metadata or {}).get("ls_model_name") or parameters.get("model") or parameters.get("model_name")
    return named if isinstance(named, str) else _name(serialized, options)


def verdict(error: BaseException) -> bool | None:
    """Return False for a failure, None for what is none: a cancelled run, a paused graph."""
    return False if isinstance(error, Exception) and not is_a(error, "GraphBubbleUp") else None


def _shorten(remembered: dict[Any, Any], length: int) -> None:
    while len(remembered) > length:
        del remembered[next(iter(remembered))]
