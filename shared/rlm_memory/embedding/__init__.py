"""Embedders: OpenAI and what speaks its protocol, models that run here, and objects of the caller's own."""

from rlm_memory.embedding.checks import as_matrix, checked, expect_texts
from rlm_memory.embedding.local import Model2VecEmbedder, WordLlamaEmbedder
from rlm_memory.embedding.remote import OpenAIEmbedder
from rlm_memory.embedding.resolve import CompletedEmbedder, embedder_model, resolve_embedder
from rlm_memory.embedding.tokens import estimate_tokens, token_count

__all__ = [
    "CompletedEmbedder",
    "Model2VecEmbedder",
    "OpenAIEmbedder",
    "WordLlamaEmbedder",
    "as_matrix",
    "checked",
    "embedder_model",
    "estimate_tokens",
    "expect_texts",
    "resolve_embedder",
    "token_count",
]
