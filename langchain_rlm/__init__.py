"""rlm-memory for LangChain and LangGraph: a memory as vector store, retriever and callback handlers."""

try:
    import langchain_core as _langchain_core  # noqa: F401 - asked first, so that what is missing is named
except ImportError as error:
    from rlm_memory.errors import MissingExtraError

    raise MissingExtraError("langchain_rlm", "langchain") from error

from langchain_rlm.convert import Narrowing, SearchOptions
from langchain_rlm.embedding import as_embedder
from langchain_rlm.retriever import RLMRetriever
from langchain_rlm.tracing import AsyncRLMCallbackHandler, RLMCallbackHandler
from langchain_rlm.vector_store import RLMVectorStore

__all__ = [
    "AsyncRLMCallbackHandler",
    "Narrowing",
    "RLMCallbackHandler",
    "RLMRetriever",
    "RLMVectorStore",
    "SearchOptions",
    "as_embedder",
]
