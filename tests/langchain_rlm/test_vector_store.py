"""What LangChain's own suite leaves out of a vector store: scores, filters, diversity, files, ids, copies."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import VectorStore

from langchain_rlm import RLMVectorStore
from rlm_memory import Memory, Node
from rlm_memory.errors import (
    EmbeddingMismatchError,
    InvalidFilterError,
    InvalidInputError,
    InvalidNodeError,
    InvalidQueryError,
    StoreClosedError,
)

DIRECTIONS = {"east": [1.0, 0.0], "far east": [7.0, 0.0], "north": [0.0, 2.0], "west": [-3.0, 0.0]}


class Compass(Embeddings):
    """Knows four texts by their direction, and not all of them are of length 1."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [DIRECTIONS[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return DIRECTIONS[text]


def texts(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


def ids(documents: list[Document]) -> set[str | None]:
    return {document.id for document in documents}


# -- the whole interface ------------------------------------------------------------------------------------------


def test_every_public_method_of_the_interface_is_there_in_both_colours():
    """B056"""
    inherited = {"from_documents", "afrom_documents"}  # of the framework's own making, over from_texts
    for name, member in inspect.getmembers(VectorStore):
        if not name.startswith("_") and name not in inherited:
            assert getattr(RLMVectorStore, name) is not member, name


def test_every_search_has_an_awaited_twin_of_the_same_signature():
    for name, method in inspect.getmembers(RLMVectorStore, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(method) and name != "as_retriever":
            twin = getattr(RLMVectorStore, f"a{name}")
            assert inspect.iscoroutinefunction(twin), name
            assert inspect.signature(twin).parameters == inspect.signature(method).parameters


# -- scores -------------------------------------------------------------------------------------------------------


def test_greater_scores_come_first(store: RLMVectorStore):
    scores = [score for _, score in store.similarity_search_with_score("Ada drinks tea", k=6)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0


@pytest.mark.parametrize(("alpha", "best"), [(0, "word"), (0.2, "word"), (0.8, "meaning"), (1, "meaning")])
def test_alpha_weighs_meaning_against_words(store: RLMVectorStore, alpha: float, best: str):
    store.add_texts(
        ["Espresso", "A strong one"],
        ids=["word", "meaning"],
        embeddings=store.embeddings.embed_documents(["Something quite different", "Espresso"]),
    )
    assert store.similarity_search("Espresso", k=1, alpha=alpha)[0].id == best


def test_alpha_0_is_not_unset(store: RLMVectorStore):
    by_words = RLMVectorStore(memory=store.memory, alpha=0)
    (_, hit), *_ = by_words.similarity_search_with_hits("ERR_4711")
    assert hit.semantic is None
    (_, hit), *_ = store.similarity_search_with_hits("ERR_4711", alpha=0)
    assert hit.semantic is None
    (_, hit), *_ = by_words.similarity_search_with_hits("ERR_4711", alpha=1)
    assert hit.keyword is None


def test_hits_tell_the_raw_scores_and_the_node(store: RLMVectorStore):
    document, hit = store.similarity_search_with_hits("green tea", k=1)[0]
    assert document == store.get_by_ids(["tea"])[0]
    assert hit.semantic == pytest.approx(
        np.dot(*store.embeddings.embed_documents(["green tea", "Ada drinks green tea"]))
    )
    assert hit.keyword > 0
    assert (hit.node.id, hit.node.tier) == ("tea", "task")


# -- relevance ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_relevance_is_1_for_the_same_direction_and_0_for_the_opposite(storage: str):
    """B041"""
    store = RLMVectorStore.from_texts(list(DIRECTIONS), Compass(), alpha=1, embedding_storage=storage)
    found = store.similarity_search_with_relevance_scores("east", k=4)
    relevance = {document.page_content: score for document, score in found}
    assert relevance == {"east": 1.0, "far east": 1.0, "north": 0.0, "west": 0.0}
    assert [score for _, score in found] == sorted(relevance.values(), reverse=True)


def test_relevance_falls_as_the_angle_grows():
    """B041"""
    angles = np.linspace(0, np.pi, 19)
    store = RLMVectorStore(alpha=1)
    store.add_texts(
        [f"{angle:.3f}" for angle in angles], embeddings=[[np.cos(angle), np.sin(angle)] for angle in angles]
    )
    found = store.memory.search(embedding=[1.0, 0.0], k=19)
    assert [hit.text for hit in found] == [f"{angle:.3f}" for angle in angles]
    relevances = [hit.relevance for hit in found]
    assert relevances == sorted(relevances, reverse=True)
    assert relevances == pytest.approx(np.maximum(np.cos(angles), 0), abs=1e-6)


@pytest.mark.parametrize("alpha", [0, 0.3, 0.7, 1])
def test_relevance_scores_are_sorted_and_lie_in_0_to_1(store: RLMVectorStore, alpha: float):
    scores = [score for _, score in store.similarity_search_with_relevance_scores("Ada lives", k=6, alpha=alpha)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_the_exact_code_passes_a_threshold_though_meaning_weighs_more(store: RLMVectorStore):
    """B050"""
    store.add_texts([f"A pump of kind {i} is here" for i in range(300)])
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.35, "alpha": 0.7}
    )
    assert [document.id for document in retriever.invoke("ERR_4711")] == ["code"]


def test_a_threshold_means_the_same_in_every_search(store: RLMVectorStore):
    vector = store.embeddings.embed_query("Ada lives in Oslo")
    for found in (
        store.similarity_search("Ada lives in Oslo", score_threshold=0.9),
        [document for document, _ in store.similarity_search_with_score("Ada lives in Oslo", score_threshold=0.9)],
        store.max_marginal_relevance_search("Ada lives in Oslo", score_threshold=0.9),
        store.similarity_search_by_vector(vector, score_threshold=0.9),
        store.max_marginal_relevance_search_by_vector(vector, score_threshold=0.9),
    ):
        assert ids(found) == {"oslo"}


def test_a_threshold_that_nothing_passes_leaves_nothing(store: RLMVectorStore):
    assert store.similarity_search_with_relevance_scores("zebra crossing", score_threshold=0.99) == []


# -- filters ------------------------------------------------------------------------------------------------------

A_SEARCHES: dict[str, Callable[..., Awaitable[list[Any]]]] = {
    "similarity": lambda s, **kw: s.asimilarity_search("Ada", **kw),
    "score": lambda s, **kw: s.asimilarity_search_with_score("Ada", **kw),
    "hits": lambda s, **kw: s.asimilarity_search_with_hits("Ada", **kw),
    "relevance": lambda s, **kw: s.asimilarity_search_with_relevance_scores("Ada", **kw),
    "by_vector": lambda s, **kw: s.asimilarity_search_by_vector(s.embeddings.embed_query("Ada"), **kw),
    "mmr": lambda s, **kw: s.amax_marginal_relevance_search("Ada", **kw),
    "mmr_by_vector": lambda s, **kw: s.amax_marginal_relevance_search_by_vector(s.embeddings.embed_query("Ada"), **kw),
    "search": lambda s, **kw: s.asearch("Ada", "hybrid", **kw),
    "retriever": lambda s, **kw: s.as_retriever().ainvoke("Ada", **kw),
    "search_kwargs": lambda s, **kw: s.as_retriever(search_type="mmr", search_kwargs=kw).ainvoke("Ada"),
}
SEARCHES: dict[str, Callable[..., list[Any]]] = {
    "similarity": lambda s, **kw: s.similarity_search("Ada", **kw),
    "score": lambda s, **kw: s.similarity_search_with_score("Ada", **kw),
    "hits": lambda s, **kw: s.similarity_search_with_hits("Ada", **kw),
    "relevance": lambda s, **kw: s.similarity_search_with_relevance_scores("Ada", **kw),
    "by_vector": lambda s, **kw: s.similarity_search_by_vector(s.embeddings.embed_query("Ada"), **kw),
    "mmr": lambda s, **kw: s.max_marginal_relevance_search("Ada", **kw),
    "mmr_by_vector": lambda s, **kw: s.max_marginal_relevance_search_by_vector(s.embeddings.embed_query("Ada"), **kw),
    "search": lambda s, **kw: s.search("Ada", "hybrid", **kw),
    "retriever": lambda s, **kw: s.as_retriever().invoke("Ada", **kw),
    "search_kwargs": lambda s, **kw: s.as_retriever(search_type="mmr", search_kwargs=kw).invoke("Ada"),
}


@pytest.fixture(params=[*SEARCHES, *(f"a{name}" for name in A_SEARCHES)])
def found_by(request: pytest.FixtureRequest, store: RLMVectorStore) -> Callable[..., set[str]]:
    """Search the store in one of all ways and return the ids that were found."""
    name: str = request.param

    def search(**keywords: Any) -> set[str]:
        if name in SEARCHES:
            results = SEARCHES[name](store, **keywords)
        else:
            results = asyncio.run(A_SEARCHES[name[1:]](store, **keywords))
        documents = [result[0] if isinstance(result, tuple) else result for result in results]
        assert len(documents) == len(ids(documents))
        return {document.id for document in documents}

    return search


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"source": "a"}, {"tea", "oslo", "code"}),  # B017
        ({"source": "b", "year": 2020}, {"rome"}),  # B034
        ({"$or": [{"source": "b"}, {"year": {"$gt": 2021}}]}, {"coffee", "rome", "code"}),
        ({"source": {"$exists": False}}, {"plain"}),
        ({"node.text": {"$like": "%lives%"}}, {"oslo", "rome"}),
        ({"source": "c"}, set()),
    ],
)
def test_a_filter_means_the_same_in_every_search(
    found_by: Callable[..., set[str]], filter: dict[str, Any], expected: set[str]
):
    """B017, B034, B049"""
    assert found_by(k=6, filter=filter) == expected


