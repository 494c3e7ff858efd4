"""Which model a store takes its vectors to be of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlm_memory import Memory
from rlm_memory.errors import EmbeddingMismatchError
from support import WordEmbedder


def test_given_vectors_are_not_taken_for_those_of_an_embedder_that_was_never_asked(store_path: Path) -> None:
    with Memory.open(store_path) as memory:  # OpenAI's embedder, by default
        memory.add(["a"], embeddings=[[1, 0, 0, 0]])
        assert memory.stats().embedding_model in (None, "")
    with Memory.open(store_path, embedder=WordEmbedder(4, "true")) as memory:
        memory.add(["b"])
        assert memory.stats().embedding_model == "true"
        assert [hit.text for hit in memory.search("b", k=1)] == ["b"]
    with pytest.raises(EmbeddingMismatchError, match="true"):
        Memory.open(store_path, embedder=WordEmbedder(4, "another"))
