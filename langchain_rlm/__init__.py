"""rlm-memory for LangChain and LangGraph: a memory as vector store, retriever, callbacks, middleware and store."""

from typing import TYPE_CHECKING, Any

try:
    import langchain_core as _langchain_core  # noqa: F401 - asked first, so that what is missing is named
except ImportError as error:
    from rlm_memory.errors import MissingExtraError

    raise MissingExtraError("langchain_rlm", "langchain") from error

from langchain_rlm.convert import Narrowing, SearchOptions
from langchain_rlm.embedding import as_embedder
from langchain_rlm.repl import RLMPythonREPLTool
from langchain_rlm.retriever import RLMRetriever
from langchain_rlm.tracing import AsyncRLMCallbackHandler, RLMCallbackHandler
from langchain_rlm.vector_store import RLMVectorStore

if TYPE_CHECKING:
    from langchain_rlm.checkpoints import RLMSaver
    from langchain_rlm.graph_tracing import RLMGraphCallbackHandler
    from langchain_rlm.key_value import RLMStore
    from langchain_rlm.middleware import RLMMemoryMiddleware
    from langchain_rlm.serializer import RLMSerializer

__all__ = [
    "AsyncRLMCallbackHandler",
    "Narrowing",
    "RLMCallbackHandler",
    "RLMGraphCallbackHandler",
    "RLMMemoryMiddleware",
    "RLMPythonREPLTool",
    "RLMRetriever",
    "RLMSaver",
    "RLMSerializer",
    "RLMStore",
    "RLMVectorStore",
    "SearchOptions",
    "as_embedder",
]

# LangGraph and LangChain's agents are another extra, and take two seconds to import.
_WITH_LANGGRAPH = {
    "RLMGraphCallbackHandler": "langchain_rlm.graph_tracing",
    "RLMMemoryMiddleware": "langchain_rlm.middleware",
    "RLMSaver": "langchain_rlm.checkpoints",
    "RLMSerializer": "langchain_rlm.serializer",
    "RLMStore": "langchain_rlm.key_value",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_LANGGRAPH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from rlm_memory.errors import MissingExtraError

    try:
        return getattr(import_module(_WITH_LANGGRAPH[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"langchain", "langgraph", "ormsgpack"}:
            raise
        raise MissingExtraError(name, "langgraph") from error
