"""Long-term memory and checkpoints for agents, in one SQLite file, for LangChain, LangGraph and LlamaIndex at once."""

from rlm_memory.aio import AsyncMemory
from rlm_memory.embedding import Model2VecEmbedder, OpenAIEmbedder, WordLlamaEmbedder, resolve_embedder
from rlm_memory.errors import RLMError
from rlm_memory.memory import Memory
from rlm_memory.ports import Embedder
from rlm_memory.promotion import PromotionPolicy
from rlm_memory.records import (
    Access,
    CheckReport,
    Condition,
    Edge,
    Hit,
    LogEntry,
    Node,
    Problem,
    PromotionDecision,
    SessionRecord,
    Stats,
    TierCounts,
)
from rlm_memory.sessions import Session

__all__ = [
    "Access",
    "AsyncMemory",
    "CheckReport",
    "Condition",
    "Edge",
    "Embedder",
    "Hit",
    "LogEntry",
    "Memory",
    "Model2VecEmbedder",
    "Node",
    "OpenAIEmbedder",
    "Problem",
    "PromotionDecision",
    "PromotionPolicy",
    "RLMError",
    "Session",
    "SessionRecord",
    "Stats",
    "TierCounts",
    "WordLlamaEmbedder",
    "resolve_embedder",
]
