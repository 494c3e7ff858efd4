"""Threads of checkpoints of one namespace of a store file."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import apsw

from rlm_memory.chunking import cut, marks
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
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.errors import InvalidInputError, StoreCorruptError
from rlm_memory.records import CheckpointOutline, Encoded, Problem, ThreadCheckpoint, ThreadWrite, Version
from rlm_memory.times import moment

_REMEMBERED: Final = 16 << 20
"""Of the values last put, so many bytes are kept in memory, to cut and hash of the next ones only what is new."""

_compact: Final = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: `json.dumps` makes an encoder for each call that wants no spaces."""

Stored = tuple[str, int, bytes]
"""The encoding, depth and content of a value; see the migration."""


class Cut(NamedTuple):
    """A value in pieces. One piece is kept where it is; else each has its hash."""

    encoding: str
    pieces: list[bytes]
    hashes: list[bytes]


class Remembered(NamedTuple):
    """The value last put at a place: its pieces by `marks`, and their hashes; their numbers in an era of the thread."""

    size: int = 0
    known: Mapping[bytes, bytes] = {}
    hashes: Mapping[bytes, bytes] = {}
    era: int | None = None
    numbers: Mapping[bytes, int] = {}


_NOTHING: Final = Remembered()


class Own(NamedTuple):
    """A thread, and what a checkpoint notes that is committed now: where the promotion log is, and the last node."""

    thread: int
    era: int
    log_position: int
    last_node: int


Place = tuple[str, str, str]
"""A channel of a graph of a thread."""


