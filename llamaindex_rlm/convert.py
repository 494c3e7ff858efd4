"""What LlamaIndex's nodes and filters are in the store, and back. No mapping elsewhere.

**Nodes.** The store's text is the node's text without its metadata, and the store's metadata is the node's metadata as
it is, so that other frameworks read both as their own. What else a node has, and only what differs from the default, is
one reserved entry of the metadata::

    "_llamaindex": {"ref_doc_id": "report-7", "node": [1, {"relationships": …, "start_char_idx": 0, …}]}

`ref_doc_id` is the id of the node's source, where it has one: the filter `{"_llamaindex.ref_doc_id": …}` finds all
nodes of a document by index. `node` is the number of this format, and the fields in the form of LlamaIndex's own JSON:
`class` where the node is no TextNode, and in `relationships` no metadata where it equals the node's own. It stands in a
list because the store does not index what is inside lists: on 2,500 chunks with six keys of metadata each, the file has
8 MB so, 13 MB with an object.

**The rule for everybody else**: keys of the metadata that start with `_llamaindex` belong to this package, and those
that start with `_langgraph` to the store of the other one. Both hide them from what they hand out, and refuse nodes
with such metadata of their own. A node without the entry, whoever wrote it,
is a TextNode.

What is not kept: the embedding (it is the store's vector), the bytes of media (LlamaIndex leaves them out of its JSON
too), and fields that a class of the caller's adds: it comes back as the class of LlamaIndex it derives from. Values of
the metadata that JSON does not have are written as LlamaIndex writes them: times as ISO texts, sets and tuples as
lists, paths as texts, NaN as null.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never

from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MetadataMode,
    NodeWithScore,
    TextNode,
)
from llama_index.core.schema import Node as MediaNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rlm_memory import Hit, Node
from rlm_memory.errors import (
    InvalidFilterError,
    InvalidInputError,
    InvalidNodeError,
    StoreCorruptError,
    StoreVersionError,
)
from rlm_memory.filters import And, Column, Comparison, Field, Filter, Key, Not, Operator, Or, parse_field, parse_filter

RESERVED: Final = "_llamaindex"
_HIDDEN: Final = (RESERVED, "_langgraph")
"""What the metadata keys of this package start with."""

Filters: TypeAlias = "MetadataFilters | MetadataFilter | Filter | Mapping[str, Any] | None"
"""LlamaIndex's filters, or those of `rlm_memory.filters`."""

_FORMAT: Final = 1
_SOURCE: Final = Key(f"{RESERVED}.ref_doc_id")
_NAMES_OF_SOURCE: Final = ("ref_doc_id", "doc_id", "document_id")

_CLASSES: Final[dict[str, type[BaseNode]]] = {
    kind.__name__: kind for kind in (TextNode, IndexNode, ImageNode, MediaNode, Document, ImageDocument)
}

_OPERATORS: Final = {
    FilterOperator.EQ: Operator.EQ,
    FilterOperator.NE: Operator.NE,
    FilterOperator.GT: Operator.GT,
    FilterOperator.GTE: Operator.GTE,
    FilterOperator.LT: Operator.LT,
    FilterOperator.LTE: Operator.LTE,
    FilterOperator.IN: Operator.IN,
    FilterOperator.NIN: Operator.NIN,
    FilterOperator.ANY: Operator.ANY,
    FilterOperator.ALL: Operator.ALL,
    FilterOperator.CONTAINS: Operator.CONTAINS,
    FilterOperator.TEXT_MATCH: Operator.TEXT_MATCH,
    FilterOperator.TEXT_MATCH_INSENSITIVE: Operator.TEXT_MATCH_INSENSITIVE,
    FilterOperator.IS_EMPTY: Operator.EMPTY,
}


# -- into the core --------------------------------------------------------------------------------------------------


