"""A server on 127.0.0.1 that speaks OpenAI's `POST /v1/embeddings`, counts what it is asked, and fails on demand.

python tests/embedding_server.py    # prints its address and serves until its standard input is closed
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from quiet_server import QuietHandler, QuietServer

INPUTS_PER_REQUEST = 2048
TOKENS_PER_REQUEST = 300_000
TOKENS_PER_INPUT = 8192


@lru_cache(maxsize=20_000)
def vector_of(text: str, dimensions: int) -> NDArray[np.float32]:
    """The unit vector that the server gives for a text."""
    seed = hashlib.sha256(text.encode()).digest()
    vector = np.random.default_rng(list(seed)).standard_normal(dimensions, np.float32)
    unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return unit


def words(text: str) -> int:
    """The server's own count of tokens: words and signs."""
    return len(re.findall(r"\w+|[^\w\s]", text))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived."""

    at: float
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def inputs(self) -> list[Any]:
        value = self.body["input"]
        return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer with this status."""

    status: int
    message: str = "refused on demand"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """Take the request and never answer it."""


@dataclass(frozen=True, slots=True)
class Hangup:
    """Promise an answer, send half of it and close the connection."""


@dataclass(frozen=True, slots=True)
class Text:
    """Answer with this body."""

    body: str
    content_type: str = "application/json"
    status: int = 200


@dataclass(frozen=True, slots=True)
class Changed:
    """Answer with what this makes of the right entries of `data`."""

    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


Fault = Refusal | Silence | Hangup | Text | Changed


class EmbeddingServer:
    """The server, for the length of a `with`.

    Args:
        dimensions: The length of its vectors where a request does not ask for another.
        count: Its count of tokens, by which it enforces OpenAI's limits.
        speaks_base64: False for a server that answers with lists of numbers whatever it is asked for.
        fault: Called with each request; what it returns is done instead of the right answer.
        together: Hold requests back until that many have arrived, to prove that they are in flight at once.
        chat: Makes of the body of a `POST /v1/chat/completions` the message that is the reply; without it, there is no
            such path.
    """

    def __init__(
        self,
        dimensions: int = 1536,
        *,
        count: Callable[[str], int] = words,
        speaks_base64: bool = True,
        fault: Callable[[Asked], Fault | None] = lambda asked: None,
        together: int = 1,
        chat: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.dimensions = dimensions
        self.asked: list[Asked] = []
        self.chats: list[dict[str, Any]] = []
        self.tokens = 0
        self.most_in_flight = 0
        self.connections = 0
        self.seconds = 0.0
        self._count = count
        self._speaks_base64 = speaks_base64
        self._fault = fault
        self._chat = chat
        self._faults: deque[Fault] = deque()
        self._in_flight = 0
        self._gate = threading.Barrier(together)
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def fail_next(self, *faults: Fault) -> None:
        """Meet the next requests, one each, with these faults."""
        self._faults.extend(faults)

    @property
    def inputs(self) -> list[Any]:
        """All that was sent, in the order of arrival."""
        return [text for asked in self.asked for text in asked.inputs]

    def __enter__(self) -> Self:
        self._http = QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_state": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        self._gate.abort()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _reply(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if self._chat is None:
            return None
        self.chats.append(body)
        message = {"role": "assistant", "content": None, **self._chat(body)}
        ended = "tool_calls" if "tool_calls" in message else "stop"
        return {
            "id": "chat",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": ended}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        }

    def _answer(self, asked: Asked) -> Fault | dict[str, Any]:
        with self._lock:
            self.asked.append(asked)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            self._gate.wait(timeout=30)
            with self._lock:
                fault = self._faults.popleft() if self._faults else self._fault(asked)
            if fault is not None and not isinstance(fault, Changed):
                return fault
            data = self._right(asked)
            if isinstance(data, Refusal):
                return data
            tokens = sum(map(self._count, asked.inputs))
            with self._lock:
                self.tokens += tokens
            return {
                "object": "list",
                "data": fault.change(data) if isinstance(fault, Changed) else data,
                "model": asked.body["model"],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        finally:
            with self._lock:
                self._in_flight -= 1

    def _right(self, asked: Asked) -> Refusal | list[dict[str, Any]]:
        texts = asked.inputs
        if not texts or not all(isinstance(text, str) and text for text in texts):
            return Refusal(400, "'$.input' is invalid.")
        if len(texts) > INPUTS_PER_REQUEST:
            return Refusal(400, f"at most {INPUTS_PER_REQUEST} inputs")
        sizes = list(map(self._count, texts))
        if max(sizes) > TOKENS_PER_INPUT:
            return Refusal(400, f"This model's maximum context length is {TOKENS_PER_INPUT} tokens")
        if sum(sizes) > TOKENS_PER_REQUEST:
            return Refusal(400, f"max {TOKENS_PER_REQUEST} tokens per request")
        dimensions = asked.body.get("dimensions", self.dimensions)
        packed = self._speaks_base64 and asked.body.get("encoding_format") == "base64"
        return [
            {"object": "embedding", "index": index, "embedding": encoded(vector_of(text, dimensions), packed=packed)}
            for index, text in enumerate(texts)
        ]


def encoded(vector: Sequence[float] | NDArray[np.floating[Any]], *, packed: bool = True) -> str | list[float]:
    """A vector as the protocol carries it."""
    numbers = np.asarray(vector, "<f4")
    return base64.b64encode(numbers.tobytes()).decode() if packed else [float(number) for number in numbers]


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server_state: EmbeddingServer

    def setup(self) -> None:
        super().setup()
        with self.server_state._lock:
            self.server_state.connections += 1

    def do_GET(self) -> None:
        """Tell, whatever the path, how long the last answer took from the request's last byte to its own first."""
        self._send(200, json.dumps({"seconds": self.server_state.seconds}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        started = time.perf_counter()
        if self.path == "/v1/chat/completions" and (reply := self.server_state._reply(json.loads(body))) is not None:
            self._send(200, json.dumps(reply))
            return
        if not self.path.partition("?")[0].endswith("/embeddings"):  # Azure has the model in the path
            self._send(404, json.dumps({"error": {"message": "unknown path"}}))
            return
        asked = Asked(time.monotonic(), {name.lower(): value for name, value in self.headers.items()}, json.loads(body))
        match self.server_state._answer(asked):
            case Silence():
                self.server_state._closing.wait()
                self.close_connection = True
            case Hangup():
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"data": [')
                self.close_connection = True
            case Text(text, content_type, status):
                self._send(status, text, content_type)
            case Refusal(status, message, headers):
                self._send(status, json.dumps({"error": {"message": message, "type": "test"}}), headers=headers)
            case answer:
                content = json.dumps(answer)
                self.server_state.seconds = time.perf_counter() - started
                self._send(200, content)

    def _send(
        self, status: int, text: str, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


if __name__ == "__main__":
    with EmbeddingServer() as server:
        print(server.url, flush=True)
        sys.stdin.read()
