"""A process of its own for cells, so that one that never ends can be ended."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from rlm_memory.checkpoints import RLMCheckpoint, RLMSession, dumps, loads
from rlm_memory.repl.cells import CellResult
from rlm_memory.repl.channel import Channel

_GRACE: Final = 1.0
"""Seconds that a cell has, after its time, to react."""


class Worker:
    """Runs cells in another process, which starts with the first one.

    The variables go there and come back with each cell, in the format of checkpoints: what that cannot hold is gone
    after the cell, and reported. A cell that ends its process, or has to be ended with it, leaves them untouched.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = dict(functions)
        self._process: _Process | None = None

    def run(self, source: str, session: RLMSession, *, max_output: int, time_limit: float) -> CellResult:
        """Run a cell on the variables of a session, which has them as the cell left them when this returns."""
        if self._process is None:
            self._process = _Process()
        process = self._process
        state = RLMCheckpoint("cell", repl_state=session.namespace, sources=session.sources)
        content = state.to_bytes(trust=process.key, provided=self._functions, pickle=True)
        request = {
            "source": source,
            "max_output": max_output,
            "time_limit": time_limit,
            "functions": [*self._functions],
        }
        deadline = _Deadline(time_limit + _GRACE, process.kill)
        try:
            process.channel.send(request, content)
            while True:
                head, body = process.channel.receive()
                match head["event"]:
                    case "began":
                        deadline.resume()
                    case "call":
                        deadline.pause()
                        self._answer(head["name"], body, process)
                        deadline.resume()
                    case "ran":
                        deadline.pause()
                    case _:
                        break
        except (EOFError, OSError):
            self.close()
            return CellResult(error=_ending(process.exit_code, time_limit if deadline.passed else None))
        except BaseException:
            self.close()  # it would go on with the cell, and its answer would be taken for that of the next one
            raise
        finally:
            deadline.pause()
        self._take_back(body, session, process.key)
        return CellResult(**{**head["result"], "notes": tuple(head["result"]["notes"])})

    def close(self) -> None:
        """End the process; the next cell starts another one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _answer(self, name: str, body: bytes, process: _Process) -> None:
        try:
            arguments, named = loads(body, trust=process.key, strict=True)
            content = dumps(self._functions[name](*arguments, **named), trust=process.key, strict=True)
        except Exception as error:  # noqa: BLE001  # it is the cell's to handle
            process.channel.send({"error": f"{type(error).__name__}: {error}"})
        else:
            process.channel.send({}, content)

    def _take_back(self, content: bytes, session: RLMSession, key: bytes) -> None:
        """Put the variables into the session."""
        before = dict(session.namespace)
        try:
            state = RLMCheckpoint.from_bytes(
                content, trust=key, namespace=session.namespace, provided=self._functions, allow_pickle=True
            )
        except BaseException:
            session.namespace.clear()
            session.namespace.update(before)
            raise
        session.sources = state.sources


class _Process:
    """The process of a worker; it is ended when nobody has this any more."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "rlm_memory.repl.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # programs that a cell started are ended with it
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self.channel = Channel(self._popen.stdout, self._popen.stdin)
        self.end: Callable[[], object] = weakref.finalize(self, _ended, self._popen, self.channel)
        self.channel.send({}, self.key)

    def kill(self) -> None:
        """End it from any thread; whoever waits for its message gets an EOFError."""
        _kill(self._popen)

    @property
    def exit_code(self) -> int:
        """How it ended; it must have ended."""
        return self._popen.wait()


class _Deadline:
    """Does something when a time has been used up; the time passes between `resume` and `pause` alone."""

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._left = seconds
        self._act = act
        self._timer: threading.Timer | None = None
        self._since = 0.0
        self.passed = False

    def resume(self) -> None:
        self._since = time.monotonic()
        self._timer = threading.Timer(self._left, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= min(self._left, time.monotonic() - self._since)

    def _pass(self) -> None:
        self.passed = True
        self._act()


def _ending(exit_code: int, time_limit: float | None) -> str:
    untouched = "The variables are as they were before the cell."
    if time_limit is not None:
        return (
            f"The cell ran for longer than {time_limit:g} seconds, did not react, and was ended with its process. "
            + untouched
        )
    return f"The cell ended its process (exit code {exit_code}). {untouched}"


def _ended(process: subprocess.Popen[bytes], channel: Channel) -> None:
    _kill(process)
    process.wait()
    channel.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if not hasattr(os, "killpg"):
        process.kill()
    elif process.poll() is None:  # its number may be another's by now
        os.killpg(process.pid, signal.SIGKILL)
