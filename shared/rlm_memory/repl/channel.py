"""Messages between a REPL and its worker: a JSON object and bytes, each preceded by its length."""

from __future__ import annotations

import json
import struct
from typing import IO, Any, Final

_LENGTHS: Final = struct.Struct(">IQ")


class Channel:
    """Two streams of bytes as a way for messages."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Write a message.

        Raises:
            OSError: the other side is gone.
        """
        text = json.dumps(head).encode()  # letters outside ASCII are escaped: lone surrogates, too
        self._outgoing.write(_LENGTHS.pack(len(text), len(body)) + text)
        self._outgoing.write(body)
        self._outgoing.flush()

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Read a message.

        Raises:
            EOFError: the other side is gone.
        """
        text_length, body_length = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        head = json.loads(self._exactly(text_length))
        return head, self._exactly(body_length)

    def close(self) -> None:
        """Close both streams; what was not sent is lost."""
        for stream in (self._incoming, self._outgoing):
            try:
                stream.close()
            except OSError:  # it held a message that nobody reads
                continue

    def _exactly(self, count: int) -> bytes:
        data = self._incoming.read(count)
        if len(data) < count:
            raise EOFError
        return data
