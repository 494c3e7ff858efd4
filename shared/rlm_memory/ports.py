"""What the core asks of the outside: an embedder, a clock, an engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlm_memory.filters import Filter
from rlm_memory.parts import HistoryPart, Part
from rlm_memory.promotion import Usage
from rlm_memory.records import (
    TIERS,
    Access,
    CheckpointOutline,
    CheckReport,
    Edge,
    Encoded,
    ForgottenAccesses,
    LogEntry,
    Message,
    MessageStatus,
    Node,
    PromotionDecision,
    SessionRecord,
    Stats,
    ThreadCheckpoint,
    ThreadWrite,
    Tier,
    VectorStorage,
    Version,
)

P = TypeVar("P", bound=Part)

Vector: TypeAlias = NDArray[np.float32]
"""One embedding, shape (dimensions,), or a matrix of them, shape (n, dimensions)."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    `model` names the model the same way every time: a store remembers it and refuses another one. An empty name means
    "unknown", and then only the number of dimensions is compared.
    """

    @property
    def model(self) -> str:
        """The model's name, for example `openai:text-embedding-3-small`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of each vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32."""
        ...

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32."""
        ...


class Clock(Protocol):
    """Tells the time; tests pass one that they set."""

    def __call__(self) -> datetime:
        """Return the present moment with its time zone."""
        ...


def system_clock() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


Progress: TypeAlias = Callable[[int, int], object]
"""Called with (done, total) while long work goes on."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which nodes of a namespace a call is about: those in these tiers that the filter lets through."""

    where: Filter | None = None
    tiers: tuple[Tier, ...] = TIERS


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes that a search may return, each with both raw scores; parallel arrays of length n, in no order.

    `keys` are the engine's own and good for `nodes` and `vectors` of the same read. `semantic` is NaN where a node has
    no vector, or the search none. `keyword` is the BM25 and `coverage` the share of the question's words that the text
    has; both are NaN throughout where the search has no words that any text has. `origins` tells of the candidates at
    some positions when they were created, in milliseconds, and their ids: it is asked where scores are equal.
    """

    keys: Sequence[int]
    semantic: NDArray[np.float64]
    keyword: NDArray[np.float64]
    coverage: NDArray[np.float64]
    origins: Callable[[Sequence[int]], Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a store was made with and keeps: its tokenizer, and the model and form of its vectors.

    `dimensions` is None while there are no vectors yet; `model` is empty where it is not known.
    """

    tokenizer: str
    embedding_storage: VectorStorage
    model: str
    dimensions: int | None


@dataclass(frozen=True, slots=True)
class NewModel:
    """The embedding model that a store is changed to."""

    model: str
    dimensions: int


