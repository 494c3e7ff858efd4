"""What callbacks tell a session with checkpoints: turns, calls that were pending, usage, and the way of a run."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain.agents", reason="needs the extra langgraph")

from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import recorded_agent
from langchain_rlm import (
    AsyncRLMCallbackHandler,
    RLMCallbackHandler,
    RLMGraphCallbackHandler,
    RLMMemoryMiddleware,
    RLMPythonREPLTool,
)
from processes import environment
from recorded_agent import COLOURS, KEY, PLAIN, add, first, handler_of, paid, sender, sum_call
from recorded_sessions import reasons, told, written
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import Repl
from scripted_model import ScriptedModel, call


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def session(store: CheckpointStore) -> RLMSession:
    return RLMSession("s", store=store)


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=None) as memory:
        yield memory


FIRST_TURN = [
    "run LangGraph started",
    "model ScriptedModel done",
    "tool add done",
    "model ScriptedModel done",
    "run LangGraph done",
]


# -- a process that is killed ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of checkpoints for each place and colour in which a process was killed."""
    folder = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", recorded_agent.__file__, str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("place", recorded_agent.PLACES)
def test_session_of_a_killed_agent_tells_exactly_what_was_done_and_what_was_pending(
    place: str, colour: str, killed: Path, memory: Memory
) -> None:
    store = CheckpointStore(killed / f"{place} {colour}")
    restored = RLMSession.restore("s", store=store)
    done = ["model ScriptedModel done", *(["tool send done"] if place == "model" else [])]
    assert told(restored) == [*FIRST_TURN, "run LangGraph started", *done]
    assert [event["turn"] for event in restored.trajectory_events] == [0] * 5 + [1] * (1 + len(done))
    assert restored.turn == 1
    assert restored.usage["models"] == {
        "model-1": {"calls": 3, "input_tokens": 60, "output_tokens": 12, "cost": 0.5, "unpriced": 2}
    }
    pending = [(each.kind, each.payload, each.idempotent) for each in restored.pending_operations]
    if place == "tool":
        assert pending == [("tool send", {"to": "Ada"}, False)]
        assert restored.resume().undecided == restored.pending_operations
    else:
        last = {"role": "tool", "text": "sent to Ada"}
        assert pending == [("model ScriptedModel", {"messages": 3, "last": last}, True)]
    assert (KEY.encode() in written(store.root), PLAIN.encode() in written(store.root)) == (False, False)

    # the next process asks again: the same calls take the place of those that were pending
    script = [paid(call("send", to="Ada"), (30, 5)), paid(AIMessage("Sent."), (40, 1))]
    agent = create_agent(ScriptedModel(script=script), [add, sender(lambda: None)])
    recorded_agent.ask(agent, handler_of(colour, restored, memory), colour, "Send it.")
    assert (restored.turn, restored.pending_operations) == (2, [])
    assert restored.usage["models"]["model-1"]["calls"] == 5


# -- a run that goes well, in every colour --------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_run_of_an_agent_is_a_turn_with_its_calls_and_their_usage(
    colour: str, session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    agent = create_agent(ScriptedModel(script=first() * 2), [add])
    for _ in range(2):
        recorded_agent.ask(agent, handler_of(colour, session, memory), colour)
    for each in (session, RLMSession.restore("s", store=store)):
        assert told(each) == FIRST_TURN * 2
        assert (each.turn, each.cost_so_far, each.pending_operations) == (2, 1.0, [])
        assert each.trajectory_events == session.trajectory_events
    checkpoint = session.checkpoint()
    assert (checkpoint.issues, store.latest("s").trajectory_events) == ([], session.trajectory_events)
    started, model, added, answer, ended = session.trajectory_events[:5]
    assert started["input"] == {"messages": [["user", "1 + 2?"]]}
    assert model["input"] == {"messages": 1, "last": {"role": "human", "text": "1 + 2?"}}
    assert model["usage"] == {"model": "model-1", "input_tokens": 10, "output_tokens": 5}
    assert (added["input"]["a"], added["output"]) == (1, {"role": "tool", "text": "3"})
    assert (answer["output"]["text"], answer["usage"]["cost"]) == ("3", 0.5)
    assert ended["output"]["messages"] == [{"role": "ai", "text": "3"}]
    assert {event["run_id"] for event in session.trajectory_events[:5]} == {started["run_id"]}
    assert reasons(store) == ["start", "manual"]