def test_the_other_ways_to_narrow_mean_the_same_in_every_search(
    found_by: Callable[..., set[str]], store: RLMVectorStore
):
    store.add_documents([Document(id="old", page_content="Ada was here")], tier="archive")
    store.add_documents([Document(id="sure", page_content="Ada is sure")], confidence=0.9, type="decision")
    assert "old" not in found_by(k=9)
    assert "old" in found_by(k=9, include_archived=True)
    assert found_by(k=9, tiers=["archive"]) == {"old"}
    assert found_by(k=9, min_confidence=0.8) == {"sure"}
    assert found_by(k=9, types=["decision"]) == {"sure"}


def test_k_results_come_back_whenever_k_documents_match(found_by: Callable[..., set[str]], store: RLMVectorStore):
    store.add_texts([f"Ada again {i}" for i in range(60)], [{"source": "z"}] * 60)
    assert len(found_by(k=2, filter={"source": "b"})) == 2
    assert len(found_by(k=40, filter={"source": "z"})) == 40
    assert found_by(k=0) == set()


def test_a_misspelled_keyword_is_refused_by_every_search(found_by: Callable[..., set[str]]):
    """B049"""
    with pytest.raises(TypeError, match="'fliter'"):
        found_by(fliter={"source": "a"})


def test_a_filter_that_means_nothing_is_refused(found_by: Callable[..., set[str]]):
    with pytest.raises(InvalidFilterError):
        found_by(filter={"year": {"$greater": 1}})


