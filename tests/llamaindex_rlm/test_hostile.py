"""Every public method of what is exported: hostile texts are texts or refused, and no namespace sees another."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step

import llamaindex_rlm
from hostile_calls import Subject, call_everything, results_of
from hostile_texts import HOSTILE, MARK, is_text, rows_of
from llamaindex_rlm import (
    RLMChatStore,
    RLMCodeInterpreter,
    RLMEventHandler,
    RLMKVStore,
    RLMMemoryBlock,
    RLMRetriever,
    RLMSerializer,
    RLMSpanHandler,
    RLMSyncChatStore,
    RLMVectorStore,
    load_context,
    save_context,
    tracked,
)
from rlm_memory import Memory, RLMError
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from support import WordEmbedder

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning")

OF_PYDANTIC = frozenset({"custom_model_dump", "dict", "json", "to_json", "from_json", "class_name"})
OPENS = frozenset({"from_params"})
"""They open a file, whose path has a test of its own."""

QUERIES: list[Any] = [
    lambda text: VectorStoreQuery(query_str=text, mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=9),
    lambda text: VectorStoreQuery(query_str=text, mode=VectorStoreQueryMode.HYBRID, similarity_top_k=9),
    lambda text: VectorStoreQuery(query_embedding=[1.0] * 16, similarity_top_k=9),
    lambda text: VectorStoreQuery(query_embedding=[1.0] * 16, mode=VectorStoreQueryMode.MMR, similarity_top_k=9),
    lambda text: VectorStoreQuery(query_embedding=[1.0] * 16, doc_ids=[text]),
    lambda text: VectorStoreQuery(query_embedding=[1.0] * 16, node_ids=[text]),
    lambda text: VectorStoreQuery(query_embedding=[1.0] * 16, filters=filters(text)),
]


def filters(text: str) -> MetadataFilters:
    operators = (FilterOperator.EQ, FilterOperator.TEXT_MATCH, FilterOperator.CONTAINS, FilterOperator.GT)
    return MetadataFilters(
        filters=[
            *(MetadataFilter(key=text, value=text, operator=operator) for operator in operators),
            MetadataFilter(key=text, value=[text], operator=FilterOperator.IN),
        ],
        condition="or",  # type: ignore[arg-type]  # pydantic takes it
    )


def node(text: str) -> TextNode:
    related = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=text)}
    return TextNode(id_=text, text=text, metadata={text: text, "in": [text]}, relationships=related)


def message(text: str, role: str = "user") -> ChatMessage:
    return ChatMessage(role=role, content=text, additional_kwargs={text: text, "session_id": text})


def vector_store(memory: Memory) -> Subject:
    options = ("session_id", "tiers", "types")
    columns = ("type", "tier", "subtype", "provenance")
    return Subject(
        RLMVectorStore(memory),
        {
            "nodes": lambda text: [node(text)],
            "ref_doc_id": lambda text: text,
            "node_ids": lambda text: [text],
            "filters": filters,
            "query": QUERIES,
            "session_id": lambda text: text,
            "tiers": lambda text: [text],
            "types": lambda text: [text],
            "type": lambda text: text,
            "tier": lambda text: text,
            "subtype": lambda text: text,
            "provenance": lambda text: text,
            "data": lambda text: {"path": text, "namespace": text, "alpha": 0.5},
            "persist_path": lambda text: text,
        },
        {"query": options, "aquery": options, "add": columns, "async_add": columns},
        OPENS | OF_PYDANTIC,
        ("llama_index.core.vector_stores",),
    )


def chat_store(made: RLMChatStore | RLMSyncChatStore) -> Subject:
    return Subject(
        made,
        {
            "key": lambda text: text,
            "message": message,
            "messages": lambda text: [message(text)],
            "idx": lambda text: 0,
            "n": lambda text: 1,
            "data": lambda text: {"path": text, "namespace": text},
        },
        without=OPENS | OF_PYDANTIC,
        roots=("llama_index.core.storage",),
    )


def key_value_store(memory: Memory) -> Subject:
    return Subject(
        RLMKVStore(memory),
        {
            "key": lambda text: text,
            "val": lambda text: {text: text},
            "collection": lambda text: text,
            "kv_pairs": lambda text: [(text, {text: text})],
        },
        without=OPENS,
        roots=("llama_index.core.storage",),
    )


def memory_block(memory: Memory) -> Subject:
    def chat(text: str) -> ChatMemory:
        return ChatMemory.from_defaults(
            session_id=text or "s", chat_store=RLMChatStore(memory), tokenizer_fn=str.split, chat_history=None
        )

    return Subject(
        RLMMemoryBlock(memory=memory, tokenizer_fn=str.split),
        {
            "messages": lambda text: [message(text), message(text, "assistant")],
            "session_id": lambda text: text,
            "memory": chat,
            "content": lambda text: f"{text}\n{text}",
            "tokens_to_truncate": lambda text: 1,
            "from_short_term_memory": lambda text: True,
        },
        {"aget": ("session_id",)},
        roots=("llama_index.core.memory",),
    )


def retriever(made: RLMRetriever) -> Subject:
    return Subject(
        made,
        {"str_or_query_bundle": [lambda text: text, lambda text: QueryBundle(query_str=text)]},
        without=frozenset({"get_prompts", "update_prompts"}),
        roots=("llama_index.core.base",),
    )


def event_handler(made: RLMEventHandler) -> Subject:
    def end(text: str) -> RetrievalEndEvent:
        return RetrievalEndEvent(
            str_or_query_bundle=text, nodes=[NodeWithScore(node=node(text), score=1)], span_id=text, tags={text: text}
        )

    return Subject(
        made,
        {
            "event": [end, lambda text: RetrievalStartEvent(str_or_query_bundle=text, span_id=text)],
            "run_id": lambda text: text,
            "success": lambda text: True,
            "session_id": lambda text: text,
        },
        without=OF_PYDANTIC,
    )


def span_handler(made: RLMSpanHandler) -> Subject:
    def question(query: str) -> None:
        """Stand for what is called in a span."""

    return Subject(
        made,
        {
            "id_": lambda text: text,
            "bound_args": lambda text: inspect.signature(question).bind(text),
            "instance": lambda text: None,
            "parent_span_id": lambda text: text,
            "tags": lambda text: {text: text, "session_id": text},
            "err": lambda text: ValueError(text),
            "result": lambda text: text,
        },
        without=OF_PYDANTIC,
    )


def interpreter(folder: Path) -> Subject:
    return Subject(
        RLMCodeInterpreter(path=folder, session_id="s"),
        {"code": [lambda text: f"x = {text!r}\nx", lambda text: text]},
        without=frozenset({"close"}),
    )


def serializer() -> Subject:
    return Subject(
        RLMSerializer(),
        {
            "value": lambda text: {text: (text, {text})},
            "data": [
                lambda text: {text: text},
                lambda text: {"__rlmc": text},
                lambda text: {"__is_pydantic": True, "qualified_name": text, "value": text},
            ],
            "deserialize.value": lambda text: text,
            "path": lambda text: text,
        },
        roots=("workflows.context.serializers",),
        without=frozenset({"resolve_class", "validation_context"}),  # the framework's own
        refusals=(ValueError,),
    )


class Waiting(Workflow):
    """A workflow of one step."""

    @step
    async def start(self, event: StartEvent) -> StopEvent:
        return StopEvent(result="done")


class Contexts:
    """The functions for contexts and for tracking, as methods."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    async def save_context(self, session_id: str, key: str, value: str) -> str:
        ctx: Context[Any] = Context(Waiting())
        await ctx.store.set(key, value)
        return await save_context(self.memory, ctx, session_id=session_id)

    async def load_context(self, session_id: str, checkpoint_id: str | None = None) -> Any:
        ctx = await load_context(self.memory, Waiting(), session_id=session_id, checkpoint_id=checkpoint_id)
        return ctx.to_dict()

    def tracked(self, session_id: str) -> Any:
        with tracked(self.memory, session_id=session_id) as handler:
            return handler


