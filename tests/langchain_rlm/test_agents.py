"""Agents and graphs that live with a memory over days: what they use climbs, what they leave is archived."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from langchain_rlm import (
    AsyncRLMCallbackHandler,
    RLMCallbackHandler,
    RLMMemoryMiddleware,
    RLMRetriever,
    RLMStore,
)
from rlm_memory import Memory, Node
from scripted_model import ScriptedModel, call
from support import SettableClock

WAYS = ["invoke", "ainvoke", "stream", "astream"]


@pytest.fixture
def memory(store_path: Path, clock: SettableClock) -> Iterator[Memory]:
    with Memory.open(store_path, embedder=None, clock=clock) as memory:
        yield memory


async def run(way: str, graph: Any, given: Any, config: Any = None) -> None:
    """Run a graph to its end."""
    match way:
        case "invoke":
            await asyncio.to_thread(graph.invoke, given, config)
        case "ainvoke":
            await graph.ainvoke(given, config)
        case "stream":
            await asyncio.to_thread(lambda: list(graph.stream(given, config)))
        case "astream":
            assert [part async for part in graph.astream(given, config)]


def asked(question: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(question)]}


def in_thread(name: str, *callbacks: BaseCallbackHandler) -> RunnableConfig:
    return {"configurable": {"thread_id": name}, "callbacks": list(callbacks)}


def outcomes(memory: Memory, id: str) -> tuple[Any, Any]:
    found = {condition.name: condition.found for condition in memory.explain_promotion(id).conditions}
    return found["successful outcomes"], found["failed outcomes"]


# -- an agent over days ---------------------------------------------------------------------------------------------


def answer_from_memory(messages: list[BaseMessage]) -> str:
    return "You drink green tea." if "Ada drinks green tea" in messages[0].text else "I do not know."


@pytest.mark.parametrize("way", WAYS)
async def test_what_an_agent_was_told_is_known_in_the_fourth_session(memory: Memory, clock: SettableClock, way: str):
    fact = {"text": "Ada drinks green tea.", "confidence": 0.9}
    model = ScriptedModel(script=[call("remember", **fact), "Noted."])
    agent = create_agent(model, middleware=[RLMMemoryMiddleware(memory)], checkpointer=InMemorySaver())

    def told() -> Node:
        (node,) = memory.list(where={"node.text": fact["text"]}, include_archived=True)
        return node

    await run(way, agent, asked("I drink green tea."), in_thread("monday"))
    assert told().tier == "task"
    tiers = []
    for day in ("monday", "tuesday", "wednesday"):
        for _ in range(2):
            await run(way, agent, asked("Which tea do I drink?"), in_thread(day))
        (decision,) = memory.session(day).end()
        tiers.append((told().tier, decision.moved))
        clock.advance(days=1)
    assert tiers == [("session", False), ("session", False), ("longterm", True)]

    model.script[:] = [answer_from_memory]
    await run(way, agent, asked("Which tea do I drink?"), in_thread("thursday"))
    final = agent.get_state(in_thread("thursday")).values["messages"]
    assert [message.text for message in final] == ["Which tea do I drink?", "You drink green tea."]
    assert told().access_count == 7
    assert memory.accesses(told().id)[-1].session_id == "thursday"

    moves = [entry.decision for entry in memory.promotion_log(told().id) if entry.decision.moved]
    assert [(move.to_tier, move.session_id, move.actor) for move in moves] == [
        ("session", "monday", "auto"),
        ("longterm", "wednesday", "auto"),
    ]
    clock.advance(days=91)
    assert [decision.to_tier for decision in memory.sweep()] == ["archive"]
    model.script[:] = [answer_from_memory]
    await run(way, agent, asked("Which tea do I drink?"), in_thread("in summer"))
    assert agent.get_state(in_thread("in summer")).values["messages"][-1].text == "I do not know."
    assert memory.check()


async def test_failures_keep_a_memory_from_climbing(memory: Memory):
    memory.add(["Ada drinks green tea."], ids=["tea"], tier="session", confidence=0.9)
    for day in range(4):
        model = ScriptedModel(script=[RuntimeError("no"), "ok"])
        agent = create_agent(model, middleware=[RLMMemoryMiddleware(memory)])
        with pytest.raises(RuntimeError):
            agent.invoke(asked("Which tea?"), in_thread(f"{day}"))
        await agent.ainvoke(asked("Which tea?"), in_thread(f"{day}"))
        memory.session(f"{day}").end()
    assert (memory.get("tea")[0].tier, outcomes(memory, "tea")) == ("session", (4, 4))


async def test_agents_side_by_side_keep_their_sessions_apart(memory: Memory):
    memory.add([f"Note {i} about topic {i}." for i in range(10)], ids=[f"{i}" for i in range(10)], tier="session")
    agent = create_agent(ScriptedModel(), middleware=[RLMMemoryMiddleware(memory, k=1, tools=())])
    config = [in_thread(f"thread {i}") for i in range(10)]
    await asyncio.gather(*(agent.ainvoke(asked(f"topic {i}"), config[i]) for i in range(10)))
    agent.batch([asked(f"topic {i}") for i in range(10)], config)
    for i in range(10):
        assert [access.session_id for access in memory.accesses(f"{i}")] == [f"thread {i}"] * 2
        assert outcomes(memory, f"{i}") == (2, 0)
    assert memory.check()


# -- graphs ---------------------------------------------------------------------------------------------------------


def both(left: list[str], right: list[str]) -> list[str]:
    return left + right


class State(TypedDict):
    question: str
    found: Annotated[list[str], both]


@pytest.fixture(params=[RLMCallbackHandler, AsyncRLMCallbackHandler])
def handler(request: pytest.FixtureRequest, memory: Memory) -> BaseCallbackHandler:
    memory.add(["green tea", "black coffee"], ids=["tea", "coffee"], tier="session", confidence=0.9)
    handler: BaseCallbackHandler = request.param(memory)
    return handler


def graph_of(memory: Memory, *, fail: bool = False, nested: bool = False) -> Any:
    """Return a graph whose two branches look for the same, and whose last node may fail."""
    retriever = RLMRetriever(memory=memory, k=1)

    def look(state: State) -> dict[str, Any]:
        return {"found": [document.id for document in retriever.invoke(state["question"])]}

    def answer(state: State) -> dict[str, Any]:
        if fail:
            raise RuntimeError("no answer")
        return {}

    builder = StateGraph(State)
    builder.add_node("left", graph_of(memory) if nested else look)
    builder.add_node("right", look)
    builder.add_node("answer", answer)
    for branch in ("left", "right"):
        builder.add_edge(START, branch)
        builder.add_edge(branch, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=None if nested else InMemorySaver())


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_of_a_graph_is_one_turn_of_its_thread(memory: Memory, handler: BaseCallbackHandler, way: str):
    graph = graph_of(memory)
    for _ in range(2):
        await run(way, graph, {"question": "tea", "found": []}, in_thread("t", handler))
    assert [(a.session_id, a.turn) for a in memory.accesses("tea")] == [("t", 1)] * 2 + [("t", 2)] * 2
    assert (outcomes(memory, "tea"), outcomes(memory, "coffee")) == ((2, 0), (0, 0))


@pytest.mark.parametrize("way", WAYS)
async def test_a_node_that_fails_is_a_failure_of_the_graph(memory: Memory, handler: BaseCallbackHandler, way: str):
    with pytest.raises(RuntimeError, match="no answer"):
        await run(way, graph_of(memory, fail=True), {"question": "tea", "found": []}, in_thread("t", handler))
    assert outcomes(memory, "tea") == (0, 1)


@pytest.mark.parametrize("way", WAYS)
async def test_a_graph_within_a_graph_is_the_same_turn(memory: Memory, handler: BaseCallbackHandler, way: str):
    await run(way, graph_of(memory, nested=True), {"question": "tea", "found": []}, in_thread("t", handler))
    assert {(a.session_id, a.turn, len(a.run_id or "")) for a in memory.accesses("tea")} == {("t", 1, 36)}
    assert len(memory.accesses("tea")) == 3
    assert outcomes(memory, "tea") == (1, 0)


# -- a store in agents ----------------------------------------------------------------------------------------------


@tool
def save(key: str, text: str, runtime: ToolRuntime) -> str:
    """Keep a note."""
    assert runtime.store is not None
    runtime.store.put(("notes",), key, {"text": text})
    return "saved"


@tool
async def load(question: str, runtime: ToolRuntime) -> str:
    """Look for notes."""
    assert runtime.store is not None
    return " ".join(item.value["text"] for item in await runtime.store.asearch(("notes",), query=question))


@tool
def read(key: str, runtime: ToolRuntime) -> str:
    """Read a note."""
    assert runtime.store is not None
    item = runtime.store.get(("notes",), key)
    return "nothing" if item is None else str(item.value["text"])


@pytest.mark.parametrize("kind", [RLMCallbackHandler, AsyncRLMCallbackHandler])
async def test_what_an_agent_keeps_in_the_store_climbs_as_any_memory(memory: Memory, kind: Any):
    store = RLMStore(memory, fields=["text"], confidence=0.9)
    model = ScriptedModel(script=[call("save", key="tea", text="Ada drinks green tea"), "saved"])
    agent = create_agent(model, [save, load, read], store=store)
    await agent.ainvoke(asked("Remember my tea."), in_thread("monday"))
    (node,) = memory.list()
    for day in ("monday", "tuesday", "wednesday"):
        for _ in range(2):
            model.script[:] = [call("load", question="tea"), call("read", key="tea"), "Green tea."]
            answer = await agent.ainvoke(asked("Which tea?"), in_thread(day, kind(memory)))
            assert [m.text for m in answer["messages"] if m.type == "tool"] == ["Ada drinks green tea"] * 2
        memory.session(day).end()
    assert memory.get(node.id)[0].tier == "longterm"
    assert {access.turn for access in memory.accesses(node.id)} == {1, 2}  # load and read of a run are one turn
    assert len({access.run_id for access in memory.accesses(node.id)}) == 6


async def test_middleware_finds_what_a_store_keeps(memory: Memory):
    store = RLMStore(memory, fields=["text"])
    store.put(("notes",), "tea", {"text": "Ada drinks green tea"})
    model = ScriptedModel(script=[answer_from_memory])
    agent = create_agent(model, middleware=[RLMMemoryMiddleware(memory)], store=store)
    answer = await agent.ainvoke(asked("Which tea?"))
    assert answer["messages"][-1] == AIMessage("You drink green tea.", id=answer["messages"][-1].id)