def test_a_search_by_vector_alone_has_no_alpha(store: RLMVectorStore):
    with pytest.raises(TypeError, match="'alpha'"):
        store.similarity_search_by_vector([1.0] * 64, alpha=0.5)


@pytest.mark.parametrize(("name", "value"), [("k", -1), ("alpha", 2), ("score_threshold", 1.5), ("tiers", ["attic"])])
def test_a_keyword_that_cannot_be_used_is_refused(store: RLMVectorStore, name: str, value: object):
    with pytest.raises(InvalidInputError):
        store.similarity_search("Ada", **{name: value})


def test_an_unknown_kind_of_search_is_refused(store: RLMVectorStore):
    with pytest.raises(ValueError, match="hybrid"):
        store.search("Ada", "telepathy")
    with pytest.raises(InvalidInputError, match="hybrid"):
        asyncio.run(store.asearch("Ada", "telepathy"))


# -- diversity ----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd() -> RLMVectorStore:
    """Three copies of one direction, one at 40 degrees, one at 90."""
    store = RLMVectorStore(alpha=1)
    store.add_texts(
        ["a", "copy", "another copy", "near", "far"],
        embeddings=[[1, 0], [0.999, 0.01], [0.999, 0.02], [0.766, 0.643], [0, 1]],
    )
    return store


