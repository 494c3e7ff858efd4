"""Stores that are empty, nodes to fill them, and both colours to call them in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llamaindex_rlm import RLMVectorStore
from llamaindex_support import Call, WordEmbedding

ASYNC_NAMES = {
    "add": "async_add", "delete": "adelete", "delete_nodes": "adelete_nodes", "clear": "aclear",
    "get_nodes": "aget_nodes", "query": "aquery",
}  # fmt: skip


@pytest.fixture
def embedding() -> WordEmbedding:
    """A LlamaIndex embedding whose vectors are near where texts share words."""
    return WordEmbedding(model_name="words")


@pytest.fixture(params=["file", "memory", "server"])
def store(request: pytest.FixtureRequest, store_path: Path) -> Iterator[RLMVectorStore]:
    """An empty store, in a file, in memory and on a server, without an embedder: nodes come with vectors."""
    place: Any = {"file": store_path, "memory": ":memory:"}.get(request.param)
    store = RLMVectorStore.from_params(request.getfixturevalue("postgres_url") if place is None else place)
    yield store
    store.client.close()


@pytest.fixture
def word_store(embedding: WordEmbedding) -> Iterator[RLMVectorStore]:
    """An empty store in memory that can embed."""
    store = RLMVectorStore.from_params(":memory:", embedding=embedding)
    yield store
    store.client.close()


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Calls a method of a store by its name, in both colours."""

    async def sync_call(store: RLMVectorStore, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(store, name)(*args, **kwargs)

    async def async_call(store: RLMVectorStore, name: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(store, ASYNC_NAMES[name])(*args, **kwargs)

    return async_call if request.param == "async" else sync_call


@pytest.fixture
def nodes() -> list[TextNode]:
    """Four nodes of two documents, with vectors that point ever further away from (1, 0, 0, 0)."""

    def source(id: str) -> dict[NodeRelationship, RelatedNodeInfo]:
        return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=id)}

    return [
        TextNode(
            id_="aaa", text="lorem ipsum", embedding=[1, 0, 0, 0], relationships=source("doc-1"),
            metadata={"theme": "Mafia", "year": 1972, "location": {"city": "Rome"}, "tags": ["red", "green"]},
        ),
        TextNode(
            id_="bbb", text="dolor sit amet", embedding=[0.9, 0.4, 0, 0], relationships=source("doc-1"),
            metadata={"theme": "Friendship", "year": 1994, "tags": ["red"], "pages": [1, 2], "note": ""},
        ),
        TextNode(
            id_="ccc", text="the quick fox jumped over the lazy dog", embedding=[0.6, 0.8, 0, 0],
            relationships=source("doc-2"), metadata={"theme": "mafia wars", "year": 1994.5, "tags": []},
        ),
        TextNode(
            id_="ddd", text="a fox and a hound", embedding=[0.1, 1, 0, 0], relationships=source("doc-2"),
            metadata={"year": 2001, "theme": None},
        ),
    ]  # fmt: skip
