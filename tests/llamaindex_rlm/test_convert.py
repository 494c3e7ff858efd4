"""Nodes, filters and results on their way into the store and out of it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.schema import Node as MediaNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from llamaindex_rlm import RLMVectorStore
from llamaindex_rlm.convert import RESERVED, cosines, from_hit, from_record, to_condition, to_filter, to_record
from rlm_memory import Hit, Node
from rlm_memory.errors import InvalidFilterError, InvalidNodeError, StoreCorruptError, StoreVersionError
from rlm_memory.filters import And, Comparison, Key, Operator, matches

NODES: dict[str, BaseNode] = {
    "text alone": TextNode(id_="n", text="lorem"),
    "everything, B039": TextNode(
        id_="n",
        text="lorem ipsum",
        metadata={"file": "a.pdf", "page": 3, "tags": ["x"], "author": {"name": "Ada"}, "none": None, "ok": True},
        excluded_embed_metadata_keys=["file"],
        excluded_llm_metadata_keys=["file", "page"],
        metadata_template="{key}={value}",
        metadata_separator="; ",
        text_template="{metadata_str} :: {content}",
        mimetype="text/markdown",
        start_char_idx=0,
        end_char_idx=11,
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(
                node_id="doc", node_type=ObjectType.DOCUMENT, metadata={"file": "a.pdf"}, hash="abc"
            ),
            NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id="m"),
            NodeRelationship.NEXT: RelatedNodeInfo(node_id="o", node_type="strange"),
            NodeRelationship.PARENT: RelatedNodeInfo(node_id="p", metadata={"file": "a.pdf", "page": 3}),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c"), RelatedNodeInfo(node_id="d", metadata={"k": 1})],
        },
    ),
    "index": IndexNode(id_="n", text="lorem", index_id="deeper"),
    "index of a node": IndexNode(
        id_="n", text="lorem", index_id="i", obj=TextNode(id_="inner", text="ipsum", metadata={"a": 1})
    ),
    "image": ImageNode(id_="n", text="lorem", image_path="a.png", image_url="https://example.org/a.png", image="aGk="),
    "media": MediaNode(
        id_="n",
        text_resource=MediaResource(text="lorem", mimetype="text/html", path=Path("a.html")),
        image_resource=MediaResource(url="https://example.org/a.png"),
    ),
    "media without a text": MediaNode(id_="n", text_resource=MediaResource(path=Path("a.html"))),
    "media with an empty text": MediaNode(id_="n", text_resource=MediaResource(text="")),
    "nothing": MediaNode(id_="n"),
    "document": Document(id_="n", text="lorem", metadata={"a": 1}),
    "image document": ImageDocument(id_="n", text="lorem", image_resource=MediaResource(path=Path("a.png"))),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_node_comes_back_as_it_was(node: BaseNode) -> None:
    with_vector = node.model_copy(update={"embedding": [1.0, 0.0]})
    store = RLMVectorStore.from_params(":memory:")
    store.add([with_vector])
    (found,) = store.get_nodes(["n"])
    store.client.close()
    assert type(found) is type(node)
    assert found == node
    assert found.hash == node.hash
    for mode in MetadataMode:
        assert found.get_content(mode) == node.get_content(mode)


def test_chunks_of_a_document_come_back_as_they_were() -> None:
    document = Document(
        id_="doc", text="One sentence follows another. " * 200, metadata={"file": "a.txt", "size": 7},
        excluded_llm_metadata_keys=["size"],
    )  # fmt: skip
    chunks = SentenceSplitter(chunk_size=128, chunk_overlap=10).get_nodes_from_documents([document])
    assert len(chunks) > 5
    assert [from_record(to_record(chunk)) for chunk in chunks] == chunks


def test_text_and_metadata_are_stored_plainly_and_once() -> None:
    source = RelatedNodeInfo(node_id="doc-1", metadata={"file": "report.pdf"})
    node = TextNode(
        text="what it says", metadata={"file": "report.pdf"}, relationships={NodeRelationship.SOURCE: source}
    )
    record = to_record(node)
    assert (record.id, record.text) == (node.node_id, "what it says")
    assert {key: value for key, value in record.metadata.items() if key != RESERVED} == {"file": "report.pdf"}
    stored = json.dumps(record.metadata)
    assert (stored.count("report.pdf"), stored.count("what it says")) == (1, 0)


def test_node_without_anything_of_its_own_has_no_reserved_key() -> None:
    assert to_record(TextNode(text="x", metadata={"a": 1}, embedding=[1.0])).metadata == {"a": 1}


def test_node_of_somebody_else_is_a_text_node() -> None:
    found = from_record(Node(id="n", text="lorem", metadata={"topic": "db"}))
    assert found == TextNode(id_="n", text="lorem", metadata={"topic": "db"})


def test_all_keys_of_the_prefix_are_hidden() -> None:
    found = from_record(Node(id="n", text="lorem", metadata={"a": 1, "_llamaindex_later": 2}))
    assert found.metadata == {"a": 1}


def test_text_that_was_changed_in_the_store_is_the_text_of_the_node() -> None:
    for name in ("everything, B039", "index", "image", "media", "media without a text", "nothing", "document"):
        record = to_record(NODES[name])
        changed = from_record(Node(id="n", text="changed", metadata=record.metadata))
        assert changed.get_content(MetadataMode.NONE) == "changed"


def test_columns_are_those_of_the_store() -> None:
    record = to_record(
        TextNode(text="x"), tier="session", type="decision", confidence=0.9, provenance="me", subtype="s"
    )
    assert (record.tier, record.type, record.confidence) == ("session", "decision", 0.9)
    assert (record.provenance, record.subtype) == ("me", "s")


def test_metadata_that_json_does_not_have_is_written_as_llama_index_does() -> None:
    """B038."""
    metadata = {
        "time": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2), "path": Path("a/b"), "tuple": (1, 2),
        "set": {1}, "nan": float("nan"),
    }  # fmt: skip
    assert to_record(TextNode(text="x", metadata=metadata)).metadata == {
        "time": "2026-01-02T03:00:00Z", "day": "2026-01-02", "path": "a/b", "tuple": [1, 2], "set": [1], "nan": None,
    }  # fmt: skip


def test_class_of_the_callers_own_comes_back_as_what_it_derives_from() -> None:
    class Paragraph(TextNode):
        number: int = 0

    found = from_record(to_record(Paragraph(id_="n", text="x", number=7, metadata={"a": 1})))
    assert found == TextNode(id_="n", text="x", metadata={"a": 1})


def test_class_that_derives_from_none_of_llama_index_is_refused() -> None:
    class Blob(BaseNode):
        @classmethod
        def get_type(cls) -> str:
            return "blob"

        def get_content(self, metadata_mode: MetadataMode = MetadataMode.ALL) -> str:
            return ""

        def get_content_blocks(self, metadata_mode: MetadataMode = MetadataMode.ALL) -> list[Any]:
            return []

        def set_content(self, value: Any) -> None:
            raise NotImplementedError

        @property
        def hash(self) -> str:
            return ""

    with pytest.raises(InvalidNodeError, match="got Blob"):
        to_record(Blob())


@pytest.mark.parametrize(
    "stored",
    [
        5, "text", [], {}, {"node": None}, {"node": [1]}, {"node": [1, 5]}, {"node": [1, {"class": "Exception"}]},
        {"node": [1, {"class": ["TextNode"]}]}, {"node": [1, {"class": "IndexNode"}]},
        {"node": [1, {"start_char_idx": "x"}]}, {"node": [1, {"relationships": 5}]},
        {"node": [1, {"relationships": {"1": 5}}]}, {"node": [1, {"relationships": {"nine": {"node_id": "x"}}}]},
        {"node": [1, {"class": "Node", "text_resource": 5}]},
    ],
)  # fmt: skip
def test_reserved_metadata_that_is_not_ours_is_refused(stored: Any) -> None:
    with pytest.raises(StoreCorruptError, match="'n'"):
        from_record(Node(id="n", text="x", metadata={RESERVED: stored}))


def test_node_of_a_newer_release_is_refused() -> None:
    with pytest.raises(StoreVersionError, match="format 2"):
        from_record(Node(id="n", text="x", metadata={RESERVED: {"node": [2, {}]}}))


def test_hit_keeps_its_score() -> None:
    found = from_hit(Hit(Node(id="n", text="x"), 0.25, 0.5, 1.5))
    assert (found.node_id, found.score) == ("n", 0.25)


def test_cosines_of_hits_without_a_vector_are_the_least() -> None:
    def hit(semantic: float | None) -> Hit:
        return Hit(Node(id="n", text="x"), 0.0, semantic)

    assert cosines([hit(0.5), hit(-0.25), hit(None)]) == [0.5, -0.25, -0.25]
    assert cosines([hit(0.5), hit(None)]) == [0.5, 0.0]
    assert cosines([hit(None)]) == [0.0]
    assert cosines([]) == []


# -- filters --------------------------------------------------------------------------------------------------------


def test_condition_says_only_what_is_asked() -> None:
    assert to_condition(None) is None
    assert to_condition(MetadataFilters(filters=[]), node_ids=None, doc_ids=None) is None
    by_document = to_condition(None, doc_ids=["d"])
    assert by_document == Comparison(Key("_llamaindex.ref_doc_id"), Operator.IN, ["d"])
    both = to_condition({"a": 1}, node_ids=[], doc_ids=["d"])
    assert isinstance(both, And)
    assert len(both.parts) == 3


def test_every_operator_is_known() -> None:
    for operator in FilterOperator:
        value = ["x"] if operator.value in ("in", "nin", "any", "all") else "x"
        assert to_filter(MetadataFilter(key="k", value=value, operator=operator)) is not None


@pytest.mark.parametrize("filters", [5, "text", ["a"], object(), {"a": {"$near": 1}}])
def test_what_is_no_filter_is_refused(filters: Any) -> None:
    with pytest.raises(InvalidFilterError):
        to_filter(filters)


KEYS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", "x", "y", "xy", "X"])
NUMBERS = st.integers(-2, 2) | st.sampled_from([0.5, 1.0, -2.0])
SCALARS = TEXTS | NUMBERS
LISTS = st.lists(TEXTS, max_size=3) | st.lists(st.integers(-2, 2), max_size=3)


@st.composite
def comparisons(draw: st.DrawFn) -> MetadataFilter:
    """Comparisons that LlamaIndex's own reference can evaluate: it raises where types do not fit, so `d`…`f` do."""
    operator = draw(st.sampled_from(FilterOperator))
    match operator:
        case FilterOperator.EQ | FilterOperator.NE:
            return MetadataFilter(key=draw(KEYS), value=draw(SCALARS), operator=operator)
        case FilterOperator.IN | FilterOperator.NIN:
            return MetadataFilter(key=draw(KEYS), value=draw(LISTS), operator=operator)
        case FilterOperator.GT | FilterOperator.GTE | FilterOperator.LT | FilterOperator.LTE:
            return MetadataFilter(key="number", value=draw(NUMBERS), operator=operator)
        case FilterOperator.TEXT_MATCH | FilterOperator.TEXT_MATCH_INSENSITIVE:
            return MetadataFilter(key="text", value=draw(TEXTS), operator=operator)
        case FilterOperator.ANY | FilterOperator.ALL:
            return MetadataFilter(key="list", value=draw(LISTS), operator=operator)
        case FilterOperator.CONTAINS:
            return MetadataFilter(key="list", value=draw(SCALARS), operator=operator)
        case FilterOperator.IS_EMPTY:
            return MetadataFilter(key=draw(KEYS), value=None, operator=operator)


