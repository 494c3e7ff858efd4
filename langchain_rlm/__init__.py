"""rlm-memory for LangChain: a store of memories as vector store and retriever, LangChain's models as embedders."""

try:
    import langchain_core as _langchain_core  # noqa: F401 - asked first, so that what is missing is named
except ImportError as error:
    from rlm_memory.errors import MissingExtraError

    raise MissingExtraError("langchain_rlm", "langchain") from error

from langchain_rlm.convert import Narrowing, SearchOptions
from langchain_rlm.embedding import as_embedder
from langchain_rlm.retriever import RLMRetriever
from langchain_rlm.vector_store import RLMVectorStore

__all__ = ["Narrowing", "RLMRetriever", "RLMVectorStore", "SearchOptions", "as_embedder"]
