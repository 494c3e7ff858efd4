"""What a namespace holds besides its nodes, in pieces that can be moved: to a file, from it, to another engine.

Numbers of rows are an engine's own; here everything is named by the ids that callers know. Times are milliseconds since
1970-01-01 UTC. The order in which an engine gives the pieces of one kind is that in which they came about.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rlm_memory.records import Tier, Version


class HistoryPart(NamedTuple):
    """What a store knows of a node and `Node` does not tell: since when it is in its tier, up to when it has faded."""

    node: str
    tier: Tier
    pinned: bool
    tier_since: int
    faded_at: int | None


class EdgePart(NamedTuple):
    """A link between two nodes."""

    source: str
    target: str
    kind: str
    created_at: int


class SessionPart(NamedTuple):
    """A run of an agent."""

    id: str
    started_at: int
    last_active: int
    ended_at: int | None
    turn: int


class AccessPart(NamedTuple):
    """A node handed to a reader, and whether an outcome has been attached."""

    session: str
    node: str
    turn: int
    at: int
    confidence: float
    run_id: str | None
    writer: str
    judged: bool


class ForgottenPart(NamedTuple):
    """What stays of the accesses of a node in a session that are forgotten one by one."""

    session: str
    node: str
    accesses: int
    first_at: int
    last_at: int
    lowest_confidence: float
    to_judge: bool


class UsePart(NamedTuple):
    """What the rules weigh of a node's use in a session."""

    session: str
    node: str
    uses: int
    lowest_confidence: float
    last_used: int


class OutcomePart(NamedTuple):
    """How a use went, and whether the node's confidence has been changed by it."""

    session: str
    node: str
    run_id: str | None
    success: bool
    at: int
    learned: bool


class KeyValuePart(NamedTuple):
    """A JSON text under a key of a collection."""

    collection: str
    key: str
    value: str


class ThreadPart(NamedTuple):
    """A line of checkpoints of a kind."""

    kind: str
    id: str


class ChunkPart(NamedTuple):
    """A piece of values of a thread, or a list of such pieces: their numbers, as little-endian uint32."""

    kind: str
    thread: str
    number: int
    content: bytes


class ValuePart(NamedTuple):
    """The value of a channel. Depth 0: `content` is it. Else a list of chunks that hold lists of … of its pieces."""

    channel: str
    version: Version
    encoding: str
    depth: int
    content: bytes


class CheckpointPart(NamedTuple):
    """A state of a graph; `entries` of the log and `nodes` of today's were there when it was committed."""

    kind: str
    thread: str
    graph: str
    id: str
    parent_id: str | None
    created_at: int
    entries: int
    nodes: int
    metadata: str
    encoding: str
    head: bytes
    values: tuple[ValuePart, ...]


class WritePart(NamedTuple):
    """What a task wrote that ran from a checkpoint; `depth` and `content` are those of a value."""

    kind: str
    thread: str
    graph: str
    checkpoint_id: str
    task_id: str
    place: int
    task_path: str
    channel: str
    encoding: str
    depth: int
    content: bytes


Part: TypeAlias = (
    EdgePart
    | SessionPart
    | AccessPart
    | ForgottenPart
    | UsePart
    | OutcomePart
    | KeyValuePart
    | ThreadPart
    | ChunkPart
    | CheckpointPart
    | WritePart
)