def contexts(memory: Memory) -> Subject:
    texts = ("session_id", "checkpoint_id", "key", "value")
    return Subject(
        Contexts(memory),
        dict.fromkeys(texts, lambda text: text),
        roots=(__name__,),
        refusals=(ValueError,),  # of the framework's state, about keys
    )


def things(memory: Memory, folder: Path) -> dict[str, list[Subject]]:
    """Return what there is to be called of each name that the package exports."""
    session = RLMSession("s", store=CheckpointStore(folder / "checkpoints"))
    plain, recording = (RLMEventHandler(memory), RLMEventHandler(memory, rlm_session=session))
    return {
        "RLMVectorStore": [vector_store(memory)],
        "RLMRetriever": [retriever(RLMRetriever(memory))],
        "RLMChatStore": [chat_store(RLMChatStore(memory))],
        "RLMSyncChatStore": [chat_store(RLMSyncChatStore(memory))],
        "RLMKVStore": [key_value_store(memory)],
        "RLMMemoryBlock": [memory_block(memory)],
        "RLMEventHandler": [event_handler(plain), event_handler(recording)],
        "RLMSpanHandler": [span_handler(RLMSpanHandler(plain)), span_handler(RLMSpanHandler(recording))],
        "RLMCodeInterpreter": [interpreter(folder / "repl")],
        "RLMSerializer": [serializer()],
        "load_context": [contexts(memory)], "save_context": [], "tracked": [],  # methods of one object here
    }  # fmt: skip


