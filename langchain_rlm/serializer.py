"""A serialiser for LangGraph: any of its checkpointers can hold what Python programs work with, without pickle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rlm_memory.checkpoints import Limits, UnsavableValueError, dumps, loads

ENCODING: Final = "rlmc"
_OF_LANGGRAPH: Final = frozenset({"null", "bytes", "bytearray", "msgpack", "json"})


class RLMSerializer(SerializerProtocol):
    """Turns values into bytes and back exactly: tuples, sets, data frames, arrays, shared and cyclic parts.

    Setup:
        Install `rlm-memory[langgraph]`.

    Instantiate:
        >>> from langchain_rlm import RLMSerializer
        >>> serializer = RLMSerializer()

    Dump and load:
        >>> serializer.loads_typed(serializer.dumps_typed({"seen": {1, 2}, (1, 2): ("a", b"b")}))
        {'seen': {1, 2}, (1, 2): ('a', b'b')}

    Use in a checkpointer:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> saver = InMemorySaver(serde=serializer)

    Bytes are data: no code in them runs, and they can name no class outside of the standard library's harmless part,
    LangChain's and LangGraph's messages, documents and types, pandas, polars, numpy, pyarrow, and `allow`. A value that
    could not be read back is refused when it is written. What LangGraph's own serialiser has written is read, too.
    """

    def __init__(self, *, allow: Iterable[type] = (), limits: Limits | None = None) -> None:
        """Read and write values.

        Args:
            allow: Classes whose instances may be in the state: dataclasses, pydantic models, enums and others.
            limits: The most that a value may need when it is read, against damaged or hostile bytes.
        """
        self._allow = tuple(allow)
        self._limits = limits
        names = [(each.__module__, each.__qualname__) for each in self._allow]
        self._before = JsonPlusSerializer(allowed_msgpack_modules=names or None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the name of the encoding, and the bytes.

        Raises:
            UnsavableValueError: A part of the value cannot be written, or could not be read; the message names each.
        """
        if obj is None or type(obj) in (bytes, bytearray):
            return self._before.dumps_typed(obj)
        data = dumps(obj, strict=True)
        try:
            self._loaded(data)
        except UnsavableValueError as error:
            raise UnsavableValueError(f"{error} Name the classes that may be restored with allow=.") from error
        return ENCODING, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value.

        Raises:
            CheckpointDamagedError: The bytes are not the ones that were written.
            CheckpointLimitError: The value would need more memory than the limits allow.
            UnsavableValueError: A part of the value is of a class that is not allowed.
            NotImplementedError: The encoding is unknown.
        """
        encoding, content = data
        if encoding == ENCODING:
            return self._loaded(content)
        if encoding not in _OF_LANGGRAPH:
            raise NotImplementedError(
                f"Unknown encoding {encoding!r}; expected {ENCODING!r} or one of LangGraph's own."
            )
        return self._before.loads_typed((encoding, content))

    def _loaded(self, data: bytes) -> Any:
        return loads(data, allow=self._allow, limits=self._limits, strict=True)
