"""Agents that live with a memory over days: what they use climbs, what they leave is archived."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import InsertMethod
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_index_instrumentation.dispatcher import instrument_tags
from workflows.context.serializers import JsonSerializer
from workflows.context.state_store import UnserializableKeyWarning

from llamaindex_rlm import RLMChatStore, RLMMemoryBlock, RLMRetriever, tracked
from llamaindex_script import Script, call
from rlm_memory import Memory, Node
from support import SettableClock

# agents are looked through with inspect.getmembers when they are made
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),  # by ReActAgent
]

FACT = "I drink green tea."


@pytest.fixture
def memory(store_path: Path, clock: SettableClock) -> Iterator[Memory]:
    with Memory.open(store_path, embedder=None, clock=clock) as memory:
        yield memory
        assert memory.check()


def chat(memory: Memory, block: RLMMemoryBlock, session_id: str, **options: Any) -> ChatMemory:
    return ChatMemory.from_defaults(
        session_id=session_id, memory_blocks=[block], chat_store=RLMChatStore(memory), tokenizer_fn=str.split,
        **options,
    )  # fmt: skip


def answer_from_memory(messages: Sequence[ChatMessage]) -> str:
    prompt = "\n".join(str(message) for message in messages)
    return "You drink green tea." if f'"text": "{FACT}"' in prompt else "I do not know."


def outcomes(memory: Memory, id: str) -> tuple[Any, Any]:
    found = {condition.name: condition.found for condition in memory.explain_promotion(id).conditions}
    return found["successful outcomes"], found["failed outcomes"]


# -- an agent over days ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("watched", [True, False])
async def test_what_an_agent_was_told_is_known_in_the_fourth_session(
    memory: Memory, clock: SettableClock, streaming: bool, watched: bool
) -> None:
    """Watched, each run tells its outcome by its end; else the end of the session tells it."""
    block = RLMMemoryBlock(memory, confidence=0.9)

    async def day(name: str, *questions: str) -> tuple[list[str], list[bool]]:
        agent = FunctionAgent(llm=Script(answer_from_memory).llm(), streaming=streaming)
        talk = chat(memory, block, name)
        answers = [str(await agent.run(question, memory=talk)) for question in questions]
        decisions = await block.aend_session(talk, success=None if watched else True)
        clock.advance(days=1)
        return answers, [decision.moved for decision in decisions if decision.node_id == told().id]

    def told() -> Node:
        (node,) = memory.list(where={"node.text": FACT}, include_archived=True)
        return node

    async def days() -> None:
        assert await day("sunday", FACT) == (["I do not know."], [])
        assert (told().tier, told().type, told().metadata["session_id"]) == ("task", "experience", "sunday")
        tiers = []
        for name in ("monday", "tuesday", "wednesday"):
            answers, moved = await day(name, "Do I drink tea?", "Which tea do I drink?")
            assert answers == ["You drink green tea."] * 2
            tiers.append((told().tier, *moved))
        assert tiers == [("session", False), ("session", False), ("longterm", True)]
        assert await day("thursday", "Which tea do I drink?") == (["You drink green tea."], [])

    if watched:
        with tracked(memory):
            await days()
    else:
        await days()
    used = [(access.session_id, access.turn) for access in memory.accesses(told().id)]
    assert used == [*((name, turn) for name in ("monday", "tuesday", "wednesday") for turn in (1, 2)), ("thursday", 1)]
    moves = [entry.decision for entry in memory.promotion_log(told().id) if entry.decision.moved]
    assert [(move.to_tier, move.session_id, move.actor) for move in moves] == [
        ("session", "monday", "auto"),
        ("longterm", "wednesday", "auto"),
    ]
    clock.advance(days=91)
    assert told().id in [decision.node_id for decision in memory.sweep() if decision.to_tier == "archive"]
    assert told().text == FACT  # nothing is lost
    answers, _ = await day("in summer", "Which tea do I drink?")
    assert FACT not in answers


async def test_failures_keep_a_memory_from_climbing(memory: Memory) -> None:
    memory.add([FACT], ids=["tea"], tier="session", confidence=0.9)
    block = RLMMemoryBlock(memory)
    with tracked(memory):
        for day in range(4):
            agent = FunctionAgent(llm=Script(RuntimeError("no"), "ok").llm())
            talk = chat(memory, block, f"{day}")
            with pytest.raises(RuntimeError):
                await agent.run("Which tea do I drink?", memory=talk)
            await agent.run("Which tea do I drink?", memory=talk)
            await block.aend_session(talk)
    assert (memory.get("tea")[0].tier, outcomes(memory, "tea")) == ("session", (4, 4))


async def test_memory_and_tool_are_one_turn_with_one_outcome(memory: Memory) -> None:
    memory.add([FACT], ids=["tea"], tier="session", confidence=0.9)

    async def look_up(question: str) -> str:
        """Look something up."""
        return str([found.text for found in await RLMRetriever(memory).aretrieve(question)])

    llm = Script(call("look_up", question="tea"), call("look_up", question="tea"), "Green tea.").llm()
    agent = FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(async_fn=look_up)])
    with tracked(memory, session_id="s") as handler:
        run = agent.run("Which tea do I drink?", memory=chat(memory, RLMMemoryBlock(memory), "s"))
        await run
        assert {(access.session_id, access.turn) for access in memory.accesses("tea")} == {("s", 1)}
        assert outcomes(memory, "tea") == (1, 0)
        assert handler.feedback(run.run_id, False) == 1
    assert outcomes(memory, "tea") == (0, 1)


async def test_workflow_of_agents_is_one_turn(memory: Memory) -> None:
    memory.add([FACT], ids=["tea"], tier="session", confidence=0.9)
    first = FunctionAgent(
        name="first", description="asks", llm=Script(call("handoff", to_agent="second", reason="knows")).llm(),
        can_handoff_to=["second"],
    )  # fmt: skip
    second = FunctionAgent(name="second", description="answers", llm=Script(answer_from_memory).llm())
    team = AgentWorkflow(agents=[first, second], root_agent="first")
    with tracked(memory):
        answer = await team.run("Which tea do I drink?", memory=chat(memory, RLMMemoryBlock(memory), "s"))
    assert str(answer) == "You drink green tea."
    assert [(access.session_id, access.turn) for access in memory.accesses("tea")] == [("s", 1)]
    assert outcomes(memory, "tea") == (1, 0)


async def test_agents_side_by_side_keep_their_sessions_apart(memory: Memory) -> None:
    memory.add([f"Note {i} about topic {i}." for i in range(10)], ids=[f"{i}" for i in range(10)], tier="session")
    block = RLMMemoryBlock(memory, similarity_top_k=1)

    async def run(i: int) -> None:
        agent = FunctionAgent(llm=Script("ok").llm())
        with instrument_tags({"session_id": f"chat {i}"}):
            await agent.run(f"topic {i}", memory=chat(memory, block, f"chat {i}"))

    with tracked(memory):
        for _ in range(2):
            await asyncio.gather(*(run(i) for i in range(10)))
    for i in range(10):
        assert [access.session_id for access in memory.accesses(f"{i}")] == [f"chat {i}"] * 2
        assert outcomes(memory, f"{i}") == (2, 0)


# -- what reaches the model -----------------------------------------------------------------------------------------


REACT = "Thought: I can answer.\nAnswer: ok"


@pytest.mark.parametrize(
    ("agent_options", "chat_options", "reaches"),
    [
        ({}, {}, False),  # ReActAgent drops the first system message, which it takes for its own
        ({"system_prompt": "Be kind."}, {}, True),
        ({}, {"insert_method": InsertMethod.USER}, True),
    ],
    ids=["as it is", "with a system prompt", "in the user's message"],
)
async def test_notes_reach_a_react_agent_as_documented(
    memory: Memory, agent_options: dict[str, Any], chat_options: dict[str, Any], reaches: bool
) -> None:
    memory.add([FACT])
    script = Script(REACT)
    agent = ReActAgent(llm=script.llm(), **agent_options)
    assert str(
        await agent.run("Which tea do I drink?", memory=chat(memory, RLMMemoryBlock(memory), "s", **chat_options))
    )
    assert (FACT in script.texts[0]) is reaches


async def test_stored_chat_holds_no_notes(memory: Memory) -> None:
    memory.add([FACT])
    talk = chat(memory, RLMMemoryBlock(memory), "s", insert_method=InsertMethod.USER)
    await FunctionAgent(llm=Script(answer_from_memory).llm()).run("Which tea do I drink?", memory=talk)
    assert [message.content for message in await talk.aget_all()] == ["Which tea do I drink?", "You drink green tea."]


async def test_agent_goes_on_in_another_process(memory: Memory, store_path: Path, clock: SettableClock) -> None:
    """B109: a workflow's context leaves its memory out, so the chat is found by its session id."""
    agent = FunctionAgent(llm=Script("Noted.").llm(), initial_state={"mood": "fine"})
    run = agent.run(FACT, memory=chat(memory, RLMMemoryBlock(memory), "s"))
    await run
    with pytest.warns(UnserializableKeyWarning, match="memory"):
        saved = run.ctx.to_dict(serializer=JsonSerializer())
    with Memory.open(store_path, embedder=None, clock=clock) as later:
        script = Script("Green tea.")
        again = FunctionAgent(llm=script.llm())
        context = Context.from_dict(again, saved, serializer=JsonSerializer())
        talk = chat(later, RLMMemoryBlock(later), "s")
        assert str(await again.run("Which tea?", ctx=context, memory=talk)) == "Green tea."
        assert [message.content for message in await talk.aget_all()] == [FACT, "Noted.", "Which tea?", "Green tea."]
        assert FACT in script.texts[0]


