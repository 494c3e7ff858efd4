"""Reports of use as lines of text, for the time until they are written down."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from rlm_memory.ports import Tracked, TrackedOutcome

Report: TypeAlias = Tracked | TrackedOutcome


def line_of(report: Report) -> str:
    """Return a report as a line of ASCII, without its end."""
    match report:
        case TrackedOutcome(session_id, success, at_ms, run_id):
            line: list[Any] = [session_id, success, at_ms, run_id]
        case Tracked(session_id, turn, writer, at_ms, run_id, nodes):
            line = [session_id, turn, writer, at_ms, run_id, list(nodes)]
    return json.dumps(line, separators=(",", ":"))


def report_of(line: str | bytes) -> Report | None:
    """Return the report of a line, None where there is none: a kill or a full disk may have cut it off."""
    try:
        match json.loads(line):
            case [str(session_id), int(turn), str(writer), int(at_ms), str() | None as run_id, [*nodes]]:
                known = [(str(id), float(sure)) for id, sure in nodes]
                return Tracked(session_id=session_id, turn=turn, writer=writer, at_ms=at_ms, run_id=run_id, nodes=known)
            case [str(session_id), bool(success), int(at_ms), str(run_id)]:
                return TrackedOutcome(session_id=session_id, success=success, at_ms=at_ms, run_id=run_id)
    except (ValueError, TypeError, RecursionError):
        return None
    return None
