"""Histories of use: what agents and people do with a few memories over months, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlm_memory import Memory
from support import SettableClock

IDS = ("ada", "bo", "cy")
SESSIONS = ("s1", "s2", "s3", "s4")


@dataclass(frozen=True)
class Step:
    """One thing that happens, after so many hours."""

    kind: str
    hours: int = 0
    session: str = "s1"
    ids: tuple[str, ...] = IDS
    run: bool = False
    success: bool = True
    confidence: float = 0.9


KINDS = ("use", "use", "use", "outcome", "outcome of some", "end", "sweep", "confidence", "archive and restore")


def begin(memory: Memory) -> None:
    """Add the memories that histories are about."""
    memory.add([f"what {id} said" for id in IDS], ids=list(IDS), confidence=0.9)


def play(memory: Memory, clock: SettableClock, steps: Iterable[Step]) -> None:
    """Take a store through a history."""
    for step in steps:
        clock.advance(hours=step.hours)
        session = memory.session(step.session)
        run_id = f"run of {step.session}" if step.run else None
        match step.kind:
            case "use":
                session.record_access(step.ids, run_id=run_id)
            case "outcome":
                session.outcome(step.success, run_id=run_id)
            case "outcome of some":
                session.outcome(step.success, step.ids, run_id=run_id)
            case "end":
                session.end()
            case "sweep":
                memory.sweep()
            case "confidence":
                memory.update(step.ids[0], confidence=step.confidence)
            case "archive and restore":
                memory.promote(step.ids[0], "archive", reason="put away")
                memory.restore(step.ids[0])
            case _:
                raise AssertionError(step.kind)


def decided(memory: Memory) -> list[object]:
    """Return all that the rules have decided, what they would decide next, and what they weigh for it."""
    log = [entry.decision for entry in memory.promotion_log()]
    nodes = [
        (node.id, node.tier, node.confidence, node.access_count, node.last_accessed, memory.explain_promotion(node.id))
        for node in memory.list()
    ]
    return [log, nodes, memory.candidates(), memory.sessions()]
