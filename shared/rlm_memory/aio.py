"""The same memory for asyncio: nothing blocks the event loop.

Work on the store runs in threads; an embedder that has `aembed` and `aembed_query` is awaited. A call that is cancelled
while it writes finishes its transaction in its thread: it is kept whole or not at all, as ever.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Final, Self, TypeVar

from rlm_memory.conversations import Conversations
from rlm_memory.interchange import NamespaceCopy
from rlm_memory.key_values import KeyValues
from rlm_memory.memory import EmbedderSpec, Memory, Steps, Wanted, Where
from rlm_memory.ports import Progress, Vector
from rlm_memory.records import (
    Access,
    CheckpointOutline,
    CheckReport,
    Edge,
    ForgottenAccesses,
    Hits,
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
    TierCounts,
)
from rlm_memory.sessions import Session
from rlm_memory.threads import Threads

T = TypeVar("T")

_PAGE: Final = 16
"""So many checkpoints are read in one go, in a thread."""


class AsyncMemory:
    """A `Memory` whose methods are awaited; names, arguments and results are the same.

    >>> async def main():
    ...     async with await AsyncMemory.open(":memory:", embedder=None) as memory:
    ...         await memory.add(["Paris is in France.", "Oslo is in Norway."])
    ...         return [hit.text for hit in await memory.search("Oslo", k=1)]
    >>> asyncio.run(main())
    ['Oslo is in Norway.']
    """

    def __init__(self, memory: Memory) -> None:
        """Await the methods of this memory, which may go on being used from other threads."""
        self.memory = memory
        self.conversations = AsyncConversations(memory.conversations)

    @classmethod
    async def open(cls, location: str | PathLike[str] | None = None, **options: Any) -> Self:
        """See `Memory.open`."""
        return cls(await asyncio.to_thread(Memory.open, location, **options))

    async def _drive(self, steps: Steps[T]) -> T:
        """Run a call to its end: its work in threads, its waiting for vectors here."""
        wanted, result = await asyncio.to_thread(_advance, steps, None)
        while wanted is not None:
            wanted, result = await asyncio.to_thread(_advance, steps, await self._embed(wanted))
        return result  # type: ignore[return-value]  # there is a result when nothing is wanted any more

    async def _embed(self, wanted: Wanted) -> Vector:
        embedder = await asyncio.to_thread(self.memory.embedder_for_use)
        name = "aembed_query" if wanted.is_query else "aembed"
        if (method := getattr(embedder, name, None)) is None:
            return await asyncio.to_thread(self.memory.embed, wanted)
        with wanted.named():
            return wanted.checked(await method(wanted.texts[0] if wanted.is_query else list(wanted.texts)))

    async def add(self, texts: str | Node | Iterable[str | Node], **options: Any) -> builtins.list[str]:
        """See `Memory.add`."""
        return await self._drive(self.memory.adding(texts, **options))

    async def search(self, query: str | None = None, **options: Any) -> Hits:
        """See `Memory.search`."""
        return await self._drive(self.memory.searching(query, **options))

    async def update(self, id: str, **changes: Any) -> Node:
        """See `Memory.update`."""
        return await self._drive(self.memory.updating(id, **changes))

    async def embed_pending(self, *, progress: Progress | None = None) -> int:
        """See `Memory.embed_pending`."""
        return await self._drive(self.memory.embedding_pending(progress=progress))

    async def reembed(self, embedder: EmbedderSpec, *, progress: Progress | None = None) -> int:
        """See `Memory.reembed`."""
        return await asyncio.to_thread(self.memory.reembed, embedder, progress=progress)

    async def get(self, ids: str | Iterable[str], **options: Any) -> builtins.list[Node]:
        """See `Memory.get`."""
        return await asyncio.to_thread(self.memory.get, ids, **options)

    async def list(self, **options: Any) -> builtins.list[Node]:
        """See `Memory.list`."""
        return await asyncio.to_thread(self.memory.list, **options)

    async def count(self, **options: Any) -> int:
        """See `Memory.count`."""
        return await asyncio.to_thread(self.memory.count, **options)

    async def delete(self, ids: str | Iterable[str] | None = None, *, where: Where = None) -> int:
        """See `Memory.delete`."""
        return await asyncio.to_thread(self.memory.delete, ids, where=where)

    async def clear(self) -> int:
        """See `Memory.clear`."""
        return await asyncio.to_thread(self.memory.clear)

    async def session(self, session_id: str) -> Session:
        """See `Memory.session`. Its reports never wait; await `outcome` and `end_session` of this class."""
        return await asyncio.to_thread(self.memory.session, session_id)

    async def outcome(self, session: Session, success: bool, ids: str | Iterable[str] | None = None, **run: Any) -> int:
        """See `Session.outcome`."""
        return await asyncio.to_thread(session.outcome, success, ids, **run)

    async def end_session(self, session: Session) -> builtins.list[PromotionDecision]:
        """See `Session.end`."""
        return await asyncio.to_thread(session.end)

    async def sessions(self, *, limit: int = 100) -> builtins.list[SessionRecord]:
        """See `Memory.sessions`."""
        return await asyncio.to_thread(self.memory.sessions, limit=limit)

    async def promote(self, id: str, to_tier: Tier, *, reason: str) -> PromotionDecision:
        """See `Memory.promote`."""
        return await asyncio.to_thread(self.memory.promote, id, to_tier, reason=reason)

    async def restore(self, id: str, **options: Any) -> PromotionDecision:
        """See `Memory.restore`."""
        return await asyncio.to_thread(self.memory.restore, id, **options)

    async def pin(self, id: str, **options: Any) -> PromotionDecision:
        """See `Memory.pin`."""
        return await asyncio.to_thread(self.memory.pin, id, **options)

    async def unpin(self, id: str, **options: Any) -> PromotionDecision:
        """See `Memory.unpin`."""
        return await asyncio.to_thread(self.memory.unpin, id, **options)

    async def sweep(self, now: datetime | None = None, **options: Any) -> builtins.list[PromotionDecision]:
        """See `Memory.sweep`."""
        return await asyncio.to_thread(self.memory.sweep, now, **options)

    async def explain_promotion(self, id: str) -> PromotionDecision:
        """See `Memory.explain_promotion`."""
        return await asyncio.to_thread(self.memory.explain_promotion, id)

    async def candidates(self) -> builtins.list[PromotionDecision]:
        """See `Memory.candidates`."""
        return await asyncio.to_thread(self.memory.candidates)

    async def promotion_log(self, id: str | None = None, **options: Any) -> builtins.list[LogEntry]:
        """See `Memory.promotion_log`."""
        return await asyncio.to_thread(lambda: builtins.list(self.memory.promotion_log(id, **options)))

    async def accesses(self, id: str) -> builtins.list[Access]:
        """See `Memory.accesses`."""
        return await asyncio.to_thread(self.memory.accesses, id)

    async def forgotten_accesses(self, id: str) -> builtins.list[ForgottenAccesses]:
        """See `Memory.forgotten_accesses`."""
        return await asyncio.to_thread(self.memory.forgotten_accesses, id)

    async def timeline(self) -> builtins.list[TierCounts]:
        """See `Memory.timeline`."""
        return await asyncio.to_thread(self.memory.timeline)

    async def links(self, id: str) -> builtins.list[Edge]:
        """See `Memory.links`."""
        return await asyncio.to_thread(self.memory.links, id)

    async def decay(self, now: datetime | None = None) -> int:
        """See `Memory.decay`."""
        return await asyncio.to_thread(self.memory.decay, now)

    async def learn(self) -> int:
        """See `Memory.learn`."""
        return await asyncio.to_thread(self.memory.learn)

    async def consolidate(self, **options: Any) -> Mapping[str, builtins.list[str]]:
        """See `Memory.consolidate`."""
        return await asyncio.to_thread(self.memory.consolidate, **options)

    def threads(self, kind: str) -> AsyncThreads:
        """See `Memory.threads`. Nothing is read before a method of what it returns is awaited."""
        return AsyncThreads(self.memory.threads(kind))

    def key_values(self, collection: str) -> AsyncKeyValues:
        """See `Memory.key_values`. Nothing is read before a method of what it returns is awaited."""
        return AsyncKeyValues(self.memory.key_values(collection))

    async def stats(self) -> Stats:
        """See `Memory.stats`."""
        return await asyncio.to_thread(self.memory.stats)

    async def check(self) -> CheckReport:
        """See `Memory.check`."""
        return await asyncio.to_thread(self.memory.check)

    async def backup(self, path: str | PathLike[str]) -> None:
        """See `Memory.backup`."""
        await asyncio.to_thread(self.memory.backup, path)

    async def compact(self) -> None:
        """See `Memory.compact`."""
        await asyncio.to_thread(self.memory.compact)

    async def export(self, path: str | PathLike[str], *, progress: Progress | None = None) -> int:
        """See `Memory.export`."""
        return await asyncio.to_thread(self.memory.export, path, progress=progress)

    async def import_(
        self, path: str | PathLike[str], *, history: bool = True, progress: Progress | None = None
    ) -> int:
        """See `Memory.import_`."""
        return await asyncio.to_thread(self.memory.import_, path, history=history, progress=progress)

    async def copy_to(self, target: Memory, *, progress: Progress | None = None) -> NamespaceCopy:
        """See `Memory.copy_to`."""
        return await asyncio.to_thread(self.memory.copy_to, target, progress=progress)

    async def close(self) -> None:
        """See `Memory.close`."""
        if (own := self.memory.own_embedder) is not None:
            await own.aclose()
        await asyncio.to_thread(self.memory.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the memory that is awaited."""
        return type(self), (self.memory,)