def test_mmr_passes_over_copies(crowd: RLMVectorStore):
    question = [1.0, 0.0]
    assert texts(crowd.similarity_search_by_vector(question, k=3)) == ["a", "copy", "another copy"]
    chosen = texts(crowd.max_marginal_relevance_search_by_vector(question, k=3, lambda_mult=0.3))
    assert chosen[0] == "a"
    assert set(chosen[1:]) == {"near", "far"}


def test_mmr_with_lambda_1_is_the_plain_search(crowd: RLMVectorStore):
    for k in (1, 3, 5):
        plain = crowd.similarity_search_by_vector([0.9, 0.1], k=k)
        assert crowd.max_marginal_relevance_search_by_vector([0.9, 0.1], k=k, lambda_mult=1) == plain


def test_mmr_chooses_among_fetch_k(crowd: RLMVectorStore):
    chosen = crowd.max_marginal_relevance_search_by_vector([1.0, 0.0], k=2, fetch_k=3, lambda_mult=0)
    assert set(texts(chosen)) <= {"a", "copy", "another copy"}


def test_mmr_for_a_text_weighs_both_legs(store: RLMVectorStore):
    store.add_texts(["Ada drinks green tea again", "Ada drinks green tea, too"])
    question = "What does Ada drink, tea? And the pump ERR_4711?"
    plain = store.similarity_search(question, k=3)
    diverse = store.max_marginal_relevance_search(question, k=3, lambda_mult=0.2)
    assert diverse[0] == plain[0]
    assert ids(diverse) != ids(plain)


def test_mmr_refuses_a_lambda_outside_of_0_to_1(store: RLMVectorStore):
    with pytest.raises(InvalidQueryError):
        store.max_marginal_relevance_search("Ada", lambda_mult=1.1)


# -- ids ----------------------------------------------------------------------------------------------------------


def test_the_last_of_one_id_wins_and_each_document_gets_its_id(store: RLMVectorStore):
    """B018"""
    assert store.add_documents([Document(id="1", page_content="A"), Document(id="1", page_content="B")]) == ["1", "1"]
    assert store.get_by_ids(["1"]) == [Document(id="1", page_content="B")]


@pytest.mark.parametrize("given", [["a", None, "b"], ["a", "", "b"]])
def test_what_has_no_id_gets_a_new_one(store: RLMVectorStore, given: list[str | None]):
    """B068"""
    for got in (
        store.add_texts(["x", "y", "z"], ids=given),
        store.add_documents([Document(id=id, page_content="x") for id in given]),
        store.add_documents([Document(page_content="x")] * 3, ids=given),
        asyncio.run(store.aadd_texts(["x", "y", "z"], ids=given)),
    ):
        assert got[0::2] == ["a", "b"]
        assert len(got[1]) == 36