def test_every_name_that_is_exported_is_called(memory: Memory, tmp_path: Path) -> None:
    assert things(memory, tmp_path).keys() == set(llamaindex_rlm.__all__) - {"as_embedder"}


@pytest.fixture
def memory(store_path: Path) -> Iterator[Memory]:
    with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
        memory.add("a text", ids=["a"])
        yield memory


@pytest.fixture
def other(store_path: Path, memory: Memory) -> Iterator[Memory]:
    """Another tenant of the same file."""
    with Memory.open(store_path, embedder=WordEmbedder(16), namespace="other") as other:
        yield other


async def fill(memory: Memory) -> None:
    """Keep something of each kind under the words and ids that the other tenant uses."""
    RLMVectorStore(memory).add([node(MARK)])
    await RLMChatStore(memory).add_messages(MARK, [message(MARK), message(MARK)])
    RLMKVStore(memory).put(MARK, {MARK: MARK}, MARK)
    RLMKVStore(memory).put(MARK, {MARK: MARK})
    await Contexts(memory).save_context(MARK, MARK, MARK)
    with memory.session(MARK) as session:
        session.record_access([MARK], run_id=MARK)
    memory.promote(MARK, "longterm", reason=MARK)
    memory.sessions()


def exported(memory: Memory, path: Path) -> list[str]:
    memory.export(path)
    return path.read_text().splitlines()


def kept_beside(memory: Memory) -> tuple[Any, ...]:
    """Return what is kept under the words of the other tenant beside nodes and conversations."""
    return RLMKVStore(memory).get_all(MARK), memory.threads("llamaindex").get(MARK)


def calls(memory: Memory, folder: Path) -> list[Subject]:
    return [subject for listed in things(memory, folder).values() for subject in listed]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_texts_are_taken_as_texts_or_refused_by_every_method(
    memory: Memory, other: Memory, store_path: Path, tmp_path: Path, text: str
) -> None:
    """B020 B033 B036"""
    await fill(other)
    before = rows_of(store_path, "other")
    # what deletes everything comes last
    subjects = sorted(calls(memory, tmp_path), key=lambda subject: isinstance(subject.thing, RLMVectorStore))
    taken = await call_everything(store_path, "default", subjects, text[:100_000])
    assert len(taken) > 60
    assert rows_of(store_path, "other") == before
    assert list(memory.check()) == []


