"""What the handlers tell a session with checkpoints: turns, calls that were pending, usage, and the way of a run."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")

from llama_index.core import get_response_synthesizer
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import BaseTool, FunctionTool, QueryEngineTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import (
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from workflows.errors import WorkflowCancelledByUser

import recorded_workflow
from llamaindex_rlm import (
    RLMChatStore,
    RLMEventHandler,
    RLMMemoryBlock,
    RLMSpanHandler,
    load_context,
    save_context,
    tracked,
)
from llamaindex_script import call
from paid_llm import paid
from processes import environment
from recorded_sessions import reasons, told, written
from recorded_workflow import COLOURS, KEY, PLAIN, add, agent, approve, first, sender
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession

# agents are looked through with inspect.getmembers when they are made
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning")

FIRST_TURN = [
    "run FunctionAgent.run started",
    "model model-1 done",
    "tool add done",
    "model model-1 done",
    "run FunctionAgent.run done",
]


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


@pytest.fixture
def recorded(memory: Memory, session: RLMSession) -> Iterator[RLMSession]:
    with tracked(memory, rlm_session=session):
        yield session


class Found(BaseRetriever):
    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        if query_bundle.query_str == "none":
            raise LookupError(f"refused with {KEY}")
        return [NodeWithScore(node=TextNode(text="long " * 1000, id_="a"))]


def engine(*lines: Any, streaming: bool = False) -> RetrieverQueryEngine:
    synthesizer = get_response_synthesizer(llm=paid(*lines), streaming=streaming, response_mode=ResponseMode.COMPACT)
    return RetrieverQueryEngine(Found(), synthesizer)


# -- a process that is killed ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of checkpoints for each place and colour in which a process was killed."""
    folder = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", recorded_workflow.__file__, str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("place", recorded_workflow.PLACES)
async def test_session_of_a_killed_agent_tells_exactly_what_was_done_and_what_was_pending(
    place: str, colour: str, killed: Path, memory: Memory
) -> None:
    store = CheckpointStore(killed / f"{place} {colour}")
    restored = RLMSession.restore("s", store=store)
    done = ["model model-1 done", *(["tool send done"] if place == "model" else [])]
    assert told(restored) == [*FIRST_TURN, "run FunctionAgent.run started", *done]
    assert [event["turn"] for event in restored.trajectory_events] == [0] * 5 + [1] * (1 + len(done))
    assert restored.turn == 1
    assert restored.usage["models"] == {
        "model-1": {"calls": 3, "input_tokens": 30, "output_tokens": 15, "cost": 0.0, "unpriced": 3}
    }
    pending = [(each.kind, each.payload, each.idempotent) for each in restored.pending_operations]
    if place == "tool":
        assert pending == [("tool send", {"to": "Ada"}, False)]
        assert restored.resume().undecided == restored.pending_operations
    else:
        last = {"role": "tool", "text": "sent to Ada"}
        assert pending == [("model model-1", {"messages": 3, "last": last}, True)]
    assert (KEY.encode() in written(store.root), PLAIN.encode() in written(store.root)) == (False, False)

    # the next process asks again: the same calls take the place of those that were pending
    with tracked(memory, rlm_session=restored):
        await agent(colour, [add, sender(lambda: None)], call("send", to="Ada"), "Sent.").run("Send it.")
    assert (restored.turn, restored.pending_operations) == (2, [])
    assert restored.usage["models"]["model-1"]["calls"] == 5


# -- runs that go well ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
async def test_run_of_an_agent_is_a_turn_with_its_calls_and_their_usage(
    colour: str, recorded: RLMSession, store: CheckpointStore
) -> None:
    adder = agent(colour, [add], *first(), *first(), cost=0.25)
    for _ in range(2):
        await adder.run("1 + 2?")
    for each in (recorded, RLMSession.restore("s", store=store)):
        assert told(each) == FIRST_TURN * 2
        assert (each.turn, each.cost_so_far, each.pending_operations) == (2, 1.0, [])
        assert each.trajectory_events == recorded.trajectory_events
    checkpoint = recorded.checkpoint()
    assert (checkpoint.issues, store.latest("s").trajectory_events) == ([], recorded.trajectory_events)
    started, model, added, answer, ended = recorded.trajectory_events[:5]
    assert started["input"]["user_msg"] == "1 + 2?"
    assert model["input"] == {"messages": 1, "last": {"role": "user", "text": "1 + 2?"}}
    assert model["usage"] == {"model": "model-1", "input_tokens": 10, "output_tokens": 5, "cost": 0.25}
    assert (added["input"]["a"], added["input"]["api_key"], added["output"]) == (1, "[redacted]", "3")
    assert (answer["output"], ended["output"]) == ({"role": "assistant", "text": "3"},) * 2
    assert {event["run_id"] for event in recorded.trajectory_events[:5]} == {started["run_id"]}
    assert reasons(store) == ["start", "manual"]