def test_two_documents_with_an_empty_id_are_two(store: RLMVectorStore):
    """B068"""
    first, second = store.add_documents([Document(id="", page_content="x"), Document(id="", page_content="y")])
    assert first != second


def test_ids_that_are_given_come_before_the_documents_own(store: RLMVectorStore):
    document = Document(id="own", page_content="x")
    assert store.add_documents([document], ids=["given"]) == ["given"]
    assert store.add_documents([document], ids=None) == ["own"]
    assert document.id == "own"


def test_there_is_one_id_for_each_text_in_order(store: RLMVectorStore):
    """B090"""
    added = store.add_texts(["x", "y"], metadatas=[{"s": 1}, {"s": 2}])
    assert texts(store.get_by_ids(added)) == ["x", "y"]
    assert store.add_texts([]) == []
    assert store.add_documents([]) == []
    assert texts(store.get_by_ids(store.add_texts(text for text in ("a generator", "too")))) == ["a generator", "too"]


def test_get_by_ids_keeps_the_order_and_passes_over_unknown_ids(store: RLMVectorStore):
    """B128"""
    assert [document.id for document in store.get_by_ids(["rome", "nobody", "tea"])] == ["rome", "tea"]
    assert store.get_by_ids([]) == []


def test_deleting_nothing_deletes_nothing(store: RLMVectorStore):
    """B128"""
    assert store.delete([]) is True
    assert store.delete() is False
    assert store.delete(filter={}) is False
    assert asyncio.run(store.adelete()) is False
    assert store.memory.count() == 6


def test_delete_by_filter_and_by_both(store: RLMVectorStore):
    assert store.delete(["tea", "rome"], filter={"source": "a"}) is True
    assert store.memory.count() == 5
    assert asyncio.run(store.adelete(filter={"source": "b"})) is True
    assert [node.id for node in store.memory.list()] == ["oslo", "code", "plain"]
    assert ids(store.similarity_search("Bo drinks coffee in Rome", k=9)) == {"oslo", "code", "plain"}


def test_a_misspelled_filter_deletes_nothing(store: RLMVectorStore):
    for arguments in ({"ids": ["tea"], "fliter": {"source": "b"}}, {"where": {"source": "b"}}):
        with pytest.raises(TypeError, match="filter"):
            store.delete(**arguments)
    assert store.memory.count() == 6


# -- documents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {
            "n": 1,
            "x": 1.5,
            "yes": True,
            "none": None,
            "text": "é\n\0",
            "list": [1, "a", None],
            "deep": {"a": {"b": []}},
        },
        {"": "", "a.b": 1, '"': 2, "$or": 3, "node.tier": "gold", "id": 7, "score": 0.1},
        {"big": 2**60, "small": -1e-300},
    ],
)
def test_documents_come_out_as_they_went_in(store: RLMVectorStore, metadata: dict[str, Any]):
    document = Document(id="d", page_content="  Some text\twith «signs» 🦉\n", metadata=copy.deepcopy(metadata))
    store.add_documents([document])
    assert document.metadata == metadata
    assert store.get_by_ids(["d"]) == [document]
    assert document in store.similarity_search("signs", k=9)


def test_what_json_does_not_have_is_refused_and_nothing_is_written(store: RLMVectorStore):
    with pytest.raises(InvalidNodeError, match=r"Item 1.*datetime"):
        store.add_texts(["x", "y"], [{}, {"when": datetime.now(UTC)}])
    assert store.memory.count() == 6


def test_a_list_of_another_length_is_refused(store: RLMVectorStore):
    for arguments in ({"metadatas": [{}]}, {"ids": ["1"]}, {"metadatas": [{}] * 3}):
        with pytest.raises(InvalidNodeError, match=r"expected a list of 2|expected 2"):
            store.add_texts(["x", "y"], **arguments)


def test_what_is_no_document_is_refused(store: RLMVectorStore):
    with pytest.raises(InvalidNodeError, match="str"):
        store.add_documents(["a text"])  # type: ignore[list-item]  # the mistake under test


