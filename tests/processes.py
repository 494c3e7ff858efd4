"""Other Python processes that use the same store as a test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

PRELUDE = """\
import os, sys
from rlm_memory import Memory
from support import WordEmbedder
"""


def command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs a program, which finds what this process can import, and its arguments in argv."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment in which a program imports from where this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def python(program: str, *arguments: object, **options: Any) -> str:
    """Run a program to its end and return what it prints; what it complains about fails the test."""
    done = subprocess.run(
        command(program, *arguments), env=environment(), capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Error" not in done.stderr, done.stderr
    return done.stdout


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program, to talk with it over its standard input and output."""
    return subprocess.Popen(
        command(program, *arguments), env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
