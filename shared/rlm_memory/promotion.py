"""When a memory changes its tier: the rules, the evidence they weigh, and the chain that protects their log.

Pure: what is known about a node goes in, a decision with its evidence comes out. Times are passed in.

A node rises one tier at a time by rules: task to session when it is used again within a session, session to longterm
when it has proved itself across sessions, longterm to archive when it has long been unused. No rule takes a node out of
the archive or down; people may do both.

That the outcomes of tasks decide what is worth keeping is an idea of G-Memory (Zhang et al., "G-Memory: Tracing
Hierarchical Memory for Multi-Agent Systems", 2025). That what no longer serves is taken out of sight and kept, with
when and why, is one of Zep (Rasmussen et al., "Zep: A Temporal Knowledge Graph Architecture for Agent Memory", 2025).
That notes are linked and merged as they come is one of A-MEM (Xu et al., "A-MEM: Agentic Memory for LLM Agents",
2025), see `Memory.consolidate`. The rules and their numbers are our own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from rlm_memory.errors import InvalidInputError
from rlm_memory.records import Condition, LogEntry, PromotionDecision, Tier
from rlm_memory.times import milliseconds

FIRST_HASH = "0" * 64
"""The `previous_hash` of the first entry of a log."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPolicy:
    """Every number of the rules; the defaults are the documented ones.

    Args:
        min_uses: Uses in one session that take a node from task to session.
        min_sessions: Distinct sessions with a use that a node needs for longterm.
        min_successes: Successful outcomes that it needs; they must also outnumber the failures. 0 asks for none, and a
            node with failures still needs more successes.
        min_confidence: The least confidence at every access of the last sessions, and now.
        confident_sessions: How many of the last sessions that looks back on.
        archive_after_days: A longterm node unused for longer than this is archived; `math.inf` for never.
        decay_per_day: What `decayed` multiplies a confidence with for each day.
        success_step: What `confidence_after` adds for a success.
        failure_step: What `confidence_after` takes off for a failure.
        session_idle_hours: A session that has been still for longer is taken to have crashed, and is ended by a sweep.
        duplicate_similarity: The cosine from which two nodes of a task are taken to say the same.
        keep_accesses_days: Accesses in sessions that have ended, and were still for longer, are forgotten one by one;
            what the rules weigh of them stays. None keeps every one.

    Raises:
        InvalidInputError: A number is of the wrong kind or out of its range.
    """

    min_uses: int = 2
    min_sessions: int = 3
    min_successes: int = 1
    min_confidence: float = 0.8
    confident_sessions: int = 3
    archive_after_days: float = 90
    session_idle_hours: float = 24
    decay_per_day: float = 0.99
    success_step: float = 0.1
    failure_step: float = 0.2
    duplicate_similarity: float = 0.95
    keep_accesses_days: float | None = 90

    def __post_init__(self) -> None:
        for name in ("min_uses", "min_sessions", "confident_sessions"):
            _check_count(name, getattr(self, name), least=1)
        _check_count("min_successes", self.min_successes, least=0)
        for name in ("min_confidence", "decay_per_day", "success_step", "failure_step", "duplicate_similarity"):
            _check_number(name, getattr(self, name), most=1)
        for name in ("archive_after_days", "session_idle_hours"):
            _check_number(name, getattr(self, name), most=math.inf)
        if self.keep_accesses_days is not None:
            _check_number("keep_accesses_days", self.keep_accesses_days, most=math.inf)

    @property
    def rules_across_sessions(self) -> str:
        """The numbers by which nodes go from session to longterm, as one text: the same for policies that agree."""
        return json.dumps([self.min_sessions, self.min_successes, self.min_confidence, self.confident_sessions])


class NodeState(Protocol):
    """What the rules look at in a node: `records.Node` has it."""

    @property
    def id(self) -> str:
        """The node's id."""
        ...

    @property
    def tier(self) -> Tier:
        """The tier it is in."""
        ...

    @property
    def confidence(self) -> float:
        """Its confidence now, in [0, 1]."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether no rule may archive it."""
        ...

    @property
    def created_at(self) -> datetime | None:
        """When it was added."""
        ...

    @property
    def last_accessed(self) -> datetime | None:
        """When it was last handed to a reader."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """How one session used a node: its uses, the least confidence at them, and the time of the last."""

    session_id: str
    uses: int
    lowest_confidence: float
    last_used: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The evidence about one node: the sessions that used it, earliest last use first, and how its outcomes went.

    `moved_at` is when the node last came into its tier. Being put somewhere counts as being used as far as archiving
    goes: else a node just restored from the archive would go back with the next sweep.
    """

    sessions: tuple[SessionUsage, ...] = ()
    successes: int = 0
    failures: int = 0
    moved_at: datetime | None = None


