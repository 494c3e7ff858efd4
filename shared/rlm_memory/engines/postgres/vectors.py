"""The vectors of a store: a table of its own, made when their length is known, and an HNSW index on it.

The index is made when a namespace has outgrown comparing all: until then it would be of no use to any search, and to
build it at once takes a seventh of the time that it takes to put as many vectors into it one by one.

Vectors have length 1, so that their inner product is the cosine. How they are kept, and what the index holds:

=========  ==========================  ================================================================================
float32    `vector(d)`, 4 bytes a      their halves up to 4,000 numbers; of longer ones each is compared
           number
int8       `halfvec(d)`, 2 bytes:      themselves up to 4,000 numbers
           pgvector has no single one
bit        `halfvec(d)`                their signs, a 32nd of the room; the best of them are compared whole
=========  ==========================  ================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection
from rlm_memory.engines.postgres.schema import finish_table, partitioned
from rlm_memory.engines.postgres.scored import Row, Scored
from rlm_memory.engines.postgres.values import VectorValue, row_of, vector_bytes
from rlm_memory.engines.postgres.words import Eligible
from rlm_memory.errors import InvalidInputError
from rlm_memory.ports import Vector
from rlm_memory.records import VectorStorage

MOST_DIMENSIONS: Final = 16_000

_INDEXED: Final = 4_000
_IN_A_PAGE: Final = 7_920
"""Vectors of up to so many bytes stay in their row: beside it, where large values go, each is several rows."""

COMPARED: Final = 2_000
"""So many vectors are all compared: that takes as long as a search by the index, and finds what the index may miss."""

INDEXED_FROM: Final = 5_000
"""A namespace with more vectors than this asks for the index. To compare so many of 1,536 numbers takes 6 ms."""

_INDEX: Final = "rlm_node_vectors_nearest"

_BREADTH: Final = 64
"""At least so many candidates a search by the index keeps (ef_search), and twice as many as it is to find."""

_RESCORED: Final = 8
"""Of an index of signs, so many times as many are compared whole as are asked for."""

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)


@dataclass(frozen=True, slots=True)
class VectorForm:
    """How vectors of a store are kept."""

    dimensions: int
    storage: VectorStorage

    @property
    def is_whole(self) -> bool:
        """Whether each number keeps its four bytes."""
        return self.storage == "float32"

    @property
    def column(self) -> str:
        """The type of the column."""
        return f"{'vector' if self.is_whole else 'halfvec'}({self.dimensions})"

    @property
    def asked(self) -> str:
        """A vector that is bound, as one that the column's can be compared with."""
        return statements.ASKED[self.storage]

    @property
    def index(self) -> tuple[str, str] | None:
        """The expression that the index is on, and its operators; None where there is none."""
        if self.storage == "bit":
            return _signs("embedding", self.dimensions), "bit_hamming_ops"
        if self.dimensions > _INDEXED:
            return None
        return (_halves("embedding", self.dimensions) if self.is_whole else "embedding"), "halfvec_ip_ops"

    def distance(self, column: str) -> str:
        """Return the distance that the index orders by, with the vector that is bound."""
        if self.storage == "bit":
            return f"{_signs(column, self.dimensions)} <~> {_signs('%s::vector', self.dimensions)}"
        if self.is_whole:
            return f"{_halves(column, self.dimensions)} <#> {_halves('%s::vector', self.dimensions)}"
        return f"{column} <#> {self.asked}"


def _signs(vector: str, dimensions: int) -> str:
    return f"(binary_quantize({vector})::bit({dimensions}))"


def _halves(vector: str, dimensions: int) -> str:
    return f"({vector}::halfvec({dimensions}))"


def create_table(connection: Connection, form: VectorForm, partitions: int) -> None:
    """Create the empty table for vectors of this form.

    Raises:
        InvalidInputError: They are longer than pgvector keeps them.
    """
    if form.dimensions > MOST_DIMENSIONS:
        raise InvalidInputError(f"pgvector keeps vectors of up to {MOST_DIMENSIONS} numbers, got {form.dimensions}.")
    connection.execute(
        "CREATE TABLE rlm_node_vectors (namespace uuid NOT NULL, node bigint NOT NULL, "
        f"embedding {form.column} NOT NULL, PRIMARY KEY (namespace, node)) {partitioned(partitions)}".encode()
    )
    if form.dimensions * (4 if form.is_whole else 2) <= _IN_A_PAGE:
        connection.execute("ALTER TABLE rlm_node_vectors ALTER COLUMN embedding SET STORAGE PLAIN")
    finish_table(connection, "rlm_node_vectors", partitions)


