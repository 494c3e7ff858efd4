"""Handlers for LlamaIndex's dispatcher that tell a memory what was found in a run, and a session of every step."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.chat_engine.types import BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.chat_engine import StreamChatEndEvent, StreamChatErrorEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMCompletionEndEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.span import BaseSpan, active_span_id
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.workflow import Workflow
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import active_instrument_tags
from workflows.errors import WorkflowCancelledByUser

from llamaindex_rlm.recording import Recording
from llamaindex_rlm.streams import awatched, watched
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointWriteError, RLMSession
from rlm_memory.errors import InvalidInputError, StoreError
from rlm_memory.turns import Sessions, Turn, named_session

_REMEMBERED: Final = 10_000
"""How many spans and runs are remembered, of those that go on and of those that ended."""

_TASKS: Final = (BaseQueryEngine, BaseChatEngine, Workflow)
_STREAMS: Final = (StreamingResponse, AsyncStreamingResponse, StreamingAgentChatResponse, Iterator, AsyncIterator)
_ENDS_OF_STREAMS: Final = (LLMChatEndEvent, LLMCompletionEndEvent, StreamChatEndEvent)
_FAILURES: Final = (ExceptionEvent, StreamChatErrorEvent)

_UNRECORDED: Final = "What happened in a run could not be recorded in the session"

_logger = logging.getLogger("llamaindex_rlm")


@dataclass(slots=True)
class _Root:
    """The outermost span of a run: one turn in each session that something was found for."""

    span_id: str | None
    run_id: str
    tags: Mapping[str, Any]
    is_task: bool  # its end tells whether something succeeded; that of a retriever alone does not
    turns: dict[str, Turn] = field(default_factory=dict)
    ended: bool = False
    streaming: bool = False  # it has returned an answer that is still to be read
    read: bool | None = None  # how a chat that another thread writes has ended, which may be before the span does


@dataclass(slots=True)
class _Retrieval:
    """A retriever at work, the one it works for, and the ids that those within it found."""

    retriever: BaseRetriever
    outer: _Retrieval | None
    inner: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Span:
    """Where a span is; most are where their parent is."""

    root: _Root
    retrieval: _Retrieval | None
    is_task: bool


class Tracking:
    """The runs that a memory is used in, as all that report to the same memory see them. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._sessions = Sessions(memory)
        self._lock = threading.Lock()
        self._open: dict[str, _Span] = {}
        self._closed: dict[str, _Span] = {}  # streams end after the span that began them
        self._loose: dict[str, _Root] = {}  # runs of workflows whose spans nobody reports
        self._reported: dict[str, list[str]] = {}  # the sessions that a run has reported to
        self._told: dict[str, None] = {}  # the runs that feedback was given on
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()  # streams, which several spans hand on

    # -- spans --------------------------------------------------------------------------------------------------

    def enter(self, span_id: str, parent_id: str | None, instance: Any, tags: Mapping[str, Any]) -> None:
        """Note where a span is."""
        with self._lock:
            if span_id in self._open:  # another handler of this memory has told
                return
            parent = self._find(parent_id)
            root = self._new_root(span_id, instance, tags) if parent is None else parent.root
            retrieval = None if parent is None else parent.retrieval
            # a retriever's own methods are spans within each other
            if isinstance(instance, BaseRetriever) and (retrieval is None or retrieval.retriever is not instance):
                retrieval = _Retrieval(instance, retrieval)
            self._open[span_id] = _Span(root, retrieval, isinstance(instance, _TASKS))
            _shorten(self._open)

    def leave(self, span_id: str, success: bool | None, *, streams: bool = False) -> None:
        """Note that a span has ended, well, badly or (None) in a way that says nothing; report what that tells."""
        with self._lock:
            if (span := self._open.pop(span_id, None)) is None:
                return
            root = span.root
            if root.turns:
                span.retrieval = None
                self._closed[span_id] = span
                _shorten(self._closed)
            if root.span_id == span_id:
                root.ended, root.streaming = True, streams and root.read is None
                verdict = (root.read if streams else success) if root.is_task else None
            else:  # what goes on when its root has ended is judged by its own end
                verdict = success if root.ended and (span.is_task or success is False) else None
        self._judge(root, verdict)

    def stream_ended(self, span_id: str | None, success: bool, *, is_answer: bool) -> None:
        """Note that a stream which began in a span was read to its end, or failed."""
        with self._lock:
            span = self._find(span_id)
            if span is not None and is_answer:
                span.root.read = success
        if span is not None:
            self._read(span.root, success)

    def _read(self, root: _Root, success: bool) -> None:
        """Judge a run that has ended and waits for its answer to be read; before its end it may get over a failure."""
        with self._lock:
            if not root.ended or (success and not root.streaming):
                return
            root.streaming = False
        self._judge(root, success)

    def watch(self, span_id: str, response: StreamingResponse | AsyncStreamingResponse) -> None:
        """Take note of how a streamed answer ends, for it ends after all spans, and in none of them."""
        with self._lock:
            span = self._find(span_id)
            if span is None or not span.root.turns or response.response_gen in self._watched:
                return
            root = span.root
        if isinstance(response, StreamingResponse):
            response.response_gen = watched(response.response_gen, lambda success: self._read(root, success))
        else:
            response.response_gen = awatched(response.response_gen, lambda success: self._read(root, success))
        self._watched.add(response.response_gen)

    def _find(self, span_id: str | None) -> _Span | None:
        return None if span_id is None else self._open.get(span_id) or self._closed.get(span_id)

    @staticmethod
    def _new_root(span_id: str | None, instance: Any, tags: Mapping[str, Any]) -> _Root:
        run_id = tags.get("run_id") or tags.get("llamaindex.run_id") or span_id or uuid.uuid4().hex
        return _Root(span_id, str(run_id), tags, is_task=not isinstance(instance, BaseRetriever))

    # -- reports ------------------------------------------------------------------------------------------------

    def retrieved(self, span_id: str | None, tags: Mapping[str, Any], ids: Sequence[str], default: str) -> None:
        """Report what a retriever has found, in the session of the tags or the default one.

        What a retriever within another one finds are candidates: the outer one decides which it hands over. They
        count where it hands over nodes of its own making, without their ids.
        """
        with self._lock:
            span = self._find(span_id)
            if span is not None and (retrieval := span.retrieval) is not None:
                if retrieval.inner and not retrieval.inner.keys() & ids:
                    ids = list(retrieval.inner)
                if retrieval.outer is not None:
                    retrieval.outer.inner.update(dict.fromkeys(ids))
                    return
            root = self._root_of(span, tags) or self._new_root(span_id, None, tags)
        if ids:
            self._turn(root, named_session(tags, root.tags) or default).record_access(ids)

    def present(self, session_id: str) -> Turn | None:
        """Return the turn of a session that the present span is in, None outside of any that is known."""
        tags = active_instrument_tags.get()
        with self._lock:
            root = self._root_of(self._find(active_span_id.get()), tags)
        return None if root is None else self._turn(root, session_id)

    def new_turn(self, session_id: str) -> Turn:
        """Return a turn of a session that no run is known of."""
        return self._sessions.turn(session_id)

    def _root_of(self, span: _Span | None, tags: Mapping[str, Any]) -> _Root | None:
        if span is not None:
            return span.root
        if (run_id := tags.get("llamaindex.run_id")) is None:
            return None
        if (root := self._loose.get(run_id)) is None:
            root = self._loose[run_id] = self._new_root(None, None, tags)
            _shorten(self._loose)
        return root

    def _turn(self, root: _Root, session_id: str) -> Turn:
        if (turn := root.turns.get(session_id)) is None:
            new = self._sessions.turn(session_id, root.run_id)
            with self._lock:
                turn = root.turns.setdefault(session_id, new)
                self._reported.setdefault(root.run_id, []).append(session_id)
                _shorten(self._reported)
        return turn

    def _judge(self, root: _Root, success: bool | None) -> None:
        if success is not None and root.run_id not in self._told:
            for turn in list(root.turns.values()):
                turn.record_outcome(success)

    def feedback(self, run_id: str, success: bool, session_id: str | None) -> int:
        """See `RLMEventHandler.feedback`."""
        if session_id is not None:
            sessions = [session_id]
        elif (known := self._reported.get(run_id)) is not None:
            sessions = list(dict.fromkeys(known))
        else:
            raise InvalidInputError(
                f"Nothing was found in a run {run_id!r}, or it is not among the last {_REMEMBERED}. If another process "
                "saw it, name the session it was in: feedback(run_id, success, session_id=…)."
            )
        with self._lock:
            self._told[run_id] = None
            _shorten(self._told)
        return sum(self._sessions.get(id).outcome(success, run_id=run_id) for id in sessions)


