"""rlm-memory for LlamaIndex: a store of memories as vector store and retriever, LlamaIndex's models as embedders."""

try:
    import llama_index.core as _llama_index  # noqa: F401 - asked first, so that what is missing is named
except ImportError as error:
    from rlm_memory.errors import MissingExtraError

    raise MissingExtraError("llamaindex_rlm", "llamaindex") from error

from llamaindex_rlm.checkpoints import load_context, save_context
from llamaindex_rlm.conversation import RLMChatStore, RLMSyncChatStore
from llamaindex_rlm.embedding import as_embedder
from llamaindex_rlm.key_value import RLMKVStore
from llamaindex_rlm.memory_block import RLMMemoryBlock
from llamaindex_rlm.repl import RLMCodeInterpreter
from llamaindex_rlm.retriever import RLMRetriever
from llamaindex_rlm.serializer import RLMSerializer
from llamaindex_rlm.tracing import RLMEventHandler, RLMSpanHandler, tracked
from llamaindex_rlm.vector_store import RLMVectorStore

__all__ = [
    "RLMChatStore",
    "RLMCodeInterpreter",
    "RLMEventHandler",
    "RLMKVStore",
    "RLMMemoryBlock",
    "RLMRetriever",
    "RLMSerializer",
    "RLMSpanHandler",
    "RLMSyncChatStore",
    "RLMVectorStore",
    "as_embedder",
    "load_context",
    "save_context",
    "tracked",
]