def test_checkpoints_are_taken_every_few_turns(store: CheckpointStore, memory: Memory) -> None:
    session = RLMSession("s", store=store, every=2)
    handler = RLMCallbackHandler(memory, rlm_session=session)
    for _ in range(5):
        RunnableLambda(str).invoke(1, {"callbacks": [handler]})
    assert [(info.turn, reason) for info, reason in zip(store.list("s"), reasons(store), strict=True)] == [
        (0, "start"),
        (2, "turn"),
        (4, "turn"),
    ]


def test_handler_without_a_session_is_told_nothing_of_models(memory: Memory) -> None:
    handler = RLMCallbackHandler(memory)
    assert (handler.rlm_session, handler.ignore_llm, handler.ignore_chat_model) == (None, True, True)


# -- batches, threads, nested runs ----------------------------------------------------------------------------------


async def test_each_input_of_a_batch_is_a_turn(session: RLMSession, memory: Memory) -> None:
    agent = create_agent(ScriptedModel(), [])
    questions: list[Any] = [{"messages": [("user", str(number))]} for number in range(4)]
    agent.batch(questions, {"callbacks": [RLMCallbackHandler(memory, rlm_session=session)]})
    await agent.abatch(questions, {"callbacks": [AsyncRLMCallbackHandler(memory, rlm_session=session)]})
    assert (session.turn, session.pending_operations) == (8, [])
    assert sorted(told(session)) == sorted(
        ["run LangGraph started", "model ScriptedModel done", "run LangGraph done"] * 8
    )
    assert len({event["run_id"] for event in session.trajectory_events}) == 8


def test_threads_share_a_session(session: RLMSession, store: CheckpointStore, memory: Memory) -> None:
    handler = RLMCallbackHandler(memory, rlm_session=session)

    def run(_: int) -> None:
        model = ScriptedModel(script=[paid(AIMessage("ok"), (1, 2))])
        create_agent(model, []).invoke({"messages": [("user", "?")]}, {"callbacks": [handler]})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(8)))
    for each in (session, RLMSession.restore("s", store=store)):
        assert (each.turn, each.usage["models"]["model-1"]["calls"], each.pending_operations) == (8, 8, [])
        assert len(each.trajectory_events) == 24


class Trail(TypedDict):
    trail: Annotated[list[str], lambda old, new: old + new]


def nested(handler: Any, inner_node: Any, **options: Any) -> Any:
    """Return a graph that has a graph as its node, which has one too."""
    innermost = StateGraph(Trail).add_node("inner", inner_node).add_edge(START, "inner").add_edge("inner", END)
    middle = StateGraph(Trail).add_node("middle", innermost.compile()).add_edge(START, "middle")
    outer = StateGraph(Trail).add_node("outer", middle.compile()).add_edge(START, "outer").compile(**options)
    return outer.with_config({"callbacks": handler})


async def test_graphs_within_a_graph_are_one_turn(session: RLMSession, memory: Memory) -> None:
    model = ScriptedModel(script=[paid(AIMessage("a"), (1, 1)), paid(AIMessage("b"), (1, 1), "model-2")])

    def node(state: Trail) -> Any:
        return {"trail": [model.invoke("?").text]}

    async def anode(state: Trail) -> Any:
        return {"trail": [(await model.ainvoke("?")).text]}

    nested([RLMCallbackHandler(memory, rlm_session=session)], node).invoke({"trail": []})
    await nested([AsyncRLMCallbackHandler(memory, rlm_session=session)], anode).ainvoke({"trail": []})
    assert told(session) == ["run LangGraph started", "model ScriptedModel done", "run LangGraph done"] * 2
    assert (session.turn, sorted(session.usage["models"])) == (2, ["model-1", "model-2"])


