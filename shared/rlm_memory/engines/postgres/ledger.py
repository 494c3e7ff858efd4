"""Sessions, accesses, outcomes and the promotion log of one namespace of a store on a server."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from rlm_memory.conflicts import repeated
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of
from rlm_memory.engines.reports import Report, line_of, report_of
from rlm_memory.engines.rows import access_of, conditions_of, entry_of, forgotten_of, node_of, session_of, usages_of
from rlm_memory.engines.weighing import Weighed, weighed_of
from rlm_memory.errors import StoreBusyError, StoreClosedError, StoreError
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

_RANDOM_BITS: Final = 64

_logger = logging.getLogger("rlm_memory")


class PostgresLedger:
    """See `rlm_memory.ports.Ledger`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace = database.namespace
        self._name = database.name
        self._writing_down = threading.Lock()
        self._lock = threading.Lock()
        self._sent = 0  # reports of this handle that are on the server, and how many of them are surely written down
        self._settled = 0
        self._unsent: list[Report] = []  # those that the server would not take
        renewed_in_child(self)

    # -- accesses -----------------------------------------------------------------------------------------------

    def track(self, tracked: Tracked | TrackedOutcome) -> None:
        report = UUID(int=time.time_ns() << _RANDOM_BITS | uuid4().int & (1 << _RANDOM_BITS) - 1)
        try:
            self._database.at_once(statements.PUT_REPORT, (self._namespace, report, line_of(tracked)))
        except StoreClosedError:
            raise
        except StoreError as error:  # a search is not to fail for that: what it found is worth more than its trace
            _logger.warning("Accesses are kept in memory alone, the server does not take them: %s", error)
            with self._lock:
                self._unsent.append(tracked)
            return
        with self._lock:
            self._sent += 1

    @property
    def queued(self) -> bool:
        return self._sent > self._settled or bool(self._unsent)

    @property
    def waiting(self) -> bool:
        if self.queued:
            return True
        with self._database.reading() as connection:
            return bool(row_of(connection, statements.HAS_REPORTS, (self._namespace,))[0])

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
            with self._lock:
                sent, unsent = self._sent, list(self._unsent)
            rows = rows_of(connection, statements.TAKE_REPORTS, (self._namespace,))
            reports = [report for _, line in sorted(rows) if (report := report_of(line)) is not None]
            yield self._write(connection, [*reports, *unsent])
        with self._lock:
            self._settled = max(self._settled, sent)
            del self._unsent[: len(unsent)]

    def until_settled(self) -> None:
        if not self._database.in_transaction:
            with self._writing_down:
                return

    def _write(self, connection: Connection, reports: Sequence[Report]) -> dict[str, list[str]]:
        tracked = [report for report in reports if isinstance(report, Tracked)]
        if not reports:
            return {}
        used: dict[str, dict[str, None]] = {}
        known = self._numbers(connection, [id for report in tracked for id, _ in report.nodes])
        count = len(tracked) + sum(len(report.nodes) for report in tracked)
        number = int(row_of(connection, statements.TAKE_NUMBERS, (count, self._namespace))[0]) - count
        rows: list[dict[str, Any]] = []
        for report in tracked:
            number += 1
            shared: dict[str, Any] = {"namespace": self._namespace, "at": report.at_ms, "turn": report.turn}
            session = {"number": number, "id": report.session_id, "key": key_of(report.session_id), **shared}
            (shared["session"],) = row_of(connection, statements.TOUCH_SESSION, session)
            shared |= {"writer": report.writer, "run_id": report.run_id}
            for id, confidence in report.nodes:
                number += 1
                if id in known:
                    rows.append({**shared, "node": known[id], "confidence": confidence, "access": number})
                used.setdefault(report.session_id, {})[id] = None
        # Hits of one turn are one use. Turns are told apart by their writer too: two processes may be in the same
        # session, each with a turn 1.
        asked = [list({row[column] for row in rows}) for column in ("node", "session", "turn")]
        turns = set(rows_of(connection, statements.SELECT_TURNS, (self._namespace, *asked)))
        with connection.pipeline():
            for row in rows:
                turn = (row["node"], row["session"], row["turn"], row["writer"])
                row["turns"] = int(turn not in turns)
                turns.add(turn)
                for statement in (statements.COUNT_USE, statements.INSERT_ACCESS, statements.COUNT_ACCESS):
                    connection.execute(statement, row)
        connection.execute(statements.NOTE_UNWEIGHED, (self._namespace, list({row["node"] for row in rows})))
        for outcome in reports:  # only now: accesses that another process has reported of its run may come later
            if isinstance(outcome, TrackedOutcome):
                run = (outcome.session_id, outcome.success, outcome.at_ms)
                self._judge(connection, *run, run_id=outcome.run_id, ids=None)
        return {session_id: list(ids) for session_id, ids in used.items()}

    def _numbers(self, connection: Connection, ids: Sequence[str]) -> dict[str, int]:
        keys = [key_of(id) for id in dict.fromkeys(ids)]
        return dict(rows_of(connection, statements.SELECT_NUMBERS, (self._namespace, keys)))

    def close(self) -> None:
        with self._lock:
            lost, self._unsent = len(self._unsent), []
        if lost:
            _logger.error("%d reports of accesses are lost: the server could not be reached", lost)

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held a lock; what it could not send is its own to send."""
        self._writing_down = threading.Lock()
        self._lock = threading.Lock()
        self._unsent = []

    def usage(self, ids: Sequence[str], *, session_id: str | None = None) -> dict[str, Usage]:
        asked = (self._namespace, [key_of(id) for id in ids])
        with self._database.reading() as connection:
            outcomes = rows_of(connection, statements.SELECT_OUTCOMES, asked)
            if session_id is None:
                uses = rows_of(connection, statements.SELECT_USES, asked)
            else:
                uses = rows_of(connection, statements.SELECT_USES_IN, (self._namespace, key_of(session_id), *asked))
        return usages_of(uses, outcomes)

    @repeated
    def accesses(self, id: str) -> list[Access]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_ACCESSES, (self._namespace, key_of(id)))
        return [access_of(row) for row in rows]

    @repeated
    def forgotten_accesses(self, id: str) -> list[ForgottenAccesses]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_FORGOTTEN, (self._namespace, key_of(id)))
        return [forgotten_of(row) for row in rows]

    def forget_accesses(self, before_ms: int, limit: int) -> bool:
        left = limit
        with self._database.transaction(durable=False) as connection:
            while left > 0:
                row = row_of(connection, statements.SELECT_SESSION_TO_FORGET, (self._namespace, before_ms))
                if row is None:
                    return False
                asked = (self._namespace, *row, left)
                found = [access for (access,) in rows_of(connection, statements.SELECT_ACCESSES_TO_FORGET, asked)]
                connection.execute(statements.SUM_FORGOTTEN, (self._namespace, found))
                runs = rows_of(connection, statements.SELECT_RUNS_TO_FORGET, (self._namespace, found))
                named = [(id, self._namespace, node, session, key_of(id)) for node, session, id in runs]
                connection.cursor().executemany(statements.SET_RUN_ID, named)
                connection.execute(statements.FORGET_ACCESSES, (self._namespace, found))
                if len(found) < left:
                    connection.execute(statements.SET_KEPT, (False, self._namespace, *row))
                left -= max(len(found), 1)  # sessions without any are work too
        return True

    # -- sessions -----------------------------------------------------------------------------------------------

    @repeated
    def session(self, session_id: str) -> SessionRecord | None:
        with self._database.reading() as connection:
            row = self._session_row(connection, session_id)
        return None if row is None else session_of(row)

    def _session_row(self, connection: Connection, session_id: str) -> Any:
        return row_of(connection, statements.SELECT_SESSION, (self._namespace, key_of(session_id)))

    @repeated
    def sessions(self, *, limit: int) -> list[SessionRecord]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.LIST_SESSIONS, (self._namespace, limit))
        return [session_of(row) for row in rows]

    def idle_sessions(self, before_ms: int) -> list[str]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_IDLE_SESSIONS, (self._namespace, before_ms))
        return [id for (id,) in rows]

    def end_session(self, session_id: str, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.END_SESSION, (at_ms, self._namespace, key_of(session_id)))

    def ids_used_in(self, session_id: str, tier: Tier, *, limit: int | None = None) -> list[str]:
        with self._database.reading() as connection:
            asked = (self._namespace, self._namespace, key_of(session_id), tier, limit)
            return [id for (id,) in rows_of(connection, statements.SELECT_IDS_IN_SESSION, asked)]

    def used_in(self, session_id: str, tier: Tier, ids: Sequence[str]) -> list[Node]:
        with self._database.reading() as connection:
            asked = (self._namespace, self._namespace, key_of(session_id), tier, [key_of(id) for id in ids])
            rows = rows_of(connection, statements.SELECT_NODES_IN_SESSION, asked)
        return [node_of(found, self._name) for found in rows]

    def judge(
        self, session_id: str, success: bool, at_ms: int, *, run_id: str | None, ids: Sequence[str] | None
    ) -> list[str]:
        with self._database.transaction() as connection:
            return self._judge(connection, session_id, success, at_ms, run_id=run_id, ids=ids)

    def _judge(
        self,
        connection: Connection,
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
        run_key = None if run_id is None else key_of(run_id)
        asked = {
            "namespace": self._namespace,
            "session": row[0],
            "run_id": run_id,
            "run_key": run_key,
            "keys": None if ids is None else [key_of(id) for id in ids],
        }
        nodes = rows_of(connection, statements.SELECT_TO_JUDGE, asked)
        if nodes:
            last = row_of(connection, statements.TAKE_NUMBERS, (len(nodes), self._namespace))[0]
            outcomes = [
                (self._namespace, last - place, node, row[0], run_key, success, at_ms)
                for place, (node, _) in enumerate(reversed(nodes))
            ]
            connection.cursor().executemany(statements.INSERT_OUTCOME, outcomes)
            judged = (self._namespace, row[0], [node for node, _ in nodes], run_id, run_id)
            connection.execute(statements.MARK_JUDGED, judged)
            if run_id is None:
                connection.execute(statements.MARK_FORGOTTEN_JUDGED, judged[:3])
            # Runs that waited may be forgotten from now on.
            connection.execute(statements.SET_KEPT, (True, self._namespace, row[0]))
            connection.execute(statements.NOTE_UNWEIGHED, (self._namespace, judged[2]))
        return [id for _, id in nodes]

    def forget_usage(self, id: str) -> None:
        with self._database.transaction() as connection:
            owner = (self._namespace, self._namespace, key_of(id))
            connection.execute(statements.FORGET_USES, owner)
            connection.execute(statements.FORGET_OUTCOMES, owner)

    # -- tiers and confidence -----------------------------------------------------------------------------------

    def set_tier(self, id: str, tier: Tier, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_TIER, (tier, at_ms, self._namespace, key_of(id)))
            connection.execute(statements.NOTE_UNWEIGHED_IDS, (self._namespace, [key_of(id)]))

    def set_pinned(self, id: str, pinned: bool, at_ms: int) -> None:
        with self._database.transaction() as connection:
            values = {"pinned": pinned, "at": at_ms, "namespace": self._namespace, "key": key_of(id)}
            connection.execute(statements.SET_PINNED, values)

    def set_confidences(self, confidences: Mapping[str, float], *, faded_at_ms: int | None = None) -> None:
        with self._database.transaction() as connection:
            keys = [key_of(id) for id in confidences]
            values = (faded_at_ms, keys, list(confidences.values()), self._namespace)
            connection.execute(statements.SET_CONFIDENCES, values)
            connection.execute(statements.NOTE_UNWEIGHED_IDS, (self._namespace, keys))

    def fading(self, *, after: int, limit: int) -> list[tuple[int, str, float, int]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_FADING, (self._namespace, after, limit))

    def unlearned(self, *, after: int, limit: int) -> list[tuple[int, str, bool]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_UNLEARNED, (self._namespace, after, limit))

    def mark_learned(self, outcomes: Sequence[int]) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.MARK_LEARNED, (self._namespace, list(outcomes)))

    def begin_weighing(self, rules: str) -> None:
        with self._database.transaction() as connection:
            self._note_weighed(connection, self._weighed(connection, rules).begun())

    def to_weigh(self, least_sessions: int, rules: str) -> ToWeigh:
        with self._database.reading() as connection:
            weighed = self._weighed(connection, rules)
            asked = {"namespace": self._namespace, "least": least_sessions, "after": weighed.up_to}
            listed = rows_of(connection, statements.SELECT_UNWEIGHED, (self._namespace,))
            proved = rows_of(connection, statements.SELECT_PROVED, asked)
        return ToWeigh(sorted({node for (node,) in (*listed, *proved)} | weighed.missed), weighed.era)

    def note_weighed(self, numbers: Sequence[int], rules: str, era: int | None) -> None:
        with self._database.transaction() as connection:
            weighed = self._weighed(connection, rules)
            if weighed.era is None:
                return  # the list is for other rules now
            taken = rows_of(connection, statements.FORGET_UNWEIGHED, (self._namespace, list(numbers)))
            weighed = weighed.and_nodes(numbers, [node for (node,) in taken])
            self._note_weighed(connection, weighed.and_up_to(max(numbers)) if weighed.era == era else weighed)

    def _weighed(self, connection: Connection, rules: str) -> Weighed:
        row = row_of(connection, statements.SELECT_WEIGHED_BY, (self._namespace,))
        return weighed_of(None if row is None else row[0], rules)

    def _note_weighed(self, connection: Connection, weighed: Weighed) -> None:
        connection.execute(statements.SET_WEIGHED_BY, (weighed.text, self._namespace))

    def unused(self, before_ms: int) -> list[int]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_UNUSED, (self._namespace, before_ms, before_ms))
        return [node for (node,) in rows]

    def among(self, numbers: Sequence[int], tier: Tier, least_sessions: int) -> list[Node]:
        asked = {"namespace": self._namespace, "numbers": list(numbers), "tier": tier, "least": least_sessions}
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_AMONG, asked)
        return [node_of(row, self._name) for row in rows]

    def used(self) -> list[Node]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_USED, (self._namespace,))
        return [node_of(row, self._name) for row in rows]

    def births(self) -> list[tuple[str, int]]:
        with self._database.reading() as connection:
            return rows_of(connection, statements.SELECT_BIRTHS, (self._namespace,))

    def last_sweep(self) -> int | None:
        with self._database.reading() as connection:
            row = row_of(connection, statements.SELECT_LAST_SWEEP, (self._namespace,))
        return None if row is None else row[0]

    def note_sweep(self, at_ms: int, rules: str, era: int | None) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_LAST_SWEEP, (at_ms, self._namespace))
            weighed = self._weighed(connection, rules)
            if weighed.era is not None and weighed.era == era:
                self._note_weighed(connection, weighed.and_up_to())

    def note_sweep_elsewhere(self, at_ms: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.SET_LAST_SWEEP, (at_ms, self._namespace))
            connection.execute(statements.WEIGH_ALL, (self._namespace,))

    def link(self, source: str, target: str, kind: str, at_ms: int) -> None:
        with self._database.transaction() as connection:
            values = (kind, at_ms, self._namespace, key_of(source), key_of(target))
            connection.execute(statements.INSERT_EDGE, values)

    @repeated
    def links(self, id: str) -> list[Edge]:
        with self._database.reading() as connection:
            values = {"namespace": self._namespace, "key": key_of(id)}
            rows = rows_of(connection, statements.SELECT_EDGES, values)
        return [Edge(source, target, kind, moment(at)) for source, target, kind, at in rows]

    # -- the log ------------------------------------------------------------------------------------------------

    def append(self, decision: PromotionDecision) -> None:
        assert decision.at is not None  # every decision that is logged was made at some time
        with self._database.transaction() as connection:
            head, last = row_of(connection, statements.SELECT_LOG_HEAD, (self._namespace,))
            previous, sequence = head or chain_start(self._name), last + 1
            hashed = entry_hash(previous, sequence, decision)
            connection.execute(
                statements.INSERT_LOG_ENTRY,
                (
                    self._namespace, sequence, decision.node_id, key_of(decision.node_id), decision.from_tier,
                    decision.to_tier, decision.rule, decision.moved, decision.actor, decision.reason,
                    conditions_of(decision), decision.session_id, milliseconds(decision.at), previous, hashed,
                ),
            )  # fmt: skip
            connection.execute(statements.SET_LOG_HEAD, (hashed, sequence, self._namespace))

    @repeated
    def log(self, *, after: int, node_id: str | None, since_ms: int | None, limit: int) -> list[LogEntry]:
        narrowed, values = "", list[Any]()
        if node_id is not None:
            narrowed, values = statements.LOG_OF_NODE, [key_of(node_id)]
        if since_ms is not None:
            narrowed, values = narrowed + statements.LOG_SINCE, [*values, since_ms]
        with self._database.reading() as connection:
            select = statements.SELECT_LOG.format(narrowed=narrowed)
            return [entry_of(row) for row in rows_of(connection, select, (self._namespace, after, *values, limit))]

    def was_refused(self, decision: PromotionDecision) -> bool:
        with self._database.reading() as connection:
            values = (self._namespace, key_of(decision.node_id), decision.session_id, decision.rule)
            return row_of(connection, statements.SELECT_REFUSAL, values) is not None
