"""Retrievers: what they take, what they return, what they tell those who trace them, their copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.load import dumpd
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import create_retriever_tool
from pydantic import ValidationError

from langchain_rlm import RLMRetriever, RLMVectorStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidFilterError, InvalidInputError, StoreClosedError


class Recorder(BaseCallbackHandler):
    """Keeps the events of retrievers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.tags: list[str] = []

    def on_retriever_start(
        self,
        serialized: Any,
        query: str,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.events.append(("start", query))
        self.metadata, self.tags = metadata or {}, tags or []

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.events.append(("end", len(documents)))

    def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(("error", type(error)))


@pytest.fixture(params=["RLMRetriever", "as_retriever"])
def retriever(request: pytest.FixtureRequest, store: RLMVectorStore) -> Any:
    """Either kind of retriever over the six documents."""
    return RLMRetriever(memory=store.memory) if request.param == "RLMRetriever" else store.as_retriever()


@pytest.mark.parametrize("search_type", ["similarity", "hybrid", "mmr", "similarity_score_threshold"])
async def test_every_kind_of_search_is_there(store: RLMVectorStore, search_type: str):
    keywords = {"k": 2, "score_threshold": 0.1}
    retriever = store.as_retriever(search_type=search_type, search_kwargs=keywords)
    found = retriever.invoke("Ada drinks tea")
    assert found[0].id == "tea"
    assert found == store.search("Ada drinks tea", search_type, **keywords)
    assert found == await retriever.ainvoke("Ada drinks tea")
    assert found == await store.asearch("Ada drinks tea", search_type, **keywords)


@pytest.mark.parametrize("arguments", [{"search_type": "telepathy"}, {"k": 2}, {"search_kwarg": {"k": 2}}])
def test_an_argument_that_is_not_known_is_refused(store: RLMVectorStore, arguments: dict[str, Any]):
    """B049"""
    with pytest.raises(ValidationError):
        store.as_retriever(**arguments)
    with pytest.raises(ValidationError):
        RLMRetriever(memory=store.memory, search_kwargs={"k": 1})


async def test_keywords_of_one_call_come_before_those_of_the_retriever(store: RLMVectorStore):
    narrow = {"k": 1, "alpha": 0, "filter": {"source": "a"}}
    for retriever in (store.as_retriever(search_kwargs=narrow), RLMRetriever(memory=store.memory, **narrow)):
        assert [document.id for document in retriever.invoke("Ada lives")] == ["oslo"]
        other = {"filter": {"source": "b"}, "k": 9, "alpha": 1}
        found = retriever.invoke("Ada lives", **other)
        assert {document.id for document in found} == {"coffee", "rome"}
        assert found == await retriever.ainvoke("Ada lives", **other)
        assert len(retriever.invoke("Ada lives")) == 1


async def test_a_misspelled_keyword_of_a_call_is_refused(retriever: Any):
    with pytest.raises(TypeError, match="'fliter'"):
        retriever.invoke("Ada", fliter={"source": "a"})
    with pytest.raises(TypeError, match="'fliter'"):
        await retriever.ainvoke("Ada", fliter={"source": "a"})


def test_the_fields_of_a_retriever_are_what_searches_take(store: RLMVectorStore):
    store.add_texts(["Ada was here"], ids=["old"], tier="archive", confidence=0.9, type="decision")
    for fields in (
        {"include_archived": True, "min_confidence": 0.8},
        {"tiers": ["archive"]},
        {"types": ["decision"], "include_archived": True},
        {"include_archived": True, "score_threshold": 0.9, "alpha": 0, "filter": {"node.id": "old"}},
    ):
        assert [document.id for document in RLMRetriever(memory=store.memory, **fields).invoke("Ada here")] == ["old"]


def test_documents_are_as_they_went_in_unless_scores_are_asked_for(store: RLMVectorStore, documents: list[Document]):
    retriever = RLMRetriever(memory=store.memory, k=9)
    assert {document.id for document in retriever.invoke("Ada")} == {document.id for document in documents}
    assert all(document in documents for document in retriever.invoke("Ada"))
    first, *_ = retriever.invoke("ERR_4711", scores_key="found by")
    scores = first.metadata.pop("found by")
    assert first in documents
    assert scores.keys() == {"score", "semantic", "keyword", "relevance"}
    assert (scores["score"], scores["relevance"]) == (1.0, 1.0)


async def test_scores_in_the_metadata_fall(store: RLMVectorStore):
    retriever = RLMRetriever(memory=store.memory, k=9, scores_key="scores")
    scores = [document.metadata["scores"]["score"] for document in await retriever.ainvoke("Ada lives in Rome")]
    assert scores == sorted(scores, reverse=True)


def test_a_retriever_can_open_its_memory(store_path: Path, documents: list[Document], embeddings: Any):
    RLMVectorStore.from_documents(documents, embeddings, path=store_path).memory.close()
    retriever = RLMRetriever(path=store_path, embedding=embeddings, k=1)
    assert retriever.invoke("Ada drinks green tea")[0].id == "tea"
    retriever.memory.close()
    with pytest.raises(StoreClosedError):
        retriever.invoke("Ada")


def test_a_retriever_needs_a_memory_and_only_one(store: RLMVectorStore, store_path: Path):
    with pytest.raises(InvalidInputError, match="path="):
        RLMRetriever()
    with pytest.raises(InvalidInputError, match="path"):
        RLMRetriever(memory=store.memory, path=store_path)


# -- tracing --------------------------------------------------------------------------------------------------------


async def test_events_tell_the_question_the_end_and_the_error(retriever: Any):
    sync, awaited = Recorder(), Recorder()
    retriever.invoke("Ada", {"callbacks": [sync]}, k=2)
    await retriever.ainvoke("Ada", {"callbacks": [awaited]}, k=2)
    assert sync.events == awaited.events == [("start", "Ada"), ("end", 2)]
    with pytest.raises(InvalidFilterError):
        retriever.invoke("Ada", {"callbacks": [sync]}, filter={"$nor": []})
    assert sync.events[2:] == [("start", "Ada"), ("error", InvalidFilterError)]


def test_tracers_are_told_the_store_the_embedder_and_the_model(retriever: Any):
    recorder = Recorder()
    retriever.invoke("Ada", {"callbacks": [recorder]})
    assert recorder.metadata["ls_vector_store_provider"] == "RLMVectorStore"
    assert recorder.metadata["ls_embedding_provider"] == "WordEmbeddings"
    assert recorder.metadata["ls_embedding_model"] == "words"
    assert recorder.metadata["ls_retriever_name"] in ("rlm", "rlmvectorstore")


def test_tracers_are_told_nothing_of_an_embedder_that_is_not_there():
    recorder = Recorder()
    RLMVectorStore.from_texts(["x"]).as_retriever().invoke("x", {"callbacks": [recorder]})
    assert not {"ls_embedding_provider", "ls_embedding_model"} & recorder.metadata.keys()


def test_tags_name_the_store_and_its_embeddings_unless_given(store: RLMVectorStore):
    recorder = Recorder()
    store.as_retriever().invoke("Ada", {"callbacks": [recorder]})
    assert recorder.tags == ["RLMVectorStore", "WordEmbeddings"]
    store.as_retriever(tags=["mine"], name="Mine", metadata={"m": 1}).invoke("Ada", {"callbacks": [recorder]})
    assert (recorder.tags, recorder.metadata["m"]) == (["mine"], 1)


# -- as the framework's own -----------------------------------------------------------------------------------------


def test_fields_can_be_configured_for_a_call(store: RLMVectorStore):
    own = RLMRetriever(memory=store.memory).configurable_fields(k=ConfigurableField("k"), alpha=ConfigurableField("a"))
    assert len(own.invoke("Ada", {"configurable": {"k": 2, "a": 0}})) == 2
    assert len(own.invoke("Ada")) == 4
    theirs = store.as_retriever(search_type="hybrid").configurable_fields(search_kwargs=ConfigurableField("how"))
    assert len(theirs.with_config(configurable={"how": {"k": 1}}).invoke("Ada")) == 1


def test_a_retriever_is_a_tool(retriever: Any):
    tool = create_retriever_tool(retriever, "recall", "What is known?")
    assert tool.invoke({"query": "ERR_4711"}).startswith("The pump shows ERR_4711")


def test_documents_can_be_added_through_the_retriever_of_a_store(store: RLMVectorStore):
    retriever = store.as_retriever()
    assert retriever.add_documents([Document(id="new", page_content="A zebra")]) == ["new"]
    assert retriever.invoke("zebra", k=1)[0].id == "new"


def test_it_is_described_for_others_without_the_memory(retriever: Any):
    assert dumpd(retriever)["type"] == "not_implemented"


COPIES = [copy.deepcopy, lambda retriever: pickle.loads(pickle.dumps(retriever))]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("make", [lambda s: RLMRetriever(memory=s.memory, k=1), lambda s: s.as_retriever()])
def test_a_copy_of_a_retriever_reads_the_same_file(
    store_path: Path, copied: Callable[[Any], Any], make: Callable[[RLMVectorStore], Any]
):
    """B158"""
    store = RLMVectorStore.from_texts(["x"], DeterministicFakeEmbedding(size=8), path=store_path)
    retriever = make(store)
    other = copied(retriever)
    store.memory.close()
    assert [document.page_content for document in other.invoke("x")] == ["x"]


@pytest.mark.parametrize("copied", COPIES)
def test_a_retriever_over_a_memory_without_a_file_cannot_be_copied(retriever: Any, copied: Callable[[Any], Any]):
    """B158"""
    with pytest.raises(TypeError, match=":memory:"):
        copied(retriever)


def test_a_memory_can_be_shared_by_retrievers_of_both_kinds():
    with Memory.open(":memory:", embedder=None) as memory:
        memory.add(["Ada drinks tea"])
        own, theirs = RLMRetriever(memory=memory), RLMVectorStore(memory=memory).as_retriever()
        assert own.invoke("tea") == theirs.invoke("tea")
