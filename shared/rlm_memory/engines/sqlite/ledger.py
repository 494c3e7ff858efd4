"""Sessions, accesses, outcomes and the promotion log of one namespace of a store file."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from rlm_memory.engines.rows import access_of, conditions_of, entry_of, forgotten_of, node_of, session_of, usages_of
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.engines.sqlite.index import node_range
from rlm_memory.engines.sqlite.journal import AccessJournal
from rlm_memory.engines.weighing import Weighed, weighed_of
from rlm_memory.errors import StoreBusyError
from rlm_memory.forks import renewed_in_child
from rlm_memory.ports import ToWeigh, Tracked, TrackedOutcome
from rlm_memory.promotion import Usage, chain_start, entry_hash
from rlm_memory.records import (
    Access,
    Edge,
    ForgottenAccesses,
    LogEntry,
    Node,
    PromotionDecision,
    SessionRecord,
    Tier,
)
from rlm_memory.times import milliseconds, moment


class SQLiteLedger:
    """See `rlm_memory.ports.Ledger`."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace
        self._journal = AccessJournal(None if database.in_memory else database.location, namespace)
        self._writing_down = threading.Lock()
        renewed_in_child(self)

    def _number(self, connection: apsw.Connection) -> int:
        """Return the number of this namespace; -1, which no row has, while there is none."""
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        return -1 if row is None else int(row[0])

    def _own_number(self, connection: apsw.Connection) -> int:
        """Return the number of this namespace, making it if it is new."""
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        return int((row or row_of(connection, statements.INSERT_NAMESPACE, (self._namespace,)))[0])

    # -- accesses -----------------------------------------------------------------------------------------------

    def track(self, tracked: Tracked | TrackedOutcome) -> None:
        self._journal.append(tracked)

    @property
    def queued(self) -> bool:
        return self._journal.queued

    @property
    def waiting(self) -> bool:
        return self._journal.waiting

    @contextlib.contextmanager
    def settling(self, *, wait: bool, durable: bool = False) -> Iterator[dict[str, list[str]]]:
        if self._database.in_transaction:
            raise StoreBusyError(f"{self._database.location}: accesses are written down in a transaction of their own")
        with (
            contextlib.ExitStack() as afterwards,
            self._database.transaction(durable=durable, wait=wait) as connection,
        ):
            # Only now: whoever waits for this lock does not wait for another process.
            afterwards.enter_context(self._writing_down)
            afterwards.push(self._journal.finish)
            yield self._write(connection, self._journal.take(connection))

    def until_settled(self) -> None:
        if not self._database.in_transaction:
            with self._writing_down:
                return

    def _write(self, connection: apsw.Connection, entries: Sequence[Tracked | TrackedOutcome]) -> dict[str, list[str]]:
        if not entries:
            return {}
        number = self._own_number(connection)
        used = self._count(connection, number, [entry for entry in entries if isinstance(entry, Tracked)])
        for entry in entries:  # only now: what another process has reported of the same run may come later in the list
            if isinstance(entry, TrackedOutcome):
                self._judge(connection, entry.session_id, entry.success, entry.at_ms, run_id=entry.run_id, ids=None)
        return used

    def _count(self, connection: apsw.Connection, number: int, tracked: Sequence[Tracked]) -> dict[str, list[str]]:
        """Write accesses down, and what the rules weigh of them; each session and node is looked up once."""
        sessions: dict[str, tuple[int, int, int]] = {}
        for entry in tracked:
            first, last, turn = sessions.get(entry.session_id, (entry.at_ms, entry.at_ms, entry.turn))
            sessions[entry.session_id] = min(first, entry.at_ms), max(last, entry.at_ms), max(turn, entry.turn)
        numbers = {
            id: int(row_of(connection, statements.TOUCH_SESSION, (number, id, *of_session))[0])
            for id, of_session in sessions.items()
        }
        ids = {id: None for entry in tracked for id, _ in entry.nodes}
        nodes: dict[str, int] = dict(
            rows_of(connection, statements.SELECT_NODES_TO_COUNT, (json.dumps(list(ids)), number))
        )
        accesses: list[tuple[Any, ...]] = []
        uses: dict[tuple[int, int, int, str], tuple[float, int]] = {}
        counts: dict[int, tuple[int, int]] = {}
        used: dict[str, dict[str, None]] = {}
        for entry in tracked:
            at = entry.at_ms
            for id, confidence in entry.nodes:
                if (node := nodes.get(id)) is None:
                    continue
                use = (node, numbers[entry.session_id], entry.turn, entry.writer)
                accesses.append((*use, confidence, at, entry.run_id))
                lowest, latest = uses.get(use, (confidence, at))
                uses[use] = min(lowest, confidence), max(latest, at)
                count, latest = counts.get(node, (0, at))
                counts[node] = count + 1, max(latest, at)
                used.setdefault(entry.session_id, {})[id] = None
        connection.executemany(statements.COUNT_USE, [(*use, *seen) for use, seen in uses.items()])
        connection.executemany(statements.INSERT_ACCESS, accesses)
        connection.executemany(statements.COUNT_ACCESSES, [(*seen, node) for node, seen in counts.items()])
        return {session_id: list(found) for session_id, found in used.items()}

    def close(self) -> None:
        with self._writing_down:
            self._journal.close()

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held the lock."""
        self._writing_down = threading.Lock()

    def usage(self, ids: Sequence[str], *, session_id: str | None = None) -> dict[str, Usage]:
        asked = json.dumps(list(ids))
        with self._database.reading() as connection:
            number = self._number(connection)
            outcomes = rows_of(connection, statements.SELECT_OUTCOMES, (asked, number))
            if session_id is None:
                uses = rows_of(connection, statements.SELECT_USES, (asked, number))
            else:
                uses = rows_of(connection, statements.SELECT_USES_IN, (asked, number, session_id))
        return usages_of(uses, outcomes)

    def accesses(self, id: str) -> list[Access]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_ACCESSES, (self._number(connection), id))
        return [access_of(row) for row in rows]

    def forgotten_accesses(self, id: str) -> list[ForgottenAccesses]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_FORGOTTEN, (self._number(connection), id))
        return [forgotten_of(row) for row in rows]

    def forget_accesses(self, before_ms: int, limit: int) -> bool:
        left = limit
        with self._database.transaction(durable=False) as connection:
            number = self._number(connection)
            while left > 0:
                row = row_of(connection, statements.SELECT_SESSION_TO_FORGET, (number, before_ms))
                if row is None:
                    return False
                found = [
                    access for (access,) in rows_of(connection, statements.SELECT_ACCESSES_TO_FORGET, (*row, left))
                ]
                chosen = (json.dumps(found),)
                connection.execute(statements.SUM_FORGOTTEN, chosen)
                connection.execute(statements.FORGET_ACCESSES, chosen)
                if len(found) < left:
                    connection.execute(statements.SET_KEPT, (False, *row))
                left -= max(len(found), 1)  # sessions without any are work too
        return True

    # -- sessions -----------------------------------------------------------------------------------------------

    def session(self, session_id: str) -> SessionRecord | None:
        with self._database.reading() as connection:
            row = self._session_row(connection, session_id)
        return None if row is None else session_of(row)

    def _session_row(self, connection: apsw.Connection, session_id: str) -> Any:
        return row_of(connection, statements.SELECT_SESSION, (self._number(connection), session_id))

    def sessions(self, *, limit: int) -> list[SessionRecord]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.LIST_SESSIONS, (self._number(connection), limit))
        return [session_of(row) for row in rows]

    def idle_sessions(self, before_ms: int) -> list[str]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_IDLE_SESSIONS, (self._number(connection), before_ms))
        return [id for (id,) in rows]

    def end_session(self, session_id: str, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.END_SESSION, (at_ms, self._number(connection), session_id))

    def ids_used_in(self, session_id: str, tier: Tier, *, limit: int | None = None) -> list[str]:
        with self._database.reading() as connection:
            asked = (self._number(connection), session_id, tier, -1 if limit is None else limit)
            return [id for (id,) in rows_of(connection, statements.SELECT_IDS_IN_SESSION, asked)]

    def used_in(self, session_id: str, tier: Tier, ids: Sequence[str]) -> list[Node]:
        with self._database.reading() as connection:
            number = self._number(connection)
            asked = (json.dumps(list(ids)), number, number, session_id, tier)
            rows = rows_of(connection, statements.SELECT_NODES_IN_SESSION, asked)
        return [node_of(found, self._namespace) for found in rows]

    def judge(
        self, session_id: str, success: bool, at_ms: int, *, run_id: str | None, ids: Sequence[str] | None
    ) -> list[str]:
        with self._database.transaction() as connection:
            return self._judge(connection, session_id, success, at_ms, run_id=run_id, ids=ids)

    def _judge(
        self,
        connection: apsw.Connection,
        session_id: str,
        success: bool,
        at_ms: int,
        *,
        run_id: str | None,
        ids: Sequence[str] | None,
    ) -> list[str]:
        row = self._session_row(connection, session_id)
        if row is None:
            return []
        asked = None if ids is None else json.dumps(list(ids))
        nodes = rows_of(connection, statements.SELECT_TO_JUDGE, (row[0], run_id, asked))
        connection.executemany(statements.INSERT_OUTCOME, [(node, row[0], run_id, success, at_ms) for node, _ in nodes])
        connection.executemany(statements.MARK_JUDGED, [(row[0], node, run_id) for node, _ in nodes])
        if run_id is None:
            connection.executemany(statements.MARK_FORGOTTEN_JUDGED, [(row[0], node) for node, _ in nodes])
        connection.execute(statements.SET_KEPT, (True, row[0]))  # runs that waited may be forgotten from now on
        return [id for _, id in nodes]

    def forget_usage(self, id: str) -> None:
        with self._database.transaction() as connection:
            owner = (self._number(connection), id)
            connection.execute(statements.FORGET_USES, owner)
            connection.execute(statements.FORGET_OUTCOMES, owner)

    # -- tiers and confidence -----------------------------------------------------------------------------------

    def set_tier(self, id: str, tier: Tier, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_TIER, (tier, at_ms, self._number(connection), id))

    def set_pinned(self, id: str, pinned: bool, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_PINNED, (pinned, at_ms, self._number(connection), id))

    def set_confidences(self, confidences: Mapping[str, float], *, faded_at_ms: int | None = None) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            connection.executemany(
                statements.SET_CONFIDENCE, [(value, faded_at_ms, number, id) for id, value in confidences.items()]
            )

    def fading(self, *, after: int, limit: int) -> list[tuple[int, str, float, int]]:
        with self._database.reading() as connection:
            first, last = node_range(self._number(connection))
            return rows_of(connection, statements.SELECT_FADING, (max(first, after), last, limit))

    def unlearned(self, *, after: int, limit: int) -> list[tuple[int, str, bool]]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_UNLEARNED, (after, self._number(connection), limit))
        return [(outcome, id, bool(success)) for outcome, id, success in rows]

    def mark_learned(self, outcomes: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            connection.executemany(statements.MARK_LEARNED, [(outcome,) for outcome in outcomes])

    def begin_weighing(self, rules: str) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            self._note_weighed(connection, number, self._weighed(connection, number, rules).begun())

    def to_weigh(self, least_sessions: int, rules: str) -> ToWeigh:
        with self._database.reading() as connection:
            number = self._number(connection)
            weighed = self._weighed(connection, number, rules)
            asked = (number, least_sessions, weighed.up_to)
            listed = rows_of(connection, statements.SELECT_UNWEIGHED, node_range(number))
            proved = rows_of(connection, statements.SELECT_PROVED, asked)
        return ToWeigh(sorted({node for (node,) in (*listed, *proved)} | weighed.missed), weighed.era)

    def note_weighed(self, numbers: Sequence[int], rules: str, era: int | None) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            weighed = self._weighed(connection, number, rules)
            if weighed.era is None:
                return  # the list is for other rules now
            taken = rows_of(connection, statements.FORGET_UNWEIGHED, (json.dumps(list(numbers)),))
            weighed = weighed.and_nodes(numbers, [node for (node,) in taken])
            self._note_weighed(connection, number, weighed.and_up_to(max(numbers)) if weighed.era == era else weighed)

    @staticmethod
    def _weighed(connection: apsw.Connection, number: int, rules: str) -> Weighed:
        row = row_of(connection, statements.SELECT_WEIGHED_BY, (number,))
        return weighed_of(None if row is None else row[0], rules)

    @staticmethod
    def _note_weighed(connection: apsw.Connection, number: int, weighed: Weighed) -> None:
        connection.execute(statements.SET_WEIGHED_BY, (weighed.text, number))

    def unused(self, before_ms: int) -> list[int]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_UNUSED, (self._number(connection), before_ms))
        return [node for (node,) in rows]

    def among(self, numbers: Sequence[int], tier: Tier, least_sessions: int) -> list[Node]:
        with self._database.reading() as connection:
            asked = (json.dumps(list(numbers)), least_sessions, tier)
            rows = rows_of(connection, statements.SELECT_AMONG, asked)
        return [node_of(row, self._namespace) for row in rows]

    def used(self) -> list[Node]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_USED, (self._number(connection),))
        return [node_of(row, self._namespace) for row in rows]

    def births(self) -> list[tuple[str, int]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_BIRTHS, (self._number(connection),))

    def last_sweep(self) -> int | None:
        with self._database.reading() as connection:
            row = row_of(connection, statements.SELECT_LAST_SWEEP, (self._number(connection),))
        return None if row is None else row[0]

    def note_sweep(self, at_ms: int, rules: str, era: int | None) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            connection.execute(statements.SET_LAST_SWEEP, (at_ms, number))
            weighed = self._weighed(connection, number, rules)
            if weighed.era is not None and weighed.era == era:
                self._note_weighed(connection, number, weighed.and_up_to())

    def note_sweep_elsewhere(self, at_ms: int) -> None:
        with self._database.transaction() as connection:
            number = self._number(connection)
            connection.execute(statements.SET_LAST_SWEEP, (at_ms, number))
            connection.execute(statements.WEIGH_ALL, (number,))

    def link(self, source: str, target: str, kind: str, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.INSERT_EDGE, (kind, at_ms, self._number(connection), source, target))

    def links(self, id: str) -> list[Edge]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_EDGES, (self._number(connection), id))
        return [Edge(source, target, kind, moment(at)) for source, target, kind, at in rows]

    # -- the log ------------------------------------------------------------------------------------------------

    def append(self, decision: PromotionDecision) -> None:
        assert decision.at is not None  # every decision that is logged was made at some time
        with self._database.transaction() as connection:
            number = self._own_number(connection)
            _, head, last = row_of(connection, statements.SELECT_LOG_HEAD, (number,))
            previous, sequence = head or chain_start(self._namespace), (last or 0) + 1
            hashed = entry_hash(previous, sequence, decision)
            connection.execute(
                statements.INSERT_LOG_ENTRY,
                (
                    sequence, number, decision.node_id, decision.from_tier, decision.to_tier, decision.rule,
                    decision.moved, decision.actor, decision.reason, conditions_of(decision), decision.session_id,
                    milliseconds(decision.at), previous, hashed,
                ),
            )  # fmt: skip
            connection.execute(statements.SET_LOG_HEAD, (hashed, number))

    def log(self, *, after: int, node_id: str | None, since_ms: int | None, limit: int) -> list[LogEntry]:
        with self._database.reading() as connection:
            values = [self._number(connection), after, since_ms, limit]
            if node_id is None:
                rows = rows_of(connection, statements.SELECT_LOG, values)
            else:
                rows = rows_of(connection, statements.SELECT_LOG_OF_NODE, [*values, node_id])
            return [entry_of(row) for row in rows]

    def was_refused(self, decision: PromotionDecision) -> bool:
        with self._database.reading() as connection:
            values = (self._number(connection), decision.node_id, decision.session_id, decision.rule)
            return row_of(connection, statements.SELECT_REFUSAL, values) is not None
