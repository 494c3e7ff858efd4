"""The life of memories: what is made of their use, by rules and by hand.

The rules are pure (`promotion`), the evidence and the log are kept by an engine (`ports.Ledger`); here they meet. Each
decision is logged in the transaction that carries it out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import numpy as np

from rlm_memory.conflicts import repeated
from rlm_memory.errors import InvalidInputError, StoreBusyError, StoreClosedError, StoreError
from rlm_memory.forks import renewed_in_child
from rlm_memory.ports import Clock, Engine, Ledger, ToWeigh, Tracked, TrackedOutcome, Vector
from rlm_memory.promotion import (
    PromotionPolicy,
    confidence_after,
    decayed,
    decide_after_session,
    decide_after_use,
    decide_in_sweep,
    explain,
)
from rlm_memory.records import (
    TIERS,
    Access,
    ForgottenAccesses,
    LogEntry,
    Node,
    PromotionDecision,
    PromotionLog,
    SessionRecord,
    Tier,
    TierCounts,
)
from rlm_memory.times import milliseconds, moment
from rlm_memory.validation import checked_ids, checked_reason, checked_time, no_node

T = TypeVar("T")

_PAGE: Final = 500
_SETTLE_AFTER: Final = 0.25
"""Seconds until what was tracked is written down in the background, unless something else writes it down first."""

_DAY: Final = timedelta(days=1)
_DAY_MS: Final = 86_400_000
_DELETED: Final = "deleted"
_FOREVER_DAYS: Final = 1e6
"""What stands for a policy's infinity: longer than any store is old."""

_MOST_SESSIONS: Final = 2**31 - 1
"""More than any node is used in; a greater number could not be asked of a database."""

_FORGOTTEN_AT_ONCE: Final = 2000
"""Accesses in one transaction: others wait for it as long as for the adding of some hundred nodes.

In a large store each lies on pages of its own, and takes three times as long as in a small one.
"""

_WEIGHED_AT_ONCE: Final = 250
"""Nodes that a sweep, or the end of a session, decides on in one transaction: each takes as long as writing one."""

_CHANGED_AT_ONCE: Final = 2000
"""Nodes that fade, or outcomes that are learned, in one transaction: it lasts as long as one of those."""

_SWEEP_ON_OPEN: Final = 2.0
"""Seconds after which the opening of a store leaves the rest of the daily sweep to the next one."""

_LONGEST_PAUSE: Final = 0.1

_logger = logging.getLogger("rlm_memory")


