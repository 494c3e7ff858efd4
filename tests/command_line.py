"""What a command of rlm-memory has printed and how it ended, and such a command as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


Cli: TypeAlias = Callable[..., Result]
"""Runs a command with these arguments."""


def process(*arguments: str, stdin: int = subprocess.DEVNULL, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a program of its own, with these environment variables."""
    command = [sys.executable, "-m", "rlm_memory.cli", *arguments]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **settings}
    return subprocess.run(
        command, stdin=stdin, capture_output=True, encoding="utf-8", env=environment, timeout=60, check=False
    )
