"""LlamaIndex's embedders as embedders of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray

from rlm_memory import Embedder
from rlm_memory.embedding import as_matrix
from rlm_memory.errors import EmbeddingRequestError, InvalidInputError

_OPENAI_MODELS: Final = ("text-embedding-3-", "text-embedding-ada-")
"""How OpenAI's names begin; Google and Alibaba have others that begin with `text-embedding-`."""


def as_embedder(embedding: BaseEmbedding) -> Embedder:
    """Return an embedder for `Memory.open` that asks one of LlamaIndex's; `AsyncMemory` awaits it.

    The store remembers the model by its `model_name`: OpenAI's as `openai:text-embedding-3-small`, the same as without
    LlamaIndex, any other as it is. An embedder that does not tell its model is told from others by the length of its
    vectors alone. What it raises is passed on as it is.

    >>> from llama_index.core.embeddings import MockEmbedding
    >>> embedder = as_embedder(MockEmbedding(embed_dim=8))
    >>> embedder.model, embedder.embed(["one", "two"]).shape
    ('', (2, 8))

    Raises:
        InvalidInputError: It is no `BaseEmbedding`.
    """
    if not isinstance(embedding, BaseEmbedding):
        raise InvalidInputError(f"as_embedder takes a BaseEmbedding of LlamaIndex, got {type(embedding).__name__}.")
    return LlamaIndexEmbedder(embedding)


class LlamaIndexEmbedder:
    """What `as_embedder` returns; `embedding` is the object it asks."""

    def __init__(self, embedding: BaseEmbedding) -> None:
        self.embedding = embedding
        self._dimensions: int | None = None

    def __repr__(self) -> str:
        return f"as_embedder({type(self.embedding).__name__}({self.model!r}))"

    @property
    def model(self) -> str:
        """The name the store remembers, `""` if the object does not tell."""
        name = self.embedding.model_name
        if name.startswith(_OPENAI_MODELS):
            return f"openai:{name}"
        return "" if name == "unknown" else name  # BaseEmbedding's default

    @property
    def dimensions(self) -> int:
        """The length of the vectors: told by the object, known from the first vector, else a word is embedded."""
        if self._dimensions is None:
            told = getattr(self.embedding, "dimensions", None)
            if not isinstance(told, int):
                return len(self.embed_query("dimensions"))
            self._dimensions = told
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32."""
        return self._learn(self.embedding.get_text_embedding_batch(list(texts)), len(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question: shape (dimensions,), float32."""
        vector: NDArray[np.float32] = self._learn([self.embedding.get_query_embedding(text)], 1)[0]
        return vector

    async def aembed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Await what `embed` returns."""
        return self._learn(await self.embedding.aget_text_embedding_batch(list(texts)), len(texts))

    async def aembed_query(self, text: str) -> NDArray[np.float32]:
        """Await what `embed_query` returns."""
        vector: NDArray[np.float32] = self._learn([await self.embedding.aget_query_embedding(text)], 1)[0]
        return vector

    def _learn(self, answer: Any, count: int) -> NDArray[np.float32]:
        """Return the answer as a matrix, and remember how long its rows are."""
        try:
            matrix = as_matrix(answer)
        except (TypeError, ValueError) as error:
            raise EmbeddingRequestError(f"{self!r} answered with no matrix of numbers: {error}.") from error
        if count and matrix.ndim != 2:
            raise EmbeddingRequestError(f"{self!r}: expected {count} vectors, got an array of shape {matrix.shape}.")
        if count:
            self._dimensions = matrix.shape[1]
        return matrix
