"""Which turn of a session a report belongs to: one root run is one turn, whoever reports from inside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rlm_memory import Hit, Memory, Node, Session

_REMEMBERED: Final = 256


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of an agent in a session. What is found in it twice is one use, and its outcome is one."""

    session: Session
    number: int
    run_id: str

    def record(self, found: Sequence[Node | Hit]) -> None:
        """Report what was handed to a reader; it waits for nobody."""
        self.session.record(found, turn=self.number, run_id=self.run_id)

    def record_access(self, ids: Sequence[str]) -> None:
        """Report nodes by their ids; unknown ids are passed over. It waits for nobody."""
        self.session.record_access(ids, turn=self.number, run_id=self.run_id)

    def record_outcome(self, success: bool) -> None:
        """Report whether what was found in this turn has served; it waits for nobody."""
        self.session.record_outcome(success, run_id=self.run_id)


class Sessions:
    """The sessions of one memory that somebody reports to, by their ids. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def get(self, session_id: str) -> Session:
        """Return the session, the same object as before while it is remembered: it counts the turns."""
        with self._lock:
            if (session := self._open.pop(session_id, None)) is None:
                session = self._memory.session(session_id)
            self._open[session_id] = session
            if len(self._open) > _REMEMBERED:
                del self._open[next(iter(self._open))]
            return session

    def turn(self, session_id: str, run_id: str) -> Turn:
        """Return a new turn of a session."""
        session = self.get(session_id)
        return Turn(session, session.next_turn(), run_id)
