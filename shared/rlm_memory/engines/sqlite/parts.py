"""A namespace of a store file in pieces that can be moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import apsw
import numpy as np

from rlm_memory.engines.chunks import hash_of
from rlm_memory.engines.rows import conditions_of
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.engines.sqlite.index import node_range
from rlm_memory.engines.sqlite.namespaces import number_of, own_number_of
from rlm_memory.engines.sqlite.threads import Valued, row_of_values, values_of_row
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


class SQLiteParts:
    """See `rlm_memory.ports.PartStore`."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, kind: type[P]) -> Generator[P, None, None]:
        with self._database.reading() as connection:
            number = number_of(connection, self._namespace)
            moments = Moments(connection, number)
            make: Callable[..., Any] = kind
            if kind in _FLAGS:
                make = _with_flags(make, _FLAGS[kind])
            elif kind is CheckpointPart:
                make = _checkpoint_maker(moments)
            lowest, highest = node_range(number)
            owner = {"namespace": number, "lowest": lowest, "highest": highest}
            for row in connection.execute(statements.READ_PARTS[kind.__name__], owner):
                yield cast("P", make(*row))

    def count(self) -> int:
        with self._database.reading() as connection:
            lowest, highest = node_range(number := number_of(connection, self._namespace))
            owner = {"namespace": number, "lowest": lowest, "highest": highest}
            return sum(count for select in statements.COUNT_PARTS for (count,) in connection.execute(select, owner))

    def histories(self, ids: Sequence[str]) -> list[HistoryPart]:
        with self._database.reading() as connection:
            asked = (json.dumps(list(ids)), number_of(connection, self._namespace))
            rows = rows_of(connection, statements.SELECT_HISTORIES, asked)
        return [HistoryPart(id, tier, bool(pinned), since, faded) for id, tier, pinned, since, faded in rows]

    def unknown(self, ids: Iterable[str]) -> set[str]:
        asked = set(ids)
        with self._database.reading() as connection:
            known = self._nodes(connection, asked)
        return asked - known.keys()

    def _nodes(self, connection: apsw.Connection, ids: Iterable[str]) -> Mapping[str, int]:
        """Return the numbers of these nodes by their ids."""
        asked = (json.dumps(list(ids)), number_of(connection, self._namespace))
        return {id: node for id, node, *_ in rows_of(connection, statements.SELECT_STORED, asked)}

    def chunks(self, kind: str, thread_id: str, numbers: Sequence[int]) -> list[bytes]:
        with self._database.reading() as connection:
            thread = self._threads(connection, [(kind, thread_id)])[kind, thread_id]
            rows = rows_of(connection, statements.SELECT_CHUNK_CONTENTS, (json.dumps(list(numbers)), thread))
        return [content for _, content in rows]

    def _threads(self, connection: apsw.Connection, names: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Return the numbers of these threads by kind and id."""
        found = {}
        for kind, id in set(names):
            found[kind, id], _ = row_of(connection, statements.SELECT_THREAD, (kind, id, self._namespace))
        return found

    # -- writing ------------------------------------------------------------------------------------------------

    def set_histories(self, histories: Sequence[HistoryPart]) -> None:
        with self._database.transaction() as connection:
            number = number_of(connection, self._namespace)
            connection.executemany(
                statements.SET_HISTORY,
                [(each.tier, each.pinned, each.tier_since, each.faded_at, number, each.node) for each in histories],
            )

    def add(self, parts: Sequence[Part]) -> None:
        with self._database.transaction() as connection:
            number = own_number_of(connection, self._namespace)
            statement = statements.ADD_PART[type(parts[0]).__name__]
            connection.executemany(statement, self._rows(connection, number, parts))
            connection.execute(statements.WEIGH_ALL, (number,))

    def _rows(self, connection: apsw.Connection, number: int, parts: Sequence[Part]) -> list[tuple[Any, ...]]:
        """Return what is bound to store these parts, all of one kind."""
        match parts[0]:
            case EdgePart():
                edges = cast("Sequence[EdgePart]", parts)
                nodes = self._nodes(connection, {id for edge in edges for id in (edge.source, edge.target)})
                return [(nodes[edge.source], nodes[edge.target], edge.kind, edge.created_at) for edge in edges]
            case SessionPart() | KeyValuePart() | ThreadPart():
                return [(number, *part) for part in parts]
            case AccessPart() | ForgottenPart() | UsePart() | OutcomePart():
                used = cast("Sequence[AccessPart | ForgottenPart | UsePart | OutcomePart]", parts)
                nodes = self._nodes(connection, {part.node for part in used})
                names = json.dumps(list({part.session for part in used}))
                sessions = dict(rows_of(connection, statements.SELECT_SESSION_NUMBERS, (names, number)))
                return [(sessions[part.session], nodes[part.node], *part[2:]) for part in used]
            case ChunkPart() | CheckpointPart() | WritePart():
                within = cast("Sequence[ChunkPart | CheckpointPart | WritePart]", parts)
                threads = self._threads(connection, ((part.kind, part.thread) for part in within))
                moments = Moments(connection, number)
                return [_row_in_thread(part, threads[part.kind, part.thread], moments) for part in within]

    def log_end(self) -> tuple[str | None, int]:
        with self._database.reading() as connection:
            row = row_of(connection, statements.SELECT_LOG_HEAD, (number_of(connection, self._namespace),))
            (last,) = row_of(connection, statements.SELECT_LAST_ENTRY)
        return (None if row is None else row[1]), last + 1

    def add_entries(self, entries: Sequence[LogEntry]) -> None:
        with self._database.transaction() as connection:
            number = own_number_of(connection, self._namespace)
            rows = []
            for entry in entries:
                made = entry.decision
                assert made.at is not None  # it was logged
                rows.append((
                    entry.sequence, number, made.node_id, made.from_tier, made.to_tier, made.rule, made.moved,
                    made.actor, made.reason, conditions_of(made), made.session_id, milliseconds(made.at),
                    entry.previous_hash, entry.hash,
                ))  # fmt: skip
            connection.executemany(statements.INSERT_LOG_ENTRY, rows)
            connection.execute(statements.SET_LOG_HEAD, (entries[-1].hash, number))


class Moments:
    """How many entries of the log, and how many of today's nodes, there were at a moment; and the moment of so many."""

    def __init__(self, connection: apsw.Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self._numbers: list[Any] = []

    def _of(self, which: int) -> Any:
        if not self._numbers:  # most reads ask for no moment
            for select in (statements.SELECT_ENTRY_NUMBERS, statements.SELECT_NODE_NUMBERS):
                rows = self._connection.execute(select, (self._number,))
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


_FLAGS: Final[Mapping[type, tuple[int, ...]]] = {AccessPart: (7,), ForgottenPart: (6,), OutcomePart: (3, 5)}
"""Where the kinds have booleans, which are numbers in the file."""


def _with_flags(make: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
    def made(*row: Any) -> Any:
        return make(*(bool(value) if place in places else value for place, value in enumerate(row)))

    return made


def _checkpoint_maker(moments: Moments) -> Callable[..., CheckpointPart]:
    def made(*row: Any) -> CheckpointPart:
        *who, created_at, entry, node, metadata, encoding, head, channels, contents = row
        values = sorted((ValuePart(*value) for value in values_of_row(channels, contents)), key=lambda v: v.channel)
        counts = moments.counts(entry, node)
        return CheckpointPart._make((*who, created_at, *counts, metadata, encoding, head, tuple(values)))

    return made


def _row_in_thread(part: ChunkPart | CheckpointPart | WritePart, thread: int, moments: Moments) -> tuple[Any, ...]:
    match part:
        case ChunkPart():
            return thread, part.number, hash_of(part.content), part.content
        case CheckpointPart():
            state = (part.metadata, part.encoding, part.head)
            row = row_of_values([Valued(*value) for value in part.values])
            moment = moments.last(part.entries, part.nodes)
            return (thread, part.graph, part.id, part.parent_id, part.created_at, *state, *moment, *row)
        case WritePart():
            return (thread, *part[2:])
