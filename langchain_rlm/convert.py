"""What LangChain's documents and keywords are in the store, and back. No mapping elsewhere.

**Documents.** Text, metadata and id of a document are those of the node, as they are: it comes out equal to what went
in. Metadata keys that start with `_llamaindex` or `_langgraph` belong to the other adapter and to `RLMStore`: they are
hidden, and refused.

**Filters** are those of `rlm_memory.filters`: `{"source": "a", "year": {"$gte": 2020}}`, `{"node.tier": "longterm"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, TypeAlias, TypedDict

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_rlm.embedding import as_embedder
from rlm_memory import Embedder, Hit, Memory, Node, resolve_embedder
from rlm_memory.errors import InvalidInputError, InvalidNodeError
from rlm_memory.filters import Filter

EmbeddingLike: TypeAlias = "Embeddings | Embedder | str | None"
"""LangChain's embeddings, or what `Memory.open` takes; None for keyword search alone."""

RESERVED: Final = ("_llamaindex", "_langgraph")
"""How metadata keys begin that are not the user's."""

_ADDITION: Final = (
    "type", "subtype", "tier", "confidence", "provenance", "embeddings", "compute_embedding", "progress",
)  # fmt: skip


class Narrowing(TypedDict, total=False):
    """The keywords that every search takes: which documents it is about.

    `filter`: see `rlm_memory.filters`. `tiers`, `types`: all but the archive, and all, unless given.
    `include_archived`: search the archive too. `min_confidence`: leave out what is less sure. `score_threshold`: leave
    out what has less relevance, see `RLMVectorStore.similarity_search_with_relevance_scores`. `session_id`: the session
    that uses what is found, see `Memory.session`.
    """

    filter: Filter | Mapping[str, Any] | None
    tiers: Sequence[str] | str | None
    types: Sequence[str] | str | None
    include_archived: bool
    min_confidence: float | None
    score_threshold: float | None
    session_id: str | None


class SearchOptions(Narrowing, total=False):
    """The keywords of a search for a text: those of every search, and how its two legs are weighed.

    `alpha`: the weight of meaning against words, from 0 (words alone) to 1 (vectors alone); the store's unless given.
    """

    alpha: float | None


_SEARCH: Final = {"filter": "where", "score_threshold": "min_relevance", "session_id": "session"}
"""LangChain's words for those of `Memory.search`; the others are the same."""


# -- into the core --------------------------------------------------------------------------------------------------


def to_memory(
    memory: Memory | None, path: str | PathLike[str] | None, embedding: EmbeddingLike, **options: Any
) -> Memory:
    """Return the memory that is given, or open the one that the other arguments describe.

    Args:
        memory: An opened memory.
        path: Where to open one, see `Memory.open`; None for one that lives in the computer's memory.
        embedding: Its embedder. With `memory`, the one that it has already, or None.
        **options: What else `Memory.open` takes.

    Raises:
        InvalidInputError: They contradict each other.
    """
    if memory is None:
        embedder = as_embedder(embedding) if isinstance(embedding, Embeddings) else embedding
        return Memory.open(":memory:" if path is None else path, embedder=embedder, **options)
    if not isinstance(memory, Memory):
        raise InvalidInputError(f"memory is {type(memory).__name__}; expected a Memory, as Memory.open returns it.")
    if given := [name for name, value in {"path": path, **options}.items() if value is not None]:
        raise InvalidInputError(
            f"memory= is open already, so {', '.join(given)} cannot be given too; give it to Memory.open."
        )
    if embedding is not None and not _is_of(embedding, memory):
        raise InvalidInputError(
            f"memory= embeds with {memory.embedder!r} already; leave the embedding out (None), or open the memory with "
            "Memory.open(…, embedder=as_embedder(embedding))."
        )
    return memory


def _is_of(embedding: EmbeddingLike, memory: Memory) -> bool:
    """Return whether the embedder of a memory is this one, or another of the same model."""
    own, other = memory.embedder, as_embedder(embedding) if isinstance(embedding, Embeddings) else embedding
    if own is None:
        return False
    resolved = resolve_embedder(other)
    assert resolved is not None
    if own.model or resolved.model:
        return own.model == resolved.model
    return getattr(own, "embeddings", own) is embedding


