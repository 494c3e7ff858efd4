"""Other Python processes that use the same store as a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
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


def kill_each(folder: str, cases: Iterable[tuple[str, str]], work: Callable[[str, str, str], None]) -> None:
    """Do work in a child for each (place, colour), with a folder of its own; the work is to kill the process."""
    for place, colour in cases:
        child = os.fork()
        if child == 0:
            try:
                work(os.path.join(folder, f"{place} {colour}"), colour, place)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{place} {colour} went on"
