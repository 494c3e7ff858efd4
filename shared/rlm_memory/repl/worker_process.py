"""The program of a worker: runs the cells that its REPL sends, until that goes away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any, NoReturn

from rlm_memory.checkpoints import RLMCheckpoint, dumps, loads
from rlm_memory.repl.cells import CellResult, CellStopped, run_cell
from rlm_memory.repl.channel import Channel

_AGAIN_AFTER = 0.2
"""Seconds until a cell that caught its end is ended again."""


class HostFunctionError(RuntimeError):
    """A function of the host failed; its error is the text."""


def main() -> None:
    """Serve the REPL at the other end of stdin and stdout."""
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    # cells, and the programs that they start, must not write into the messages, nor read them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _, key = channel.receive()
    while True:
        try:
            head, body = channel.receive()
            _serve(head, body, key, channel)
        except (EOFError, BrokenPipeError):  # the REPL is gone
            return


def _serve(head: dict[str, Any], body: bytes, key: bytes, channel: Channel) -> None:
    host = _Host(channel, key)
    functions = {name: host.function(name) for name in head["functions"]}
    namespace: dict[str, Any] = {}
    state = RLMCheckpoint.from_bytes(body, trust=key, namespace=namespace, provided=functions, allow_pickle=True)
    sources = state.sources
    channel.send({"event": "began"})
    try:
        with _ended_after(head["time_limit"]):
            result = run_cell(head["source"], namespace, sources=sources, max_output=head["max_output"])
    except CellStopped as late:  # the time was over in the moment in which the cell ended
        result = CellResult(error=str(late))
    host.leave()
    channel.send({"event": "ran"})
    sources.add(head["source"], namespace)
    after = RLMCheckpoint("cell", repl_state=namespace, sources=sources)
    content = after.to_bytes(trust=key, provided=functions, pickle=True)
    lost = [f"Not kept after the cell: {issue}." for issue in after.issues]
    channel.send({"event": "done", "result": {**asdict(result), "notes": lost}}, content)


class _Host:
    """The functions of the host, for one cell and the threads that it starts; one call at a time."""

    def __init__(self, channel: Channel, key: bytes) -> None:
        self._channel = channel
        self._key = key
        self._turn = threading.Lock()
        self._left = False

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that calls the one of the host that has this name."""

        def call(*arguments: Any, **named: Any) -> Any:
            content = dumps((arguments, named), trust=self._key, strict=True)
            with self._turn, _clock_stopped():
                if self._left:
                    raise HostFunctionError(f"{name} can be called while a cell runs, and the cell has ended.")
                self._channel.send({"event": "call", "name": name}, content)
                answer, result = self._channel.receive()
            if "error" in answer:
                raise HostFunctionError(answer["error"])
            return loads(result, trust=self._key, strict=True)

        call.__name__ = call.__qualname__ = name
        return call

    def leave(self) -> None:
        """Wait for a call that another thread makes, and let none be made from then on."""
        with self._turn:
            self._left = True


@contextmanager
def _clock_stopped() -> Iterator[None]:
    """Do not count the time of the block, nor end the cell in it: a message is read and written whole."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_AFTER)


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raise CellStopped in the block after these seconds, and again for as long as it is caught there.

    Where a process has no timers, nothing is raised here; then the REPL ends the process.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_: int, __: FrameType | None) -> NoReturn:
        raise CellStopped(
            f"The cell ran for longer than {seconds:g} seconds and was stopped. What it had assigned before is kept."
        )

    signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_AFTER)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
