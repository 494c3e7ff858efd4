"""Stand-ins for what LlamaIndex asks of the outside: an embedding that needs no model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from support import WordEmbedder

Call: TypeAlias = Callable[..., Awaitable[Any]]
"""Calls a method of a vector store by its name, in one colour or the other."""


class WordEmbedding(BaseEmbedding):
    """LlamaIndex's side of `WordEmbedder`: texts that share words are near. `awaited` counts what async calls asked."""

    awaited: int = 0
    _words: WordEmbedder = PrivateAttr(default_factory=WordEmbedder)

    @property
    def asked(self) -> list[str]:
        return self._words.asked

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._words.embed_query(query).tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._words.embed([text])[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        self.awaited += 1
        return self._get_query_embedding(query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        self.awaited += 1
        return self._get_text_embedding(text)
