"""LangChain's own suites for vector stores and retrievers, none of their tests overridden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from langchain_rlm import RLMRetriever, RLMVectorStore

STORES = [
    pytest.param((alpha, place, storage), id=f"alpha={alpha}-{place}-{storage}")
    for alpha, place, storage in product((0, 0.5, 1), ("file", "memory"), ("float32", "int8"))
]
STORES += [pytest.param((0.5, "server", storage), id=f"alpha=0.5-server-{storage}") for storage in ("float32", "bit")]


def location(request: pytest.FixtureRequest, place: str, store_path: Path) -> Any:
    match place:
        case "file":
            return store_path
        case "server":
            return request.getfixturevalue("postgres_url")
        case _:
            return None


class TestRLMVectorStore(VectorStoreIntegrationTests):
    """B056"""

    @pytest.fixture(params=STORES)
    def vectorstore(self, request: pytest.FixtureRequest, store_path: Path) -> Iterator[VectorStore]:
        alpha, place, storage = request.param
        path = location(request, place, store_path)
        store = RLMVectorStore(self.get_embeddings(), path=path, alpha=alpha, embedding_storage=storage)
        yield store
        assert store.memory.check()
        store.memory.close()


class _Retrievers(RetrieversIntegrationTests):
    """The suite over a store that a fixture has filled."""

    @pytest.fixture(autouse=True, params=STORES)
    def _filled_store(self, request: pytest.FixtureRequest, store_path: Path) -> Iterator[None]:
        alpha, place, storage = request.param
        path = location(request, place, store_path)
        self.store = RLMVectorStore.from_texts(
            ["Ada drinks tea", "Bo drinks coffee", "Ada lives in Oslo", "Bo lives in Rome"],
            DeterministicFakeEmbedding(size=6),
            path=path,
            alpha=alpha,
            embedding_storage=storage,
        )
        yield
        self.store.memory.close()

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {}

    @property
    def retriever_query_example(self) -> str:
        return "Who drinks tea?"


class TestRLMRetriever(_Retrievers):
    @property
    def retriever_constructor(self) -> Callable[..., RLMRetriever]:
        return partial(RLMRetriever, memory=self.store.memory, alpha=self.store.alpha)

    async def test_ainvoke_with_k_kwarg(self) -> None:
        retriever = self.retriever_constructor()
        assert [len(await retriever.ainvoke("tea", None, k=k)) for k in (1, 3)] == [1, 3]


class TestRetrieverOfVectorStore(_Retrievers):
    @property
    def retriever_constructor(self) -> Callable[..., Any]:
        return lambda k=4: self.store.as_retriever(search_type="hybrid", search_kwargs={"k": k})

    async def test_ainvoke_with_k_kwarg(self) -> None:
        retriever = self.retriever_constructor()
        assert [len(await retriever.ainvoke("tea", None, k=k)) for k in (1, 3)] == [1, 3]
