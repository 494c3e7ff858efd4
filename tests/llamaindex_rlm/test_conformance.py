"""What LlamaIndex asks of a vector store: it ships no suite, so this is ours. In both colours, in a file and in memory.

The cases are those that its own stores are held to: every mode, every operator, deletion, nodes of every kind.
"""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import ImageNode, IndexNode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llamaindex_rlm import RLMVectorStore
from llamaindex_support import Call
from rlm_memory.errors import (
    EmbeddingUnavailableError,
    InvalidFilterError,
    InvalidInputError,
    InvalidNodeError,
    InvalidQueryError,
)

EAST = [1.0, 0.0, 0.0, 0.0]
ALL = ["aaa", "bbb", "ccc", "ddd"]


def one(key: str, value: Any, operator: str = "==") -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=FilterOperator(operator))])


def group(condition: str | None, *filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=None if condition is None else FilterCondition(condition))


def of(key: str, value: Any, operator: str = "==") -> MetadataFilter:
    return one(key, value, operator).filters[0]  # type: ignore[return-value]  # it is one


def test_class_of_the_store() -> None:
    assert BasePydanticVectorStore.__name__ in [base.__name__ for base in RLMVectorStore.__mro__]
    assert RLMVectorStore.class_name() == "RLMVectorStore"


def test_store_tells_what_it_is(store: RLMVectorStore) -> None:
    assert (store.stores_text, store.is_embedding_query, store.flat_metadata) == (True, True, False)
    assert store.client.count() == 0


# -- modes ----------------------------------------------------------------------------------------------------------


async def test_default_mode_ranks_by_cosine(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    assert await call(store, "add", nodes) == ALL
    result = await call(store, "query", VectorStoreQuery(query_embedding=EAST, similarity_top_k=3))
    assert result.ids == [node.node_id for node in result.nodes] == ["aaa", "bbb", "ccc"]
    assert result.similarities == pytest.approx([1.0, 0.9 / (0.81 + 0.16) ** 0.5, 0.6], abs=1e-5)


async def test_top_k_is_one_unless_given_and_may_be_more_than_there_are(
    store: RLMVectorStore, nodes: list[TextNode], call: Call
) -> None:
    await call(store, "add", nodes)
    assert (await call(store, "query", VectorStoreQuery(query_embedding=EAST))).ids == ["aaa"]
    assert (await call(store, "query", VectorStoreQuery(query_embedding=EAST, similarity_top_k=99))).ids == ALL


async def test_empty_store_answers_with_nothing(store: RLMVectorStore, call: Call) -> None:
    for mode in ("default", "mmr", "hybrid", "semantic_hybrid", "text_search", "sparse"):
        query = VectorStoreQuery(query_embedding=EAST, query_str="fox", mode=VectorStoreQueryMode(mode))
        result = await call(store, "query", query)
        assert (result.nodes, result.similarities, result.ids) == ([], [], [])


@pytest.mark.parametrize("mode", ["text_search", "sparse"])
@pytest.mark.parametrize("question", ["fox", "who is the fox?"])
async def test_words_are_searched(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, mode: str, question: str
) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(query_str=question, sparse_top_k=2, mode=VectorStoreQueryMode(mode))
    result = await call(store, "query", query)
    assert set(result.ids) == {"ccc", "ddd"}
    assert result.similarities == sorted(result.similarities, reverse=True)
    assert min(result.similarities) >= 0


async def test_words_are_searched_by_similarity_top_k_too(
    store: RLMVectorStore, nodes: list[TextNode], call: Call
) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(query_str="fox", similarity_top_k=3, mode=VectorStoreQueryMode.SPARSE)
    result = await call(store, "query", query)
    assert set(result.ids[:2]) == {"ccc", "ddd"}
    assert (len(result.ids), result.similarities[2]) == (3, 0.0)
    query.sparse_top_k = 0
    assert (await call(store, "query", query)).ids == []


@pytest.mark.parametrize("mode", ["hybrid", "semantic_hybrid"])
async def test_hybrid_asks_both_legs(store: RLMVectorStore, nodes: list[TextNode], call: Call, mode: str) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(
        query_embedding=EAST, query_str="hound", similarity_top_k=2, mode=VectorStoreQueryMode(mode)
    )
    result = await call(store, "query", query)
    assert set(result.ids) == {"aaa", "ddd"}
    assert all(0 <= similarity <= 1 for similarity in result.similarities)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"similarity_top_k": 2}, 2),
        ({"similarity_top_k": 2, "sparse_top_k": 1}, 2),
        ({"similarity_top_k": 2, "sparse_top_k": 4, "hybrid_top_k": 3}, 3),
        ({"similarity_top_k": 3, "hybrid_top_k": 1}, 1),
        ({"similarity_top_k": 2, "hybrid_top_k": 0}, 0),
    ],
)
async def test_hybrid_returns_hybrid_top_k(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, options: dict[str, int], count: int
) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(query_embedding=EAST, query_str="fox", mode=VectorStoreQueryMode.HYBRID, **options)
    result = await call(store, "query", query)
    assert len(result.ids) == len(result.nodes) == len(result.similarities) == count


