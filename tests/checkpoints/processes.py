"""Other processes: the same interpreter with the same modules in reach, and another hash seed."""

from __future__ import annotations

import os
import sys


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this folder."""
    return [sys.executable, "-m", f"checkpoints.{module}", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment in which it finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "7"}
