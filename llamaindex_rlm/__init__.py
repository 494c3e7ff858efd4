"""rlm-memory for LlamaIndex."""
