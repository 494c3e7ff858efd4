"""Vectors written into the tables of vec0, a chunk at once, as vec0 itself would leave them.

vec0 takes 9 us to insert a vector and 57 us to delete one, most of it to prepare statements anew; this takes 4 and 5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import apsw
import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import row_of
from rlm_memory.engines.sqlite.vectors import VectorFormat, packed_signs
from rlm_memory.errors import StoreCorruptError
from rlm_memory.ports import Vector

_VECTORS: Final = "node_embeddings_vector_chunks00"


def insert_vectors(
    connection: apsw.Connection, layout: VectorFormat, keys: Sequence[str], vectors: Vector
) -> list[int]:
    """Store unit vectors under these node_ids, and their signs if the format has them; return the place of each.

    They take the free slots of the last chunk, then new chunks.

    Raises:
        StoreCorruptError: The last chunk is damaged.
    """
    stored = layout.encode(vectors)
    rows = stored.view(np.uint8)
    rowid, chunk = row_of(connection, statements.SELECT_LAST_NUMBERS)
    rowids = np.arange(rowid + 1, rowid + 1 + len(keys))
    old = _fill_last_chunk(connection, layout, rowids, rows)
    new = _add_chunks(connection, layout, chunk + 1, rowids[len(old) :], rows[len(old) :])
    places = np.concatenate([old, new])
    chunks, offsets = np.divmod(places, layout.chunk)
    owners = zip(rowids.tolist(), keys, chunks.tolist(), offsets.tolist(), strict=True)
    connection.executemany(statements.INSERT_VECTOR_KEY, owners)
    found: list[int] = places.tolist()
    if layout.has_signs:
        # Of what is stored: rounding to int8 makes some components zero.
        _put_signs(connection, layout, found, packed_signs(stored))
    return found


def _fill_last_chunk(
    connection: apsw.Connection, layout: VectorFormat, rowids: NDArray[np.int64], rows: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """Store as many of these rows as the last chunk has room for; return their places."""
    last = row_of(connection, statements.SELECT_LAST_MEMBERS)
    if last is None:
        return np.empty(0, np.int64)
    chunk, validity, members = last
    valid, numbers = _members(layout, chunk, validity, members)
    free = np.flatnonzero(valid == 0)[: len(rows)]
    if len(free):
        valid[free], numbers[free] = 1, rowids[: len(free)]
        connection.execute(statements.UPDATE_CHUNK_MEMBERS, (*packed_members(valid, numbers), chunk))
        _write(connection, layout, chunk, free.tolist(), rows[: len(free)])
    places: NDArray[np.int64] = chunk * layout.chunk + free
    return places


def _add_chunks(
    connection: apsw.Connection,
    layout: VectorFormat,
    first: int,
    rowids: NDArray[np.int64],
    rows: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Store these rows in new chunks, from this number on; return their places."""
    starts = range(0, len(rows), layout.chunk)
    numbers = np.zeros((len(starts), layout.chunk), np.int64)
    numbers.ravel()[: len(rows)] = rowids
    connection.executemany(
        statements.INSERT_CHUNK_MEMBERS,
        ((chunk, layout.chunk, *packed_members(slots != 0, slots)) for chunk, slots in enumerate(numbers, first)),
    )
    bodies = (
        rows[start : start + layout.chunk].tobytes().ljust(layout.chunk * layout.width, b"\0") for start in starts
    )
    connection.executemany(
        statements.INSERT_CHUNK_VECTORS, ((chunk, chunk, body) for chunk, body in enumerate(bodies, first))
    )
    return first * layout.chunk + np.arange(len(rows))


def delete_vectors(
    connection: apsw.Connection, layout: VectorFormat, keys: Sequence[str], places: Iterable[int]
) -> None:
    """Delete the vectors with these node_ids, which lie at these places.

    Their signs stay until the chunk goes or the slot is used again: no place points at them.

    Raises:
        StoreCorruptError: A chunk is damaged.
    """
    offsets: dict[int, list[int]] = {}
    for place in places:
        chunk, offset = divmod(place, layout.chunk)
        offsets.setdefault(chunk, []).append(offset)
    kept: list[tuple[bytes, bytes, int]] = []
    for chunk, validity, members in connection.execute(statements.SELECT_CHUNK_MEMBERS, (json.dumps(list(offsets)),)):
        valid, numbers = _members(layout, chunk, validity, members)
        valid[offsets[chunk]] = 0
        numbers[offsets[chunk]] = 0
        if valid.any():
            kept.append((*packed_members(valid, numbers), chunk))
    connection.executemany(statements.UPDATE_CHUNK_MEMBERS, kept)
    for _, _, chunk in kept:
        _write(connection, layout, chunk, offsets[chunk], np.zeros((len(offsets[chunk]), layout.width), np.uint8))
    emptied = json.dumps(list(offsets.keys() - {chunk for _, _, chunk in kept}))
    for statement in statements.DELETE_CHUNKS:
        connection.execute(statement, (emptied,))
    connection.execute(statements.DELETE_VECTOR_KEYS, (json.dumps(keys),))


def packed_members(valid: NDArray[np.bool_] | NDArray[np.uint8], rowids: NDArray[np.int64]) -> tuple[bytes, bytes]:
    """Return what vec0 keeps of the slots of a chunk."""
    return np.packbits(valid, bitorder="little").tobytes(), rowids.astype("<i8").tobytes()


def _members(
    layout: VectorFormat, chunk: int, validity: bytes | None, rowids: bytes | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return of each slot of a chunk whether it is in use, and by which rowid, 0 if it is not."""
    if not validity or not rowids or (8 * len(validity), len(rowids)) != (layout.chunk, 8 * layout.chunk):
        raise StoreCorruptError(f"Chunk {chunk} of the vectors is damaged; run rlm-memory check.")
    valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    return valid, np.frombuffer(rowids, "<i8").astype(np.int64)


def _write(
    connection: apsw.Connection, layout: VectorFormat, chunk: int, offsets: Sequence[int], rows: NDArray[np.uint8]
) -> None:
    with connection.blob_open("main", _VECTORS, "vectors", chunk, True) as blob:
        for offset, row in zip(offsets, rows, strict=True):
            blob.seek(offset * layout.width)
            blob.write(row)


def _put_signs(
    connection: apsw.Connection, layout: VectorFormat, places: Iterable[int], signs: NDArray[np.uint8]
) -> None:
    width = signs.shape[1]
    changed: dict[int, bytearray] = {}
    for place, row in zip(places, signs, strict=True):
        chunk, offset = divmod(place, layout.chunk)
        if (bits := changed.get(chunk)) is None:
            stored = row_of(connection, "SELECT bits FROM vector_signs WHERE chunk = ?", (chunk,))
            bits = changed[chunk] = bytearray(stored[0]) if stored else bytearray(layout.chunk * width)
        bits[offset * width : (offset + 1) * width] = row.tobytes()
    connection.executemany(
        "INSERT INTO vector_signs (chunk, bits) VALUES (?, ?) ON CONFLICT (chunk) DO UPDATE SET bits = excluded.bits",
        [(chunk, bytes(bits)) for chunk, bits in changed.items()],
    )
