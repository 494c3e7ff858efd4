"""The vec0 table: how a vector becomes bytes there, and how many of them are read back quickly.

vec0 keeps the vectors of a chunk side by side in one blob of its shadow table `node_embeddings_vector_chunks00`.
Reading single vectors there by incremental blob I/O takes a fortieth of the time of `SELECT embedding ... WHERE
node_id IN (...)` through the virtual table (0.6 against 25 ms for 50 vectors of 1,536 floats). The place of a vector is
its chunk times the vectors in a chunk, plus its offset in it. `check_layout` proves on the file at hand that both ways
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import PAGE_BYTES, row_of, rows_of
from rlm_memory.errors import StoreCorruptError
from rlm_memory.ports import Vector
from rlm_memory.records import VectorStorage
from rlm_memory.scoring import unit as unit

_LARGEST_CHUNK: Final = 48 << 10
"""Bytes of vectors in a chunk, unless 8 vectors are more. A chunk is one chain of overflow pages, followed from its
start: of vectors of 1,536 floats, 50 at random are read in 0.57 ms with 8 in a chunk, 0.78 with 16 and 2.7 with 64.
Inserts are as fast with 8 as with 64."""

SCANNED_WHOLE: Final = 128
"""Vectors of up to so many components are held in memory whole: that costs little, and few signs tell little."""

_SIGN_COSINE: Final = float(np.sqrt(2 / np.pi))
"""The mean cosine between a vector of independent normal components and its signs (2/pi is the mean of |x| squared
over the mean of x squared)."""

_COLUMN_TYPE: Final[dict[VectorStorage, str]] = {"float32": "FLOAT", "int8": "INT8", "bit": "BIT"}


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How the vectors of one store are kept: their length, the type of each component, and how many lie in a chunk."""

    dimensions: int
    storage: VectorStorage
    chunk: int

    @classmethod
    def for_new_store(cls, dimensions: int, storage: VectorStorage) -> VectorFormat:
        """Return the format with the smallest chunk that wastes next to nothing of the pages."""
        width = _width(dimensions, storage)
        sizes = range(8, max(8, _LARGEST_CHUNK // width) + 1, 8)
        costs = {size: _page_bytes(size * width) / size for size in sizes}
        return cls(dimensions, storage, next(size for size in sizes if costs[size] <= 1.01 * min(costs.values())))

    @property
    def width(self) -> int:
        """The bytes of one vector."""
        return _width(self.dimensions, self.storage)

    @property
    def scanned_as_signs(self) -> bool:
        """Whether a search scans the signs of the vectors, and not the vectors themselves."""
        return self.dimensions > SCANNED_WHOLE

    @property
    def has_signs(self) -> bool:
        """Whether the signs have a table of their own; where bits are all there is, the vectors are their signs."""
        return self.scanned_as_signs and self.storage != "bit"

    @property
    def create_table(self) -> str:
        """The statement that creates the vec0 table; its parts are two numbers and a constant."""
        columns = 8 * self.width if self.storage == "bit" else self.dimensions
        return (
            "CREATE VIRTUAL TABLE node_embeddings USING vec0("
            f"node_id TEXT PRIMARY KEY, embedding {_COLUMN_TYPE[self.storage]}[{columns}], chunk_size={self.chunk})"
        )

    def encode(self, vectors: Vector) -> NDArray[Any]:
        """Return unit vectors as they are stored, one a row."""
        match self.storage:
            case "float32":
                stored: NDArray[Any] = np.ascontiguousarray(vectors, dtype="<f4")
            case "int8":
                # Each vector is stretched to the whole range; the cosine does not see the factor.
                peaks = np.abs(vectors).max(axis=1, keepdims=True)
                stored = np.rint(vectors * (127 / peaks)).astype(np.int8)
            case "bit":
                stored = np.packbits(vectors > 0, axis=1, bitorder="little")
        return stored

    def decode(self, stored: bytes | bytearray) -> Vector:
        """Return unit vectors, shape (n, dimensions), of n stored vectors laid end to end."""
        match self.storage:
            case "float32":
                return np.frombuffer(stored, dtype="<f4").reshape(-1, self.dimensions)
            case "int8":
                raw = np.frombuffer(stored, dtype=np.int8).reshape(-1, self.dimensions).astype(np.float32)
                # The slots of a chunk that are not in use are zero.
                lengths: Vector = np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), np.float32(1))
                return raw / lengths
            case "bit":
                bits = np.unpackbits(
                    np.frombuffer(stored, dtype=np.uint8).reshape(-1, self.width),
                    axis=1,
                    count=self.dimensions,
                    bitorder="little",
                )
                return (bits.astype(np.float32) * 2 - 1) / np.float32(np.sqrt(self.dimensions))

    def cosines(self, stored: Vector, query: Vector) -> NDArray[np.float32]:
        """Return the cosine of each decoded vector with a unit query; from bits alone, its estimate."""
        products: Vector = stored @ query
        if self.storage == "bit":
            products = products / np.float32(_SIGN_COSINE)
        return np.clip(products, -1.0, 1.0)


