"""JSON values under keys, in collections, of one namespace of a store file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import apsw

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of


class SQLiteKeyValues:
    """See `rlm_memory.ports.KeyValueStore`."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    def _number(self, connection: apsw.Connection) -> int:
        """Return the number of this namespace; -1, which no row has, while there is none."""
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        return -1 if row is None else int(row[0])

    def put(self, collection: str, values: Mapping[str, str]) -> None:
        with self._database.transaction() as connection:
            row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
            number = (row or row_of(connection, statements.INSERT_NAMESPACE, (self._namespace,)))[0]
            connection.executemany(
                statements.PUT_KEY_VALUE, [(number, collection, key, value) for key, value in values.items()]
            )

    def get(self, collection: str, keys: Sequence[str]) -> dict[str, str]:
        with self._database.reading() as connection:
            values = (json.dumps(list(keys)), self._number(connection), collection)
            return dict(rows_of(connection, statements.SELECT_KEY_VALUES, values))

    def items(self, collection: str) -> list[tuple[str, str]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.LIST_KEY_VALUES, (self._number(connection), collection))

    def delete(self, collection: str, keys: Sequence[str]) -> list[str]:
        with self._database.transaction() as connection:
            values = (json.dumps(list(keys)), self._number(connection), collection)
            return [key for (key,) in rows_of(connection, statements.DELETE_KEY_VALUES, values)]
