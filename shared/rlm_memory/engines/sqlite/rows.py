"""Rows as the values they stand for."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rlm_memory.records import Node
from rlm_memory.times import moment


def node_of(row: Any, namespace: str) -> Node:
    """Return the node of a row of `statements.NODE_COLUMNS`."""
    (id, type, subtype, tier, confidence, provenance, created_at, updated_at, last_accessed, access_count, pinned,
     metadata, text) = row  # fmt: skip
    return Node(
        text=text,
        id=id,
        type=type,
        subtype=subtype,
        tier=tier,
        confidence=confidence,
        provenance=provenance,
        metadata=json.loads(metadata),
        namespace=namespace,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
        last_accessed=moment_or_none(last_accessed),
        access_count=access_count,
        pinned=bool(pinned),
    )


def moment_or_none(ms: int | None) -> datetime | None:
    """Return the moment of a column that may be NULL."""
    return None if ms is None else moment(ms)
