"""The values that cross the boundaries of the core: frozen, with no behaviour but to show themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from rlm_memory.display import Displayed, Table, facts, measured, shortened, size

NodeType: TypeAlias = Literal["entity", "fact", "experience", "decision", "snippet"]
Tier: TypeAlias = Literal["task", "session", "longterm", "archive"]
VectorStorage: TypeAlias = Literal["float32", "int8", "bit"]
MessageStatus: TypeAlias = Literal["active", "archived"]

NODE_TYPES: tuple[NodeType, ...] = get_args(NodeType)
TIERS: tuple[Tier, ...] = get_args(Tier)
"""From the first to the last: a promotion moves to the right."""
MESSAGE_STATUSES: tuple[MessageStatus, ...] = get_args(MessageStatus)
VECTOR_STORAGES: tuple[VectorStorage, ...] = get_args(VectorStorage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A memory: a text, what is known about it, and how it has been used.

    `Memory.add` takes nodes and fills what is left out; `id=""` asks for a new id.
    `created_at`, `updated_at`, `last_accessed`, `access_count` and `pinned` are kept by the store: what a caller puts
    there is not read by `add`.
    """

    text: str
    id: str = ""
    type: NodeType = "fact"
    subtype: str | None = None
    tier: Tier = "task"
    confidence: float = 0.5
    provenance: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = "default"
    created_at: datetime | None = None
    updated_at: datetime | None = None
    last_accessed: datetime | None = None
    access_count: int = 0
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a search found, with the score it is ranked by and the raw scores behind it.

    `score` lies in [0, 1] and is normalised over the candidates of this one query: it orders, and says nothing across
    queries. `semantic` is the raw cosine in [-1, 1], `keyword` the raw BM25 (0 or more); each is None where that leg
    did not see the node: it has no vector, or the leg was not asked. `relevance` lies in [0, 1] and means the same in
    every query, so that a threshold can be set: the cosine (0 if negative), or the share of the question's words that
    the text has, whichever is greater. 1 is the question's own text, or a text with all its words.
    """

    node: Node
    score: float
    semantic: float | None = None
    keyword: float | None = None
    relevance: float = 0.0

    @property
    def id(self) -> str:
        """The node's id."""
        return self.node.id

    @property
    def text(self) -> str:
        """The node's text."""
        return self.node.text

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The node's metadata."""
        return self.node.metadata