def documents_to_addition(documents: Iterable[Document], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Memory.add` for documents and the keywords they were added with.

    Columns of the store (type, subtype, tier, confidence, provenance) go into every node; `ids`, `embeddings`,
    `compute_embedding` and `progress` are those of `Memory.add`. What else there is is meant for another store:
    `index()` sends `batch_size` to all.

    Raises:
        InvalidNodeError: One of them is no document, or its metadata has a reserved key.
    """
    listed = list(documents)
    for document in listed:
        if not isinstance(document, Document):
            raise InvalidNodeError(f"Expected documents of LangChain, got {type(document).__name__}.")
    ids = options.get("ids")
    return _addition(
        [document.page_content for document in listed],
        [document.id for document in listed] if ids is None else ids,
        [document.metadata for document in listed],
        options,
    )


def texts_to_addition(
    texts: Iterable[str], metadatas: Iterable[Mapping[str, Any] | None] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of `Memory.add` for texts, see `documents_to_addition`.

    Raises:
        InvalidNodeError: One is no text, there is not one metadata a text, or it has a reserved key.
    """
    listed = list(texts)
    given = None if metadatas is None else list(metadatas)
    if given is not None and len(given) != len(listed):
        raise InvalidNodeError(f"metadatas: expected {len(listed)}, one for each text, got {len(given)}.")
    return _addition(listed, options.get("ids"), given, options)


def _addition(
    texts: Sequence[str],
    ids: Sequence[str | None] | None,
    metadatas: Sequence[Mapping[str, Any] | None] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of `Memory.add` for the parts of documents."""
    for position, text in enumerate(texts):
        if not isinstance(text, str):  # the memory takes nodes too, and the metadata in one would not be looked at
            raise InvalidNodeError(f"Item {position}: its text is {type(text).__name__}; expected a str.")
    for metadata in metadatas or ():
        for key in metadata if isinstance(metadata, Mapping) else ():  # the memory says what is wrong with others
            if isinstance(key, str) and key.startswith(RESERVED):
                raise InvalidNodeError(f"A document has metadata under {key!r}; that name is reserved.")
    given = {name: options[name] for name in _ADDITION if name in options}
    return {"texts": texts, "ids": ids, "metadatas": metadatas, **given}


def to_deletion(ids: Sequence[str] | None, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `Memory.delete`, None if nothing is asked for.

    Raises:
        TypeError: A keyword is not `filter`: without the filter that was meant, too much would be deleted.
    """
    if unknown := options.keys() - {"filter"}:
        raise TypeError(f"delete takes ids and filter; it does not take {', '.join(sorted(map(repr, unknown)))}.")
    filter = options.get("filter")
    return {"ids": ids, "where": filter} if ids is not None or filter else None


def to_search(options: Mapping[str, Any], known: type[Narrowing] = SearchOptions) -> dict[str, Any]:
    """Return the arguments of `Memory.search` for the keywords of a search.

    Args:
        options: The keywords.
        known: Those that this search takes.

    Raises:
        TypeError: It does not take one of them: a filter that is misspelled is no filter.
    """
    if unknown := options.keys() - known.__annotations__.keys():
        raise TypeError(
            f"This search does not take {', '.join(sorted(map(repr, unknown)))}; "
            f"it takes k, {', '.join(known.__annotations__)}."
        )
    return {_SEARCH.get(name, name): value for name, value in options.items()}


# -- out of it ------------------------------------------------------------------------------------------------------


def from_record(record: Node) -> Document:
    """Return the document for the store's node: its text, id and metadata, nothing else."""
    metadata = {key: value for key, value in record.metadata.items() if not key.startswith(RESERVED)}
    return Document(page_content=record.text, id=record.id, metadata=metadata)


def from_hit(hit: Hit, scores_key: str | None = None) -> Document:
    """Return the document that was found.

    Args:
        hit: What `Memory.search` returned.
        scores_key: The metadata key to put `{"score", "semantic", "keyword", "relevance"}` under, see `Hit`.
    """
    document = from_record(hit.node)
    if scores_key is not None:
        document.metadata[scores_key] = {
            "score": hit.score, "semantic": hit.semantic, "keyword": hit.keyword, "relevance": hit.relevance,
        }  # fmt: skip
    return document
