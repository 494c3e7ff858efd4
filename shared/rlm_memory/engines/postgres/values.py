"""How values travel to the server and back, where psycopg's own way would lose something or be slow.

A text of PostgreSQL holds no NUL. NUL and U+0001 are therefore written as two characters each, U+0001 U+0001 and U+0001
U+0002, in every text that is bound, and read back: no two texts become one, and their order stays that of their code
points. Vectors travel in pgvector's binary form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import numpy as np
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

from rlm_memory.ports import Vector

ESCAPE: Final = "\x01"
"""A stored text with this character in it is not, character by character, the one that was given."""

_ESCAPED: Final = re.compile(rb"[\x00\x01]")


class RawText(str):
    """A text to be bound without being escaped."""

    __slots__ = ()


class VectorValue:
    """A vector to be bound: a parameter of no known type, which the statement casts to `vector`."""

    __slots__ = ("vector",)

    def __init__(self, vector: Vector) -> None:
        self.vector = vector


def vector_bytes(vector: Vector, kind: str = ">f4") -> bytes:
    """Return a vector as pgvector sends and takes it: its length, a zero, and its numbers, all big-endian.

    Numbers of a `vector` have four bytes, ">f4", those of a `halfvec` two, ">f2".
    """
    return len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(kind).tobytes()


def vectors_of(stored: Sequence[bytes], dimensions: int) -> Vector:
    """Return what pgvector has sent as a matrix, shape (len(stored), dimensions)."""
    numbers = np.frombuffer(b"".join(row[4:] for row in stored), dtype=">f4")
    return numbers.reshape(-1, dimensions).astype(np.float32)


def key_of(*texts: str) -> UUID:
    """Return the uuid that stands for texts of any length in keys and indexes: 128 bits of their hash."""
    hashed = blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")  # what cannot be stored is simply not found
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return UUID(bytes=hashed.digest())


def escaped(text: str) -> str:
    r"""Return a text as it is stored.

    >>> escaped("a\0b")
    'a\x01\x01b'
    """
    return text.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")


def unescaped(stored: str) -> str:
    r"""Return a text as it was given.

    >>> unescaped(escaped("a\0\1\0")) == "a\0\1\0"
    True
    """
    return stored if ESCAPE not in stored else re.sub("\x01([\x01\x02])", _character, stored)


def _character(match: re.Match[str]) -> str:
    return "\0" if match[1] == "\x01" else "\x01"


class _TextDumper(Dumper):
    """Of no known type: the server takes it for what the statement needs."""

    def dump(self, obj: str) -> Buffer:
        encoded = obj.encode()
        return escaped(obj).encode() if _ESCAPED.search(encoded) else encoded


class _RawTextDumper(Dumper):
    def dump(self, obj: RawText) -> Buffer:
        return obj.encode()


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


class _TextBinaryLoader(_TextLoader):
    format = Format.BINARY


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: VectorValue) -> Buffer:
        return vector_bytes(obj.vector)


def register_values(adapters: AdaptersMap) -> None:
    """Let a connection read and write texts and vectors as described above."""
    adapters.register_dumper(str, _TextDumper)
    adapters.register_dumper(RawText, _RawTextDumper)
    adapters.register_dumper(VectorValue, _VectorDumper)
    for kind in ("text", "varchar", "name"):
        adapters.register_loader(kind, _TextLoader)
        adapters.register_loader(kind, _TextBinaryLoader)


def begun(connection: Any, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """Send a statement and return the cursor that its rows come by; in a pipeline that does not wait for them."""
    return connection.execute(sql, values, binary=True)


def rows_of(connection: Any, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """Return all rows of a statement, each a tuple of what its columns hold."""
    return begun(connection, sql, values).fetchall()  # type: ignore[no-any-return]  # rows are tuples


def row_of(connection: Any, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """Return the first row of a statement, None if there is none."""
    return begun(connection, sql, values).fetchone()