@pytest.mark.parametrize(
    ("alpha", "best"), [(0.0, "ddd"), (0, "ddd"), (0.05, "ddd"), (0.95, "aaa"), (1.0, "aaa"), (1, "aaa")]
)
async def test_alpha_weighs_the_legs_and_zero_is_not_unset(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, alpha: float, best: str
) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(
        query_embedding=EAST, query_str="hound", alpha=alpha, similarity_top_k=4, mode=VectorStoreQueryMode.HYBRID
    )
    result = await call(store, "query", query)
    assert result.ids[0] == best
    if alpha == 0:
        assert result.similarities == [1.0, 0.0, 0.0, 0.0]


async def test_alpha_unset_is_that_of_the_store(nodes: list[TextNode], call: Call) -> None:
    query = VectorStoreQuery(query_embedding=EAST, query_str="hound", mode=VectorStoreQueryMode.HYBRID)
    for alpha, best in ((0.0, "ddd"), (1.0, "aaa")):
        store = RLMVectorStore.from_params(":memory:", alpha=alpha)
        await call(store, "add", nodes)
        assert (await call(store, "query", query)).ids == [best]
        store.client.close()


@pytest.mark.parametrize("mode", ["hybrid", "semantic_hybrid", "text_search", "sparse"])
async def test_modes_that_search_words_need_words(store: RLMVectorStore, call: Call, mode: str) -> None:
    with pytest.raises(InvalidQueryError, match="needs a query_str"):
        await call(store, "query", VectorStoreQuery(query_embedding=EAST, mode=VectorStoreQueryMode(mode)))


@pytest.mark.parametrize("mode", ["default", "mmr"])
async def test_modes_that_compare_vectors_need_one(store: RLMVectorStore, call: Call, mode: str) -> None:
    with pytest.raises(InvalidQueryError, match="needs a query_str"):
        await call(store, "query", VectorStoreQuery(mode=VectorStoreQueryMode(mode)))
    with pytest.raises(EmbeddingUnavailableError, match="neither a query_embedding nor an embedder"):
        await call(store, "query", VectorStoreQuery(query_str="fox", mode=VectorStoreQueryMode(mode)))


async def test_question_is_embedded_where_the_store_can(word_store: RLMVectorStore, call: Call) -> None:
    await call(word_store, "add", [TextNode(id_="a", text="red fox"), TextNode(id_="b", text="blue whale")])
    result = await call(word_store, "query", VectorStoreQuery(query_str="red fox"))
    assert (result.ids, result.similarities) == (["a"], pytest.approx([1.0], abs=1e-5))


