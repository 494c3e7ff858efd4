"""Runtimes of recursive language models whose runs can be checkpointed; each needs an extra of the same name."""