class Engine(Protocol):
    """Stores and ranks the nodes of one namespace; the core validates, fuses and decides.

    Every method is safe to call from any thread. A write outside `transaction` is a transaction of its own.
    """

    location: str

    @property
    def ledger(self) -> Ledger:
        """What keeps sessions, tiers and the log of the same namespace."""
        ...

    def threads(self, kind: str) -> ThreadStore:
        """Return what keeps the threads of this kind in the same namespace."""
        ...

    @property
    def key_values(self) -> KeyValueStore:
        """What keeps JSON values under keys in the same namespace."""
        ...

    @property
    def messages(self) -> MessageStore:
        """What keeps the conversations of the same namespace."""
        ...

    @property
    def parts(self) -> PartStore:
        """What moves the same namespace whole."""
        ...

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces of the store that were ever written to, sorted."""
        ...

    def transaction(self, *, wait: bool = True, everywhere: bool = False) -> AbstractContextManager[object]:
        """Keep all writes of the block, or none; they are on disk when it ends.

        Without `wait`, a lock that is held elsewhere is a StoreBusyError at once. With `everywhere`, nobody else writes
        to any namespace of the store meanwhile.
        """
        ...

    def reading(self) -> AbstractContextManager[object]:
        """Let all reads of the block see one state of the store."""
        ...

    def identity(self) -> Identity:
        """Return what the store was made with."""
        ...

    def adopt(self, *, model: str, dimensions: int) -> None:
        """Fix the model and length of the vectors, while there are none yet."""
        ...

    def put(self, nodes: Sequence[Node], vectors: Sequence[Vector | None], now_ms: int) -> list[str]:
        """Add these nodes, or replace text, metadata and vector of those whose id is known; ids are distinct.

        Returns the ids that were new.
        """
        ...

    def put_vectors(self, ids: Sequence[str], texts: Sequence[str], vectors: Vector) -> int:
        """Give vectors to nodes that have none, unless their text has changed since; return how many were given."""
        ...

    def get(self, ids: Sequence[str]) -> list[Node]:
        """Return the nodes with these ids, in this order; unknown ids are left out."""
        ...

    def select(self, scope: Scope, *, limit: int, after: str | None, newest_first: bool = False) -> list[Node]:
        """Return nodes in the order they were added, or the last written first, from the one after this id on."""
        ...

    def count(self, scope: Scope) -> int:
        """Return how many nodes are in the scope."""
        ...

    def delete(self, ids: Sequence[str]) -> list[tuple[str, Tier]]:
        """Delete these nodes with all that belongs to them; return those there were, each with its tier."""
        ...

    def delete_where(self, scope: Scope) -> list[tuple[str, Tier]]:
        """Delete the nodes in the scope; return those there were, each with its tier."""
        ...

    def candidates(self, scope: Scope, *, vector: Vector | None, question: str | None, n: int, k: int) -> Candidates:
        """Return the best `n` of each leg that is asked, both scored, and at least `k` nodes if the scope has them."""
        ...

    def nodes(self, keys: Sequence[int]) -> list[Node]:
        """Return the nodes of these candidates, in this order."""
        ...

    def vectors(self, keys: Sequence[int]) -> Vector:
        """Return the unit vectors of these candidates, shape (len(keys), dimensions), NaN for those without one."""
        ...

    def vectors_of(self, ids: Sequence[str]) -> list[Vector | None]:
        """Return the unit vector of each of these nodes, None for those without one."""
        ...

    def known_vectors(self, texts: Iterable[str]) -> Mapping[str, Vector]:
        """Return the vectors of those texts that a node of this namespace has already."""
        ...

    def pending(self, *, limit: int, after: str | None) -> list[Node]:
        """Return nodes without a vector, in the order they were added."""
        ...

    def begin_change(self, new: NewModel) -> None:
        """Begin a change of the embedding model; one to the same that is under way is joined, of another none is left.

        What it then takes are the three calls below. Where somebody else finishes the same change, they have nothing
        left to do; where somebody else begins or finishes another, each raises EmbeddingMismatchError.
        """
        ...

    def outdated(self, new: NewModel, *, limit: int) -> list[tuple[int, str]]:
        """Return (key, text) of nodes, of all namespaces, whose vector of the new model is not there yet."""
        ...

    def count_outdated(self) -> int:
        """Return how many nodes `outdated` has to tell of while a change is under way."""
        ...

    def put_new_vectors(self, new: NewModel, keys: Sequence[int], texts: Sequence[str], vectors: Vector) -> None:
        """Keep vectors of the new model beside the old ones."""
        ...

    def replace_vectors(self, new: NewModel) -> bool:
        """Put the vectors of the new model in the place of the old ones, all at once, and end the change.

        Return whether it has ended: not where `outdated` has something to tell of, by nodes added meanwhile.
        """
        ...

    def stats(self) -> Stats:
        """Return what the store holds and what it costs."""
        ...

    def check(self) -> CheckReport:
        """Look for damage; true if there is none."""
        ...

    def backup(self, path: str | PathLike[str]) -> None:
        """Write a copy of the whole store to a new file while others go on writing."""
        ...

    def compact(self) -> None:
        """Give the space of what was deleted back to the file system."""
        ...

    def close(self) -> None:
        """Release the files. Closing twice is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Tracked:
    """Nodes handed to a reader at one moment, each with its confidence then; see `records.Access`."""

    session_id: str
    turn: int
    writer: str
    at_ms: int
    run_id: str | None
    nodes: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class TrackedOutcome:
    """Whether what a session used in one run has served, known at one moment."""

    session_id: str
    success: bool
    at_ms: int
    run_id: str


