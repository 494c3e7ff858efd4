"""A server on 127.0.0.1 that speaks OpenAI's `POST /v1/chat/completions`, and kills who asks on demand."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self

from quiet_server import QuietHandler, QuietServer

COST = 0.25
"""US dollars for each reply: sums of it are exact."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the model, and the messages."""

    model: str
    messages: list[dict[str, str]]

    @property
    def last(self) -> str:
        return self.messages[-1]["content"]

    @property
    def key(self) -> str:
        """What makes it this request and no other."""
        return json.dumps([self.model, self.messages])


class ChatServer:
    """The server, for the length of a `with`; `reply` gives the text that it answers.

    `kill_at` is the place, from 0, of a request at whose arrival the process that sent it is killed; clients tell
    their process by a header `x-pid`. `unanswered` are those that killed processes have asked in vain; what arrives
    of them later counts for nothing. `together` says of a request how many such must have arrived before one of them is
    answered.
    """

    def __init__(self, reply: Callable[[Asked], str], together: Callable[[Asked], int] = lambda asked: 1) -> None:
        self.together = together
        self._reply = reply
        self._lock = threading.Lock()
        self.forget()

    def __enter__(self) -> Self:
        self._http = QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_state": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self.asked: list[Asked] = []
            self.unanswered: list[Asked] = []
            self.kill_at: int | None = None
            self._killed: set[int] = set()
            self._held: dict[int, list[Asked]] = {}
            self._gates: dict[int, threading.Barrier] = {}

    def answer(self, asked: Asked, process: int) -> str | None:
        """Return the text of the reply, or None when nobody is left to be told."""
        with self._lock:
            if process in self._killed:
                return None
            size = self.together(asked)
            gate = self._gates.setdefault(process, threading.Barrier(size)) if size > 1 else None
            self._held.setdefault(process, []).append(asked)
            if len(self.asked) == self.kill_at:
                os.kill(process, signal.SIGKILL)
                self._killed.add(process)
                self.unanswered += self._held[process]
                if gate is not None:
                    gate.abort()
            self.asked.append(asked)
        try:
            if gate is not None:
                gate.wait(timeout=30)
        except threading.BrokenBarrierError:
            return None
        with self._lock:
            if process in self._killed:
                return None
            self._held[process].remove(asked)
        return self._reply(asked)


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server_state: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.server_state.answer(Asked(body["model"], body["messages"]), int(self.headers.get("x-pid", "0")))
        if text is None:
            self.close_connection = True
            return
        tokens = len(text)
        content = json.dumps(
            {
                "id": "chat",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": tokens + 9, "cost": COST},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()
