"""The public API as a type checker sees it. It is checked and never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, assert_type

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryResult
from numpy.typing import NDArray
from workflows import Context, Workflow

import langchain_rlm
import llamaindex_rlm
from rlm_memory import (
    Access,
    AsyncConversations,
    AsyncMemory,
    CheckReport,
    Condition,
    Conversations,
    Edge,
    Embedder,
    ForgottenAccesses,
    Hit,
    Hits,
    LogEntry,
    Memory,
    Message,
    Model2VecEmbedder,
    Node,
    OpenAIEmbedder,
    Problem,
    PromotionDecision,
    PromotionLog,
    PromotionPolicy,
    RLMError,
    Session,
    SessionRecord,
    Stats,
    TierCounts,
    WordLlamaEmbedder,
    checkpoints,
    resolve_embedder,
)
from rlm_memory.checkpoints import CheckpointStore, RLMCheckpoint, RLMSession


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
            assert_type(entry.decision.conditions[0], Condition)
        assert_type(memory.accesses("a"), list[Access])
        assert_type(memory.forgotten_accesses("a"), list[ForgottenAccesses])
        assert_type(memory.sessions(), list[SessionRecord])
        assert_type(memory.timeline(), list[TierCounts])
        assert_type(memory.links("a"), list[Edge])
        for problem in memory.check():
            assert_type(problem, Problem)
        assert_type(memory.conversations, Conversations)
        assert_type(memory.conversations.append("monday", ["hello"]), list[Message])


def embedders(memory: Memory) -> None:
    for embedder in (OpenAIEmbedder(), Model2VecEmbedder("name"), WordLlamaEmbedder()):
        taken: Embedder = embedder
        assert_type(taken.embed(["a"]), NDArray[np.float32])
    assert_type(resolve_embedder("wordllama"), Embedder | None)
    try:
        memory.add("a")
    except RLMError as error:
        assert_type(str(error), str)


async def awaited(memory: AsyncMemory) -> None:
    assert_type(await memory.add("a"), list[str])
    assert_type(await memory.search("a"), Hits)
    assert_type(await memory.get("a"), list[Node])
    assert_type(await memory.stats(), Stats)
    assert_type(memory.conversations, AsyncConversations)
    assert_type(await memory.conversations.list("monday"), list[Message])


def sessions_with_checkpoints() -> None:
    store = CheckpointStore("checkpoints", limits=checkpoints.Limits(file=1 << 20))
    session = RLMSession.restore("a", store=store)
    assert_type(session, RLMSession)
    checkpoint = RLMCheckpoint.load("a.rlmc")
    assert_type(checkpoint, RLMCheckpoint)
    assert_type(checkpoint.diff(checkpoint), checkpoints.Diff)
    assert_type(checkpoint.issues, list[checkpoints.Issue])
    assert_type(store.list("a"), list[checkpoints.CheckpointInfo])
    assert_type(store.verify(), list[checkpoints.Finding])
    assert_type(store.journal("a"), checkpoints.Journal)
    assert_type(session.pending_operations, list[checkpoints.Operation])
    assert_type(session.resume({"llm": str}), checkpoints.Resumption)
    assert_type(checkpoints.recorder_of(session), checkpoints.Recorder)
    assert_type(checkpoints.usage_of("gpt", {"input_tokens": 1}), checkpoints.Usage | None)
    assert_type(checkpoints.dumps({1, 2}), bytes)
    value: object = checkpoints.loads(checkpoints.dumps({1, 2}))
    if isinstance(value, checkpoints.Unrestored):
        assert_type(value.unrestored_source, str | None)
    assert_type(len(checkpoints.FORMAT_VERSION), int)
    checkpoints.register_migration(0, lambda manifest, heap: (manifest, heap))


def errors_of_checkpoints() -> tuple[
    type[LookupError],
    type[OSError],
    type[TimeoutError],
    type[AttributeError],
    type[ValueError],
    Sequence[type[RLMError]],
]:
    return (
        checkpoints.CheckpointNotFoundError,
        checkpoints.CheckpointWriteError,
        checkpoints.CheckpointBusyError,
        checkpoints.UnrestoredValueError,
        checkpoints.OperationError,
        [
            checkpoints.CheckpointDamagedError,
            checkpoints.CheckpointLimitError,
            checkpoints.CheckpointSignatureError,
            checkpoints.CheckpointVersionError,
            checkpoints.UnsavableValueError,
        ],
    )


def langchain(memory: Memory, embedding: Embeddings, documents: list[Document]) -> None:
    assert_type(langchain_rlm.as_embedder(embedding), Embedder)
    store = langchain_rlm.RLMVectorStore(embedding, path="memory.db")
    assert_type(store.add_documents(documents), list[str])
    narrowing: langchain_rlm.Narrowing = {"filter": {"year": 2024}, "tiers": ["longterm"]}
    options: langchain_rlm.SearchOptions = {"filter": {"year": 2024}, "alpha": 0.3}
    assert_type(store.similarity_search("a", k=2, **options), list[Document])
    assert_type(store.similarity_search_by_vector([1.0], **narrowing), list[Document])
    assert_type(store.similarity_search_with_score("a"), list[tuple[Document, float]])
    assert_type(langchain_rlm.RLMRetriever(memory=memory).invoke("a"), list[Document])
    handler = langchain_rlm.RLMCallbackHandler(memory)
    assert_type(handler.feedback("run", True), int)
    assert_type(langchain_rlm.RLMPythonREPLTool(path="checkpoints").name, str)


async def langchain_awaited(memory: Memory) -> None:
    handler = langchain_rlm.AsyncRLMCallbackHandler(memory, session_id="monday")
    assert_type(await handler.feedback("run", True), int)


def langgraph(memory: Memory, session: RLMSession, config: RunnableConfig) -> None:
    saver = langchain_rlm.RLMSaver("memory.db", serde=langchain_rlm.RLMSerializer())
    assert_type(saver.get_tuple(config), CheckpointTuple | None)
    store = langchain_rlm.RLMStore(memory)
    assert_type([item.key for item in store.search(("users",), query="tea")], list[str])
    assert_type(langchain_rlm.RLMMemoryMiddleware(memory).memory, Memory)
    assert_type(langchain_rlm.RLMGraphCallbackHandler(session).rlm_session, RLMSession)


def llamaindex(memory: Memory, embedding: BaseEmbedding, nodes: Sequence[BaseNode]) -> None:
    assert_type(llamaindex_rlm.as_embedder(embedding), Embedder)
    store = llamaindex_rlm.RLMVectorStore(memory=memory)
    assert_type(store.add(nodes), list[str])
    assert_type(store.query(VectorStoreQuery(query_str="a")), VectorStoreQueryResult)
    assert_type(llamaindex_rlm.RLMRetriever(memory).retrieve("a"), list[NodeWithScore])
    assert_type(llamaindex_rlm.RLMKVStore(memory).get("a"), dict[str, Any] | None)
    assert_type(llamaindex_rlm.RLMSyncChatStore(memory).get_messages("monday"), list[ChatMessage])
    assert_type(llamaindex_rlm.RLMCodeInterpreter(path="checkpoints").python("1"), str)
    assert_type(llamaindex_rlm.RLMSerializer().serialize({1}), str)
    assert_type(llamaindex_rlm.RLMMemoryBlock(memory).name, str)


def llamaindex_watched(memory: Memory, session: RLMSession) -> None:
    spans = llamaindex_rlm.RLMSpanHandler(memory, rlm_session=session)
    assert_type(spans.class_name(), str)
    watched = llamaindex_rlm.tracked(memory, rlm_session=session)
    taken: AbstractContextManager[llamaindex_rlm.RLMEventHandler] = watched
    with taken as handler:
        assert_type(handler.feedback("run", False), int)


async def llamaindex_awaited(memory: Memory, workflow: Workflow, ctx: Context[Any]) -> None:
    assert_type(await llamaindex_rlm.RLMChatStore(memory).get_messages("monday"), list[ChatMessage])
    assert_type(await llamaindex_rlm.save_context(memory, ctx, session_id="monday"), str)
    assert_type(await llamaindex_rlm.load_context(memory, workflow, session_id="monday"), Context[Any])


def records(access: Access, edge: Edge, message: Message, record: SessionRecord, counts: TierCounts) -> None:
    assert_type(access.at, datetime)
    assert_type(edge.source, str)
    assert_type(message.key, str)
    assert_type(record.ended_at, datetime | None)
    assert_type(counts.counts, Mapping[str, int])