class Cuts:
    """How the values last put were cut, so that of the next ones only what is new takes time.

    Safe to use from any thread. What is remembered changes no result: numbers of chunks hold in their era alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._by_place: OrderedDict[Place, Remembered] = OrderedDict()

    def cut(self, place: Place, value: Encoded) -> Cut:
        """Return a value in pieces."""
        if len(value.content) <= INLINE:
            return Cut(value.encoding, [value.content], [])
        with self._lock:
            last = self._by_place.get(place, _NOTHING)
        pieces = cut(value.content, last.known)
        # A piece that is known is the same object, whose hash for a dict is computed once.
        hashes = {piece: last.hashes.get(piece) or hash_of(piece) for piece in pieces}
        self._remember(place, last._replace(size=len(value.content), known=marks(pieces), hashes=hashes))
        return Cut(value.encoding, pieces, [hashes[piece] for piece in pieces])

    def numbers(self, place: Place, era: int) -> Mapping[bytes, int]:
        """Return the numbers of the chunks of the value last put at a place, by their hashes."""
        with self._lock:
            last = self._by_place.get(place, _NOTHING)
        return last.numbers if last.era == era else {}

    def note_numbers(self, place: Place, era: int, numbers: Mapping[bytes, int]) -> None:
        """Remember numbers that are committed."""
        with self._lock:
            if (last := self._by_place.get(place)) is not None:
                self._by_place[place] = last._replace(era=era, numbers=numbers)

    def _remember(self, place: Place, value: Remembered) -> None:
        with self._lock:
            self._bytes -= self._by_place.pop(place, _NOTHING).size
            if value.size <= _REMEMBERED:
                self._by_place[place] = value
                self._bytes += value.size
            while self._bytes > _REMEMBERED:
                self._bytes -= self._by_place.popitem(last=False)[1].size


class SQLiteThreads:
    """See `rlm_memory.ports.ThreadStore`."""

    def __init__(self, database: Database, namespace: str, kind: str) -> None:
        self._database = database
        self._namespace = namespace
        self._kind = kind
        self._cuts = Cuts()

    def _thread(self, connection: apsw.Connection, thread_id: str) -> int | None:
        row = row_of(connection, statements.SELECT_THREAD, (self._kind, thread_id, self._namespace))
        return None if row is None else int(row[0])

    def _own_thread(self, connection: apsw.Connection, thread_id: str) -> Own:
        """Return a thread, making it if it is new."""
        name = (self._kind, thread_id, self._namespace)
        row = row_of(connection, statements.SELECT_THREAD_NOW, name)
        if row is None:
            own = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
            number = (own or row_of(connection, statements.INSERT_NAMESPACE, (self._namespace,)))[0]
            connection.execute(statements.INSERT_THREAD, (number, self._kind, thread_id))
            row = row_of(connection, statements.SELECT_THREAD_NOW, name)
        return Own(*row)

    # -- writing ------------------------------------------------------------------------------------------------

    def put(
        self,
        checkpoint: ThreadCheckpoint,
        kept: Mapping[str, Version],
        encode: Callable[[str], Encoded],
        at_ms: int,
    ) -> None:
        metadata = _compact(checkpoint.metadata)
        thread_id, graph, head = checkpoint.thread_id, checkpoint.graph, checkpoint.head

        def cut_at(channel: str, value: Encoded) -> tuple[Place, Cut]:
            place = (thread_id, graph, channel)
            return place, self._cuts.cut(place, value)

        cuts = {channel: cut_at(channel, value) for channel, value in checkpoint.values.items()}
        numbered: dict[Place, dict[bytes, int]] = {}  # of the values in pieces
        inner = self._database.in_transaction
        with self._database.transaction() as connection:
            thread, era, *then = self._own_thread(connection, thread_id)
            values: list[Valued] = []
            if kept:
                values = _kept_values(connection, thread, checkpoint, kept)
                for channel in kept.keys() - {value.channel for value in values}:
                    cuts[channel] = cut_at(channel, encode(channel))
            for channel, (place, value) in cuts.items():
                if value.hashes:
                    numbered[place] = {}
                    stored = _store(connection, thread, value, self._cuts.numbers(place, era), numbered[place])
                else:
                    stored = value.encoding, 0, value.pieces[0]
                values.append(Valued(channel, checkpoint.versions.get(channel, kept.get(channel)), *stored))
            own = (thread, graph, checkpoint.id)
            state = (metadata, head.encoding, head.content)
            row = row_of_values(values)
            connection.execute(statements.PUT_CHECKPOINT, (*own, checkpoint.parent_id, at_ms, *state, *then, *row))
            if not connection.changes():
                connection.execute(statements.REPLACE_CHECKPOINT, (checkpoint.parent_id, *state, *row, *own))
                _sweep(connection, thread)
        if not inner:  # where it is, the transaction around may still be rolled back
            for place, numbers in numbered.items():
                self._cuts.note_numbers(place, era, numbers)

    def put_writes(
        self, thread_id: str, graph: str, checkpoint_id: str, writes: Sequence[ThreadWrite], *, replace: bool
    ) -> None:
        cuts = [(write, _cut_of(write.value)) for write in writes]
        with self._database.transaction() as connection:
            thread = self._own_thread(connection, thread_id).thread
            place = (thread, graph, checkpoint_id)
            known: dict[tuple[str, int], int] = {}
            if replace or any(value.hashes for _, value in cuts):  # else nothing can be left over
                known = {(task, at): depth for task, at, depth in rows_of(connection, statements.SELECT_WRITTEN, place)}
            if not replace:
                cuts = [(write, value) for write, value in cuts if (write.task_id, write.place) not in known]
            rows = [
                (
                    *place, write.task_id, write.place, write.task_path, write.channel,
                    *_store(connection, thread, value, {}, {}),
                )
                for write, value in cuts
            ]  # fmt: skip
            connection.executemany(statements.REPLACE_WRITE if replace else statements.PUT_WRITE_ONCE, rows)
            if replace and any(known.get((write.task_id, write.place)) for write, _ in cuts):
                _sweep(connection, thread)

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
                channels=frozenset(channel for channel, *_ in json.loads(channels)),
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
            target = self._own_thread(connection, target_id).thread
            connection.execute(statements.COPY_CHECKPOINTS, (target, source))
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
    _, thread, thread_id, graph, id, parent_id, created_at, metadata, encoding, head, *valued = row
    values: dict[str, Encoded] = {}
    versions: dict[str, Version] = {}
    for value in values_of_row(*valued):
        values[value.channel] = _value(connection, thread, value.encoding, value.depth, value.content)
        versions[value.channel] = value.version
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


class Valued(NamedTuple):
    """A value of a channel at a checkpoint, as it is stored."""

    channel: str
    version: Version
    encoding: str
    depth: int
    content: bytes


def row_of_values(values: Sequence[Valued]) -> tuple[str, bytes]:
    """Return the two columns that hold the values of a checkpoint."""
    channels = [(*value[:4], len(value.content)) for value in values]
    return _compact(channels), b"".join([value.content for value in values])


def values_of_row(channels: str, contents: bytes) -> list[Valued]:
    """Return the values of a checkpoint, from its two columns."""
    values, start = [], 0
    try:
        for channel, version, encoding, depth, length in json.loads(channels):
            values.append(Valued(channel, version, encoding, depth, contents[start : start + length]))
            start += length
    except (TypeError, ValueError) as error:
        raise StoreCorruptError(
            f"The list of values of a checkpoint is damaged ({error}); see Memory.check()."
        ) from error
    if start != len(contents):
        raise StoreCorruptError("The values of a checkpoint are not as long as they were; see Memory.check().")
    return values


def _kept_values(
    connection: apsw.Connection, thread: int, checkpoint: ThreadCheckpoint, kept: Mapping[str, Version]
) -> list[Valued]:
    """Return those of the parent's values that have the versions of `kept`."""
    place = (thread, checkpoint.graph, checkpoint.parent_id)
    row = row_of(connection, statements.SELECT_VALUES, place)
    if row is None:
        return []
    return [
        value
        for value in values_of_row(*row)
        if value.channel in kept
        and type(value.version) is type(kept[value.channel])
        and value.version == kept[value.channel]
    ]


