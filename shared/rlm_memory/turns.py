"""Which session a run belongs to, and which turn of it: one root run is one turn, whoever reports from inside it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlm_memory.memory import Memory
from rlm_memory.records import Hit, Node
from rlm_memory.sessions import Session

_REMEMBERED: Final = 256


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of an agent in a session. What is found in it twice is one use, and its outcome is one."""

    session: Session
    number: int
    run_id: str
    told: Callable[[str], None] | None = None
    """Called with the run when its outcome, or that there is none yet, is told by another than who watches it."""

    def record(self, found: Sequence[Node | Hit]) -> None:
        """Report what was handed to a reader; it waits for nobody."""
        self.session.record(found, turn=self.number, run_id=self.run_id)

    def record_access(self, ids: Sequence[str]) -> None:
        """Report nodes by their ids; unknown ids are passed over. It waits for nobody."""
        self.session.record_access(ids, turn=self.number, run_id=self.run_id)

    def record_outcome(self, success: bool) -> None:
        """Report whether what was found in this turn has served; it waits for nobody."""
        self.session.record_outcome(success, run_id=self.run_id)

    def judge(self, success: bool) -> int:
        """Tell whether what was found in this turn has served; return how many nodes the outcome was attached to."""
        self.leave_open()
        return self.session.outcome(success, run_id=self.run_id)

    def leave_open(self) -> None:
        """Keep the end of the run from being taken for its outcome."""
        if self.told is not None:
            self.told(self.run_id)


class Sessions:
    """The sessions of one memory that somebody reports to, by their names. Thread-safe."""

    def __init__(self, memory: Memory, session_id: str | None = None) -> None:
        """Report to this session, or to those that the runs name.

        Args:
            memory: The memory.
            session_id: The session of every run that does not name one itself.

        Raises:
            InvalidInputError: The session id is no text, or empty.
        """
        self._memory = memory
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._given = session_id
        self._own = str(uuid.uuid4())
        if session_id is not None:
            self.get(session_id)

    def name(self, *places: Mapping[str, Any]) -> str:
        """Return the id of the session that a run belongs to.

        It is the `session_id` of one of the places, else the one that was given here, else a `thread_id`; where there
        is none of these, it is one of this object's own.
        """
        return named_session(*places) or self._given or _find("thread_id", places) or self._own

    def get(self, session_id: str) -> Session:
        """Return the session, the same object as before while it is remembered: it counts the turns."""
        with self._lock:
            if (session := self._open.pop(session_id, None)) is None:
                session = self._memory.session(session_id)
            self._open[session_id] = session
            if len(self._open) > _REMEMBERED:
                del self._open[next(iter(self._open))]
            return session

    def turn(self, session_id: str, run_id: str | None = None, number: int | None = None) -> Turn:
        """Return a turn of a session, a new one unless its number is given."""
        session = self.get(session_id)
        return Turn(session, session.next_turn() if number is None else number, run_id or uuid.uuid4().hex)


def named_session(*places: Mapping[str, Any]) -> str | None:
    """Return the `session_id` of the first of these places that has one, as a text."""
    return _find("session_id", places)


def _find(key: str, places: Sequence[Mapping[str, Any]]) -> str | None:
    # an id may be a number or a UUID: 1 and "1" are one session
    return next((str(place[key]) for place in places if place.get(key) not in (None, "")), None)
