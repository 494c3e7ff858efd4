"""A store as chat store of LlamaIndex: what was said, in the same file as the memories and apart from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Self, TypeAlias

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from llamaindex_rlm.convert import file_of_reference
from rlm_memory import AsyncConversations, Conversations, Memory, Message
from rlm_memory.errors import InvalidInputError, StoreCorruptError

_PREFIX: Final = "llamaindex:"
"""What the keys of this package start with in the store: other frameworks write other messages, under the same ids."""


_State: TypeAlias = Literal["active", "archived"]


class RLMChatStore(AsyncDBChatStore):
    """Keeps the chat history of LlamaIndex's `Memory`, and of agents that have one, in a store of rlm-memory.

    It behaves as LlamaIndex's `SQLAlchemyChatStore`, but that every call is one transaction: a history that cannot be
    written leaves the old one as it was. Histories are no memories, see `Conversations`; `RLMMemoryBlock` makes some.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        `from_params("memory.db")` opens a file.

        >>> from llama_index.core.llms import ChatMessage
        >>> from llamaindex_rlm import RLMChatStore
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> store = RLMChatStore(memory)

    Add messages, async:
        Every method is awaited.

        >>> import asyncio
        >>> async def main():
        ...     await store.add_message("tuesday", ChatMessage("Who is there?"))
        ...     return await store.count_messages("tuesday"), await store.get_keys()
        >>> asyncio.run(main())
        (1, ['tuesday'])

    Use in a memory:
        >>> from llama_index.core.memory import Memory as ChatMemory
        >>> async def main():
        ...     chat = ChatMemory.from_defaults(session_id="monday", chat_store=store, tokenizer_fn=str.split)
        ...     await chat.aput(ChatMessage("Where is Oslo?"))
        ...     later = ChatMemory.from_defaults(session_id="monday", chat_store=store, tokenizer_fn=str.split)
        ...     return [message.content for message in await later.aget()]
        >>> asyncio.run(main())
        ['Where is Oslo?']
        >>> memory.close()

    It is serialised as a reference: `to_dict` names the file and the namespace, `from_dict` opens them again.
    """

    path: str
    """The file of the store, or ":memory:"."""
    namespace: str

    _memory: Memory = PrivateAttr()

    def __init__(self, memory: Memory) -> None:
        """Use an opened memory, which stays the caller's to close."""
        super().__init__(path=memory.location, namespace=memory.namespace)  # type: ignore[call-arg]  # the fields: pydantic's own __init__ is hidden by this one
        self._memory = memory

    @classmethod
    def from_params(cls, path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """Open a store, creating it if there is none; `client.close()` closes it.

        Args:
            path: A file, or ":memory:"; None for the file of RLM_MEMORY_DB, else the user's own.
            **options: What else `Memory.open` takes. There is no embedder unless it is given: chats need none.

        Raises:
            StoreError: The file cannot be opened.
        """
        return cls(Memory.open(path, **{"embedder": None, **options}))

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the class."""
        return "RLMChatStore"

    @property
    def client(self) -> Memory:
        """The memory behind it."""
        return self._memory

    @property
    def _conversations(self) -> AsyncConversations:
        return AsyncConversations(self._memory.conversations)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return the messages under a key, the oldest first.

        Args:
            key: The conversation, which is the session id of LlamaIndex's `Memory`.
            status: Those in use or those that were archived; None for both.
            limit: How many at most.
            offset: How many to leave out at the start.

        Raises:
            StoreCorruptError: One of them is no message of LlamaIndex.
        """
        return _opened(
            await self._conversations.list(_stored(key), status=_named(status), limit=limit, offset=offset or 0)
        )

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Return how many messages there are under a key."""
        return await self._conversations.count(_stored(key), status=_named(status))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        """Add a message at the end.

        Raises:
            InvalidInputError: It cannot be written as JSON.
        """
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add messages at the end; all of them, or none if one is refused.

        Raises:
            InvalidInputError: One of them cannot be written as JSON; nothing was written.
        """
        await self._conversations.append(_stored(key), _closed(messages), status=_named(status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Put messages in the place of all that the key has, archived ones too.

        Raises:
            InvalidInputError: One of them cannot be written as JSON; the history is as it was.
        """
        await self._conversations.replace(_stored(key), _closed(messages), status=_named(status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message with this number and return it, None if the key has none such.

        Messages are numbered as they are added, over all keys of the file.
        """
        return next(iter(_opened(await self._conversations.delete(_stored(key), idx))), None)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages under a key; all of them unless a status is given."""
        await self._conversations.delete(_stored(key), status=_named(status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the `n` oldest messages in use and return them."""
        return _opened(await self._conversations.delete_oldest(_stored(key), n))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the `n` oldest messages in use and return them."""
        return _opened(await self._conversations.archive_oldest(_stored(key), n))

    async def get_keys(self) -> list[str]:
        """Return the keys that have messages of LlamaIndex, sorted."""
        return _asked(await self._conversations.keys())

    def to_dict(self) -> dict[str, Any]:
        """Return a reference for `from_dict`: path and namespace.

        Raises:
            TypeError: The store is in memory: it would be lost.
        """
        return {"class_name": self.class_name(), **_reference(self._memory)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, memory: Memory | None = None) -> Self:
        """Return the store that `to_dict` referred to.

        Args:
            data: What `to_dict` returned.
            memory: The opened memory to use; else the file is opened.

        Raises:
            InvalidInputError: There is no such file, or the memory is another store.
        """
        return cls(_memory_of(data, memory))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the way to open the same file again; pydantic's own would drop the memory without a word."""
        return type(self), (self._memory,)


class RLMSyncChatStore(BaseChatStore):
    """The same histories for what has no async methods to await: `ChatMemoryBuffer` and other users of `BaseChatStore`.

    It shows the messages in use; what `RLMChatStore` has archived is not among them, and goes when a key is set anew.
    Its async methods, which are those of the base, work in threads.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> from llama_index.core.llms import ChatMessage
        >>> from llamaindex_rlm import RLMSyncChatStore
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> store = RLMSyncChatStore(memory)

    Add messages:
        >>> store.add_message("tuesday", ChatMessage("Who is there?"))
        >>> [message.content for message in store.get_messages("tuesday")], store.get_keys()
        (['Who is there?'], ['tuesday'])

    Use in a memory:
        >>> from llama_index.core.memory import ChatMemoryBuffer
        >>> chat = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="monday", tokenizer_fn=str.split)
        >>> chat.put(ChatMessage("Where is Oslo?"))
        >>> [message.content for message in chat.get()]
        ['Where is Oslo?']

    Async:
        >>> import asyncio
        >>> [message.content for message in asyncio.run(store.aget_messages("monday"))]
        ['Where is Oslo?']
        >>> memory.close()
    """

    path: str
    """The file of the store, or ":memory:"."""
    namespace: str

    _memory: Memory = PrivateAttr()

    def __init__(self, memory: Memory) -> None:
        """Use an opened memory, which stays the caller's to close."""
        super().__init__(path=memory.location, namespace=memory.namespace)  # type: ignore[call-arg]  # see RLMChatStore
        self._memory = memory

    @classmethod
    def from_params(cls, path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """See `RLMChatStore.from_params`."""
        return cls(Memory.open(path, **{"embedder": None, **options}))

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the class."""
        return "RLMSyncChatStore"

    @property
    def client(self) -> Memory:
        """The memory behind it."""
        return self._memory

    @property
    def _conversations(self) -> Conversations:
        return self._memory.conversations

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Put messages in the place of all that the key has.

        Raises:
            InvalidInputError: One of them cannot be written as JSON; the history is as it was.
        """
        self._conversations.replace(_stored(key), _closed(messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages under a key, the oldest first."""
        return _opened(self._conversations.list(_stored(key), status="active"))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Add a message at the end.

        Raises:
            InvalidInputError: It cannot be written as JSON.
        """
        self._conversations.append(_stored(key), _closed([message]))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete the messages under a key, archived ones too, and return them; None if there are none."""
        return _opened(self._conversations.delete(_stored(key))) or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete the message at this place among those under the key and return it, None if it has none there.

        The first is 0; negative places count from the end, as in a list.
        """
        messages = self._conversations.list(_stored(key), status="active")
        if not -len(messages) <= idx < len(messages):
            return None
        return next(iter(_opened(self._conversations.delete(_stored(key), messages[idx].id))), None)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the last message under a key and return it, None if there is none."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Return the keys that have messages of LlamaIndex, sorted."""
        return _asked(self._conversations.keys())

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """See `RLMChatStore.to_dict`."""
        _reference(self._memory)
        return super().to_dict(**kwargs)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, memory: Memory | None = None) -> Self:  # type: ignore[override]  # the base takes any keywords, this is the one that means something
        """See `RLMChatStore.from_dict`."""
        return cls(_memory_of(data, memory))

    def __reduce__(self) -> tuple[Any, ...]:
        """See `RLMChatStore.__reduce__`."""
        return type(self), (self._memory,)


def _stored(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"The key of a chat is {key!r}; expected a str.")
    return _PREFIX + key


def _asked(keys: Iterable[str]) -> list[str]:
    return [key.removeprefix(_PREFIX) for key in keys if key.startswith(_PREFIX)]


def _closed(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as JSON values."""
    values = []
    for position, message in enumerate(messages):
        if not isinstance(message, ChatMessage):
            raise InvalidInputError(f"Message {position} is {type(message).__name__}; expected a ChatMessage.")
        try:
            values.append(message.model_dump(mode="json"))
        except ValueError as error:
            raise InvalidInputError(
                f"LlamaIndex cannot write message {position} as JSON: {error}. Convert what its additional_kwargs hold "
                "to texts, numbers, lists and dicts first."
            ) from error
    return values


def _opened(messages: Iterable[Message]) -> list[ChatMessage]:
    return [_chat_message(message) for message in messages]


def _chat_message(message: Message) -> ChatMessage:
    try:
        return ChatMessage.model_validate(message.content)
    except ValueError as error:
        raise StoreCorruptError(
            f"Message {message.id} of chat {message.key.removeprefix(_PREFIX)!r} is no message that this release of "
            f"LlamaIndex knows: {error}"
        ) from error


def _named(status: MessageStatus | None) -> _State | None:
    match status:
        case None:
            return None
        case MessageStatus.ACTIVE:
            return "active"
        case MessageStatus.ARCHIVED:
            return "archived"
        case _:
            raise InvalidInputError(f"Unknown status {status!r}; expected a MessageStatus of LlamaIndex.")


def _reference(memory: Memory) -> dict[str, str]:
    if memory.location == ":memory:":
        raise TypeError("A store in ':memory:' cannot be referred to: its messages would be lost. Use a file.")
    return {"path": memory.location, "namespace": memory.namespace}


def _memory_of(data: Mapping[str, Any], memory: Memory | None) -> Memory:
    path, namespace = data["path"], data["namespace"]
    if memory is None:
        return Memory.open(file_of_reference(path), embedder=None, namespace=namespace)
    if (memory.location, memory.namespace) != (path, namespace):
        raise InvalidInputError(f"{memory!r} is not the store of this reference: {path!r}, {namespace!r}.")
    return memory