class Lifecycle:
    """Tiers, sessions and the promotion log of one namespace. Thread-safe."""

    def __init__(
        self, engine: Engine, policy: PromotionPolicy, clock: Clock, *, namespace: str, read_only: bool
    ) -> None:
        self._engine = engine
        self._namespace = namespace
        self._ledger: Ledger = engine.ledger
        self._policy = policy
        self._clock = clock
        self._read_only = read_only
        self._closed = False
        self.after_fork_in_child()
        renewed_in_child(self)

    def after_fork_in_child(self) -> None:
        """The parent's timer does not run here, and a thread of the parent may have held the lock."""
        self._timer: threading.Timer | None = None
        self._timing = threading.Lock()

    def _now(self, given: datetime | None = None) -> datetime:
        """Return a moment, the present one unless given, as it is stored: in UTC, whole milliseconds."""
        return moment(milliseconds(self._clock() if given is None else checked_time(given)))

    # -- use ----------------------------------------------------------------------------------------------------

    def track(self, tracked: Tracked) -> None:
        """Take in accesses without waiting for any lock; whatever happens to the process, they will be written down."""
        if tracked.nodes and not self._read_only:
            self._ledger.track(tracked)
            self._settle_soon()

    def track_outcome(self, outcome: TrackedOutcome) -> None:
        """Take in the outcome of a run in the same way."""
        if not self._read_only:
            self._ledger.track(outcome)
            self._settle_soon()

    def _settle_soon(self) -> None:
        with self._timing:
            if self._timer is None and not self._closed:
                timer = threading.Timer(_SETTLE_AFTER, self._settle_in_background)
                timer.daemon = True  # a process that ends does not wait: what is queued outlives it
                with suppress(RuntimeError):  # nor does it start threads
                    timer.start()
                    self._timer = timer

    def _settle_in_background(self) -> None:
        with self._timing:
            self._timer = None  # before anything is taken: what is reported from now on needs the next timer
        try:
            if self._ledger.queued:
                self.settle(wait=False)  # who waited here would hold up the writers and forks of this process
        except StoreClosedError:
            return  # what is queued was left to the next to open the store
        except StoreBusyError:
            self._settle_soon()
        except StoreError as error:
            _logger.warning("Accesses stay queued for now: %s", error)
            self._settle_soon()

    def as_written(self, ids: Sequence[str]) -> list[Node]:
        """Return nodes as they are in the store, without writing down first what is queued."""
        return self._engine.get(ids)

    @repeated
    def settle(self, *, wait: bool = True) -> None:
        """Write down what is queued, here or in other processes, and move what was used again within its session.

        Raises:
            StoreBusyError: Somebody else is writing: at once without `wait`, else after the time-out.
        """
        with self._ledger.settling(wait=wait) as used:
            self._move_used_again(used)

    def _move_used_again(self, used: Mapping[str, Sequence[str]]) -> None:
        for session_id, ids in used.items():
            tasks = self._ledger.used_in(session_id, "task", ids)
            usages = self._ledger.usage([node.id for node in tasks], session_id=session_id)
            for node in tasks:
                usage = usages[node.id]
                at = usage.sessions[0].last_used
                decision = decide_after_use(node, usage, self._policy, session_id=session_id, at=at)
                self._carry_out(decision, log_refusal=False)

    def catch_up(self) -> None:
        """Write down what this handle has queued before something of it is read, if that needs no waiting."""
        if self._ledger.queued:
            self._settle_if_possible()

    def _catch_up_with_all(self) -> None:
        """Write down what is queued anywhere, if that needs no waiting."""
        if not self._read_only and self._ledger.waiting:
            self._settle_if_possible()

    def _settle_if_possible(self) -> None:
        for _ in range(2):
            try:
                self.settle(wait=False)
                return
            except StoreBusyError:
                # By another thread of ours, perhaps. What it has taken may lack the last; a second one lacks nothing.
                self._ledger.until_settled()
            except StoreError as error:  # a full disk is no reason to refuse a read
                _logger.warning("Accesses stay queued for now: %s", error)
                return

    @property
    def waiting(self) -> bool:
        """Whether something was reported, here or by another process, that may not be written down yet."""
        return self._ledger.waiting

    def write_down(self) -> None:
        """Write down what is queued anywhere, waiting for whoever else is writing."""
        if self._ledger.waiting:
            self.settle()

    def start(self, *, sweep: bool) -> None:
        """Take in what processes that died have left, and sweep if that was not done for a day.

        Neither waits for another writer, and neither failing keeps the store from being opened.
        """
        self._catch_up_with_all()
        if sweep and self._sweep_is_due():
            at, until = self._now(), time.monotonic() + _SWEEP_ON_OPEN
            try:
                for _ in _in_turns(self._sweep(at, wait=False)):
                    if time.monotonic() > until:
                        return  # the next to open the store goes on
                for _ in _in_turns(iter(lambda: self._forget(self._now(), wait=False), False)):
                    if time.monotonic() > until:
                        return
            except StoreBusyError:
                return
            except StoreError as error:
                _logger.warning("The daily sweep was not made: %s", error)

    def _sweep_is_due(self) -> bool:
        last = self._ledger.last_sweep()
        # A sweep in the future was made by a clock that has been put right since.
        return last is None or not timedelta(0) <= self._now() - moment(last) < _DAY

    def session(self, session_id: str) -> SessionRecord | None:
        """Return what is stored of a session, None if nothing is."""
        self._catch_up_with_all()
        return self._ledger.session(session_id)

    def sessions(self, limit: int) -> list[SessionRecord]:
        """Return the sessions that were active last."""
        self._catch_up_with_all()
        return self._ledger.sessions(limit=limit)

    def accesses(self, id: str) -> list[Access]:
        """Return the accesses of a node, the earliest first."""
        self._catch_up_with_all()
        return self._ledger.accesses(id)

    def forgotten_accesses(self, id: str) -> list[ForgottenAccesses]:
        """Return what stays of the accesses of a node that are forgotten one by one."""
        return self._ledger.forgotten_accesses(id)

    @repeated
    def judge(self, session_id: str, success: bool, *, run_id: str | None, ids: Sequence[str] | None) -> int:
        """Attach an outcome to what a session, or a run in it, has used; return to how many nodes."""
        if self._read_only:
            return 0  # nothing was tracked
        self.settle()
        return len(self._ledger.judge(session_id, success, milliseconds(self._now()), run_id=run_id, ids=ids))

    def end_session(self, session_id: str) -> list[PromotionDecision]:
        """Note the end of a session and decide what of it goes to longterm; return every decision.

        One that has used many nodes ends in many transactions, the last of which notes the end: what fails or is
        killed leaves it open. If it is used meanwhile, it stays open, as it would be if it was used after its end.

        Raises:
            StoreError: What was decided before is kept, and is in the error's `decisions`.
        """
        if self._read_only:
            return []
        if (ended := self._end_at_once(session_id)) is not None:
            return ended
        at, session = self._now(), self._ledger.session(session_id)
        assert session is not None  # it has used nodes
        ids = self._ledger.ids_used_in(session_id, "session")
        decisions: list[PromotionDecision] = []
        with _told_of(decisions):
            for some in _in_turns(self._end_by_parts(session, ids, at)):
                decisions += some
        return decisions

    @repeated
    def _end_at_once(self, session_id: str) -> list[PromotionDecision] | None:
        """Write down what is queued and end the session, in one turn; None where it has used too many nodes for that.

        In two, it waits twice for whoever else is writing.
        """
        with self._ledger.settling(wait=True, durable=True) as used:
            self._move_used_again(used)
            ids = self._ledger.ids_used_in(session_id, "session", limit=_WEIGHED_AT_ONCE + 1)
            if len(ids) > _WEIGHED_AT_ONCE:
                return None
            at = self._now()
            decisions = self._decide_at_end(session_id, ids, at)
            self._ledger.end_session(session_id, milliseconds(at))
        return decisions

    def _end_by_parts(
        self, session: SessionRecord, ids: Sequence[str], at: datetime
    ) -> Iterator[list[PromotionDecision]]:
        """Decide on these nodes part by part, and end the session if nothing has happened in it by then."""
        for start in range(0, len(ids), _WEIGHED_AT_ONCE):
            rest = ids[start:]
            yield self._decide_on_part(session, rest[:_WEIGHED_AT_ONCE], at, is_last=len(rest) <= _WEIGHED_AT_ONCE)

    @repeated
    def _decide_on_part(
        self, session: SessionRecord, ids: Sequence[str], at: datetime, *, is_last: bool
    ) -> list[PromotionDecision]:
        with self._engine.transaction():
            decisions = self._decide_at_end(session.id, ids, at)
            if is_last and self._ledger.session(session.id) == session:
                self._ledger.end_session(session.id, milliseconds(at))
        return decisions

    def _decide_at_end(self, session_id: str, ids: Sequence[str], at: datetime) -> list[PromotionDecision]:
        """Decide which of these nodes of a session go to longterm."""
        nodes = self._ledger.used_in(session_id, "session", ids)
        usages = self._ledger.usage([node.id for node in nodes])
        decisions = []
        for node in nodes:
            decision = decide_after_session(node, usages[node.id], self._policy, session_id=session_id, at=at)
            if decision is not None:
                self._carry_out(decision, log_refusal=True)
                decisions.append(decision)
        return decisions

    def _carry_out(self, decision: PromotionDecision | None, *, log_refusal: bool) -> None:
        if decision is None:
            return
        if decision.moved:
            self._ledger.set_tier(decision.node_id, decision.to_tier, _ms(decision))
            self._ledger.append(decision)
        elif log_refusal and not self._ledger.was_refused(decision):
            self._ledger.append(decision)

    # -- the sweep ----------------------------------------------------------------------------------------------

    def sweep(self, now: datetime | None, *, dry_run: bool) -> list[PromotionDecision]:
        """End crashed sessions, then move what has earned longterm and what is long unused; return the moves.

        Raises:
            StoreError: Somebody else is writing for longer than the time-out, or the store fails. What was done until
                then is kept, and the next sweep goes on from there; the moves are in the error's `decisions`.
        """
        at = self._now(now)
        if dry_run:
            self._catch_up_with_all()
            with self._engine.reading():
                weighed = self._ledger.to_weigh(self._least_sessions, self._policy.rules_across_sessions).numbers
                return [
                    decision
                    for numbers, tier in self._parts(weighed, at)
                    for decision in self._decide(numbers, tier, at)
                ]
        self.settle()
        decisions: list[PromotionDecision] = []
        with _told_of(decisions):
            for moved in _in_turns(self._sweep(at)):
                decisions += moved
            for _ in _in_turns(iter(lambda: self._forget(at), False)):
                pass
        return decisions

    def _sweep(self, at: datetime, *, wait: bool = True) -> Iterator[list[PromotionDecision]]:
        """Sweep part by part, each in a transaction of its own, and yield what each has moved.

        What there is to do is listed without keeping anybody from writing, and decided on as it is when its part comes.
        Parts that are not asked for are left to the next sweep.
        """
        before = milliseconds(at) - round(min(self._policy.session_idle_hours / 24, _FOREVER_DAYS) * _DAY_MS)
        for ends in self._ends(before):
            yield self._end_part(ends, before, at, wait=wait)
        rules = self._policy.rules_across_sessions
        found = self._to_weigh(rules, wait=wait)
        for numbers, tier in self._parts(found.numbers, at):
            yield self._sweep_part(numbers, tier, found.era, at, wait=wait)
        with self._engine.transaction(wait=wait):
            self._ledger.note_sweep(milliseconds(at), rules, found.era)

    def _to_weigh(self, rules: str, *, wait: bool) -> ToWeigh:
        found = self._ledger.to_weigh(self._least_sessions, rules)
        if found.era is not None:
            return found
        with self._engine.transaction(wait=wait):
            self._ledger.begin_weighing(rules)
        return self._ledger.to_weigh(self._least_sessions, rules)

    @repeated
    def _sweep_part(
        self, numbers: Sequence[int], tier: Tier, era: int | None, at: datetime, *, wait: bool
    ) -> list[PromotionDecision]:
        with self._engine.transaction(wait=wait):
            decisions = self._decide(numbers, tier, at)
            for decision in decisions:
                self._carry_out(decision, log_refusal=False)
            if tier == "session":
                self._ledger.note_weighed(numbers, self._policy.rules_across_sessions, era)
        return decisions

    @property
    def _least_sessions(self) -> int:
        return min(self._policy.min_sessions, _MOST_SESSIONS)

    def _parts(self, to_weigh: Sequence[int], at: datetime) -> Iterator[tuple[Sequence[int], Tier]]:
        """Yield the numbers of some nodes that a sweep looks at, and the tier they were in, part by part."""
        oldest = milliseconds(at) - round(min(self._policy.archive_after_days, _FOREVER_DAYS) * _DAY_MS)
        listed: tuple[tuple[Sequence[int], Tier], ...] = (
            (to_weigh, "session"),
            (self._ledger.unused(oldest), "longterm"),
        )
        for numbers, tier in listed:
            for start in range(0, len(numbers), _WEIGHED_AT_ONCE):
                yield numbers[start : start + _WEIGHED_AT_ONCE], tier

    def _decide(self, numbers: Sequence[int], tier: Tier, at: datetime) -> list[PromotionDecision]:
        """Return the moves that a sweep makes of those of these nodes that still are in a tier."""
        nodes = self._ledger.among(numbers, tier, self._least_sessions if tier == "session" else 0)
        usages = self._ledger.usage([node.id for node in nodes])
        decisions = [decide_in_sweep(node, usages[node.id], self._policy, now=at) for node in nodes]
        return [decision for decision in decisions if decision is not None and decision.moved]

    @repeated
    def _forget(self, at: datetime, *, wait: bool = True) -> bool:
        """Forget some of the accesses that are older than the policy keeps; return whether there may be more."""
        if self._policy.keep_accesses_days is None:
            return False
        before = milliseconds(at) - round(min(self._policy.keep_accesses_days, _FOREVER_DAYS) * _DAY_MS)
        with self._engine.transaction(wait=wait):
            return self._ledger.forget_accesses(before, _FORGOTTEN_AT_ONCE)

    @repeated
    def _end_part(
        self, ends: Sequence[tuple[str, list[str], bool]], before_ms: int, at: datetime, *, wait: bool
    ) -> list[PromotionDecision]:
        """Decide on these parts of crashed sessions, end those of which it is the last, and return what has moved."""
        decisions: list[PromotionDecision] = []
        with self._engine.transaction(wait=wait):
            for session_id, ids, are_last in ends:
                if not _is_idle(self._ledger.session(session_id), before_ms):
                    continue  # it goes on after all
                decisions += self._decide_at_end(session_id, ids, at)
                if are_last:
                    self._ledger.end_session(session_id, milliseconds(at))
        return [decision for decision in decisions if decision.moved]

    def _ends(self, before_ms: int) -> Iterator[list[tuple[str, list[str], bool]]]:
        """Yield sessions to end, some at once, with nodes to decide on, and whether these are all that are left."""
        part: list[tuple[str, list[str], bool]] = []
        size = 0
        for session_id in self._ledger.idle_sessions(before_ms):
            ids = self._ledger.ids_used_in(session_id, "session")
            for start in range(0, max(len(ids), 1), _WEIGHED_AT_ONCE):
                some = ids[start : start + _WEIGHED_AT_ONCE]
                part.append((session_id, some, start + _WEIGHED_AT_ONCE >= len(ids)))
                size += 1 + len(some)
                if size >= _WEIGHED_AT_ONCE:
                    yield part
                    part, size = [], 0
        if part:
            yield part

    # -- by hand ------------------------------------------------------------------------------------------------

    @repeated
    def promote(self, id: str, to_tier: Tier, *, reason: str) -> PromotionDecision:
        """Move a node to any tier. Moved down, its history starts anew for the rules: they must not undo it at once."""
        if to_tier not in TIERS:
            raise InvalidInputError(f"Unknown tier {to_tier!r}; expected one of {', '.join(TIERS)}.")
        checked_reason(reason)
        self.write_down()
        with self._engine.transaction():
            return self._move(self._one(id), to_tier, "by hand", reason)

    def _move(self, node: Node, to_tier: Tier, rule: str, reason: str) -> PromotionDecision:
        decision = self._by_hand(node, to_tier, rule, reason, moved=node.tier != to_tier)
        if to_tier in ("task", "session") and TIERS.index(to_tier) < TIERS.index(node.tier):
            self._ledger.forget_usage(node.id)
        self._carry_out(decision, log_refusal=True)
        return decision

    @repeated
    def restore(self, id: str, *, reason: str) -> PromotionDecision:
        """Bring a node back from the archive to longterm."""
        checked_reason(reason)
        self.write_down()
        with self._engine.transaction():
            node = self._one(id)
            if node.tier != "archive":
                raise InvalidInputError(f"Node {id!r} is in {node.tier}, not in the archive; nothing to restore.")
            return self._move(node, "longterm", "restore", reason)

    @repeated
    def pin(self, id: str, *, pinned: bool, reason: str) -> PromotionDecision:
        """Exempt a node from archiving, or no longer."""
        checked_reason(reason)
        with self._engine.transaction():
            node = self._one(id)
            decision = self._by_hand(node, node.tier, "pin" if pinned else "unpin", reason, moved=False)
            self._ledger.set_pinned(id, pinned, _ms(decision))
            self._ledger.append(decision)
        return decision

    def note_new(self, nodes: Iterable[Node], new_ids: Iterable[str]) -> None:
        """Log the tier of new nodes that do not start in task; in the transaction that adds them."""
        new = set(new_ids)
        for node in nodes:
            if node.tier != "task" and node.id in new:
                started = replace(node, tier="task")
                self._ledger.append(self._by_hand(started, node.tier, "added", "added in this tier", moved=True))

    def note_deleted(self, deleted: Iterable[tuple[str, Tier]]) -> None:
        """Log that nodes which had left task are deleted; in the transaction that deletes them."""
        for id, tier in deleted:
            if tier != "task":
                gone = Node(text="", id=id, tier=tier)
                self._ledger.append(self._by_hand(gone, "task", _DELETED, "the node was deleted", moved=True))

    def _by_hand(self, node: Node, to_tier: Tier, rule: str, reason: str, *, moved: bool) -> PromotionDecision:
        return PromotionDecision(
            node_id=node.id,
            from_tier=node.tier,
            to_tier=to_tier,
            rule=rule,
            moved=moved,
            actor="manual",
            reason=reason,
            at=self._now(),
        )

    def _one(self, id: str) -> Node:
        if found := self._engine.get(checked_ids([id])):
            return found[0]
        raise no_node(id, namespace=self._namespace)

    # -- looking ------------------------------------------------------------------------------------------------

    @repeated
    def explain(self, id: str) -> PromotionDecision:
        """Return the conditions of a node's next move by a rule, and which of them hold."""
        self._catch_up_with_all()
        with self._engine.reading():
            node = self._one(id)
            return explain(node, self._ledger.usage([id])[id], self._policy, now=self._now())

    @repeated
    def candidates(self) -> list[PromotionDecision]:
        """Return an explanation for each node that lacks one condition to rise to session or longterm."""
        self._catch_up_with_all()
        with self._engine.reading():
            nodes = self._ledger.used()
            usages = self._ledger.usage([node.id for node in nodes])
        now = self._now()
        explained = (explain(node, usages[node.id], self._policy, now=now) for node in nodes)
        return [decision for decision in explained if len(decision.missing) == 1]

    def log(self, node_id: str | None, since: datetime | None) -> PromotionLog:
        """Return the entries of the log in order."""
        since_ms = None if since is None else milliseconds(self._now(since))

        def read() -> Iterator[LogEntry]:
            self._catch_up_with_all()
            return self._entries(node_id, since_ms)

        return PromotionLog(read)

    def _entries(self, node_id: str | None = None, since_ms: int | None = None) -> Iterator[LogEntry]:
        after = 0
        while page := self._ledger.log(after=after, node_id=node_id, since_ms=since_ms, limit=_PAGE):
            yield from page
            after = page[-1].sequence

    @repeated
    def timeline(self) -> list[TierCounts]:
        """Return how the nodes that are there today were spread over the tiers, at each moment that changed it."""
        self._catch_up_with_all()
        with self._engine.reading():
            paths: dict[str, list[tuple[int, Tier]]] = {id: [(at, "task")] for id, at in self._ledger.births()}
            for entry in self._entries():
                move = entry.decision
                path = paths.get(move.node_id)
                if path is None or not move.moved:
                    continue
                if move.rule == _DELETED:  # and the id was given to another node since
                    del path[1:]
                else:  # the order is that of the log, also where the clock went back
                    path.append((max(path[-1][0], _ms(move)), move.to_tier))
        where: dict[str, Tier] = {}
        counts: dict[str, int] = dict.fromkeys(TIERS, 0)
        points: list[TierCounts] = []
        steps = ((at, id, tier) for id, path in paths.items() for at, tier in path)
        for at, id, tier in sorted(steps, key=lambda step: step[0]):
            if id in where:
                counts[where[id]] -= 1
            where[id] = tier
            counts[tier] += 1
            point = TierCounts(moment(at), dict(counts))
            if points and points[-1].at == point.at:
                points.pop()
            points.append(point)
        return points

    # -- what is offered, and done only when asked ----------------------------------------------------------------

    def decay(self, now: datetime | None) -> int:
        """Let the confidence of unused nodes fade, part by part; return of how many."""
        at = milliseconds(self._now(now))
        self.write_down()
        return sum(_in_turns(_by_parts(lambda after: self._decay_part(after, at))))

    @repeated
    def _decay_part(self, after: int, at: int) -> tuple[int | None, int]:
        with self._engine.transaction():
            nodes = self._ledger.fading(after=after, limit=_CHANGED_AT_ONCE)
            faded = {}
            for _, id, confidence, since in nodes:
                left = decayed(confidence, (at - since) / _DAY_MS, self._policy)
                if left != confidence:
                    faded[id] = left
            self._ledger.set_confidences(faded, faded_at_ms=at)
        return _last_number(nodes), len(faded)

    def learn(self) -> int:
        """Let outcomes change the confidence of the nodes they were attached to, each once; return how many did.

        They are learned part by part in the order in which they came, and each is noted with what it has changed.
        """
        self.write_down()
        return sum(_in_turns(_by_parts(self._learn_part)))

    @repeated
    def _learn_part(self, after: int) -> tuple[int | None, int]:
        with self._engine.transaction():
            outcomes = self._ledger.unlearned(after=after, limit=_CHANGED_AT_ONCE)
            confidences = {node.id: node.confidence for node in self._engine.get([id for _, id, _ in outcomes])}
            for _, id, success in outcomes:
                confidences[id] = confidence_after(confidences[id], success, self._policy)
            self._ledger.set_confidences(confidences)
            self._ledger.mark_learned([outcome for outcome, _, _ in outcomes])
        return _last_number(outcomes), len(outcomes)

    @repeated
    def consolidate(self, nodes: Sequence[Node]) -> Mapping[str, list[str]]:
        """Link near-duplicates to the best of them and archive the others; return the others by the best.

        The best is pinned, else has the greatest confidence, then the most accesses, then is the newest, then has the
        smallest id. No pinned node is archived.
        """
        ranked = sorted(
            nodes,
            key=lambda node: (not node.pinned, -node.confidence, -node.access_count, -_created(node), node.id),
        )
        pairs = self._near_duplicates(ranked)
        merged: dict[str, list[str]] = {}
        with self._engine.transaction():
            present = {node.id: node for node in self._engine.get([node.id for node in ranked])}
            for node, best in pairs:
                # Comparing takes a while, and others may write meanwhile.
                if _unchanged(node, present.get(node.id)) and _unchanged(best, present.get(best.id)):
                    self._ledger.link(node.id, best.id, "duplicate_of", milliseconds(self._now()))
                    self._move(node, "archive", "consolidate", f"says the same as {best.id}")
                    merged.setdefault(best.id, []).append(node.id)
        return merged

    def _near_duplicates(self, ranked: Sequence[Node]) -> list[tuple[Node, Node]]:
        """Return each node that says nearly the same as a better one, with that one."""
        kept: list[Node] = []
        rows: Vector | None = None
        pairs = []
        for node, vector in zip(ranked, self._engine.vectors_of([node.id for node in ranked]), strict=True):
            if vector is None:
                continue
            if rows is None:
                rows = np.empty((len(ranked), len(vector)), dtype=np.float32)
            cosines = rows[: len(kept)] @ vector
            if kept and not node.pinned and cosines.max() >= self._policy.duplicate_similarity:
                pairs.append((node, kept[int(cosines.argmax())]))
            else:
                rows[len(kept)] = vector
                kept.append(node)
        return pairs

    def close(self) -> None:
        """Write down what is queued, if that is possible; else the next to open the store does."""
        with self._timing:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        try:
            if self._ledger.queued:
                self.settle()
        except StoreError as error:
            _logger.warning("Accesses are left to the next to open the store: %s", error)
        finally:
            self._ledger.close()


