"""A retriever over a memory, for chains."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from pydantic import ConfigDict

from langchain_rlm.convert import EmbeddingLike, SearchOptions, from_hit, to_memory, to_search
from rlm_memory import AsyncMemory, Memory
from rlm_memory.errors import InvalidInputError

_SESSION_KEYS = ("session_id", "thread_id")


class SessionRetriever(BaseRetriever):
    """A retriever that knows which session its run belongs to."""

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Return the documents found for a question; see LangChain's own."""
        return super().invoke(input, with_session(config, self._named_session(kwargs)), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Await what `invoke` returns."""
        return await super().ainvoke(input, with_session(config, self._named_session(kwargs)), **kwargs)

    @abstractmethod
    def _named_session(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return the session that the call, or else the retriever, names."""


class RLMRetriever(SessionRetriever):
    """Finds what a memory has about a question, by meaning and by words.

    Setup:
        Install `rlm-memory[langchain]`.

    Key init args:
        memory: Memory
            An opened memory. Or else `path` and `embedding`, to open one.
        k: int
            How many documents.
        alpha: float | None
            The weight of meaning against words, from 0 (words alone) to 1 (vectors alone); the memory's unless given.
        filter, tiers, types, include_archived, min_confidence, score_threshold
            Which documents, see `Narrowing`.
        session_id: str | None
            The session that uses what is found, see `Memory.session`; without it, the `session_id` or `thread_id` of
            the run's configuration, if there is one. A run that has an `RLMCallbackHandler` leaves it to that.
        scores_key: str | None
            A metadata key that gets the scores of each document; by default the metadata is what was added.

    Instantiate:
        >>> from langchain_rlm import RLMRetriever
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> texts = ["Ada likes tea.", "Ada lives in Oslo.", "Bo lives in Rome."]
        >>> ids = memory.add(texts, metadatas=[{"n": 1}, {}, {}])
        >>> retriever = RLMRetriever(memory=memory, k=1)

    Usage:
        >>> [document.page_content for document in retriever.invoke("What does Ada like to drink, tea?")]
        ['Ada likes tea.']

        Every init arg can be given for one call:

        >>> len(retriever.invoke("Ada", k=3))
        3

    Search with filter:
        An operator that is not known raises `InvalidFilterError`.

        >>> retriever.invoke("Ada", filter={"n": 1}, scores_key="scores")[0].metadata["scores"]["relevance"]
        1.0

    Async:
        >>> import asyncio
        >>> [document.page_content for document in asyncio.run(retriever.ainvoke("Who lives in Rome?"))]
        ['Bo lives in Rome.']

    Use within a chain:
        >>> from langchain_core.prompts import ChatPromptTemplate
        >>> from langchain_core.runnables import RunnablePassthrough
        >>> def texts(documents):
        ...     return " ".join(document.page_content for document in documents)
        >>> prompt = ChatPromptTemplate.from_template("{question} {context}")
        >>> chain = {"context": retriever | texts, "question": RunnablePassthrough()} | prompt
        >>> chain.invoke("Who lives in Rome?").messages[0].content
        'Who lives in Rome? Bo lives in Rome.'
    """

    memory: Memory
    k: int = 4
    alpha: float | None = None
    filter: Any = None
    tiers: list[str] | str | None = None
    types: list[str] | str | None = None
    include_archived: bool = False
    min_confidence: float | None = None
    score_threshold: float | None = None
    session_id: str | None = None
    scores_key: str | None = None

    # a keyword that is misspelled must not be a filter that is not there
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def __init__(
        self,
        *,
        memory: Memory | None = None,
        path: str | PathLike[str] | None = None,
        embedding: EmbeddingLike = None,
        **fields: Any,
    ) -> None:
        """Make a retriever over an opened memory, or over the one at `path`; `retriever.memory.close()` closes it.

        Args:
            memory: An opened memory.
            path: Where to open one, see `Memory.open`.
            embedding: Its embedder: LangChain's, or what `Memory.open` takes; None for keyword search alone.
            **fields: The others.

        Raises:
            InvalidInputError: There is neither `memory` nor `path`, or both.
            EmbeddingMismatchError: The memory holds vectors of another model.
        """
        if memory is None and path is None:
            raise InvalidInputError("A retriever needs memory=, an opened Memory, or path= to open one.")
        super().__init__(**{"memory": to_memory(memory, path, embedding), **fields})

    def _named_session(self, kwargs: Mapping[str, Any]) -> str | None:
        named: str | None = kwargs.get("session_id", self.session_id)
        return named

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return traced(super()._get_ls_params(**kwargs), self.memory)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        arguments, scores_key = self._arguments(kwargs, run_manager)
        return [from_hit(hit, scores_key) for hit in self.memory.search(query, **arguments)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        arguments, scores_key = self._arguments(kwargs, run_manager)
        return [from_hit(hit, scores_key) for hit in await AsyncMemory(self.memory).search(query, **arguments)]

    def _arguments(self, kwargs: dict[str, Any], run: RunManager) -> tuple[dict[str, Any], str | None]:
        """Return the arguments of the search, and the metadata key for the scores."""
        options = {name: getattr(self, name) for name in SearchOptions.__annotations__} | kwargs
        options["session_id"] = session_of(run, self.memory, options["session_id"])
        k, scores_key = options.pop("k", self.k), options.pop("scores_key", self.scores_key)
        return {"k": k, **to_search(options)}, scores_key


RunManager: TypeAlias = AsyncCallbackManagerForRetrieverRun | CallbackManagerForRetrieverRun


def session_of(run: RunManager, memory: Memory, session_id: str | None) -> str | None:
    """Return the session that a retrieval reports to: the one that was named, else the one its run belongs to.

    None where there is none, and where a handler of the run tells the memory of what is found: once is enough.
    """
    if any(getattr(handler, "memory", None) is memory for handler in run.handlers):
        return None
    return session_id or next((run.metadata[key] for key in _SESSION_KEYS if run.metadata.get(key)), None)


def with_session(config: RunnableConfig | None, session_id: str | None) -> RunnableConfig:
    """Return a configuration that names its session in its metadata, where retrievers and handlers find it.

    That is the given session, else the one of the configuration: what is configurable reaches no retriever.
    """
    config = ensure_config(config)
    configurable, metadata = config.get("configurable", {}), config.get("metadata", {})
    named = {key: str(configurable[key]) for key in _SESSION_KEYS if configurable.get(key)} | metadata
    if session_id is not None:
        named["session_id"] = session_id
    return cast("RunnableConfig", {**config, "metadata": named})


def traced(params: LangSmithRetrieverParams, memory: Memory) -> LangSmithRetrieverParams:
    """Return LangSmith's parameters with what the memory can tell: the store, its embedder and model."""
    params["ls_vector_store_provider"] = "RLMVectorStore"
    if (embedder := memory.embedder) is not None:
        params["ls_embedding_provider"] = type(getattr(embedder, "embeddings", embedder)).__name__
        if embedder.model:
            params["ls_embedding_model"] = embedder.model
    return params