@pytest.mark.parametrize(("text", "metadata"), [(5, {}), (None, {}), ("x", 5), ("x", ["a"]), ("x", {5: 1})])
def test_texts_and_metadata_of_another_type_are_refused(store: RLMVectorStore, text: object, metadata: object):
    before = store.memory.count()
    with pytest.raises(InvalidNodeError, match="Item 1"):
        store.add_texts(["sound", text], [{}, metadata])  # type: ignore[list-item]  # the mistake under test
    assert store.memory.count() == before


def test_what_the_other_adapter_keeps_in_metadata_is_hidden_and_cannot_be_forged(store: RLMVectorStore):
    store.memory.add(Node(id="n", text="A node of LlamaIndex", metadata={"a": 1, "_llamaindex": {"node": [1, {}]}}))
    assert store.get_by_ids(["n"]) == [Document(id="n", page_content="A node of LlamaIndex", metadata={"a": 1})]
    with pytest.raises(InvalidNodeError, match="_llamaindex"):
        store.add_texts(["x"], [{"_llamaindex": {}}])


def test_columns_of_the_memory_can_be_given(store: RLMVectorStore):
    columns = {"type": "decision", "subtype": "s", "tier": "longterm", "confidence": 0.9, "provenance": "here"}
    (id,) = store.add_texts(["x"], **columns)
    (node,) = store.memory.get(id)
    assert {name: getattr(node, name) for name in columns} == columns
    assert store.get_by_ids([id]) == [Document(id=id, page_content="x")]


def test_keywords_for_other_stores_are_accepted_when_adding(store: RLMVectorStore):
    assert store.add_documents([Document(id="1", page_content="x")], batch_size=100, vector_field="v") == ["1"]


def test_vectors_can_be_given(store: RLMVectorStore):
    vector = [1.0] * 64
    store.add_texts(["x"], ids=["v"], embeddings=[vector])
    assert store.similarity_search_by_vector(vector, k=1)[0].id == "v"


# -- making -------------------------------------------------------------------------------------------------------


def test_what_was_stored_is_there_again(store_path: Path, documents: list[Document], embeddings: Embeddings):
    with RLMVectorStore.from_documents(documents, embeddings, path=store_path).memory:
        pass
    again = RLMVectorStore(embeddings, path=store_path)
    assert again.get_by_ids([document.id for document in documents]) == documents
    assert again.similarity_search("ERR_4711", k=1)[0].id == "code"
    again.memory.close()


def test_a_store_is_added_to_by_from_texts(store_path: Path, embeddings: Embeddings):
    for text in ("one", "two"):
        RLMVectorStore.from_texts([text], embeddings, path=store_path).memory.close()
    with Memory.open(store_path, embedder=None) as memory:
        assert [node.text for node in memory.list()] == ["one", "two"]


def test_stores_without_a_path_are_apart(embeddings: Embeddings):
    first, second = RLMVectorStore.from_texts(["x"], embeddings), RLMVectorStore(embeddings)
    assert (first.memory.count(), second.memory.count()) == (1, 0)


async def test_the_awaited_constructors_do_the_same(
    store_path: Path, documents: list[Document], embeddings: Embeddings
):
    store = await RLMVectorStore.afrom_documents(documents, embeddings, path=store_path)
    assert await store.aget_by_ids([document.id for document in documents]) == documents
    other = await RLMVectorStore.afrom_texts(["x"], embeddings, [{"n": 1}], ids=["1"], memory=store.memory)
    assert (await other.aget_by_ids(["1"]))[0].metadata == {"n": 1}
    store.memory.close()


