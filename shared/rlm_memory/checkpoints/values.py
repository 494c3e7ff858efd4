"""Any one value as bytes and back, in the format of checkpoints: for serializers of frameworks, caches, queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlm_memory.checkpoints.codec import Surroundings, decode, encode
from rlm_memory.checkpoints.container import Key, Limits, pack, unpack
from rlm_memory.checkpoints.errors import CheckpointDamagedError, CheckpointLimitError, UnsavableValueError
from rlm_memory.checkpoints.names import Permissions
from rlm_memory.checkpoints.sources import Sources


def dumps(value: Any, *, trust: Key | None = None, sources: Sources | None = None, strict: bool = False) -> bytes:
    """Return a value as bytes; what cannot be written is a placeholder when it comes back, and the rest is kept.

    `trust` signs the bytes. `sources` are the cells that made its functions. With `strict` nothing is left out.

    Raises:
        UnsavableValueError: `strict` is set and a part of the value cannot be written; the message names each.
    """
    heap, issues = encode([("value", value)], Surroundings(sources=sources or Sources()))
    if strict and issues:
        raise UnsavableValueError("These parts cannot be saved: " + "; ".join(map(str, issues)))
    return pack({"names": ["value"]}, heap, trust=trust)


def loads(
    data: bytes,
    *,
    trust: Key | None = None,
    allow: Iterable[type] = (),
    limits: Limits | None = None,
    strict: bool = False,
) -> Any:
    """Return the value that `dumps` wrote, after every byte was checked.

    Without `trust`, the key it was signed with, it is data: functions, and objects of classes outside `allow`, are
    placeholders. With `strict` there are none.

    Raises:
        CheckpointDamagedError: the bytes are not the ones that were written.
        CheckpointSignatureError: they are signed with another key.
        CheckpointLimitError: the value would need more memory than there is, or than `limits` allow.
        UnsavableValueError: `strict` is set and a part of the value could not be rebuilt.
    """
    try:
        container = unpack(data, trust=trust, limits=limits)
        if len(container.heap.roots) != 1:
            raise CheckpointDamagedError("Expected the bytes of one value; these are those of a checkpoint.")
        permissions = Permissions.of(code=container.trusted, allow=allow)
        values, issues = decode(container.heap, ["value"], permissions=permissions)
    except MemoryError as error:
        raise CheckpointLimitError("The value needs more memory than there is.") from error
    if strict and issues:
        raise UnsavableValueError("These parts cannot be restored: " + "; ".join(map(str, issues)))
    return values[0]
