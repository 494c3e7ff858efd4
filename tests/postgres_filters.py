"""The two tables of PostgreSQL that a compiled filter reads, for the tests of filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg

from rlm_memory import Memory
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.filters import Compiler, encoded_rows
from rlm_memory.engines.postgres.values import register_values, rows_of
from rlm_memory.filters import Filter
from rlm_memory.records import Node
from rlm_memory.times import milliseconds

_NODES = (
    "COPY rlm_nodes (namespace, node, id, id_key, type, subtype, text, tier, tier_since, confidence, provenance, "
    "metadata, created_at, updated_at, last_accessed, access_count, pinned, embedded, text_hash) FROM STDIN"
)


class PostgresStore:
    """Keeps nodes as the engine does, with what its own clock and callers would fill in given by hand."""

    tries = 3  # filters for each set of nodes: a server takes some milliseconds for each

    def __init__(self, url: str) -> None:
        Memory.open(url, embedder=None).close()  # which makes the tables
        self.connection = psycopg.connect(url, autocommit=True)
        register_values(self.connection.adapters)
        self.connection.execute(statements.PREPARE_CONNECTION, ("0", "off"))
        self.namespace = UUID(int=1)

    def put(self, nodes: Sequence[Node]) -> None:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            for table in ("rlm_nodes", "rlm_node_fields"):
                cursor.execute(f"DELETE FROM {table} WHERE namespace = %s", (self.namespace,))
            with cursor.copy(_NODES) as copy:
                for number, node in enumerate(nodes):
                    copy.write_row(self._row(number, node))
            with cursor.copy("COPY rlm_node_fields (namespace, field, value, node) FROM STDIN") as copy:
                for number, node in enumerate(nodes):
                    for field, value in encoded_rows(node.metadata):
                        copy.write_row((self.namespace, field, value, number))

    def _row(self, number: int, node: Node) -> tuple[Any, ...]:
        metadata = json.dumps(node.metadata, ensure_ascii=False)
        times = [_stored(time, 0) for time in (node.created_at, node.updated_at)]
        return (
            self.namespace, number, node.id, uuid4(), node.type, node.subtype, node.text, node.tier, 0,
            node.confidence, node.provenance, metadata, *times, _stored(node.last_accessed, None),
            node.access_count, node.pinned, False, 0,
        )  # fmt: skip

    def select(self, where: Filter | None) -> list[int]:
        compiler = Compiler(self.namespace, lambda sql, values: rows_of(self.connection, sql, values))
        sql, values = compiler.compile(where)
        select = f"SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND {sql} ORDER BY 1"
        return [node for (node,) in rows_of(self.connection, select, (self.namespace, *values))]

    def close(self) -> None:
        self.connection.close()


def _stored(moment: datetime | None, missing: int | None) -> int | None:
    return missing if moment is None else milliseconds(moment)
