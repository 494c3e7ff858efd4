"""A callback handler for LangGraph that saves a session when a graph waits for somebody."""

from __future__ import annotations

import logging
from typing import Any

from langchain_rlm.recording import described
from rlm_memory.checkpoints import RLMSession, recorder_of
from rlm_memory.errors import MissingExtraError

try:
    from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent
except ImportError as error:
    raise MissingExtraError("RLMGraphCallbackHandler", "langgraph") from error

_logger = logging.getLogger("langchain_rlm")


class RLMGraphCallbackHandler(GraphCallbackHandler):
    """Records in a session with checkpoints where a graph is interrupted and where it goes on, and saves it there.

    Setup:
        Install `rlm-memory[langgraph]`.

    Instantiate:
        It goes beside `RLMCallbackHandler`, which sees runs and calls, but not at which checkpoint of the graph a run
        waits, nor one that waits before or after a node and not in it.

        >>> import tempfile
        >>> from langchain_rlm import RLMCallbackHandler, RLMGraphCallbackHandler
        >>> from rlm_memory import Memory
        >>> from rlm_memory.checkpoints import CheckpointStore, RLMSession
        >>> folder = tempfile.TemporaryDirectory()
        >>> session = RLMSession("monday", store=CheckpointStore(folder.name))
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> handlers = [RLMCallbackHandler(memory, rlm_session=session), RLMGraphCallbackHandler(session)]

    Use in a graph:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import StateGraph
        >>> from langgraph.types import Command, interrupt
        >>> builder = StateGraph(dict).add_node("ask", lambda state: {"name": interrupt("Who are you?")})
        >>> graph = builder.set_entry_point("ask").set_finish_point("ask").compile(checkpointer=InMemorySaver())
        >>> config = {"callbacks": handlers, "configurable": {"thread_id": "monday"}}
        >>> waiting = graph.invoke({}, config)
        >>> graph.invoke(Command(resume="Ada"), config)
        {'name': 'Ada'}
        >>> [event["type"] for event in session.trajectory_events if event["type"] in {"interrupt", "resume"}]
        ['interrupt', 'resume']
        >>> folder.cleanup()

    Async:
        `graph.ainvoke` takes the same handlers.

    A run is never broken: what goes wrong here is logged under "langchain_rlm".
    """

    ignore_llm = True
    ignore_chat_model = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, rlm_session: RLMSession) -> None:
        """Record in this session."""
        self.rlm_session = rlm_session
        self._recorder = recorder_of(rlm_session)

    def on_interrupt(self, event: GraphInterruptEvent) -> Any:
        """Record that a graph waits, and for what, and save the session."""
        try:
            self._recorder.interrupt(
                None if event.run_id is None else str(event.run_id),
                interrupts=[each.value for each in event.interrupts],
                status=event.status,
                thread_checkpoint=event.checkpoint_id,
                namespace="/".join(event.checkpoint_ns),
                describe=described,
            )
        except Exception:
            _logger.exception("An interrupt of a graph could not be recorded in the session.")

    def on_resume(self, event: GraphResumeEvent) -> Any:
        """Record that a graph goes on."""
        try:
            self._recorder.note(
                None if event.run_id is None else str(event.run_id),
                "resume",
                thread_checkpoint=event.checkpoint_id,
                namespace="/".join(event.checkpoint_ns),
            )
        except Exception:
            _logger.exception("The resumption of a graph could not be recorded in the session.")
