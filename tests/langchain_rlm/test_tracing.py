"""What a callback handler tells the memory of the runs that it watches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import apsw
import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableGenerator, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_core.tracers.context import collect_runs
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_rlm import AsyncRLMCallbackHandler, RLMCallbackHandler, RLMRetriever, RLMVectorStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError

Handler = RLMCallbackHandler | AsyncRLMCallbackHandler
THRESHOLD = {"similarity_score_threshold": {"score_threshold": 0.5}}
TEXTS = {"tea": "Ada drinks green tea", "oslo": "Ada lives in Oslo", "rome": "Bo lives in Rome"}


@pytest.fixture
def memory(store_path: Path) -> Iterator[Memory]:
    """Three memories in the tier whose next move tells how they were judged."""
    with Memory.open(store_path, embedder=None) as memory:
        memory.add(list(TEXTS.values()), ids=list(TEXTS), tier="session", confidence=0.9)
        yield memory


@pytest.fixture(params=[RLMCallbackHandler, AsyncRLMCallbackHandler])
def handler(request: pytest.FixtureRequest, memory: Memory) -> Handler:
    handler: Handler = request.param(memory)
    return handler


@pytest.fixture
def retriever(memory: Memory) -> RLMRetriever:
    return RLMRetriever(memory=memory, k=1)


def config(handler: BaseCallbackHandler, session: str | None = "s", **more: Any) -> RunnableConfig:
    configurable = {} if session is None else {"session_id": session}
    return {"callbacks": [handler], "configurable": configurable, **more}  # type: ignore[typeddict-item]  # more of it


def used(memory: Memory, id: str) -> list[tuple[str, int]]:
    """Return the (session, turn) of each access."""
    return [(access.session_id, access.turn) for access in memory.accesses(id)]


def outcomes(memory: Memory, id: str) -> tuple[float | str | None, float | str | None]:
    """Return how many successes and failures are attached to a node."""
    found = {condition.name: condition.found for condition in memory.explain_promotion(id).conditions}
    return found["successful outcomes"], found["failed outcomes"]


def fail(_: Any) -> Any:
    raise RuntimeError("the task failed")


def first(documents: list[Document]) -> str:
    return documents[0].page_content


# -- accesses -------------------------------------------------------------------------------------------------------


async def test_what_a_chain_finds_is_an_access_and_its_end_a_success(
    memory: Memory, handler: Handler, retriever: RLMRetriever
):
    chain = retriever | first
    chain.invoke("tea", config(handler, "s1"))
    await chain.ainvoke("tea", config(handler, "s2"))
    assert used(memory, "tea") == [("s1", 1), ("s2", 1)]
    assert outcomes(memory, "tea") == (2, 0)
    assert memory.accesses("oslo") == []


async def test_the_error_of_a_chain_is_a_failure(memory: Memory, handler: Handler, retriever: RLMRetriever):
    chain = retriever | first | fail
    with pytest.raises(RuntimeError, match="the task failed"):
        chain.invoke("tea", config(handler))
    with pytest.raises(RuntimeError, match="the task failed"):
        await chain.ainvoke("tea", config(handler))
    assert outcomes(memory, "tea") == (0, 2)


@pytest.mark.parametrize("kind", ["retriever", "similarity", "mmr", "hybrid", "similarity_score_threshold", "another"])
def test_any_retriever_over_the_memory_counts_the_same(memory: Memory, handler: Handler, kind: str):
    """B135"""
    store = RLMVectorStore(memory=memory)
    retriever: BaseRetriever
    match kind:
        case "retriever":
            retriever = RLMRetriever(memory=memory, k=1)
        case "another":
            retriever = Searching(store=store)
        case _:
            retriever = store.as_retriever(search_type=kind, search_kwargs={"k": 1} | THRESHOLD.get(kind, {}))
    (retriever | first).invoke("tea", config(handler))
    assert used(memory, "tea") == [("s", 1)]


class Searching(BaseRetriever):
    """A retriever that knows nothing of sessions."""

    store: RLMVectorStore

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self.store.similarity_search(query, k=1)


async def test_documents_of_other_stores_are_passed_over(
    memory: Memory, handler: Handler, retriever: RLMRetriever, embeddings: Any
):
    other = InMemoryVectorStore(embeddings)
    other.add_documents([Document(page_content="Ada drinks tea", id="elsewhere"), Document(page_content="tea")])
    chain = RunnableParallel(ours=retriever, others=other.as_retriever())
    assert len(chain.invoke("tea", config(handler))["others"]) == 2
    await chain.ainvoke("tea", config(handler))
    assert used(memory, "tea") == [("s", 1), ("s", 2)]
    assert memory.accesses("elsewhere") == []


def test_documents_without_ids_are_passed_over(memory: Memory, handler: Handler):
    Fixed(documents=[Document(page_content=TEXTS["tea"])]).invoke("tea", config(handler))
    assert memory.accesses("tea") == []


class Fixed(BaseRetriever):
    """Hands over the same documents whatever is asked."""

    documents: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self.documents


class Reranked(BaseRetriever):
    """Asks another retriever and hands over what it makes of the answer."""

    base: BaseRetriever
    rerank: Any

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found: list[Document] = self.rerank(self.base.invoke(query, {"callbacks": run_manager.get_child()}))
        return found


def test_only_what_a_reranker_hands_on_is_an_access(memory: Memory, handler: Handler):
    every = RLMRetriever(memory=memory, k=3)
    kept = Reranked(base=every, rerank=lambda found: [d for d in found if d.id == "rome"])
    (Reranked(base=kept, rerank=lambda found: found) | first).invoke("tea", config(handler))
    assert {id: used(memory, id) for id in TEXTS} == {"tea": [], "oslo": [], "rome": [("s", 1)]}


def test_what_a_retriever_rewrites_was_found_by_the_one_within(memory: Memory, handler: Handler):
    summary = Reranked(
        base=RLMRetriever(memory=memory, k=2),
        rerank=lambda found: [Document(page_content=" ".join(d.page_content for d in found))],
    )
    (Reranked(base=summary, rerank=lambda found: found) | first).invoke("Ada", config(handler))
    assert {id: used(memory, id) for id in TEXTS} == {"tea": [("s", 1)], "oslo": [("s", 1)], "rome": []}
    assert outcomes(memory, "oslo") == (1, 0)


# -- turns ----------------------------------------------------------------------------------------------------------


def test_a_run_is_one_turn_however_often_and_deep_it_looks(memory: Memory, handler: Handler, retriever: RLMRetriever):
    @tool
    def remember(question: str) -> str:
        """Look something up."""
        return first(retriever.invoke(question))

    memory.promote("tea", "task", reason="to see its uses")
    side_by_side = RunnableParallel(a=retriever | first, b=RunnableLambda(lambda q: (retriever | first).invoke(q)))
    chain = RunnableParallel(c=side_by_side, d=RunnableLambda(lambda q: remember.invoke(q)))
    chain.invoke("tea", config(handler))
    assert used(memory, "tea") == [("s", 1)] * 3
    assert memory.get("tea")[0].tier == "task"
    chain.invoke("tea", config(handler))
    assert set(used(memory, "tea")) == {("s", 1), ("s", 2)}
    assert memory.get("tea")[0].tier == "session"


async def test_each_input_of_a_batch_is_a_turn(memory: Memory, handler: Handler, retriever: RLMRetriever):
    chain = retriever | first
    chain.batch(["tea"] * 8, config(handler))
    await chain.abatch(["tea"] * 8, config(handler))
    assert sorted(turn for _, turn in used(memory, "tea")) == list(range(1, 17))
    assert outcomes(memory, "tea") == (16, 0)


def test_inputs_of_a_batch_may_be_in_different_sessions(memory: Memory, handler: Handler, retriever: RLMRetriever):
    sessions = [f"s{i}" for i in range(6)]
    (retriever | first).batch(["tea"] * 6, [config(handler, session) for session in sessions])
    assert sorted(used(memory, "tea")) == [(session, 1) for session in sessions]


def test_one_input_of_a_batch_may_fail_alone(memory: Memory, handler: Handler, retriever: RLMRetriever):
    chain = retriever | first | (lambda text: fail(text) if "Rome" in text else text)
    answers = chain.batch(["tea", "Rome"], config(handler), return_exceptions=True)
    assert [isinstance(answer, RuntimeError) for answer in answers] == [False, True]
    assert (outcomes(memory, "tea"), outcomes(memory, "rome")) == ((1, 0), (0, 1))


def words(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from text.split()


async def awords(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    async for text in texts:
        for word in text.split():
            yield word


async def test_a_stream_is_judged_when_it_was_read_to_its_end(
    memory: Memory, handler: Handler, retriever: RLMRetriever
):
    chain = retriever | first | RunnableGenerator(words, awords)
    assert list(chain.stream("tea", config(handler))) == TEXTS["tea"].split()
    assert [word async for word in chain.astream("tea", config(handler))] == TEXTS["tea"].split()
    assert (len(used(memory, "tea")), outcomes(memory, "tea")) == (2, (2, 0))


def test_a_stream_that_is_closed_early_has_ended(memory: Memory, handler: Handler, retriever: RLMRetriever):
    stream = (retriever | first | RunnableGenerator(words, awords)).stream("tea", config(handler))
    assert next(stream) == "Ada"
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert (len(used(memory, "tea")), outcomes(memory, "tea")) == (1, (1, 0))


async def test_a_cancelled_run_tells_nothing(memory: Memory, handler: Handler, retriever: RLMRetriever):
    found, never = asyncio.Event(), asyncio.Event()

    async def wait(text: str) -> str:
        found.set()
        await never.wait()
        return text

    run = asyncio.create_task((retriever | first | wait).ainvoke("tea", config(handler)))
    await found.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (len(used(memory, "tea")), outcomes(memory, "tea")) == (1, (0, 0))


def test_a_retriever_alone_tells_nothing_of_success(memory: Memory, handler: Handler, retriever: RLMRetriever):
    retriever.invoke("tea", {"callbacks": [handler], "metadata": {"session_id": "s"}})
    assert (used(memory, "tea"), outcomes(memory, "tea")) == ([("s", 1)], (0, 0))


def test_a_handler_may_watch_a_part_of_a_chain(memory: Memory, handler: Handler, retriever: RLMRetriever):
    part = (retriever | first).with_config(config(handler))
    with pytest.raises(RuntimeError):
        (part | fail).invoke("tea")
    assert outcomes(memory, "tea") == (1, 0)  # the part that was watched has not failed


def test_threads_share_a_handler(memory: Memory, handler: Handler, retriever: RLMRetriever):
    chain = retriever | first
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: chain.invoke("tea", config(handler)), range(40)))
    assert sorted(turn for _, turn in used(memory, "tea")) == list(range(1, 41))
    assert outcomes(memory, "tea") == (40, 0)
    assert memory.check()


# -- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "run", "session"),
    [
        (None, {"metadata": {"session_id": "m"}}, "m"),
        (None, {"configurable": {"session_id": "c"}}, "c"),
        (None, {"configurable": {"thread_id": "t"}}, "t"),
        (None, {"configurable": {"thread_id": "t"}, "metadata": {"session_id": "m"}}, "m"),
        ("given", {"configurable": {"thread_id": "t"}}, "given"),
        ("given", {"configurable": {"session_id": "c", "thread_id": "t"}}, "c"),
        ("given", {}, "given"),
        (None, {"configurable": {"thread_id": 1}}, "1"),
        (None, {"metadata": {"thread_id": UUID(int=7)}}, str(UUID(int=7))),
    ],
)
@pytest.mark.parametrize("kind", [RLMCallbackHandler, AsyncRLMCallbackHandler])
async def test_where_the_session_is_named(
    memory: Memory, kind: Callable[..., Handler], given: str | None, run: dict[str, Any], session: str
):
    """B113"""
    handler = kind(memory, session_id=given)
    chain = RunnableLambda(lambda question: RLMRetriever(memory=memory, k=1).invoke(question))
    chain.invoke("tea", {"callbacks": [handler], **run})  # type: ignore[misc]  # parts of a configuration
    await chain.ainvoke("tea", {"callbacks": [handler], **run})  # type: ignore[misc]  # parts of a configuration
    assert {access.session_id for access in memory.accesses("tea")} == {session}


def test_runs_that_name_no_session_are_in_one_of_the_handlers_own(memory: Memory, retriever: RLMRetriever):
    chain, first_handler, other = retriever | first, RLMCallbackHandler(memory), RLMCallbackHandler(memory)
    for handler in (first_handler, first_handler, other):
        chain.invoke("tea", {"callbacks": [handler]})
    a, b, c = (access.session_id for access in memory.accesses("tea"))
    assert (a == b, a == c) == (True, False)


def test_an_unusable_session_is_refused(memory: Memory):
    for arguments in ({"session_id": ""}, {"session_id": 5}, {"remembered_runs": 0}):
        with pytest.raises(InvalidInputError):
            RLMCallbackHandler(memory, **arguments)


# -- feedback -------------------------------------------------------------------------------------------------------


async def feedback(handler: Handler, run_id: UUID | str, success: bool, **more: Any) -> int:
    if isinstance(handler, AsyncRLMCallbackHandler):
        return await handler.feedback(run_id, success, **more)
    return handler.feedback(run_id, success, **more)


async def test_feedback_corrects_the_outcome_of_its_run_alone(
    memory: Memory, handler: Handler, retriever: RLMRetriever
):
    chain, runs = retriever | first, [uuid4(), uuid4()]
    for run_id in runs:
        chain.invoke("tea", config(handler, run_id=run_id))
    assert await feedback(handler, runs[0], False) == 1
    assert outcomes(memory, "tea") == (1, 1)
    assert await feedback(handler, str(runs[0]), True) == 1
    assert outcomes(memory, "tea") == (2, 0)


async def test_feedback_before_the_end_is_not_undone_by_it(memory: Memory, handler: Handler, retriever: RLMRetriever):
    run_id = uuid4()

    async def judge(text: str) -> str:
        await feedback(handler, run_id, False)
        return text

    await (retriever | first | judge).ainvoke("tea", config(handler, run_id=run_id))
    assert outcomes(memory, "tea") == (0, 1)


async def test_feedback_may_come_through_another_handler(memory: Memory, retriever: RLMRetriever):
    with collect_runs() as runs:
        (retriever | first).invoke("tea", config(RLMCallbackHandler(memory), "monday"))
    (run,) = runs.traced_runs
    for handler in (RLMCallbackHandler(memory), AsyncRLMCallbackHandler(memory)):
        with pytest.raises(InvalidInputError, match="session_id="):
            await feedback(handler, run.id, False)
        assert await feedback(handler, run.id, False, session_id="monday") == 1
    assert outcomes(memory, "tea") == (0, 1)


async def test_feedback_on_a_run_that_found_nothing_changes_nothing(memory: Memory, handler: Handler):
    run_id = uuid4()
    RunnableLambda(str).invoke("tea", config(handler, run_id=run_id))
    assert await feedback(handler, run_id, False) == 0


# -- what must not happen -------------------------------------------------------------------------------------------


def test_runs_that_never_end_do_not_pile_up(memory: Memory, retriever: RLMRetriever):
    handler = RLMCallbackHandler(memory, remembered_runs=3)
    lost, last = [uuid4() for _ in range(10)], uuid4()
    for run_id in lost:
        handler.on_chain_start({}, {}, run_id=run_id)
    with pytest.raises(InvalidInputError, match="last 3"):
        handler.feedback(lost[0], True)
    look = uuid4()
    handler.on_retriever_start({}, "coffee", run_id=look, parent_run_id=lost[0])
    handler.on_retriever_end([Document(page_content="x", id="oslo")], run_id=look)
    (retriever | first).invoke("tea", config(handler, run_id=last))
    for run_id in lost:
        handler.on_chain_end({}, run_id=run_id)
    assert outcomes(memory, "tea") == (1, 0)
    assert (len(memory.accesses("oslo")), outcomes(memory, "oslo")) == (1, (0, 0))  # its run was forgotten
    assert handler.feedback(last, False) == 1


async def test_errors_of_the_memory_are_logged_and_never_break_a_run(
    memory: Memory, handler: Handler, retriever: RLMRetriever, caplog: pytest.LogCaptureFixture
):
    chain = retriever | first | (lambda text: memory.close() or text)
    with caplog.at_level(logging.ERROR, logger="langchain_rlm"):
        assert chain.invoke("tea", config(handler)) == TEXTS["tea"]
    assert [record.name for record in caplog.records] == ["langchain_rlm"]
    assert "closed" in caplog.text
    found = Fixed(documents=[Document(page_content="x", id="tea")]) | first
    assert await found.ainvoke("tea", config(handler, "another")) == "x"


def test_a_run_whose_parts_were_not_seen_is_none_of_the_handlers(memory: Memory, handler: Handler):
    """An end without a start, as after a restart of what watches."""
    watched = RLMCallbackHandler(memory, session_id="s")
    watched.on_retriever_end([Document(page_content="x", id="tea")], run_id=uuid4())
    watched.on_tool_end("x", run_id=uuid4())
    watched.on_retriever_error(ValueError(), run_id=uuid4())
    assert memory.accesses("tea") == []


def test_a_memory_that_is_open_for_reading_is_not_written_to(memory: Memory, store_path: Path):
    """B143"""
    memory.close()
    before = store_path.read_bytes()
    with Memory.open(store_path, embedder=None, read_only=True) as reading:
        chain = RLMRetriever(memory=reading, k=1) | first
        assert chain.invoke("tea", config(RLMCallbackHandler(reading))) == TEXTS["tea"]
        assert reading.accesses("tea") == []
    assert store_path.read_bytes() == before


async def test_the_event_loop_is_free_while_the_store_is_waited_for(
    memory: Memory, handler: Handler, retriever: RLMRetriever, store_path: Path
):
    """B076, B081: another process writes until the loop has gone on; a loop that waits for it would wait in vain."""
    other, answered = apsw.Connection(str(store_path)), asyncio.Event()

    async def answer(text: str) -> str:
        answered.set()
        return text

    async def let_go() -> None:
        await answered.wait()
        other.execute("COMMIT")

    other.execute("BEGIN IMMEDIATE")
    await asyncio.gather((retriever | first | answer).ainvoke("tea", config(handler)), let_go())
    other.close()
    assert outcomes(memory, "tea") == (1, 0)
