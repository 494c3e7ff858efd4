"""Long-term memory and checkpoints for agents, in one SQLite file, for LangChain, LangGraph and LlamaIndex at once."""

from rlm_memory.aio import AsyncMemory
from rlm_memory.embedding import Model2VecEmbedder, OpenAIEmbedder, WordLlamaEmbedder, resolve_embedder
from rlm_memory.errors import RLMError
from rlm_memory.memory import Memory
from rlm_memory.ports import Embedder
from rlm_memory.records import CheckReport, Hit, Node, Problem, Stats

__all__ = [
    "AsyncMemory",
    "CheckReport",
    "Embedder",
    "Hit",
    "Memory",
    "Model2VecEmbedder",
    "Node",
    "OpenAIEmbedder",
    "Problem",
    "RLMError",
    "Stats",
    "WordLlamaEmbedder",
    "resolve_embedder",
]
