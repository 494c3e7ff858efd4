"""A serialiser for LlamaIndex's workflows: their state can hold what Python programs work with, without pickle."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any, Final

from workflows.context.serializers import JsonSerializer

from rlm_memory.checkpoints import Limits, UnsavableValueError, dumps, loads
from rlm_memory.errors import CheckpointError

_KEY: Final = "__rlmc"
_RESERVED: Final = frozenset({_KEY, "__is_pydantic", "__is_component"})
_LARGEST: Final = 2**63


class RLMSerializer(JsonSerializer):
    """Turns values into text and back exactly: tuples, sets, data frames, arrays, bytes, keys that are no text.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> from llamaindex_rlm import RLMSerializer
        >>> serializer = RLMSerializer()

    Serialize and deserialize:
        >>> serializer.deserialize(serializer.serialize({"seen": {1, 2}, "pair": ("a", b"b"), "n": 1}))
        {'seen': {1, 2}, 'pair': ('a', b'b'), 'n': 1}

    Use in a workflow:
        `ctx.to_dict(serializer=serializer)`, and `Context.from_dict(workflow, data, serializer=serializer)`.
        `save_context` and `load_context` do both on a file.

    What JSON holds exactly stays JSON that a person can read, so that a list that two lists share is two afterwards;
    other values are in it as one string each. Bytes are data: no code in them runs, and they can name no class outside
    of the standard library's harmless part, LlamaIndex's nodes and messages, pandas, polars, numpy, pyarrow, and
    `allowed_types`. Events of other classes are written as LlamaIndex does. What its own serialiser has written is
    read, too.
    """

    def __init__(self, *, allowed_types: Iterable[type[Any] | str] = (), limits: Limits | None = None) -> None:
        """Read and write values.

        Args:
            allowed_types: Classes whose instances may be in the state: events, dataclasses, pydantic models, enums.
            limits: The most that a value may need when it is read, against damaged or hostile text.
        """
        self._types = tuple(allowed_types)
        self._limits = limits
        super().__init__(allowed_types=self._types)

    def with_types(self, *classes: type[Any]) -> RLMSerializer:
        """Return a serialiser that allows these classes, too."""
        return RLMSerializer(allowed_types=tuple(dict.fromkeys((*self._types, *classes))), limits=self._limits)

    def serialize(self, value: Any) -> str:
        """Return the value as JSON.

        Raises:
            ValueError: A part of it cannot be written, or could not be read; the message names it.
        """
        try:
            return super().serialize(value)
        except (ValueError, RecursionError) as error:
            # theirs shows the value, which may be long or secret, in place of the reason
            reason = error.__context__ or error
            raise ValueError(f"A {type(value).__name__} cannot be serialised: {reason}") from error

    def serialize_value(self, value: Any) -> Any:
        """Return what JSON holds of a value."""
        kind = type(value)
        if kind is dict and all(type(key) is str and _is_plain(key) for key in value) and not _RESERVED & value.keys():
            return {key: self.serialize_value(item) for key, item in value.items()}
        if kind is list:
            return [self.serialize_value(item) for item in value]
        if _is_plain(value):
            return value
        try:
            data = dumps(value, strict=True)
            self._loaded(data)
        except UnsavableValueError as error:
            theirs = super().serialize_value(value)
            if theirs is value:
                raise UnsavableValueError(f"{error} Name its class in allowed_types.") from error
            return theirs
        return {_KEY: base64.b64encode(data).decode()}

    def deserialize_value(self, data: Any) -> Any:
        """Return the value that `serialize_value` was given.

        Raises:
            ValueError: The text was changed, or is of a class that is not allowed.
        """
        if isinstance(data, dict) and _KEY in data:
            try:
                return self._loaded(base64.b64decode(data[_KEY], validate=True))
            except (CheckpointError, TypeError, ValueError) as error:
                raise ValueError(f"A value cannot be deserialised: {error}") from error
        return super().deserialize_value(data)

    def _loaded(self, data: bytes) -> Any:
        allow = [each for each in self._types if isinstance(each, type)]
        return loads(data, allow=allow, limits=self._limits, strict=True)


def _is_plain(value: Any) -> bool:
    """Tell whether JSON gives back exactly this value."""
    match value:
        case str() if type(value) is str:
            return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
        case int() if type(value) in (int, bool):
            return -_LARGEST <= value < _LARGEST
        case float() if type(value) is float:
            return math.isfinite(value)
        case _:
            return value is None