def decide_after_use(
    node: NodeState, usage: Usage, policy: PromotionPolicy, *, session_id: str, at: datetime
) -> PromotionDecision | None:
    """Return whether a use takes the node from task to session; None for a node that is not in task.

    `usage` includes the use just made; of the sessions it is enough to hold the present one.
    """
    if node.tier != "task":
        return None
    return _decision(node, usage, policy, session_id=session_id, at=at)


def decide_after_session(
    node: NodeState, usage: Usage, policy: PromotionPolicy, *, session_id: str, at: datetime
) -> PromotionDecision | None:
    """Return whether the end of a session takes the node from session to longterm; None for one not in session."""
    if node.tier != "session":
        return None
    return _decision(node, usage, policy, session_id=session_id, at=at)


def decide_in_sweep(
    node: NodeState, usage: Usage, policy: PromotionPolicy, *, now: datetime
) -> PromotionDecision | None:
    """Return whether a sweep takes the node from session to longterm, or from longterm to archive.

    None for a node in task, whose move is decided at its uses, and for one in the archive.
    """
    if node.tier not in ("session", "longterm"):
        return None
    return _decision(node, usage, policy, session_id=None, at=now)


def explain(node: NodeState, usage: Usage, policy: PromotionPolicy, *, now: datetime) -> PromotionDecision:
    """Return the conditions of the node's next move by a rule, each with the value found and whether it holds.

    Nothing moves: `moved` is False even where all conditions hold, and `reason` then says when the move will come.
    For a node in the archive there is no such move: `to_tier` is the archive and there are no conditions.
    """
    decision = _decision(node, usage, policy, session_id=None, at=now)
    if decision is None:
        return PromotionDecision(
            node_id=node.id,
            from_tier=node.tier,
            to_tier=node.tier,
            rule="none",
            moved=False,
            actor="auto",
            reason="no rule takes a node out of the archive; restore does",
            at=now,
        )
    if decision.moved:
        return replace(decision, moved=False, reason=f"moves {_WHEN[decision.to_tier]}: {decision.reason}")
    return decision


def decayed(confidence: float, days: float, policy: PromotionPolicy) -> float:
    """Return what is left of a confidence after so many days: confidence * decay_per_day ** days.

    Days before today, from a clock that went back, change nothing.
    """
    return confidence * float(policy.decay_per_day ** max(days, 0.0))


def confidence_after(confidence: float, success: bool, policy: PromotionPolicy) -> float:
    """Return the confidence, in [0, 1], of a node after an outcome of what it served."""
    changed = confidence + (policy.success_step if success else -policy.failure_step)
    # Rounded: 0.7 + 0.1 is 0.7999999999999999, and would miss a threshold of 0.8 that it is meant to reach.
    return min(max(round(changed, 9), 0.0), 1.0)


