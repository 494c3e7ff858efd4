"""The conversations of a store: lists of messages, kept as they are beside the memories and apart from them."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlm_memory.conflicts import repeated
from rlm_memory.errors import InvalidInputError
from rlm_memory.ports import Clock, Engine
from rlm_memory.records import MESSAGE_STATUSES, Message, MessageStatus
from rlm_memory.validation import checked_count, checked_json, checked_key


class Conversations:
    """The conversations of one namespace, reached by `memory.conversations`. Thread-safe.

    A message is any JSON value; a conversation is the messages under one key, in the order they were added. They are no
    memories: no search finds them, no rule moves them, and `Memory.delete` and `Memory.clear` leave them alone. Export,
    import, backup and `check` take them in. Every call that writes is one transaction.

    >>> from rlm_memory import Memory
    >>> with Memory.open(":memory:", embedder=None) as memory:
    ...     ids = memory.conversations.append("chat", [{"says": "Hello"}, {"says": "Bye"}])
    ...     archived = memory.conversations.archive_oldest("chat", 1)
    ...     [(message.content, message.status) for message in memory.conversations.list("chat")]
    [({'says': 'Hello'}, 'archived'), ({'says': 'Bye'}, 'active')]
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._messages = engine.messages
        self._clock = clock

    def keys(self) -> builtins.list[str]:
        """Return the keys that have messages, sorted."""
        return self._messages.keys()

    def list(
        self, key: str, *, status: MessageStatus | None = None, limit: int | None = None, offset: int = 0
    ) -> builtins.list[Message]:
        """Return the messages under a key, the oldest first; an unknown key has none.

        Args:
            key: The conversation.
            status: "active" or "archived"; both unless given.
            limit: How many at most.
            offset: How many to leave out at the start.
        """
        return self._messages.select(
            checked_key(key),
            status=_checked_status(status),
            limit=None if limit is None else checked_count("limit", limit),
            offset=checked_count("offset", offset),
        )

    def count(self, key: str, *, status: MessageStatus | None = None) -> int:
        """Return how many messages `list` would show without limits."""
        return self._messages.count(checked_key(key), status=_checked_status(status))

    def append(self, key: str, contents: Iterable[Any], *, status: MessageStatus = "active") -> builtins.list[Message]:
        """Add messages at the end of a conversation and return them; all of them, or none if one is refused.

        Raises:
            InvalidInputError: One of them would not come back from JSON as it is; nothing was written.
        """
        return self._messages.insert(self._new(key, contents, status))

    def replace(self, key: str, contents: Iterable[Any], *, status: MessageStatus = "active") -> builtins.list[Message]:
        """Put messages in the place of all that a conversation has, archived ones too, and return them.

        Raises:
            InvalidInputError: One of them would not come back from JSON as it is; the conversation is as it was.
        """
        return self._replace(key, self._new(key, contents, status))

    @repeated
    def _replace(self, key: str, messages: builtins.list[Message]) -> builtins.list[Message]:
        with self._engine.transaction():
            self._messages.delete_all(key=key)
            return self._messages.insert(messages)

    @repeated
    def archive_oldest(self, key: str, n: int) -> builtins.list[Message]:
        """Make the `n` oldest active messages archived ones, and return them."""
        with self._engine.transaction():
            oldest = self.list(key, status="active", limit=checked_count("n", n))
            self._messages.set_status([message.id for message in oldest], "archived")
        return [replace(message, status="archived") for message in oldest]

    @repeated
    def delete_oldest(self, key: str, n: int) -> builtins.list[Message]:
        """Delete the `n` oldest active messages, and return them."""
        with self._engine.transaction():
            oldest = self.list(key, status="active", limit=checked_count("n", n))
            self._messages.delete([message.id for message in oldest])
        return oldest

    @repeated
    def delete(self, key: str, id: int | None = None, *, status: MessageStatus | None = None) -> builtins.list[Message]:
        """Delete messages of a conversation and return them, the oldest first.

        Args:
            key: The conversation.
            id: This message alone; one that is not in the conversation is passed over.
            status: Those of this status alone.
        """
        key, status = checked_key(key), _checked_status(status)
        with self._engine.transaction():
            if id is None:
                found = self._messages.select(key, status=status, limit=None, offset=0)
            else:
                one = self._messages.get(key, checked_count("id", id))
                found = [one] if one is not None and status in (None, one.status) else []
            self._messages.delete([message.id for message in found])
        return found

    def clear(self) -> int:
        """Delete every conversation of this namespace; return how many messages there were."""
        return self._messages.delete_all(key=None)

    def _new(self, key: str, contents: Iterable[Any], status: MessageStatus) -> builtins.list[Message]:
        checked = _checked_status(status)
        if checked is None:
            raise InvalidInputError(f"status is None; expected one of {', '.join(MESSAGE_STATUSES)}.")
        key, now = checked_key(key), self._clock()
        messages = []
        for position, content in enumerate(contents):
            checked_json(content, f"Message {position}")
            messages.append(Message(id=0, key=key, content=content, status=checked, created_at=now))
        return messages


def _checked_status(status: MessageStatus | None) -> MessageStatus | None:
    if status is not None and status not in MESSAGE_STATUSES:
        raise InvalidInputError(f"Unknown status {status!r}; expected one of {', '.join(MESSAGE_STATUSES)}.")
    return status