def test_graph_that_hands_over_to_the_one_around_it_has_not_failed(session: RLMSession, memory: Memory) -> None:
    def hand_over(state: Trail) -> Any:
        return Command(graph=Command.PARENT, goto="after", update={"trail": ["handed over"]})

    handler = RLMCallbackHandler(memory, rlm_session=session)
    inner = StateGraph(Trail).add_node("inner", hand_over).add_edge(START, "inner").compile()
    outer = (
        StateGraph(Trail)
        .add_node("before", inner.with_config({"callbacks": [handler]}))
        .add_node("after", lambda _: {"trail": ["after"]})
        .add_edge(START, "before")
        .compile()
    )
    assert outer.invoke({"trail": []})["trail"] == ["handed over", "after"]
    assert (session.turn, told(session)[-1].rpartition(" ")[2]) == (1, "done")


def test_tools_that_work_at_once_are_operations_each(session: RLMSession, memory: Memory) -> None:
    pending: list[int] = []

    @tool
    def look(what: str) -> str:
        """Look."""
        pending.append(len(session.pending_operations))
        return what

    both = AIMessage("", tool_calls=[{"name": "look", "args": {"what": w}, "id": w} for w in ("a", "b")])
    agent = create_agent(ScriptedModel(script=[both]), [look])
    handler = RLMCallbackHandler(memory, rlm_session=session, idempotent_tools=["look"])
    agent.invoke({"messages": [("user", "?")]}, {"callbacks": [handler]})
    assert min(pending) >= 1
    assert sorted(told(session)).count("tool look done") == 2
    assert session.pending_operations == []


def test_tool_is_safe_to_repeat_only_if_it_is_said_to_be_and_its_arguments_are_kept(
    session: RLMSession, memory: Memory
) -> None:
    seen: list[bool] = []

    @tool
    def look(what: str) -> str:
        """Look."""
        seen.append(session.pending_operations[0].idempotent)
        return what

    for tools, what in ((["look"], "a"), ([], "a"), (["look"], KEY), (["look"], "long " * 1000)):
        handler = RLMCallbackHandler(memory, rlm_session=session, idempotent_tools=tools)
        look.invoke({"what": what}, {"callbacks": [handler]})
    assert seen == [True, False, False, False]
    assert session.turn == 4


# -- other models, retrievers ---------------------------------------------------------------------------------------


def test_model_of_texts_and_a_model_alone_are_recorded(session: RLMSession, memory: Memory) -> None:
    handler = RLMCallbackHandler(memory, rlm_session=session)
    FakeListLLM(responses=["a", "b"]).batch(["x", "y"], {"callbacks": [handler]})
    list(FakeListLLM(responses=["a"]).stream("z", {"callbacks": [handler]}))
    assert [event["output"] for event in session.trajectory_events if event["type"] == "model"][2] == "a"
    assert (session.turn, session.usage["models"]) == (3, {})