@pytest.mark.parametrize("mode", ["svm", "logistic_regression", "linear_regression", "telepathy"])
async def test_other_modes_are_refused(store: RLMVectorStore, call: Call, mode: Any) -> None:
    if mode != "telepathy":
        mode = VectorStoreQueryMode(mode)
    with pytest.raises(ValueError, match="Invalid query mode"):
        await call(store, "query", VectorStoreQuery(query_embedding=EAST, query_str="fox", mode=mode))


DOUBLES = [
    TextNode(id_="best", text="1", embedding=[1, 0, 0, 0]),
    TextNode(id_="twin", text="2", embedding=[1, 0.01, 0, 0]),
    TextNode(id_="other", text="3", embedding=[0.6, 0.8, 0, 0]),
]


@pytest.mark.parametrize(
    ("of_query", "of_call", "expected"),
    [
        (None, {"mmr_threshold": 1.0}, ["best", "twin"]),
        (None, {"mmr_threshold": 0.0}, ["best", "other"]),
        (None, {"mmr_threshold": 0}, ["best", "other"]),
        (0.0, {}, ["best", "other"]),
        (1.0, {}, ["best", "twin"]),
        (1.0, {"mmr_threshold": 0.0}, ["best", "twin"]),
        (0.0, {"mmr_prefetch_k": 2}, ["best", "twin"]),
        (0.0, {"mmr_prefetch_factor": 1}, ["best", "twin"]),
        (0.0, {"mmr_prefetch_factor": 1.5}, ["best", "other"]),
    ],
)
async def test_mmr_chooses_for_diversity(
    store: RLMVectorStore, call: Call, of_query: float | None, of_call: dict[str, Any], expected: list[str]
) -> None:
    await call(store, "add", DOUBLES)
    query = VectorStoreQuery(
        query_embedding=EAST, similarity_top_k=2, mode=VectorStoreQueryMode.MMR, mmr_threshold=of_query
    )
    result = await call(store, "query", query, **of_call)
    assert result.ids == expected
    assert result.similarities[0] == pytest.approx(1.0, abs=1e-5)


async def test_mmr_refuses_what_it_cannot_mean(store: RLMVectorStore, call: Call) -> None:
    query = VectorStoreQuery(query_embedding=EAST, mode=VectorStoreQueryMode.MMR)
    with pytest.raises(InvalidQueryError, match="not both"):
        await call(store, "query", query, mmr_prefetch_k=10, mmr_prefetch_factor=4)
    with pytest.raises(InvalidQueryError):
        await call(store, "query", query, mmr_threshold=1.5)


async def test_vector_of_another_length_is_refused(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes)
    with pytest.raises(InvalidQueryError, match="expected 4 numbers, got 3"):
        await call(store, "query", VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0]))


async def test_similarities_are_finite_and_descending_whatever_has_a_vector(store: RLMVectorStore, call: Call) -> None:
    """B139: fusion of any kind can work with them."""
    nodes = [
        TextNode(id_="far", text="far", embedding=[-1, 0, 0, 0]),
        TextNode(id_="none", text="none"),
        TextNode(id_="near", text="near", embedding=[1, 0, 0, 0]),
    ]
    await call(store, "add", nodes)
    for mode in ("default", "hybrid", "text_search"):
        query = VectorStoreQuery(
            query_embedding=EAST, query_str="none near", similarity_top_k=3, mode=VectorStoreQueryMode(mode)
        )
        result = await call(store, "query", query)
        assert len(result.ids) == 3
        assert all(isinstance(similarity, float) and abs(similarity) <= 1.001 for similarity in result.similarities)
        assert result.similarities == sorted(result.similarities, reverse=True)