WRITES = frozenset({
    "add", "async_add", "add_message", "add_messages", "async_add_message", "set_messages", "aset_messages", "put",
    "aput", "put_all", "aput_all", "save_context", "aflush", "aend_session", "clear", "aclear", "delete", "adelete",
    "delete_nodes", "adelete_nodes", "delete_messages", "adelete_messages",
    "delete_message", "adelete_message", "delete_oldest_messages", "archive_oldest_messages", "delete_last_message",
    "adelete_last_message",
})  # fmt: skip
WITHOUT_MEMORY = frozenset({"RLMCodeInterpreter", "RLMSerializer"})
ECHOES = frozenset({"RLMMemoryBlock.atruncate"})


def reading(memory: Memory, folder: Path) -> list[Subject]:
    """Return all there is to be called on a memory, but for what adds or deletes something."""
    made = {name: subjects for name, subjects in things(memory, folder).items() if name not in WITHOUT_MEMORY}
    listed = [subject for listed in made.values() for subject in listed]
    return [dataclasses.replace(subject, without=subject.without | WRITES) for subject in listed]


@pytest.mark.parametrize("empty", [True, False], ids=["an empty one", "one with the same ids"])
async def test_no_method_shows_or_changes_what_another_namespace_keeps(
    memory: Memory, other: Memory, store_path: Path, tmp_path: Path, empty: bool
) -> None:
    await fill(other)
    before = rows_of(store_path, "other"), exported(other, tmp_path / "before")
    if empty:
        for name, shown in (await results_of(reading(memory, tmp_path), MARK)).items():
            assert MARK not in shown or name in ECHOES, f"{name}: {shown}"
    else:
        await fill(memory)
        assert await call_everything(store_path, "default", calls(memory, tmp_path), MARK)
    assert (rows_of(store_path, "other"), exported(other, tmp_path / "after")) == before
    assert other.check()


async def test_no_method_shows_or_changes_what_another_namespace_of_a_server_keeps(
    postgres_url: str, tmp_path: Path
) -> None:
    with (
        Memory.open(postgres_url, embedder=WordEmbedder(16)) as memory,
        Memory.open(postgres_url, embedder=WordEmbedder(16), namespace="other") as other,
    ):
        await fill(other)
        before = exported(other, tmp_path / "before"), *kept_beside(other)
        for name, shown in (await results_of(reading(memory, tmp_path), MARK)).items():
            assert MARK not in shown or name in ECHOES, f"{name}: {shown}"
        await fill(memory)
        assert await results_of(calls(memory, tmp_path), MARK)
        assert (exported(other, tmp_path / "after"), *kept_beside(other)) == before


