"""The conversations of one namespace of a store file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apsw

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.engines.sqlite.namespaces import number_of, own_number_of
from rlm_memory.records import Message, MessageStatus
from rlm_memory.times import milliseconds, moment


class SQLiteMessages:
    """See `rlm_memory.ports.MessageStore`."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    def _number(self, connection: apsw.Connection) -> int:
        return number_of(connection, self._namespace)

    def keys(self) -> list[str]:
        with self._database.reading() as connection:
            return [key for (key,) in rows_of(connection, statements.SELECT_KEYS, (self._number(connection),))]

    def select(self, key: str, *, status: MessageStatus | None, limit: int | None, offset: int) -> list[Message]:
        values = (key, *_asked(status), -1 if limit is None else limit, offset)
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_MESSAGES, (self._number(connection), *values))
        return [_message_of(row) for row in rows]

    def get(self, key: str, id: int) -> Message | None:
        with self._database.reading() as connection:
            row = row_of(connection, statements.SELECT_MESSAGE, (id, self._number(connection), key))
        return None if row is None else _message_of(row)

    def count(self, key: str, *, status: MessageStatus | None) -> int:
        with self._database.reading() as connection:
            (count,) = row_of(connection, statements.COUNT_MESSAGES, (self._number(connection), key, *_asked(status)))
        return int(count)

    def insert(self, messages: Sequence[Message]) -> list[Message]:
        if not messages:
            return []
        with self._database.transaction() as connection:
            number = own_number_of(connection, self._namespace)
            return [
                replace(message, id=row_of(connection, statements.INSERT_MESSAGE, (number, *_columns(message)))[0])
                for message in messages
            ]

    def set_status(self, ids: Sequence[int], status: MessageStatus) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            connection.executemany(statements.SET_MESSAGE_STATUS, [(status, id, number) for id in ids])

    def delete(self, ids: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            connection.executemany(statements.DELETE_MESSAGE, [(id, number) for id in ids])

    def delete_all(self, *, key: str | None) -> int:
        with self._database.transaction() as connection:
            connection.execute(statements.DELETE_MESSAGES, (self._number(connection), key))
            return connection.changes()


def _asked(status: MessageStatus | None) -> tuple[MessageStatus, MessageStatus]:
    return ("active", "archived") if status is None else (status, status)


def _columns(message: Message) -> tuple[Any, ...]:
    content = json.dumps(message.content, ensure_ascii=False, separators=(",", ":"))
    return message.key, message.status, milliseconds(message.created_at), content


def _message_of(row: Any) -> Message:
    id, key, status, at, content = row
    return Message(id=id, key=key, content=json.loads(content), status=status, created_at=moment(at))