_trackings: weakref.WeakValueDictionary[int, Tracking] = weakref.WeakValueDictionary()
_trackings_lock = threading.Lock()


def tracking_of(memory: Memory) -> Tracking:
    """Return what is known of the runs of a memory; one for all that report to it, for as long as one of them lives."""
    with _trackings_lock:
        tracking = _trackings.get(id(memory))  # its memory lives as long as it does: no other one can have that id
        if tracking is None:
            tracking = _trackings[id(memory)] = Tracking(memory)
        return tracking


class RLMEventHandler(BaseEventHandler):
    """Tells a memory which of its nodes were found, by whatever retriever; with `RLMSpanHandler`, how that served.

    Both are added to a dispatcher, and see what goes on below it in all threads: `tracked` does that for a block.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> import asyncio
        >>> from llamaindex_rlm import RLMEventHandler, tracked
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
        >>> handler = RLMEventHandler(memory, session_id="monday")

        `tracked(memory)` makes both handlers, adds them, and takes them away at the end of its block.

    Use in a query engine:
        >>> from llama_index.core import get_response_synthesizer
        >>> from llama_index.core.instrumentation.dispatcher import instrument_tags
        >>> from llama_index.core.llms import MockLLM
        >>> from llama_index.core.query_engine import RetrieverQueryEngine
        >>> from llamaindex_rlm import RLMRetriever
        >>> engine = RetrieverQueryEngine(RLMRetriever(memory), get_response_synthesizer(llm=MockLLM()))
        >>> with tracked(memory) as handler, instrument_tags({"session_id": "monday", "run_id": "first"}):
        ...     answer = engine.query("tea")
        >>> [(access.session_id, access.turn) for access in memory.accesses("tea")]
        [('monday', 1)]

    Feedback:
        To how many memories it was attached:

        >>> handler.feedback("first", False)
        1

    Async:
        >>> with tracked(memory, session_id="monday") as handler:
        ...     answer = asyncio.run(engine.aquery("tea"))
        >>> memory.get("tea")[0].access_count
        2

    **Accesses.** A node that a retriever hands over is an access of the memory with its id; other nodes are passed
    over, so there may be retrievers of other stores. What a retriever within a retriever finds (that of a fusion, for
    instance) counts if the outer one hands it on.

    **Turns.** The outermost span, which is a query, a chat or the run of an agent, is one turn: a memory that is found
    twice in it has one use.

    **Outcomes.** The outermost span tells by its end how what was found has served: a success, or after an exception a
    failure. A streamed answer is a success when it was read to its end. A retriever that is called by itself, and runs
    that were cancelled, tell nothing. `feedback` corrects that, or tells it before.

    **Sessions.** A run is in the session that `instrument_tags({"session_id": …})` names, else the `session_id` of this
    handler; else in one that this handler has alone. Sessions go on: `memory.session(id).end()` ends one, and one that
    is still for long is ended by `memory.sweep()`.

    **Checkpoints.** With `rlm_session` the outermost queries, chats, workflows and calls of tools are turns of a
    session of `rlm_memory.checkpoints`, which saves itself every few turns and after an error. Calls of models and
    tools are in its journal before they are made, so that a session which is restored after a crash knows what was
    pending; usage, costs and the events of its trajectory outlive a crash, too. Events are cut, and hold no secrets
    that can be told by their names or their form; `rlm_memory.checkpoints.recorder` says what is in them. A run whose
    tags name another `session_id` than that session has is not recorded. A run that was cancelled while it waited for
    somebody is saved, and no turn: the one that goes on with it is. The dispatcher tells handlers of all this in the
    thread of the run, so an event loop waits for the disk: for some milliseconds a call, and for as long as a
    checkpoint takes.

    A run is never broken, and never waits for the writers of the memory: reports are queued in a file, see
    `Session.record_access`. The dispatcher says nothing about errors of handlers: they are logged under
    "llamaindex_rlm".
    """

    _tracking: Tracking = PrivateAttr()
    _session_id: str = PrivateAttr()
    _recording: Recording | None = PrivateAttr()

    def __init__(self, memory: Memory, *, session_id: str | None = None, rlm_session: RLMSession | None = None) -> None:
        """Report to a memory, which stays the caller's to close.

        Args:
            memory: The memory whose nodes are watched for.
            session_id: The session of every run whose tags do not name one.
            rlm_session: Where calls and searches are recorded; `RLMSpanHandler` needs to have it, too.

        Raises:
            InvalidInputError: The session id is no text, or empty.
        """
        super().__init__()
        self._tracking = tracking_of(memory)
        self._session_id = str(uuid.uuid4()) if session_id is None else memory.session(session_id).id
        self._recording = None if rlm_session is None else Recording(rlm_session)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the class."""
        return "RLMEventHandler"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Report what the event tells."""
        with _logged():
            if isinstance(event, RetrievalEndEvent):
                ids = [found.node.node_id for found in event.nodes]
                self._tracking.retrieved(event.span_id, event.tags, ids, self._session_id)
            elif isinstance(event, _ENDS_OF_STREAMS):
                self._tracking.stream_ended(event.span_id, True, is_answer=isinstance(event, StreamChatEndEvent))
            elif isinstance(event, _FAILURES) and isinstance(event.exception, Exception):
                self._tracking.stream_ended(event.span_id, False, is_answer=isinstance(event, StreamChatErrorEvent))
        if self._recording is not None:
            with _logged(_UNRECORDED):
                self._recording.happened(event)

    def feedback(self, run_id: str, success: bool, *, session_id: str | None = None) -> int:
        """Tell whether a run has served, whatever its end said; return to how many nodes that was attached.

        Args:
            run_id: The run: the `run_id` in its tags, else the `run_id` of a workflow's or an agent's handler, else the
                id of its outermost span.
            success: Whether it has.
            session_id: The session it was in. It is needed where another process saw the run.

        Raises:
            InvalidInputError: Nothing is known of the run, and no session is named.
            StoreError: It could not be written down.
        """
        return self._tracking.feedback(run_id, success, session_id)

    async def afeedback(self, run_id: str, success: bool, *, session_id: str | None = None) -> int:
        """Await what `feedback` returns."""
        return await asyncio.to_thread(self._tracking.feedback, run_id, success, session_id)