@dataclass(frozen=True, slots=True)
class ToWeigh:
    """What a sweep has left to weigh, see `Ledger.to_weigh`: numbers of nodes, in ascending order."""

    numbers: Sequence[int]
    era: int | None
    """What tells, for the nodes of this list, whether it still is complete. None where that is not to be noted."""


class Ledger(Protocol):
    """Keeps what the rules weigh, the tiers they give, and the log of both, of one namespace.

    Every method is safe to call from any thread. Writes are made within the engine's `transaction`.
    """

    def track(self, tracked: Tracked | TrackedOutcome) -> None:
        """Queue accesses, or the outcome of a run, without waiting for any lock.

        When this returns, a kill of the process does not lose them.
        """
        ...

    @property
    def queued(self) -> bool:
        """Whether this handle has queued accesses that it has not written down yet. Costs nothing."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether any handle, in any process or left by one that died, has queued accesses."""
        ...

    def settling(self, *, wait: bool, durable: bool = False) -> AbstractContextManager[dict[str, list[str]]]:
        """Write down what any handle has queued, in a transaction around the block.

        Gives the ids of the nodes that were used, by session. Without `wait`, a lock that is held elsewhere is a
        StoreBusyError at once. So it is within another transaction, which would have to commit first. With `durable`,
        all of it is on disk when the block ends.
        """
        ...

    def until_settled(self) -> None:
        """Wait for another thread of this handle that is writing accesses down, if there is one; for nobody else."""
        ...

    def usage(self, ids: Sequence[str], *, session_id: str | None = None) -> dict[str, Usage]:
        """Return what is known of the use of each of these nodes.

        With a session, of its use there alone: nodes that it has not used are left out.
        """
        ...

    def accesses(self, id: str) -> list[Access]:
        """Return the accesses of a node that are not forgotten, the earliest first."""
        ...

    def forgotten_accesses(self, id: str) -> list[ForgottenAccesses]:
        """Return what stays of the accesses of a node that are forgotten, a summary a session, the earliest first."""
        ...

    def forget_accesses(self, before_ms: int, limit: int) -> bool:
        """Put summaries in the place of so many accesses in sessions that ended, and were still since then.

        All that is asked of them is answered from the summaries as before. Accesses that wait for the outcome of their
        run stay. Returns whether there may be more to forget.
        """
        ...

    def session(self, session_id: str) -> SessionRecord | None:
        """Return what is stored of a session, None if nothing is."""
        ...

    def sessions(self, *, limit: int) -> list[SessionRecord]:
        """Return the sessions that were active last."""
        ...

    def idle_sessions(self, before_ms: int) -> list[str]:
        """Return the ids of open sessions that have been still since then."""
        ...

    def end_session(self, session_id: str, at_ms: int) -> None:
        """Note that a session has ended."""
        ...

    def ids_used_in(self, session_id: str, tier: Tier, *, limit: int | None = None) -> list[str]:
        """Return the ids of the nodes of a tier, no more than the limit, that a session has used."""
        ...

    def used_in(self, session_id: str, tier: Tier, ids: Sequence[str]) -> list[Node]:
        """Return those of these nodes that are in a tier and that a session has used."""
        ...

    def judge(
        self, session_id: str, success: bool, at_ms: int, *, run_id: str | None, ids: Sequence[str] | None
    ) -> list[str]:
        """Attach an outcome to what a session, or a run in it, has used and was not judged; return those nodes."""
        ...

    def forget_usage(self, id: str) -> None:
        """Let the rules start anew with a node."""
        ...

    def set_tier(self, id: str, tier: Tier, at_ms: int) -> None:
        """Move a node."""
        ...

    def set_pinned(self, id: str, pinned: bool, at_ms: int) -> None:
        """Pin a node, or let it go: it fades from then on."""
        ...

    def set_confidences(self, confidences: Mapping[str, float], *, faded_at_ms: int | None = None) -> None:
        """Give nodes another confidence; where they have faded, up to when."""
        ...

    def fading(self, *, after: int, limit: int) -> list[tuple[int, str, float, int]]:
        """Return (number, id, confidence, milliseconds since when it fades) of nodes that are not pinned.

        In the order of their numbers, from the one after this number on.
        """
        ...

    def unlearned(self, *, after: int, limit: int) -> list[tuple[int, str, bool]]:
        """Return (number, node, success) of outcomes that have not changed a confidence yet.

        In the order of their numbers, from the one after this number on.
        """
        ...

    def mark_learned(self, outcomes: Sequence[int]) -> None:
        """Note that these outcomes have changed a confidence."""
        ...

    def begin_weighing(self, rules: str) -> None:
        """Note that all nodes in session are to be weighed by these rules, unless that is done or under way."""
        ...

    def to_weigh(self, least_sessions: int, rules: str) -> ToWeigh:
        """Return what a sweep by these rules has left to weigh; it goes on where one that was interrupted has stopped.

        These are nodes in session that so many sessions have used and that were not weighed, and all of which something
        has changed since they were.
        """
        ...

    def note_weighed(self, numbers: Sequence[int], rules: str, era: int | None) -> None:
        """Note that these nodes, a part of what `to_weigh` gave with that era, are weighed as they are now.

        The parts come in order, each in the transaction that carries out what is decided about it.
        """
        ...

    def unused(self, before_ms: int) -> list[int]:
        """Return the numbers of the nodes in longterm, not pinned, that nothing has happened to since then."""
        ...

    def among(self, numbers: Sequence[int], tier: Tier, least_sessions: int) -> list[Node]:
        """Return those of these nodes, by number, that are in a tier and that so many sessions have used."""
        ...

    def used(self) -> list[Node]:
        """Return the nodes in task and session that were used at all."""
        ...

    def births(self) -> list[tuple[str, int]]:
        """Return (id, milliseconds of its creation) of every node."""
        ...

    def last_sweep(self) -> int | None:
        """Return when the last sweep was, in milliseconds."""
        ...

    def note_sweep(self, at_ms: int, rules: str, era: int | None) -> None:
        """Note that a sweep is made at this time, and has weighed all that `to_weigh` gave with that era."""
        ...

    def note_sweep_elsewhere(self, at_ms: int) -> None:
        """Note the time of a sweep that was made of another store: here nothing is weighed."""
        ...

    def link(self, source: str, target: str, kind: str, at_ms: int) -> None:
        """Link two nodes."""
        ...

    def links(self, id: str) -> list[Edge]:
        """Return the links from and to a node."""
        ...

    def append(self, decision: PromotionDecision) -> None:
        """Add a decision to the log."""
        ...

    def log(self, *, after: int, node_id: str | None, since_ms: int | None, limit: int) -> list[LogEntry]:
        """Return log entries in order, from the one after this sequence number on."""
        ...

    def was_refused(self, decision: PromotionDecision) -> bool:
        """Return whether the log has this refusal of this session already."""
        ...

    def close(self) -> None:
        """Queue nothing more; what is queued is left to whoever comes next."""
        ...


