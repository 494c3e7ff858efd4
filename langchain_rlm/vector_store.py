"""A vector store over a memory, for whatever takes LangChain's."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Self, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import LangSmithRetrieverParams
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict

from langchain_rlm.convert import (
    EmbeddingLike,
    Narrowing,
    documents_to_addition,
    from_hit,
    from_record,
    texts_to_addition,
    to_deletion,
    to_memory,
    to_search,
)
from langchain_rlm.retriever import RunManager, SessionRetriever, session_of, traced
from rlm_memory import AsyncMemory, Hit, Memory
from rlm_memory.errors import InvalidInputError


class RLMVectorStore(VectorStore):
    """Keeps documents in a memory and finds them again by meaning and by words.

    Setup:
        Install `rlm-memory[langchain]`. There is no server: a store is one file, or lives in the computer's memory.

    Key init args — indexing params:
        embedding: Embeddings | Embedder | str | None
            Any of LangChain's embeddings, or what `Memory.open` takes: `"openai:text-embedding-3-small"`,
            `"model2vec:NAME"`, …. None is keyword search alone.
        alpha: float | None
            The weight of meaning against words in every search that does not say otherwise, from 0 (words alone) to 1
            (vectors alone); the memory's own unless given, which is 0.5.

    Key init args — client params:
        path: str | PathLike | None
            The file; created if there is none. None is a store in the computer's memory.
        memory: Memory
            An opened memory, in place of `path` and `embedding`.

    Instantiate:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_rlm import RLMVectorStore
        >>> store = RLMVectorStore(DeterministicFakeEmbedding(size=256))

        With `path="memory.db"` it is there again the next time. Over a memory that is open already:

        >>> from rlm_memory import Memory
        >>> words = RLMVectorStore(memory=Memory.open(":memory:", embedder=None))

    Add Documents:
        >>> from langchain_core.documents import Document
        >>> store.add_documents(
        ...     [
        ...         Document(page_content="Ada likes tea.", metadata={"who": "Ada"}, id="1"),
        ...         Document(page_content="Ada lives in Oslo.", metadata={"who": "Ada"}, id="2"),
        ...         Document(page_content="Bo lives in Rome.", metadata={"who": "Bo"}, id="3"),
        ...     ]
        ... )
        ['1', '2', '3']

        A known id is written again. Columns of the memory can be given too: `type`, `subtype`, `tier`, `confidence`,
        `provenance`.

    Delete Documents:
        >>> store.delete(["3"]), store.delete(filter={"who": "nobody"})
        (True, True)

    Search:
        >>> for document in store.similarity_search("Where does Ada live, in Oslo?", k=1):
        ...     print(document.page_content, document.metadata)
        Ada lives in Oslo. {'who': 'Ada'}

    Search with filter:
        The dialect of `rlm_memory.filters`, the same in every search; `node.tier` and the like are columns of the
        memory. `tiers`, `types`, `include_archived`, `min_confidence`, `score_threshold` and `session_id` are keywords
        of every search too. One that is not known is a TypeError.

        >>> store.similarity_search("tea", filter={"who": {"$in": ["Bo", "Eve"]}})
        []

    Search with score:
        Greater is better. The score orders the documents of one query, the relevance holds across queries:

        >>> for document, score in store.similarity_search_with_score("likes tea", k=1, alpha=0):
        ...     print(f"{score:.2f} {document.page_content}")
        1.00 Ada likes tea.
        >>> for document, relevance in store.similarity_search_with_relevance_scores("likes coffee", k=1, alpha=0):
        ...     print(f"{relevance:.2f} {document.page_content}")
        0.50 Ada likes tea.

        With all that it is made of, the raw cosine and BM25 for instance:

        >>> document, hit = store.similarity_search_with_hits("likes tea", k=1)[0]
        >>> round(hit.score, 2), hit.keyword > 0, hit.node.tier
        (1.0, True, 'task')

    Async:
        Embeddings are awaited, work on the file is done in threads: nothing blocks the event loop.

        >>> import asyncio
        >>> [document.id for document in asyncio.run(store.asimilarity_search("likes tea", k=1))]
        ['1']

    Use as Retriever:
        >>> retriever = store.as_retriever(search_type="hybrid", search_kwargs={"k": 1, "alpha": 0.3})
        >>> [document.id for document in retriever.invoke("likes tea")]
        ['1']
    """

    def __init__(
        self,
        embedding: EmbeddingLike = None,
        *,
        memory: Memory | None = None,
        path: str | PathLike[str] | None = None,
        alpha: float | None = None,
        **options: Any,
    ) -> None:
        """Make a store over an opened memory, or over the one at `path`; `store.memory.close()` closes it.

        Args:
            embedding: LangChain's, or what `Memory.open` takes; None for keyword search alone. With `memory`, the one
                that it has already, or None.
            memory: An opened memory.
            path: Where to open one, see `Memory.open`; None for one that lives in the computer's memory.
            alpha: The weight of meaning against words, from 0 to 1; the memory's own unless given.
            **options: What else `Memory.open` takes: `namespace`, `tokenizer`, `embedding_storage`, ….

        Raises:
            InvalidInputError: The arguments contradict each other.
            EmbeddingMismatchError: The memory holds vectors of another model.
            StoreError: The file cannot be opened.
        """
        self.memory = to_memory(memory, path, embedding, **options)
        self.alpha = alpha
        self._async = AsyncMemory(self.memory)

    def __repr__(self) -> str:
        return f"RLMVectorStore(memory={self.memory!r}, alpha={self.alpha})"

    @property
    def embeddings(self) -> Embeddings | None:
        """LangChain's embeddings, where the memory asks them for its vectors."""
        embeddings = getattr(self.memory.embedder, "embeddings", None)
        return embeddings if isinstance(embeddings, Embeddings) else None

    # -- making -------------------------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: EmbeddingLike = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a store with these texts in it, besides what it had.

        Args:
            texts: The texts.
            embedding: See `RLMVectorStore`.
            metadatas: A dict of JSON values for each, None for none.
            ids: An id for each; None or "" in it asks for a new one.
            **kwargs: `memory`, `path`, `alpha` and what else `RLMVectorStore` takes.

        Raises:
            InvalidNodeError: One of the texts cannot be stored; none was.
        """
        store = cls(embedding, **kwargs)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store._discard(kwargs)
            raise
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: Iterable[str],
        embedding: EmbeddingLike = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Await what `from_texts` returns."""
        store = await asyncio.to_thread(cls, embedding, **kwargs)
        try:
            await store.aadd_texts(texts, metadatas, ids=ids)
        except BaseException:
            store._discard(kwargs)
            raise
        return store

    def _discard(self, kwargs: Mapping[str, Any]) -> None:
        """Close the memory of a store that nobody will get, unless it is the caller's."""
        if kwargs.get("memory") is None:
            self.memory.close()

    # -- writing ------------------------------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Store texts and return their ids, in order; all of them, or none if one is refused.

        Args:
            texts: The texts.
            metadatas: A dict of JSON values for each, None for none.
            ids: An id for each; None or "" in it asks for a new one. A known id is written again.
            **kwargs: See `add_documents`.

        Raises:
            InvalidNodeError: One of them cannot be stored; nothing was written.
        """
        return self.memory.add(**texts_to_addition(texts, metadatas, {"ids": ids, **kwargs}))

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Await what `add_texts` returns."""
        return await self._async.add(**texts_to_addition(texts, metadatas, {"ids": ids, **kwargs}))

    def add_documents(self, documents: Iterable[Document], **kwargs: Any) -> list[str]:
        """Store documents and return their ids, in order; all of them, or none if one is refused.

        A known id is written again; the same id twice: the last one wins. The documents are not changed.

        Args:
            documents: The documents; those without an id get a new one, a uuid4.
            **kwargs: `ids`, one for each, come before the documents' own; None or "" in it asks for a new one.
                `type`, `subtype`, `tier`, `confidence` and `provenance` are for all of them, see `Node`;
                `embeddings`, `compute_embedding` and `progress` are those of `Memory.add`. Others are meant for other
                stores, and ignored: `index()` sends `batch_size`.

        Raises:
            InvalidNodeError: One of them cannot be stored; nothing was written.
            EmbeddingError: The vectors could not be had; nothing was written.
        """
        return self.memory.add(**documents_to_addition(documents, kwargs))

    async def aadd_documents(self, documents: Iterable[Document], **kwargs: Any) -> list[str]:
        """Await what `add_documents` returns."""
        return await self._async.add(**documents_to_addition(documents, kwargs))

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents, archived ones too; return whether anything was asked for.

        Other stores delete everything when nothing is said; here that is an accident, deletes nothing and returns
        False. `store.memory.clear()` deletes everything.

        Args:
            ids: The documents; unknown ids are passed over, an empty list deletes nothing.
            **kwargs: `filter`, see `rlm_memory.filters`. With `ids` too, both must hold.

        Raises:
            TypeError: A keyword is not known.
        """
        if (arguments := to_deletion(ids, kwargs)) is None:
            return False
        self.memory.delete(**arguments)
        return True

    async def adelete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Await what `delete` returns."""
        if (arguments := to_deletion(ids, kwargs)) is None:
            return False
        await self._async.delete(**arguments)
        return True

    # -- reading ------------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, in this order, archived ones too; unknown ids are left out."""
        return [from_record(record) for record in self.memory.get(ids)]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Await what `get_by_ids` returns."""
        return [from_record(record) for record in await self._async.get(ids)]

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Return what the search of this name finds.

        Args:
            query: The question.
            search_type: "similarity" or "hybrid", two names of `similarity_search`; "mmr" for
                `max_marginal_relevance_search`; "similarity_score_threshold" for
                `similarity_search_with_relevance_scores`.
            **kwargs: What that search takes.

        Raises:
            InvalidInputError: There is no search of this name.
        """
        match search_type:
            case "similarity" | "hybrid":
                return self.similarity_search(query, **kwargs)
            case "similarity_score_threshold":
                return [document for document, _ in self.similarity_search_with_relevance_scores(query, **kwargs)]
            case "mmr":
                return self.max_marginal_relevance_search(query, **kwargs)
            case _:
                raise _unknown(search_type)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Await what `search` returns."""
        match search_type:
            case "similarity" | "hybrid":
                return await self.asimilarity_search(query, **kwargs)
            case "similarity_score_threshold":
                found = await self.asimilarity_search_with_relevance_scores(query, **kwargs)
                return [document for document, _ in found]
            case "mmr":
                return await self.amax_marginal_relevance_search(query, **kwargs)
            case _:
                raise _unknown(search_type)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` best documents for a question, the best first; fewer only if fewer pass the filters.

        Args:
            query: The question. It is text, never a query language.
            k: How many.
            **kwargs: See `SearchOptions`.

        Raises:
            TypeError: A keyword is not known.
            InvalidQueryError: An argument cannot be used.
            InvalidFilterError: The filter says something that has no meaning.
            EmbeddingError: The question could not be embedded.
        """
        return [from_hit(hit) for hit in self._hits(query, k, kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Await what `similarity_search` returns."""
        return [from_hit(hit) for hit in await self._ahits(query, k, kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return what `similarity_search` does, each with the score it is ranked by: in [0, 1], greater is better.

        The score is normalised over the candidates of this one query: it orders, and says nothing across queries.
        `similarity_search_with_relevance_scores` does, `similarity_search_with_hits` has the raw scores.
        """
        return [(from_hit(hit), hit.score) for hit in self._hits(query, k, kwargs)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Await what `similarity_search_with_score` returns."""
        return [(from_hit(hit), hit.score) for hit in await self._ahits(query, k, kwargs)]

    def similarity_search_with_hits(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, Hit]]:
        """Return what `similarity_search` does, each with its `Hit`: score, cosine, BM25, relevance, and the node."""
        return [(from_hit(hit), hit) for hit in self._hits(query, k, kwargs)]

    async def asimilarity_search_with_hits(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, Hit]]:
        """Await what `similarity_search_with_hits` returns."""
        return [(from_hit(hit), hit) for hit in await self._ahits(query, k, kwargs)]

    def similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return what `similarity_search` does, each with its relevance, the most relevant first.

        Relevance is the cosine (0 if negative) or the share of the question's words that the text has, whichever is
        greater: in [0, 1], with the same meaning in every query; 1 is the question's own text, or a text with all its
        words. With `alpha=1` it is the cosine alone, with `alpha=0` the share of the words alone. `score_threshold`
        leaves out what has less, and is applied before the best `k` are taken: what is out of reach for the score,
        because the other leg weighs more, is not out of reach here.
        """
        return _by_relevance(self._hits(query, k, kwargs))

    async def asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Await what `similarity_search_with_relevance_scores` returns."""
        return _by_relevance(await self._ahits(query, k, kwargs))

    def similarity_search_by_vector(self, embedding: Sequence[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` documents nearest to a vector, by cosine; those without a vector come last.

        Args:
            embedding: The vector; its length need not be 1.
            k: How many.
            **kwargs: See `Narrowing`.

        Raises:
            TypeError: A keyword is not known; `alpha` is none here, since there are no words.
            InvalidQueryError: The vector has another length than those of the store.
        """
        return [from_hit(hit) for hit in self.memory.search(embedding=embedding, k=k, **to_search(kwargs, Narrowing))]

    async def asimilarity_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Await what `similarity_search_by_vector` returns."""
        hits = await self._async.search(embedding=embedding, k=k, **to_search(kwargs, Narrowing))
        return [from_hit(hit) for hit in hits]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Return `k` of the best documents for a question that are unlike one another, in the order they are chosen.

        Each next one has the greatest `lambda_mult * score - (1 - lambda_mult) * (its greatest cosine to one chosen)`,
        with the stored vectors.

        Args:
            query: The question.
            k: How many.
            fetch_k: How many of the best to choose from.
            lambda_mult: 1 is the score alone, 0 is diversity alone.
            **kwargs: See `SearchOptions`.

        Raises:
            TypeError: A keyword is not known.
            InvalidQueryError: An argument cannot be used.
        """
        hits = self._hits(query, k, kwargs, mmr=lambda_mult, fetch_k=fetch_k)
        return [from_hit(hit) for hit in hits]

    async def amax_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Await what `max_marginal_relevance_search` returns."""
        hits = await self._ahits(query, k, kwargs, mmr=lambda_mult, fetch_k=fetch_k)
        return [from_hit(hit) for hit in hits]

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Return `k` of the documents nearest to a vector that are unlike one another, in the order they are chosen.

        As `max_marginal_relevance_search`, with the cosine in place of the score.
        """
        hits = self.memory.search(
            embedding=embedding, k=k, mmr=lambda_mult, fetch_k=fetch_k, **to_search(kwargs, Narrowing)
        )
        return [from_hit(hit) for hit in hits]

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Await what `max_marginal_relevance_search_by_vector` returns."""
        hits = await self._async.search(
            embedding=embedding, k=k, mmr=lambda_mult, fetch_k=fetch_k, **to_search(kwargs, Narrowing)
        )
        return [from_hit(hit) for hit in hits]

    def _hits(self, query: str, k: int, options: Mapping[str, Any], **how: Any) -> list[Hit]:
        return self.memory.search(query, k=k, **self._arguments(options), **how)

    async def _ahits(self, query: str, k: int, options: Mapping[str, Any], **how: Any) -> list[Hit]:
        return await self._async.search(query, k=k, **self._arguments(options), **how)

    def _arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        arguments = to_search(options)
        if arguments.get("alpha") is None:
            arguments["alpha"] = self.alpha
        return arguments

    # -- retrieving ---------------------------------------------------------------------------------------------

    def as_retriever(self, **kwargs: Any) -> RLMVectorStoreRetriever:
        """Return a retriever over this store.

        Args:
            **kwargs: `search_type`, one of those that `search` takes; `search_kwargs`, what that search takes, which
                can be given for one call too: `retriever.invoke(query, k=1)`; `tags`, `metadata` and `name`.
        """
        tags = kwargs.pop("tags", None) or self._get_retriever_tags()
        return RLMVectorStoreRetriever(vectorstore=self, tags=tags, **kwargs)


class RLMVectorStoreRetriever(SessionRetriever, VectorStoreRetriever):
    """What `RLMVectorStore.as_retriever` returns: LangChain's, with `search_type="hybrid"` as well."""

    allowed_search_types: ClassVar[Collection[str]] = (*VectorStoreRetriever.allowed_search_types, "hybrid")

    # as_retriever(k=1) in place of search_kwargs={"k": 1} must not go unnoticed
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def _named_session(self, kwargs: Mapping[str, Any]) -> str | None:
        return {**self.search_kwargs, **kwargs}.get("session_id")

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return traced(super()._get_ls_params(**kwargs), cast("RLMVectorStore", self.vectorstore).memory)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return self.vectorstore.search(query, self.search_type, **self._arguments(kwargs, run_manager))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return await self.vectorstore.asearch(query, self.search_type, **self._arguments(kwargs, run_manager))

    def _arguments(self, kwargs: dict[str, Any], run: RunManager) -> dict[str, Any]:
        arguments = {**self.search_kwargs, **kwargs}
        memory = cast("RLMVectorStore", self.vectorstore).memory
        session_id = session_of(run, memory, arguments.get("session_id"))
        return {**arguments, "session_id": session_id}


def _by_relevance(hits: list[Hit]) -> list[tuple[Document, float]]:
    return [(from_hit(hit), hit.relevance) for hit in sorted(hits, key=lambda hit: -hit.relevance)]


def _unknown(search_type: str) -> InvalidInputError:
    known = ", ".join(RLMVectorStoreRetriever.allowed_search_types)
    return InvalidInputError(f"Unknown search_type {search_type!r}; expected one of {known}.")
