"""What accesses and outcomes amount to, computed the plain way: a model to hold the ledger of an engine against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rlm_memory.promotion import SessionUsage, Usage
from rlm_memory.records import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether what some accesses of a node served succeeded; it is already attached to that node.

    `run_id` names the run that was judged: a later outcome of the same run corrects the earlier one.
    """

    session_id: str
    success: bool
    at: datetime
    run_id: str | None = None


def usage_of(
    accesses: Iterable[Access], outcomes: Iterable[Outcome] = (), *, moved_at: datetime | None = None
) -> Usage:
    """Return the evidence that the accesses of one node, in any order, and the outcomes attached to it amount to.

    A use is one access in one turn: however often the node is handed out within a turn of a session, it is one use.
    Turns are those of one writer: another process in the same session counts its own. Of several outcomes of one run
    the last counts; of two at the same moment, the failure.
    """
    by_session: dict[str, list[Access]] = {}
    for access in accesses:
        by_session.setdefault(access.session_id, []).append(access)
    sessions = [
        SessionUsage(
            session_id=session_id,
            uses=len({(access.writer, access.turn) for access in group}),
            lowest_confidence=min(access.confidence for access in group),
            last_used=max(access.at for access in group),
        )
        for session_id, group in by_session.items()
    ]
    sessions.sort(key=lambda session: (session.last_used, session.session_id))

    judged: list[bool] = []
    last_of_run: dict[tuple[str, str], tuple[datetime, bool]] = {}
    for outcome in outcomes:
        if outcome.run_id is None:
            judged.append(outcome.success)
        else:
            run = (outcome.session_id, outcome.run_id)
            verdict = (outcome.at, not outcome.success)
            last_of_run[run] = max(last_of_run.get(run, verdict), verdict)
    judged.extend(not failed for _, failed in last_of_run.values())
    return Usage(sessions=tuple(sessions), successes=sum(judged), failures=len(judged) - sum(judged), moved_at=moved_at)
