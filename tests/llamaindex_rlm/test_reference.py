"""A vector store is stored as a reference to its file, and copies open it again."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.workflow import Context, JsonSerializer, StartEvent, StopEvent, Workflow, step

from llamaindex_rlm import RLMSyncChatStore, RLMVectorStore, as_embedder
from llamaindex_support import WordEmbedding
from rlm_memory import Memory
from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError

NODE = TextNode(id_="a", text="red fox", embedding=[1.0] * 64)


def words(store: RLMVectorStore) -> list[str]:
    query = VectorStoreQuery(query_str="fox", mode=VectorStoreQueryMode.TEXT_SEARCH)
    return [node.get_content() for node in store.query(query).nodes or []]


@pytest.fixture
def store(store_path: Path, embedding: WordEmbedding):
    store = RLMVectorStore.from_params(store_path, embedding=embedding, namespace="tenant", alpha=0.25)
    store.add([NODE])
    yield store
    store.client.close()


def test_reference_names_file_and_namespace_and_nothing_secret(store: RLMVectorStore, store_path: Path) -> None:
    assert store.to_dict() == {
        "stores_text": True, "is_embedding_query": True, "flat_metadata": False, "path": str(store_path),
        "namespace": "tenant", "alpha": 0.25, "class_name": "RLMVectorStore",
    }  # fmt: skip


def test_reference_opens_the_same_store(store: RLMVectorStore) -> None:
    """B109."""
    data = json.loads(store.to_json())
    again = RLMVectorStore.from_dict(data)
    assert words(again) == ["red fox"]
    assert (again.client.namespace, again.client.alpha, again.client.embedder) == ("tenant", 0.25, None)
    again.add([TextNode(id_="b", text="blue whale", embedding=[0.5] * 64)])
    assert {node.node_id for node in store.get_nodes()} == {"a", "b"}
    again.client.close()


def test_reference_takes_an_embedding_or_the_memory(store: RLMVectorStore, embedding: WordEmbedding) -> None:
    again = RLMVectorStore.from_dict(store.to_dict(), embedding=embedding)
    assert again.query(VectorStoreQuery(query_str="red fox")).ids == ["a"]
    again.client.close()
    with pytest.raises(EmbeddingMismatchError):
        RLMVectorStore.from_dict(store.to_dict(), embedding=WordEmbedding(model_name="other"))
    assert RLMVectorStore.from_dict(store.to_dict(), memory=store.client).client is store.client
    with (
        Memory.open(":memory:", embedder=None) as other,
        pytest.raises(InvalidInputError, match="not the store of this reference"),
    ):
        RLMVectorStore.from_dict(store.to_dict(), memory=other)


def test_reference_to_a_file_that_is_gone_makes_no_empty_store(store: RLMVectorStore, store_path: Path) -> None:
    """B158."""
    data = {**store.to_dict(), "path": str(store_path.with_name("gone.db"))}
    with pytest.raises(InvalidInputError, match="no store at"):
        RLMVectorStore.from_dict(data)
    assert not store_path.with_name("gone.db").exists()
    with pytest.raises(InvalidInputError, match="no store at"):
        RLMVectorStore.from_dict({**data, "path": "no file has a name so long" * 1000})


def test_store_in_memory_has_no_reference() -> None:
    store = RLMVectorStore.from_params(":memory:")
    for action in (store.to_dict, store.to_json, lambda: pickle.dumps(store), lambda: copy.deepcopy(store)):
        with pytest.raises(TypeError, match="its nodes would be lost"):
            action()
    store.client.close()


def test_copies_open_the_same_file(store: RLMVectorStore) -> None:
    """B158."""
    for copied in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert copied.client is not store.client
        assert words(copied) == ["red fox"]
        assert copied.query(VectorStoreQuery(query_str="red fox")).ids == ["a"]
        copied.client.close()
    assert copy.copy(store).client is store.client
    assert words(store) == ["red fox"]


def test_relative_path_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = RLMVectorStore.from_params("memory.db")
    store.add([NODE])
    data = store.to_dict()
    store.client.close()
    monkeypatch.chdir("/")
    again = RLMVectorStore.from_dict(data)
    assert words(again) == ["red fox"]
    again.client.close()


class Remembering(Workflow):
    @step
    async def start(self, ctx: Context, event: StartEvent) -> StopEvent:
        if (store := await ctx.store.get("store", default=None)) is None:
            await ctx.store.set("store", event.store)
            return StopEvent(result="stored")
        return StopEvent(result=words(store))


async def test_store_survives_in_the_context_of_a_workflow(store: RLMVectorStore) -> None:
    """B109."""
    workflow = Remembering()
    handler = workflow.run(store=store)
    assert await handler == "stored"
    for serializer in (JsonSerializer(), JsonSerializer(allowed_types=[RLMVectorStore])):
        saved = json.loads(json.dumps(handler.ctx.to_dict(serializer=serializer)))
        context = Context.from_dict(Remembering(), saved, serializer=serializer)
        again = await context.store.get("store")
        assert again is not store
        assert await Remembering().run(ctx=context) == ["red fox"]
        again.client.close()


def test_memory_stays_open_with_the_one_who_opened_it(store_path: Path, embedding: WordEmbedding) -> None:
    with Memory.open(store_path, embedder=as_embedder(embedding)) as memory:
        store = RLMVectorStore(memory=memory)
        store.add([NODE])
        del store
        assert memory.count() == 1


def test_reference_to_a_server_says_how_to_use_it_and_connects_to_nothing(postgres_url: str) -> None:
    with Memory.open(postgres_url, embedder=None) as memory:
        store, chat_store = RLMVectorStore(memory), RLMSyncChatStore(memory)
        with pytest.raises(InvalidInputError, match=r"on a server.*Memory\.open"):
            RLMVectorStore.from_dict(store.to_dict())
        with pytest.raises(InvalidInputError, match=r"on a server.*Memory\.open"):
            RLMSyncChatStore.from_dict(chat_store.to_dict())
        assert RLMVectorStore.from_dict(store.to_dict(), memory=memory).client is memory
