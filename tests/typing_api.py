"""The public API as a type checker sees it. It is checked and never run."""

from __future__ import annotations

from typing import assert_type

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult

import langchain_rlm
import llamaindex_rlm
from rlm_memory import (
    AsyncMemory,
    CheckReport,
    Hit,
    Hits,
    LogEntry,
    Memory,
    Node,
    PromotionDecision,
    PromotionLog,
    PromotionPolicy,
    Session,
    Stats,
)
from rlm_memory.checkpoints import CheckpointStore, RLMCheckpoint, RLMSession, dumps


def core() -> None:
    with Memory.open("memory.db", embedder="wordllama", policy=PromotionPolicy(min_uses=3)) as memory:
        assert_type(memory, Memory)
        assert_type(memory.add(["a"], metadatas=[{"year": 2024}]), list[str])
        hits = memory.search("a", k=3, where={"year": {"$gte": 2000}}, tiers=["longterm"])
        assert_type(hits, Hits)
        for hit in hits:
            assert_type(hit, Hit)
            assert_type(hit.node, Node)
            assert_type(hit.text, str)
            assert_type(hit.score, float)
            assert_type(hit.semantic, float | None)
            assert_type(hit.keyword, float | None)
        assert_type(memory.get("a"), list[Node])
        assert_type(memory.list(where={"year": 2024}), list[Node])
        assert_type(memory.count(), int)
        assert_type(memory.delete("a"), int)
        assert_type(memory.stats(), Stats)
        assert_type(memory.check(), CheckReport)
        assert_type(memory.export("nodes.jsonl"), int)
        with memory.session("monday") as session:
            assert_type(session, Session)
        assert_type(memory.sweep(dry_run=True), list[PromotionDecision])
        assert_type(memory.explain_promotion("a"), PromotionDecision)
        log = memory.promotion_log("a")
        assert_type(log, PromotionLog)
        for entry in log:
            assert_type(entry, LogEntry)


async def awaited(memory: AsyncMemory) -> None:
    assert_type(await memory.add("a"), list[str])
    assert_type(await memory.search("a"), Hits)
    assert_type(await memory.get("a"), list[Node])
    assert_type(await memory.stats(), Stats)


def checkpoints() -> None:
    store = CheckpointStore("checkpoints")
    assert_type(RLMSession.restore("a", store=store), RLMSession)
    assert_type(RLMCheckpoint.load("a.rlmc"), RLMCheckpoint)
    assert_type(dumps({1, 2}), bytes)


def langchain(memory: Memory, embedding: Embeddings, documents: list[Document]) -> None:
    store = langchain_rlm.RLMVectorStore(embedding, path="memory.db")
    assert_type(store.add_documents(documents), list[str])
    assert_type(store.similarity_search("a", k=2, filter={"year": 2024}), list[Document])
    assert_type(store.similarity_search_with_score("a"), list[tuple[Document, float]])
    assert_type(langchain_rlm.RLMRetriever(memory=memory).invoke("a"), list[Document])


def llamaindex(memory: Memory, nodes: list[BaseNode]) -> None:
    store = llamaindex_rlm.RLMVectorStore(memory=memory)
    assert_type(store.add(nodes), list[str])
    assert_type(store.query(VectorStoreQuery(query_str="a")), VectorStoreQueryResult)
    assert_type(llamaindex_rlm.RLMRetriever(memory).retrieve("a"), list[NodeWithScore])