# -- both frameworks on one file --------------------------------------------------------------------------------------


async def test_memory_climbs_by_the_use_of_both_frameworks(
    memory: Memory, store_path: Path, clock: SettableClock
) -> None:
    agents = pytest.importorskip("langchain.agents", reason="needs the extra langgraph")
    from langchain_core.messages import HumanMessage

    import langchain_rlm
    from scripted_model import ScriptedModel
    from scripted_model import call as tool_call

    def told() -> Node:
        (node,) = memory.list(where={"node.text": FACT})
        return node

    with Memory.open(store_path, embedder=None, clock=clock) as other:

        async def langchain_day(name: str, *lines: Any) -> list[str]:
            model = ScriptedModel(script=list(lines))
            agent = agents.create_agent(model, middleware=[langchain_rlm.RLMMemoryMiddleware(other)])
            asked = {"messages": [HumanMessage("Which tea do I drink?")]}
            config = {"configurable": {"thread_id": name}}
            answers = [(await agent.ainvoke(asked, config))["messages"][-1].text for _ in range(2)]
            other.session(name).end()
            clock.advance(days=1)
            return answers

        async def llamaindex_day(name: str) -> list[str]:
            agent = FunctionAgent(llm=Script(answer_from_memory).llm())
            block = RLMMemoryBlock(memory, types=["fact"])
            talk = chat(memory, block, name)
            with tracked(memory):
                answers = [str(await agent.run("Which tea do I drink?", memory=talk)) for _ in range(2)]
            await block.aend_session(talk)
            clock.advance(days=1)
            return answers

        def from_notes(messages: list[Any]) -> str:
            return "You drink green tea." if FACT in messages[0].text else "I do not know."

        remember = tool_call("remember", text=FACT, confidence=0.9)
        await langchain_day("told", remember, "Noted.", "Noted.")
        assert told().provenance == "session told"
        assert await llamaindex_day("monday") == ["You drink green tea."] * 2
        assert told().tier == "session"
        assert await langchain_day("tuesday", from_notes, from_notes) == ["You drink green tea."] * 2
        assert told().tier == "longterm"
        assert await llamaindex_day("wednesday") == ["You drink green tea."] * 2
    sessions = [access.session_id for access in memory.accesses(told().id)]
    assert list(dict.fromkeys(sessions)) == ["told", "monday", "tuesday", "wednesday"]
    moves = [entry.decision.to_tier for entry in memory.promotion_log(told().id) if entry.decision.moved]
    assert moves == ["session", "longterm"]