def _width(dimensions: int, storage: VectorStorage) -> int:
    match storage:
        case "float32":
            return 4 * dimensions
        case "int8":
            return dimensions
        case "bit":
            return -(-dimensions // 8)


def _page_bytes(payload: int) -> float:
    """Return what a row of this size costs in a table: its share of a leaf page, and its overflow pages.

    See "Cell Payload Overflow Pages" in the description of the SQLite file format.
    """
    cell = 8  # the length, the row's number, the header of the record
    usable, payload = PAGE_BYTES, payload + cell
    if payload <= usable - 35:
        return usable / (usable // payload)
    least = (usable - 12) * 32 // 255 - 23
    local = least + (payload - least) % (usable - 4)
    if local > usable - 35:
        local = least
    return usable / (usable // local) + usable * -(-(payload - local) // (usable - 4))


def read_layout(connection: apsw.Connection) -> VectorFormat | None:
    """Return the format of this file's vectors, None while it has no table for them.

    Raises:
        StoreCorruptError: The file has lost a part of it.
    """
    meta = dict(rows_of(connection, statements.SELECT_META))
    if "dimensions" not in meta:
        return None
    try:
        return VectorFormat(int(meta["dimensions"]), meta["embedding_storage"], int(meta["vectors_in_chunk"]))
    except (KeyError, ValueError, TypeError) as error:
        raise StoreCorruptError(
            f"The database is damaged: {error} in the description of its vectors; restore a backup."
        ) from error


def read_vectors(
    connection: apsw.Connection,
    layout: VectorFormat,
    places: Sequence[int] | NDArray[np.int64],
    table: str = "node_embeddings_vector_chunks00",
) -> Vector:
    """Return the unit vectors at these places of a table of chunks, in this order: shape (len(places), dimensions)."""
    # Neighbours in the file are read one after the other, whatever order they are wanted in.
    wanted = np.asarray(places, dtype=np.int64)
    by_place = np.argsort(wanted, kind="stable")
    chunks, offsets = np.divmod(wanted[by_place], layout.chunk)
    width = layout.width
    buffer = bytearray(width * len(wanted))
    blob: apsw.Blob | None = None
    open_chunk = -1
    try:
        for i, chunk, start in zip(by_place.tolist(), chunks.tolist(), (width * offsets).tolist(), strict=True):
            if blob is None:
                blob = connection.blob_open("main", table, "vectors", chunk, False)
            elif chunk != open_chunk:
                blob.reopen(chunk)
            open_chunk = chunk
            blob.seek(start)
            blob.read_into(buffer, width * i, width)
    finally:
        if blob is not None:
            blob.close()
    return layout.decode(buffer)


def read_places(connection: apsw.Connection, layout: VectorFormat, after: int) -> list[tuple[str, int]]:
    """Return (node_id, place) of the vectors whose vec0 rowid is above `after`, in the order of their insertion.

    Raises:
        StoreCorruptError: One has no place.
    """
    rows = connection.execute(
        "SELECT id, chunk_id, chunk_offset FROM node_embeddings_rowids WHERE rowid > ? ORDER BY rowid", (after,)
    )
    try:
        return [(node_id, chunk * layout.chunk + offset) for node_id, chunk, offset in rows]
    except TypeError as error:
        raise StoreCorruptError(
            "The database is damaged: it has lost the place of a vector; run rlm-memory check, and restore a backup."
        ) from error


def last_rowid(connection: apsw.Connection) -> int:
    """Return the highest rowid that vec0 has given to a vector that is still there, 0 if there is none."""
    (rowid,) = row_of(connection, "SELECT coalesce(max(rowid), 0) FROM node_embeddings_rowids")
    return int(rowid)


def check_layout(connection: apsw.Connection, layout: VectorFormat) -> None:
    """Compare one vector read by its place with the same one read through vec0.

    Raises:
        StoreCorruptError: They differ: this release of sqlite-vec lays out its tables in another way, or the file is
            damaged.
    """
    last = last_rowid(connection)
    if not last:
        return
    ((node_id, place),) = read_places(connection, layout, last - 1)
    row = row_of(connection, "SELECT embedding FROM node_embeddings WHERE node_id = ?", (node_id,))
    if row is None or not np.array_equal(layout.decode(row[0]), read_vectors(connection, layout, [place])):
        raise StoreCorruptError(
            "The vectors are not where sqlite-vec 0.1 keeps them. "
            "Install sqlite-vec>=0.1.9,<0.2, and run rlm-memory check."
        )


def packed_signs(vectors: Vector) -> NDArray[np.uint8]:
    """Return the signs of the components as bits, shape (n, bytes), padded with zeros to whole 64-bit words."""
    bits = np.packbits(vectors > 0, axis=1, bitorder="little")
    missing = -bits.shape[1] % 8
    return np.pad(bits, ((0, 0), (0, missing))) if missing else bits  # np.pad takes 200 us to add nothing
