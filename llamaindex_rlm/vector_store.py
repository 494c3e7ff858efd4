"""A store as a vector store of LlamaIndex."""

from __future__ import annotations

import asyncio
import builtins
import math
import os
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, ImageNode, IndexNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llamaindex_rlm.convert import cosines, file_of_reference, from_record, to_condition, to_record
from llamaindex_rlm.embedding import as_embedder
from rlm_memory import AsyncMemory, Embedder, Hit, Memory, Node
from rlm_memory.errors import EmbeddingUnavailableError, InvalidInputError, InvalidQueryError
from rlm_memory.filters import matches

_COLUMNS: Final = frozenset({"type", "subtype", "tier", "confidence", "provenance"})
_SEARCH_OPTIONS: Final = {
    "tiers": "tiers", "types": "types", "min_confidence": "min_confidence", "min_relevance": "min_relevance",
    "include_archived": "include_archived", "session_id": "session",
}  # fmt: skip
"""The keywords of a query, and what `Memory.search` calls them."""

_MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_k", "mmr_prefetch_factor"})


class RLMVectorStore(BasePydanticVectorStore):
    """Keeps LlamaIndex's nodes in a store of rlm-memory, for indexes, pipelines, retrievers and memory blocks.

    What LangChain or the core adds to the same store is found too, as a TextNode, and the other way round.

    Setup:
        Install `rlm-memory[llamaindex]`. There is no server: a store is one file, or lives in the computer's memory.

    Instantiate:
        `from_params("memory.db", embedding=model)` opens a file; `memory=` takes a memory that is open.

        >>> import asyncio
        >>> from llama_index.core.embeddings import MockEmbedding
        >>> from llama_index.core.vector_stores import VectorStoreQuery
        >>> from llamaindex_rlm import RLMVectorStore
        >>> model = MockEmbedding(embed_dim=8)
        >>> store = RLMVectorStore.from_params(":memory:", embedding=model)

    Add:
        >>> from llama_index.core.schema import TextNode
        >>> store.add(
        ...     [
        ...         TextNode(id_="a", text="Paris in France", metadata={"country": "France"}),
        ...         TextNode(id_="b", text="Oslo in Norway", metadata={"country": "Norway"}),
        ...         TextNode(id_="c", text="a mistake"),
        ...     ]
        ... )
        ['a', 'b', 'c']

        Nodes that come with an embedding keep it, a list of as many numbers as the store's vectors have; the others are
        embedded, by their text alone, if the memory has an embedder, else they are found by words and filters. Give the
        memory the model of the index, so that both can search.

    Delete:
        >>> store.delete_nodes(["c"])

    Search:
        >>> store.query(VectorStoreQuery(query_str="Oslo", mode="text_search", similarity_top_k=1)).ids
        ['b']

    Search with score:
        The greater the better: of `hybrid` and `text_search` from 0 to 1 within one query, of the other modes a cosine.

        >>> store.query(VectorStoreQuery(query_str="Oslo", mode="text_search", similarity_top_k=1)).similarities
        [1.0]

    Search with filter:
        >>> from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
        >>> filters = MetadataFilters(filters=[MetadataFilter(key="country", value="France")])
        >>> store.query(VectorStoreQuery(query_str="in", mode="hybrid", filters=filters)).ids
        ['a']

    Async:
        >>> asyncio.run(store.aquery(VectorStoreQuery(query_str="Paris", mode="text_search", similarity_top_k=1))).ids
        ['a']

    Use as a retriever, in an index:
        >>> from llama_index.core import VectorStoreIndex
        >>> index = VectorStoreIndex.from_vector_store(store, embed_model=model)
        >>> index.insert_nodes([TextNode(text="Rome is in Italy.", metadata={"country": "Italy"})])
        >>> italian = MetadataFilters(filters=[MetadataFilter(key="country", value="Italy")])
        >>> [found.text for found in index.as_retriever(filters=italian).retrieve("Which city?")]
        ['Rome is in Italy.']
        >>> store.client.close()

    It is serialised as a reference: `to_dict` names the file and the namespace, `from_dict` opens them again.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    path: str
    """The file of the store, or ":memory:"."""
    namespace: str
    alpha: float

    _memory: Memory = PrivateAttr()

    def __init__(self, memory: Memory) -> None:
        """Use an opened memory, which stays the caller's to close.

        Raises:
            InvalidInputError: It is no memory.
        """
        if not isinstance(memory, Memory):
            raise InvalidInputError(
                f"memory is {type(memory).__name__}; expected a Memory, as Memory.open returns it. "
                "RLMVectorStore.from_params(path) opens one."
            )
        super().__init__(path=memory.location, namespace=memory.namespace, alpha=memory.alpha)  # type: ignore[call-arg]  # the fields: pydantic's own __init__ is hidden by this one
        self._memory = memory

    @classmethod
    def from_params(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        embedding: BaseEmbedding | Embedder | str | None = None,
        **options: Any,
    ) -> Self:
        """Open a store, creating it if there is none; `client.close()` closes it.

        Args:
            path: A file, or ":memory:"; None for the file of RLM_MEMORY_DB, else the user's own.
            embedding: What embeds nodes and questions that come without a vector: a LlamaIndex embedder, or what
                `Memory.open` takes. None: nothing does, which is enough where an index does all the embedding.
            **options: What else `Memory.open` takes: namespace, alpha, read_only, tokenizer, …

        Raises:
            EmbeddingMismatchError: The store holds vectors of another model.
            StoreError: The file cannot be opened.
        """
        return cls(Memory.open(path, embedder=_embedder(embedding), **options))

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the class."""
        return "RLMVectorStore"

    @property
    def client(self) -> Memory:
        """The memory behind it."""
        return self._memory

    # -- writing ----------------------------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Store nodes and return their ids, in order; all of them, or none if one is refused.

        A known id is written again, and the same id twice: the last one wins.

        Args:
            nodes: Nodes, with their embedding or without.
            **add_kwargs: For all of them: type, subtype, tier, confidence, provenance.

        Raises:
            InvalidNodeError: One of them cannot be stored; nothing was written.
            EmbeddingError: The vectors could not be had; nothing was written.
        """
        records, embeddings = _prepared(nodes, add_kwargs)
        return self._memory.add(records, embeddings=embeddings)

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """See `add`."""
        records, embeddings = await asyncio.to_thread(_prepared, nodes, kwargs)
        return await AsyncMemory(self._memory).add(records, embeddings=embeddings)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes of a document, in any tier; an unknown one is no error."""
        _expect_known(delete_kwargs, frozenset(), "delete")
        if not isinstance(ref_doc_id, str):
            raise InvalidInputError(f"ref_doc_id is {ref_doc_id!r}; expected the id of a document, a str.")
        self._memory.delete(where=to_condition(None, doc_ids=[ref_doc_id]))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """See `delete`."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes with these ids that pass the filters, in any tier; with neither given, delete nothing.

        Unknown ids are passed over. An empty list of ids deletes nothing, whatever the filters; `clear` deletes all.
        """
        _expect_known(delete_kwargs, frozenset(), "delete_nodes")
        if (condition := to_condition(filters)) is not None:
            self._memory.delete(node_ids, where=condition)
        elif node_ids:
            self._memory.delete(node_ids)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """See `delete_nodes`."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def clear(self) -> None:
        """Delete every node of the namespace, also those that something else than LlamaIndex added."""
        self._memory.clear()

    async def aclear(self) -> None:
        """See `clear`."""
        await asyncio.to_thread(self.clear)

    # -- reading ----------------------------------------------------------------------------------------------------

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes with these ids, in this order, or those that pass the filters, in the order they were added.

        With both, those with the ids that pass; with neither, all. Unknown ids are left out, and an empty list of ids
        gives no nodes. The archive is shown by id only.
        """
        condition = to_condition(filters)
        if node_ids is None:
            records = self._memory.list(where=condition, limit=sys.maxsize)
        else:
            records = [record for record in self._memory.get(node_ids) if matches(condition, record)]
        return [from_record(record) for record in records]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """See `get_nodes`."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes for a query, the best first, with their similarities and ids.

        ====================  =========================================================================================
        mode                  what ranks, how many, and what the similarities are
        ====================  =========================================================================================
        DEFAULT               vectors; `similarity_top_k`; cosines from -1 to 1, also fit for a cut-off
        MMR                   vectors, chosen for diversity by `mmr_threshold` (1: relevance alone, 0: diversity alone;
                              0.5 unless given); `similarity_top_k`; cosines, in the order of choice
        HYBRID,               `alpha` · vectors + (1 - `alpha`) · words, the store's own `alpha` unless given;
        SEMANTIC_HYBRID       `hybrid_top_k`, else `similarity_top_k`; the score, from 0 to 1 within this query.
                              A greater `similarity_top_k` or `sparse_top_k` makes both legs look deeper
        TEXT_SEARCH, SPARSE   words; `sparse_top_k`, else `similarity_top_k`; the score, 0 where no word matches
        ====================  =========================================================================================

        So many nodes are returned whenever so many pass the filters. Without `query_embedding`, the memory's embedder
        embeds `query_str` where vectors are asked.

        `doc_ids` and `node_ids` restrict if they list something. Node ids that name index and image nodes alone do not:
        an index keeps track of these kinds only, and its `as_retriever` passes them unasked, meaning all nodes.

        Args:
            query: The query. Its filters may also be those of `rlm_memory.filters`.
            **kwargs: tiers, types, min_confidence, min_relevance and include_archived of `Memory.search`; `session_id`,
                the session that uses what is found, see `Memory.session`; for MMR `mmr_threshold`, if the query has
                none, and either `mmr_prefetch_k`, how many of the best to choose from, or `mmr_prefetch_factor`, how
                many times `similarity_top_k`.

        Raises:
            InvalidQueryError: The mode is none of these, or needs what the query does not have.
            InvalidFilterError: The filters say something that has no meaning.
            EmbeddingError: The question could not be embedded.
        """
        search = self._search(query, kwargs)
        return search.result(self._memory.search(search.question, **search.options))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """See `query`."""
        search = await asyncio.to_thread(self._search, query, kwargs) if query.node_ids else self._search(query, kwargs)
        return search.result(await AsyncMemory(self._memory).search(search.question, **search.options))

    def _search(self, query: VectorStoreQuery, options: dict[str, Any]) -> _Search:
        """Return what to ask the memory."""
        _expect_known(options, _MMR_OPTIONS | _SEARCH_OPTIONS.keys(), "query")
        shared = {_SEARCH_OPTIONS[name]: value for name, value in options.items() if name in _SEARCH_OPTIONS}
        shared["where"] = to_condition(
            query.filters, node_ids=self._restricting(query.node_ids), doc_ids=query.doc_ids or None
        )
        k = query.similarity_top_k
        match query.mode:
            case VectorStoreQueryMode.DEFAULT:
                return self._by_vector(query, k=k, **shared)
            case VectorStoreQueryMode.MMR:
                return self._by_vector(query, k=k, **_diversity(query, options), **shared)
            case VectorStoreQueryMode.HYBRID | VectorStoreQueryMode.SEMANTIC_HYBRID:
                wanted = k if query.hybrid_top_k is None else query.hybrid_top_k
                shared |= {"k": max(wanted, k, query.sparse_top_k or 0), "alpha": query.alpha}
                return _Search(_question(query), {**shared, "embedding": query.query_embedding}, wanted)
            case VectorStoreQueryMode.TEXT_SEARCH | VectorStoreQueryMode.SPARSE:
                wanted = k if query.sparse_top_k is None else query.sparse_top_k
                return _Search(_question(query), {**shared, "k": wanted, "alpha": 0.0}, wanted)
            case _:
                raise InvalidQueryError(
                    f"Invalid query mode: {query.mode}. Use default, mmr, hybrid, semantic_hybrid, text_search or "
                    "sparse."
                )

    def _by_vector(self, query: VectorStoreQuery, *, k: int, **options: Any) -> _Search:
        if query.query_embedding is not None:
            return _Search(None, {**options, "k": k, "embedding": query.query_embedding}, k, by_cosine=True)
        question = _question(query)
        if self._memory.embedder is None:
            raise EmbeddingUnavailableError(
                f"Query mode {query.mode} compares vectors, and there is neither a query_embedding nor an embedder. "
                "Give one of them, or ask with mode text_search."
            )
        return _Search(question, {**options, "k": k, "alpha": 1.0}, k, by_cosine=True)

    def _restricting(self, node_ids: Sequence[str] | None) -> Sequence[str] | None:
        if not node_ids:
            return None
        named = [from_record(record) for record in self._memory.get(node_ids)]
        return None if named and all(isinstance(node, IndexNode | ImageNode) for node in named) else node_ids

    # -- as a reference ---------------------------------------------------------------------------------------------

    def to_dict(self, **kwargs: Any) -> builtins.dict[str, Any]:
        """Return a reference for `from_dict`: path, namespace and alpha. The embedder is not part of it.

        Raises:
            TypeError: The store is in memory: it would be lost.
        """
        if self.path == ":memory:":
            raise TypeError("A store in ':memory:' cannot be referred to: its nodes would be lost. Use a file.")
        return super().to_dict(**kwargs)

    @classmethod
    def from_dict(  # type: ignore[override]  # the base takes any keywords, these are the ones that mean something
        cls,
        data: builtins.dict[str, Any],
        *,
        memory: Memory | None = None,
        embedding: BaseEmbedding | Embedder | str | None = None,
    ) -> Self:
        """Return the store that `to_dict` referred to.

        Args:
            data: What `to_dict` returned.
            memory: The opened memory to use; else the file is opened.
            embedding: For the file, see `from_params`.

        Raises:
            InvalidInputError: There is no such file, the store is on a server, or the memory is another store.
        """
        path, namespace = data["path"], data["namespace"]
        if memory is None:
            return cls.from_params(
                file_of_reference(path), embedding=embedding, namespace=namespace, alpha=data["alpha"]
            )
        if (memory.location, memory.namespace) != (path, namespace):
            raise InvalidInputError(f"{memory!r} is not the store of this reference: {path!r}, {namespace!r}.")
        return cls(memory)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the way to open the same file again; LlamaIndex's own would drop the memory without a word."""
        return type(self), (self._memory,)