async def test_unknown_keywords_are_refused(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    """B049: what is misspelled must not be a restriction that does not restrict."""
    await call(store, "add", nodes)
    query = VectorStoreQuery(query_embedding=EAST)
    for name, arguments in {
        "query": [query], "add": [nodes], "delete": ["doc-1"], "delete_nodes": [["aaa"]],
    }.items():  # fmt: skip
        with pytest.raises(TypeError, match="tierz"):
            await call(store, name, *arguments, tierz=["session"])
    assert store.client.count() == 4


async def test_columns_of_the_store_are_reached(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes[:2], tier="longterm", type="decision", confidence=0.9)
    await call(store, "add", nodes[2:], tier="archive")
    query = VectorStoreQuery(query_embedding=EAST, similarity_top_k=4)
    assert (await call(store, "query", query)).ids == ["aaa", "bbb"]
    assert (await call(store, "query", query, include_archived=True)).ids == ALL
    assert (await call(store, "query", query, tiers=["archive"])).ids == ["ccc", "ddd"]
    assert (await call(store, "query", query, types=["fact"], include_archived=True)).ids == ["ccc", "ddd"]
    assert (await call(store, "query", query, min_confidence=0.8)).ids == ["aaa", "bbb"]
    query.filters = one("node.tier", "longterm")
    assert (await call(store, "query", query)).ids == ["aaa", "bbb"]


# -- filters --------------------------------------------------------------------------------------------------------

FILTERS: dict[str, tuple[Any, list[str]]] = {
    "eq text": (one("theme", "Mafia"), ["aaa"]),
    "eq integer": (one("year", 1994), ["bbb"]),
    "eq float equals integer": (one("year", 1994.0), ["bbb"]),
    "eq float": (one("year", 1994.5), ["ccc"]),
    "eq text is not number": (one("year", "1994"), []),
    "eq list": (one("tags", ["red", "green"]), ["aaa"]),
    "eq path": (one("location.city", "Rome"), ["aaa"]),
    "eq of no value": (one("theme", "Western"), []),
    "eq of no key": (one("director", "Coppola"), []),
    "ne, B016": (one("theme", "Mafia", "!="), ["bbb", "ccc", "ddd"]),
    "ne of no key": (one("director", "Coppola", "!="), ALL),
    "gt": (one("year", 1994, ">"), ["ccc", "ddd"]),
    "gte": (one("year", 1994, ">="), ["bbb", "ccc", "ddd"]),
    "lt": (one("year", 1994, "<"), ["aaa"]),
    "lte": (one("year", 1994, "<="), ["aaa", "bbb"]),
    "gt of texts": (one("theme", "Mafia", ">"), ["ccc"]),
    "in": (one("theme", ["Mafia", "Friendship"], "in"), ["aaa", "bbb"]),
    "in, single": (one("theme", ["Mafia"], "in"), ["aaa"]),
    "in, numbers, B077": (one("year", [1972, 2001], "in"), ["aaa", "ddd"]),
    "in, nothing": (one("theme", [], "in"), []),
    "nin, B016": (one("theme", ["Mafia", "Friendship"], "nin"), ["ccc", "ddd"]),
    "nin, nothing": (one("theme", [], "nin"), ALL),
    "nin of no key": (one("director", ["Coppola"], "nin"), ALL),
    "any, B077": (one("tags", ["green", "blue"], "any"), ["aaa"]),
    "any of numbers": (one("pages", [2, 3], "any"), ["bbb"]),
    "any, nothing": (one("tags", [], "any"), []),
    "all": (one("tags", ["red", "green"], "all"), ["aaa"]),
    "all of one": (one("tags", ["red"], "all"), ["aaa", "bbb"]),
    "contains, B048": (one("tags", "red", "contains"), ["aaa", "bbb"]),
    "contains number": (one("pages", 1, "contains"), ["bbb"]),
    "contains is no substring": (one("tags", "re", "contains"), []),
    "text_match": (one("theme", "afia", "text_match"), ["aaa", "ccc"]),
    "text_match is exact": (one("theme", "MAFIA", "text_match"), []),
    "text_match_insensitive": (one("theme", "MAFIA", "text_match_insensitive"), ["aaa", "ccc"]),
    "is_empty: missing, null or [], B073": (one("tags", None, "is_empty"), ["ccc", "ddd"]),
    "is_empty: null": (one("theme", None, "is_empty"), ["ddd"]),
    "is_empty: missing or text without characters": (one("note", None, "is_empty"), ALL),
    "and": (group("and", of("theme", "Mafia"), of("year", 1972)), ["aaa"]),
    "and is the default": (group(None, of("theme", "Mafia"), of("year", 1973)), []),
    "contradiction": (group("and", of("theme", "Mafia"), of("theme", "Friendship")), []),
    "or": (group("or", of("theme", "Friendship"), of("year", 2001)), ["bbb", "ddd"]),
    "not of one": (group("not", of("theme", "Mafia")), ["bbb", "ccc", "ddd"]),
    "not is none of them": (group("not", of("theme", "Mafia"), of("year", 2001)), ["bbb", "ccc"]),
    "nested, B055": (
        group(
            "or",
            group("and", of("theme", "Mafia"), of("year", 1972)),
            group("and", of("year", [1994, 2001], "in"), group("not", of("tags", "red", "contains"))),
        ),
        ["aaa", "ddd"],
    ),
    "no filters": (group("and"), ALL),
    "no filters of no kind": (group("not"), ALL),
    "a group without filters says nothing": (group("or", of("theme", "Mafia"), group("and")), ["aaa"]),
    "source as ref_doc_id": (one("ref_doc_id", "doc-1"), ["aaa", "bbb"]),
    "source as doc_id, negated": (one("doc_id", "doc-1", "!="), ["ccc", "ddd"]),
    "source as document_id, of several": (one("document_id", ["doc-2", "doc-3"], "in"), ["ccc", "ddd"]),
    "the store's own dialect": ({"$or": [{"theme": "Mafia"}, {"year": {"$gt": 2000}}]}, ["aaa", "ddd"]),
    "hostile key, B020": (one("x') OR 1=1 --", "y"), []),
    "hostile key, negated, B020": (one("x') OR 1=1 --", "y", "!="), ALL),
    "key like an operator": (one("$eq", 1), []),
}  # fmt: skip


BOTH_COLOURS = pytest.mark.parametrize(("store", "call"), [("file", "sync"), ("memory", "async")], indirect=True)


@BOTH_COLOURS
@pytest.mark.parametrize(("filters", "expected"), FILTERS.values(), ids=FILTERS)
async def test_filter_decides_what_is_found(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, filters: Any, expected: list[str]
) -> None:
    await call(store, "add", nodes)
    for mode in ("default", "hybrid", "text_search", "mmr"):
        query = VectorStoreQuery(
            query_embedding=EAST, query_str="fox", similarity_top_k=9, filters=filters, mode=VectorStoreQueryMode(mode)
        )
        assert sorted((await call(store, "query", query)).ids) == expected
    assert [node.node_id for node in await call(store, "get_nodes", filters=filters)] == expected
    await call(store, "delete_nodes", filters=filters)
    left = ALL if expected == ALL and _says_nothing(filters) else [id for id in ALL if id not in expected]
    assert [node.node_id for node in await call(store, "get_nodes")] == left


def _says_nothing(filters: Any) -> bool:
    return isinstance(filters, MetadataFilters) and not filters.filters


async def test_filter_comes_before_top_k(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes)
    query = VectorStoreQuery(query_embedding=EAST, similarity_top_k=2, filters=one("year", 1994, ">"))
    assert (await call(store, "query", query)).ids == ["ccc", "ddd"]
    query.similarity_top_k = 1
    assert (await call(store, "query", query)).ids == ["ccc"]


@BOTH_COLOURS
@pytest.mark.parametrize(
    ("key", "value", "operator"),
    [
        ("theme", "Mafia", "in"), ("theme", 5, "nin"), ("tags", "red", "any"), ("tags", "red", "all"),
        ("theme", 5, "text_match"), ("theme", ["a"], "text_match_insensitive"), ("year", None, ">"),
        ("year", ["a"], "<="), ("node.tear", "x", "=="), ("node.tier", "forever", "=="),
    ],
)  # fmt: skip
async def test_filter_without_meaning_is_refused(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, key: str, value: Any, operator: str
) -> None:
    """B089: it is never unfiltered."""
    await call(store, "add", nodes)
    filters = one(key, value, operator)
    for name, arguments in {
        "query": [VectorStoreQuery(query_embedding=EAST, filters=filters)], "get_nodes": [None, filters],
        "delete_nodes": [None, filters],
    }.items():  # fmt: skip
        with pytest.raises(InvalidFilterError):
            await call(store, name, *arguments)
    assert store.client.count() == 4


async def test_key_of_the_metadata_named_like_the_source_goes_first(store: RLMVectorStore, call: Call) -> None:
    await call(store, "add", [TextNode(id_="own", text="x", metadata={"doc_id": "doc-9"})])
    assert [node.node_id for node in await call(store, "get_nodes", filters=one("doc_id", "doc-9"))] == ["own"]
    assert await call(store, "get_nodes", filters=one("doc_id", "doc-1")) == []


async def test_node_ids_and_doc_ids_restrict(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes)

    async def ids(**options: Any) -> list[str]:
        query = VectorStoreQuery(query_embedding=EAST, similarity_top_k=9, **options)
        return (await call(store, "query", query)).ids

    assert await ids(node_ids=[], doc_ids=[]) == ALL
    assert await ids(node_ids=["ddd", "bbb", "unknown"]) == ["bbb", "ddd"]
    assert await ids(node_ids=["unknown"]) == []
    assert await ids(doc_ids=["doc-2"]) == ["ccc", "ddd"]
    assert await ids(doc_ids=["doc-1", "doc-2"], node_ids=["aaa", "ccc"], filters=one("year", 1972)) == ["aaa"]
    assert await ids(doc_ids=["unknown"]) == []


async def test_ids_of_index_nodes_alone_do_not_hide_the_text(
    store: RLMVectorStore, nodes: list[TextNode], call: Call
) -> None:
    others = [
        IndexNode(id_="index", index_id="i", text="summary", embedding=EAST),
        ImageNode(id_="image", image_url="https://example.org/a.png", text="picture", embedding=EAST),
    ]
    await call(store, "add", [*nodes, *others])
    query = VectorStoreQuery(query_embedding=EAST, similarity_top_k=9, node_ids=["index", "image"])
    assert len((await call(store, "query", query)).ids) == 6
    query.node_ids = ["index", "aaa"]
    assert sorted((await call(store, "query", query)).ids) == ["aaa", "index"]


# -- nodes ----------------------------------------------------------------------------------------------------------


async def test_kinds_of_nodes_come_back(store: RLMVectorStore, call: Call) -> None:
    given = [
        TextNode(id_="text", text="lorem", embedding=EAST),
        IndexNode(id_="index", text="ipsum", index_id="deeper", embedding=EAST),
        ImageNode(id_="image", text="dolor", image_path="a.png", embedding=EAST),
    ]
    await call(store, "add", given)
    result = await call(store, "query", VectorStoreQuery(query_embedding=EAST, similarity_top_k=3))
    found = {node.node_id: node for node in result.nodes}
    assert {id: type(node) for id, node in found.items()} == {"text": TextNode, "index": IndexNode, "image": ImageNode}
    assert found["index"].index_id == "deeper"


async def test_known_id_is_written_again(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes)
    again = TextNode(id_="aaa", text="new words", embedding=[0, 0, 0, 1], metadata={"theme": "Western"})
    await call(store, "add", [again])
    (found,) = await call(store, "get_nodes", ["aaa"])
    assert (found.text, found.metadata, found.ref_doc_id) == ("new words", {"theme": "Western"}, None)
    result = await call(store, "query", VectorStoreQuery(query_embedding=[0.0, 0.0, 0.0, 1.0]))
    assert (result.ids, store.client.count()) == (["aaa"], 4)
    await call(store, "delete", "doc-1")
    assert [node.node_id for node in await call(store, "get_nodes")] == ["aaa", "ccc", "ddd"]


async def test_same_id_twice_the_last_one_wins(store: RLMVectorStore, call: Call) -> None:
    """B120."""
    twice = [TextNode(id_="x", text="first", embedding=EAST), TextNode(id_="x", text="last", embedding=EAST)]
    assert await call(store, "add", twice) == ["x", "x"]
    assert [node.text for node in await call(store, "get_nodes")] == ["last"]


async def test_adding_nothing_is_fine(store: RLMVectorStore, call: Call) -> None:
    assert await call(store, "add", []) == []


async def test_nodes_without_embedding_are_embedded_where_the_store_can(word_store: RLMVectorStore, call: Call) -> None:
    given = [TextNode(id_="a", text="red fox"), TextNode(id_="b", text="blue whale", embedding=[1.0] * 64)]
    await call(word_store, "add", given)
    assert word_store.client.stats().with_vector == 2
    result = await call(word_store, "query", VectorStoreQuery(query_embedding=[1.0] * 64, similarity_top_k=2))
    assert (result.ids[0], result.similarities[0]) == ("b", pytest.approx(1.0, abs=1e-5))


async def test_nodes_without_embedding_are_found_by_words_where_it_cannot(store: RLMVectorStore, call: Call) -> None:
    await call(store, "add", [TextNode(id_="a", text="red fox"), TextNode(id_="b", text="blue whale")])
    query = VectorStoreQuery(query_str="whale", mode=VectorStoreQueryMode.TEXT_SEARCH)
    assert (await call(store, "query", query)).ids == ["b"]
    assert store.client.stats().pending == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (TextNode(text="x", embedding=[1, 0]), "expected 4 numbers, got 2"),
        (TextNode(text="x", embedding=[0, 0, 0, 0]), "zero"),
        (TextNode(text="x", embedding=[1, float("nan"), 0, 0]), "nan"),
        (TextNode(text="bad \ud83d end", embedding=EAST), "surrogate"),
        (TextNode(text="x", metadata={"a": object()}, embedding=EAST), "JSON"),
        (TextNode(text="x", metadata={"_llamaindex": 1}, embedding=EAST), "reserved"),
        (TextNode(text="x", metadata={"_llamaindex_x": 1}, embedding=EAST), "reserved"),
        (IndexNode(text="x", index_id="i", obj=object(), embedding=EAST), "object_map"),
        ("text", "Expected nodes of LlamaIndex"),
    ],
)
async def test_failed_write_leaves_nothing(
    store: RLMVectorStore, nodes: list[TextNode], call: Call, bad: Any, message: str
) -> None:
    await call(store, "add", nodes[:1])
    with pytest.raises(InvalidNodeError, match=message):
        await call(store, "add", [*nodes[1:], bad])
    assert [node.node_id for node in await call(store, "get_nodes")] == ["aaa"]


