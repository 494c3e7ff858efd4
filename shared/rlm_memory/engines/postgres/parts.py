"""A namespace of a store on a server in pieces that can be moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast
from uuid import uuid4

import numpy as np

from rlm_memory.engines.chunks import hash_of
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of
from rlm_memory.engines.rows import conditions_of
from rlm_memory.parts import (
    AccessPart,
    CheckpointPart,
    ChunkPart,
    EdgePart,
    ForgottenPart,
    HistoryPart,
    KeyValuePart,
    OutcomePart,
    Part,
    SessionPart,
    ThreadPart,
    UsePart,
    ValuePart,
    WritePart,
)
from rlm_memory.records import LogEntry
from rlm_memory.times import milliseconds

P = TypeVar("P", bound=Part)


class PostgresParts:
    """See `rlm_memory.ports.PartStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace = database.namespace

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, kind: type[P]) -> Generator[P, None, None]:
        with self._database.reading() as connection:
            make: Callable[..., Any] = kind
            if kind is OutcomePart:
                make = _outcome
            elif kind is ChunkPart:
                make = _chunk
            elif kind is WritePart:
                make = _write
            elif kind is CheckpointPart:
                make = _checkpoint_maker(Moments(connection, self._namespace))
            # by a cursor of the server: what it finds is not all held here
            with connection.cursor(f"rlm_{uuid4().hex}", binary=True) as cursor:
                cursor.itersize = 500
                cursor.execute(statements.READ_PARTS[kind.__name__].encode(), {"namespace": self._namespace})
                for row in cursor:
                    yield cast("P", make(*row))

    def count(self) -> int:
        with self._database.reading() as connection:
            return int(row_of(connection, statements.COUNT_PARTS, {"namespace": self._namespace})[0])

    def histories(self, ids: Sequence[str]) -> list[HistoryPart]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_HISTORIES, ([key_of(id) for id in ids], self._namespace))
        return [HistoryPart(*row) for row in rows]

    def unknown(self, ids: Iterable[str]) -> set[str]:
        asked = set(ids)
        with self._database.reading() as connection:
            return asked - self._nodes(connection, asked).keys()

    def _nodes(self, connection: Connection, ids: Iterable[str]) -> Mapping[str, int]:
        """Return the numbers of these nodes by their ids."""
        return dict(rows_of(connection, statements.SELECT_NUMBERS, (self._namespace, [key_of(id) for id in ids])))

    def chunks(self, kind: str, thread_id: str, numbers: Sequence[int]) -> list[bytes]:
        with self._database.reading() as connection:
            thread = self._threads(connection, [(kind, thread_id)])[kind, thread_id]
            rows = rows_of(connection, statements.SELECT_CHUNK_CONTENTS, (list(numbers), self._namespace, thread))
        return [bytes(content) for _, content in rows]

    def _threads(self, connection: Connection, names: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Return the numbers of these threads by kind and id."""
        found = {}
        for name in set(names):
            (found[name],) = row_of(connection, statements.SELECT_THREAD, (self._namespace, key_of(*name)))
        return found

    # -- writing ------------------------------------------------------------------------------------------------

    def set_histories(self, histories: Sequence[HistoryPart]) -> None:
        with self._database.transaction() as connection:
            connection.cursor().executemany(
                statements.SET_HISTORY,
                [
                    (each.tier, each.pinned, each.tier_since, each.faded_at, self._namespace, key_of(each.node))
                    for each in histories
                ],
            )

    def add(self, parts: Sequence[Part]) -> None:
        with self._database.transaction() as connection:
            first = int(row_of(connection, statements.TAKE_NUMBERS, (len(parts), self._namespace))[0]) - len(parts) + 1
            rows = self._rows(connection, first, parts)
            kind = type(parts[0]).__name__
            if kind in statements.COPY_PARTS:
                with connection.cursor().copy(statements.COPY_PARTS[kind].encode()) as copy:
                    for row in rows:
                        copy.write_row((self._namespace, *row))
            else:
                owned = [(self._namespace, *row) for row in rows]
                connection.cursor().executemany(statements.ADD_PART[kind].encode(), owned)
            connection.execute(statements.WEIGH_ALL, (self._namespace,))
            if isinstance(parts[0], CheckpointPart):
                self._add_values(connection, first, cast("Sequence[CheckpointPart]", parts))

    def _rows(self, connection: Connection, first: int, parts: Sequence[Part]) -> list[tuple[Any, ...]]:
        """Return the columns, but the namespace, of these parts, all of one kind, numbered from `first` on."""
        match parts[0]:
            case EdgePart():
                edges = cast("Sequence[EdgePart]", parts)
                nodes = self._nodes(connection, {id for edge in edges for id in (edge.source, edge.target)})
                return [(nodes[edge.source], nodes[edge.target], edge.kind, edge.created_at) for edge in edges]
            case SessionPart():
                sessions = cast("Sequence[SessionPart]", parts)
                return [(number, part.id, key_of(part.id), *part[1:]) for number, part in enumerate(sessions, first)]
            case KeyValuePart():
                values = cast("Sequence[KeyValuePart]", parts)
                return [
                    (part.collection, key_of(part.collection), part.key, key_of(part.key), number, part.value)
                    for number, part in enumerate(values, first)
                ]
            case ThreadPart():
                return [(number, *part, key_of(*part)) for number, part in enumerate(parts, first)]
            case AccessPart() | ForgottenPart() | UsePart() | OutcomePart():
                used = cast("Sequence[AccessPart | ForgottenPart | UsePart | OutcomePart]", parts)
                nodes = self._nodes(connection, {part.node for part in used})
                keys = [key_of(id) for id in {part.session for part in used}]
                known = dict(rows_of(connection, statements.SELECT_SESSION_NUMBERS, (self._namespace, keys)))
                return [
                    _row_of_use(part, number, known[part.session], nodes[part.node])
                    for number, part in enumerate(used, first)
                ]
            case ChunkPart() | CheckpointPart() | WritePart():
                within = cast("Sequence[ChunkPart | CheckpointPart | WritePart]", parts)
                threads = self._threads(connection, ((part.kind, part.thread) for part in within))
                moments = Moments(connection, self._namespace)
                return [
                    _row_in_thread(part, number, threads[part.kind, part.thread], moments)
                    for number, part in enumerate(within, first)
                ]

    def _add_values(self, connection: Connection, first: int, checkpoints: Sequence[CheckpointPart]) -> None:
        with connection.cursor().copy(statements.COPY_THREAD_VALUES.encode()) as copy:
            for number, checkpoint in enumerate(checkpoints, first):
                for value in checkpoint.values:
                    version = json.dumps(value.version)
                    copy.write_row((
                        self._namespace, number, value.channel, key_of(value.channel), version, *value[2:],
                    ))  # fmt: skip

    def log_end(self) -> tuple[str | None, int]:
        with self._database.reading() as connection:
            head, last = row_of(connection, statements.SELECT_LOG_HEAD, (self._namespace,)) or (None, 0)
            return head, last + 1

    def add_entries(self, entries: Sequence[LogEntry]) -> None:
        with self._database.transaction() as connection:
            rows = []
            for entry in entries:
                made = entry.decision
                assert made.at is not None  # it was logged
                rows.append((
                    self._namespace, entry.sequence, made.node_id, key_of(made.node_id), made.from_tier, made.to_tier,
                    made.rule, made.moved, made.actor, made.reason, conditions_of(made), made.session_id,
                    milliseconds(made.at), entry.previous_hash, entry.hash,
                ))  # fmt: skip
            connection.cursor().executemany(statements.INSERT_LOG_ENTRY, rows)
            head = (entries[-1].hash, entries[-1].sequence, self._namespace)
            connection.execute(statements.SET_LOG_HEAD, head)


class Moments:
    """How many entries of the log, and how many of today's nodes, there were at a moment; and the moment of so many."""

    def __init__(self, connection: Connection, namespace: Any) -> None:
        self._connection = connection
        self._namespace = namespace
        self._numbers: list[Any] = []

    def _of(self, which: int) -> Any:
        if not self._numbers:  # most reads ask for no moment
            for select in (statements.SELECT_ENTRY_NUMBERS, statements.SELECT_NODE_NUMBERS):
                rows = rows_of(self._connection, select, (self._namespace,))
                self._numbers.append(np.fromiter((number for (number,) in rows), dtype=np.int64))
        return self._numbers[which]

    def counts(self, entry: int, node: int) -> tuple[int, int]:
        """Return how many entries and nodes there were when these were the last."""
        entries, nodes = (np.searchsorted(self._of(which), last, "right") for which, last in ((0, entry), (1, node)))
        return int(entries), int(nodes)

    def last(self, entries: int, nodes: int) -> tuple[int, int]:
        """Return the last entry and the last node when there were so many, 0 for none."""
        ends = [self._of(which)[: max(count, 0)] for which, count in ((0, entries), (1, nodes))]
        return (int(ends[0][-1]) if len(ends[0]) else 0), (int(ends[1][-1]) if len(ends[1]) else 0)


def _outcome(session: str, node: str, run_key: Any, success: bool, at: int, learned: bool, runs: Any) -> OutcomePart:
    # of the run, the table has a hash alone until its accesses are forgotten; they have the name
    run_id = None if run_key is None else next((run for run in runs or () if key_of(run) == run_key), str(run_key))
    return OutcomePart(session, node, run_id, success, at, learned)


def _chunk(kind: str, thread: str, number: int, content: Any) -> ChunkPart:
    return ChunkPart(kind, thread, number, bytes(content))


def _write(*row: Any) -> WritePart:
    return WritePart._make((*row[:-1], bytes(row[-1])))


def _checkpoint_maker(moments: Moments) -> Callable[..., CheckpointPart]:
    def made(*row: Any) -> CheckpointPart:
        *who, created_at, entry, node, metadata, encoding, head, channels, versions, encodings, depths, contents = row
        stored = zip(channels or (), versions or (), encodings or (), depths or (), contents or (), strict=True)
        values = sorted(
            (ValuePart(name, json.loads(version), how, depth, bytes(content))
             for name, version, how, depth, content in stored),
            key=lambda value: value.channel,
        )  # fmt: skip
        counts = moments.counts(entry, node)
        return CheckpointPart._make((*who, created_at, *counts, metadata, encoding, bytes(head), tuple(values)))

    return made


def _row_of_use(
    part: AccessPart | ForgottenPart | UsePart | OutcomePart, number: int, session: int, node: int
) -> tuple[Any, ...]:
    match part:
        case AccessPart():
            return (number, session, node, *part[2:])
        case UsePart() | ForgottenPart():
            return (session, node, *part[2:])
        case OutcomePart():
            run_key = None if part.run_id is None else key_of(part.run_id)
            return (number, session, node, run_key, *part[2:])


def _row_in_thread(
    part: ChunkPart | CheckpointPart | WritePart, number: int, thread: int, moments: Moments
) -> tuple[Any, ...]:
    match part:
        case ChunkPart():
            return (thread, part.number, hash_of(part.content), part.content)
        case CheckpointPart():
            run_id = json.loads(part.metadata).get("run_id")
            return (
                number, thread, part.graph, key_of(part.graph), part.id, key_of(part.id), part.parent_id,
                part.created_at, part.metadata, key_of(run_id) if isinstance(run_id, str) else None, part.encoding,
                part.head, *moments.last(part.entries, part.nodes),
            )  # fmt: skip
        case WritePart():
            return (
                thread, part.graph, key_of(part.graph), part.checkpoint_id, key_of(part.checkpoint_id), part.task_id,
                key_of(part.task_id), *part[5:],
            )  # fmt: skip
