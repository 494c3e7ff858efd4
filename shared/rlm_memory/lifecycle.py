"""The life of memories: what is made of their use, by rules and by hand.

The rules are pure (`promotion`), the evidence and the log are kept by an engine (`ports.Ledger`); here they meet. Each
decision is logged in the transaction that carries it out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from rlm_memory.errors import InvalidInputError, NodeNotFoundError, StoreBusyError, StoreError
from rlm_memory.ports import Clock, Engine, Ledger, Tracked
from rlm_memory.promotion import (
    PromotionPolicy,
    Usage,
    confidence_after,
    decayed,
    decide_after_session,
    decide_after_use,
    decide_in_sweep,
    explain,
)
from rlm_memory.records import TIERS, Access, LogEntry, Node, PromotionDecision, SessionRecord, Tier, TierCounts
from rlm_memory.times import milliseconds, moment

_PAGE: Final = 500
_SETTLE_AFTER: Final = 0.25
"""Seconds until what was tracked is written down in the background, unless something else writes it down first."""

_DAY: Final = timedelta(days=1)
_DAY_MS: Final = 86_400_000
_FOREVER_DAYS: Final = 1e6
"""What stands for a policy's infinity: longer than any store is old."""

_logger = logging.getLogger("rlm_memory")


class Lifecycle:
    """Tiers, sessions and the promotion log of one namespace. Thread-safe."""

    def __init__(self, engine: Engine, policy: PromotionPolicy, clock: Clock) -> None:
        self._engine = engine
        self._ledger: Ledger = engine.ledger
        self._policy = policy
        self._clock = clock
        self._timer: threading.Timer | None = None
        self._timing = threading.Lock()

    def _now(self) -> int:
        return milliseconds(self._clock())

    # -- use ----------------------------------------------------------------------------------------------------

    def track(self, tracked: Tracked) -> None:
        """Take in accesses without waiting for any lock; whatever happens to the process, they will be written down."""
        if tracked.nodes:
            self._ledger.track(tracked)
            with self._timing:
                if self._timer is None:
                    self._timer = threading.Timer(_SETTLE_AFTER, self._settle_in_background)
                    self._timer.daemon = True  # a process that ends does not wait: what is queued outlives it
                    self._timer.start()

    def as_written(self, ids: Sequence[str]) -> list[Node]:
        """Return nodes as they are in the store, without writing down first what is queued."""
        return self._engine.get(ids)

    def _settle_in_background(self) -> None:
        try:
            self.settle()
        except StoreError as error:
            _logger.warning("Accesses stay queued for now: %s", error)
        with self._timing:
            self._timer = None

    def settle(self, *, wait: bool = True) -> None:
        """Write down what is queued, and move what has been used again within its session.

        Without `wait`, nothing happens while somebody else is writing.
        """
        try:
            with self._ledger.settling(wait=wait) as used:
                for session_id, ids in used.items():
                    tasks = self._ledger.used_in(session_id, "task", ids)
                    usages = self._ledger.usage([node.id for node in tasks])
                    for node in tasks:
                        usage = _within(usages[node.id], session_id)
                        at = usage.sessions[0].last_used
                        decision = decide_after_use(node, usage, self._policy, session_id=session_id, at=at)
                        self._carry_out(decision, log_refusal=False)
        except StoreBusyError:
            if wait:
                raise

    def catch_up(self) -> None:
        """Write down what this process has queued before something of it is read, if that needs no waiting."""
        if self._ledger.queued:
            self.settle(wait=False)

    def start(self) -> None:
        """Take in what processes that died have left, and sweep if that was not done for a day."""
        if self._ledger.left_behind:
            self.settle(wait=False)
        last, now = self._ledger.last_sweep(), self._clock()
        if last is None or now - moment(last) >= _DAY:
            with suppress(StoreBusyError), self._engine.transaction(wait=False):
                self._sweep(now, dry_run=False)

    def session(self, session_id: str) -> SessionRecord | None:
        """Return what is stored of a session, None if nothing is."""
        self.catch_up()
        return self._ledger.session(session_id)

    def sessions(self, limit: int) -> list[SessionRecord]:
        """Return the sessions that were active last."""
        self.catch_up()
        return self._ledger.sessions(limit=limit)

    def accesses(self, id: str) -> list[Access]:
        """Return the accesses of a node, the earliest first."""
        self.catch_up()
        return self._ledger.accesses(id)

    def judge(self, session_id: str, success: bool, *, run_id: str | None, ids: Sequence[str] | None) -> int:
        """Attach an outcome to what a session, or a run in it, has used; return to how many nodes."""
        self.settle()
        return len(self._ledger.judge(session_id, success, self._now(), run_id=run_id, ids=ids))

    def end_session(self, session_id: str) -> list[PromotionDecision]:
        """Note the end of a session and decide what of it goes to longterm; return every decision."""
        self.settle()
        with self._engine.transaction():
            return self._end(session_id, self._clock())

    def _end(self, session_id: str, at: datetime) -> list[PromotionDecision]:
        nodes = self._ledger.used_in(session_id, "session")
        usages = self._ledger.usage([node.id for node in nodes])
        decisions = []
        for node in nodes:
            decision = decide_after_session(node, usages[node.id], self._policy, session_id=session_id, at=at)
            if decision is not None:
                self._carry_out(decision, log_refusal=True)
                decisions.append(decision)
        self._ledger.end_session(session_id, milliseconds(at))
        return decisions

    def _carry_out(self, decision: PromotionDecision | None, *, log_refusal: bool) -> None:
        if decision is None:
            return
        assert decision.at is not None  # the rules are asked at a time
        if decision.moved:
            self._ledger.set_tier(decision.node_id, decision.to_tier, milliseconds(decision.at))
            self._ledger.append(decision)
        elif log_refusal and not self._ledger.was_refused(decision):
            self._ledger.append(decision)

    # -- the sweep ----------------------------------------------------------------------------------------------

    def sweep(self, now: datetime | None, *, dry_run: bool) -> list[PromotionDecision]:
        """End crashed sessions, then move what has earned longterm and what is long unused; return the moves."""
        self.settle()
        with self._engine.reading() if dry_run else self._engine.transaction():
            return self._sweep(now or self._clock(), dry_run=dry_run)

    def _sweep(self, at: datetime, *, dry_run: bool) -> list[PromotionDecision]:
        decisions = [] if dry_run else self._end_crashed(at)
        oldest = milliseconds(at) - round(min(self._policy.archive_after_days, _FOREVER_DAYS) * _DAY_MS)
        nodes = [*self._ledger.proved(self._policy.min_sessions), *self._ledger.unused(oldest)]
        for start in range(0, len(nodes), _PAGE):
            some = nodes[start : start + _PAGE]
            usages = self._ledger.usage([node.id for node in some])
            for node in some:
                decision = decide_in_sweep(node, usages[node.id], self._policy, now=at)
                if decision is not None and decision.moved:
                    decisions.append(decision)
                    if not dry_run:
                        self._carry_out(decision, log_refusal=False)
        if not dry_run:
            self._ledger.note_sweep(milliseconds(at))
        return decisions

    def _end_crashed(self, at: datetime) -> list[PromotionDecision]:
        idle = milliseconds(at) - round(min(self._policy.session_idle_hours / 24, _FOREVER_DAYS) * _DAY_MS)
        ended = [decision for session_id in self._ledger.idle_sessions(idle) for decision in self._end(session_id, at)]
        return [decision for decision in ended if decision.moved]

    # -- by hand ------------------------------------------------------------------------------------------------

    def promote(self, id: str, to_tier: Tier, *, reason: str, rule: str = "by hand") -> PromotionDecision:
        """Move a node to any tier. Moved down, its history starts anew for the rules: they must not undo it at once."""
        if to_tier not in TIERS:
            raise InvalidInputError(f"Unknown tier {to_tier!r}; expected one of {', '.join(TIERS)}.")
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInputError("promote needs a reason: it is what the log will tell about this move.")
        self.catch_up()
        with self._engine.transaction():
            return self._move(self._one(id), to_tier, rule, reason)

    def _move(self, node: Node, to_tier: Tier, rule: str, reason: str) -> PromotionDecision:
        decision = self._by_hand(node, to_tier, rule, reason, moved=node.tier != to_tier)
        if to_tier in ("task", "session") and TIERS.index(to_tier) < TIERS.index(node.tier):
            self._ledger.forget_usage(node.id)
        if decision.moved:
            self._ledger.set_tier(node.id, to_tier, self._now())
        self._ledger.append(decision)
        return decision

    def restore(self, id: str, *, reason: str) -> PromotionDecision:
        """Bring a node back from the archive to longterm."""
        if (tier := self._one(id).tier) != "archive":
            raise InvalidInputError(f"Node {id!r} is in {tier}, not in the archive; there is nothing to restore.")
        return self.promote(id, "longterm", reason=reason, rule="restore")

    def pin(self, id: str, *, pinned: bool, reason: str) -> PromotionDecision:
        """Exempt a node from archiving, or no longer."""
        with self._engine.transaction():
            node = self._one(id)
            self._ledger.set_pinned(id, pinned)
            decision = self._by_hand(node, node.tier, "pin" if pinned else "unpin", reason, moved=False)
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
                self._ledger.append(self._by_hand(gone, "task", "deleted", "the node was deleted", moved=True))

    def _by_hand(self, node: Node, to_tier: Tier, rule: str, reason: str, *, moved: bool) -> PromotionDecision:
        return PromotionDecision(
            node_id=node.id,
            from_tier=node.tier,
            to_tier=to_tier,
            rule=rule,
            moved=moved,
            actor="manual",
            reason=reason,
            at=moment(self._now()),
        )

    def _one(self, id: str) -> Node:
        if found := self._engine.get([id]):
            return found[0]
        raise NodeNotFoundError(f"There is no node {id!r} in this namespace.")

    # -- looking ------------------------------------------------------------------------------------------------

    def explain(self, id: str) -> PromotionDecision:
        """Return the conditions of a node's next move by a rule, and which of them hold."""
        self.catch_up()
        with self._engine.reading():
            node = self._one(id)
            return explain(node, self._ledger.usage([id])[id], self._policy, now=self._clock())

    def candidates(self) -> list[PromotionDecision]:
        """Return an explanation for each node that lacks one condition to rise to session or longterm."""
        self.catch_up()
        with self._engine.reading():
            nodes = self._ledger.used()
            usages = self._ledger.usage([node.id for node in nodes])
        now = self._clock()
        explained = (explain(node, usages[node.id], self._policy, now=now) for node in nodes)
        return [decision for decision in explained if len(decision.missing) == 1]

    def log(self, node_id: str | None, since: datetime | None) -> Iterator[LogEntry]:
        """Yield the entries of the log in order, page by page."""
        self.catch_up()
        after, since_ms = 0, None if since is None else milliseconds(since)
        while page := self._ledger.log(after=after, node_id=node_id, since_ms=since_ms, limit=_PAGE):
            yield from page
            after = page[-1].sequence

    def timeline(self) -> list[TierCounts]:
        """Return how the nodes that are there today were spread over the tiers, at each moment that changed it."""
        self.catch_up()
        with self._engine.reading():
            births = self._ledger.births()
            moves = [entry.decision for entry in self.log(None, None) if entry.decision.moved]
        alive = {id: created for id, created, _ in births}
        events = [(created, id, "task") for id, created, _ in births]
        events += [
            (milliseconds(move.at), move.node_id, move.to_tier)
            for move in moves
            if move.at is not None and milliseconds(move.at) >= alive.get(move.node_id, 1 << 62)
        ]
        where: dict[str, str] = {}
        counts: dict[str, int] = dict.fromkeys(TIERS, 0)
        points: list[TierCounts] = []
        for at, id, tier in sorted(events, key=lambda event: event[0]):
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
        """Let the confidence of unused nodes fade; return of how many."""
        self.catch_up()
        at = milliseconds(now or self._clock())
        with self._engine.transaction():
            faded = {
                id: decayed(confidence, (at - since) / 86_400_000, self._policy)
                for id, confidence, since in self._ledger.fading()
                if at > since
            }
            self._ledger.set_confidences(faded, at)
        return len(faded)

    def learn(self) -> int:
        """Let outcomes change the confidence of the nodes they were attached to, each once; return how many did."""
        self.catch_up()
        with self._engine.transaction():
            outcomes = self._ledger.unlearned()
            nodes = {node.id: node for node in self._engine.get([id for _, id, _ in outcomes])}
            confidences: dict[str, float] = {}
            for _, id, success in outcomes:
                confidences[id] = confidence_after(confidences.get(id, nodes[id].confidence), success, self._policy)
            self._ledger.set_confidences(confidences, self._now())
            self._ledger.mark_learned([outcome for outcome, _, _ in outcomes])
        return len(outcomes)

    def consolidate(self, nodes: Sequence[Node]) -> Mapping[str, list[str]]:
        """Link near-duplicates to the best of them and archive the others; return the others by the best.

        The best has the greatest confidence, then the most accesses, then is the newest, then has the smallest id.
        """
        ranked = sorted(nodes, key=lambda node: (-node.confidence, -node.access_count, -_created(node), node.id))
        kept: list[Node] = []
        rows: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
        merged: dict[str, list[str]] = {}
        with self._engine.transaction():
            vectors = self._engine.vectors_of([node.id for node in ranked])
            for node, vector in zip(ranked, vectors, strict=True):
                if vector is None:
                    continue
                cosines = np.stack(rows) @ vector if rows else np.empty(0)
                if len(cosines) and cosines.max() >= self._policy.duplicate_similarity:
                    best = kept[int(cosines.argmax())].id
                    merged.setdefault(best, []).append(node.id)
                    self._ledger.link(node.id, best, "duplicate_of", self._now())
                    self._move(node, "archive", "consolidate", f"says the same as {best}")
                else:
                    kept.append(node)
                    rows.append(vector)
        return merged

    def close(self) -> None:
        """Write down what is queued."""
        with self._timing:
            if self._timer is not None:
                self._timer.cancel()
        if self._ledger.queued:
            self.settle()


def _within(usage: Usage, session_id: str) -> Usage:
    """Return the part of the evidence that is about one session."""
    return replace(usage, sessions=tuple(s for s in usage.sessions if s.session_id == session_id))


def _created(node: Node) -> int:
    return 0 if node.created_at is None else milliseconds(node.created_at)