async def test_a_store_that_could_not_be_filled_is_closed_but_not_a_memory_of_the_callers(
    store_path: Path, embeddings: Embeddings
):
    bad = [{"x": {1, 2}}]
    memory = Memory.open(store_path, embedder=None)
    with pytest.raises(InvalidNodeError):
        RLMVectorStore.from_texts(["x"], metadatas=bad, memory=memory)
    with pytest.raises(InvalidNodeError):
        await RLMVectorStore.afrom_texts(["x"], metadatas=bad, memory=memory)
    assert memory.count() == 0
    memory.close()
    kept: list[RLMVectorStore] = []

    class Watched(RLMVectorStore):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            kept.append(self)

    with pytest.raises(InvalidNodeError):
        Watched.from_texts(["x"], embeddings, bad, path=store_path)
    with pytest.raises(InvalidNodeError):
        await Watched.afrom_texts(["x"], embeddings, bad, path=store_path)
    for store in kept:
        with pytest.raises(StoreClosedError):
            store.memory.count()


def test_arguments_that_contradict_each_other_are_refused(store: RLMVectorStore, store_path: Path):
    for arguments in ({"path": store_path}, {"namespace": "other"}, {"embedding": DeterministicFakeEmbedding(size=64)}):
        with pytest.raises(InvalidInputError, match="memory="):
            RLMVectorStore(memory=store.memory, **arguments)
    with pytest.raises(InvalidInputError, match="RLMVectorStore"):
        RLMVectorStore(memory=store)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="pth"):
        RLMVectorStore(pth=store_path)


def test_the_embedding_of_a_memory_may_be_named_again(store: RLMVectorStore, embeddings: Embeddings):
    assert RLMVectorStore.from_texts(["x"], embeddings, memory=store.memory).memory is store.memory


def test_embeddings_are_given_back(store: RLMVectorStore, embeddings: Embeddings):
    """B056"""
    assert store.embeddings is embeddings
    assert RLMVectorStore(memory=store.memory).embeddings is embeddings
    assert RLMVectorStore().embeddings is None
    assert RLMVectorStore("openai:text-embedding-3-small").embeddings is None


def test_another_model_is_refused(store_path: Path, embeddings: Any):
    RLMVectorStore.from_texts(["x"], embeddings, path=store_path).memory.close()
    with pytest.raises(EmbeddingMismatchError, match=r"'words'.*'other'"):
        RLMVectorStore(type(embeddings)("other"), path=store_path)


def test_without_embeddings_words_are_searched():
    store = RLMVectorStore.from_texts(["Ada drinks tea", "Bo drinks coffee"])
    assert store.similarity_search("coffee", k=1)[0].page_content == "Bo drinks coffee"


def test_namespaces_are_apart(store_path: Path, embeddings: Embeddings):
    one = RLMVectorStore.from_texts(["x"], embeddings, path=store_path, namespace="one")
    two = RLMVectorStore(embeddings, path=store_path, namespace="two")
    assert two.similarity_search("x") == []
    one.memory.close()
    two.memory.close()


# -- copies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_a_copy_of_a_store_in_a_file_reads_the_same_file(
    store_path: Path, copied: Callable[[RLMVectorStore], RLMVectorStore]
):
    """B158"""
    store = RLMVectorStore.from_texts(["x"], DeterministicFakeEmbedding(size=8), ids=["1"], path=store_path, alpha=0.3)
    other = copied(store)
    assert other.alpha == 0.3
    assert other.similarity_search("x") == store.get_by_ids(["1"])
    asyncio.run(other.aadd_texts(["y"], ids=["2"]))
    assert [document.page_content for document in store.get_by_ids(["2"])] == ["y"]
    store.memory.close()
    assert other.memory.count() == 2
    other.memory.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_a_store_in_memory_cannot_be_copied(store: RLMVectorStore, copied: Callable[[RLMVectorStore], RLMVectorStore]):
    """B158"""
    with pytest.raises(TypeError, match=":memory:"):
        copied(store)


def test_a_shallow_copy_shares_the_memory(store: RLMVectorStore):
    assert copy.copy(store).memory is store.memory
