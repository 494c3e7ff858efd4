"""Embeddings for LangChain that need no model, and stores made with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_core.documents import Document

from langchain_rlm import RLMVectorStore
from langchain_support import WordEmbeddings


@pytest.fixture
def embeddings() -> WordEmbeddings:
    """LangChain embeddings whose vectors are near where texts share words."""
    return WordEmbeddings()


@pytest.fixture
def documents() -> list[Document]:
    """Six documents of two sources and three years."""
    return [
        Document(id="tea", page_content="Ada drinks green tea", metadata={"source": "a", "year": 2020}),
        Document(id="coffee", page_content="Bo drinks black coffee", metadata={"source": "b", "year": 2021}),
        Document(id="oslo", page_content="Ada lives in Oslo", metadata={"source": "a", "year": 2021}),
        Document(id="rome", page_content="Bo lives in Rome", metadata={"source": "b", "year": 2020}),
        Document(id="code", page_content="The pump shows ERR_4711", metadata={"source": "a", "year": 2022}),
        Document(id="plain", page_content="Nothing else is known"),
    ]


@pytest.fixture
def store(embeddings: WordEmbeddings, documents: list[Document]) -> Iterator[RLMVectorStore]:
    """A store in memory with the six documents."""
    store = RLMVectorStore.from_documents(documents, embeddings)
    yield store
    store.memory.close()
