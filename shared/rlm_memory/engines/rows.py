"""Rows of a database as the values they stand for, the same on every engine that keeps metadata as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rlm_memory.promotion import SessionUsage, Usage
from rlm_memory.records import Access, Condition, ForgottenAccesses, LogEntry, Node, PromotionDecision, SessionRecord
from rlm_memory.times import moment


def node_of(row: Any, namespace: str) -> Node:
    """Return the node of a row.

    Its columns: id, type, subtype, tier, confidence, provenance, created_at, updated_at, last_accessed, access_count,
    pinned, metadata, text.
    """
    (id, type, subtype, tier, confidence, provenance, created_at, updated_at, last_accessed, access_count, pinned,
     metadata, text) = row  # fmt: skip
    return Node(
        text=text,
        id=id,
        type=type,
        subtype=subtype,
        tier=tier,
        confidence=confidence,
        provenance=provenance,
        metadata=json.loads(metadata),
        namespace=namespace,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
        last_accessed=moment_or_none(last_accessed),
        access_count=access_count,
        pinned=bool(pinned),
    )


def usages_of(uses: Iterable[Any], outcomes: Iterable[Any]) -> dict[str, Usage]:
    """Return the evidence about nodes by their ids.

    Args:
        uses: For each node and session that used it, the earliest last use first: id of the node, since when it is in
            its tier, id of the session, uses, lowest confidence, last use. The session is None for a node without any.
        outcomes: For each node that has outcomes: its id, successes, failures.
    """
    counts = {id: (successes, failures) for id, successes, failures in outcomes}
    sessions: dict[str, list[SessionUsage]] = {}
    since: dict[str, int] = {}
    for id, tier_since, session_id, turns, lowest, last_used in uses:
        since[id] = tier_since
        found = sessions.setdefault(id, [])
        if session_id is not None:
            last = moment(last_used)
            found.append(SessionUsage(session_id=session_id, uses=turns, lowest_confidence=lowest, last_used=last))
    usages = {}
    for id, found in sessions.items():
        successes, failures = counts.get(id, (0, 0))
        usages[id] = Usage(sessions=tuple(found), successes=successes, failures=failures, moved_at=moment(since[id]))
    return usages


def entry_of(row: Any) -> LogEntry:
    """Return the log entry of a row.

    Its columns: sequence, node_id, from_tier, to_tier, rule, moved, actor, reason, conditions, session_id, at,
    previous_hash, hash.
    """
    (sequence, node_id, from_tier, to_tier, rule, moved, actor, reason, conditions, session_id, at, previous,
     hashed) = row  # fmt: skip
    return LogEntry(
        sequence=sequence,
        decision=PromotionDecision(
            node_id=node_id,
            from_tier=from_tier,
            to_tier=to_tier,
            rule=rule,
            moved=bool(moved),
            actor=actor,
            reason=reason,
            conditions=tuple(Condition(*condition) for condition in json.loads(conditions)),
            session_id=session_id,
            at=moment(at),
        ),
        previous_hash=previous,
        hash=hashed,
    )


def conditions_of(decision: PromotionDecision) -> str:
    """Return the evidence of a decision as the JSON that `entry_of` reads."""
    return json.dumps([[c.name, c.found, c.required, c.holds] for c in decision.conditions])


def session_of(row: Any) -> SessionRecord:
    """Return the session of a row: its number, id, started_at, last_active, ended_at, turn."""
    _, id, started_at, last_active, ended_at, turn = row
    return SessionRecord(
        id=id,
        started_at=moment(started_at),
        last_active=moment(last_active),
        ended_at=moment_or_none(ended_at),
        turn=turn,
    )


def access_of(row: Any) -> Access:
    """Return the access of a row.

    Its columns: the id of the node, that of the session, turn, at, confidence, run_id, writer.
    """
    node_id, session_id, turn, at, confidence, run_id, writer = row
    return Access(
        node_id=node_id,
        session_id=session_id,
        turn=turn,
        at=moment(at),
        confidence=confidence,
        run_id=run_id,
        writer=writer,
    )


def forgotten_of(row: Any) -> ForgottenAccesses:
    """Return what stays of forgotten accesses.

    Its columns: the id of the node, that of the session, accesses, first_at, last_at, lowest_confidence.
    """
    node_id, session_id, accesses, first_at, last_at, lowest_confidence = row
    return ForgottenAccesses(
        node_id=node_id,
        session_id=session_id,
        accesses=accesses,
        first_at=moment(first_at),
        last_at=moment(last_at),
        lowest_confidence=lowest_confidence,
    )


def moment_or_none(ms: int | None) -> datetime | None:
    """Return the moment of a column that may be NULL."""
    return None if ms is None else moment(ms)
