"""What a callback handler tells an RLM session of LangChain's runs, in the words of the core's recorder."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from pydantic import BaseModel

from rlm_memory.checkpoints import RLMSession, Usage, recorder_of, usage_of


class Recording:
    """Tells a session of runs as LangChain's callbacks do. It raises what the session raises."""

    def __init__(self, session: RLMSession, idempotent_tools: Collection[str] = ()) -> None:
        self.session = session
        self._recorder = recorder_of(session)
        self._idempotent = frozenset(idempotent_tools)

    def watches(self, run_id: UUID | None) -> bool:
        """Return whether a run is one that is recorded."""
        return run_id is not None and self._recorder.watches(str(run_id))

    def started(self, run_id: UUID, parent_run_id: UUID | None, name: str, input: Any) -> None:
        """Tell that a run begins."""
        parent = None if parent_run_id is None else str(parent_run_id)
        self._recorder.start(str(run_id), parent, name=name, input=_newest(input), describe=described)

    def tool_started(self, run_id: UUID, parent_run_id: UUID | None, name: str, input: Any) -> None:
        """Tell that a tool is called."""
        self.started(run_id, parent_run_id, name, input)
        safe = name in self._idempotent
        self._recorder.begin(str(run_id), "tool", name, input, idempotent=safe, describe=described)

    def tool_ended(self, run_id: UUID, output: Any) -> None:
        """Tell what a tool returned; an error that the model is told of is one here, too."""
        try:
            if isinstance(output, ToolMessage) and output.status == "error":
                self._recorder.finish(str(run_id), "failed", error=output.text)
            else:
                self._recorder.finish(str(run_id), output=output, describe=described)
        finally:
            self.ended(run_id, output)

    def search_started(self, run_id: UUID, parent_run_id: UUID | None, name: str, query: str) -> None:
        """Tell that a retriever searches."""
        self.started(run_id, parent_run_id, name, query)
        self._recorder.begin(str(run_id), "retrieval", name, query, idempotent=True)

    def search_ended(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """Tell what a retriever has found: the ids."""
        ids = [document.id for document in documents]
        try:
            self._recorder.finish(str(run_id), output=ids)
        finally:
            self.ended(run_id, ids)

    def model_started(
        self, run_id: UUID, parent_run_id: UUID | None, name: str, prompt: str | Sequence[BaseMessage]
    ) -> None:
        """Tell that a model is called."""
        self.started(run_id, parent_run_id, name, prompt if isinstance(prompt, str) else {"messages": prompt})
        asked = prompt if isinstance(prompt, str) else {"messages": len(prompt), "last": prompt[-1] if prompt else None}
        self._recorder.begin(str(run_id), "model", name, asked, idempotent=True, describe=described)

    def model_ended(self, run_id: UUID, response: LLMResult) -> None:
        """Tell what a model has answered, and what that cost."""
        said = _answer(response)
        try:
            self._recorder.finish(str(run_id), output=said, usage=_usage(response), describe=described)
        finally:
            self.ended(run_id, said)

    def model_failed(self, run_id: UUID, error: BaseException, response: LLMResult | None) -> None:
        """Tell that a model gave no answer, or a part of one."""
        usage = None if response is None else _usage(response)
        try:
            self._recorder.finish(str(run_id), _status(error), error=error, usage=usage)
        finally:
            self.failed(run_id, error)

    def ended(self, run_id: UUID, output: Any) -> None:
        """Tell that a run has ended well."""
        self._recorder.stop(str(run_id), output=_newest(output), describe=described)

    def failed(self, run_id: UUID, error: BaseException) -> None:
        """Tell that a run has ended with an error, or has been cancelled or interrupted, which also come as errors."""
        status = _status(error)
        self._recorder.stop(str(run_id), status, error=error if status in ("failed", "cancelled") else None)


def described(value: Any) -> Any:
    """Return what an event tells of LangChain's objects, and of those that are made of fields."""
    match value:
        case BaseMessage():
            said: dict[str, Any] = {"role": value.type, "text": value.text}
            if isinstance(value, AIMessage) and value.tool_calls:
                said["tool_calls"] = [{"name": each["name"], "args": each["args"]} for each in value.tool_calls]
            return said
        case Document():
            return {"id": value.id, "text": value.page_content}
        case BaseModel():
            return {name: getattr(value, name, None) for name in type(value).model_fields}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None


def is_a(error: BaseException, name: str) -> bool:
    """Return whether an error is of a class of LangGraph's, which need not be installed to run a chain."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and isinstance(error, getattr(errors, name))


def _status(error: BaseException) -> Any:
    if is_a(error, "GraphInterrupt"):
        return "interrupted"
    if is_a(error, "GraphBubbleUp"):  # a command to another graph comes this way, too
        return "done"
    return "failed" if isinstance(error, Exception) else "cancelled"


def _newest(value: Any) -> Any:
    """Return what a run is given or returns with its last message alone: the others have been told before."""
    if isinstance(value, Mapping) and isinstance(messages := value.get("messages"), list | tuple) and messages:
        return {**value, "messages": [messages[-1]]}
    return value


def _answer(response: LLMResult) -> Any:
    generation = response.generations[0][0] if response.generations and response.generations[0] else None
    return getattr(generation, "message", None) or getattr(generation, "text", None)


def _usage(response: LLMResult) -> Usage | None:
    said = _answer(response)
    message = said if isinstance(said, AIMessage) else None
    told = {} if message is None else message.response_metadata
    counted: Mapping[str, Any] = (message.usage_metadata if message is not None else None) or {}
    if counted.get("total_cost") == 0:  # it comes from a cache, with the numbers of the reply that was paid
        return None
    whole = response.llm_output or {}
    model = told.get("model_name") or told.get("model") or whole.get("model_name")
    places = (counted, *(place.get(name) for place in (told, whole) for name in ("token_usage", "usage")))
    return usage_of(model if isinstance(model, str) else None, *(place for place in places if place))