@pytest.mark.parametrize(
    ("message", "usage"),
    [
        (
            AIMessage("a", response_metadata={"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
            (3, 4),
        ),
        (AIMessage("a", response_metadata={"model_name": "m", "token_usage": {"input_tokens": 3}}), (3, 0)),
        (AIMessage("a", response_metadata={"model_name": "m", "token_usage": {"input_tokens": -3}}), None),
        (AIMessage("a", response_metadata={"model_name": "m"}), None),
    ],
)
def test_usage_is_read_from_what_the_provider_tells(
    message: AIMessage, usage: tuple[int, int] | None, session: RLMSession, memory: Memory
) -> None:
    handler = RLMCallbackHandler(memory, rlm_session=session)
    ScriptedModel(script=[message]).invoke("?", {"callbacks": [handler]})
    found = session.usage["models"].get("m")
    assert (found and (found["input_tokens"], found["output_tokens"])) == usage


def test_list_price_is_looked_up_for_a_model_that_is_known(session: RLMSession, memory: Memory) -> None:
    pytest.importorskip("genai_prices", reason="needs the extra prices")
    handler = RLMCallbackHandler(memory, rlm_session=session)
    ScriptedModel(script=[paid(AIMessage("a"), (10**6, 0), "gpt-4o")]).invoke("?", {"callbacks": [handler]})
    assert session.cost_so_far == pytest.approx(2.5)


def test_reply_from_a_cache_is_not_paid_again(session: RLMSession, memory: Memory) -> None:
    handler = RLMCallbackHandler(memory, rlm_session=session)
    model = ScriptedModel(script=[paid(AIMessage("a"), (1, 2))], cache=InMemoryCache())
    for _ in range(2):
        assert model.invoke("?", {"callbacks": [handler]}).content == "a"
    assert session.usage["models"]["model-1"]["calls"] == 1
    assert told(session).count("model ScriptedModel done") == 2


class Streamed(ScriptedModel):
    """Streams its words, and tells at the end what they cost, as providers do."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        for word in ("a ", "cup"):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        told = {"model_name": "model-1"}
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=usage, response_metadata=told))


async def test_usage_of_a_stream_is_counted_at_its_end(session: RLMSession, memory: Memory) -> None:
    for handler in (RLMCallbackHandler, AsyncRLMCallbackHandler):
        config: Any = {"callbacks": [handler(memory, rlm_session=session)]}
        agent = create_agent(Streamed(), [])
        question: Any = {"messages": [("user", "?")]}
        assert [each async for each in agent.astream(question, config, stream_mode="messages")]
    found = session.usage["models"]["model-1"]
    assert (found["calls"], found["input_tokens"], found["output_tokens"]) == (2, 6, 4)
    assert session.trajectory_events[1]["output"] == {"role": "ai", "text": "a cup"}


def test_repl_and_handler_share_a_session(session: RLMSession, store: CheckpointStore, memory: Memory) -> None:
    python = RLMPythonREPLTool(repl=Repl(session, turn_per_cell=False))
    model = ScriptedModel(script=[call("python", code="x = [1, 2]"), call("python", code="x.append(3)"), "done"])
    agent = create_agent(model, [python], middleware=[RLMMemoryMiddleware(memory, tools=(), rlm_session=session)])
    config: Any = {"callbacks": [RLMCallbackHandler(memory, rlm_session=session)]}
    agent.invoke({"messages": [("user", "?")]}, config)
    restored = RLMSession.restore("s", store=store)
    assert (restored.namespace["x"], restored.turn) == ([1, 2, 3], 1)
    assert told(restored).count("tool python done") == 2


class Found(BaseRetriever):
    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        if query == "none":
            raise LookupError("nothing")
        return [Document(id="a", page_content="long " * 1000), Document(page_content="b")]


async def test_searches_are_events_with_the_ids_of_what_was_found(session: RLMSession, memory: Memory) -> None:
    for handler in (RLMCallbackHandler, AsyncRLMCallbackHandler):
        config: Any = {"callbacks": [handler(memory, rlm_session=session)]}
        chain = RunnableLambda(lambda _: "tea") | Found() | RunnableLambda(len)
        await chain.ainvoke("?", config)
        with pytest.raises(LookupError):
            await Found().ainvoke("none", config)
    events = [event for event in session.trajectory_events if event["type"] == "retrieval"]
    assert [(event["status"], event["input"]) for event in events] == [("done", "tea"), ("failed", "none")] * 2
    assert events[0]["output"] == ["a", None]
    assert session.turn == 4


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_run_that_fails_is_a_turn_and_is_saved(
    colour: str, session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    error = ValueError(f"Incorrect API key provided: {KEY}")
    agent = create_agent(ScriptedModel(script=[paid(sum_call(), (10, 5)), error]), [add])
    with pytest.raises(ValueError, match="Incorrect"):
        recorded_agent.ask(agent, handler_of(colour, session, memory), colour)
    assert told(session) == [
        "run LangGraph started", "model ScriptedModel done", "tool add done", "model ScriptedModel failed",
        "run LangGraph failed",
    ]  # fmt: skip
    assert session.trajectory_events[-1]["error"] == "ValueError: Incorrect API key provided: [redacted]"
    assert (session.turn, session.pending_operations, reasons(store)) == (1, [], ["start", "error"])
    assert KEY.encode() not in written(store.root)


@pytest.mark.parametrize("handled", [True, False])
def test_tool_that_fails_is_an_operation_that_failed(handled: bool, session: RLMSession, memory: Memory) -> None:
    @tool
    def fail(x: int) -> str:
        """Fail."""
        raise RuntimeError(f"refused with {KEY}")

    fail.handle_tool_error = handled
    agent = create_agent(ScriptedModel(script=[call("fail", x="no number" if handled else 1)]), [fail])
    config: Any = {"callbacks": [RLMCallbackHandler(memory, rlm_session=session)]}
    if handled:
        agent.invoke({"messages": [("user", "?")]}, config)
    else:
        with pytest.raises(RuntimeError):
            agent.invoke({"messages": [("user", "?")]}, config)
    (event,) = [event for event in session.trajectory_events if event["type"] == "tool"]
    assert (event["status"], KEY in str(event)) == ("failed", False)
    assert (session.pending_operations, session.turn) == ([], 1)


async def test_cancelled_run_leaves_nothing_pending_behind(session: RLMSession, memory: Memory) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = create_agent(ScriptedModel(script=[call("wait")]), [wait])
    handler = AsyncRLMCallbackHandler(memory, rlm_session=session)
    run = asyncio.create_task(agent.ainvoke({"messages": [("user", "?")]}, {"callbacks": [handler]}))
    await begun.wait()
    assert [each.kind for each in session.pending_operations] == ["tool wait"]
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert told(session)[-2:] == ["tool wait cancelled", "run LangGraph cancelled"]
    assert (session.pending_operations, session.turn) == ([], 1)


def test_keyboard_interrupt_is_saved_at(session: RLMSession, store: CheckpointStore, memory: Memory) -> None:
    def press(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunnableLambda(press).invoke(1, {"callbacks": [RLMCallbackHandler(memory, rlm_session=session)]})
    assert (reasons(store), told(session)[-1]) == (["start", "KeyboardInterrupt"], "run press cancelled")


def test_stream_that_is_closed_early_has_ended(session: RLMSession, memory: Memory) -> None:
    agent = create_agent(ScriptedModel(script=first()), [add])
    handler = RLMCallbackHandler(memory, rlm_session=session)
    stream = agent.stream({"messages": [("user", "?")]}, {"callbacks": [handler]})
    next(stream)
    stream.close()
    assert (session.turn, session.pending_operations) == (1, [])


@pytest.mark.parametrize("colour", COLOURS)
def test_disk_that_refuses_breaks_no_run_and_is_logged(
    colour: str, store: CheckpointStore, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    session = RLMSession("s", store=store)
    session.checkpoint()
    store.journal("s").path.mkdir()  # whatever is journalled is refused
    with caplog.at_level(logging.ERROR, "langchain_rlm"):
        agent = create_agent(ScriptedModel(script=first()), [add])
        recorded_agent.ask(agent, handler_of(colour, session, memory), colour)
    assert any("could not be recorded in the session" in record.message for record in caplog.records)
    assert (KEY in caplog.text, PLAIN in caplog.text, session.turn) == (False, False, 1)


def test_log_and_files_hold_none_of_the_secrets_that_a_run_has(
    session: RLMSession, store: CheckpointStore, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def fetch(url: str, headers: dict[str, str], body: str, options: list[Any]) -> dict[str, Any]:
        """Fetch."""
        return {"set-cookie": PLAIN, "text": f"Authorization: Bearer {KEY}", "token": PLAIN, "n": 1}

    arguments = {
        "url": f"https://ada:{PLAIN.replace(' ', '-')}@host/?api_key={KEY}",
        "headers": {"X-Api-Key": PLAIN, "Cookie": PLAIN},
        "body": f'{{"password": "{PLAIN}"}}',
        "options": [["authorization", PLAIN], {"name": "token", "value": PLAIN}],
    }
    model = ScriptedModel(script=[call("fetch", **arguments), AIMessage(f"The key is {KEY}.")])
    agent = create_agent(model, [fetch], system_prompt=f"Use {KEY}.")
    config: Any = {
        "callbacks": [RLMCallbackHandler(memory, rlm_session=session), RLMGraphCallbackHandler(session)],
        "metadata": {"key": KEY},
        "configurable": {"api_key": PLAIN},
        "tags": [KEY],
    }
    with caplog.at_level(logging.DEBUG):
        agent.invoke({"messages": [("user", f"My key: {KEY}, my password: {PLAIN.replace(' ', '_')}")]}, config)
        session.checkpoint()
    assert told(session).count("tool fetch done") == 1
    for secret in (KEY, PLAIN, PLAIN.replace(" ", "-"), PLAIN.replace(" ", "_")):
        assert secret.encode() not in written(store.root)
        assert secret not in str([record.message for record in caplog.records if record.name == "langchain_rlm"])


def test_events_are_bounded_however_much_a_run_says(store: CheckpointStore, memory: Memory) -> None:
    session = RLMSession("s", store=store, max_events=4)

    @tool
    def read(what: str) -> list[str]:
        """Read."""
        return ["word " * 10_000] * 100

    agent = create_agent(ScriptedModel(script=[call("read", what="a" * 10**6) for _ in range(3)]), [read])
    config: Any = {"callbacks": [RLMCallbackHandler(memory, rlm_session=session)]}
    agent.invoke({"messages": [("user", "b" * 10**6)]}, config)
    assert len(session.trajectory_events) == 4
    assert store.journal("s").position < 300_000


# -- interrupts -----------------------------------------------------------------------------------------------------


@tool
def approve(what: str) -> str:
    """Ask a human."""
    return f"human: {interrupt({'approve': what, 'api_key': KEY})}"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("with_graph_handler", [True, False])
def test_interrupted_run_is_saved_and_a_turn_when_it_has_gone_on(
    with_graph_handler: bool, colour: str, session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    agent = create_agent(
        ScriptedModel(script=[call("approve", what="it"), "done"]), [approve], checkpointer=InMemorySaver()
    )
    handlers = [handler_of(colour, session, memory), *([RLMGraphCallbackHandler(session)] * with_graph_handler)]
    config = {"callbacks": handlers, "configurable": {"thread_id": "t"}}
    COLOURS[colour](agent, {"messages": [("user", "?")]}, config)
    assert (session.turn, reasons(store), session.pending_operations) == (0, ["start", "interrupt"], [])
    assert told(RLMSession.restore("s", store=store)) == [
        "run LangGraph started", "model ScriptedModel done", "tool approve interrupted",
        *(["interrupt pending"] if with_graph_handler else []), "run LangGraph interrupted",
    ]  # fmt: skip
    COLOURS[colour](agent, Command(resume="yes"), config)
    assert (session.turn, reasons(store)) == (1, ["start", "interrupt"])
    events = session.trajectory_events
    assert [event["output"]["text"] for event in events if event["type"] == "tool" and "output" in event] == [
        "human: yes"
    ]
    if with_graph_handler:
        (asked,) = [event for event in events if event["type"] == "interrupt"]
        (resumed,) = [event for event in events if event["type"] == "resume"]
        assert asked["interrupts"] == [{"approve": "it", "api_key": "[redacted]"}]
        assert asked["thread_checkpoint"] == resumed["thread_checkpoint"]
        assert asked["run_id"] == events[0]["run_id"] != resumed["run_id"] == events[-1]["run_id"]
    assert KEY.encode() not in written(store.root)


@pytest.mark.parametrize("colour", COLOURS)
def test_graph_that_waits_before_a_node_is_saved(
    colour: str, session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    agent = create_agent(ScriptedModel(script=first()), [add], checkpointer=InMemorySaver(), interrupt_before=["tools"])
    config = {
        "callbacks": [handler_of(colour, session, memory), RLMGraphCallbackHandler(session)],
        "configurable": {"thread_id": "t"},
    }
    COLOURS[colour](agent, {"messages": [("user", "?")]}, config)
    assert (told(session)[-2:], session.turn) == (["interrupt interrupt_before", "run LangGraph interrupted"], 0)
    COLOURS[colour](agent, None, config)
    assert (told(session)[-1], session.turn, reasons(store)) == ("run LangGraph done", 1, ["start", "interrupt"])


def test_interrupt_deep_within_graphs_is_saved_once(
    session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    def node(state: Trail) -> Any:
        return {"trail": [interrupt("well?")]}

    handlers = [RLMCallbackHandler(memory, rlm_session=session), RLMGraphCallbackHandler(session)]
    graph = nested(handlers, node, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"trail": []}, config)
    assert (session.turn, reasons(store)) == (0, ["start", "interrupt"])
    assert graph.invoke(Command(resume="yes"), config)["trail"] == ["yes"]
    assert (session.turn, reasons(store)) == (1, ["start", "interrupt"])


def test_graph_handler_alone_saves_too(session: RLMSession, store: CheckpointStore) -> None:
    agent = create_agent(ScriptedModel(script=[call("approve", what="it")]), [approve], checkpointer=InMemorySaver())
    config: Any = {"callbacks": [RLMGraphCallbackHandler(session)], "configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [("user", "?")]}, config)
    agent.invoke(Command(resume="yes"), config)
    assert (told(session), reasons(store)) == (["interrupt pending", "resume"], ["interrupt"])


# -- middleware -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("watched", [True, False])
def test_middleware_saves_after_each_run_and_counts_it_once(
    watched: bool, colour: str, session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    middleware = RLMMemoryMiddleware(memory, tools=(), rlm_session=session)
    agent = create_agent(ScriptedModel(), middleware=[middleware])
    session.namespace["x"] = 0
    for number in range(2):
        session.namespace["x"] = number
        config = {"callbacks": [handler_of(colour, session, memory)] if watched else []}
        COLOURS[colour](agent, {"messages": [("user", "?")]}, config)
        assert RLMSession.restore("s", store=store).namespace == {"x": number}
    assert session.turn == 2
    assert reasons(store) == [*(["start"] if watched else []), "after_agent", "after_agent"]
    assert RLMSession.restore("s", store=store).turn == 2


def test_middleware_counts_itself_where_a_handler_records_in_another_session(
    session: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    other = RLMSession("other", store=store)
    agent = create_agent(ScriptedModel(), middleware=[RLMMemoryMiddleware(memory, tools=(), rlm_session=session)])
    config: Any = {"callbacks": [RLMCallbackHandler(memory, rlm_session=other)]}
    agent.invoke({"messages": [("user", "?")]}, config)
    assert (session.turn, other.turn) == (1, 1)


def test_middleware_that_cannot_save_says_so_in_the_log(
    store: CheckpointStore, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    session = RLMSession("s", store=store)
    store.journal("s").path.mkdir(parents=True)
    agent = create_agent(ScriptedModel(), middleware=[RLMMemoryMiddleware(memory, tools=(), rlm_session=session)])
    assert agent.invoke({"messages": [("user", "?")]})["messages"][-1].content == "ok"
    assert [record.message for record in caplog.records] == ["The session could not be saved after a run."]


def test_memory_is_told_as_before(session: RLMSession, memory: Memory) -> None:
    memory.add(["Ada likes tea."], ids=["tea"])
    chain = RunnableLambda(lambda _: [Document(id="tea", page_content="")])
    handler = RLMCallbackHandler(memory, session_id="monday", rlm_session=session)
    chain.invoke("?", {"callbacks": [handler]})
    with pytest.raises(InvalidInputError):
        handler.feedback("unknown", True)
    assert session.turn == 1