class AsyncConversations:
    """A store's `Conversations` whose methods are awaited; names, arguments and results are the same."""

    def __init__(self, conversations: Conversations) -> None:
        """Await the methods of these conversations."""
        self._conversations = conversations

    async def keys(self) -> builtins.list[str]:
        """See `Conversations.keys`."""
        return await asyncio.to_thread(self._conversations.keys)

    async def list(self, key: str, **options: Any) -> builtins.list[Message]:
        """See `Conversations.list`."""
        return await asyncio.to_thread(self._conversations.list, key, **options)

    async def count(self, key: str, *, status: MessageStatus | None = None) -> int:
        """See `Conversations.count`."""
        return await asyncio.to_thread(self._conversations.count, key, status=status)

    async def append(self, key: str, contents: Iterable[Any], **options: Any) -> builtins.list[Message]:
        """See `Conversations.append`."""
        return await asyncio.to_thread(self._conversations.append, key, contents, **options)

    async def replace(self, key: str, contents: Iterable[Any], **options: Any) -> builtins.list[Message]:
        """See `Conversations.replace`."""
        return await asyncio.to_thread(self._conversations.replace, key, contents, **options)

    async def archive_oldest(self, key: str, n: int) -> builtins.list[Message]:
        """See `Conversations.archive_oldest`."""
        return await asyncio.to_thread(self._conversations.archive_oldest, key, n)

    async def delete_oldest(self, key: str, n: int) -> builtins.list[Message]:
        """See `Conversations.delete_oldest`."""
        return await asyncio.to_thread(self._conversations.delete_oldest, key, n)

    async def delete(self, key: str, id: int | None = None, **options: Any) -> builtins.list[Message]:
        """See `Conversations.delete`."""
        return await asyncio.to_thread(self._conversations.delete, key, id, **options)

    async def clear(self) -> int:
        """See `Conversations.clear`."""
        return await asyncio.to_thread(self._conversations.clear)