async def test_any_number_of_ids_can_be_asked_for_and_deleted(
    store: RLMVectorStore, nodes: list[TextNode], call: Call
) -> None:
    store.add(nodes)
    ids = [*(node.node_id for node in nodes), *map(str, range(12_000))]
    everything = {node.node_id for node in nodes}
    assert {node.node_id for node in await call(store, "get_nodes", ids)} == everything
    some = {node.node_id for node in await call(store, "get_nodes", filters=one("theme", "Mafia"))}
    assert some
    assert {node.node_id for node in await call(store, "get_nodes", ids, one("theme", "Mafia"))} == some
    await call(store, "delete_nodes", ids, one("theme", "Mafia"))
    assert {node.node_id for node in await call(store, "get_nodes")} == everything - some


async def test_get_nodes(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    await call(store, "add", nodes)

    async def ids(*arguments: Any) -> list[str]:
        return [node.node_id for node in await call(store, "get_nodes", *arguments)]

    assert await ids() == ALL
    assert await ids(["ddd", "unknown", "aaa"]) == ["ddd", "aaa"]
    assert await ids([]) == []
    assert await ids(["ddd", "aaa", "bbb"], one("theme", "Mafia")) == ["aaa"]
    assert await ids([], one("theme", "Mafia")) == []


async def test_get_nodes_returns_more_than_a_page(store: RLMVectorStore, call: Call) -> None:
    await call(store, "add", [TextNode(id_=f"{number}", text=f"number {number}") for number in range(250)])
    assert len(await call(store, "get_nodes")) == 250


# -- deletion -------------------------------------------------------------------------------------------------------


async def test_delete_removes_all_of_a_document(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    """B031."""
    await call(store, "add", nodes)
    await call(store, "delete", "unknown")
    assert store.client.count() == 4
    await call(store, "delete", "doc-2")
    assert [node.node_id for node in await call(store, "get_nodes")] == ["aaa", "bbb"]
    query = VectorStoreQuery(
        query_embedding=EAST, query_str="fox", similarity_top_k=9, mode=VectorStoreQueryMode.HYBRID
    )
    assert sorted((await call(store, "query", query)).ids) == ["aaa", "bbb"]
    assert store.client.check()


async def test_delete_of_no_document_deletes_nothing(store: RLMVectorStore, call: Call) -> None:
    await call(store, "add", [TextNode(text="without a source")])
    with pytest.raises(InvalidInputError, match="ref_doc_id is None"):
        await call(store, "delete", None)
    await call(store, "delete", "None")
    assert store.client.count() == 1


async def test_delete_nodes(store: RLMVectorStore, nodes: list[TextNode], call: Call) -> None:
    async def left(*arguments: Any) -> list[str]:
        await call(store, "clear")
        await call(store, "add", nodes)
        await call(store, "delete_nodes", *arguments)
        return [node.node_id for node in await call(store, "get_nodes")]

    assert await left() == ALL
    assert await left(None, None) == ALL
    assert await left([]) == ALL
    assert await left(None, group("and")) == ALL
    assert await left(["unknown"]) == ALL
    assert await left(["aaa", "ddd"]) == ["bbb", "ccc"]
    assert await left(None, one("year", 1994, ">")) == ["aaa", "bbb"]
    assert await left(["aaa", "bbb"], one("theme", "Mafia")) == ["bbb", "ccc", "ddd"]
    assert await left(["unknown"], one("theme", "Mafia")) == ALL
    assert await left([], one("theme", "Mafia")) == ALL


async def test_clear_removes_everything_of_the_namespace(
    store: RLMVectorStore, nodes: list[TextNode], call: Call
) -> None:
    await call(store, "add", nodes)
    await call(store, "add", [TextNode(text="old")], tier="archive")
    await call(store, "clear")
    assert store.client.count(include_archived=True) == 0
    assert await call(store, "get_nodes") == []
    await call(store, "clear")


def test_persist_writes_nothing(store: RLMVectorStore, nodes: list[TextNode], tmp_path: Any) -> None:
    store.add(nodes)
    store.persist(str(tmp_path / "elsewhere" / "vector_store.json"))
    assert not (tmp_path / "elsewhere").exists()


async def test_namespaces_do_not_see_each_other(store_path: Any, nodes: list[TextNode], call: Call) -> None:
    """B115."""
    mine = RLMVectorStore.from_params(store_path, namespace="me")
    other = RLMVectorStore.from_params(store_path, namespace="you")
    await call(mine, "add", nodes)
    await call(other, "add", nodes[:2])
    await call(other, "delete_nodes", ["aaa"])
    await call(other, "delete", "doc-2")
    await call(other, "clear")
    assert [node.node_id for node in await call(mine, "get_nodes")] == ALL
    assert (await call(other, "query", VectorStoreQuery(query_embedding=EAST))).ids == []
    mine.client.close()
    other.client.close()
