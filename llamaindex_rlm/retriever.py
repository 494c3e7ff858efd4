"""A store as a retriever of LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle

from llamaindex_rlm.convert import Filters, from_hit, to_filter
from rlm_memory import AsyncMemory, Embedder, Memory
from rlm_memory.errors import InvalidInputError


class RLMRetriever(BaseRetriever):
    """Finds memories by meaning and by words, whoever stored them.

    The score of a result orders the results of one question, from 0 to 1. For cosines, which mean the same across
    questions, use `RLMVectorStore` in mode DEFAULT.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> import asyncio
        >>> from llamaindex_rlm import RLMRetriever
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> years = [{"year": 1999}, {"year": 2024}, {}]
        >>> ids = memory.add(["Old tea.", "New tea.", "Oslo is in Norway."], metadatas=years)
        >>> retriever = RLMRetriever(memory, similarity_top_k=1)

    Search:
        >>> [found.text for found in retriever.retrieve("Which country has Oslo?")]
        ['Oslo is in Norway.']

    Search with filter:
        `MetadataFilters`, or the dialect of `rlm_memory.filters`; an operator that is not known raises
        `InvalidFilterError`.

        >>> recent = RLMRetriever(memory, filters={"year": {"$gte": 2000}})
        >>> [found.text for found in recent.retrieve("tea")]
        ['New tea.']

    Async:
        >>> [found.text for found in asyncio.run(recent.aretrieve("tea"))]
        ['New tea.']

    Use in a query engine:
        >>> from llama_index.core.llms import MockLLM
        >>> from llama_index.core.query_engine import RetrieverQueryEngine
        >>> engine = RetrieverQueryEngine.from_args(recent, llm=MockLLM())
        >>> len(engine.query("Which tea?").source_nodes)
        1
        >>> memory.close()
    """

    def __init__(
        self,
        memory: Memory,
        *,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        alpha: float | None = None,
        filters: Filters = None,
        tiers: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        min_confidence: float | None = None,
        min_relevance: float | None = None,
        include_archived: bool = False,
        mmr_threshold: float | None = None,
        session_id: str | None = None,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
    ) -> None:
        """Use an opened memory, which stays the caller's to close.

        Args:
            memory: Where to search.
            similarity_top_k: How many nodes to return.
            alpha: The weight of meaning against words, from 0 to 1; the memory's own unless given.
            filters: LlamaIndex's filters, or those of `rlm_memory.filters`.
            tiers: The tiers to search; all but the archive unless given.
            types: The types of node to search; all unless given.
            min_confidence: Leave out nodes that are less sure than this.
            min_relevance: Leave out nodes that are less relevant than this, see `Memory.search`.
            include_archived: Search the archive too.
            mmr_threshold: Choose for diversity: 1 is relevance alone, 0 diversity alone.
            session_id: The session that uses what is found, see `Memory.session`.
            callback_manager: LlamaIndex's.
            object_map: What index nodes lead to, by their index_id.
            objects: The same as a list of index nodes that hold it.
            verbose: Print when the retriever follows an index node.

        Raises:
            InvalidInputError: It is no memory.
            InvalidFilterError: The filters say something that has no meaning.
        """
        if not isinstance(memory, Memory):
            raise InvalidInputError(f"memory is {type(memory).__name__}; expected a Memory, as Memory.open returns it.")
        self.memory = memory
        self.similarity_top_k = similarity_top_k
        self.alpha = alpha
        self._options: dict[str, Any] = {
            "where": to_filter(filters),
            "tiers": None if tiers is None else list(tiers),
            "types": None if types is None else list(types),
            "min_confidence": min_confidence,
            "min_relevance": min_relevance,
            "include_archived": include_archived,
            "mmr": mmr_threshold,
            "session": session_id,
        }
        super().__init__(callback_manager=callback_manager, object_map=object_map, objects=objects, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None and (embedder := self._embedder_of_others(query_bundle)) is not None:
            embedding = _mean([embedder.embed_query(text) for text in query_bundle.embedding_strs])
        return [from_hit(hit) for hit in self.memory.search(query_bundle.query_str, **self._asked(embedding))]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None and (embedder := self._embedder_of_others(query_bundle)) is not None:
            texts = query_bundle.embedding_strs
            embedding = _mean(await asyncio.gather(*(_awaited(embedder, text) for text in texts)))
        hits = await AsyncMemory(self.memory).search(query_bundle.query_str, **self._asked(embedding))
        return [from_hit(hit) for hit in hits]

    def _asked(self, embedding: list[float] | None) -> dict[str, Any]:
        return {**self._options, "embedding": embedding, "k": self.similarity_top_k, "alpha": self.alpha}

    def _embedder_of_others(self, query_bundle: QueryBundle) -> Embedder | None:
        """Return the embedder where other texts than the question are to be embedded, as HyDE wants it."""
        if not query_bundle.custom_embedding_strs:
            return None
        alpha = self.memory.alpha if self.alpha is None else self.alpha
        return None if alpha == 0 else self.memory.embedder


async def _awaited(embedder: Embedder, text: str) -> Any:
    if (method := getattr(embedder, "aembed_query", None)) is not None:
        return await method(text)
    return await asyncio.to_thread(embedder.embed_query, text)


def _mean(vectors: list[Any]) -> list[float]:
    mean: list[float] = np.mean(np.asarray(vectors, dtype=np.float32), axis=0).tolist()
    return mean