def _in_turns(steps: Iterator[T]) -> Iterator[T]:
    """Take steps that write, and pause between them for as long as each took.

    Who waits to write asks for the lock now and then, and would find it taken again.
    """
    start = time.monotonic()
    for step in steps:
        yield step
        time.sleep(min(time.monotonic() - start, _LONGEST_PAUSE))
        start = time.monotonic()


def _by_parts(do: Callable[[int], tuple[int | None, T]]) -> Iterator[T]:
    """Yield what was done with each part; `do` takes the last number of the part before, and returns its own.

    None for that where nothing is left.
    """
    last: int | None = 0
    while last is not None:
        last, done = do(last)
        yield done


def _last_number(part: Sequence[tuple[Any, ...]]) -> int | None:
    """Return the number of the last of a whole part; None of one that is the last."""
    return None if len(part) < _CHANGED_AT_ONCE else int(part[-1][0])


@contextmanager
def _told_of(decisions: Sequence[PromotionDecision]) -> Iterator[None]:
    """Let a failure tell of the decisions that were carried out before it."""
    try:
        yield
    except StoreError as error:
        error.decisions = tuple(decisions)
        raise


def _is_idle(session: SessionRecord | None, before_ms: int) -> bool:
    return session is not None and session.ended_at is None and milliseconds(session.last_active) < before_ms


def _created(node: Node) -> int:
    return 0 if node.created_at is None else milliseconds(node.created_at)


def _unchanged(before: Node, now: Node | None) -> bool:
    """Return whether a node still is what a decision about it was made on."""
    return now is not None and (now.text, now.tier, now.pinned) == (before.text, before.tier, before.pinned)


def _ms(decision: PromotionDecision) -> int:
    assert decision.at is not None  # the rules and people decide at some time
    return milliseconds(decision.at)
