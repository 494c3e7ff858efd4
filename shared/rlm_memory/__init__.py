"""Long-term memory and checkpoints for agents, in one SQLite file, for LangChain, LangGraph and LlamaIndex at once."""

from rlm_memory.aio import AsyncConversations, AsyncMemory
from rlm_memory.conversations import Conversations
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
    ForgottenAccesses,
    Hit,
    Hits,
    LogEntry,
    Message,
    Node,
    Problem,
    PromotionDecision,
    PromotionLog,
    SessionRecord,
    Stats,
    TierCounts,
)
from rlm_memory.sessions import Session

__all__ = [
    "Access",
    "AsyncConversations",
    "AsyncMemory",
    "CheckReport",
    "Condition",
    "Conversations",
    "Edge",
    "Embedder",
    "ForgottenAccesses",
    "Hit",
    "Hits",
    "LogEntry",
    "Memory",
    "Message",
    "Model2VecEmbedder",
    "Node",
    "OpenAIEmbedder",
    "Problem",
    "PromotionDecision",
    "PromotionLog",
    "PromotionPolicy",
    "RLMError",
    "Session",
    "SessionRecord",
    "Stats",
    "TierCounts",
    "WordLlamaEmbedder",
    "resolve_embedder",
]
