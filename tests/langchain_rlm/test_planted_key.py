"""An API key that the objects, configs, errors and addresses of LangChain have is written nowhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.tools import tool
from langgraph.checkpoint.base import empty_checkpoint
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from langchain_rlm import (
    RLMCallbackHandler,
    RLMGraphCallbackHandler,
    RLMMemoryMiddleware,
    RLMPythonREPLTool,
    RLMRetriever,
    RLMSaver,
    RLMStore,
    RLMVectorStore,
    as_embedder,
)
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from scripted_model import ScriptedModel, call
from support import WordEmbedder

KEY = "sk-planted-0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(config=ConfigDict(arbitrary_types_allowed=True))
class KeyedEmbeddings(Embeddings):
    """Embeddings of a provider, which show their key to whoever asks for their repr."""

    model: str = "words"
    api_key: str = KEY

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return WordEmbedder(16).embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@tool
def fetch(api_key: str, headers: dict[str, str]) -> str:
    """Fetch."""
    raise ValueError(f"401 for https://me:{KEY}@host/?api_key={KEY}")


def test_a_planted_key_reaches_no_file_log_error_or_repr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    embeddings = KeyedEmbeddings()
    assert KEY in repr(embeddings)
    config: Any = {
        "configurable": {"thread_id": "t", "checkpoint_ns": "", "openai_api_key": KEY, "session_id": "s"},
        "metadata": {"api_key": KEY, "headers": {"Authorization": f"Bearer {KEY}"}, "note": f"use {KEY}", "who": "ada"},
        "tags": [KEY],
    }
    checkpoints = CheckpointStore(tmp_path / "checkpoints")
    session = RLMSession("s", store=checkpoints)
    with Memory.open(tmp_path / "memory.db", embedder=as_embedder(embeddings)) as memory:
        handler = RLMCallbackHandler(memory, rlm_session=session)
        store = RLMVectorStore(memory=memory)
        store.add_documents([Document("green tea", id="tea"), Document("black coffee", id="coffee")])
        things: list[Any] = [
            store, store.as_retriever(), RLMRetriever(memory=memory), RLMStore(memory), RLMSaver(memory=memory),
            RLMMemoryMiddleware(memory), handler, memory, memory.embedder, session,
        ]  # fmt: skip
        config["callbacks"] = [handler, RLMGraphCallbackHandler(session)]
        for retriever in (store.as_retriever(), RLMRetriever(memory=memory)):
            assert retriever.invoke("green tea", config)[0].id == "tea"
        with pytest.raises(ValueError, match="401"):
            fetch.invoke({"api_key": KEY, "headers": {"x-api-key": KEY}}, config)
        with pytest.raises(InvalidInputError) as refused:
            RLMVectorStore(KeyedEmbeddings(model="other"), memory=memory)
        things.append(refused.value)
        saver = RLMSaver(memory=memory)
        stored = saver.put(config, empty_checkpoint(), {"source": "input", "step": 1, "token": KEY}, {})  # type: ignore[typeddict-unknown-key]
        found = saver.get_tuple(stored)
        assert found is not None
        things.append(found.metadata)
        things.append([found.metadata for found in saver.list(None, filter={"who": "ada"})])
        agent = create_agent(ScriptedModel(script=[call("search_memory", question="tea"), "Tea."]),
                             middleware=[RLMMemoryMiddleware(memory)])  # fmt: skip
        agent.invoke({"messages": [("user", "Which tea?")]}, config)
        with RLMPythonREPLTool(store=checkpoints, session_id="repl") as python:
            python.invoke({"code": "x = 1"}, config)
        session.checkpoint()
        memory.backup(tmp_path / "backup.db")
        memory.export(tmp_path / "export.jsonl")
        things += [memory.stats(), list(memory.promotion_log()), memory.accesses("tea"), session.trajectory_events]
    ours = [record for record in caplog.records if record.name.startswith(("langchain_rlm", "rlm_memory"))]
    for text in [*map(repr, things), *map(str, things), *(record.getMessage() for record in ours)]:
        assert KEY not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