class AsyncThreads:
    """The threads of one kind, a `Threads` whose methods are awaited; names, arguments and results are the same.

    `list` is not awaited but iterated with `async for`. Functions that are given run in threads.
    """

    def __init__(self, threads: Threads) -> None:
        """Await the methods of these threads."""
        self._threads = threads

    async def put(self, checkpoint: ThreadCheckpoint, **options: Any) -> None:
        """See `Threads.put`."""
        await asyncio.to_thread(self._threads.put, checkpoint, **options)

    async def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool = False
    ) -> None:
        """See `Threads.put_writes`."""
        await asyncio.to_thread(self._threads.put_writes, thread_id, graph, checkpoint_id, writes, replace=replace)

    async def get(self, thread_id: str, graph: str = "", id: str | None = None) -> ThreadCheckpoint | None:
        """See `Threads.get`."""
        return await asyncio.to_thread(self._threads.get, thread_id, graph, id)

    async def list(
        self, thread_id: str | None = None, graph: str | None = None, id: str | None = None, **options: Any
    ) -> AsyncIterator[ThreadCheckpoint]:
        """See `Threads.list`."""
        found = await asyncio.to_thread(self._threads.list, thread_id, graph, id, **options)
        while page := await asyncio.to_thread(builtins.list, itertools.islice(found, _PAGE)):
            for each in page:
                yield each

    async def ids(self) -> builtins.list[str]:
        """See `Threads.ids`."""
        return await asyncio.to_thread(self._threads.ids)

    async def delete(self, thread_id: str) -> None:
        """See `Threads.delete`."""
        await asyncio.to_thread(self._threads.delete, thread_id)

    async def delete_runs(self, run_ids: Iterable[str]) -> None:
        """See `Threads.delete_runs`."""
        await asyncio.to_thread(self._threads.delete_runs, run_ids)

    async def copy(self, source_id: str, target_id: str) -> None:
        """See `Threads.copy`."""
        await asyncio.to_thread(self._threads.copy, source_id, target_id)

    async def prune(
        self,
        thread_ids: Iterable[str],
        replayed: Callable[[Sequence[CheckpointOutline]], Collection[str]] | None = None,
    ) -> None:
        """See `Threads.prune`."""
        await asyncio.to_thread(self._threads.prune, thread_ids, replayed)

    async def tiers_at(self, thread_id: str, graph: str = "", id: str | None = None) -> dict[str, Tier]:
        """See `Threads.tiers_at`."""
        return await asyncio.to_thread(self._threads.tiers_at, thread_id, graph, id)


