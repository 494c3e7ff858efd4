"""The state of LlamaIndex's workflows in the same file as the memories, an agent's memory with it."""

from __future__ import annotations

import asyncio
import json
import uuid
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Final

from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    AgentStream,
    AgentWorkflowStartEvent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.schema import Document, ImageNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
)
from workflows.context.serializers import JsonSerializer
from workflows.context.state_store import UnserializableKeyWarning, infer_state_type

from llamaindex_rlm.conversation import RLMChatStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
from rlm_memory.records import Encoded, ThreadCheckpoint

KIND: Final = "llamaindex"
_KEY: Final = "memory"
"""Where agents keep their memory in the state of a context; the framework leaves it out when it serialises one."""
_CARRIED: Final = "__carried_memory"
_ALLOWED: Final[tuple[type[Any], ...]] = (
    AgentInput, AgentOutput, AgentSetup, AgentStream, AgentWorkflowStartEvent, ToolCall, ToolCallResult,
    ChatMessage, ChatResponse, ToolOutput, ToolSelection,
    Document, ImageNode, NodeWithScore, QueryBundle, TextNode,
    Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent,
)  # fmt: skip
"""What the framework's own agents and steps put into a state: data without behaviour."""
_PARAMETERS: Final = ("token_limit", "token_flush_size", "chat_history_token_ratio")


async def save_context(memory: Memory, ctx: Context[Any], *, session_id: str) -> str:
    """Store the state of a workflow and the memory of its agent; return the id of this checkpoint.

    It may be called while the workflow waits for a human, with `handler.ctx`. What two states of a session have in
    common is stored once, and all of them stay: `memory.threads("llamaindex")` lists, prunes and deletes them, and
    tells the tiers that the memories had then.

    Args:
        memory: Where to keep it.
        ctx: The context of a run, or of an agent between two runs.
        session_id: The session it belongs to.

    Raises:
        InvalidInputError: A value of the state cannot be serialised.
    """
    data = _to_dict(ctx)
    agent_memory = await ctx.store.get(_KEY, default=None)
    state = data.pop("state", None) or {}
    if isinstance(values_by_key := state.get("state_data"), dict):  # a text where the workflow has a state of its own
        values_by_key.get("_data", {}).pop(_KEY, None)
    values = {"state": _encoded(state)}
    if agent_memory is not None:
        values[_KEY] = _encoded(await _saved(agent_memory))
    threads = memory.threads(KIND)
    checkpoint_id = uuid.uuid4().hex

    def put() -> None:
        last = threads.get(session_id)
        threads.put(
            ThreadCheckpoint(
                thread_id=session_id,
                id=checkpoint_id,
                parent_id=None if last is None else last.id,
                head=_encoded(data),
                values=values,
            )
        )

    await asyncio.to_thread(put)
    return checkpoint_id


async def load_context(
    memory: Memory,
    workflow: Workflow,
    *,
    session_id: str,
    checkpoint_id: str | None = None,
    allowed: Collection[type[Any] | str] = (),
    agent_memory: BaseMemory | None = None,
) -> Context[Any]:
    """Return a context that goes on where the saved one was, for `workflow.run(ctx=…)` or an agent's `run`.

    The agent's memory is in it again, with the messages that it had. One whose messages are kept by `RLMChatStore` has
    these again and no later ones, of which the steps that run once more would write a second copy.

    Args:
        memory: Where it is kept.
        workflow: A workflow of the same steps.
        session_id: The session it was saved for.
        checkpoint_id: Which of its checkpoints; the last one unless given.
        allowed: Classes of values in the state and of events, or their full names, that may be made from what is
            stored; the events and the state of the workflow's own steps, and LlamaIndex's messages, nodes and events,
            may be anyway.
        agent_memory: Where the messages go, for an agent memory with blocks, which are the program's and not stored, or
            of a kind that is not known here.

    Raises:
        InvalidInputError: There is no such checkpoint, a class is not allowed, or the agent's memory cannot be made
            again without `agent_memory`.
    """
    found = await asyncio.to_thread(memory.threads(KIND).get, session_id, "", checkpoint_id)
    if found is None:
        which = "" if checkpoint_id is None else f" {checkpoint_id!r}"
        raise InvalidInputError(f"There is no saved context{which} of session {session_id!r}.")
    data = {**_decoded(found.head), "state": _decoded(found.values["state"])}
    serializer = _Carrying(allowed_types={*_ALLOWED, *workflow.events, infer_state_type(workflow), *allowed})
    try:
        ctx = Context.from_dict(workflow, data, serializer=serializer)
        await ctx.store.get_state()  # which is read when it is first asked for
    except ValueError as error:
        raise InvalidInputError(
            f"The saved context of session {session_id!r} cannot be restored: {error} "
            "Name the classes it may have in it with allowed=."
        ) from error
    if (saved := found.values.get(_KEY)) is not None:
        serializer.carried = await _restored(memory, _decoded(saved), agent_memory)
        await ctx.store.set(_KEY, serializer.carried)
    return ctx


