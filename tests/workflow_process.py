"""A process of its own, `python workflow_process.py PATH`: a workflow and an agent run until they wait for a human.

It prints one line of JSON for what they asked. What the process after it answers is here too.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)

from llamaindex_rlm import RLMChatStore, load_context, save_context
from rlm_memory import Memory

SESSION = "session"


class Approval(Workflow):
    """Counts what it did before it asks, and tells after the answer."""

    @step
    async def begin(self, ctx: Context, event: StartEvent) -> InputRequiredEvent:
        await ctx.store.set("done", [*await ctx.store.get("done", default=[]), "begun"])
        return InputRequiredEvent(prefix="Send?")

    @step
    async def end(self, ctx: Context, event: HumanResponseEvent) -> StopEvent:
        return StopEvent(result={"answer": event.response, "done": await ctx.store.get("done")})


class OneCall(FunctionCallingLLM):
    """Asks for the tool `send` once, then tells what it answered, and how many messages it was shown."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    async def achat_with_tools(self, tools: Any, chat_history: Sequence[ChatMessage] = (), **_: Any) -> ChatResponse:
        return self._answer(chat_history)

    async def astream_chat_with_tools(self, tools: Any, chat_history: Sequence[ChatMessage] = (), **_: Any) -> Any:
        async def stream() -> Any:
            yield self._answer(chat_history)

        return stream()

    def _answer(self, shown: Sequence[ChatMessage]) -> ChatResponse:
        if shown[-1].role == MessageRole.TOOL:
            return ChatResponse(message=ChatMessage(f"done: {shown[-1].content}", role="assistant"))
        if "again" in (shown[-1].content or ""):
            return ChatResponse(message=ChatMessage(f"shown {len(shown)}", role="assistant"))
        return ChatResponse(message=ChatMessage("", role="assistant"), raw={"call": True})

    def get_tool_calls_from_response(self, response: ChatResponse, **_: Any) -> list[ToolSelection]:
        if isinstance(response.raw, dict) and response.raw.get("call"):
            return [ToolSelection(tool_id="call-1", tool_name="send", tool_kwargs={"to": "Ada"})]
        return []

    def _prepare_chat_with_tools(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    chat = complete = stream_chat = stream_complete = achat = acomplete = astream_chat = astream_complete = _unused


async def send(ctx: Context, to: str) -> str:
    """Send the letter, once a human has agreed."""
    answer = await ctx.wait_for_event(
        HumanResponseEvent, waiter_id="send", waiter_event=InputRequiredEvent(prefix=f"Send to {to}?")
    )
    return f"sent to {to}: {answer.response}"


def agent() -> FunctionAgent:
    return FunctionAgent(name="writer", description="writes", tools=[send], llm=OneCall(), streaming=False)


def chat_memory(memory: Memory, kind: str) -> ChatMemory | None:
    """Return the agent's memory, None for the one that the framework makes by itself."""
    if kind == "buffer":
        return None
    return ChatMemory.from_defaults(session_id=SESSION, chat_store=RLMChatStore(memory), tokenizer_fn=str.split)


async def ask(
    workflow: Workflow, memory: Memory, options: dict[str, Any], *, session_id: str = SESSION
) -> dict[str, Any]:
    handler = workflow.run(**options)
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            await save_context(memory, handler.ctx, session_id=session_id)
            break
    await handler.cancel_run()
    return {"asked": event.prefix}


async def answer(workflow: Workflow, memory: Memory, *, session_id: str = SESSION) -> Any:
    ctx = await load_context(memory, workflow, session_id=session_id)
    handler = workflow.run(ctx=ctx)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    result = await handler
    await save_context(memory, handler.ctx, session_id=session_id)
    return result


async def agent_asks(memory: Memory, kind: str) -> dict[str, Any]:
    options = {"memory": chosen} if (chosen := chat_memory(memory, kind)) is not None else {}
    return await ask(agent(), memory, {"user_msg": "Send the letter to Ada.", **options})


async def agent_answers(memory: Memory) -> dict[str, Any]:
    """Let the agent go on, and run it once more with the context that this run has left."""
    result = await answer(agent(), memory)
    again = agent()
    ctx = await load_context(memory, again, session_id=SESSION)
    await again.run(user_msg="What was it again?", ctx=ctx)
    kept = await ctx.store.get("memory")
    return {"said": str(result), "kind": type(kept).__name__, "messages": [m.content for m in await kept.aget_all()]}


async def asks(memory: Memory) -> dict[str, Any]:
    return {
        "workflow": await ask(Approval(), memory, {}, session_id="workflow"),
        "agent": await agent_asks(memory, "store"),
    }


async def answers(memory: Memory) -> dict[str, Any]:
    return {"workflow": await answer(Approval(), memory, session_id="workflow"), "agent": await agent_answers(memory)}


async def main(path: Path) -> None:
    with Memory.open(path, embedder=None) as memory:
        print(json.dumps(await asks(memory)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