class Hits(Displayed, list[Hit]):
    """What a search found, the best first: a list that shows itself as a table."""

    def as_table(self) -> Table:
        """Return rank, scores, tier and text of each."""
        return Table(
            f"{len(self)} {'hit' if len(self) == 1 else 'hits'}",
            ("", "score", "semantic", "keyword", "relevance", "tier", "id", "text"),
            [
                (rank, hit.score, hit.semantic, hit.keyword, hit.relevance, hit.node.tier, hit.id, shortened(hit.text))
                for rank, hit in enumerate(self, start=1)
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A node handed to a reader in a session.

    `writer` names the process that counts the turns: two may be in one session, each with its own turn 1.
    """

    node_id: str
    session_id: str
    turn: int
    at: datetime
    confidence: float
    run_id: str | None = None
    writer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenAccesses:
    """What stays of the accesses of a node in a session when they are forgotten one by one: how many, and when."""

    node_id: str
    session_id: str
    accesses: int
    first_at: datetime
    last_at: datetime
    lowest_confidence: float


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a rule: what was measured, what it was held against, and whether it holds."""

    name: str
    found: float | str | None
    required: str
    holds: bool

    @property
    def measured(self) -> str:
        """What was measured, for people: in few digits, but never rounded to where the condition would hold or not."""
        match self.found:
            case None:
                return "unknown"
            case float():
                try:
                    threshold = float(self.required.rpartition(" ")[2])
                except ValueError:
                    return measured(self.found)
                return measured(self.found, threshold)
            case _:
                return str(self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDecision(Displayed):
    """What a rule, or a person, decided about a node's tier, with the evidence.

    `moved` tells whether the node's tier changes: a decision with `moved` False is a refusal, or an explanation.
    """

    node_id: str
    from_tier: Tier
    to_tier: Tier
    rule: str
    moved: bool
    actor: Literal["auto", "manual"]
    reason: str
    conditions: tuple[Condition, ...] = ()
    session_id: str | None = None
    at: datetime | None = None

    @property
    def missing(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)

    def as_table(self) -> Table:
        """Return the conditions, each with what was found."""
        verb = "moved" if self.moved else "stays"
        where = f"from {self.from_tier} to {self.to_tier}" if self.moved else f"in {self.from_tier}, not {self.to_tier}"
        when = f", {self.at:%Y-%m-%d %H:%M} UTC" if self.at else ""
        why = "" if self.conditions else f": {self.reason}"  # else it is what the table says
        return Table(
            f"{self.node_id} {verb} {where}{why} ({self.rule}, {self.actor}{when})",
            ("condition", "found", "required", "holds"),
            [(each.name, each.measured, each.required, each.holds) for each in self.conditions],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """What is stored of a session: `ended_at` is None while it is open, `turn` is the highest so far."""

    id: str
    started_at: datetime
    last_active: datetime
    ended_at: datetime | None
    turn: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A link from one node to another, by their ids; `duplicate_of` is what `consolidate` makes."""

    source: str
    target: str
    kind: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation: a JSON value under a key.

    `id` is a number of the store's own, greater for what was added later.
    """

    id: int
    key: str
    content: Any
    status: MessageStatus
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TierCounts:
    """How many of the nodes that are there today were in each tier at one moment."""

    at: datetime
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the promotion log, chained to the one before by its hash."""

    sequence: int
    decision: PromotionDecision
    previous_hash: str
    hash: str


class PromotionLog(Displayed):
    """The entries of a promotion log, the earliest first, read from the store each time they are walked through."""

    def __init__(self, read: Callable[[], Iterator[LogEntry]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[LogEntry]:
        return self._read()

    def as_table(self) -> Table:
        """Return the last entries."""
        last = deque(self, maxlen=_SHOWN_ENTRIES)
        counted = "1 entry" if len(last) == 1 else f"{len(last)} entries"
        return Table(
            f"The last {counted}" if len(last) == _SHOWN_ENTRIES else counted,
            ("", "at", "node", "from", "to", "moved", "rule", "actor", "reason"),
            [
                (entry.sequence, move.at, move.node_id, move.from_tier, move.to_tier, move.moved, move.rule, move.actor,
                 move.reason)
                for entry in last
                for move in (entry.decision,)
            ],
        )  # fmt: skip


_SHOWN_ENTRIES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(Displayed):
    """What a store holds and what it costs, in nodes and bytes.

    `nodes`, `by_tier`, `by_type`, `with_vector` and `pending` count this namespace; the sizes are those of the whole
    file. `free_bytes` are in the file and unused: `compact` gives them back.
    """

    location: str
    namespace: str
    nodes: int
    by_tier: Mapping[str, int]
    by_type: Mapping[str, int]
    with_vector: int
    pending: int
    embedding_model: str | None
    dimensions: int | None
    embedding_storage: VectorStorage
    tokenizer: str
    text_bytes: int
    keyword_bytes: int
    vector_bytes: int
    other_bytes: int
    free_bytes: int
    file_bytes: int

    def as_table(self) -> Table:
        """Return each figure under its name, sizes in KiB, MiB and so on."""
        sizes = {name: size(getattr(self, name)) for name in self.__slots__ if name.endswith("_bytes")}
        names = (each.name for each in fields(self) if each.name not in ("location", "namespace"))
        return facts(
            f"{self.location}, namespace {self.namespace!r}",
            ((name.removesuffix("_bytes").replace("_", " "), sizes.get(name, getattr(self, name))) for name in names),
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault that `check` found: where, and what is wrong there."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of `check`: true when the store is sound, else the list of what is wrong."""

    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(f"{each.where}: {each.what}" for each in self) or "The store is sound."

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)


Version: TypeAlias = "str | int | float | None"
"""Which state of a channel a value is: equal versions along one line of checkpoints are equal values."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as a serialiser left it: the name of the encoding, and the bytes."""

    encoding: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWrite:
    """What a task wrote to a channel while it ran from a checkpoint; `place` tells the writes of one task apart."""

    task_id: str
    place: int
    channel: str
    value: Encoded
    task_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCheckpoint:
    """The state of a graph at one moment of a thread.

    `graph` is empty for the graph itself, else the path of a graph inside it; each has its own line of checkpoints.
    `head` is all of the state but the values of its channels. `versions` may leave out channels that have none.
    `sequence`, `created_at` and `writes` are filled by the store: it grows by order of commit, and writes are in order
    of task path, task and place.
    """

    thread_id: str
    id: str
    head: Encoded
    graph: str = ""
    parent_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Encoded] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    writes: tuple[ThreadWrite, ...] = ()
    sequence: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOutline:
    """A checkpoint without its state: where it stands, and which channels have a value in it."""

    sequence: int
    graph: str
    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    channels: frozenset[str]
