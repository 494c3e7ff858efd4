"""Threads of checkpoints of one namespace of a store file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from rlm_memory.chunking import cut, cut_list
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.errors import InvalidInputError, StoreCorruptError
from rlm_memory.records import CheckpointOutline, Encoded, Problem, ThreadCheckpoint, ThreadWrite, Version
from rlm_memory.times import moment

_INLINE: Final = 512
"""Values up to this many bytes are kept where they are: less than what listing their pieces takes."""
_INLINE_WRITE: Final = 4096
"""The same for writes, which have little in common with anything: only a large one is found again in a value."""
_LISTED: Final = 32
"""Lists of chunks longer than this go into chunks themselves."""
_HASH_BYTES: Final = 16

Stored = tuple[str, int, bytes]
"""The encoding, depth and content of a value; see the migration."""


class SQLiteThreads:
    """See `rlm_memory.ports.ThreadStore`."""

    def __init__(self, database: Database, namespace: str, kind: str) -> None:
        self._database = database
        self._namespace = namespace
        self._kind = kind

    def _thread(self, connection: apsw.Connection, thread_id: str) -> int | None:
        row = row_of(connection, statements.SELECT_THREAD, (self._kind, thread_id, self._namespace))
        return None if row is None else int(row[0])

    def _own_thread(self, connection: apsw.Connection, thread_id: str) -> int:
        """Return the number of a thread, making it if it is new."""
        if (thread := self._thread(connection, thread_id)) is not None:
            return thread
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        number = (row or row_of(connection, statements.INSERT_NAMESPACE, (self._namespace,)))[0]
        return int(row_of(connection, statements.INSERT_THREAD, (number, self._kind, thread_id))[0])

    # -- writing ------------------------------------------------------------------------------------------------

    def put(
        self,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
        at_ms: int,
    ) -> None:
        metadata = json.dumps(checkpoint.metadata, separators=(",", ":"))
        pieces = {channel: _pieces(value) for channel, value in checkpoint.values.items()}
        with self._database.transaction() as connection:
            thread = self._own_thread(connection, checkpoint.thread_id)
            place = (thread, checkpoint.graph, checkpoint.id)
            head = checkpoint.head
            then = row_of(connection, statements.SELECT_MOMENT, (self._namespace,))
            values = (*place, checkpoint.parent_id, at_ms, metadata, head.encoding, head.content, *then)
            (sequence,) = row_of(connection, statements.PUT_CHECKPOINT, values)
            connection.execute(statements.DELETE_VALUES, (sequence,))
            pieces.update(self._new_after_all(connection, sequence, thread, checkpoint, kept, encode))
            rows = [
                (
                    sequence,
                    channel,
                    checkpoint.versions.get(channel, kept.get(channel)),
                    *_store(connection, thread, *value),
                )
                for channel, value in pieces.items()
            ]
            connection.executemany(statements.PUT_VALUE, rows)

    @staticmethod
    def _new_after_all(
        connection: apsw.Connection,
        sequence: int,
        thread: int,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
    ) -> dict[str, tuple[str, list[bytes]]]:
        """Take over what the parent has of these channels; return the pieces of those it has not, or not any more."""
        missing = dict.fromkeys(kept)
        if kept and checkpoint.parent_id is not None:
            values = (sequence, thread, checkpoint.graph, checkpoint.parent_id, json.dumps(kept))
            for (channel,) in rows_of(connection, statements.KEEP_VALUES, values):
                del missing[channel]
        return {channel: _pieces(encode(channel)) for channel in missing}

    def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool
    ) -> None:
        pieces = [_pieces(write.value, _INLINE_WRITE) for write in writes]
        with self._database.transaction() as connection:
            thread = self._own_thread(connection, thread_id)
            rows = [
                (
                    thread, graph, checkpoint_id, write.task_id, write.place, write.task_path, write.channel,
                    *_store(connection, thread, *value),
                )
                for write, value in zip(writes, pieces, strict=True)
            ]  # fmt: skip
            connection.executemany(statements.REPLACE_WRITE if replace else statements.PUT_WRITE_ONCE, rows)

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, thread_id: str, graph: str, id: str | None) -> ThreadCheckpoint | None:
        with self._database.reading() as connection:
            sequence = self._sequence(connection, thread_id, graph, id)
            return None if sequence is None else _load(connection, sequence)

    def _sequence(self, connection: apsw.Connection, thread_id: str, graph: str, id: str | None) -> int | None:
        thread = self._thread(connection, thread_id)
        if id is None:
            row = row_of(connection, statements.SELECT_LAST_SEQUENCE, (thread, graph))
        else:
            row = row_of(connection, statements.SELECT_SEQUENCE, (thread, graph, id))
        return None if row is None else row[0]

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
            below = None
            if before is not None:
                found = self._find(connection, thread_id, None, before, limit=1)
                below, before = (found[0], None) if found else (None, before)
            return self._find(connection, thread_id, graph, id, below=below, before=before, where=where, limit=limit)

    def _find(
        self,
        connection: apsw.Connection,
        thread_id: str | None,
        graph: str | None,
        id: str | None,
        *,
        below: int | None = None,
        before: str | None = None,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
        limit: int | None,
    ) -> list[int]:
        holds = None if where is None else apsw.pyobject(lambda metadata: where(json.loads(metadata)))
        # That there is no condition is told apart: a bound object counts as NULL.
        bound = (graph, id, below, before, where is None, holds, -1 if limit is None else limit)
        if thread_id is None:
            rows = rows_of(connection, statements.FIND_IN_ALL, (self._kind, *bound, self._namespace))
        else:
            thread = self._thread(connection, thread_id)
            rows = rows_of(connection, statements.FIND_IN_THREAD, (thread, *bound))
        return [sequence for (sequence,) in rows]

    def load(self, sequences: Sequence[int]) -> list[ThreadCheckpoint]:
        with self._database.reading() as connection:
            loaded = [_load(connection, sequence) for sequence in sequences]
        return [checkpoint for checkpoint in loaded if checkpoint is not None]

    def outlines(self, thread_id: str) -> list[CheckpointOutline]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_OUTLINES, (self._thread(connection, thread_id),))
        return [
            CheckpointOutline(
                sequence=sequence,
                graph=graph,
                id=id,
                parent_id=parent_id,
                metadata=json.loads(metadata),
                channels=frozenset(json.loads(channels)),
            )
            for sequence, graph, id, parent_id, metadata, channels in rows
        ]

    def with_run(self, run_id: str) -> list[tuple[str, int]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_BY_RUN, (run_id, self._kind, self._namespace))

    def position(self, thread_id: str, graph: str, id: str | None) -> tuple[int, list[str]] | None:
        with self._database.reading() as connection:
            sequence = self._sequence(connection, thread_id, graph, id)
            if sequence is None:
                return None
            log_position, last_node = row_of(connection, statements.SELECT_POSITION, (sequence,))
            rows = rows_of(connection, statements.SELECT_NODES_UNTIL, (self._namespace, last_node))
            return log_position, [node for (node,) in rows]

    def ids(self) -> list[str]:
        with self._database.reading() as connection:
            return [id for (id,) in rows_of(connection, statements.LIST_THREADS, (self._kind, self._namespace))]

    # -- whole threads ------------------------------------------------------------------------------------------

    def discard(self, thread_id: str, sequences: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            thread = self._thread(connection, thread_id)
            if thread is None or not sequences:
                return
            gone = json.dumps(list(sequences))
            connection.execute(statements.DELETE_WRITES_OF, (gone, thread))
            connection.execute(statements.DELETE_CHECKPOINTS, (gone, thread))
            if row_of(connection, statements.IS_EMPTY_THREAD, (thread,))[0]:
                _delete(connection, thread)
            else:
                _sweep(connection, thread)

    def delete(self, thread_id: str) -> None:
        with self._database.reading() as connection:
            if self._thread(connection, thread_id) is None:
                return
        with self._database.transaction() as connection:
            thread = self._thread(connection, thread_id)
            if thread is not None:
                _delete(connection, thread)

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
            for (sequence,) in rows_of(
                connection, statements.FIND_IN_THREAD, (source, None, None, None, None, True, None, -1)
            )[::-1]:
                (copy,) = row_of(connection, statements.COPY_CHECKPOINT, (target, sequence))
                connection.execute(statements.COPY_VALUES, (copy, sequence))
            connection.execute(statements.COPY_WRITES, (target, source))
            connection.execute(statements.COPY_CHUNKS, (target, source))


def _delete(connection: apsw.Connection, thread: int) -> None:
    for delete in (
        statements.DELETE_WRITES,
        statements.DELETE_ALL_CHECKPOINTS,
        statements.DELETE_ALL_CHUNKS,
        statements.DELETE_THREAD,
    ):
        connection.execute(delete, (thread,))


def _load(connection: apsw.Connection, sequence: int) -> ThreadCheckpoint | None:
    row = row_of(connection, statements.SELECT_CHECKPOINT, (sequence,))
    if row is None:
        return None
    _, thread, thread_id, graph, id, parent_id, created_at, metadata, encoding, head = row
    values: dict[str, Encoded] = {}
    versions: dict[str, Version] = {}
    for channel, version, *stored in rows_of(connection, statements.SELECT_VALUES, (sequence,)):
        values[channel] = _value(connection, thread, *stored)
        versions[channel] = version
    writes = tuple(
        ThreadWrite(
            task_id=task_id,
            place=place,
            channel=channel,
            task_path=task_path,
            value=_value(connection, thread, *stored),
        )
        for task_id, place, channel, task_path, *stored in rows_of(
            connection, statements.SELECT_WRITES, (thread, graph, id)
        )
    )
    return ThreadCheckpoint(
        thread_id=thread_id,
        id=id,
        head=Encoded(encoding, head),
        graph=graph,
        parent_id=parent_id,
        metadata=json.loads(metadata),
        values=values,
        versions=versions,
        writes=writes,
        sequence=sequence,
        created_at=moment(created_at),
    )


# -- values -------------------------------------------------------------------------------------------------------


def _pieces(value: Encoded, inline: int = _INLINE) -> tuple[str, list[bytes]]:
    """Return a value with its content cut; one piece is kept where it is. Done before a transaction begins."""
    return value.encoding, [value.content] if len(value.content) <= inline else cut(value.content)


def _store(connection: apsw.Connection, thread: int, encoding: str, pieces: list[bytes]) -> Stored:
    """Store the pieces of a value that the thread does not have yet; return what stands for the value."""
    if len(pieces) == 1:
        return encoding, 0, pieces[0]
    depth, numbers = 1, _store_chunks(connection, thread, pieces)
    while len(numbers) > _LISTED:
        depth += 1
        numbers = _store_chunks(connection, thread, [part.tobytes() for part in cut_list(numbers)])
    return encoding, depth, numbers.tobytes()


def _store_chunks(connection: apsw.Connection, thread: int, contents: list[bytes]) -> NDArray[np.uint32]:
    """Return the numbers of chunks with these contents, adding those that are new."""
    hashes = [_hash(content) for content in contents]
    known = dict(rows_of(connection, statements.FIND_CHUNKS, (json.dumps([h.hex() for h in hashes]), thread)))
    new = {h: content for h, content in zip(hashes, contents, strict=True) if h not in known}
    if new:
        (last,) = row_of(connection, statements.SELECT_LAST_CHUNK, (thread,))
        known.update({h: last + i for i, h in enumerate(new, 1)})
        connection.executemany(statements.INSERT_CHUNK, [(thread, known[h], h, content) for h, content in new.items()])
    return np.array([known[h] for h in hashes], dtype="<u4")


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=_HASH_BYTES).digest()


def _value(connection: apsw.Connection, thread: int, encoding: str, depth: int, content: bytes) -> Encoded:
    for _ in range(depth):
        content = b"".join(_contents(connection, thread, content))
    return Encoded(encoding, content)


def _contents(connection: apsw.Connection, thread: int, listed: bytes) -> list[bytes]:
    """Return the contents of the chunks of a list, in order."""
    numbers = np.frombuffer(listed, dtype="<u4").tolist()
    rows = rows_of(connection, statements.SELECT_CHUNK_CONTENTS, (json.dumps(numbers), thread))
    if len(rows) != len(numbers):
        raise StoreCorruptError("A value of a thread lacks a part of its content; see Memory.check().")
    return [content for (content,) in rows]


def _reached(connection: apsw.Connection, thread: int) -> set[int]:
    """Return the numbers of all chunks of a thread that a value has in it."""
    reached: set[int] = set()
    lists: dict[int, set[int]] = {}  # the lists of chunks to look into, by how deep they are
    for depth, content in rows_of(connection, statements.SELECT_TREES, (thread,)):
        numbers = np.frombuffer(content, dtype="<u4").tolist()
        reached.update(numbers)
        lists.setdefault(depth - 1, set()).update(numbers)
    for depth in range(max(lists, default=0), 0, -1):
        listed = np.array(sorted(lists.get(depth, ())), dtype="<u4").tobytes()
        numbers = np.frombuffer(b"".join(_contents(connection, thread, listed)), dtype="<u4").tolist()
        reached.update(numbers)
        lists.setdefault(depth - 1, set()).update(numbers)
    return reached


def _sweep(connection: apsw.Connection, thread: int) -> None:
    """Delete the chunks of a thread that no value has any more."""
    reached = _reached(connection, thread)
    numbers = [number for (number,) in rows_of(connection, statements.SELECT_CHUNKS_OF, (thread,))]
    connection.executemany(statements.DELETE_CHUNK, [(thread, number) for number in numbers if number not in reached])


def thread_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield chunks that are not what was stored, that values lack, or that no value has."""
    for thread, kind, id in rows_of(connection, "SELECT thread, kind, id FROM threads"):
        where = f"thread {id!r} of {kind}"
        for number, hashed, content in connection.execute(
            "SELECT chunk & 4294967295, hash, content FROM thread_chunks WHERE chunk >> 32 = ?", (thread,)
        ):
            if _hash(content) != hashed:
                yield Problem(where, f"chunk {number} is not the one that was stored")
        try:
            reached = _reached(connection, thread)
        except StoreCorruptError:
            yield Problem(where, "a list of chunks is not there")
            continue
        stored = {number for (number,) in rows_of(connection, statements.SELECT_CHUNKS_OF, (thread,))}
        if missing := reached - stored:
            yield Problem(where, f"{len(missing)} chunks of its values are not there")
        if lost := stored - reached:
            yield Problem(where, f"{len(lost)} chunks belong to no value")
    unowned = "SELECT DISTINCT chunk >> 32 FROM thread_chunks WHERE chunk >> 32 NOT IN (SELECT thread FROM threads)"
    for (thread,) in connection.execute(unowned):
        yield Problem("thread_chunks", f"there are chunks of thread number {thread}, which is not there")
    for table in ("thread_checkpoints", "key_values"):
        column = "metadata" if table == "thread_checkpoints" else "value"
        for (row,) in connection.execute(f"SELECT rowid FROM {table} WHERE NOT json_valid({column})"):
            yield Problem(table, f"row {row} is not JSON")
