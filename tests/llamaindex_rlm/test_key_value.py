"""RLMKVStore, beside LlamaIndex's own store, and under its docstore and index store."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, SummaryIndex, load_index_from_storage
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.index_store.keyval_index_store import KVIndexStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores import SimpleVectorStore

from llamaindex_rlm import RLMKVStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError


@pytest.fixture
def store(store_path: Path) -> Iterator[RLMKVStore]:
    opened = RLMKVStore.from_params(store_path)
    yield opened
    assert opened.client.check()
    opened.client.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_it_behaves_as_the_store_of_the_framework(store: RLMKVStore, colour: str) -> None:
    def call(of: Any, name: str, *arguments: Any) -> Any:
        method = getattr(of, name if colour == "sync" else f"a{name}")
        result = method(*arguments)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    def told(of: Any) -> list[Any]:
        return [
            call(of, "put", "a", {"n": 1, "deep": {"list": [1.5, None, "ü"]}}),
            call(of, "put", "a", {"n": 2}),
            call(of, "put", "a", {"n": 3}, "other"),
            call(of, "put_all", [("b", {}), ("a", {"n": 4}), ("b", {"twice": True})]),
            call(of, "get", "a"),
            call(of, "get", "unknown"),
            call(of, "get", "a", "unknown"),
            list(call(of, "get_all").items()),
            call(of, "get_all", "other"),
            call(of, "get_all", "unknown"),
            call(of, "delete", "a"),
            call(of, "delete", "a"),
            call(of, "get_all"),
        ]

    assert told(store) == told(SimpleKVStore())


def test_batches_of_any_size_are_one_transaction(store: RLMKVStore) -> None:
    with pytest.raises(InvalidInputError, match="'bad'"):
        store.put_all([("good", {}), ("bad", {"x": object()})], batch_size=100)
    assert store.get_all() == {}
    store.put_all([(str(i), {"i": i}) for i in range(1000)], batch_size=100)
    assert len(store.get_all()) == 1000


def test_index_is_there_again_from_the_file_alone(store_path: Path) -> None:
    """Its nodes and its structure are in the store, with nothing persisted besides."""

    def storage(memory: Memory) -> StorageContext:
        kept = RLMKVStore(memory)
        return StorageContext.from_defaults(
            docstore=KVDocumentStore(kept), index_store=KVIndexStore(kept), vector_store=SimpleVectorStore()
        )

    with Memory.open(store_path, embedder=None) as memory:
        index = SummaryIndex.from_documents(
            [Document(text="Ada likes tea.", id_="1"), Document(text="Bo likes coffee.", id_="2")],
            storage_context=storage(memory),
        )
        index.set_index_id("drinks")
    with Memory.open(store_path, embedder=None) as memory:
        index = load_index_from_storage(storage(memory), index_id="drinks")
        found = index.as_retriever().retrieve("anything")
        assert [hit.node.get_content() for hit in found] == ["Ada likes tea.", "Bo likes coffee."]
        index.delete_ref_doc("1", delete_from_docstore=True)
        assert memory.count() == 0, "what a framework keeps is no memory"
    with Memory.open(store_path, embedder=None) as memory:
        assert [node.text for node in KVDocumentStore(RLMKVStore(memory)).docs.values()] == ["Bo likes coffee."]


def test_ingestion_pipeline_keeps_its_cache_and_documents_in_the_store(store: RLMKVStore) -> None:
    def pipeline() -> IngestionPipeline:
        return IngestionPipeline(
            transformations=[SentenceSplitter()],
            docstore=KVDocumentStore(store),
            docstore_strategy=DocstoreStrategy.DUPLICATES_ONLY,
            cache=IngestionCache(cache=store),
        )

    documents = [Document(text="Ada likes tea.", id_="1")]
    assert len(pipeline().run(documents=documents)) == 1
    assert pipeline().run(documents=documents) == [], "it is known and unchanged"
    assert len(pipeline().run(documents=[Document(text="Ada likes coffee.", id_="1")])) == 1
