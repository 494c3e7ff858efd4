"""Workflow contexts: over the end of a process, with the agent's memory, and with nothing imported from the file."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, InsertMethod, StaticMemoryBlock
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step
from pydantic import BaseModel

import workflow_process
from llamaindex_rlm import RLMChatStore, load_context, save_context
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError


def run(path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, workflow_process.__file__, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return json.loads(done.stdout)


SAID = ["Send the letter to Ada.", "", "sent to Ada: yes", "done: sent to Ada: yes", "What was it again?", "shown 5"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # agents look at all they have
async def test_workflow_and_agent_wait_for_a_human_in_one_process_and_go_on_in_another(store_path: Path) -> None:
    assert run(store_path) == {"workflow": {"asked": "Send?"}, "agent": {"asked": "Send to Ada?"}}
    with Memory.open(store_path, embedder=None) as memory:
        assert await workflow_process.answers(memory) == {
            "workflow": {"answer": "yes", "done": ["begun"]},
            "agent": {"said": "done: sent to Ada: yes", "kind": "Memory", "messages": SAID},
        }


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
async def test_memory_that_the_framework_makes_by_itself_goes_on_too(memory: Memory) -> None:
    assert await workflow_process.agent_asks(memory, "buffer") == {"asked": "Send to Ada?"}
    expected = {"said": "done: sent to Ada: yes", "kind": "ChatMemoryBuffer", "messages": SAID}
    assert await workflow_process.agent_answers(memory) == expected


class Note(BaseModel):
    text: str


class Counter(Workflow):
    @step
    async def count(self, ctx: Context, event: StartEvent) -> StopEvent:
        await ctx.store.set("count", 1 + await ctx.store.get("count", default=0))
        return StopEvent(result=await ctx.store.get("count"))


class TypedState(BaseModel):
    count: int = 0
    notes: list[str] = []


class TypedCounter(Workflow):
    @step
    async def count(self, ctx: Context[TypedState], event: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.count += 1
            state.notes.append(f"note {state.count}")
        return StopEvent(result=state.count)


@pytest.fixture
def memory(store_path: Path) -> Any:
    with Memory.open(store_path, embedder=None) as opened:
        yield opened
        assert opened.check()


@pytest.mark.parametrize("workflow", [Counter, TypedCounter])
async def test_each_saved_state_can_be_gone_back_to(memory: Memory, workflow: type[Workflow]) -> None:
    ctx = Context(workflow())
    saved = []
    for expected in (1, 2, 3):
        assert await workflow().run(ctx=ctx) == expected
        saved.append(await save_context(memory, ctx, session_id="s"))
        ctx = await load_context(memory, workflow(), session_id="s")
    first = await load_context(memory, workflow(), session_id="s", checkpoint_id=saved[0])
    assert await workflow().run(ctx=first) == 2
    listed = list(memory.threads("llamaindex").list("s"))
    assert [each.id for each in listed] == saved[::-1]
    assert [each.parent_id for each in listed] == [saved[1], saved[0], None]


async def test_tiers_of_a_saved_state_are_those_of_then(memory: Memory) -> None:
    memory.add("a", ids=["a"])
    ctx = Context(Counter())
    before = await save_context(memory, ctx, session_id="s")
    memory.promote("a", "longterm", reason="test")
    await save_context(memory, ctx, session_id="s")
    threads = memory.threads("llamaindex")
    assert threads.tiers_at("s", "", before) == {"a": "task"}
    assert threads.tiers_at("s") == {"a": "longterm"}


async def test_unknown_session_or_checkpoint_is_named(memory: Memory) -> None:
    with pytest.raises(InvalidInputError, match="no saved context of session 'unknown'"):
        await load_context(memory, Counter(), session_id="unknown")
    await save_context(memory, Context(Counter()), session_id="s")
    with pytest.raises(InvalidInputError, match="no saved context 'x' of session 's'"):
        await load_context(memory, Counter(), session_id="s", checkpoint_id="x")


async def test_class_is_not_made_from_the_file_unless_allowed(memory: Memory) -> None:
    ctx = Context(Counter())
    await ctx.store.set("note", Note(text="hi"))
    await ctx.store.set("message", ChatMessage("hi"))
    await save_context(memory, ctx, session_id="s")
    with pytest.raises(InvalidInputError, match=r"Note is not in .* allowed="):
        await load_context(memory, Counter(), session_id="s")
    loaded = await load_context(memory, Counter(), session_id="s", allowed=[Note])
    assert await loaded.store.get("note") == Note(text="hi")
    assert await loaded.store.get("message") == ChatMessage("hi")


async def test_value_that_cannot_be_saved_is_refused_and_nothing_is_written(memory: Memory) -> None:
    ctx = Context(Counter())
    await ctx.store.set("bad", object())
    with pytest.raises(InvalidInputError, match="bad"):
        await save_context(memory, ctx, session_id="s")
    assert memory.threads("llamaindex").ids() == []


def said(message: str) -> ChatMessage:
    return ChatMessage(message, role="user")


async def test_messages_are_those_of_the_saved_state_archived_ones_too(memory: Memory) -> None:
    store = RLMChatStore(memory)
    agent_memory = ChatMemory.from_defaults(
        session_id="chat",
        chat_store=store,
        token_limit=1000,
        token_flush_size=77,
        chat_history_token_ratio=0.5,
        insert_method=InsertMethod.USER,
        tokenizer_fn=str.split,
    )
    await store.add_messages("chat", [said("old")], MessageStatus.ARCHIVED)
    await agent_memory.aput(said("one"))
    ctx = Context(Counter())
    await ctx.store.set("memory", agent_memory)
    await save_context(memory, ctx, session_id="s")
    await agent_memory.aput(said("after the checkpoint"))
    loaded = await load_context(memory, Counter(), session_id="s")
    restored = await loaded.store.get("memory")
    assert [m.content for m in await store.get_messages("chat")] == ["one"]
    assert [m.content for m in await store.get_messages("chat", status=MessageStatus.ARCHIVED)] == ["old"]
    assert [m.content for m in await restored.aget()] == ["one"]
    assert (restored.session_id, restored.token_limit, restored.token_flush_size) == ("chat", 1000, 77)
    assert (restored.chat_history_token_ratio, restored.insert_method) == (0.5, InsertMethod.USER)


async def test_memory_is_there_in_the_run_and_in_the_next(memory: Memory) -> None:
    class Remembering(Workflow):
        @step
        async def remember(self, ctx: Context, event: StartEvent) -> StopEvent:
            kept = await ctx.store.get("memory")
            await kept.aput(said("more"))
            return StopEvent(result=[message.content for message in await kept.aget_all()])

    ctx = Context(Remembering())
    await ctx.store.set("memory", ChatMemoryBuffer.from_defaults(chat_history=[said("one")], token_limit=100))
    await save_context(memory, ctx, session_id="s")
    loaded = await load_context(memory, Remembering(), session_id="s")
    assert await Remembering().run(ctx=loaded) == ["one", "more"]
    assert await Remembering().run(ctx=loaded) == ["one", "more", "more"]


async def test_blocks_are_the_programs_and_are_asked_for(memory: Memory) -> None:
    def with_block(session_id: str) -> ChatMemory:
        block = StaticMemoryBlock(name="facts", static_content="Ada likes tea.")
        return ChatMemory.from_defaults(
            session_id=session_id, memory_blocks=[block], chat_store=RLMChatStore(memory), tokenizer_fn=str.split
        )

    agent_memory = with_block("one")
    await agent_memory.aput(said("one"))
    ctx = Context(Counter())
    await ctx.store.set("memory", agent_memory)
    await save_context(memory, ctx, session_id="s")
    with pytest.raises(InvalidInputError, match="blocks facts"):
        await load_context(memory, Counter(), session_id="s")
    loaded = await load_context(memory, Counter(), session_id="s", agent_memory=(given := with_block("two")))
    assert await loaded.store.get("memory") is given
    assert [message.content for message in await given.aget_all()] == ["one"]


async def test_states_of_a_session_share_what_they_have_in_common(memory: Memory) -> None:
    ctx = Context(Counter())
    await ctx.store.set("documents", [f"{i} " + "text " * 100 for i in range(200)])
    await save_context(memory, ctx, session_id="s")
    before = memory.stats().file_bytes
    for i in range(20):
        await ctx.store.set("count", i)
        await save_context(memory, ctx, session_id="s")
    assert memory.stats().file_bytes - before < 200_000, "twenty states of 100 kB"


async def test_event_loop_is_free_while_a_context_is_saved(memory: Memory, store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as other:
        ctx = Context(Counter())
        with other._engine.transaction():
            saving = asyncio.create_task(save_context(memory, ctx, session_id="s"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not saving.done()
        await saving