class MessageStore(Protocol):
    """Keeps the conversations of one namespace: messages under keys, in the order they were added.

    Every method is safe to call from any thread. Writes are made within the engine's `transaction`, or are one each.
    """

    def keys(self) -> list[str]:
        """Return the keys that have messages, sorted."""
        ...

    def select(self, key: str, *, status: MessageStatus | None, limit: int | None, offset: int) -> list[Message]:
        """Return the messages under a key, the oldest first."""
        ...

    def get(self, key: str, id: int) -> Message | None:
        """Return one message, None if the key has no such one."""
        ...

    def count(self, key: str, *, status: MessageStatus | None) -> int:
        """Return how many messages a key has."""
        ...

    def insert(self, messages: Sequence[Message]) -> list[Message]:
        """Add messages and return them with the ids they get, each greater than all before."""
        ...

    def set_status(self, ids: Sequence[int], status: MessageStatus) -> None:
        """Give messages another status."""
        ...

    def delete(self, ids: Sequence[int]) -> None:
        """Delete messages."""
        ...

    def delete_all(self, *, key: str | None) -> int:
        """Delete the messages under a key, or under every key; return how many there were."""
        ...


class ThreadStore(Protocol):
    """Keeps the checkpoints of threads of one kind, and what tasks wrote that ran from them.

    Every method is safe to call from any thread. Unknown ids are not there; they are no error.
    """

    def put(
        self,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
        at_ms: int,
    ) -> None:
        """Add a checkpoint with its values, or replace one whose id is known at its place in the order.

        `kept` are further channels whose value the parent has already, if its version is the same; the others are asked
        of `encode`.
        """
        ...

    def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool
    ) -> None:
        """Add writes to a checkpoint that may not be there yet; what is there already stays, unless it is replaced."""
        ...

    def get(self, thread_id: str, graph: str, id: str | None) -> ThreadCheckpoint | None:
        """Return a checkpoint, the last one that was committed if no id is given."""
        ...

    def find(
        self,
        thread_id: str | None,
        graph: str | None,
        id: str | None,
        *,
        before: str | None,
        where: Callable[[Mapping[str, Any]], bool] | None,
        limit: int | None,
    ) -> list[int]:
        """Return the sequence numbers of checkpoints, the last one first.

        None is any. `before` is an id: those committed before it, or with a smaller id if it is gone. `where` is asked
        of the metadata.
        """
        ...

    def load(self, sequences: Sequence[int]) -> list[ThreadCheckpoint]:
        """Return the checkpoints with these numbers, in this order."""
        ...

    def outlines(self, thread_id: str) -> list[CheckpointOutline]:
        """Return all checkpoints of a thread without their state, in the order of commit."""
        ...

    def discard(self, thread_id: str, sequences: Sequence[int]) -> None:
        """Delete these checkpoints of a thread with their writes, and what no other one shares with them."""
        ...

    def delete(self, thread_id: str) -> None:
        """Delete a thread with all that is in it, whether or not its checkpoint got here."""
        ...

    def with_run(self, run_id: str) -> list[tuple[str, int]]:
        """Return (thread, sequence number) of the checkpoints that have this `run_id` in their metadata."""
        ...

    def copy(self, source_id: str, target_id: str) -> None:
        """Copy all checkpoints and writes of a thread into one that is empty, in the same order."""
        ...

    def position(self, thread_id: str, graph: str, id: str | None) -> tuple[int, list[str]] | None:
        """Return the last log entry when a checkpoint was committed, and the ids of today's nodes that were there."""
        ...

    def ids(self) -> list[str]:
        """Return the ids of the threads, in the order in which they began."""
        ...