class RLMSpanHandler(BaseSpanHandler[BaseSpan]):
    """Tells a memory which run an access belongs to, and how the run has ended: see `RLMEventHandler`.

    It goes to the same dispatcher as the event handler. Alone it reports nothing to the memory; without it, each
    retrieval is a turn of its own, unless an agent or a workflow runs, no outcome is known, and nothing is recorded.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> from llamaindex_rlm import RLMEventHandler, RLMSpanHandler
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> ids = memory.add(["Ada likes tea."], ids=["tea"])
        >>> events, spans = RLMEventHandler(memory, session_id="monday"), RLMSpanHandler(memory)

    Use in a query engine:
        What `tracked` does for a block, for as long as the process runs:

        >>> from llama_index.core import get_response_synthesizer
        >>> from llama_index.core.instrumentation import get_dispatcher
        >>> from llama_index.core.llms import MockLLM
        >>> from llama_index.core.query_engine import RetrieverQueryEngine
        >>> from llamaindex_rlm import RLMRetriever
        >>> root = get_dispatcher()
        >>> root.add_event_handler(events)
        >>> root.add_span_handler(spans)
        >>> engine = RetrieverQueryEngine(RLMRetriever(memory), get_response_synthesizer(llm=MockLLM()))
        >>> answer = engine.query("tea")
        >>> memory.get("tea")[0].access_count
        1
        >>> root.event_handlers.remove(events)
        >>> root.span_handlers.remove(spans)

    Async:
        It sees awaited runs, and streams, in the same way.
    """

    _tracking: Tracking = PrivateAttr()
    _recording: Recording | None = PrivateAttr()

    def __init__(
        self, memory: Memory, *, rlm_session: RLMSession | None = None, idempotent_tools: Collection[str] = ()
    ) -> None:
        """Report to a memory, which stays the caller's to close.

        Args:
            memory: The memory whose nodes are watched for.
            rlm_session: Where turns and calls of tools are recorded.
            idempotent_tools: The tools whose calls do no harm when they are made twice; of the others a restored
                session tells that they may have happened.
        """
        super().__init__(open_spans={}, completed_spans=[], dropped_spans=[], current_span_ids={})
        self._tracking = tracking_of(memory)
        self._recording = None if rlm_session is None else Recording(rlm_session, idempotent_tools)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the class."""
        return "RLMSpanHandler"

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note where the span is.

        The base is given no span to keep: it would drop it, as if it had failed, when the dispatcher is shut down.
        """
        told = tags or active_instrument_tags.get()
        with _logged():
            self._tracking.enter(id_, parent_span_id, instance, told)
        if self._recording is not None:
            with _logged(_UNRECORDED):
                self._recording.enter(id_, parent_span_id, instance, bound_args, told)

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """Report a success, if the span was the outermost one."""
        with _logged():
            if isinstance(result, StreamingResponse | AsyncStreamingResponse):
                self._tracking.watch(id_, result)
            # a workflow that was not cancelled has a result
            success = None if isinstance(instance, Workflow) and result is None else True
            self._tracking.leave(id_, success, streams=isinstance(result, _STREAMS))
        if self._recording is not None:
            with _logged(_UNRECORDED):
                self._recording.leave(id_, instance, result)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """Report a failure, if the span was the outermost one."""
        with _logged():
            is_failure = isinstance(err, Exception) and not isinstance(err, WorkflowCancelledByUser)
            self._tracking.leave(id_, False if is_failure else None)
        if self._recording is not None:
            with _logged(_UNRECORDED):
                self._recording.drop(id_, instance, err)


