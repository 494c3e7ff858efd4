"""Chains that answer from memory, end to end: called, awaited, streamed, in batches, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnableParallel, RunnablePassthrough

from langchain_rlm import RLMRetriever, RLMVectorStore

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer from what you remember.\nMemory:\n{context}"), ("human", "{question}")]
)
ANSWERS = {
    "What does Ada drink, tea?": "Ada drinks green tea",
    "Who drinks black coffee?": "Bo drinks black coffee",
    "Who lives in Oslo?": "Ada lives in Oslo",
    "Who lives in Rome?": "Bo lives in Rome",
    "Where is ERR_4711?": "The pump shows ERR_4711",
}


class Reader(BaseChatModel):
    """Follows a simple script: it answers with the first line of the memory that it is shown, word by word."""

    @property
    def _llm_type(self) -> str:
        return "reader"

    @staticmethod
    def _answer(messages: list[BaseMessage]) -> str:
        _, _, memory = messages[0].text.partition("Memory:\n")
        return memory.split("\n")[0]

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self._answer(messages)))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for i, word in enumerate(self._answer(messages).split(" ")):
            yield ChatGenerationChunk(message=AIMessageChunk(f" {word}" if i else word))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


def lines(documents: list[Document]) -> str:
    return "\n".join(document.page_content for document in documents)


@pytest.fixture(params=["RLMRetriever", "as_retriever"])
def retriever(request: pytest.FixtureRequest, store: RLMVectorStore) -> Any:
    if request.param == "RLMRetriever":
        return RLMRetriever(memory=store.memory, k=2)
    return store.as_retriever(search_type="hybrid", search_kwargs={"k": 2})


@pytest.fixture
def chain(retriever: Any) -> Runnable[str, str]:
    return {"context": retriever | lines, "question": RunnablePassthrough()} | PROMPT | Reader() | StrOutputParser()


@pytest.mark.parametrize("question", ANSWERS)
async def test_a_chain_answers_from_memory(chain: Runnable[str, str], question: str):
    assert chain.invoke(question) == ANSWERS[question]
    assert await chain.ainvoke(question) == ANSWERS[question]


async def test_an_answer_is_streamed_word_by_word(chain: Runnable[str, str]):
    words = list(chain.stream("Who lives in Oslo?"))
    assert (len(words) > 3, "".join(words)) == (True, "Ada lives in Oslo")
    assert [word async for word in chain.astream("Who lives in Oslo?")] == words


async def test_the_events_of_a_stream_show_what_was_remembered(chain: Runnable[str, str]):
    events = [event async for event in chain.astream_events("Who lives in Rome?", version="v2")]
    (found,) = (event["data"]["output"] for event in events if event["event"] == "on_retriever_end")
    assert found[0].page_content == "Bo lives in Rome"


async def test_questions_are_answered_in_batches(chain: Runnable[str, str]):
    assert chain.batch(list(ANSWERS)) == list(ANSWERS.values())
    assert await chain.abatch(list(ANSWERS), {"max_concurrency": 3}) == list(ANSWERS.values())
    done = dict(chain.batch_as_completed(list(ANSWERS)))
    assert [done[i] for i in range(len(ANSWERS))] == list(ANSWERS.values())


async def test_searches_run_side_by_side(store: RLMVectorStore):
    retriever = store.as_retriever(search_kwargs={"k": 1})
    both = RunnableParallel(
        words=retriever.bind(alpha=0), meaning=retriever.bind(alpha=1), own=RLMRetriever(memory=store.memory, k=1)
    )
    for found in (both.invoke("Bo lives in Rome"), await both.ainvoke("Bo lives in Rome")):
        assert {name: documents[0].id for name, documents in found.items()} == dict.fromkeys(found, "rome")


def test_a_retrieval_chain_gives_its_context_along(retriever: Any):
    documents = RunnableLambda(lambda given: given["input"]) | retriever
    answer = (
        RunnableLambda(lambda given: {"context": lines(given["context"]), "question": given["input"]})
        | PROMPT
        | Reader()
        | StrOutputParser()
    )
    chain = RunnablePassthrough.assign(context=documents).assign(answer=answer)
    outcome = chain.invoke({"input": "Who lives in Oslo?"})
    assert outcome["answer"] == outcome["context"][0].page_content == "Ada lives in Oslo"
    assert len(outcome["context"]) == 2


def test_a_chain_that_learns_answers_from_what_it_was_told(store: RLMVectorStore, chain: Runnable[str, str]):
    learn = RunnableLambda(lambda text: store.add_texts([text]))
    learn.invoke("Cleo plays the bassoon")
    assert chain.invoke("Who plays the bassoon?") == "Cleo plays the bassoon"


def test_sixteen_threads_share_a_chain_while_one_writes(store: RLMVectorStore, chain: Runnable[str, str]):
    start = threading.Barrier(17)

    def ask(number: int) -> list[str]:
        start.wait()
        questions = list(ANSWERS)[number % 5 :] + list(ANSWERS)[: number % 5]
        return [f"{question}{chain.invoke(question)}" for question in questions]

    def write() -> None:
        start.wait()
        for i in range(20):
            store.add_texts([f"Something else {i}"])

    with ThreadPoolExecutor(17) as pool:
        writing = pool.submit(write)
        answers = [answer for found in pool.map(ask, range(16)) for answer in found]
        writing.result()
    assert sorted(answers) == sorted(f"{question}{answer}" for question, answer in ANSWERS.items() for _ in range(16))
    assert store.memory.count() == 26


def test_several_event_loops_share_a_chain(store: RLMVectorStore, chain: Runnable[str, str]):
    async def ask_all(number: int) -> list[str]:
        await store.aadd_texts([f"From loop {number}"])
        return await asyncio.gather(*(chain.ainvoke(question) for question in ANSWERS))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: asyncio.run(ask_all(number)), range(4)))
    assert found == [list(ANSWERS.values())] * 4
    assert asyncio.run(ask_all(4)) == list(ANSWERS.values())
    assert store.memory.count() == 11