def to_record(node: BaseNode, **columns: Any) -> Node:
    """Return the store's node for one of LlamaIndex's.

    Args:
        node: A node of any of LlamaIndex's own classes, or of a class derived from one.
        columns: Columns of the store that LlamaIndex does not have: type, subtype, tier, confidence, provenance.

    Raises:
        InvalidNodeError: It is no node, LlamaIndex cannot write it as JSON, or its metadata has a reserved key.
    """
    kind = next((kind for kind in type(node).__mro__ if _CLASSES.get(kind.__name__) is kind), None)
    if kind is None:
        raise InvalidNodeError(f"Expected nodes of LlamaIndex, {', '.join(_CLASSES)}; got {type(node).__name__}.")
    try:
        fields = node.model_dump(mode="json", exclude={"id_", "embedding", "text"}, exclude_defaults=True)
    except ValueError as error:
        raise InvalidNodeError(
            f"LlamaIndex cannot write node {node.node_id!r} as JSON: {error}. Convert its metadata to texts, numbers, "
            "lists and dicts first; an object that an IndexNode leads to goes to the retriever's object_map."
        ) from error
    metadata = fields.pop("metadata", {})
    if reserved := [key for key in metadata if key.startswith(_HIDDEN)]:
        raise InvalidNodeError(f"Node {node.node_id!r} has metadata under {reserved[0]!r}; that name is reserved.")
    part = _part(node, {name: value for name, value in fields.items() if name in kind.model_fields}, metadata)
    if kind is not TextNode:
        part["class"] = kind.__name__
    if part:
        source = {} if node.ref_doc_id is None else {"ref_doc_id": node.ref_doc_id}
        metadata = {**metadata, RESERVED: {**source, "node": [_FORMAT, part]}}
    return Node(id=node.node_id, text=node.get_content(MetadataMode.NONE), metadata=metadata, **columns)


