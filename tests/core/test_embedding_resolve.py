"""What a caller may write for `embedder`, and what a store remembers of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlm_memory.embedding import (
    CompletedEmbedder,
    Model2VecEmbedder,
    OpenAIEmbedder,
    WordLlamaEmbedder,
    embedder_model,
    resolve_embedder,
)
from rlm_memory.errors import EmbeddingRequestError, InvalidInputError
from rlm_memory.ports import Embedder
from support import WordEmbedder

SPECIFICATIONS = {
    "openai": (OpenAIEmbedder, "openai:text-embedding-3-small"),
    "openai:": (OpenAIEmbedder, "openai:text-embedding-3-small"),
    "openai:text-embedding-3-large": (OpenAIEmbedder, "openai:text-embedding-3-large"),
    "openai:ft:mine:v2": (OpenAIEmbedder, "openai:ft:mine:v2"),
    "model2vec:minishlab/potion-base-8M": (Model2VecEmbedder, "model2vec:minishlab/potion-base-8M"),
    "model2vec:C:\\models\\mine": (Model2VecEmbedder, "model2vec:C:\\models\\mine"),
    "wordllama": (WordLlamaEmbedder, "wordllama"),
}


@pytest.mark.parametrize(("spec", "kind", "model"), [(spec, *found) for spec, found in SPECIFICATIONS.items()])
def test_a_name_stands_for_an_embedder(spec: str, kind: type, model: str) -> None:
    embedder = resolve_embedder(spec)
    assert embedder is not None
    assert isinstance(embedder, kind)
    assert embedder.model == model
    assert embedder_model(spec) == model
    assert embedder_model(embedder) == model


def test_none_stands_for_no_embedder() -> None:
    assert resolve_embedder(None) is None
    assert embedder_model(None) is None


@pytest.mark.parametrize(
    "spec",
    ["", " ", "bert", "text-embedding-3-small", "OpenAI:x", "model2vec", "wordllama:x", ":x", "None"],
)
def test_an_unknown_name_is_refused_with_the_known_ones(spec: str) -> None:
    for ask in (resolve_embedder, embedder_model):
        with pytest.raises(InvalidInputError, match=r"Unknown embedder .*openai:MODEL.*model2vec:.*wordllama.*None"):
            ask(spec)


def test_a_model2vec_model_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="model2vec:NAME_OR_PATH"):
        resolve_embedder("model2vec:")


class Lengthy(WordEmbedder):
    """Would load a model to tell its length."""

    @property
    def dimensions(self) -> int:
        raise AssertionError("asked for its length")

    @dimensions.setter
    def dimensions(self, value: int) -> None:
        pass


@pytest.mark.parametrize("embedder", [WordEmbedder(), OpenAIEmbedder(), WordLlamaEmbedder(), Lengthy()], ids=type)
def test_a_complete_object_is_taken_as_it_is(embedder: Embedder) -> None:
    assert resolve_embedder(embedder) is embedder


class Pair:
    """The least an embedder can be; `answer` is what it gives for each text."""

    def __init__(self, answer: Any = (3.0, 4.0)) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return [self.answer for _ in texts]

    def embed_query(self, text: str) -> Any:
        self.asked.append(text)
        return self.answer


def test_an_object_without_model_and_length_is_completed() -> None:
    pair = Pair()
    embedder = resolve_embedder(pair)
    assert embedder is not None
    assert embedder_model(pair) == embedder.model == ""
    assert pair.asked == []  # nothing yet
    assert embedder.embed(["a", "b"]).tolist() == [[3, 4], [3, 4]]
    assert embedder.embed_query("c").tolist() == [3, 4]
    assert embedder.dimensions == 2
    assert pair.asked == ["a", "b", "c"]


def test_a_length_nobody_tells_is_found_with_one_word() -> None:
    pair = Pair()
    embedder = resolve_embedder(pair)
    assert embedder is not None
    assert (embedder.dimensions, embedder.dimensions) == (2, 2)
    assert len(pair.asked) == 1


def test_no_texts_teach_no_length() -> None:
    embedder = CompletedEmbedder(Pair())
    assert embedder.embed([]).shape == (0, 0)
    assert embedder.dimensions == 2


def test_what_an_object_tells_is_used() -> None:
    pair = Pair()
    pair.model = "pair-v1"  # type: ignore[attr-defined]  # what a user's class may have
    assert embedder_model(pair) == "pair-v1"
    pair.dimensions = 2  # type: ignore[attr-defined]  # likewise
    found: object = resolve_embedder(pair)
    assert found is pair


@pytest.mark.parametrize("model", [None, 7, object()], ids=["None", "a number", "an object"])
def test_a_model_that_is_no_name_counts_as_unnamed(model: Any) -> None:
    pair = Pair()
    pair.model, pair.dimensions = model, 2  # type: ignore[attr-defined]  # a module of torch, for example
    assert embedder_model(pair) == ""
    embedder = resolve_embedder(pair)
    assert embedder is not None
    assert embedder.dimensions == 2
    assert pair.asked == []  # it had told its length


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "it is empty"),
        ([[3.0, 4.0]], "expected one list of numbers"),
        ([0.0, 0.0], "zero"),
        ("x", "expected one list"),
    ],
)
def test_what_a_completed_object_answers_is_checked(answer: Any, message: str) -> None:
    """B148"""
    embedder = CompletedEmbedder(Pair(answer))
    with pytest.raises(EmbeddingRequestError, match=message):
        embedder.embed_query("a")
    with pytest.raises(EmbeddingRequestError, match=message):
        embedder.embed(["a", "b"])


def test_the_length_may_not_change() -> None:
    pair = Pair()
    embedder = CompletedEmbedder(pair)
    embedder.embed(["a"])
    pair.answer = [1.0, 2.0, 3.0]
    with pytest.raises(EmbeddingRequestError, match="expected 2 numbers, got 3"):
        embedder.embed_query("b")


class Awaitable(Pair):
    async def aembed_query(self, text: str) -> np.ndarray:
        return np.ones(2, np.float32)


async def test_a_completed_object_can_still_be_awaited() -> None:
    embedder: Any = resolve_embedder(Awaitable())
    assert (await embedder.aembed_query("a")).tolist() == [1, 1]
    assert not hasattr(embedder, "aembed")


def test_a_completed_object_can_be_copied() -> None:
    assert copy.deepcopy(CompletedEmbedder(Pair())).embed_query("a").tolist() == [3, 4]


def test_a_completed_object_shows_what_it_is() -> None:
    assert repr(CompletedEmbedder("x")) == "CompletedEmbedder('x')"


class LangChainLike:
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0]


class CohereLike(LangChainLike):
    """Some of LangChain's have an `embed` too, which takes other arguments."""

    def embed(self, texts: list[str], input_type: str) -> list[list[float]]:
        return [[1.0] for _ in texts]