@dataclass(frozen=True, slots=True)
class _Search:
    """What a query asks `Memory.search` for, and how its hits become a result."""

    question: str | None
    options: dict[str, Any]
    wanted: int
    by_cosine: bool = False

    def result(self, hits: list[Hit]) -> VectorStoreQueryResult:
        best = hits[: self.wanted]
        return VectorStoreQueryResult(
            nodes=[from_record(hit.node) for hit in best],
            similarities=cosines(best) if self.by_cosine else [hit.score for hit in best],
            ids=[hit.id for hit in best],
        )


def _embedder(embedding: BaseEmbedding | Embedder | str | None) -> Embedder | str | None:
    return as_embedder(embedding) if isinstance(embedding, BaseEmbedding) else embedding


def _prepared(nodes: Sequence[BaseNode], columns: dict[str, Any]) -> tuple[list[Node], list[list[float] | None]]:
    _expect_known(columns, _COLUMNS, "add")
    return [to_record(node, **columns) for node in nodes], [node.embedding for node in nodes]


def _expect_known(options: dict[str, Any], known: AbstractSet[str], method: str) -> None:
    # one that is misspelled would be a restriction that does not restrict
    if unknown := sorted(options.keys() - known):
        raise TypeError(
            f"{method} takes {', '.join(sorted(known)) or 'no further keywords'}; got {', '.join(unknown)}."
        )


def _question(query: VectorStoreQuery) -> str:
    if query.query_str is None:
        raise InvalidQueryError(f"Query mode {query.mode} needs a query_str.")
    return query.query_str


def _diversity(query: VectorStoreQuery, options: dict[str, Any]) -> dict[str, Any]:
    threshold = options.get("mmr_threshold") if query.mmr_threshold is None else query.mmr_threshold
    prefetch, factor = options.get("mmr_prefetch_k"), options.get("mmr_prefetch_factor")
    if prefetch is not None and factor is not None:
        raise InvalidQueryError("Give either mmr_prefetch_k or mmr_prefetch_factor, not both.")
    if factor is not None:
        prefetch = math.ceil(factor * query.similarity_top_k)
    return {"mmr": 0.5 if threshold is None else threshold, "fetch_k": prefetch}
