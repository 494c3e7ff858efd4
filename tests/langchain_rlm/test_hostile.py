"""Every public method of what is exported: hostile texts are texts or refused, and no namespace sees another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_core.tools import ToolException
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

import langchain_rlm
from hostile_calls import Subject, call_everything, results_of
from hostile_texts import HOSTILE, MARK, is_text, rows_of
from langchain_rlm import (
    AsyncRLMCallbackHandler,
    RLMCallbackHandler,
    RLMGraphCallbackHandler,
    RLMMemoryMiddleware,
    RLMPythonREPLTool,
    RLMRetriever,
    RLMSaver,
    RLMSerializer,
    RLMStore,
    RLMVectorStore,
)
from public_calls import Argument, settled
from rlm_memory import Memory, RLMError
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.filters import And, Column, Comparison, Key, Not, Operator
from support import WordEmbedder

RUN = UUID(int=7)


def config(text: str) -> dict[str, Any]:
    place = {"thread_id": text, "checkpoint_ns": text, "checkpoint_id": text}
    return {"configurable": place, "metadata": {text: text, "session_id": text, "run_id": text}}


def checkpoint(text: str) -> dict[str, Any]:
    return {
        **empty_checkpoint(), "id": text, "channel_values": {text: text}, "channel_versions": {text: 1},
        "versions_seen": {text: {text: 1}},
    }  # fmt: skip


def run_config(text: str) -> dict[str, Any]:
    return {"configurable": {"session_id": text}, "metadata": {"session_id": text, text: text}, "tags": [text]}


SEARCHES: dict[str, Argument] = {
    "query": lambda text: text,
    "filter": [lambda text: {text: text}, lambda text: {"$or": [{"a": {"$like": text}}, {"node.id": {"$in": [text]}}]}],
    "session_id": lambda text: text,
    "tiers": lambda text: [text],
    "types": lambda text: [text],
    "embedding": lambda text: [1.0] * 16,
    "search_type": [lambda text: "hybrid", lambda text: text],
}
NARROWING = ("filter", "session_id", "tiers", "types")
DOCUMENTS: dict[str, Argument] = {
    "documents": lambda text: [Document(text, id=text, metadata={text: text})],
    "texts": lambda text: [text],
    "metadatas": lambda text: [{text: text}],
    "ids": lambda text: [text],
    "type": lambda text: text,
    "tier": lambda text: text,
    "subtype": lambda text: text,
    "provenance": lambda text: text,
}


def vector_store(memory: Memory) -> Subject:
    searches = {
        f"{a}{name}": NARROWING
        for a in ("", "a")
        for name in (
            "search", "similarity_search", "similarity_search_with_score", "similarity_search_with_hits",
            "similarity_search_with_relevance_scores", "similarity_search_by_vector", "max_marginal_relevance_search",
            "max_marginal_relevance_search_by_vector",
        )
    }  # fmt: skip
    columns = ("ids", "type", "tier", "subtype", "provenance")
    additions = {f"{a}{name}": columns for a in ("", "a") for name in ("add_documents", "add_texts")}
    deletions = {"delete": ("filter",), "adelete": ("filter",)}
    return Subject(
        RLMVectorStore(memory=memory),
        {**SEARCHES, **DOCUMENTS},
        {**searches, **additions, **deletions},
        # they open a store of their own, whose path has a test of its own, and add to it as add_texts does
        frozenset({"from_texts", "afrom_texts", "from_documents", "afrom_documents", "as_retriever"}),
        ("langchain_core.vectorstores",),
    )


def retriever(make: Any) -> Subject:
    return Subject(
        make,
        {"input": lambda text: text, "config": run_config, "filter": lambda text: {text: text},
         "session_id": lambda text: text},
        # the keywords of one call are those of a search where the retriever is over a vector store
        {} if isinstance(make, RLMRetriever) else {"invoke": ("filter", "session_id"),
                                                   "ainvoke": ("filter", "session_id")},
    )  # fmt: skip


def key_value_store(memory: Memory) -> Subject:
    return Subject(
        RLMStore(memory),
        {
            "namespace": [lambda text: (text,), lambda text: ("users", text)],
            "namespace_prefix": [lambda text: (text,), lambda text: ()],
            "key": lambda text: text,
            "value": lambda text: {text: text},
            "query": lambda text: text,
            "filter": [lambda text: {text: text}, lambda text: {text: {"$gt": text}}],
            "index": lambda text: [text],
            "prefix": lambda text: (text,),
            "suffix": lambda text: (text,),
            "ops": [
                lambda text: [PutOp(("users",), text, {text: text}), GetOp(("users",), text)],
                lambda text: [
                    SearchOp((text,), query=text), ListNamespacesOp((MatchCondition("suffix", (text,)),)),
                    PutOp((text, text), text, {"a": text}, index=[text]), PutOp((text,), text, None),
                ],
                lambda text: [ListNamespacesOp((MatchCondition(text, ("a",)),))],
            ],
        },
        without=frozenset({"start_ttl_sweeper"}),  # a thread that calls sweep_ttl
        roots=("langgraph.store",),
        refusals=(InvalidNamespaceError,),
    )  # fmt: skip


def saver(memory: Memory) -> Subject:
    return Subject(
        RLMSaver(memory=memory),
        {
            "config": config,
            "checkpoint": checkpoint,
            "metadata": lambda text: {"source": text, "step": 1, text: text},
            "new_versions": lambda text: {text: 1},
            "writes": lambda text: [(text, text), ("__error__", text)],
            "task_id": lambda text: text,
            "task_path": lambda text: text,
            "filter": [lambda text: {text: text}, lambda text: {"source": {"$like": text}}],
            "before": config,
            "run_ids": lambda text: [text],
            "thread_ids": lambda text: [text],
            "thread_id": lambda text: text,
            "strategy": lambda text: text,
            "source_thread_id": lambda text: text,
            "target_thread_id": lambda text: f"{text} again",
            "current": lambda text: 1,
            "channel": lambda text: None,
            "channels": lambda text: [text],
        },
        without=frozenset({"with_allowlist", "close"}),
        roots=("langgraph.checkpoint",),
    )


def middleware(memory: Memory) -> Subject:
    def state(text: str) -> dict[str, Any]:
        run = {"session_id": text, "turn": 1, "run_id": text, "ids": [text]}
        return {"messages": [HumanMessage(text), AIMessage(text)], "rlm_memory": run}

    def request(text: str) -> Any:
        found = SimpleNamespace(state=state(text), system_message=None)
        found.override = lambda **changes: SimpleNamespace(**{**vars(found), **changes})
        return found

    async def answer(request: Any) -> Any:
        return request.system_message

    return Subject(
        RLMMemoryMiddleware(memory, scope={"user": "ada"}),
        {
            "state": state,
            "runtime": lambda text: SimpleNamespace(context=None, state=state(text)),
            "request": request,
            "handler": lambda text: lambda request: request.system_message,
            "awrap_model_call.handler": lambda text: answer,
            "awrap_tool_call.handler": lambda text: answer,
        },
        without=frozenset({"state_schema"}),
    )


def handler(made: RLMCallbackHandler | AsyncRLMCallbackHandler) -> Subject:
    return Subject(
        made,
        {
            "serialized": lambda text: {"name": text, "id": [text]},
            "inputs": lambda text: {text: text},
            "outputs": lambda text: {text: text},
            "input_str": lambda text: text,
            "output": lambda text: text,
            "query": lambda text: text,
            "prompts": lambda text: [text],
            "messages": lambda text: [[HumanMessage(text)]],
            "documents": lambda text: [Document(text, id=text, metadata={text: text})],
            "response": lambda text: LLMResult(generations=[[Generation(text=text)]], llm_output={text: text}),
            "error": lambda text: ValueError(text),
            "metadata": lambda text: {"session_id": text, text: text},
            "run_id": lambda text: RUN,
            "feedback.run_id": lambda text: text,
            "parent_run_id": lambda text: None,
            "session_id": lambda text: text,
            "success": lambda text: True,
            "name": lambda text: text,
        },
        dict.fromkeys(("on_chain_start", "on_llm_start", "on_tool_start", "on_retriever_start"), ("name",)),
    )


def graph_handler(session: RLMSession) -> Subject:
    def event(text: str) -> Any:
        return SimpleNamespace(
            run_id=RUN,
            status=text,
            checkpoint_id=text,
            checkpoint_ns=(text,),
            interrupts=(SimpleNamespace(value=text),),
        )

    return Subject(RLMGraphCallbackHandler(session), {"event": event})


def repl_tool(folder: Path) -> Subject:
    code: list[Callable[[str], Any]] = [lambda text: {"code": f"x = {text!r}\nx"}, lambda text: {"code": text}]
    return Subject(
        RLMPythonREPLTool(path=folder, session_id="s"),
        {"input": code, "tool_input": code, "config": run_config},
        without=frozenset({"close", "get_input_schema", "get_input_jsonschema", "model_copy"}),
        roots=("langchain_core.tools",),
    )


def serializer() -> Subject:
    return Subject(
        RLMSerializer(),
        {
            "obj": lambda text: {text: (text, {text})},
            "data": [
                lambda text: ("rlmc", text.encode("utf-8", "surrogatepass")),
                lambda text: (text, b""),
            ],
        },
        refusals=(NotImplementedError,),
    )


def things(memory: Memory, folder: Path) -> dict[str, list[Subject]]:
    """Return what there is to be called of each name that the package exports."""
    session = RLMSession("s", store=CheckpointStore(folder / "checkpoints"))
    store = RLMVectorStore(memory=memory)
    recording = [made(memory, rlm_session=session) for made in (RLMCallbackHandler, AsyncRLMCallbackHandler)]
    return {
        "RLMVectorStore": [vector_store(memory), retriever(store.as_retriever())],
        "RLMRetriever": [retriever(RLMRetriever(memory=memory))],
        "RLMStore": [key_value_store(memory)],
        "RLMSaver": [saver(memory)],
        "RLMMemoryMiddleware": [middleware(memory)],
        "RLMCallbackHandler": [handler(RLMCallbackHandler(memory)), handler(recording[0])],
        "AsyncRLMCallbackHandler": [handler(recording[1])],
        "RLMGraphCallbackHandler": [graph_handler(session)],
        "RLMPythonREPLTool": [repl_tool(folder / "repl")],
        "RLMSerializer": [serializer()],
    }


NO_OBJECTS = {
    "Narrowing", "SearchOptions",  # what keywords there are
    "as_embedder",  # wraps what the caller has made
}  # fmt: skip


def test_every_name_that_is_exported_is_called(memory: Memory, tmp_path: Path) -> None:
    assert things(memory, tmp_path).keys() == set(langchain_rlm.__all__) - NO_OBJECTS


@pytest.fixture
def memory(store_path: Path) -> Any:
    with Memory.open(store_path, embedder=WordEmbedder(16)) as memory:
        memory.add("a text", ids=["a"], metadatas=[{"user": "ada"}])
        yield memory


@pytest.fixture
def other(store_path: Path, memory: Memory) -> Any:
    """Another tenant of the same file, who keeps something of every kind."""
    with Memory.open(store_path, embedder=WordEmbedder(16), namespace="other") as other:
        yield other


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_texts_are_taken_as_texts_or_refused_by_every_method(
    memory: Memory, other: Memory, store_path: Path, tmp_path: Path, text: str
) -> None:
    """B020 B033 B036"""
    fill(other)
    before = rows_of(store_path, "other")
    subjects = [subject for listed in things(memory, tmp_path).values() for subject in listed]
    taken = await call_everything(store_path, "default", subjects, text[:100_000])
    assert len(taken) > 100
    assert rows_of(store_path, "other") == before
    assert list(memory.check()) == []
    assert memory.get("a")[0].text == "a text"


def fill(memory: Memory) -> None:
    """Keep something of each kind under the words and ids that the other tenant uses."""
    RLMVectorStore(memory=memory).add_documents([Document(f"{MARK} text", id=MARK, metadata={MARK: MARK, "n": 1})])
    for namespace in ((MARK,), ("users", MARK)):
        RLMStore(memory).put(namespace, MARK, {MARK: MARK})
    own = RLMSaver(memory=memory)
    stored = own.put(config(MARK), checkpoint(MARK), {"source": MARK, "step": 1, MARK: MARK}, {MARK: 1})  # type: ignore[typeddict-unknown-key,arg-type]
    own.put_writes(stored, [(MARK, MARK)], MARK, MARK)
    with memory.session(MARK) as session:
        session.record_access([MARK], run_id=MARK)
    memory.promote(MARK, "longterm", reason=MARK)
    memory.sessions()


@pytest.mark.parametrize("empty", [True, False], ids=["an empty one", "one with the same ids"])
async def test_no_method_shows_or_changes_what_another_namespace_keeps(
    memory: Memory, other: Memory, store_path: Path, tmp_path: Path, empty: bool
) -> None:
    fill(other)
    before = rows_of(store_path, "other"), exported(other, tmp_path / "before")
    if empty:
        for name, shown in (await results_of(reading(memory, tmp_path), MARK)).items():
            assert MARK not in shown or name in ECHOES, f"{name}: {shown}"
    else:
        subjects = [subject for listed in things(memory, tmp_path).values() for subject in listed]
        assert await call_everything(store_path, "default", subjects, MARK)
    assert (rows_of(store_path, "other"), exported(other, tmp_path / "after")) == before
    assert other.check()


async def test_no_method_shows_or_changes_what_another_namespace_of_a_server_keeps(
    postgres_url: str, tmp_path: Path
) -> None:
    with (
        Memory.open(postgres_url, embedder=WordEmbedder(16)) as memory,
        Memory.open(postgres_url, embedder=WordEmbedder(16), namespace="other") as other,
    ):
        fill(other)
        before = exported(other, tmp_path / "before"), list(RLMSaver(memory=other).list(None))
        for name, shown in (await results_of(reading(memory, tmp_path), MARK)).items():
            assert MARK not in shown or name in ECHOES, f"{name}: {shown}"
        fill(memory)
        assert await results_of([each for some in things(memory, tmp_path).values() for each in some], MARK)
        assert (exported(other, tmp_path / "after"), list(RLMSaver(memory=other).list(None))) == before


async def test_the_methods_show_to_the_namespace_itself_what_it_keeps(other: Memory, tmp_path: Path) -> None:
    """Or the test above would see nothing, whatever they did."""
    fill(other)
    shown = {name for name, shown in (await results_of(reading(other, tmp_path), MARK)).items() if MARK in shown}
    assert shown - ECHOES > {
        "RLMVectorStore.similarity_search", "RLMVectorStore.aget_by_ids", "RLMVectorStoreRetriever.ainvoke",
        "RLMRetriever.invoke", "RLMStore.get", "RLMStore.asearch", "RLMStore.list_namespaces", "RLMSaver.list",
        "RLMSaver.aget_tuple", "RLMSaver.tiers_at", "RLMMemoryMiddleware.awrap_model_call",
    }  # fmt: skip


def reading(memory: Memory, folder: Path) -> list[Subject]:
    """Return all there is to be called on a memory, but for what adds or deletes something."""
    made = {name: subjects for name, subjects in things(memory, folder).items() if name not in WITHOUT_MEMORY}
    listed = [subject for listed in made.values() for subject in listed]
    return [dataclasses.replace(subject, without=subject.without | WRITES) for subject in listed]


def exported(memory: Memory, path: Path) -> list[str]:
    memory.export(path)
    return path.read_text().splitlines()


WRITES = frozenset({
    "add_documents", "aadd_documents", "add_texts", "aadd_texts", "put", "aput", "put_writes", "aput_writes", "batch",
    "abatch", "delete", "adelete", "delete_thread", "adelete_thread", "delete_for_runs", "adelete_for_runs",
})  # fmt: skip
WITHOUT_MEMORY = frozenset({"RLMPythonREPLTool", "RLMSerializer"})
ECHOES = frozenset({  # what was asked
    "RLMSaver.get_delta_channel_history", "RLMSaver.aget_delta_channel_history", "RLMCallbackHandler.turn_of",
    "AsyncRLMCallbackHandler.turn_of",
})  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_document_of_hostile_texts_comes_back_as_it_went_in(memory: Memory, text: str) -> None:
    store = RLMVectorStore(memory=memory)
    document = Document(text, id=text, metadata={text: text, "in": [text, {text: text}]})
    others = memory.count()
    if not is_text(text):
        with pytest.raises(RLMError, match="surrogate"):
            store.add_documents([document])
        assert memory.count() == others
        return
    [id] = store.add_documents([document])
    assert id == text or (text == "" and id)
    assert store.get_by_ids([id]) == [document.model_copy(update={"id": id})]
    where = And((Comparison(Key(text), Operator.EQ, text), Comparison(Column("text"), Operator.EQ, text)))
    assert store.similarity_search(text or "a", k=9, filter=where) == store.get_by_ids([id])
    assert store.similarity_search("a", k=9, filter=Not(where)) == store.get_by_ids(["a"])
    assert store.delete([id])
    assert memory.count() == others


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_item_of_hostile_texts_comes_back_as_it_was_put(memory: Memory, text: str) -> None:
    store = RLMStore(memory)
    label = "".join(text.split(".")).replace("\0", "") or "x"  # the framework allows neither dots nor NUL there
    namespace, value = ("users", label), {text: text, "in": [text]}
    if not is_text(text):
        with pytest.raises(RLMError, match="surrogate"):
            await store.aput(namespace, text, value)
        assert store.list_namespaces() == []
        return
    await store.aput(namespace, text, value)
    store.put(("users", "other"), text, {"v": 1})
    found = await store.aget(namespace, text)
    assert found is not None
    assert (found.namespace, found.key, found.value) == (namespace, text, value)
    assert [item.value for item in store.search(namespace)] == [value]
    assert namespace in store.list_namespaces(prefix=namespace)
    store.delete(namespace, text)
    assert [item.value for item in store.search(())] == [{"v": 1}]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_checkpoint_of_hostile_texts_comes_back_as_it_was_put(memory: Memory, text: str) -> None:
    saver = RLMSaver(memory=memory)
    put = {"configurable": {"thread_id": text, "checkpoint_ns": text}}
    value = checkpoint(text) if text else {**checkpoint("x"), "channel_values": {"": ""}, "channel_versions": {"": 1}}
    if not is_text(text):
        with pytest.raises(RLMError, match="surrogate"):
            await saver.aput(put, value, {"source": text}, {text: 1})  # type: ignore[arg-type,typeddict-item]
        assert list(saver.list(None)) == []
        return
    stored = await saver.aput(put, value, {"source": text, "own": [text]}, {text: 1})  # type: ignore[arg-type,typeddict-item,typeddict-unknown-key]
    await saver.aput_writes(stored, [(text, text)], text, text)
    found = await saver.aget_tuple(stored)
    assert found is not None
    assert found.config == stored
    assert found.checkpoint == value
    assert found.metadata == {"source": text.replace("\0", ""), "own": [text]}  # the framework's doing
    assert found.pending_writes == [(text, text, text)]
    assert [each.config for each in saver.list(put, filter={"own": [text]})] == [stored]
    assert list(saver.list(put, filter={"own": [f"{text}x"]})) == []
    await saver.adelete_thread(text)
    assert list(saver.list(None)) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_tools_of_an_agent_take_hostile_texts(memory: Memory, other: Memory, store_path: Path, text: str) -> None:
    fill(other)
    before = rows_of(store_path, "other")
    runtime = SimpleNamespace(context=None, state={}, config={}, tool_call_id="1", store=None, stream_writer=None)
    for tool in RLMMemoryMiddleware(memory, scope={"user": "ada"}).tools:
        [name] = [name for name, field in tool.args_schema.model_fields.items() if field.annotation is str]  # type: ignore[union-attr]
        for call in (tool.func, tool.coroutine):  # type: ignore[union-attr]
            try:
                given = {"type": "fact", "confidence": 0.5} if tool.name == "remember" else {}
                answer = await settled(call(runtime=runtime, **{name: text}, **given))
                assert isinstance(answer, str)
            except ToolException as refused:
                error = refused.__cause__
                assert isinstance(error, RLMError)
    assert rows_of(store_path, "other") == before
    assert list(memory.check()) == []


def deep(levels: int, wrap: Callable[[Any], Any] = lambda inner: {"a": inner}) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("levels", [150, 900, 100_000])
def test_what_is_nested_too_deeply_is_refused_and_nothing_written(memory: Memory, levels: int) -> None:
    values = [deep(levels), {"a": deep(levels, lambda inner: [inner])}]
    store, documents, saver = RLMStore(memory), RLMVectorStore(memory=memory), RLMSaver(memory=memory)
    before = memory.count()
    for value in values:
        if levels > 200:
            with pytest.raises(RLMError, match="nested"):
                store.put(("a",), "key", value)
            with pytest.raises(RLMError, match="nested"):
                documents.add_documents([Document("text", metadata=value)])
            assert memory.count() == before
        with pytest.raises(RLMError, match="nested"):
            store.search(("a",), filter=value)
        with pytest.raises(RLMError, match="nested"):
            documents.similarity_search("a", filter=value)
        with pytest.raises(RLMError, match="nested"):
            list(saver.list(None, filter=value))
        stored = saver.put(config("1"), checkpoint("1"), {"source": "loop", "deep": value, "n": 1}, {"1": 1})  # type: ignore[typeddict-unknown-key,arg-type]
        found = saver.get_tuple(stored)
        assert found is not None
        assert found.metadata["n"] == 1  # type: ignore[typeddict-item]