@contextlib.contextmanager
def tracked(
    memory: Memory,
    *,
    session_id: str | None = None,
    rlm_session: RLMSession | None = None,
    idempotent_tools: Collection[str] = (),
) -> Iterator[RLMEventHandler]:
    """Report to a memory what goes on during the block, in all threads; gives the event handler.

    Both handlers are added to LlamaIndex's root dispatcher and taken away at the end.

    Args:
        memory: The memory whose nodes are watched for.
        session_id: The session of every run whose tags do not name one.
        rlm_session: A session with checkpoints, where the runs are recorded: see `RLMEventHandler`.
        idempotent_tools: The tools whose calls do no harm when they are made twice.
    """
    dispatcher = get_dispatcher()
    events = RLMEventHandler(memory, session_id=session_id, rlm_session=rlm_session)
    spans = RLMSpanHandler(memory, rlm_session=rlm_session, idempotent_tools=idempotent_tools)
    dispatcher.add_event_handler(events)
    dispatcher.add_span_handler(spans)
    try:
        yield events
    finally:
        # new lists, because another thread may be walking over the old ones
        dispatcher.event_handlers = [handler for handler in dispatcher.event_handlers if handler is not events]
        dispatcher.span_handlers = [handler for handler in dispatcher.span_handlers if handler is not spans]


@contextlib.contextmanager
def _logged(message: str = "What happened in a run could not be reported to the memory") -> Iterator[None]:
    """Log what goes wrong: the dispatcher drops it without a word."""
    try:
        yield
    except (StoreError, CheckpointWriteError) as error:
        _logger.error("%s: %s", message, error)
    except Exception:
        _logger.exception("%s.", message)


def _shorten(remembered: dict[Any, Any]) -> None:
    while len(remembered) > _REMEMBERED:
        del remembered[next(iter(remembered))]
