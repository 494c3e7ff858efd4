"""JSON values under keys, in named collections of a memory: for what a framework keeps beside the memories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rlm_memory.errors import InvalidInputError
from rlm_memory.ports import Engine
from rlm_memory.validation import checked_ids


class KeyValues:
    """A collection of JSON values: `memory.key_values("settings")` returns it, here and in any other process.

    >>> from rlm_memory import Memory
    >>> with Memory.open(":memory:", embedder=None) as memory:
    ...     colours = memory.key_values("colours")
    ...     colours.put({"sky": {"name": "blue"}, "sea": {"name": "green"}})
    ...     colours.get("sky"), colours.delete(["sea", "sand"]), list(colours.items())
    ({'name': 'blue'}, ['sea'], [('sky', {'name': 'blue'})])
    """

    def __init__(self, engine: Engine, collection: str) -> None:
        if not isinstance(collection, str) or collection.encode("utf-8", "ignore").decode() != collection:
            raise InvalidInputError(f"{collection!r} cannot name a collection; expected a str of valid Unicode text.")
        self._store = engine.key_values
        self.collection = collection

    def put(self, values: Mapping[str, Any]) -> None:
        """Add or replace the values under these keys: all of them, or none.

        Raises:
            InvalidInputError: A key is not a str, or a value is nothing that JSON can hold.
        """
        texts = {}
        for key, value in values.items():
            if not isinstance(key, str):
                raise InvalidInputError(f"{key!r} is not a key; expected a str.")
            try:
                key.encode()
                # ASCII, so that a text with a lone surrogate comes back as it was
                texts[key] = json.dumps(value, separators=(",", ":"), allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidInputError(
                    f"The value under {key!r} cannot be kept: {error}; expected what JSON can hold."
                ) from error
        if texts:
            self._store.put(self.collection, texts)

    def get(self, key: str) -> Any:
        """Return the value under a key, None if there is none."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values under those of these keys that are there."""
        return {key: json.loads(text) for key, text in self._store.get(self.collection, checked_ids(keys)).items()}

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return every (key, value), in the order in which the keys were first put."""
        return [(key, json.loads(text)) for key, text in self._store.items(self.collection)]

    def delete(self, keys: str | Iterable[str]) -> list[str]:
        """Delete these keys; return those that were there, in no order."""
        return self._store.delete(self.collection, checked_ids(keys))