async def test_agents_that_hand_over_are_one_turn(recorded: RLMSession) -> None:
    one = FunctionAgent(
        name="one", description="begins", llm=paid(call("handoff", to_agent="two", reason="it knows")), tools=[]
    )
    two = FunctionAgent(name="two", description="ends", llm=paid(call("add", a=1, b=2), "3"), tools=[add])
    assert str(await AgentWorkflow(agents=[one, two], root_agent="one").run("1 + 2?")) == "3"
    assert told(recorded) == [
        "run AgentWorkflow.run started", "model model-1 done", "tool handoff done", "model model-1 done",
        "tool add done", "model model-1 done", "run AgentWorkflow.run done",
    ]  # fmt: skip
    assert (recorded.turn, recorded.usage["models"]["model-1"]["calls"]) == (1, 3)


async def test_query_is_a_turn_with_its_search(recorded: RLMSession) -> None:
    engine("tea").query("What?")
    await engine("tea").aquery("What?")
    assert told(recorded) == [
        "run RetrieverQueryEngine.query started", "retrieval Found.retrieve done", "model model-1 done",
        "run RetrieverQueryEngine.query done",
        "run RetrieverQueryEngine.aquery started", "retrieval Found.aretrieve done", "model model-1 done",
        "run RetrieverQueryEngine.aquery done",
    ]  # fmt: skip
    searched = recorded.trajectory_events[1]
    assert (searched["input"], searched["output"]) == ("What?", ["a"])
    assert (recorded.trajectory_events[3]["output"], recorded.turn) == ("tea", 2)


def test_query_within_a_tool_is_a_part_of_its_run(recorded: RLMSession) -> None:
    QueryEngineTool.from_defaults(engine("tea"), name="ask")("What?")
    names = told(recorded)
    assert (names[0], names[-1]) == ("run QueryEngineTool.__call__ started", "run QueryEngineTool.__call__ done")
    assert names.count("tool ask done") == 1
    assert recorded.turn == 1