def create_index(connection: Connection, form: VectorForm, *, concurrently: bool) -> None:
    """Create the index, where there can be one and is none.

    Args:
        connection: In no transaction if `concurrently`.
        form: Of the vectors.
        concurrently: Let others write meanwhile; one that did not succeed is made again.
    """
    if form.index is None:
        return
    if concurrently and row_of(connection, statements.IS_INDEX_BROKEN, (_INDEX,)):
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {_INDEX}".encode())
    expression, operators = form.index
    connection.execute(
        f"CREATE INDEX {'CONCURRENTLY' if concurrently else ''} IF NOT EXISTS {_INDEX} "
        f"ON rlm_node_vectors USING hnsw ({expression} {operators})".encode()
    )


def insert(
    connection: Connection, namespace: UUID, nodes: Sequence[int], vectors: Vector, storage: VectorStorage
) -> None:
    """Store unit vectors, one a node that has none."""
    if not len(nodes):
        return
    rows = [_SIGNATURE]
    for node, vector in zip(nodes, vectors, strict=True):
        stored = vector_bytes(vector, ">f4" if storage == "float32" else ">f2")
        rows.append(struct.pack(">hi16siqi", 3, 16, namespace.bytes, 8, node, len(stored)) + stored)
    rows.append(struct.pack(">h", -1))
    with connection.cursor().copy(statements.COPY_VECTORS) as copy:
        copy.write(b"".join(rows))


def nearest(
    connection: Connection,
    scored: Scored,
    query: Vector,
    eligible: Eligible | None,
    n: int,
    *,
    by_index: bool,
) -> Callable[[], list[Row]]:
    """Begin to look for the `n` nearest eligible vectors, and return what waits for the rows of their nodes.

    In a pipeline the server looks for them meanwhile.

    Args:
        connection: A reader's snapshot.
        scored: Where to look, and what to read of each.
        query: A unit vector.
        eligible: Which nodes may be found; None lets all be.
        n: How many.
        by_index: Search by the index, unless the eligible are few.
    """
    asked, namespace, form = VectorValue(query), scored.namespace, VectorForm(len(query), scored.storage)

    def compared_with_all() -> list[Row]:
        within, values = "", ()
        if eligible is not None:
            within, values = statements.ELIGIBLE_VECTOR.format(where=eligible.where), (namespace, *eligible.values)
        found = statements.SELECT_NEAREST_OF_ALL.format(eligible=within, asked=form.asked)
        return scored.rows(connection, found, (asked, namespace, *values, n), known="distance").fetchall()

    if not by_index or (eligible is not None and eligible.few):
        return compared_with_all
    within = "" if eligible is None else statements.ELIGIBLE_NEAREST.format(where=eligible.where)
    values = (namespace, *(() if eligible is None else (namespace, *eligible.values)), asked)
    by_signs = form.storage == "bit"
    columns = "v.embedding" if by_signs else statements.DISTANCE.format(asked=form.asked)
    found = statements.SELECT_NEAREST.format(columns=columns, eligible=within, distance=form.distance("v.embedding"))
    looked_at, bound = 2 * n, (asked, *values, n)
    if by_signs:
        looked_at, bound = _RESCORED * n, (asked, *values, _RESCORED * n, n)
        found = statements.SELECT_NEAREST_OF_SOME.format(some=found, asked=form.asked)
    connection.execute(statements.SEARCH_BY_INDEX, (str(min(max(_BREADTH, looked_at), 1000)),))
    rows = scored.rows(connection, found, bound, known="distance")
    connection.execute(statements.SEARCH_AS_USUAL)

    def found_by_index() -> list[Row]:
        found = rows.fetchall()
        return found if len(found) == n else compared_with_all()

    return found_by_index