def entry_hash(previous_hash: str, sequence: int, decision: PromotionDecision) -> str:
    """Return the hash of a log entry, 64 hexadecimal digits: it covers the decision, its place and all before it.

    The same for a decision that was stored and read back: times count in milliseconds, and 2 is 2.0.

    Raises:
        InvalidInputError: The time of the decision has no time zone.
    """
    content = {
        "format": 1,
        "previous_hash": previous_hash,
        "sequence": sequence,
        "node_id": decision.node_id,
        "from_tier": decision.from_tier,
        "to_tier": decision.to_tier,
        "rule": decision.rule,
        "moved": decision.moved,
        "actor": decision.actor,
        "reason": decision.reason,
        "session_id": decision.session_id,
        "at": None if decision.at is None else _milliseconds(decision.at),
        "conditions": [
            [
                condition.name,
                float(condition.found) if isinstance(condition.found, (int, float)) else condition.found,
                condition.required,
                condition.holds,
            ]
            for condition in decision.conditions
        ],
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def chain_start(namespace: str) -> str:
    """Return the `previous_hash` of the first entry of a namespace's log, so that no log passes for another's."""
    return hashlib.sha256(f"promotion log of {namespace}".encode()).hexdigest()


def first_broken(entries: Iterable[LogEntry], *, previous_hash: str = FIRST_HASH) -> int | None:
    """Return the sequence number of the first entry that was changed or does not follow the one before, or None.

    Entries that are missing at the end leave no trace in the chain: compare the last hash with one kept elsewhere.

    Args:
        entries: The log from its first entry on, in order.
        previous_hash: To check a part of a log: the hash of the entry before it.
    """
    last_sequence: int | None = None
    for entry in entries:
        follows = last_sequence is None or entry.sequence > last_sequence
        intact = entry.hash == entry_hash(entry.previous_hash, entry.sequence, entry.decision)
        if not follows or not intact or entry.previous_hash != previous_hash:
            return entry.sequence
        last_sequence, previous_hash = entry.sequence, entry.hash
    return None


_WHEN: dict[Tier, str] = {
    "session": "with its next use",
    "longterm": "when a session that used it ends, or in a sweep",
    "archive": "in the next sweep",
}


def _decision(
    node: NodeState, usage: Usage, policy: PromotionPolicy, *, session_id: str | None, at: datetime
) -> PromotionDecision | None:
    to_tier: Tier
    match node.tier:
        case "task":
            to_tier, conditions = "session", _used_again(usage, policy)
        case "session":
            to_tier, conditions = "longterm", _proved_across_sessions(node, usage, policy)
        case "longterm":
            to_tier, conditions = "archive", _long_unused(node, usage, policy, at)
        case "archive":
            return None
    missing = [condition for condition in conditions if not condition.holds]
    return PromotionDecision(
        node_id=node.id,
        from_tier=node.tier,
        to_tier=to_tier,
        rule=f"{node.tier}-to-{to_tier}",
        moved=not missing,
        actor="auto",
        reason=f"missing: {_listed(missing)}" if missing else _listed(conditions),
        conditions=conditions,
        session_id=session_id,
        at=at,
    )


def _used_again(usage: Usage, policy: PromotionPolicy) -> tuple[Condition, ...]:
    uses = max((session.uses for session in usage.sessions), default=0)
    return (_at_least("uses in one session", uses, policy.min_uses),)


def _proved_across_sessions(node: NodeState, usage: Usage, policy: PromotionPolicy) -> tuple[Condition, ...]:
    recent = usage.sessions[-policy.confident_sessions :]
    lowest = min([node.confidence, *(session.lowest_confidence for session in recent)])
    # A node that was never judged lacks a success alone: no failure holds it back.
    fewer_than = max(usage.successes, 1)
    return (
        _at_least("distinct sessions", len(usage.sessions), policy.min_sessions),
        _at_least("successful outcomes", usage.successes, policy.min_successes),
        Condition("failed outcomes", usage.failures, f"< {fewer_than}", usage.failures < fewer_than),
        _at_least(
            f"lowest confidence in its last {policy.confident_sessions} sessions and now", lowest, policy.min_confidence
        ),
    )


def _long_unused(node: NodeState, usage: Usage, policy: PromotionPolicy, now: datetime) -> tuple[Condition, ...]:
    uses = [session.last_used for session in usage.sessions]
    signs = [at for at in (node.created_at, node.last_accessed, usage.moved_at, *uses) if at is not None]
    days = (_milliseconds(now) - max(map(_milliseconds, signs))) / _DAY_MS if signs else None
    longest = policy.archive_after_days
    return (
        Condition("days unused", days, f"> {longest}", days is not None and days > longest),
        Condition("pinned", "yes" if node.pinned else "no", "no", not node.pinned),
    )


def _at_least(name: str, found: float, threshold: float) -> Condition:
    return Condition(name, found, f">= {threshold}", found >= threshold)


def _listed(conditions: Iterable[Condition]) -> str:
    return "; ".join(f"{c.name} {c.measured} (required: {c.required})" for c in conditions)


def _milliseconds(at: datetime) -> int:
    if at.tzinfo is None:
        message = f"The time {at.isoformat()} has no time zone; expected one, for example datetime.now(UTC)."
        raise InvalidInputError(message)
    return milliseconds(at)


def _check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        message = f"PromotionPolicy: {name} is {value!r}; expected a whole number from {least} on."
        raise InvalidInputError(message)


def _check_number(name: str, value: object, *, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        message = f"PromotionPolicy: {name} is {value!r}; expected a number from 0 to {most}."
        raise InvalidInputError(message)
