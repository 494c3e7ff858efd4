"""What the handlers tell the memory of the queries, chats and agents that run below LlamaIndex's dispatcher."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from llama_index.core import get_response_synthesizer
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic import Field
from workflows.errors import WorkflowCancelledByUser

from llamaindex_rlm import RLMEventHandler, RLMRetriever, RLMSpanHandler, tracked
from llamaindex_script import Script, call
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError

# agents are looked through with inspect.getmembers when they are made
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning")

TEXTS = {"tea": "Ada drinks green tea", "oslo": "Ada lives in Oslo", "rome": "Bo lives in Rome"}
dispatcher = get_dispatcher(__name__)


@pytest.fixture
def memory(store_path: Path) -> Iterator[Memory]:
    """Three memories in the tier whose next move tells how they were judged."""
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(list(TEXTS.values()), ids=list(TEXTS), tier="session", confidence=0.9)
        yield memory


@pytest.fixture
def handler(memory: Memory) -> Iterator[RLMEventHandler]:
    with tracked(memory, session_id="s") as handler:
        yield handler


def used(memory: Memory, id: str) -> list[tuple[str, int]]:
    """Return the (session, turn) of each access."""
    return [(access.session_id, access.turn) for access in memory.accesses(id)]


def outcomes(memory: Memory, id: str) -> tuple[float | str | None, float | str | None]:
    """Return how many successes and failures are attached to a node."""
    found = {condition.name: condition.found for condition in memory.explain_promotion(id).conditions}
    return found["successful outcomes"], found["failed outcomes"]


def engine(memory: Memory, *lines: Any, streaming: bool = False, retriever: BaseRetriever | None = None) -> Any:
    synthesizer = get_response_synthesizer(
        llm=Script(*lines or ("an answer",)).llm(), streaming=streaming, response_mode=ResponseMode.COMPACT
    )
    return RetrieverQueryEngine(retriever or RLMRetriever(memory, similarity_top_k=1), synthesizer)


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[[BaseQueryEngine, str], Awaitable[Any]]:
    """Asks a query engine in both colours."""

    async def sync_ask(engine: BaseQueryEngine, question: str) -> Any:
        return engine.query(question)

    async def async_ask(engine: BaseQueryEngine, question: str) -> Any:
        return await engine.aquery(question)

    return async_ask if request.param == "async" else sync_ask


# -- accesses -------------------------------------------------------------------------------------------------------


async def test_what_a_query_finds_is_an_access_and_its_end_a_success(memory: Memory, handler: Any, ask: Any) -> None:
    """B135"""
    await ask(engine(memory), "green tea")
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (1, 0)
    assert (used(memory, "rome"), outcomes(memory, "rome")) == ([], (0, 0))
    [access] = memory.accesses("tea")
    assert access.confidence == 0.9


async def test_each_query_is_a_turn(memory: Memory, handler: Any, ask: Any) -> None:
    for _ in range(3):
        await ask(engine(memory), "green tea")
    assert used(memory, "tea") == [("s", 1), ("s", 2), ("s", 3)]
    assert outcomes(memory, "tea") == (3, 0)


class Fixed(BaseRetriever):
    """Hands over these nodes, after it has asked another retriever."""

    def __init__(self, nodes: list[TextNode], inner: BaseRetriever | None = None) -> None:
        super().__init__()
        self.nodes = nodes
        self.inner = inner

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.inner is not None:
            self.inner.retrieve(query_bundle)
        return [NodeWithScore(node=node, score=1.0) for node in self.nodes]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.inner is not None:
            await self.inner.aretrieve(query_bundle)
        return self._retrieve(query_bundle) if self.inner is None else [NodeWithScore(node=n) for n in self.nodes]


async def test_nodes_of_other_stores_are_passed_over(memory: Memory, handler: Any, ask: Any) -> None:
    nodes = [TextNode(id_="elsewhere", text="Ada"), TextNode(id_="oslo", text="Ada lives in Oslo")]
    await ask(engine(memory, retriever=Fixed(nodes)), "Ada")
    assert used(memory, "oslo") == [("s", 1)]
    assert used(memory, "elsewhere") == []


async def test_inner_retriever_counts_for_what_the_outer_one_hands_over(memory: Memory, handler: Any, ask: Any) -> None:
    all_three = RLMRetriever(memory, similarity_top_k=3)
    await ask(engine(memory, retriever=Fixed([TextNode(id_="tea", text="tea")], all_three)), "Ada")
    assert [used(memory, id) for id in TEXTS] == [[("s", 1)], [], []]


async def test_inner_retriever_counts_where_the_outer_one_makes_its_own_nodes(
    memory: Memory, handler: Any, ask: Any
) -> None:
    summary = Fixed([TextNode(text="a summary of both")], RLMRetriever(memory, similarity_top_k=2))
    await ask(engine(memory, retriever=summary), "Where does Ada live, in Oslo?")
    assert sum(len(used(memory, id)) for id in TEXTS) == 2
    assert used(memory, "oslo") == [("s", 1)]


async def test_fusion_of_several_questions_is_one_use(memory: Memory, handler: Any, ask: Any) -> None:
    fusion = QueryFusionRetriever(
        [RLMRetriever(memory, similarity_top_k=3), RLMRetriever(memory, similarity_top_k=2)],
        llm=Script("Who is Ada?\nWhat does Ada drink?").llm(), similarity_top_k=1, num_queries=3, use_async=False,
    )  # fmt: skip
    await ask(engine(memory, retriever=fusion), "green tea")
    assert [used(memory, id) for id in TEXTS] == [[("s", 1)], [], []]


# -- outcomes -------------------------------------------------------------------------------------------------------


async def test_query_that_fails_is_a_failure(memory: Memory, handler: Any, ask: Any) -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        await ask(engine(memory, RuntimeError("no answer")), "green tea")
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (0, 1)


async def test_retriever_that_is_called_by_itself_tells_no_outcome(memory: Memory, handler: Any) -> None:
    retriever = RLMRetriever(memory, similarity_top_k=1)
    retriever.retrieve("green tea")
    await retriever.aretrieve("green tea")
    assert used(memory, "tea") == [("s", 1), ("s", 2)]
    assert outcomes(memory, "tea") == (0, 0)
    assert memory.session("s").outcome(True) == 1  # whoever called it can tell


@dispatcher.span
def answered_at_last(engines: list[BaseQueryEngine], question: str) -> str:
    for one in engines:
        try:
            return str(one.query(question))
        except RuntimeError:
            continue
    raise RuntimeError("nobody knows")


def test_outermost_span_is_the_turn_and_tells_the_outcome(memory: Memory, handler: Any) -> None:
    broken, sound = engine(memory, RuntimeError("no answer")), engine(memory, "green")
    assert answered_at_last([broken, sound], "green tea") == "green"
    assert used(memory, "tea") == [("s", 1), ("s", 1)]
    assert outcomes(memory, "tea") == (1, 0)
    with pytest.raises(RuntimeError, match="nobody knows"):
        answered_at_last([broken, broken], "green tea")
    assert outcomes(memory, "tea") == (1, 1)


async def test_cancelled_query_tells_no_outcome(memory: Memory, handler: Any) -> None:
    class Endless(RLMRetriever):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            if query_bundle.query_str == "wait":
                found.set()
                await asyncio.Event().wait()
            return await super()._aretrieve(query_bundle)

    @dispatcher.span
    async def two_steps() -> None:
        await retriever.aretrieve("green tea")
        await retriever.aretrieve("wait")

    found = asyncio.Event()
    retriever = Endless(memory, similarity_top_k=1)
    task = asyncio.create_task(two_steps())
    await found.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (0, 0)


def test_shutting_the_dispatcher_down_judges_nothing(memory: Memory, handler: Any) -> None:
    @dispatcher.span
    def shut_down() -> None:
        RLMRetriever(memory, similarity_top_k=1).retrieve("green tea")
        get_dispatcher().shutdown()
        assert outcomes(memory, "tea") == (0, 0)

    shut_down()
    assert outcomes(memory, "tea") == (1, 0)


# -- streams --------------------------------------------------------------------------------------------------------


def test_streamed_answer_is_a_success_when_it_was_read(memory: Memory, handler: Any) -> None:
    answer = engine(memory, ["green", " tea"], streaming=True).query("green tea")
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (0, 0)
    assert "".join(answer.response_gen) == "green tea"
    assert outcomes(memory, "tea") == (1, 0)


async def test_awaited_stream_is_a_success_when_it_was_read(memory: Memory, handler: Any) -> None:
    answer = await engine(memory, ["green", " tea"], streaming=True).aquery("green tea")
    assert outcomes(memory, "tea") == (0, 0)
    assert [piece async for piece in answer.async_response_gen()] == ["green", " tea"]
    assert outcomes(memory, "tea") == (1, 0)


def test_stream_that_breaks_off_is_a_failure(memory: Memory, handler: Any) -> None:
    answer = engine(memory, ["green", RuntimeError("cut")], streaming=True).query("green tea")
    engine(memory).query("Bo in Rome")  # another run meanwhile
    with pytest.raises(RuntimeError, match="cut"):
        list(answer.response_gen)
    assert outcomes(memory, "tea") == (0, 1)
    assert outcomes(memory, "rome") == (1, 0)


def test_stream_that_nobody_reads_to_its_end_tells_nothing(memory: Memory, handler: Any) -> None:
    answer = engine(memory, ["green", " tea"], streaming=True).query("green tea")
    assert next(answer.response_gen) == "green"
    answer.response_gen.close()
    assert outcomes(memory, "tea") == (0, 0)


def chat(memory: Memory, *lines: Any) -> ContextChatEngine:
    return ContextChatEngine.from_defaults(
        RLMRetriever(memory, similarity_top_k=1), llm=Script(*lines).llm(),
        memory=ChatMemoryBuffer.from_defaults(tokenizer_fn=str.split, token_limit=1000),
    )  # fmt: skip


async def test_chat_is_a_turn_with_an_outcome(memory: Memory, handler: Any) -> None:
    chats = chat(memory, "green", RuntimeError("no answer"))
    assert str(chats.chat("green tea")) == "green"
    with pytest.raises(RuntimeError):
        await chats.achat("green tea")
    assert used(memory, "tea") == [("s", 1), ("s", 2)]
    assert outcomes(memory, "tea") == (1, 1)


def test_streamed_chat_is_judged_when_it_is_written(memory: Memory, handler: Any) -> None:
    answer = chat(memory, ["green", " tea"]).stream_chat("green tea")
    assert "".join(answer.response_gen) == "green tea"
    assert outcomes(memory, "tea") == (1, 0)


async def test_awaited_chat_stream_is_judged_when_it_is_written(memory: Memory, handler: Any) -> None:
    answer = await chat(memory, ["green", " tea"]).astream_chat("green tea")
    assert [piece async for piece in answer.async_response_gen()] == ["green", " tea"]
    assert outcomes(memory, "tea") == (1, 0)


# -- agents and workflows ---------------------------------------------------------------------------------------------


def agent(memory: Memory, *lines: Any) -> FunctionAgent:
    async def look_up(question: str) -> str:
        """Look something up."""
        found = await RLMRetriever(memory, similarity_top_k=1).aretrieve(question)
        return found[0].text

    return FunctionAgent(llm=Script(*lines).llm(), tools=[FunctionTool.from_defaults(async_fn=look_up)])


TWICE = (call("look_up", question="green tea"), call("look_up", question="green tea"))


async def test_run_of_an_agent_is_one_turn_with_one_outcome(memory: Memory, handler: Any) -> None:
    for _ in range(2):
        assert str(await agent(memory, *TWICE, "green").run("What does Ada drink?")) == "green"
    assert used(memory, "tea") == [("s", 1), ("s", 1), ("s", 2), ("s", 2)]
    assert outcomes(memory, "tea") == (2, 0)


async def test_agent_that_fails_is_a_failure(memory: Memory, handler: Any) -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        await agent(memory, *TWICE, RuntimeError("no answer")).run("What does Ada drink?")
    assert outcomes(memory, "tea") == (0, 1)


async def test_tool_that_fails_is_for_the_agent_to_get_over(memory: Memory, handler: Any) -> None:
    lines = (TWICE[0], call("look_up", no_such_argument=1), "green")
    assert str(await agent(memory, *lines).run("What does Ada drink?")) == "green"
    assert outcomes(memory, "tea") == (1, 0)


async def test_cancelled_agent_tells_no_outcome(memory: Memory, handler: Any) -> None:
    waiting = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    one = agent(memory, TWICE[0], call("wait"), "green")
    one.tools = [*(one.tools or []), FunctionTool.from_defaults(async_fn=wait)]
    run = one.run("What does Ada drink?")
    await waiting.wait()
    await run.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await run
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (0, 0)


async def test_agents_at_once_are_in_their_own_sessions(memory: Memory, handler: Any) -> None:
    async def run(session: str, question: str) -> None:
        with instrument_tags({"session_id": session}):
            await agent(memory, call("look_up", question=question), "done").run(question)

    await asyncio.gather(run("a", "green tea"), run("b", "Bo in Rome"), run("c", "green tea"))
    assert sorted(used(memory, "tea")) == [("a", 1), ("c", 1)]
    assert used(memory, "rome") == [("b", 1)]
    assert outcomes(memory, "tea") == (2, 0)


async def test_run_that_outlives_the_span_it_was_started_in_is_judged_by_its_own_end(
    memory: Memory, handler: Any
) -> None:
    @dispatcher.span
    async def start(*lines: Any) -> list[Any]:
        return [agent(memory, *lines).run("What does Ada drink?")]

    [run] = await start(TWICE[0], "green")
    await run
    assert outcomes(memory, "tea") == (1, 0)
    [run] = await start(TWICE[0], RuntimeError("no answer"))
    with pytest.raises(RuntimeError):
        await run
    assert outcomes(memory, "tea") == (1, 1)


class Asking(Workflow):
    @step
    def ask(self, ctx: Context, event: StartEvent) -> StopEvent:
        return StopEvent(result=str(event.engine.query(event.question)))


async def test_steps_in_threads_belong_to_the_run(memory: Memory, handler: RLMEventHandler) -> None:
    run = Asking().run(engine=engine(memory), question="green tea")
    assert await run == "an answer"
    assert used(memory, "tea") == [("s", 1)]
    assert outcomes(memory, "tea") == (1, 0)
    assert await handler.afeedback(run.run_id, False) == 1
    assert outcomes(memory, "tea") == (0, 1)


# -- sessions and feedback ------------------------------------------------------------------------------------------


def test_session_is_that_of_the_tags_else_of_the_handler_else_its_own(memory: Memory) -> None:
    with tracked(memory, session_id="given"):
        engine(memory).query("green tea")
        with instrument_tags({"session_id": "tagged"}):
            engine(memory).query("green tea")
        with instrument_tags({"session_id": 5}):
            engine(memory).query("green tea")
        with instrument_tags({"session_id": None}):
            engine(memory).query("green tea")
    with tracked(memory):
        engine(memory).query("Bo in Rome")
        engine(memory).query("Bo in Rome")
    assert used(memory, "tea") == [("given", 1), ("tagged", 1), ("5", 1), ("given", 2)]
    [(own, first), (same, second)] = used(memory, "rome")
    assert own == same not in ("given", "tagged", "5")
    assert (first, second) == (1, 2)


def test_tags_within_a_run_may_name_another_session(memory: Memory, handler: Any) -> None:
    @dispatcher.span
    def run() -> None:
        engine(memory).query("green tea")
        with instrument_tags({"session_id": "other"}):
            engine(memory).query("Bo in Rome")
        with instrument_tags({"something": "else"}):  # tags take the place of the tags around them
            engine(memory).query("Ada in Oslo")

    with instrument_tags({"session_id": "outer"}):
        run()
    assert [used(memory, id)[0][0] for id in TEXTS] == ["outer", "outer", "other"]
    assert [outcomes(memory, id) for id in TEXTS] == [(1, 0)] * 3


def test_session_id_that_is_none_is_refused(memory: Memory) -> None:
    for unfit in ("", 5, "lone \ud83d"):
        with pytest.raises(InvalidInputError):
            RLMEventHandler(memory, session_id=unfit)  # type: ignore[arg-type]  # that is the point


def test_feedback_corrects_the_end_of_a_run(memory: Memory, handler: RLMEventHandler) -> None:
    with instrument_tags({"run_id": "first"}):
        engine(memory).query("green tea")
    engine(memory).query("green tea")
    assert outcomes(memory, "tea") == (2, 0)
    assert handler.feedback("first", False) == 1
    assert outcomes(memory, "tea") == (1, 1)
    assert handler.feedback("first", True) == 1
    assert outcomes(memory, "tea") == (2, 0)


def test_feedback_within_a_run_stands_whatever_its_end_says(memory: Memory, handler: RLMEventHandler) -> None:
    @dispatcher.span
    def run() -> None:
        engine(memory).query("green tea")
        handler.feedback("first", False)

    with instrument_tags({"run_id": "first"}):
        run()
    assert outcomes(memory, "tea") == (0, 1)


def test_feedback_on_a_run_of_another_process_needs_its_session(memory: Memory, store_path: Path) -> None:
    with (
        Memory.open(store_path, embedder=None) as other,
        tracked(other),
        instrument_tags({"session_id": "s", "run_id": "r"}),
    ):
        engine(other).query("green tea")
    handler = RLMEventHandler(memory)
    with pytest.raises(InvalidInputError, match="session_id="):
        handler.feedback("r", False)
    assert handler.feedback("r", False, session_id="s") == 1
    assert handler.feedback("unknown", False, session_id="s") == 0
    assert outcomes(memory, "tea") == (0, 1)


@contextmanager
def attached(handler: Any) -> Iterator[Any]:
    get_dispatcher().add_event_handler(handler)
    try:
        yield handler
    finally:
        get_dispatcher().event_handlers.remove(handler)


class Recorder(BaseEventHandler):
    events: list[BaseEvent] = Field(default_factory=list)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.events.append(event)


def test_run_without_a_name_is_called_by_its_outermost_span(memory: Memory, handler: RLMEventHandler) -> None:
    with attached(Recorder()) as recorder:
        engine(memory).query("green tea")
    assert handler.feedback(str(recorder.events[0].span_id), False) == 1
    assert outcomes(memory, "tea") == (0, 1)


# -- what handlers must not do ----------------------------------------------------------------------------------------


def test_event_handler_alone_reports_each_retrieval_as_a_turn(memory: Memory) -> None:
    with attached(RLMEventHandler(memory, session_id="s")):
        engine(memory).query("green tea")
        engine(memory).query("green tea")
    assert used(memory, "tea") == [("s", 1), ("s", 2)]
    assert outcomes(memory, "tea") == (0, 0)


async def test_event_handler_alone_knows_the_run_of_an_agent(memory: Memory) -> None:
    with attached(RLMEventHandler(memory, session_id="s")) as handler:
        run = agent(memory, *TWICE, "green").run("What does Ada drink?")
        await run
    assert used(memory, "tea") == [("s", 1), ("s", 1)]
    assert handler.feedback(run.run_id, True) == 1


def test_each_memory_is_told_of_its_own_nodes(memory: Memory, tmp_path: Path) -> None:
    with Memory.open(tmp_path / "other.db", embedder=None) as other:
        other.add("Bo drinks green tea", ids=["bo"], tier="session")
        with tracked(memory, session_id="s"), tracked(other, session_id="o"), tracked(memory, session_id="twice"):
            engine(memory).query("green tea")
            engine(other).query("green tea")
        assert [session for session, _ in used(other, "bo")] == ["o"]
        assert outcomes(other, "bo") == (1, 0)
        assert sorted(used(memory, "tea")) == [("s", 1), ("twice", 1)]
        assert other.accesses("tea") == []


def test_nothing_is_told_after_the_block(memory: Memory) -> None:
    before = (list(get_dispatcher().event_handlers), list(get_dispatcher().span_handlers))
    with tracked(memory), pytest.raises(RuntimeError), tracked(memory):
        raise RuntimeError("the block failed")
    engine(memory).query("green tea")
    assert used(memory, "tea") == []
    assert (get_dispatcher().event_handlers, get_dispatcher().span_handlers) == before


def test_what_goes_wrong_is_logged_and_breaks_no_run(
    store_path: Path, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    closed = Memory.open(store_path, embedder=None)
    with tracked(closed, session_id="s"), caplog.at_level(logging.ERROR, "llamaindex_rlm"):
        closed.close()
        assert str(engine(memory).query("green tea")) == "an answer"
    assert [record.name for record in caplog.records] == ["llamaindex_rlm"]
    assert "was closed" in caplog.text


def test_handlers_of_a_read_only_memory_keep_nothing(memory: Memory, store_path: Path) -> None:
    """B143"""
    with Memory.open(store_path, embedder=None, read_only=True) as reading, tracked(reading) as handler:
        with instrument_tags({"session_id": "s", "run_id": "r"}):
            engine(reading).query("green tea")
        assert handler.feedback("r", True) == 0
    assert used(memory, "tea") == []


async def test_run_does_not_wait_for_a_writer(memory: Memory, handler: Any, store_path: Path, ask: Any) -> None:
    """B076"""
    await ask(engine(memory), "green tea")  # so that all is loaded
    writer = apsw.Connection(str(store_path))
    writer.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    await ask(engine(memory), "green tea")
    assert time.monotonic() - started < 5  # the store would wait ten seconds for the writer, and then fail
    writer.execute("ROLLBACK")
    writer.close()
    assert used(memory, "tea") == [("s", 1), ("s", 2)]
    assert outcomes(memory, "tea") == (2, 0)


def test_threads_at_once_are_counted_each(memory: Memory, handler: Any) -> None:
    def run(number: int) -> None:
        with instrument_tags({"session_id": f"s{number % 4}"}):
            engine(memory).query("green tea")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(32)))
    assert sorted(used(memory, "tea")) == [(f"s{n}", turn) for n in range(4) for turn in range(1, 9)]
    assert outcomes(memory, "tea") == (32, 0)
    assert memory.get("tea")[0].access_count == 32


def test_forgotten_spans_do_not_pile_up(memory: Memory) -> None:
    """A span that never ends leaves nothing for good, and the runs after it are judged as ever."""
    spans = RLMSpanHandler(memory)
    for number in range(20_001):
        spans.span_enter(id_=f"span-{number}", bound_args=None, parent_id=None)  # type: ignore[arg-type]  # not looked at
    assert spans.open_spans == {}
    with tracked(memory, session_id="s"):
        engine(memory).query("green tea")
    assert outcomes(memory, "tea") == (1, 0)


def test_events_are_known_by_their_class_alone(memory: Memory, handler: RLMEventHandler) -> None:
    """An event of another dispatcher, outside of any span, is told as well."""
    node = TextNode(id_="tea", text=TEXTS["tea"])
    handler.handle(RetrievalEndEvent(str_or_query_bundle="tea", nodes=[NodeWithScore(node=node)], span_id=None))
    assert used(memory, "tea") == [("s", 1)]


def test_names_of_the_classes() -> None:
    assert (RLMEventHandler.class_name(), RLMSpanHandler.class_name()) == ("RLMEventHandler", "RLMSpanHandler")
