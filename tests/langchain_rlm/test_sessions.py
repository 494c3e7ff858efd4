"""What is found in a session is an access of it, whichever door the question came through."""

from __future__ import annotations

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.retrievers import BaseRetriever

from langchain_rlm import RLMCallbackHandler, RLMRetriever, RLMVectorStore
from rlm_memory import Memory


@pytest.fixture
def memory() -> Memory:
    memory = Memory.open(":memory:", embedder=None)
    memory.add(["Ada likes tea.", "Bo lives in Rome."], ids=["ada", "bo"])
    return memory


def used_by(memory: Memory, id: str) -> list[str]:
    return [access.session_id for access in memory.accesses(id)]


@pytest.fixture(params=["retriever", "as_retriever"])
def retriever(memory: Memory, request: pytest.FixtureRequest) -> BaseRetriever:
    if request.param == "retriever":
        return RLMRetriever(memory=memory, k=1)
    return RLMVectorStore(memory=memory).as_retriever(search_kwargs={"k": 1})


def test_a_named_session_uses_what_its_search_finds(memory: Memory) -> None:
    store = RLMVectorStore(memory=memory)
    store.similarity_search("tea", k=1, session_id="s1")
    store.max_marginal_relevance_search("tea", k=1, session_id="s2")
    store.similarity_search("tea", k=1)
    assert used_by(memory, "ada") == ["s1", "s2"]


async def test_a_named_session_uses_what_its_awaited_search_finds(memory: Memory) -> None:
    await RLMVectorStore(memory=memory).asimilarity_search("tea", k=1, session_id="s1")
    assert used_by(memory, "ada") == ["s1"]


@pytest.mark.parametrize(
    "config",
    [
        {"configurable": {"session_id": "s1"}},
        {"configurable": {"thread_id": "s1"}},
        {"metadata": {"session_id": "s1"}},
        {"metadata": {"session_id": "s1", "thread_id": "another"}},
    ],
)
async def test_a_run_says_which_session_it_belongs_to(
    memory: Memory, retriever: BaseRetriever, config: dict[str, dict[str, str]]
) -> None:
    retriever.invoke("tea", config)
    assert used_by(memory, "ada") == ["s1"]
    await retriever.ainvoke("tea", config)
    assert used_by(memory, "ada") == ["s1", "s1"]
    assert memory.get("ada")[0].tier == "session"


def test_the_session_of_the_call_comes_before_that_of_the_run(memory: Memory, retriever: BaseRetriever) -> None:
    retriever.invoke("tea", {"metadata": {"session_id": "run"}}, session_id="call")
    assert used_by(memory, "ada") == ["call"]


def test_a_run_without_a_session_is_no_access(memory: Memory, retriever: BaseRetriever) -> None:
    retriever.invoke("tea")
    assert used_by(memory, "ada") == []


def test_a_handler_that_reports_to_the_memory_is_not_told_twice(memory: Memory, retriever: BaseRetriever) -> None:
    class Reporting(BaseCallbackHandler):
        def __init__(self) -> None:
            self.memory = memory

    retriever.invoke("tea", {"callbacks": [Reporting()], "metadata": {"session_id": "s1"}})
    assert used_by(memory, "ada") == []


def test_the_session_of_a_retriever_holds_under_a_handler_too(memory: Memory) -> None:
    handler = RLMCallbackHandler(memory, session_id="handler")
    RLMRetriever(memory=memory, k=1, session_id="own").invoke("tea", {"callbacks": [handler]})
    store = RLMVectorStore(memory=memory)
    store.as_retriever(search_kwargs={"k": 1, "session_id": "own"}).invoke("tea", {"callbacks": [handler]})
    assert used_by(memory, "ada") == ["own", "own"]
