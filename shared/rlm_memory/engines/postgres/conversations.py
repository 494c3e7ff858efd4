"""The conversations of one namespace of a store on a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlm_memory.conflicts import repeated
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Database
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of
from rlm_memory.records import MESSAGE_STATUSES, Message, MessageStatus
from rlm_memory.times import milliseconds, moment


class PostgresMessages:
    """See `rlm_memory.ports.MessageStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace = database.namespace

    @repeated
    def keys(self) -> list[str]:
        with self._database.reading() as connection:
            return [key for (key,) in rows_of(connection, statements.SELECT_KEYS, (self._namespace,))]

    @repeated
    def select(self, key: str, *, status: MessageStatus | None, limit: int | None, offset: int) -> list[Message]:
        values = (self._namespace, key_of(key), _asked(status), limit, offset)
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_MESSAGES, values)
        return [_message_of(row) for row in rows]

    @repeated
    def get(self, key: str, id: int) -> Message | None:
        with self._database.reading() as connection:
            row = row_of(connection, statements.SELECT_MESSAGE, (self._namespace, id, key_of(key)))
        return None if row is None else _message_of(row)

    @repeated
    def count(self, key: str, *, status: MessageStatus | None) -> int:
        with self._database.reading() as connection:
            values = (self._namespace, key_of(key), _asked(status))
            return int(row_of(connection, statements.COUNT_MESSAGES, values)[0])

    @repeated
    def insert(self, messages: Sequence[Message]) -> list[Message]:
        if not messages:
            return []
        with self._database.transaction() as connection:
            last = row_of(connection, statements.TAKE_NUMBERS, (len(messages), self._namespace))[0]
            first = last - len(messages) + 1
            numbered = [replace(message, id=number) for number, message in enumerate(messages, first)]
            with connection.cursor().copy(statements.COPY_MESSAGES) as copy:
                for message in numbered:
                    copy.write_row((self._namespace, message.id, *_columns(message)))
            return numbered

    def set_status(self, ids: Sequence[int], status: MessageStatus) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_MESSAGE_STATUS, (status, self._namespace, list(ids)))

    def delete(self, ids: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.DELETE_MESSAGES, (self._namespace, list(ids)))

    @repeated
    def delete_all(self, *, key: str | None) -> int:
        with self._database.transaction() as connection:
            if key is None:
                return connection.execute(statements.DELETE_ALL_MESSAGES, (self._namespace,)).rowcount
            return connection.execute(statements.DELETE_MESSAGES_OF_KEY, (self._namespace, key_of(key))).rowcount


def _asked(status: MessageStatus | None) -> list[MessageStatus]:
    return list(MESSAGE_STATUSES) if status is None else [status]


def _columns(message: Message) -> tuple[Any, ...]:
    content = json.dumps(message.content, ensure_ascii=False, separators=(",", ":"))
    return message.key, key_of(message.key), message.status, milliseconds(message.created_at), content


def _message_of(row: Any) -> Message:
    id, key, status, at, content = row
    return Message(id=id, key=key, content=json.loads(content), status=status, created_at=moment(at))
