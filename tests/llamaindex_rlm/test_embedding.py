"""LlamaIndex's embeddings as the store's embedder."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.storage.kvstore import SimpleKVStore

from llamaindex_rlm import as_embedder
from llamaindex_support import WordEmbedding
from rlm_memory import AsyncMemory, Embedder, Memory, resolve_embedder
from rlm_memory.errors import EmbeddingMismatchError, EmbeddingRequestError, InvalidInputError


class Answering(WordEmbedding):
    """Answers with what it is told to."""

    answer: Any = None

    def _get_text_embeddings(self, texts: list[str]) -> Any:
        return self.answer


class Told(WordEmbedding):
    """Tells the length of its vectors, as OpenAI's does."""

    dimensions: int = 64


def test_vectors_are_those_of_the_embedding(embedding: WordEmbedding) -> None:
    embedder = as_embedder(embedding)
    assert isinstance(embedder, Embedder)
    assert resolve_embedder(embedder) is embedder
    vectors = embedder.embed(["red fox", "blue whale"])
    assert (vectors.shape, vectors.dtype) == ((2, 64), np.float32)
    np.testing.assert_allclose(vectors[0], embedding.get_text_embedding("red fox"), rtol=1e-6)
    np.testing.assert_allclose(embedder.embed_query("fox"), embedding.get_query_embedding("fox"), rtol=1e-6)
    assert embedder.embed([]).size == 0


async def test_vectors_are_awaited(embedding: WordEmbedding) -> None:
    async with AsyncMemory(Memory.open(":memory:", embedder=as_embedder(embedding))) as memory:
        await memory.add(["red fox", "blue whale"])
        assert embedding.awaited == 2
        assert [hit.text for hit in await memory.search("red fox", k=1)] == ["red fox"]
        assert embedding.awaited == 3
        assert memory.memory.stats().dimensions == 64
    assert len(embedding.asked) == 3


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("text-embedding-3-small", "openai:text-embedding-3-small"),
        ("text-embedding-3-large", "openai:text-embedding-3-large"),
        ("text-embedding-ada-002", "openai:text-embedding-ada-002"),
        ("text-embedding-004", "text-embedding-004"),
        ("BAAI/bge-small-en", "BAAI/bge-small-en"),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_model_is_named_as_without_llama_index(name: str, model: str) -> None:
    assert as_embedder(WordEmbedding(model_name=name)).model == model


def test_dimensions_are_told_or_learned_or_asked(embedding: WordEmbedding) -> None:
    asked = as_embedder(embedding)
    assert asked.dimensions == 64
    assert embedding.asked == ["dimensions"]
    learned = as_embedder(embedding)
    learned.embed(["a", "b"])
    assert learned.dimensions == 64
    told = Told()
    assert as_embedder(told).dimensions == 64
    assert (told.asked, embedding.asked) == ([], ["dimensions", "a", "b"])


def test_store_remembers_the_model(store_path: Path, embedding: WordEmbedding) -> None:
    with Memory.open(store_path, embedder=as_embedder(embedding)) as memory:
        memory.add("red fox")
        assert memory.stats().embedding_model == "words"
    with pytest.raises(EmbeddingMismatchError, match="other"):
        Memory.open(store_path, embedder=as_embedder(WordEmbedding(model_name="other")))
    with Memory.open(store_path, embedder=as_embedder(WordEmbedding())) as memory:
        assert memory.search("red fox")[0].semantic == pytest.approx(1.0, abs=1e-5)


def test_unnamed_models_are_told_apart_by_length(store_path: Path) -> None:
    with Memory.open(store_path, embedder=as_embedder(MockEmbedding(embed_dim=8))) as memory:
        memory.add("red fox")
    with (
        Memory.open(store_path, embedder=as_embedder(MockEmbedding(embed_dim=9))) as memory,
        pytest.raises(EmbeddingMismatchError, match="9 dimensions"),
    ):
        memory.add("blue whale")


@pytest.mark.parametrize(
    "answer", [[], [[1.0]], [[1.0, 0.0], [1.0]], [[], []], [[0.0, 0.0], [1.0, 0.0]], [[1.0, float("nan")], [1.0, 0.0]]]
)
def test_unusable_answers_store_nothing(answer: Any) -> None:
    """B083, B148."""
    with Memory.open(":memory:", embedder=as_embedder(Answering(answer=answer))) as memory:
        with pytest.raises(EmbeddingRequestError):
            memory.add(["red fox", "blue whale"])
        assert memory.count() == 0


def test_arrays_of_double_precision_are_taken() -> None:
    """B148."""
    with Memory.open(":memory:", embedder=as_embedder(Answering(answer=np.eye(2)))) as memory:
        assert len(memory.add(["red fox", "blue whale"])) == 2


def test_cache_of_the_embedding_is_used(embedding: WordEmbedding) -> None:
    cached = WordEmbedding(embeddings_cache=SimpleKVStore())
    embedder = as_embedder(cached)
    embedder.embed_query("fox")
    embedder.embed_query("fox")
    assert cached.asked == ["fox"]


@pytest.mark.parametrize("wrong", [None, "openai", object(), WordEmbedding])
def test_other_objects_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="BaseEmbedding"):
        as_embedder(wrong)


def test_core_names_the_way_to_wrap_it(embedding: WordEmbedding) -> None:
    with pytest.raises(InvalidInputError, match=r"llamaindex_rlm\.as_embedder"):
        Memory.open(":memory:", embedder=embedding)


def test_copies_embed_alike(embedding: WordEmbedding) -> None:
    embedder = as_embedder(MockEmbedding(embed_dim=8))
    for copied in (copy.deepcopy(embedder), pickle.loads(pickle.dumps(embedder))):
        np.testing.assert_array_equal(copied.embed(["a"]), embedder.embed(["a"]))
