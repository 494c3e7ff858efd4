"""What the handlers tell an RLM session of LlamaIndex's runs, in the words of the core's recorder."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from llama_index.core.agent.workflow import AgentOutput
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, ToolCallBlock
from llama_index.core.base.response.schema import Response
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.chat_engine import StreamChatErrorEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.schema import BaseComponent, BaseNode, NodeWithScore, QueryBundle
from llama_index.core.tools.types import BaseTool, ToolOutput
from llama_index.core.workflow import Context, Event, InputRequiredEvent, StopEvent, Workflow
from pydantic import BaseModel
from workflows.errors import WorkflowCancelledByUser
from workflows.runtime.types.results import WaitingForEvent

from rlm_memory.checkpoints import RLMSession, Usage, recorder_of, usage_of
from rlm_memory.turns import named_session

_TURNS: Final = (BaseQueryEngine, BaseChatEngine, Workflow, BaseTool)
_OWNERS: Final = (BaseLLM, BaseTool, BaseRetriever)
_CALLS: Final = ("call", "acall", "__call__")


class Recording:
    """Tells a session of spans and events. It raises what the session raises."""

    def __init__(self, session: RLMSession, idempotent_tools: Collection[str] = ()) -> None:
        self.session = session
        self._recorder = recorder_of(session)
        self._idempotent = frozenset(idempotent_tools)

    # Spans

    def enter(
        self,
        span_id: str,
        parent_id: str | None,
        instance: Any,
        arguments: inspect.BoundArguments,
        tags: Mapping[str, Any],
    ) -> None:
        """Tell that a span begins, unless it is a run of another session."""
        if not (parent_id is not None and self._recorder.watches(parent_id)):
            named = named_session(tags)
            if named is not None and named != self.session.session_id:
                return
        name, given = _name(span_id), _given(arguments)
        self._recorder.start(
            span_id,
            parent_id,
            name=name,
            input=given.get("start_event") or {argument: each for argument, each in given.items() if each is not None},
            owner=getattr(instance, "base_tool", instance) if isinstance(instance, _OWNERS) else None,
            is_turn=instance is None or isinstance(instance, _TURNS),
            describe=described,
        )
        if isinstance(instance, BaseTool) and name.rpartition(".")[2] in _CALLS:
            tool = instance.metadata.get_name()
            safe = tool in self._idempotent
            self._recorder.begin(span_id, "tool", tool, given, idempotent=safe, describe=described)

    def leave(self, span_id: str, instance: Any, result: Any) -> None:
        """Tell that a span has ended."""
        if isinstance(result, InputRequiredEvent):  # a step of a workflow asks somebody
            self._recorder.interrupt(span_id, ends=False, asked=result, describe=described)
        try:
            if isinstance(result, ToolOutput) and result.is_error:
                self._recorder.finish(span_id, "failed", error=result.content)
            elif isinstance(instance, BaseTool):
                self._recorder.finish(span_id, output=result, describe=described)
        finally:
            is_cancelled = isinstance(instance, Workflow) and result is None
            self._recorder.stop(span_id, "cancelled" if is_cancelled else "done", output=result, describe=described)

    def drop(self, span_id: str, instance: Any, error: BaseException | None) -> None:
        """Tell that a span has ended with an error, was cancelled, or waits."""
        if isinstance(error, WaitingForEvent):  # the step is run again when somebody has answered
            try:
                self._recorder.finish(span_id, "interrupted")
                if isinstance(instance, BaseTool):
                    self._recorder.interrupt(span_id, ends=False, asked=error.add.waiter_event, describe=described)
            finally:
                self._recorder.stop(span_id)
        elif isinstance(error, Exception) and not isinstance(error, WorkflowCancelledByUser):
            self._recorder.stop(span_id, "failed", error=error)
        else:
            self._recorder.stop(span_id, "cancelled", error=error)

    # Events

    def happened(self, event: BaseEvent) -> None:
        """Tell of an event that begins or ends a call or a search."""
        if (span_id := event.span_id) is None:
            return
        match event:
            case LLMChatStartEvent():
                last = event.messages[-1] if event.messages else None
                asked = {"messages": len(event.messages), "last": last}
                self._begin_model(span_id, event.model_dict, asked)
            case LLMCompletionStartEvent():
                self._begin_model(span_id, event.model_dict, event.prompt)
            case LLMChatEndEvent() | LLMCompletionEndEvent():
                response = event.response
                self._recorder.finish(span_id, output=response, usage=_usage(response), describe=described)
            case RetrievalStartEvent():
                question = event.str_or_query_bundle
                self._recorder.begin(
                    span_id, "retrieval", _name(span_id), question, idempotent=True, describe=described
                )
            case RetrievalEndEvent():
                self._recorder.finish(span_id, output=[found.node.node_id for found in event.nodes])
            case ExceptionEvent() | StreamChatErrorEvent():
                is_failure = isinstance(event.exception, Exception)  # a stream that is closed early is none
                self._recorder.finish(span_id, "failed" if is_failure else "cancelled", error=event.exception)

    def _begin_model(self, span_id: str, model: Mapping[str, Any], asked: Any) -> None:
        names = (model.get(key) for key in ("model", "model_name", "class_name"))
        name = next((name for name in names if isinstance(name, str) and name not in ("", "unknown")), "model")
        self._recorder.begin(span_id, "model", name, asked, idempotent=True, describe=described)


def described(value: Any) -> Any:
    """Return what an event tells of LlamaIndex's objects, and of those that are made of fields."""
    match value:
        case ChatMessage():
            calls = [
                {"name": block.tool_name, "args": block.tool_kwargs}
                for block in value.blocks
                if isinstance(block, ToolCallBlock)
            ]
            said: dict[str, Any] = {"role": value.role.value, "text": value.content or ""}
            return {**said, "tool_calls": calls} if calls else said
        case ChatResponse():
            return value.message
        case AgentOutput():
            return value.response
        case CompletionResponse():
            return value.text
        case Response():
            return value.response
        case ToolOutput():
            return value.content
        case QueryBundle():
            return value.query_str
        case NodeWithScore():
            return value.node_id
        case BaseNode():
            return value.node_id
        case StopEvent() if type(value) is StopEvent:
            return value.result
        case Event():
            fields = {name: getattr(value, name, None) for name in type(value).model_fields}
            return {**fields, **dict(value.items())}
        case BaseModel() if not isinstance(value, BaseComponent):  # what agents are made of
            return {name: getattr(value, name, None) for name in type(value).model_fields}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None


def _name(span_id: str) -> str:
    """Return the class and the method of a span: its id is theirs, and a UUID."""
    return span_id.rsplit("-", 5)[0]


def _given(arguments: inspect.BoundArguments) -> dict[str, Any]:
    """Return the arguments of a call by their names, without those that the framework passes for itself."""
    given = {**arguments.arguments, **arguments.kwargs}
    variable = {name for name, each in arguments.signature.parameters.items() if each.kind is each.VAR_KEYWORD}
    return {name: each for name, each in given.items() if name not in variable and not isinstance(each, Context)}


def _usage(response: Any) -> Usage | None:
    if response is None:
        return None
    raw = response.raw
    fields: Sequence[str] = ("usage", "usage_metadata")
    places = [raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None) for name in fields]
    message = response.message.additional_kwargs if isinstance(response, ChatResponse) else None
    places += [response.additional_kwargs, raw, message]
    names = [
        raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None) for name in ("model", "model_version")
    ]
    model = next((name for name in names if isinstance(name, str) and name), None)
    return usage_of(model, *(place for place in places if place is not None))