def _cut_of(write: Encoded) -> Cut:
    """Return the value of a write in pieces."""
    if len(write.content) <= INLINE_WRITE:
        return Cut(write.encoding, [write.content], [])
    pieces = cut(write.content)
    return Cut(write.encoding, pieces, [hash_of(piece) for piece in pieces])


def _store(
    connection: apsw.Connection, thread: int, value: Cut, known: Mapping[bytes, int], numbered: dict[bytes, int]
) -> Stored:
    """Store the pieces of a value that the thread does not have yet; return what stands for the value.

    `known` are numbers of chunks that are there, by their hashes; to `numbered` all those are added that it has.
    """
    if len(value.pieces) == 1:
        return value.encoding, 0, value.pieces[0]
    numbers = _store_chunks(connection, thread, value.pieces, value.hashes, known, numbered)

    def of_lists(lists: list[bytes]) -> Numbers:
        return _store_chunks(connection, thread, lists, [hash_of(part) for part in lists], known, numbered)

    return value.encoding, *tree_over(numbers, of_lists)


def _store_chunks(
    connection: apsw.Connection,
    thread: int,
    contents: list[bytes],
    hashes: list[bytes],
    known: Mapping[bytes, int],
    numbered: dict[bytes, int],
) -> Numbers:
    """Return the numbers of chunks with these contents, adding those that are new."""
    unknown = {}
    for hashed, content in zip(hashes, contents, strict=True):
        if (number := known.get(hashed)) is None:
            unknown[hashed] = content
        else:
            numbered[hashed] = number
    if unknown:
        asked = [(thread, hashed) for hashed in unknown]
        numbered.update(connection.executemany(statements.FIND_CHUNK, asked))
        if new := [hashed for hashed in unknown if hashed not in numbered]:
            (last,) = row_of(connection, statements.SELECT_LAST_CHUNK, (thread,))
            numbered.update({hashed: last + i for i, hashed in enumerate(new, 1)})
            rows = [(thread, numbered[hashed], hashed, unknown[hashed]) for hashed in new]
            connection.executemany(statements.INSERT_CHUNK, rows)
    return list_of([numbered[hashed] for hashed in hashes])


def _value(connection: apsw.Connection, thread: int, encoding: str, depth: int, content: bytes) -> Encoded:
    return Encoded(encoding, value_of(depth, content, partial(_contents, connection, thread)))


def _contents(connection: apsw.Connection, thread: int, numbers: list[int]) -> list[bytes]:
    """Return the contents of chunks, in this order."""
    rows = rows_of(connection, statements.SELECT_CHUNK_CONTENTS, (json.dumps(numbers), thread))
    return sound(rows, len(numbers))


def _reached(connection: apsw.Connection, thread: int) -> set[int]:
    """Return the numbers of all chunks of a thread that a value has in it."""
    trees: set[tuple[int, bytes]] = set(rows_of(connection, statements.SELECT_WRITTEN_TREES, (thread,)))
    for row in rows_of(connection, statements.SELECT_ALL_VALUES, (thread,)):
        trees.update((value.depth, value.content) for value in values_of_row(*row) if value.depth)
    return reached_from(trees, partial(_contents, connection, thread))


def _sweep(connection: apsw.Connection, thread: int) -> None:
    """Delete the chunks of a thread that no value has any more."""
    reached = _reached(connection, thread)
    numbers = [number for (number,) in rows_of(connection, statements.SELECT_CHUNKS_OF, (thread,))]
    connection.executemany(statements.DELETE_CHUNK, [(thread, number) for number in numbers if number not in reached])
    connection.execute(statements.CHANGE_ERA, (thread,))


def thread_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield chunks that are not what was stored, that values lack, or that no value has."""
    for thread, kind, id in rows_of(connection, "SELECT thread, kind, id FROM threads"):
        where = f"thread {id!r} of {kind}"
        select = "SELECT chunk & 4294967295, hash, content FROM thread_chunks WHERE chunk >> 32 = ?"
        stored = connection.execute(select, (thread,))
        yield from chunk_problems(where, stored, partial(_reached, connection, thread))
    unowned = "SELECT DISTINCT chunk >> 32 FROM thread_chunks WHERE chunk >> 32 NOT IN (SELECT thread FROM threads)"
    for (thread,) in connection.execute(unowned):
        yield Problem("thread_chunks", f"there are chunks of thread number {thread}, which is not there")
    for table, column in (
        ("thread_checkpoints", "metadata"),
        ("thread_checkpoints", "channels"),
        ("key_values", "value"),
    ):
        for (row,) in connection.execute(f"SELECT rowid FROM {table} WHERE NOT json_valid({column})"):
            yield Problem(table, f"row {row} is not JSON")
