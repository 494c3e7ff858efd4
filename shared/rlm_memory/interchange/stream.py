"""A namespace as one stream of parts, in the order in which they can be written again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Final

import numpy as np

from rlm_memory.interchange.lines import Moved, NodePart, SweepPart
from rlm_memory.parts import (
    AccessPart,
    CheckpointPart,
    ChunkPart,
    EdgePart,
    ForgottenPart,
    KeyValuePart,
    OutcomePart,
    SessionPart,
    ThreadPart,
    UsePart,
    WritePart,
)
from rlm_memory.ports import Engine, Scope, Vector
from rlm_memory.scoring import unit

COPY_NOTES: Final = "rlm_memory.copy"
"""The collection in which a copy under way notes how far it is; it is no part of the namespace."""

_BATCH: Final = 500
_PARTS: Final = (
    EdgePart, SessionPart, AccessPart, ForgottenPart, UsePart, OutcomePart, KeyValuePart, ThreadPart, ChunkPart,
    CheckpointPart, WritePart,
)  # fmt: skip


def parts_of(engine: Engine) -> Generator[Moved, None, None]:
    """Yield all that the namespace holds; within `reading`, and closed before that ends.

    The log comes first: it tells which tier each node is in. What names something comes after what it names.
    """
    after = 0
    while page := engine.ledger.log(after=after, node_id=None, since_ms=None, limit=_BATCH):
        yield from page
        after = page[-1].sequence
    last: str | None = None
    while nodes := engine.select(Scope(), limit=_BATCH, after=last):
        ids = [node.id for node in nodes]
        vectors = _of_length_one(engine.vectors_of(ids))
        for node, vector, history in zip(nodes, vectors, engine.parts.histories(ids), strict=True):
            yield NodePart(node, vector, history.tier_since, history.faded_at)
        last = ids[-1]
    for key in engine.messages.keys():  # noqa: SIM118 - no dict
        offset = 0
        while messages := engine.messages.select(key, status=None, limit=_BATCH, offset=offset):
            yield from messages
            offset += len(messages)
    for kind in _PARTS:
        with closing(engine.parts.read(kind)) as parts:
            for part in parts:
                if not (isinstance(part, KeyValuePart) and part.collection == COPY_NOTES):
                    yield part
    if (swept := engine.ledger.last_sweep()) is not None:
        yield SweepPart(swept)


def _of_length_one(vectors: Sequence[Vector | None]) -> list[Vector | None]:
    """Return the vectors as the next store will make them: rounded for this one, their length is not 1 any more."""
    there = [vector for vector in vectors if vector is not None]
    rows = iter(unit(np.stack(there)) if there else ())
    return [None if vector is None else next(rows) for vector in vectors]
