"""What a cell prints, and nothing that others print meanwhile: several cells may run at once in one process."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TextIO


def shortened(text: str, limit: int) -> str:
    r"""Return the text, or its beginning and end with a note of what is left out.

    >>> shortened("0123456789", 6)
    '012\n… 4 characters left out …\n789'
    """
    kept = Kept(limit)
    kept.write(text)
    return kept.text


class Kept:
    """The beginning and the end of what is written, in memory that is bounded by `limit` characters."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._head = ""
        self._tail: list[str] = []
        self._tail_length = 0
        self._written = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Add a text."""
        with self._lock:
            self._written += len(text)
            missing = self._head_room - len(self._head)
            self._head += text[:missing]
            self._tail.append(text[missing:])
            self._tail_length += len(self._tail[-1])
            if self._tail_length > 2 * self._tail_room or len(self._tail) > self._tail_room:
                self._tail = [self._ending()]
                self._tail_length = len(self._tail[0])

    @property
    def text(self) -> str:
        """All that was written, or what is kept of it with a note between."""
        with self._lock:
            tail = self._ending()
            left_out = self._written - len(self._head) - len(tail)
            return self._head + (f"\n… {left_out:,} characters left out …\n" if left_out else "") + tail

    def _ending(self) -> str:
        joined = "".join(self._tail)
        return joined[max(0, len(joined) - self._tail_room) :]


@dataclass(frozen=True, slots=True)
class Output:
    """What one cell prints, while it runs."""

    stdout: Kept
    stderr: Kept
    threads_before: frozenset[int | None]


_lock: Final = threading.Lock()
_running: Final[list[Output]] = []
_current: Final[ContextVar[Output | None]] = ContextVar("rlm_memory_cell", default=None)


@contextmanager
def captured(limit: int) -> Iterator[Output]:
    """Collect what this thread, and the threads that it starts, print while the block runs.

    What other threads print goes where it went before. Nobody types for a cell: its stdin is at its end.
    """
    output = Output(Kept(limit), Kept(limit), frozenset(thread.ident for thread in threading.enumerate()))
    token = _current.set(output)
    with _lock:
        _running.append(output)
        if not isinstance(sys.stdout, _Router):
            sys.stdout = _Router(sys.stdout, "stdout")
        if not isinstance(sys.stderr, _Router):
            sys.stderr = _Router(sys.stderr, "stderr")
        if not isinstance(sys.stdin, _Input):
            sys.stdin = _Input(sys.stdin)
    try:
        yield output
    finally:
        _current.reset(token)
        with _lock:
            _running.remove(output)
            if not _running:
                if isinstance(sys.stdout, _Router):
                    sys.stdout = sys.stdout.original
                if isinstance(sys.stderr, _Router):
                    sys.stderr = sys.stderr.original
                if isinstance(sys.stdin, _Input):
                    sys.stdin = sys.stdin.original


def _output_of_this_thread() -> Output | None:
    output = _current.get()
    with _lock:
        if output is not None and any(output is each for each in _running):
            return output
        # A thread that a cell started does not know it (before Python 3.14). It is the cell's if no other cell runs.
        if len(_running) == 1 and threading.get_ident() not in _running[0].threads_before:
            return _running[0]
    return None


class _Router(io.TextIOBase):
    """Stands for stdout or stderr while cells run, and gives each what its threads print."""

    def __init__(self, original: TextIO, name: str) -> None:
        self.original = original
        self._name = name

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        output = _output_of_this_thread()
        if output is None:
            self.original.write(text)
        else:
            (output.stdout if self._name == "stdout" else output.stderr).write(text)
        return len(text)

    def flush(self) -> None:
        self.original.flush()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has an attribute without a value
        return "utf-8"


class _Input(io.TextIOBase):
    """Stands for stdin while cells run. `exit()` closes stdin before it raises: a cell does not close the program's."""

    def __init__(self, original: TextIO) -> None:
        self.original = original

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]  # a text, as TextIO has it
        return "" if _output_of_this_thread() is not None else self.original.readline(-1 if size is None else size)

    def read(self, size: int | None = -1) -> str:
        return "" if _output_of_this_thread() is not None else self.original.read(-1 if size is None else size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if _output_of_this_thread() is None:
            self.original.close()

    def __del__(self) -> None:
        """Leave the original open: IOBase would close it."""
