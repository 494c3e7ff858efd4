"""Threads: lines of checkpoints of a graph, kept by a framework beside the memories.

What is in a checkpoint is the framework's own; here it is bytes. Each knows where the promotion log was when it was
committed, so that the tiers as they were then can be listed.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rlm_memory.conflicts import repeated
from rlm_memory.errors import InvalidInputError
from rlm_memory.filters import is_storable, matches, parse_filter
from rlm_memory.ports import Clock, Engine
from rlm_memory.records import (
    CheckpointOutline,
    Encoded,
    LogEntry,
    Node,
    ThreadCheckpoint,
    ThreadWrite,
    Tier,
    Version,
)
from rlm_memory.times import milliseconds

_strict: Final = json.JSONEncoder(allow_nan=False).encode
_PAGE: Final = 16
_LOG_PAGE: Final = 500


class Threads:
    """The threads of one kind in a memory: `memory.threads("langgraph")` returns them.

    A thread begins with its first checkpoint or write. Unknown ids are no error: there is nothing to return or delete.
    Every method is one transaction.
    """

    def __init__(self, engine: Engine, kind: str, clock: Clock) -> None:
        if not isinstance(kind, str) or not is_storable(kind):
            raise InvalidInputError(f"{kind!r} cannot name a kind of threads; expected a str of valid Unicode text.")
        self._engine = engine
        self._store = engine.threads(kind)
        self._clock = clock

    def put(
        self,
        checkpoint: ThreadCheckpoint,
        *,
        kept: Mapping[str, Version] | None = None,
        encode: Callable[[str], Encoded] | None = None,
    ) -> None:
        """Store a checkpoint; one with a known id is replaced, at its place in the order.

        Args:
            checkpoint: What to store. What its values have in common with others of the thread is stored once.
            kept: Further channels and their versions: their values are the parent's, where it has the same version.
            encode: Asked for the value of a channel that the parent does not have after all.
        """
        for name in (checkpoint.thread_id, checkpoint.graph, checkpoint.id, checkpoint.parent_id or ""):
            _expect_text(name)
        try:
            _strict(checkpoint.metadata)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"The metadata of checkpoint {checkpoint.id!r} is not JSON: {error}.") from error
        self._store.put(checkpoint, kept or {}, encode or _nothing, milliseconds(self._clock()))

    def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool = False
    ) -> None:
        """Store what a task wrote; the checkpoint may come later.

        A write whose task and place are known is left as it is, or replaced if asked for.
        """
        for name in (thread_id, graph, checkpoint_id):
            _expect_text(name)
        self._store.put_writes(thread_id, graph, checkpoint_id, writes, replace=replace)

    def get(self, thread_id: str, graph: str = "", id: str | None = None) -> ThreadCheckpoint | None:
        """Return a checkpoint with its values and writes; without an id, the last one that was committed."""
        return self._store.get(thread_id, graph, id)

    def list(
        self,
        thread_id: str | None = None,
        graph: str | None = None,
        id: str | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> Iterator[ThreadCheckpoint]:
        """Yield checkpoints, the last one that was committed first, without holding the store meanwhile.

        Args:
            thread_id: Of this thread alone.
            graph: Of this graph alone, "" being the outermost.
            id: With this id alone.
            where: A filter on their metadata, in the dialect of `Memory.search`.
            before: An id; those committed before it. Where it is gone, those with a smaller id.
            limit: At most so many.

        Raises:
            InvalidInputError: `before` is nothing that an id could be.
            InvalidFilterError: The filter says something that has no meaning.
        """
        if before is not None:
            _expect_text(before)
        condition = parse_filter(where)
        holds = None if condition is None else (lambda metadata: matches(condition, Node(text="", metadata=metadata)))
        found = self._store.find(thread_id, graph, id, before=before, where=holds, limit=limit)
        return self._pages(found)

    def _pages(self, sequences: Sequence[int]) -> Iterator[ThreadCheckpoint]:
        for start in range(0, len(sequences), _PAGE):
            yield from self._store.load(sequences[start : start + _PAGE])

    def ids(self) -> builtins.list[str]:
        """Return the ids of the threads, in the order in which they began."""
        return self._store.ids()

    # -- whole threads ------------------------------------------------------------------------------------------

    def delete(self, thread_id: str) -> None:
        """Delete a thread with all that is in it."""
        self._store.delete(thread_id)

    def delete_runs(self, run_ids: Iterable[str]) -> None:
        """Delete the checkpoints, with their writes, whose metadata has one of these as its `run_id`."""
        self._delete_runs(list(dict.fromkeys(run_ids)))

    @repeated
    def _delete_runs(self, run_ids: Sequence[str]) -> None:
        with self._engine.transaction():
            gone: dict[str, list[int]] = {}
            for run_id in run_ids:
                for thread_id, sequence in self._store.with_run(run_id):
                    gone.setdefault(thread_id, []).append(sequence)
            for thread_id, sequences in gone.items():
                self._store.discard(thread_id, sequences)

    def copy(self, source_id: str, target_id: str) -> None:
        """Copy all checkpoints and writes of a thread into a new one.

        Raises:
            InvalidInputError: The target has something in it already.
        """
        _expect_text(target_id)
        self._store.copy(source_id, target_id)

    def prune(
        self,
        thread_ids: Iterable[str],
        replayed: Callable[[Sequence[CheckpointOutline]], Collection[str]] | None = None,
    ) -> None:
        """Keep of each thread the last checkpoint of each graph, and what its state is put together from.

        Args:
            thread_ids: The threads.
            replayed: Given all checkpoints of one graph, returns the channels that have a value in some of them alone
                and are put together from it and the writes since then.
        """
        self._prune(list(dict.fromkeys(thread_ids)), replayed or _none)

    @repeated
    def _prune(
        self, thread_ids: Sequence[str], replayed: Callable[[Sequence[CheckpointOutline]], Collection[str]]
    ) -> None:
        with self._engine.transaction():
            for thread_id in thread_ids:
                outlines = self._store.outlines(thread_id)
                kept = kept_by_pruning(outlines, replayed)
                self._store.discard(thread_id, [each.sequence for each in outlines if each.sequence not in kept])

    # -- the memories then --------------------------------------------------------------------------------------

    @repeated
    def tiers_at(self, thread_id: str, graph: str = "", id: str | None = None) -> dict[str, Tier]:
        """Return the tier of each memory at the moment a checkpoint was committed, by the memory's id.

        A memory that was deleted since is listed if it had left `task` by then: of the others nothing is kept.
        Without an id, the last checkpoint is meant. Accesses that were not written down yet count as not made.

        Raises:
            InvalidInputError: There is no such checkpoint.
        """
        with self._engine.reading():
            position = self._store.position(thread_id, graph, id)
            if position is None:
                raise InvalidInputError(f"There is no checkpoint {id or ''!r} in thread {thread_id!r}.")
            last, nodes = position
            return tiers_then(nodes, self._log_until(last))

    def _log_until(self, last: int) -> Iterator[LogEntry]:
        after = 0
        while page := self._engine.ledger.log(after=after, node_id=None, since_ms=None, limit=_LOG_PAGE):
            yield from (entry for entry in page if entry.sequence <= last)
            after = page[-1].sequence
            if after >= last:
                return


def tiers_then(nodes: Iterable[str], log: Iterable[LogEntry]) -> dict[str, Tier]:
    """Return the tier of each node after these entries of the log.

    Args:
        nodes: The ids of the nodes that were there and still are.
        log: All entries up to that moment.
    """
    still: dict[str, Tier] = dict.fromkeys(nodes, "task")
    tiers = dict(still)
    for entry in log:
        decision = entry.decision
        if decision.moved:
            tiers[decision.node_id] = decision.to_tier
            if decision.rule == "deleted" and decision.node_id not in still:
                del tiers[decision.node_id]
    return tiers


def kept_by_pruning(
    outlines: Sequence[CheckpointOutline], replayed: Callable[[Sequence[CheckpointOutline]], Collection[str]]
) -> set[int]:
    """Return the sequence numbers of the last checkpoint of each graph, and of the ancestors that it needs.

    An ancestor is needed while a replayed channel has found no value: the nearest value, and all writes since.
    """
    graphs: dict[str, list[CheckpointOutline]] = {}
    for each in outlines:  # in the order of commit
        graphs.setdefault(each.graph, []).append(each)
    kept: set[int] = set()
    for line in graphs.values():
        by_id = {each.id: each for each in line}
        wanted = set(replayed(line))
        current: CheckpointOutline | None = line[-1]
        while current is not None and current.sequence not in kept:
            kept.add(current.sequence)
            wanted -= current.channels
            current = by_id.get(current.parent_id or "") if wanted else None
    return kept


def _none(outlines: Sequence[CheckpointOutline]) -> Collection[str]:
    return ()


def _expect_text(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"{name!r} is not an id; expected a str.")
    if name.isascii():
        return
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"The id {name!r} has a lone surrogate and is no valid Unicode text.") from error


def _nothing(channel: str) -> Encoded:
    raise InvalidInputError(f"The parent has no value of channel {channel!r} in this version; give the value.")
