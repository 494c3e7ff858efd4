"""JSON values under keys, in collections, of one namespace of a store on a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlm_memory.conflicts import repeated
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Database
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of


class PostgresKeyValues:
    """See `rlm_memory.ports.KeyValueStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace = database.namespace

    @repeated
    def put(self, collection: str, values: Mapping[str, str]) -> None:
        with self._database.transaction() as connection:
            last = row_of(connection, statements.TAKE_NUMBERS, (len(values), self._namespace))[0]
            owner = (self._namespace, collection, key_of(collection))
            rows = [
                (*owner, key, key_of(key), entry, value)
                for entry, (key, value) in enumerate(values.items(), last - len(values) + 1)
            ]
            connection.cursor().executemany(statements.PUT_KEY_VALUE, rows)

    @repeated
    def get(self, collection: str, keys: Sequence[str]) -> dict[str, str]:
        with self._database.reading() as connection:
            values = (self._namespace, key_of(collection), [key_of(key) for key in keys])
            return dict(rows_of(connection, statements.SELECT_KEY_VALUES, values))

    @repeated
    def items(self, collection: str) -> list[tuple[str, str]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.LIST_KEY_VALUES, (self._namespace, key_of(collection)))

    @repeated
    def delete(self, collection: str, keys: Sequence[str]) -> list[str]:
        with self._database.transaction() as connection:
            values = (self._namespace, key_of(collection), [key_of(key) for key in keys])
            return [key for (key,) in rows_of(connection, statements.DELETE_KEY_VALUES, values)]