class KeyValueStore(Protocol):
    """Keeps JSON texts under keys, in collections. Every method is safe to call from any thread."""

    def put(self, collection: str, values: Mapping[str, str]) -> None:
        """Add or replace all of these, or none."""
        ...

    def get(self, collection: str, keys: Sequence[str]) -> dict[str, str]:
        """Return those of these that are there."""
        ...

    def items(self, collection: str) -> list[tuple[str, str]]:
        """Return all (key, value) of a collection, in the order in which the keys were first put."""
        ...

    def delete(self, collection: str, keys: Sequence[str]) -> list[str]:
        """Delete these; return those there were."""
        ...


class PartStore(Protocol):
    """Reads and writes what belongs to the nodes of one namespace, as it is: for export, import and copies.

    Reads are made within `reading`, and see one state; writes within `transaction`.
    """

    def read(self, kind: type[P]) -> Generator[P, None, None]:
        """Yield all parts of a kind, in the order in which they came about, without holding them all.

        Whoever stops before the end closes the generator: it may hold a cursor.
        """
        ...

    def count(self) -> int:
        """Return how many parts, nodes, log entries and messages there are."""
        ...

    def histories(self, ids: Sequence[str]) -> list[HistoryPart]:
        """Return what belongs to these nodes, all of which are there, in this order."""
        ...

    def set_histories(self, histories: Sequence[HistoryPart]) -> None:
        """Set what belongs to these nodes."""
        ...

    def unknown(self, ids: Iterable[str]) -> set[str]:
        """Return those of these ids that no node has."""
        ...

    def add(self, parts: Sequence[Part]) -> None:
        """Add parts of one kind; what they name is there, and they are not."""
        ...

    def chunks(self, kind: str, thread_id: str, numbers: Sequence[int]) -> list[bytes]:
        """Return the contents of these chunks of a thread, all of which are there, in this order."""
        ...

    def log_end(self) -> tuple[str | None, int]:
        """Return the hash of the last entry of the log, None if it is empty, and the least number for the next one."""
        ...

    def add_entries(self, entries: Sequence[LogEntry]) -> None:
        """Add entries to the log with their numbers and hashes, which follow from those that are there."""
        ...
