"""A session: one run of an agent, and what it used."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from rlm_memory.errors import InvalidInputError, StoreError
from rlm_memory.forks import renewed_in_child
from rlm_memory.ports import Tracked, TrackedOutcome
from rlm_memory.records import Hit, Node, PromotionDecision
from rlm_memory.times import milliseconds
from rlm_memory.validation import checked_ids, checked_run_id, checked_turn

if TYPE_CHECKING:
    from rlm_memory.memory import Memory

_logger = logging.getLogger("rlm_memory")


class Session:
    """One run of an agent: `memory.session(id)` opens it, here or in another process that goes on with it.

    Searches with `session=` report what they found; `outcome` tells how it served. As a context manager it ends with
    the block: an exception is a failed outcome of what had not been judged. On a store that is open for reading a
    session keeps nothing, and there is nothing to judge.

    Each report is a turn of its own unless it is given one: what an agent looks up within one step is one use.
    """

    def __init__(self, memory: Memory, session_id: str) -> None:
        self.memory = memory
        self.id = session_id
        stored = memory.lifecycle.session(session_id)
        self._turn = 0 if stored is None else stored.turn
        self.after_fork_in_child()
        renewed_in_child(self)

    def after_fork_in_child(self) -> None:
        """From here on, parent and child count their turns each for itself."""
        self._writer = uuid.uuid4().hex[:12]
        self._lock = threading.Lock()

    def next_turn(self) -> int:
        """Return the number of a new turn, to pass with all that belongs to it."""
        with self._lock:
            self._turn += 1
            return self._turn

    def record_access(self, ids: str | Iterable[str], *, turn: int | None = None, run_id: str | None = None) -> None:
        """Report that nodes were handed to a reader; unknown ids are passed over.

        It waits for nobody, and survives the process: the report is written down in the background.

        Args:
            ids: The nodes.
            turn: The turn they belong to; a new one unless given.
            run_id: The run of the framework they were used in, so that its outcome can be told apart.
        """
        self.record(self.memory.lifecycle.as_written(checked_ids(ids)), turn=turn, run_id=run_id)

    def record(self, found: Sequence[Node | Hit], *, turn: int | None = None, run_id: str | None = None) -> None:
        """Report nodes or hits that were handed to a reader, with the confidence they had: see `record_access`."""
        nodes = [item.node if isinstance(item, Hit) else item for item in found]
        self.memory.lifecycle.track(
            Tracked(
                session_id=self.id,
                turn=self.next_turn() if turn is None else checked_turn(turn),
                writer=self._writer,
                at_ms=milliseconds(self.memory.clock()),
                run_id=checked_run_id(run_id),
                nodes=[(node.id, node.confidence) for node in nodes],
            )
        )

    def outcome(self, success: bool, ids: str | Iterable[str] | None = None, *, run_id: str | None = None) -> int:
        """Tell whether what this session used has served; return how many nodes the outcome was attached to.

        Args:
            success: Whether it succeeded.
            ids: These nodes alone, as far as the session used them, also if they were judged before.
            run_id: What was used in this run alone. A later outcome of the same run corrects the earlier one.

        Without `ids` and `run_id`, it is attached to all that the session used and that was not judged yet.
        """
        listed = None if ids is None else checked_ids(ids)
        return self.memory.lifecycle.judge(
            self.id, _checked_success(success), run_id=checked_run_id(run_id), ids=listed
        )

    def record_outcome(self, success: bool, *, run_id: str) -> None:
        """Report whether what was used in a run has served, for callers that must not block, such as an event loop.

        Like an access, it waits for nobody, survives the process, and is written down in the background, after the
        accesses that were reported by then. See `outcome`.
        """
        if (named := checked_run_id(run_id)) is None:
            raise InvalidInputError(
                "record_outcome needs a run_id; without one, outcome judges all that was not judged."
            )
        at_ms = milliseconds(self.memory.clock())
        self.memory.lifecycle.track_outcome(TrackedOutcome(self.id, _checked_success(success), at_ms, named))

    def end(self) -> list[PromotionDecision]:
        """End the session: decide which of the nodes it used go to longterm, and return every decision.

        Ending twice is fine; a session that is used again is open again. One that has used many nodes is decided on
        in many transactions, so that others can write in between, and stays open if it is used meanwhile. If the store
        fails, what was decided before is kept, and is in the error's `decisions`.
        """
        return self.memory.lifecycle.end_session(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end()
            return
        try:
            if issubclass(kind, Exception):  # an interrupt says nothing about what was used
                self.outcome(False)
            self.end()
        except StoreError as error:  # the error of the block is the one to raise
            _logger.warning("Session %s could not be ended, a sweep will do it: %s", self.id, error)

    def __repr__(self) -> str:
        return f"Session({self.id!r})"


def _checked_success(success: object) -> bool:
    if not isinstance(success, bool):
        raise InvalidInputError(f"success is {success!r}; expected True or False.")
    return success