class AsyncKeyValues:
    """A collection of JSON values, a `KeyValues` whose methods are awaited; names, arguments and results are the same.

    >>> async def main():
    ...     async with await AsyncMemory.open(":memory:", embedder=None) as memory:
    ...         colours = memory.key_values("colours")
    ...         await colours.put({"sky": "blue"})
    ...         return await colours.get("sky")
    >>> asyncio.run(main())
    'blue'
    """

    def __init__(self, values: KeyValues) -> None:
        """Await the methods of this collection."""
        self._values = values
        self.collection = values.collection

    async def put(self, values: Mapping[str, Any]) -> None:
        """See `KeyValues.put`."""
        await asyncio.to_thread(self._values.put, values)

    async def get(self, key: str) -> Any:
        """See `KeyValues.get`."""
        return await asyncio.to_thread(self._values.get, key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """See `KeyValues.get_many`."""
        return await asyncio.to_thread(self._values.get_many, keys)

    async def items(self) -> Iterable[tuple[str, Any]]:
        """See `KeyValues.items`."""
        return await asyncio.to_thread(self._values.items)

    async def delete(self, keys: str | Iterable[str]) -> builtins.list[str]:
        """See `KeyValues.delete`."""
        return await asyncio.to_thread(self._values.delete, keys)


def _advance(steps: Steps[T], answer: Vector | None) -> tuple[Wanted | None, T | None]:
    """Return what a call wants next, or its result."""
    try:
        return (next(steps) if answer is None else steps.send(answer)), None
    except StopIteration as end:
        return None, end.value
