"""A store as key-value store of LlamaIndex: its docstores and index stores live in the same file as the memories."""

from __future__ import annotations

import asyncio
from os import PathLike
from typing import Any, Final

from llama_index.core.storage.kvstore.types import DEFAULT_BATCH_SIZE, DEFAULT_COLLECTION, BaseKVStore

from rlm_memory import Memory
from rlm_memory.key_values import KeyValues

_PREFIX: Final = "llamaindex:"
"""What the collections of this package start with in the store: other frameworks have collections too."""


class RLMKVStore(BaseKVStore):
    """Keeps dicts under keys, in collections; what is built on such a store needs no files of its own.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        `from_params("memory.db")` opens a file.

        >>> import asyncio
        >>> from llamaindex_rlm import RLMKVStore
        >>> from rlm_memory import Memory
        >>> memory = Memory.open(":memory:", embedder=None)
        >>> store = RLMKVStore(memory)

    Put, get, delete:
        >>> store.put("ada", {"tea": "green"}, collection="people")
        >>> store.get("ada", collection="people"), store.get("bo", collection="people")
        ({'tea': 'green'}, None)
        >>> store.delete("ada", collection="people")
        True

    Async:
        >>> asyncio.run(store.aput("bo", {"tea": "black"}))
        >>> asyncio.run(store.aget("bo"))
        {'tea': 'black'}

    Use in a document store:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
        >>> documents = KVDocumentStore(store)
        >>> documents.add_documents([TextNode(text="Oslo is in Norway.", id_="oslo")])
        >>> documents.get_document("oslo").text
        'Oslo is in Norway.'
        >>> memory.close()

    Every call is one transaction, `put_all` too, whatever its `batch_size`.
    """

    def __init__(self, memory: Memory) -> None:
        """Use an opened memory, which stays the caller's to close."""
        self.client = memory

    @classmethod
    def from_params(cls, path: str | PathLike[str] | None = None, **options: Any) -> RLMKVStore:
        """Open a store, creating it if there is none; `client.close()` closes it.

        Args:
            path: A file, or ":memory:"; None for the file of RLM_MEMORY_DB, else the user's own.
            **options: What else `Memory.open` takes. There is no embedder unless it is given: keys need none.
        """
        return cls(Memory.open(path, **{"embedder": None, **options}))

    def _collection(self, name: str) -> KeyValues:
        return self.client.key_values(_PREFIX + name)

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Add or replace the value under a key.

        Raises:
            InvalidInputError: JSON cannot hold the value.
        """
        self._collection(collection).put({key: val})

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """See `put`."""
        await asyncio.to_thread(self.put, key, val, collection)

    def put_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """Add or replace values under their keys, all of them or none."""
        self._collection(collection).put(dict(kv_pairs))

    async def aput_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """See `put_all`."""
        await asyncio.to_thread(self.put_all, kv_pairs, collection)

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """Return the value under a key, None if there is none."""
        found: dict[str, Any] | None = self._collection(collection).get(key)
        return found

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """See `get`."""
        return await asyncio.to_thread(self.get, key, collection)

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Return everything in a collection, in the order in which the keys were first put."""
        return dict(self._collection(collection).items())

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """See `get_all`."""
        return await asyncio.to_thread(self.get_all, collection)

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Delete the value under a key; return whether there was one."""
        return bool(self._collection(collection).delete([key]))

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """See `delete`."""
        return await asyncio.to_thread(self.delete, key, collection)
