"""Embeddings for LangChain that need no model."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from support import WordEmbedder


class WordEmbeddings(Embeddings):
    """LangChain's side of `WordEmbedder`: texts that share words are near."""

    def __init__(self, model: str = "words") -> None:
        self.model = model
        self.words = WordEmbedder()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.words.embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.words.embed_query(text).tolist()