class LlamaIndexLike:
    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


@pytest.mark.parametrize(
    ("embedder", "way"),
    [
        (LangChainLike(), r"langchain_rlm\.as_embedder"),
        (CohereLike(), r"langchain_rlm\.as_embedder"),
        (LlamaIndexLike(), r"llamaindex_rlm\.as_embedder"),
    ],
    ids=["LangChain", "LangChain with embed", "LlamaIndex"],
)
def test_an_embedder_of_a_framework_is_sent_to_its_adapter(embedder: object, way: str) -> None:
    for ask in (resolve_embedder, embedder_model):
        with pytest.raises(InvalidInputError, match=way):
            ask(embedder)


def test_an_embedder_of_langchain_itself_is_sent_to_its_adapter() -> None:
    fakes = pytest.importorskip("langchain_core.embeddings", reason="langchain-core is not installed")
    with pytest.raises(InvalidInputError, match=r"langchain_rlm\.as_embedder"):
        resolve_embedder(fakes.DeterministicFakeEmbedding(size=4))


def test_an_embedder_of_llamaindex_itself_is_sent_to_its_adapter() -> None:
    core = pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    with pytest.raises(InvalidInputError, match=r"llamaindex_rlm\.as_embedder"):
        resolve_embedder(core.MockEmbedding(embed_dim=4))


def test_a_class_of_both_worlds_is_taken_as_it_is() -> None:
    class Both(WordEmbedder, LangChainLike):
        embed_query = WordEmbedder.embed_query  # type: ignore[assignment]  # the core's wins

    both = Both()
    assert resolve_embedder(both) is both


@pytest.mark.parametrize(
    "spec", [0, True, b"openai", ["openai"], {"model": "x"}, object(), len, float("nan")], ids=repr
)
def test_what_is_no_embedder_is_refused_with_what_is_known(spec: object) -> None:
    with pytest.raises(InvalidInputError, match=r"is no embedder.*openai:MODEL.*wordllama"):
        resolve_embedder(spec)


@pytest.mark.parametrize("kind", [OpenAIEmbedder, WordLlamaEmbedder, Pair])
def test_a_class_is_not_its_object(kind: type) -> None:
    with pytest.raises(InvalidInputError, match=f"{kind.__name__} is a class: pass an object"):
        resolve_embedder(kind)
