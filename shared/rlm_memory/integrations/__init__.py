"""Runtimes of recursive language models whose runs can be checkpointed; each needs an extra of the same name."""

from rlm_memory.errors import RLMError


class UnsupportedRuntimeError(RLMError, ImportError):
    """The installed version of a runtime lacks what is used of it; the message says what, and what to install."""
