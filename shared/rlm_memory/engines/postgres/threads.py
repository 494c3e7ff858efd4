"""Threads of checkpoints of one namespace of a store on a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from rlm_memory.chunking import cut
from rlm_memory.conflicts import repeated
from rlm_memory.engines.chunks import (
    INLINE,
    INLINE_WRITE,
    Numbers,
    chunk_problems,
    hash_of,
    list_of,
    reached_from,
    sound,
    tree_over,
    value_of,
)
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of
from rlm_memory.errors import InvalidInputError
from rlm_memory.records import CheckpointOutline, Encoded, Problem, ThreadCheckpoint, ThreadWrite, Version
from rlm_memory.times import moment

_PAGE: Final = 200


class PostgresThreads:
    """See `rlm_memory.ports.ThreadStore`."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._namespace = database.namespace
        self._kind = kind

    def _thread(self, connection: Connection, thread_id: str) -> int | None:
        row = row_of(connection, statements.SELECT_THREAD, (self._namespace, key_of(self._kind, thread_id)))
        return None if row is None else int(row[0])

    def _own_thread(self, connection: Connection, thread_id: str) -> int:
        """Return the number of a thread, making it if it is new."""
        if (thread := self._thread(connection, thread_id)) is not None:
            return thread
        thread = self._number(connection)
        values = (self._namespace, thread, self._kind, thread_id, key_of(self._kind, thread_id))
        connection.execute(statements.INSERT_THREAD, values)
        return thread

    def _number(self, connection: Connection, count: int = 1) -> int:
        return int(row_of(connection, statements.TAKE_NUMBERS, (count, self._namespace))[0])

    # -- writing ------------------------------------------------------------------------------------------------

    @repeated
    def put(
        self,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
        at_ms: int,
    ) -> None:
        metadata = json.dumps(checkpoint.metadata, separators=(",", ":"))
        run_id = checkpoint.metadata.get("run_id")
        pieces = {channel: _pieces(value) for channel, value in checkpoint.values.items()}
        with self._database.transaction() as connection:
            thread = self._own_thread(connection, checkpoint.thread_id)
            log_position, last_number = row_of(connection, statements.SELECT_MOMENT, (self._namespace,))
            head = checkpoint.head
            values = (
                self._namespace, self._number(connection), thread, checkpoint.graph, key_of(checkpoint.graph),
                checkpoint.id, key_of(checkpoint.id), checkpoint.parent_id, at_ms, metadata,
                key_of(run_id) if isinstance(run_id, str) else None, head.encoding, head.content, log_position,
                last_number,
            )  # fmt: skip
            (sequence,) = row_of(connection, statements.PUT_CHECKPOINT, values)
            replaced = connection.execute(statements.DELETE_VALUES, (self._namespace, [sequence])).rowcount
            pieces.update(self._new_after_all(connection, sequence, thread, checkpoint, kept, encode))
            chunks = Chunks(connection, self._namespace, thread)
            rows = [
                (
                    self._namespace, sequence, channel, key_of(channel),
                    json.dumps(checkpoint.versions.get(channel, kept.get(channel))), *chunks.store(*value),
                )
                for channel, value in pieces.items()
            ]  # fmt: skip
            chunks.flush()
            connection.cursor().executemany(statements.PUT_VALUE, rows)
            if replaced:
                chunks.sweep()

    def _new_after_all(
        self,
        connection: Connection,
        sequence: int,
        thread: int,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
    ) -> dict[str, tuple[str, list[bytes]]]:
        """Take over what the parent has of these channels; return the pieces of those it has not, or not any more."""
        missing = dict.fromkeys(kept)
        if kept and checkpoint.parent_id is not None:
            values = (
                sequence, [key_of(channel) for channel in kept], [json.dumps(version) for version in kept.values()],
                self._namespace, thread, key_of(checkpoint.graph), key_of(checkpoint.parent_id),
            )  # fmt: skip
            for (channel,) in rows_of(connection, statements.KEEP_VALUES, values):
                del missing[channel]
        return {channel: _pieces(encode(channel)) for channel in missing}

    @repeated
    def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool
    ) -> None:
        pieces = [_pieces(write.value, INLINE_WRITE) for write in writes]
        with self._database.transaction() as connection:
            thread = self._own_thread(connection, thread_id)
            chunks = Chunks(connection, self._namespace, thread)
            place = (self._namespace, thread, key_of(graph), key_of(checkpoint_id))
            rows = [
                (
                    *place, graph, checkpoint_id, key_of(write.task_id), write.place, write.task_id, write.task_path,
                    write.channel, *chunks.store(*value),
                )
                for write, value in zip(writes, pieces, strict=True)
            ]  # fmt: skip
            new = chunks.flush()
            replaced = replace and row_of(connection, statements.HAS_LARGE_WRITES, place)[0]
            cursor = connection.cursor()
            cursor.executemany(statements.REPLACE_WRITE if replace else statements.PUT_WRITE_ONCE, rows)
            # What was replaced, or was there already, leaves pieces behind that only a look at all values can tell.
            if replaced or (new and cursor.rowcount < len(rows)):
                chunks.sweep()

    # -- reading ------------------------------------------------------------------------------------------------

    @repeated
    def get(self, thread_id: str, graph: str, id: str | None) -> ThreadCheckpoint | None:
        with self._database.reading() as connection:
            sequence = self._sequence(connection, thread_id, graph, id)
            found = [] if sequence is None else self._load(connection, [sequence])
            return found[0] if found else None

    def _sequence(self, connection: Connection, thread_id: str, graph: str, id: str | None) -> int | None:
        thread = self._thread(connection, thread_id)
        line = (self._namespace, thread, key_of(graph))
        if id is None:
            row = row_of(connection, statements.SELECT_LAST_SEQUENCE, line)
        else:
            row = row_of(connection, statements.SELECT_SEQUENCE, (*line, key_of(id)))
        return None if row is None else row[0]

    @repeated
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
        with self._database.reading() as connection:
            narrowed: list[tuple[str, Any]] = []
            if thread_id is None:
                narrowed.append((statements.OF_KIND, self._kind))
            else:
                thread = self._thread(connection, thread_id)
                if thread is None:
                    return []
                narrowed.append((statements.IN_THREAD, thread))
            if before is not None:
                named = [*narrowed, (statements.WITH_ID, key_of(before))]
                found = next(self._found(connection, named, 1), None)
                narrowed.append((statements.BELOW_ID, before) if found is None else (statements.BELOW_SEQUENCE, found))
            if graph is not None:
                narrowed.append((statements.IN_GRAPH, key_of(graph)))
            if id is not None:
                narrowed.append((statements.WITH_ID, key_of(id)))
            return list(self._found(connection, narrowed, limit, where))

    def _found(
        self,
        connection: Connection,
        narrowed: Sequence[tuple[str, Any]],
        limit: int | None,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> Iterator[int]:
        """Yield the numbers of checkpoints, the last one first; what is asked of the metadata is asked here."""
        below, left = None, limit
        while left is None or left > 0:
            conditions = [*narrowed, *([(statements.BELOW_SEQUENCE, below)] if below is not None else [])]
            select = statements.FIND_CHECKPOINTS.format(narrowed="".join(sql for sql, _ in conditions))
            page = _PAGE if where is not None else left
            rows = rows_of(connection, select, (self._namespace, *(value for _, value in conditions), page))
            for sequence, metadata in rows:
                if where is None or where(json.loads(metadata)):
                    yield sequence
                    left = None if left is None else left - 1
                    if left == 0:
                        return
            if where is None or len(rows) < _PAGE:
                return
            below = rows[-1][0]

    @repeated
    def load(self, sequences: Sequence[int]) -> list[ThreadCheckpoint]:
        with self._database.reading() as connection:
            return self._load(connection, sequences)

    def _load(self, connection: Connection, sequences: Sequence[int]) -> list[ThreadCheckpoint]:
        rows = rows_of(connection, statements.SELECT_CHECKPOINTS, (list(sequences), self._namespace))
        return [self._checkpoint(connection, row) for row in rows]

    def _checkpoint(self, connection: Connection, row: Any) -> ThreadCheckpoint:
        sequence, thread, thread_id, graph, id, parent_id, created_at, metadata, encoding, head = row
        chunks = Chunks(connection, self._namespace, thread)
        values: dict[str, Encoded] = {}
        versions: dict[str, Version] = {}
        for channel, version, *stored in rows_of(connection, statements.SELECT_VALUES, (self._namespace, sequence)):
            values[channel] = chunks.value(*stored)
            versions[channel] = json.loads(version)
        place = (self._namespace, thread, key_of(graph), key_of(id))
        writes = tuple(
            ThreadWrite(task_id=task_id, place=place, channel=channel, task_path=task_path, value=chunks.value(*stored))
            for task_id, place, channel, task_path, *stored in rows_of(connection, statements.SELECT_WRITES, place)
        )
        return ThreadCheckpoint(
            thread_id=thread_id,
            id=id,
            head=Encoded(encoding, bytes(head)),
            graph=graph,
            parent_id=parent_id,
            metadata=json.loads(metadata),
            values=values,
            versions=versions,
            writes=writes,
            sequence=sequence,
            created_at=moment(created_at),
        )

    @repeated
    def outlines(self, thread_id: str) -> list[CheckpointOutline]:
        with self._database.reading() as connection:
            values = {"namespace": self._namespace, "thread": self._thread(connection, thread_id)}
            rows = rows_of(connection, statements.SELECT_OUTLINES, values)
        return [
            CheckpointOutline(
                sequence=sequence,
                graph=graph,
                id=id,
                parent_id=parent_id,
                metadata=json.loads(metadata),
                channels=frozenset(channels),
            )
            for sequence, graph, id, parent_id, metadata, channels in rows
        ]

    @repeated
    def with_run(self, run_id: str) -> list[tuple[str, int]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_BY_RUN, (self._namespace, key_of(run_id), self._kind))

    @repeated
    def position(self, thread_id: str, graph: str, id: str | None) -> tuple[int, list[str]] | None:
        with self._database.reading() as connection:
            sequence = self._sequence(connection, thread_id, graph, id)
            if sequence is None:
                return None
            log_position, last = row_of(connection, statements.SELECT_POSITION, (self._namespace, sequence))
            rows = rows_of(connection, statements.SELECT_NODES_UNTIL, (self._namespace, last))
            return log_position, [node for (node,) in rows]

    @repeated
    def ids(self) -> list[str]:
        with self._database.reading() as connection:
            return [id for (id,) in rows_of(connection, statements.LIST_THREADS, (self._namespace, self._kind))]

    # -- whole threads ------------------------------------------------------------------------------------------

    @repeated
    def discard(self, thread_id: str, sequences: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            thread = self._thread(connection, thread_id)
            if thread is None or not sequences:
                return
            asked = set(sequences)
            all_of = rows_of(connection, statements.SELECT_SEQUENCES_OF, (self._namespace, thread))
            gone = [row for row in all_of if row[0] in asked]
            places = ([row[1] for row in gone], [row[2] for row in gone])
            connection.execute(statements.DELETE_WRITES_OF, (*places, self._namespace, thread))
            self._delete_checkpoints(connection, [row[0] for row in gone])
            if len(gone) == len(all_of) and not row_of(connection, statements.HAS_WRITES, (self._namespace, thread))[0]:
                self._delete(connection, thread)
            else:
                Chunks(connection, self._namespace, thread).sweep()

    def _delete_checkpoints(self, connection: Connection, sequences: list[int]) -> None:
        for delete in (statements.DELETE_VALUES, statements.DELETE_CHECKPOINTS):
            connection.execute(delete, (self._namespace, sequences))

    def _delete(self, connection: Connection, thread: int) -> None:
        rows = rows_of(connection, statements.SELECT_SEQUENCES_OF, (self._namespace, thread))
        self._delete_checkpoints(connection, [row[0] for row in rows])
        for delete in (statements.DELETE_WRITES, statements.DELETE_ALL_CHUNKS, statements.DELETE_THREAD):
            connection.execute(delete, (self._namespace, thread))

    @repeated
    def delete(self, thread_id: str) -> None:
        with self._database.reading() as connection:
            if self._thread(connection, thread_id) is None:
                return
        with self._database.transaction() as connection:
            thread = self._thread(connection, thread_id)
            if thread is not None:
                self._delete(connection, thread)

    @repeated
    def copy(self, source_id: str, target_id: str) -> None:
        with self._database.transaction() as connection:
            source = self._thread(connection, source_id)
            if source is None:
                return
            if self._thread(connection, target_id) is not None:
                raise InvalidInputError(
                    f"There is a thread {target_id!r} already, and its checkpoints would be mixed with those of "
                    f"{source_id!r}; delete it first, or copy to another id."
                )
            target = self._own_thread(connection, target_id)
            rows = rows_of(connection, statements.SELECT_SEQUENCES_OF, (self._namespace, source))
            sequences = sorted(row[0] for row in rows)
            last = self._number(connection, len(sequences))
            copies = list(range(last - len(sequences) + 1, last + 1))
            connection.execute(statements.COPY_CHECKPOINTS, (target, sequences, copies, self._namespace))
            connection.execute(statements.COPY_VALUES, (sequences, copies, self._namespace))
            for copy in (statements.COPY_WRITES, statements.COPY_CHUNKS):
                connection.execute(copy, (target, self._namespace, source))


# -- values -------------------------------------------------------------------------------------------------------


def _pieces(value: Encoded, inline: int = INLINE) -> tuple[str, list[bytes]]:
    """Return a value with its content cut; one piece is kept where it is. Done before a transaction begins."""
    return value.encoding, [value.content] if len(value.content) <= inline else cut(value.content)


class Chunks:
    """The pieces of the values of one thread, in one transaction."""

    def __init__(self, connection: Connection, namespace: UUID, thread: int) -> None:
        self._connection = connection
        self._owner = (namespace, thread)
        self._last: int | None = None
        self._new: dict[bytes, tuple[int, bytes]] = {}  # by their hash: number and content

    def store(self, encoding: str, pieces: list[bytes]) -> tuple[str, int, bytes]:
        """Return what stands for a value: its encoding, depth and content; `flush` stores what is new of its pieces."""
        if len(pieces) == 1:
            return encoding, 0, pieces[0]
        return encoding, *tree_over(self._numbers(pieces), self._numbers)

    def _numbers(self, contents: list[bytes]) -> Numbers:
        """Return the numbers of chunks with these contents, giving numbers to those that are new."""
        hashes = [hash_of(content) for content in contents]
        unseen = [hashed for hashed in dict.fromkeys(hashes) if hashed not in self._new]
        rows = rows_of(self._connection, statements.FIND_CHUNKS, (*self._owner, unseen))
        known = {bytes(hashed): number for hashed, number in rows}
        for hashed, content in zip(hashes, contents, strict=True):
            if hashed not in known:
                if hashed not in self._new:
                    self._new[hashed] = self._next(), content
                known[hashed] = self._new[hashed][0]
        return list_of([known[hashed] for hashed in hashes])

    def _next(self) -> int:
        if self._last is None:
            self._last = int(row_of(self._connection, statements.SELECT_LAST_CHUNK, self._owner)[0])
        self._last += 1
        return self._last

    def flush(self) -> int:
        """Store the chunks that are new; return how many."""
        count = len(self._new)
        if self._new:
            rows = [(*self._owner, number, hashed, content) for hashed, (number, content) in self._new.items()]
            self._connection.cursor().executemany(statements.INSERT_CHUNK, rows)
            self._new = {}
        return count

    def value(self, encoding: str, depth: int, content: bytes) -> Encoded:
        """Return the value that is stored like this."""
        return Encoded(encoding, value_of(depth, content, self._contents))

    def _contents(self, numbers: list[int]) -> list[bytes]:
        rows = rows_of(self._connection, statements.SELECT_CHUNK_CONTENTS, (numbers, *self._owner))
        return sound(rows, len(numbers))

    def reached(self) -> set[int]:
        """Return the numbers of all chunks that a value has in it."""
        namespace, thread = self._owner
        trees = rows_of(self._connection, statements.SELECT_TREES, {"namespace": namespace, "thread": thread})
        return reached_from(trees, self._contents)

    def sweep(self) -> None:
        """Delete the chunks that no value has any more."""
        lost = {number for (number,) in rows_of(self._connection, statements.SELECT_CHUNKS_OF, self._owner)}
        if lost := lost - self.reached():
            self._connection.execute(statements.DELETE_CHUNKS, (*self._owner, sorted(lost)))


def thread_problems(connection: Connection, namespace: UUID) -> Iterator[Problem]:
    """Yield chunks that are not what was stored, that values lack, or that no value has."""
    threads = rows_of(connection, "SELECT thread, kind, id FROM rlm_threads WHERE namespace = %s", (namespace,))
    for thread, kind, id in threads:
        where = f"thread {id!r} of {kind}"
        select = "SELECT chunk, hash, content FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s"
        stored = rows_of(connection, select, (namespace, thread))
        yield from chunk_problems(where, stored, Chunks(connection, namespace, thread).reached)
    for table in ("rlm_thread_chunks", "rlm_thread_checkpoints", "rlm_thread_writes"):
        for (thread,) in rows_of(
            connection,
            f"SELECT DISTINCT o.thread FROM {table} o WHERE o.namespace = %s AND NOT EXISTS "
            "(SELECT 1 FROM rlm_threads t WHERE t.namespace = o.namespace AND t.thread = o.thread)",
            (namespace,),
        ):
            yield Problem(table, f"there are rows of thread number {thread}, which is not there")
    for sequence, metadata in rows_of(
        connection, "SELECT sequence, metadata FROM rlm_thread_checkpoints WHERE namespace = %s", (namespace,)
    ):
        try:
            json.loads(metadata)
        except ValueError as error:
            yield Problem(f"checkpoint {sequence}", f"its metadata is not JSON: {error}")
