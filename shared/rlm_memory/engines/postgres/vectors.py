"""The vectors of a store: a table of its own, made when their length is known, and an HNSW index on it.

The index is made when a namespace has outgrown comparing all: until then it would be of no use to any search, and to
build it at once takes a seventh of the time that it takes to put as many vectors into it one by one.

Vectors have length 1, so that their inner product is the cosine. pgvector indexes up to 2,000 numbers as they are, and
up to 4,000 in half precision; a search then compares the whole vectors of what the index gives. Of longer ones each
is compared.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection
from rlm_memory.engines.postgres.schema import finish_table, partitioned
from rlm_memory.engines.postgres.values import VectorValue, row_of, rows_of, vector_bytes
from rlm_memory.engines.postgres.words import Eligible
from rlm_memory.errors import InvalidInputError
from rlm_memory.ports import Vector

MOST_DIMENSIONS: Final = 16_000

_INDEXED: Final = 2_000
_INDEXED_AS_HALVES: Final = 4_000
_IN_A_PAGE: Final = 1_980
"""Vectors of up to so many numbers stay in their row: beside it, where large values go, each is several rows."""

COMPARED: Final = 2_000
"""So many vectors are all compared: that takes as long as a search by the index, and finds what the index may miss."""

INDEXED_FROM: Final = 10_000
"""A namespace with more vectors than this asks for the index. To compare so many of 1,536 numbers takes 10 ms."""

_INDEX: Final = "rlm_node_vectors_nearest"

_BREADTH: Final = 100
"""At least so many candidates a search by the index keeps (ef_search)."""

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def create_table(connection: Connection, dimensions: int, partitions: int) -> None:
    """Create the empty table for vectors of this length.

    Raises:
        InvalidInputError: They are longer than pgvector keeps them.
    """
    if dimensions > MOST_DIMENSIONS:
        raise InvalidInputError(f"pgvector keeps vectors of up to {MOST_DIMENSIONS} numbers, got {dimensions}.")
    connection.execute(
        "CREATE TABLE rlm_node_vectors (namespace uuid NOT NULL, node bigint NOT NULL, "
        f"embedding vector({dimensions}) NOT NULL, PRIMARY KEY (namespace, node)) {partitioned(partitions)}".encode()
    )
    if dimensions <= _IN_A_PAGE:
        connection.execute("ALTER TABLE rlm_node_vectors ALTER COLUMN embedding SET STORAGE PLAIN")
    finish_table(connection, "rlm_node_vectors", partitions)


def create_index(connection: Connection, dimensions: int, *, concurrently: bool) -> None:
    """Create the index, where there can be one and is none.

    Args:
        connection: In no transaction if `concurrently`.
        dimensions: The length of the vectors.
        concurrently: Let others write meanwhile; one that did not succeed is made again.
    """
    if (indexed := _indexed(dimensions)) is None:
        return
    kind = "vector" if dimensions <= _INDEXED else "halfvec"
    if concurrently and row_of(connection, statements.IS_INDEX_BROKEN, (_INDEX,)):
        connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {_INDEX}".encode())
    connection.execute(
        f"CREATE INDEX {'CONCURRENTLY' if concurrently else ''} IF NOT EXISTS {_INDEX} "
        f"ON rlm_node_vectors USING hnsw ({indexed} {kind}_ip_ops)".encode()
    )


def _indexed(dimensions: int) -> str | None:
    """Return the expression that the index is on; None where there is none."""
    if dimensions <= _INDEXED:
        return "embedding"
    return f"(embedding::halfvec({dimensions}))" if dimensions <= _INDEXED_AS_HALVES else None


def insert(connection: Connection, namespace: UUID, nodes: Sequence[int], vectors: Vector) -> None:
    """Store unit vectors, one a node that has none."""
    if not len(nodes):
        return
    rows = [_SIGNATURE]
    for node, vector in zip(nodes, vectors, strict=True):
        stored = vector_bytes(vector)
        rows.append(struct.pack(">hi16siqi", 3, 16, namespace.bytes, 8, node, len(stored)) + stored)
    rows.append(struct.pack(">h", -1))
    with connection.cursor().copy(statements.COPY_VECTORS) as copy:
        copy.write(b"".join(rows))


def nearest(
    connection: Connection, namespace: UUID, query: Vector, eligible: Eligible | None, n: int, *, by_index: bool
) -> list[int]:
    """Return the nodes of the `n` nearest eligible vectors, the nearest first.

    Args:
        connection: A reader's snapshot.
        namespace: Where to look.
        query: A unit vector.
        eligible: Which nodes may be found; None lets all be.
        n: How many.
        by_index: Search by the index, unless the eligible are few.
    """
    asked = VectorValue(query)
    indexed = _indexed(len(query))
    if indexed is not None and by_index and not (eligible is not None and eligible.few):
        kind = "vector" if len(query) <= _INDEXED else f"halfvec({len(query)})"
        within = "" if eligible is None else statements.ELIGIBLE_NEAREST.format(where=eligible.where)
        distance = f"{indexed.replace('embedding', 'v.embedding')} <#> %s::{kind}"
        select = statements.SELECT_NEAREST.format(eligible=within, distance=distance)
        values = (namespace, *(eligible.values if eligible is not None else ()), asked, n)
        connection.execute(statements.SEARCH_BY_INDEX, (str(min(max(_BREADTH, n), 1000)),))
        found = rows_of(connection, select, values)
        connection.execute(statements.SEARCH_AS_USUAL)
        if len(found) == n:
            return [node for (node,) in found]
    within, values = "", ()
    if eligible is not None:
        within, values = statements.ELIGIBLE_VECTOR.format(where=eligible.where), (namespace, *eligible.values)
    select = statements.SELECT_NEAREST_OF_ALL.format(eligible=within)
    return [node for (node,) in rows_of(connection, select, (namespace, *values, asked, n))]
