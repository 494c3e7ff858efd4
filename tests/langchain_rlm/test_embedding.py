"""LangChain's embeddings as embedders: their model's name, their dimensions, awaiting."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from langchain_rlm import RLMRetriever, RLMVectorStore, as_embedder
from rlm_memory import AsyncMemory, Embedder, Memory, OpenAIEmbedder
from rlm_memory.errors import EmbeddingRequestError, InvalidInputError


class Scripted(Embeddings):
    """Answers what a test says, and keeps what it was asked."""

    def __init__(self, answer: Any = None, **attributes: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.__dict__.update(attributes)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [[1.0, 2.0, 3.0]] * len(texts) if self.answer is None else self.answer

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(text)
        return [1.0, 2.0, 3.0]


class Awaited(Embeddings):
    """Can only be awaited, in the thread of the event loop."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: set[int] = set()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError("the blocking method was called")

    def embed_query(self, text: str) -> list[float]:
        raise AssertionError("the blocking method was called")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        self.threads.add(threading.get_ident())
        self.asked += texts
        return [[float(len(text)), 1.0] for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        self.threads.add(threading.get_ident())
        self.asked.append(text)
        return [float(len(text)), 1.0]


@pytest.mark.parametrize(
    ("attributes", "model"),
    [
        ({"model": "text-embedding-3-small"}, "openai:text-embedding-3-small"),
        ({"model_name": "text-embedding-ada-002"}, "openai:text-embedding-ada-002"),
        ({"model": "text-embedding-004"}, "text-embedding-004"),
        ({"model": "embed-english-v3.0"}, "embed-english-v3.0"),
        ({"model_name": "all-MiniLM-L6-v2"}, "all-MiniLM-L6-v2"),
        ({"model_id": "amazon.titan-embed-text-v2:0"}, "amazon.titan-embed-text-v2:0"),
        ({"model": None, "model_name": "named"}, "named"),
        ({"model": object()}, ""),
        ({}, ""),
    ],
)
def test_the_model_is_named_as_the_object_names_it(attributes: dict[str, Any], model: str):
    assert as_embedder(Scripted(**attributes)).model == model


def test_a_model_of_openai_is_the_same_without_langchain(store_path: Path):
    model = OpenAIEmbedder("text-embedding-3-small")
    langchain = Scripted(model="text-embedding-3-small", answer=np.eye(1, 1536).tolist())
    with Memory.open(store_path, embedder=as_embedder(langchain)) as memory:
        memory.add("x")
    with Memory.open(store_path, embedder=model) as memory:
        assert memory.count() == 1


def test_it_is_an_embedder_and_keeps_its_promises():
    embedder = as_embedder(Scripted())
    assert isinstance(embedder, Embedder)
    matrix = embedder.embed(("a", "b"))
    assert (matrix.shape, matrix.dtype) == ((2, 3), np.float32)
    assert embedder.embed_query("a").shape == (3,)
    assert embedder.embed([]).size == 0


def test_the_dimensions_are_those_of_the_first_vector_without_a_further_question():
    langchain = Scripted()
    embedder = as_embedder(langchain)
    embedder.embed(["a"])
    assert embedder.dimensions == 3
    assert langchain.asked == ["a"]


def test_the_dimensions_are_asked_for_with_a_word_where_there_is_no_vector_yet():
    langchain = Scripted()
    assert (as_embedder(langchain).dimensions, len(langchain.asked)) == (3, 1)
    told = Scripted(dimensions=256)
    assert (as_embedder(told).dimensions, told.asked) == (256, [])


async def test_storing_asks_for_no_vector_but_those_of_the_texts():
    for langchain in (Scripted(), Awaited()):
        async with await AsyncMemory.open(":memory:", embedder=as_embedder(langchain)) as memory:
            await memory.add(["a", "b"])
        assert langchain.asked == ["a", "b"]


async def test_embeddings_are_awaited_in_the_event_loop_by_every_method():
    langchain = Awaited()
    store = await RLMVectorStore.afrom_texts(["one", "three", "seventeen"], langchain, alpha=1)
    await store.aadd_texts(["eleven"])
    for found in (
        await store.asimilarity_search("twenty", k=1),
        await store.amax_marginal_relevance_search("twenty", k=1),
        await store.as_retriever(search_type="hybrid", search_kwargs={"k": 1}).ainvoke("twenty"),
        await RLMRetriever(memory=store.memory, alpha=1, k=1).ainvoke("twenty"),
    ):
        assert [document.page_content for document in found] == ["eleven"]
    assert langchain.threads == {threading.get_ident()}


def test_a_store_can_be_opened_and_searched_by_words_without_a_question_to_the_embedder(store_path: Path):
    RLMVectorStore.from_texts(["Ada"], Scripted(), path=store_path).memory.close()
    langchain = Scripted()
    store = RLMVectorStore(langchain, path=store_path)
    assert store.similarity_search("Ada", alpha=0)[0].page_content == "Ada"
    assert langchain.asked == []
    store.memory.close()


@pytest.mark.parametrize("answer", [[[1.0, 2.0], [1.0]], "text", [["a"]], [1.0, 2.0], [[1.0, 2.0]] * 3])
def test_an_answer_that_is_no_vector_for_each_text_is_refused_and_nothing_is_stored(answer: Any):
    store = RLMVectorStore(Scripted(answer))
    with pytest.raises(EmbeddingRequestError):
        store.add_texts(["a", "b"])
    assert store.memory.count() == 0


def test_what_the_embeddings_raise_is_passed_on():
    class Failing(DeterministicFakeEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise ConnectionError("the server is away")

    with pytest.raises(ConnectionError, match="the server is away"):
        RLMVectorStore.from_texts(["a"], Failing(size=3))


def test_what_is_no_embeddings_is_refused():
    with pytest.raises(InvalidInputError, match="str"):
        as_embedder("openai")  # type: ignore[arg-type]  # the mistake under test


def test_an_embedder_of_our_own_and_a_name_are_taken_too(embeddings: Any):
    assert RLMVectorStore.from_texts(["a"], embeddings.words).similarity_search("a", k=1)[0].page_content == "a"
    assert RLMVectorStore("openai").memory.embedder.model == "openai:text-embedding-3-small"