class _Carrying(JsonSerializer):
    """Serialises the agent's memory as a mark that stands for the object, for as long as the context lives.

    The framework serialises a context again when a run begins, and leaves out of it what cannot be serialised.
    """

    carried: BaseMemory | None = None

    def serialize_value(self, value: Any) -> Any:
        return {_CARRIED: True} if value is self.carried is not None else super().serialize_value(value)

    def deserialize_value(self, data: Any) -> Any:
        if isinstance(data, dict) and _CARRIED in data and self.carried is not None:
            return self.carried
        return super().deserialize_value(data)


def _to_dict(ctx: Context[Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        # What it warns of is that the agent's memory is left out, which is saved here.
        warnings.simplefilter("ignore", UnserializableKeyWarning)
        try:
            return ctx.to_dict(JsonSerializer())
        except ValueError as error:
            raise InvalidInputError(
                f"The context cannot be saved: {error}. Keep what JSON can hold, pydantic models or LlamaIndex "
                "components in its state."
            ) from error


def _encoded(value: Any) -> Encoded:
    return Encoded("json", json.dumps(value, separators=(",", ":")).encode())


def _decoded(value: Encoded) -> Any:
    return json.loads(value.content)


# -- the memory of an agent -----------------------------------------------------------------------------------------


async def _saved(agent_memory: BaseMemory) -> dict[str, Any]:
    """Return what is stored of an agent's memory: its messages, and how to make it again."""
    match agent_memory:
        case ChatMemory():
            store, key = agent_memory.sql_store, agent_memory.session_id
            return {
                "kind": "Memory",
                "session_id": key,
                "in_store": isinstance(store, RLMChatStore),
                "blocks": [block.name for block in agent_memory.memory_blocks],
                "insert_method": agent_memory.insert_method.value,
                **{name: getattr(agent_memory, name) for name in _PARAMETERS},
                "archived": _closed(await store.get_messages(key, status=MessageStatus.ARCHIVED)),
                "messages": _closed(await store.get_messages(key, status=MessageStatus.ACTIVE)),
            }
        case ChatMemoryBuffer():
            return {
                "kind": "ChatMemoryBuffer",
                "token_limit": agent_memory.token_limit,
                "chat_store_key": agent_memory.chat_store_key,
                "messages": _closed(await agent_memory.aget_all()),
            }
        case _:
            return {"kind": type(agent_memory).__name__, "messages": _closed(await agent_memory.aget_all())}


async def _restored(memory: Memory, saved: Mapping[str, Any], agent_memory: BaseMemory | None) -> BaseMemory:
    messages = _opened(saved["messages"])
    if agent_memory is None:
        agent_memory = _made(memory, saved)
    if isinstance(agent_memory, ChatMemory):
        store, key = agent_memory.sql_store, agent_memory.session_id
        await store.set_messages(key, _opened(saved.get("archived", ())), status=MessageStatus.ARCHIVED)
        await store.add_messages(key, messages)
    else:
        await agent_memory.aset(messages)
    return agent_memory


def _made(memory: Memory, saved: Mapping[str, Any]) -> BaseMemory:
    """Return an empty memory like the one that was saved."""
    match saved["kind"]:
        case "Memory" if not saved["blocks"]:
            return ChatMemory.from_defaults(
                session_id=saved["session_id"],
                chat_store=RLMChatStore(memory) if saved["in_store"] else None,
                insert_method=InsertMethod(saved["insert_method"]),
                **{name: saved[name] for name in _PARAMETERS},
            )
        case "Memory":
            raise InvalidInputError(
                f"The agent's memory had the blocks {', '.join(saved['blocks'])}, which are not stored; pass "
                "agent_memory= with a Memory that has them, and its messages are put into it."
            )
        case "ChatMemoryBuffer":
            return ChatMemoryBuffer.from_defaults(
                token_limit=saved["token_limit"], chat_store_key=saved["chat_store_key"]
            )
        case kind:
            raise InvalidInputError(
                f"The agent's memory was a {kind}, which is not known here; pass agent_memory= with an empty one, and "
                "its messages are put into it."
            )


def _closed(messages: Collection[ChatMessage]) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json") for message in messages]


def _opened(messages: Collection[Mapping[str, Any]]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(message) for message in messages]