METADATA = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["a", "b", "c"], SCALARS | LISTS | st.none()),
        "number": NUMBERS | st.none(),
        "text": TEXTS | st.none(),
        "list": LISTS | st.none(),
    },
)


@given(
    metadata=METADATA,
    filters=st.lists(comparisons(), max_size=3),
    condition=st.sampled_from(FilterCondition) | st.none(),
)
def test_filters_mean_what_they_mean_in_llama_index(
    metadata: dict[str, Any], filters: list[MetadataFilter], condition: FilterCondition | None
) -> None:
    grouped = MetadataFilters(filters=filters, condition=condition)
    expected = build_metadata_filter_fn(lambda _: metadata, grouped)("n")
    assert matches(to_filter(grouped), Node(text="", metadata=metadata)) is bool(expected)


@given(metadata=METADATA, groups=st.lists(st.lists(comparisons(), min_size=1, max_size=2), min_size=1, max_size=3))
def test_nested_filters_mean_what_their_parts_mean(
    metadata: dict[str, Any], groups: list[list[MetadataFilter]]
) -> None:
    """B055."""
    inner = [MetadataFilters(filters=group, condition=FilterCondition.AND) for group in groups]
    node = Node(text="", metadata=metadata)
    parts = [matches(to_filter(group), node) for group in inner]
    for condition, expected in (
        (FilterCondition.AND, all(parts)),
        (FilterCondition.OR, any(parts)),
        (FilterCondition.NOT, not any(parts)),
    ):
        nested = MetadataFilters(filters=list(inner), condition=condition)
        assert matches(to_filter(nested), node) is expected
