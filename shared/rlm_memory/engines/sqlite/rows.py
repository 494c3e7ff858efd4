"""Rows of `statements.NODE_COLUMNS` as nodes."""

from rlm_memory.engines.rows import node_of

__all__ = ["node_of"]
