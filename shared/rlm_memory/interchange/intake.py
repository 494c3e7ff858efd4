"""Takes parts of a namespace into another one, and refuses what would not be sound there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from rlm_memory.errors import InvalidInputError
from rlm_memory.interchange.lines import Moved, NodePart, SweepPart
from rlm_memory.parts import (
    AccessPart,
    CheckpointPart,
    ChunkPart,
    EdgePart,
    ForgottenPart,
    HistoryPart,
    KeyValuePart,
    OutcomePart,
    SessionPart,
    ThreadPart,
    UsePart,
    ValuePart,
    WritePart,
)
from rlm_memory.ports import Engine, Scope
from rlm_memory.promotion import chain_start, entry_hash
from rlm_memory.records import LogEntry, Message, Node, Tier
from rlm_memory.times import milliseconds

NoteNew: TypeAlias = Callable[[Iterable[Node], Iterable[str]], None]
"""Logs the tier of new nodes, by their ids, that no entry of the log explains."""

_BATCH: Final = 500
_BATCH_BYTES: Final = 8 << 20
_LARGEST_VALUE: Final = 1 << 31
_PAGE: Final = 500


@dataclass(slots=True)
class Thread:
    """The chunks of a thread that have come so far, by their numbers, and those of them that a value has."""

    name: tuple[str, str]
    sizes: dict[int, int] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)
    lists: dict[tuple[int, int], int] = field(default_factory=dict)
    """How long the values are that a chunk stands for, by depth and number."""


class Intake:
    """Writes a stream of parts into the namespace of an engine, in batches; within transactions of the caller's.

    What is there already stays or is replaced: nodes are as `Memory.add` would write them, conversations and values
    under keys are replaced. A log that is there must begin as the one that comes, and stays then; sessions that are
    there stay; a thread that is there is refused.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        namespace: str,
        origin: str,
        now_ms: int,
        note_new: NoteNew | None,
        history: bool = True,
        begun: bool = False,
    ) -> None:
        """Prepare to take parts.

        Args:
            engine: Where they go.
            namespace: The name of its namespace.
            origin: The name of the namespace that they come from, to check the log by.
            now_ms: The time of what is written anew.
            note_new: See `NoteNew`; None where a tier that the log does not explain is an error.
            history: Take all; else nodes, links, conversations and values under keys alone.
            begun: All that is there was written by an earlier intake of the same stream, which is passed over first.
        """
        self._engine = engine
        self._now_ms = now_ms
        self._note_new = note_new
        self._history = history
        head, self._next_entry = engine.parts.log_end()
        self._adopts = history and (head is None or begun)
        self._own_log: Iterator[LogEntry] = self._entries() if head is not None and not begun else iter(())
        self._head = head or chain_start(namespace)
        self._origin_head = chain_start(origin)
        self._origin_sequence = 0
        self._tiers: dict[str, Tier] = {}
        self._nodes_before = 0 if begun else engine.count(Scope())
        self._keys: set[str] = set()
        self._sessions: dict[str, bool] = {}
        self._threads: dict[tuple[str, str], Thread] = {}
        self._known_threads: dict[str, set[str]] = {}
        self._seen: set[int] = set()
        self._batch: list[tuple[Any, str]] = []
        self._bytes = 0
        self.nodes = 0

    # -- the stream ---------------------------------------------------------------------------------------------

    def take(self, part: Moved, name: str, size: int) -> None:
        """Take a part; it is written when enough are there, or by `flush`.

        Args:
            part: The part.
            name: What an error calls it.
            size: How many bytes it has, about.

        Raises:
            InvalidInputError: It cannot be taken in.
        """
        if not self._wanted(part):
            return
        if self._batch and (type(part) is not type(self._batch[0][0]) or self._is_full):
            self.flush()
        accepted = self._accepted(part, name, new=True)
        if accepted is not None:
            self._batch.append((accepted, name))
            self._bytes += size

    def pass_over(self, part: Moved, name: str) -> None:
        """Take note of a part that an earlier intake has written."""
        self._accepted(part, name, new=False)

    @property
    def _is_full(self) -> bool:
        return len(self._batch) >= _BATCH or self._bytes >= _BATCH_BYTES

    def _wanted(self, part: Moved) -> bool:
        return self._history or isinstance(part, (NodePart, EdgePart, Message, KeyValuePart))

    def flush(self) -> None:
        """Write what has been taken and is not written yet."""
        if self._batch:
            batch, self._batch, self._bytes = self._batch, [], 0
            parts = [part for part, _ in batch]
            match parts[0]:
                case LogEntry():
                    self._engine.parts.add_entries(parts)
                case NodePart():
                    self._write_nodes(batch)
                case Message():
                    self._engine.messages.insert(parts)
                case SweepPart():
                    last = self._engine.ledger.last_sweep()
                    self._engine.ledger.note_sweep_elsewhere(max(parts[0].at, parts[0].at if last is None else last))
                case KeyValuePart():
                    for collection, of_it in itertools.groupby(parts, lambda part: part.collection):
                        self._engine.key_values.put(collection, {part.key: part.value for part in of_it})
                case _:
                    self._expect_nodes(batch)
                    self._engine.parts.add(parts)

    def finish(self) -> None:
        """Write the rest.

        Raises:
            InvalidInputError: Chunks have come that no value has.
        """
        self.flush()
        for thread in self._threads.values():
            if lost := thread.sizes.keys() - thread.reached:
                raise InvalidInputError(f"{len(lost)} chunks of thread {thread.name[1]!r} belong to no value of it.")

    def _accepted(self, part: Moved, name: str, *, new: bool) -> Any:
        """Return a part as it is to be written, None if that is not to be."""
        match part:
            case LogEntry():
                return self._entry(part, name, new=new)
            case NodePart():
                self.nodes += 1
            case Message():
                if part.key not in self._keys:
                    self._keys.add(part.key)
                    if new:
                        self.flush()
                        self._engine.messages.delete_all(key=part.key)
            case SessionPart():
                return self._session(part, name, new=new)
            case AccessPart() | ForgottenPart() | UsePart() | OutcomePart():
                if part.session not in self._sessions:
                    raise InvalidInputError(f"{name}: no line before it has the session {part.session!r}.")
                if not self._sessions[part.session]:
                    return None
                if isinstance(part, (ForgottenPart, UsePart)) or (
                    isinstance(part, OutcomePart) and part.run_id is not None
                ):
                    self._once(part, name, type(part), part.session, part.node, getattr(part, "run_id", None))
            case EdgePart():
                self._once(part, name, *part[:3])
            case KeyValuePart():
                self._once(part, name, part.collection, part.key)
            case ThreadPart():
                self._thread(part, name, new=new)
            case ChunkPart():
                self._chunk(part, name)
            case CheckpointPart():
                self._once(part, name, part.kind, part.thread, part.graph, part.id)
                self._values(part, part.values, name, new=new)
                return part._replace(nodes=part.nodes + self._nodes_before if part.nodes else 0)
            case WritePart():
                place = str(part.place)  # -1 and -2 have the same hash
                self._once(part, name, part.kind, part.thread, part.graph, part.checkpoint_id, part.task_id, place)
                self._values(part, [ValuePart("", None, part.encoding, part.depth, part.content)], name, new=new)
            case SweepPart():
                pass
        return part

    def _once(self, part: Moved, name: str, *key: object) -> None:
        # A key may be a whole chunk, its hash takes some 60 bytes. Two of a million keys hash alike in one file of
        # 40 million. Nobody can aim at it: the hash of a text is another one in each process.
        hashed = hash((type(part), *key))
        if hashed in self._seen:
            raise InvalidInputError(f"{name} says again what a line before it has said.")
        self._seen.add(hashed)

    # -- the log ------------------------------------------------------------------------------------------------

    def _entries(self) -> Iterator[LogEntry]:
        after = 0
        while page := self._engine.ledger.log(after=after, node_id=None, since_ms=None, limit=_PAGE):
            yield from page
            after = page[-1].sequence

    def _entry(self, entry: LogEntry, name: str, *, new: bool) -> LogEntry | None:
        """Return an entry with its place in the chain here: its own, where that is free and follows."""
        if self.nodes:
            raise InvalidInputError(f"{name}: the log comes before the nodes.")
        hashed = entry_hash(entry.previous_hash, entry.sequence, entry.decision)
        follows = entry.previous_hash == self._origin_head and entry.sequence > self._origin_sequence
        if not follows or hashed != entry.hash:
            raise InvalidInputError(
                f"{name}: entry {entry.sequence} of the promotion log was changed, or one before it is missing."
            )
        self._origin_head, self._origin_sequence = entry.hash, entry.sequence
        if not self._adopts:
            own = next(self._own_log, None)
            if own is None or own.decision != entry.decision:
                raise InvalidInputError(
                    f"{name}: the namespace has a promotion log of its own, and two logs cannot be made one. Take this "
                    "into a namespace that is new, or leave sessions, log and threads out: history=False, --nodes-only."
                )
            return None
        if entry.decision.moved:
            self._tiers[entry.decision.node_id] = entry.decision.to_tier
        if not new:
            return None
        if entry.previous_hash != self._head or entry.sequence < self._next_entry:
            hashed = entry_hash(self._head, self._next_entry, entry.decision)
            entry = replace(entry, sequence=self._next_entry, previous_hash=self._head, hash=hashed)
        self._head, self._next_entry = entry.hash, entry.sequence + 1
        return entry

    # -- nodes --------------------------------------------------------------------------------------------------

    def _write_nodes(self, batch: Sequence[tuple[NodePart, str]]) -> None:
        last = {part.node.id: (part, name) for part, name in batch}  # of equal ids the last one wins
        parts = [part for part, _ in last.values()]
        nodes = [part.node for part in parts]
        unexplained = []
        if self._adopts:
            for part, name in last.values():
                led = self._tiers.get(part.node.id)
                if led is None and part.node.tier != "task":
                    unexplained.append(part.node)
                if (led or part.node.tier) != part.node.tier or (unexplained and self._note_new is None):
                    raise InvalidInputError(
                        f"{name}: node {part.node.id!r} is in {part.node.tier}, the log leads to {led or 'task'}."
                    )
        new = self._engine.put(nodes, [part.vector for part in parts], self._now_ms)
        fresh = set(new)
        set_of = parts if self._adopts else [part for part in parts if part.node.id in fresh]
        if histories := [self._history_of(part) for part in set_of if part.tier_since is not None]:
            self._engine.parts.set_histories(histories)
        if self._note_new is not None:
            if self._adopts:
                self._note_new(unexplained, [node.id for node in unexplained])
                if unexplained:
                    head, self._next_entry = self._engine.parts.log_end()
                    self._head = head or self._head
            else:
                self._note_new(nodes, new)

    @staticmethod
    def _history_of(part: NodePart) -> HistoryPart:
        node = part.node
        assert part.tier_since is not None  # or there would be none
        return HistoryPart(node.id, node.tier, node.pinned, part.tier_since, part.faded_at)

    def _expect_nodes(self, batch: Sequence[tuple[Any, str]]) -> None:
        """Refuse parts that name a node which is not there."""
        named = [
            (id, name)
            for part, name in batch
            for id in (
                (part.source, part.target)
                if isinstance(part, EdgePart)
                else (part.node,)
                if isinstance(part, (AccessPart, ForgottenPart, UsePart, OutcomePart))
                else ()
            )
        ]
        if named and (unknown := self._engine.parts.unknown(id for id, _ in named)):
            id, name = next(pair for pair in named if pair[0] in unknown)
            raise InvalidInputError(f"{name}: there is no node {id!r}.")

    # -- sessions and threads -----------------------------------------------------------------------------------

    def _session(self, part: SessionPart, name: str, *, new: bool) -> SessionPart | None:
        if part.id in self._sessions:
            raise InvalidInputError(f"{name}: a line before it has the session {part.id!r} too.")
        known = self._engine.ledger.session(part.id) if new else None
        if known is not None and milliseconds(known.started_at) != part.started_at:
            raise InvalidInputError(
                f"{name}: the namespace has another session {part.id!r}. Take this into a namespace that is new, or "
                "leave sessions, log and threads out: history=False, --nodes-only."
            )
        self._sessions[part.id] = known is None
        return part if known is None else None

    def _thread(self, part: ThreadPart, name: str, *, new: bool) -> None:
        if part.kind not in self._known_threads:
            self._known_threads[part.kind] = set(self._engine.threads(part.kind).ids()) if new else set()
        if tuple(part) in self._threads or (new and part.id in self._known_threads[part.kind]):
            raise InvalidInputError(
                f"{name}: there is a thread {part.id!r} of {part.kind!r} already, and its checkpoints would be mixed. "
                "Delete it first, or leave sessions, log and threads out: history=False, --nodes-only."
            )
        self._threads[part.kind, part.id] = Thread((part.kind, part.id))

    def _thread_of(self, part: ChunkPart | CheckpointPart | WritePart, name: str) -> Thread:
        thread = self._threads.get((part.kind, part.thread))
        if thread is None:
            raise InvalidInputError(f"{name}: no line before it has the thread {part.thread!r} of {part.kind!r}.")
        return thread

    def _chunk(self, part: ChunkPart, name: str) -> None:
        self._once(part, name, part.kind, part.thread, part.content)
        sizes = self._thread_of(part, name).sizes
        if part.number in sizes:
            raise InvalidInputError(f"{name}: a line before it has chunk {part.number} too.")
        sizes[part.number] = len(part.content)

    def _values(self, part: CheckpointPart | WritePart, values: Iterable[ValuePart], name: str, *, new: bool) -> None:
        """Refuse values that cannot be put together from the chunks of their thread."""
        thread = self._thread_of(part, name)
        for value in values:
            if value.depth:
                if self._batch and isinstance(self._batch[0][0], ChunkPart):
                    self.flush()  # what lists them is read from the store
                size = self._size_of(thread, value.depth, value.content, name)
                if size > _LARGEST_VALUE:
                    raise InvalidInputError(f"{name}: a value has more than {_LARGEST_VALUE:,} bytes.")

    def _size_of(self, thread: Thread, depth: int, content: bytes, name: str) -> int:
        if not content or len(content) % 4:
            raise InvalidInputError(f"{name}: a value is no list of chunks.")
        numbers = np.frombuffer(content, dtype="<u4").tolist()
        if unknown := [number for number in numbers if number not in thread.sizes]:
            raise InvalidInputError(f"{name}: its thread has no chunk {unknown[0]}.")
        thread.reached.update(numbers)
        if depth == 1:
            return sum(thread.sizes[number] for number in numbers)
        unread = [number for number in dict.fromkeys(numbers) if (depth, number) not in thread.lists]
        for start in range(0, len(unread), _PAGE):
            some = unread[start : start + _PAGE]
            for number, listed in zip(some, self._engine.parts.chunks(*thread.name, some), strict=True):
                thread.lists[depth, number] = self._size_of(thread, depth - 1, listed, name)
        return sum(thread.lists[depth, number] for number in numbers)