def _part(node: BaseNode, fields: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without what is stored elsewhere."""
    for related in fields.get("relationships", {}).values():
        for one in related if isinstance(related, list) else [related]:
            del one["class_name"]
            if one.get("metadata", {}) == metadata:
                one.pop("metadata", None)
            else:
                one.setdefault("metadata", {})
    if isinstance(node, MediaNode) and node.text_resource and node.text_resource.text is not None:
        fields["text_resource"]["text"] = ""  # it has a text: that of the store
    if fields.get("obj", ...) is None:
        del fields["obj"]
    return fields


def to_filter(filters: Filters) -> Filter | None:
    """Return the tree for filters of LlamaIndex's; None if they say nothing.

    All operators, conditions and levels of nesting are taken. NOT is "none of these"; a group without filters says
    nothing and is left out. `node.tier` and the like are the store's columns. `ref_doc_id`, `doc_id` and `document_id`
    are the node's source, as in other stores, where the metadata has no such key itself. Filters in the dialect of
    `rlm_memory.filters` are taken too: they can ask for true and false, which a MetadataFilter cannot hold.

    >>> filters = MetadataFilters.from_dicts([{"key": "year", "operator": ">=", "value": 2020}])
    >>> to_filter(filters)
    Comparison(field=Key(name='year'), operator=<Operator.GTE: '$gte'>, value=2020)

    Raises:
        InvalidFilterError: A value does not fit its operator, or the filter is of no known kind.
    """
    match filters:
        case MetadataFilters():
            try:
                return _group(filters)
            except RecursionError:
                raise InvalidFilterError("The filters are nested too deeply.") from None  # the chain would be as long
        case MetadataFilter():
            return _comparison(filters)
        case _:
            return parse_filter(filters)


def to_condition(
    filters: Filters, *, node_ids: Sequence[str] | None = None, doc_ids: Sequence[str] | None = None
) -> Filter | None:
    """Return the tree for nodes that pass the filters, are among these nodes and come from one of these documents.

    None restricts nothing, an empty list matches no node.
    """
    parts = [] if (condition := to_filter(filters)) is None else [condition]
    if node_ids is not None:
        parts.append(Comparison(Column("id"), Operator.IN, list(node_ids)))
    if doc_ids is not None:
        parts.append(Comparison(_SOURCE, Operator.IN, list(doc_ids)))
    return _joined(And, parts)


def _group(filters: MetadataFilters) -> Filter | None:
    parts = [part for one in filters.filters if (part := to_filter(one)) is not None]
    match filters.condition:
        case FilterCondition.AND | None:
            return _joined(And, parts)
        case FilterCondition.OR:
            return _joined(Or, parts)
        case FilterCondition.NOT:
            return Not(Or(tuple(parts))) if parts else None
        case _:
            assert_never(filters.condition)


def _joined(kind: type[And | Or], parts: Sequence[Filter]) -> Filter | None:
    if len(parts) > 1:
        return kind(tuple(parts))
    return parts[0] if parts else None


def _comparison(filter: MetadataFilter) -> Filter:
    if (operator := _OPERATORS.get(filter.operator)) is None:
        raise InvalidFilterError(f"Unknown operator {filter.operator!r}; known are {', '.join(_OPERATORS)}.")
    value = True if operator is Operator.EMPTY else filter.value

    def compare(field: Field) -> Comparison:
        return Comparison(field, operator, value)

    if filter.key in _NAMES_OF_SOURCE:
        own = Key(filter.key)
        there = Comparison(own, Operator.EXISTS, True)
        return Or((And((there, compare(own))), And((Not(there), compare(_SOURCE)))))
    # in a MetadataFilter no key is an operator
    return compare(Key(filter.key) if filter.key.startswith("$") else parse_field(filter.key))


# -- out of it ------------------------------------------------------------------------------------------------------


def from_record(record: Node) -> BaseNode:
    """Return LlamaIndex's node for the store's: as it was added, or a TextNode if something else added it.

    Raises:
        StoreVersionError: A newer release wrote it.
        StoreCorruptError: Its reserved metadata is not what this package writes.
    """
    metadata = {key: value for key, value in record.metadata.items() if not key.startswith(_HIDDEN)}
    if (reserved := record.metadata.get(RESERVED)) is None:
        return TextNode(id_=record.id, text=record.text, metadata=metadata)
    try:
        format, part = reserved["node"]
        if format != _FORMAT:
            raise StoreVersionError(
                f"Node {record.id!r} was written in format {format!r} of LlamaIndex's nodes, this release reads "
                f"{_FORMAT}. Update rlm-memory."
            )
        fields = dict(part)
        kind = _CLASSES[fields.pop("class", "TextNode")]
        _fill(fields, record.text, metadata, has_resources=issubclass(kind, MediaNode))
        fields.update(id_=record.id, metadata=metadata)
        # an index node is made by the way that reads what it leads to
        return IndexNode.from_dict(fields) if kind is IndexNode else kind(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreCorruptError(
            f"Node {record.id!r}: the metadata under {RESERVED!r} is not what this package writes ({error!r}). "
            "Add the node again, or remove that key."
        ) from error


def _fill(fields: dict[str, Any], text: str, metadata: Mapping[str, Any], *, has_resources: bool) -> None:
    """Put back what is stored elsewhere."""
    if not has_resources:
        fields["text"] = text
    elif text or "text" in fields.get("text_resource", ()):
        fields["text_resource"] = {**fields.get("text_resource", {}), "text": text}
    if "relationships" in fields:
        fields["relationships"] = {
            name: [{"metadata": metadata, **one} for one in related]
            if isinstance(related, list)
            else {"metadata": metadata, **related}
            for name, related in fields["relationships"].items()
        }


def from_hit(hit: Hit) -> NodeWithScore:
    """Return the node that was found, with the score it is ranked by: 0 to 1 among the candidates of this query."""
    return NodeWithScore(node=from_record(hit.node), score=hit.score)


def cosines(hits: Sequence[Hit]) -> list[float]:
    """Return the cosine of each hit; for one without a vector the least of all, 0 at most, for it is ranked last."""
    least = min((hit.semantic for hit in hits if hit.semantic is not None), default=0.0)
    return [min(least, 0.0) if hit.semantic is None else hit.semantic for hit in hits]


def file_of_reference(location: str) -> str:
    """Return the file that a stored reference names.

    Raises:
        InvalidInputError: It is not there, or the store is on a server: what was read from somewhere may not make this
            process connect to an address, with the credentials of its user.
    """
    if "://" in location:
        raise InvalidInputError(
            f"The store of this reference is on a server, which a reference does not connect to: {location}. Open it "
            "with Memory.open and pass memory=."
        )
    if not os.path.exists(location):  # which is False where a Path would raise, for a name that is too long
        raise InvalidInputError(f"There is no store at {location} any more. Pass memory= with the one to use.")
    return location
