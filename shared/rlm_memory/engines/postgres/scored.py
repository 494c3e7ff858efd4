"""What a candidate is scored by comes with the statement that finds it: nothing is looked for twice.

Each leg of a search is a journey to the server, and each look at another table of a hundred nodes takes half a
millisecond there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import psycopg

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection
from rlm_memory.engines.postgres.values import VectorValue, begun
from rlm_memory.ports import Vector
from rlm_memory.records import VectorStorage

Row: TypeAlias = "tuple[int, int, bytes, float | None]"
"""A node, how many words its text has, one `words.COUNT` after the other of the different ones, and its cosine."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Reads what candidates of one search are scored by."""

    namespace: UUID
    query: Vector | None
    """A unit vector; None reads no cosines."""
    storage: VectorStorage
    """How the vectors are kept that it is compared with."""
    by_words: bool
    """Without, texts are read as if they had no words."""

    def rows(
        self, connection: Connection, found: str, values: Sequence[Any], *, known: Literal["node", "terms", "distance"]
    ) -> psycopg.Cursor[Row]:
        """Send a statement that finds candidates, and return the cursor that a `Row` of each comes by.

        Args:
            connection: A reader's snapshot; in a pipeline this does not wait.
            found: A SELECT whose columns are `node` and what is known.
            values: What is bound to it.
            known: "terms" are columns `length` and `counted`; "distance" is the cosine, negative.
        """
        terms, cosine, joined = "0, ''::bytea", "NULL::float8", ""
        first, last = list[Any](), list[Any]()
        if known == "terms":
            terms = "f.length, f.counted"
        elif self.by_words:
            terms, joined = statements.TERMS, statements.JOINED_TERMS
            last.append(self.namespace)
        if known == "distance":
            cosine = "-f.distance"
        elif self.query is not None:
            cosine, joined = (
                statements.COSINE.format(asked=statements.ASKED[self.storage]),
                joined + statements.JOINED_VECTORS,
            )
            first.append(VectorValue(self.query))
            last.append(self.namespace)
        select = statements.SELECT_SCORED.format(terms=terms, cosine=cosine, found=found, joined=joined)
        cursor: psycopg.Cursor[Row] = begun(connection, select, (*first, *values, *last))
        return cursor