class Plain(BaseTool):
    """A tool that cannot be awaited: agents put an adapter around it, which is a tool, too."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata(name="plain", description="Plain.")

    def __call__(self, input: Any) -> ToolOutput:
        return ToolOutput(content=str(input), tool_name="plain", raw_input={}, raw_output=input)


async def test_tool_in_an_adapter_is_one_call(recorded: RLMSession) -> None:
    await agent("whole", [Plain()], call("plain", input="a"), "done").run("?")
    assert told(recorded).count("tool plain done") == 1
    assert recorded.pending_operations == []


async def test_streamed_answer_is_counted_when_it_is_read(recorded: RLMSession) -> None:
    answer = engine("tea", streaming=True).query("What?")
    assert next(answer.response_gen) == "tea"
    assert [each.kind for each in recorded.pending_operations] == ["model model-1"]
    assert list(answer.response_gen) == []
    assert recorded.pending_operations == []
    chat = SimpleChatEngine.from_defaults(llm=paid("tea"), memory=ChatMemoryBuffer.from_defaults(token_limit=100))
    stream = await chat.astream_chat("What?")
    assert "".join([piece async for piece in stream.async_response_gen()]) == "tea"
    assert (recorded.usage["models"]["model-1"]["calls"], recorded.pending_operations, recorded.turn) == (2, [], 2)


def test_stream_that_is_left_is_no_longer_pending(recorded: RLMSession) -> None:
    stream = paid("tea").stream_chat([])
    next(stream)
    stream.close()
    assert told(recorded) == ["model model-1 cancelled"]
    assert recorded.pending_operations == []


def test_what_a_model_asks_of_itself_is_one_call(recorded: RLMSession) -> None:
    """A custom model makes its chats of completions: both tell of their beginning and end."""
    MockLLM().chat([])
    assert told(recorded) == ["model MockLLM done"]
    assert list(MockLLM().stream_chat([]))
    assert told(recorded) == ["model MockLLM done"] * 2


def test_what_is_no_run_of_an_agent_is_no_turn(recorded: RLMSession) -> None:
    MockEmbedding(embed_dim=2).get_text_embedding("a")
    paid("a").chat([])
    Found().retrieve("a")
    assert (told(recorded), recorded.turn) == (["model model-1 done", "retrieval Found.retrieve done"], 0)


def test_function_of_the_users_own_is_a_turn(recorded: RLMSession) -> None:
    @get_dispatcher(__name__).span
    def work(question: str) -> str:
        return str(engine("tea").query(question)) + str(engine("tea").query(question))

    work("What?")
    assert (recorded.turn, recorded.usage["models"]["model-1"]["calls"]) == (1, 2)


@pytest.mark.parametrize(
    ("told", "tokens"),
    [
        ({"usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}}, (7, 5)),
        ({"usage": None, "usage_metadata": {"prompt_token_count": 3, "candidates_token_count": 4}}, (3, 4)),
        ({"usage": None, "prompt_eval_count": 3, "eval_count": 4}, (3, 4)),
        ({"usage": None}, None),
    ],
)
def test_usage_is_read_in_the_words_of_each_provider(
    told: dict[str, Any], tokens: tuple[int, int] | None, recorded: RLMSession
) -> None:
    paid("a", **told).chat([])
    found = recorded.usage["models"].get("model-1")
    assert (found and (found["input_tokens"], found["output_tokens"])) == tokens


# -- sessions, threads, several handlers ----------------------------------------------------------------------------


async def test_each_session_has_the_runs_whose_tags_name_it(memory: Memory, store: CheckpointStore) -> None:
    sessions = [RLMSession(name, store=store) for name in ("a", "b")]

    async def run(name: str) -> None:
        with instrument_tags({"session_id": name}):
            await agent("whole", [add], *first()).run("1 + 2?")

    with tracked(memory, rlm_session=sessions[0]), tracked(memory, rlm_session=sessions[1]):
        await asyncio.gather(run("a"), run("b"), run("b"), run("another"))
    assert [(session.turn, session.usage["models"]["model-1"]["calls"]) for session in sessions] == [(1, 2), (2, 4)]
    assert [len(session.trajectory_events) for session in sessions] == [5, 10]


def test_handlers_of_one_session_record_a_run_once(memory: Memory, session: RLMSession) -> None:
    with tracked(memory, rlm_session=session), tracked(memory, rlm_session=session):
        engine("tea").query("What?")
    assert (session.turn, session.usage["models"]["model-1"]["calls"], len(session.trajectory_events)) == (1, 1, 4)


def test_threads_at_once_are_recorded_each(recorded: RLMSession, store: CheckpointStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: engine("tea").query("What?"), range(8)))
    for each in (recorded, RLMSession.restore("s", store=store)):
        assert (each.turn, each.usage["models"]["model-1"]["calls"], each.pending_operations) == (8, 8, [])
        assert len(each.trajectory_events) == 32


def test_checkpoints_are_taken_every_few_turns(memory: Memory, store: CheckpointStore) -> None:
    with tracked(memory, rlm_session=RLMSession("s", store=store, every=2)):
        for _ in range(5):
            engine("tea").query("What?")
    assert [info.turn for info in store.list("s")] == [0, 2, 4]


def test_one_handler_alone_records_nothing_or_no_calls_of_models(memory: Memory, session: RLMSession) -> None:
    dispatcher = get_dispatcher()
    for handler in (RLMEventHandler(memory, rlm_session=session), RLMSpanHandler(memory, rlm_session=session)):
        handlers = dispatcher.event_handlers, dispatcher.span_handlers
        dispatcher.event_handlers = [*handlers[0], *([handler] if isinstance(handler, RLMEventHandler) else [])]
        dispatcher.span_handlers = [*handlers[1], *([handler] if isinstance(handler, RLMSpanHandler) else [])]
        try:
            engine("tea").query("What?")
        finally:
            dispatcher.event_handlers, dispatcher.span_handlers = handlers
    assert told(session) == ["run RetrieverQueryEngine.query started", "run RetrieverQueryEngine.query done"]


def test_tool_is_safe_to_repeat_only_if_it_is_said_to_be_and_its_arguments_are_kept(
    memory: Memory, session: RLMSession
) -> None:
    seen: list[bool] = []

    def look(what: str, more: str | None = None) -> str:
        """Look."""
        seen.append(session.pending_operations[0].idempotent)
        return what

    tool = FunctionTool.from_defaults(look)
    for tools, what in ((["look"], "a"), ([], "a"), (["look"], KEY), (["look"], "long " * 1000)):
        with tracked(memory, rlm_session=session, idempotent_tools=tools):
            tool(what=what, more=None)
    assert seen == [True, False, False, False]
    assert told(session).count("tool look done") == session.turn == 4


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
async def test_run_that_fails_is_a_turn_and_is_saved(colour: str, recorded: RLMSession, store: CheckpointStore) -> None:
    with pytest.raises(ValueError, match="Incorrect"):
        await agent(colour, [add], first()[0], ValueError(f"Incorrect API key provided: {KEY}")).run("1 + 2?")
    assert told(recorded) == [
        "run FunctionAgent.run started", "model model-1 done", "tool add done", "model model-1 failed",
        "run FunctionAgent.run failed",
    ]  # fmt: skip
    assert "Incorrect API key provided: [redacted]" in recorded.trajectory_events[-1]["error"]
    assert (recorded.turn, recorded.pending_operations, reasons(store)) == (1, [], ["start", "error"])
    assert KEY.encode() not in written(store.root)


def test_query_that_finds_nothing_fails(recorded: RLMSession, store: CheckpointStore) -> None:
    with pytest.raises(LookupError):
        engine("tea").query("none")
    assert told(recorded)[1:] == ["retrieval Found.retrieve failed", "run RetrieverQueryEngine.query failed"]
    assert (recorded.turn, reasons(store)) == (1, ["start", "error"])


async def test_tool_that_fails_is_an_operation_that_failed(recorded: RLMSession) -> None:
    def fail(x: int) -> str:
        """Fail."""
        raise RuntimeError(f"refused with {KEY}")

    await agent("whole", [fail], call("fail", x=1), "sorry").run("?")
    (event,) = [event for event in recorded.trajectory_events if event["type"] == "tool"]
    assert (event["status"], event["error"]) == ("failed", "RuntimeError: refused with [redacted]")
    assert (recorded.pending_operations, told(recorded)[-1]) == ([], "run FunctionAgent.run done")


async def test_cancelled_run_leaves_nothing_pending_behind(recorded: RLMSession) -> None:
    begun = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    handler = agent("whole", [wait], call("wait")).run("?")
    await begun.wait()
    assert [each.kind for each in recorded.pending_operations] == ["tool wait"]
    await handler.cancel_run()
    await asyncio.gather(handler, return_exceptions=True)
    assert told(recorded)[-1] == "run FunctionAgent.run cancelled"
    assert (recorded.pending_operations, recorded.turn) == ([], 1)


def test_function_that_waited_for_a_cancelled_workflow_is_cancelled(
    recorded: RLMSession, store: CheckpointStore
) -> None:
    @get_dispatcher(__name__).span
    def work() -> None:
        raise WorkflowCancelledByUser

    with pytest.raises(WorkflowCancelledByUser):
        work()
    assert (told(recorded)[-1].rpartition(" ")[2], reasons(store)) == ("cancelled", ["start"])


async def test_disk_that_refuses_breaks_no_run_and_is_logged(
    recorded: RLMSession, store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    recorded.checkpoint()
    store.journal("s").path.mkdir()  # whatever is journalled is refused
    await agent("whole", [add], *first()).run("1 + 2?")
    messages = [record.getMessage() for record in caplog.records if record.name == "llamaindex_rlm"]
    assert len(messages) > 1
    assert {message.partition(":")[0] for message in messages} == {
        "What happened in a run could not be recorded in the session"
    }
    assert (KEY in caplog.text, PLAIN in caplog.text, recorded.turn) == (False, False, 1)


async def test_log_and_files_hold_none_of_the_secrets_that_a_run_has(
    recorded: RLMSession, store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fetch(url: str, headers: dict[str, str], body: str, options: list[Any]) -> dict[str, Any]:
        """Fetch."""
        return {"set-cookie": PLAIN, "text": f"Authorization: Bearer {KEY}", "token": PLAIN, "n": 1}

    arguments = {
        "url": f"https://ada:{PLAIN.replace(' ', '-')}@host/?api_key={KEY}",
        "headers": {"X-Api-Key": PLAIN, "Cookie": PLAIN},
        "body": f'{{"password": "{PLAIN}"}}',
        "options": [["authorization", PLAIN], {"name": "token", "value": PLAIN}],
    }
    question = f"My key: {KEY}, my password: {PLAIN.replace(' ', '_')}"
    with caplog.at_level(logging.DEBUG, "llamaindex_rlm"), instrument_tags({"session_id": "s", "api_key": KEY}):
        await agent("whole", [fetch], call("fetch", **arguments), f"The key is {KEY}.").run(question)
        recorded.checkpoint()
    assert told(recorded).count("tool fetch done") == 1
    for secret in (KEY, PLAIN, PLAIN.replace(" ", "-"), PLAIN.replace(" ", "_")):
        assert secret.encode() not in written(store.root)
        assert secret not in caplog.text


async def test_end_of_a_chat_is_saved(memory: Memory, session: RLMSession, store: CheckpointStore) -> None:
    block = RLMMemoryBlock(memory, rlm_session=session)
    chat = ChatMemory.from_defaults(
        session_id="s", memory_blocks=[block], chat_store=RLMChatStore(memory), tokenizer_fn=str.split
    )
    await chat.aput(ChatMessage("Ada likes tea."))
    session.namespace["x"] = 1
    await block.aend_session(chat)
    assert (reasons(store), RLMSession.restore("s", store=store).namespace) == (["end_session"], {"x": 1})


# -- waiting for a human --------------------------------------------------------------------------------------------


async def until_it_asks(handler: Any) -> None:
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            return


async def test_agent_that_waits_for_a_human_is_saved_there(recorded: RLMSession, store: CheckpointStore) -> None:
    handler = agent("whole", [approve], call("approve", what="it"), "done").run("?")
    await until_it_asks(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert str(await handler) == "done"
    assert told(recorded) == [
        "run FunctionAgent.run started", "model model-1 done", "tool approve interrupted", "interrupt",
        "tool approve done", "model model-1 done", "run FunctionAgent.run done",
    ]  # fmt: skip
    (asked,) = [event for event in recorded.trajectory_events if event["type"] == "interrupt"]
    assert asked["asked"]["prefix"] == "it? [redacted]"
    assert [event["input"] for event in recorded.trajectory_events if event["type"] == "tool"] == [{"what": "it"}] * 2
    assert (recorded.turn, reasons(store), recorded.pending_operations) == (1, ["start", "interrupt"], [])


async def test_run_that_is_left_while_it_waits_is_a_turn_when_it_has_gone_on(
    recorded: RLMSession, store: CheckpointStore, memory: Memory
) -> None:
    handler = agent("whole", [approve], call("approve", what="it")).run("?")
    await until_it_asks(handler)
    await save_context(memory, handler.ctx, session_id="s")
    await handler.cancel_run()
    await asyncio.gather(handler, return_exceptions=True)
    assert (told(recorded)[-1], recorded.turn) == ("run FunctionAgent.run interrupted", 0)
    again = agent("whole", [approve], "done")
    handler = again.run(ctx=await load_context(memory, again, session_id="s"))
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert str(await handler) == "done"
    assert (told(recorded)[-1], recorded.turn) == ("run FunctionAgent.run done", 1)
    assert reasons(store) == ["start", "interrupt"]


class Asking(Workflow):
    @step
    async def ask(self, event: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="Well?")

    @step
    async def answer(self, event: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=event.response)


async def test_workflow_that_asks_is_saved_there(recorded: RLMSession, store: CheckpointStore) -> None:
    handler = Asking().run()
    await until_it_asks(handler)
    handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert await handler == "yes"
    assert told(recorded) == ["run Asking.run started", "interrupt", "run Asking.run done"]
    assert (recorded.trajectory_events[-1]["output"], recorded.turn) == ("yes", 1)
    assert reasons(store) == ["start", "interrupt"]
