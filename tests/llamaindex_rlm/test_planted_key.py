"""An API key that the objects, tags, errors and addresses of LlamaIndex have is written nowhere."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.schema import TextNode
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation.dispatcher import instrument_tags

from llamaindex_rlm import (
    RLMChatStore,
    RLMCodeInterpreter,
    RLMKVStore,
    RLMMemoryBlock,
    RLMRetriever,
    RLMSyncChatStore,
    RLMVectorStore,
    as_embedder,
    tracked,
)
from llamaindex_support import WordEmbedding
from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import RLMError

# every member of a component is looked at when it is made a tool of
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning")

KEY = "sk-planted-0123456789abcdefghijklmnopqrstuvwxyz"


class KeyedEmbedding(WordEmbedding):
    """An embedding of a provider, which shows its key to whoever asks for its repr."""

    api_key: str = KEY


def fetch(api_key: str, headers: dict[str, str]) -> str:
    """Fetch."""
    raise ValueError(f"401 for https://me:{KEY}@host/?api_key={KEY}")


async def test_a_planted_key_reaches_no_file_log_error_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    embedding = KeyedEmbedding(model_name="words")
    assert KEY in repr(embedding)
    checkpoints = CheckpointStore(tmp_path / "checkpoints")
    session = RLMSession("s", store=checkpoints)
    with Memory.open(tmp_path / "memory.db", embedder=as_embedder(embedding)) as memory:
        store = RLMVectorStore(memory)
        store.add([TextNode(text="green tea", id_="tea"), TextNode(text="black coffee", id_="coffee")])
        block, chats = RLMMemoryBlock(memory, tokenizer_fn=str.split), RLMChatStore(memory)
        things: list[Any] = [
            store, RLMRetriever(memory), block, chats, RLMSyncChatStore(memory), RLMKVStore(memory), memory,
            memory.embedder, session, json.dumps(store.to_dict()), chats.to_dict(),
        ]  # fmt: skip
        with (
            tracked(memory, session_id="s", rlm_session=session) as handler,
            instrument_tags({"session_id": "s", "api_key": KEY, "headers": {"Authorization": KEY}, "note": KEY}),
        ):
            things.append(handler)
            assert (await RLMRetriever(memory, similarity_top_k=1).aretrieve("green tea"))[0].node_id == "tea"
            with contextlib.suppress(ValueError):
                FunctionTool.from_defaults(fetch).call(api_key=KEY, headers={"x-api-key": KEY})
            chat = ChatMemory.from_defaults(
                session_id="s", memory_blocks=[block], chat_store=chats, tokenizer_fn=str.split
            )
            await chat.aput(ChatMessage("Which tea?"))
            await chat.aget()
            await block.aend_session(chat, success=True)
        with pytest.raises(RLMError) as refused:
            RLMVectorStore.from_dict(store.to_dict(), embedding=KeyedEmbedding(model_name="other"))
        things.append(refused.value)
        interpreter = RLMCodeInterpreter(store=checkpoints, session_id="repl")
        interpreter.python("x = 1")
        interpreter.close()
        session.checkpoint()
        memory.backup(tmp_path / "backup.db")
        memory.export(tmp_path / "export.jsonl")
        things += [memory.stats(), list(memory.promotion_log()), memory.accesses("tea"), session.trajectory_events]
    ours = [record for record in caplog.records if record.name.startswith(("llamaindex_rlm", "rlm_memory"))]
    for text in [*map(repr, things), *map(str, things), *(record.getMessage() for record in ours)]:
        assert KEY not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