async def test_the_methods_show_to_the_namespace_itself_what_it_keeps(other: Memory, tmp_path: Path) -> None:
    """Or the test above would see nothing, whatever they did."""
    await fill(other)
    shown = {name for name, shown in (await results_of(reading(other, tmp_path), MARK)).items() if MARK in shown}
    assert shown - ECHOES > {
        "RLMVectorStore.query", "RLMVectorStore.aquery", "RLMVectorStore.get_nodes", "RLMRetriever.retrieve",
        "RLMRetriever.aretrieve", "RLMChatStore.get_messages", "RLMChatStore.get_keys", "RLMSyncChatStore.get_keys",
        "RLMKVStore.get", "RLMKVStore.aget_all", "RLMMemoryBlock.aget(messages)", "Contexts.load_context",
    }  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_node_of_hostile_texts_comes_back_as_it_went_in(memory: Memory, text: str) -> None:
    store = RLMVectorStore(memory)
    if not is_text(text):
        with pytest.raises(RLMError, match=r"surrogate|utf-8"):
            store.add([node(text)])
        assert memory.count() == 1
        return
    given = node(text)
    [id] = await store.async_add([given])
    assert id == text or (text == "" and id)
    [found] = store.get_nodes([id])
    given.id_ = id
    assert found == given
    assert [each.node_id for each in store.get_nodes(filters=filters(text))] == [id]
    result = store.query(VectorStoreQuery(query_embedding=[1.0] * 16, doc_ids=[text], similarity_top_k=9))
    assert result.ids == [id]
    await store.adelete(text)
    assert [each.id for each in memory.list()] == ["a"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_chat_and_values_under_hostile_keys_come_back_as_they_went_in(memory: Memory, text: str) -> None:
    chats, plain, values = RLMChatStore(memory), RLMSyncChatStore(memory), RLMKVStore(memory)
    if not is_text(text):
        with pytest.raises(RLMError, match=r"surrogate|utf-8"):
            await chats.add_message("key", message(text))
        with pytest.raises(RLMError, match="surrogate"):
            values.put(text, {"a": 1})
        values.put("a", {text: text})
        assert (plain.get_keys(), values.get_all()) == ([], {"a": {text: text}})
        return
    await chats.add_message(text, message(text))
    plain.add_message(text, message(text, "assistant"))
    plain.add_message(f"{text}x", message("other"))
    values.put(text, {text: text}, text)
    await values.aput(f"{text}x", {"a": 1}, f"{text}x")
    assert await chats.get_messages(text) == plain.get_messages(text) == [message(text), message(text, "assistant")]
    assert set(plain.get_keys()) == {text, f"{text}x"}
    assert await values.aget_all(text) == {text: {text: text}}
    assert plain.delete_messages(text) == [message(text), message(text, "assistant")]
    assert values.delete(text, text)
    assert plain.get_keys() == [f"{text}x"]
    assert values.get(f"{text}x", f"{text}x") == {"a": 1}


@pytest.mark.parametrize("text", [text for text in HOSTILE.values() if is_text(text)])
async def test_context_under_a_hostile_session_id_comes_back_as_it_was_saved(memory: Memory, text: str) -> None:
    made = Contexts(memory)
    other = await made.save_context("other", "key", "other")
    saved = await made.save_context(text, "key", text)
    ctx = await load_context(memory, Waiting(), session_id=text, checkpoint_id=saved)
    assert await ctx.store.get("key") == text
    with pytest.raises(RLMError, match="no saved context"):
        await load_context(memory, Waiting(), session_id=text, checkpoint_id=other)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_documents_of_hostile_ids_live_in_the_store(memory: Memory, text: str) -> None:
    documents = KVDocumentStore(RLMKVStore(memory))
    given = TextNode(id_=text, text=text, metadata={text: text})
    if not is_text(text):
        with pytest.raises(RLMError, match="surrogate"):
            documents.add_documents([given])
        assert documents.docs == {}
        return
    documents.add_documents([given])
    assert documents.get_document(text) == given
    assert list(documents.docs) == [text]
    documents.delete_document(text)
    assert documents.docs == {}


def deep(levels: int, wrap: Any = lambda inner: {"a": inner}, value: Any = 1) -> Any:
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("levels", [900, 5_000])
async def test_what_is_nested_too_deeply_is_refused_and_nothing_written(memory: Memory, levels: int) -> None:
    value, store, chats = deep(levels), RLMVectorStore(memory), RLMChatStore(memory)
    with pytest.raises(RLMError, match="cannot write"):
        store.add([TextNode(text="text", metadata=value)])
    with pytest.raises(RLMError, match="cannot write"):
        await chats.add_message("key", ChatMessage("text", additional_kwargs=value))
    nested = deep(
        levels,
        lambda inner: MetadataFilters.model_construct(filters=[inner], condition="and"),
        MetadataFilter(key="a", value=1),
    )
    with pytest.raises(RLMError, match="nested"):
        store.get_nodes(filters=nested)
    with pytest.raises(ValueError, match="cannot be serialised"):
        RLMSerializer().serialize(value)
    assert memory.count() == 1
    assert await chats.get_keys() == []
