"""Cells of Python in one namespace that a session checkpoints: what an RLM, or an agent with a REPL, works in.

This is no sandbox. A cell can do what the program can: read files and keys, use the network, end the process. The
worker of `time_limit` is there so that a cell can be stopped, not so that it can do no harm. Run models that you do not
trust in a container of their own.
"""

from rlm_memory.repl.cells import CellResult
from rlm_memory.repl.console import Repl, Repls

__all__ = ["CellResult", "Repl", "Repls"]
