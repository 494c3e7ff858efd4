"""Calls that may be pending when the process dies: each is journalled, so that none that finished is made again.

An operation is recognised by its turn, its depth, its kind, its payload, and how many equal ones came before it in the
turn. So a turn that is run again after a crash finds the results that it had already.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlm_memory.checkpoints.codec import encode
from rlm_memory.checkpoints.errors import CheckpointWriteError, OperationError
from rlm_memory.checkpoints.heap import digest
from rlm_memory.checkpoints.journal import Entry, Journal, from_document, to_document

Status = Literal["pending", "done", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A call that a session makes: to a model, a tool, a child.

    `idempotent`: making it twice does no harm. `result` is there when the status is "done", `error` when it "failed".
    """

    id: str
    kind: str
    payload: Any
    idempotent: bool
    turn: int
    key: str
    status: Status = "pending"
    result: Any = None
    error: str | None = None


class Operations:
    """The operations of a session since its turn began, and those that an earlier process left behind."""

    def __init__(self, journal: Journal, depth: int) -> None:
        self._journal = journal
        self._depth = depth
        self._lock = threading.Lock()
        self._known: dict[str, Operation] = {}
        self._left: dict[str, Operation] = {}  # by key: what an earlier process left, finished or not
        self._seen: Counter[str] = Counter()

    def claim(self, kind: str, payload: Any, turn: int) -> Operation | None:
        """Return what an earlier process left of this very call, if it settles the call, else None.

        It is done, or skipped by decision, or pending and not to be made twice. An idempotent one that is pending, or
        one that failed, settles nothing.
        """
        with self._lock:
            key = self._key(kind, payload, turn)
            left = self._left.get(key)
            if left is None or (left.status == "pending" and left.idempotent):
                return None
            if left.status != "pending":
                self._count(key)
                self._known[left.id] = self._left.pop(key)
            return left

    def begin(self, kind: str, payload: Any, turn: int, *, idempotent: bool) -> Operation:
        """Journal the beginning of an operation; one that must not be made twice is on the disk before this returns."""
        with self._lock:
            key = self._key(kind, payload, turn)
            self._count(key)
            self._left.pop(key, None)  # this attempt takes its place
            operation = Operation(
                id=uuid.uuid4().hex, kind=kind, payload=payload, idempotent=idempotent, turn=turn, key=key
            )
            self._known[operation.id] = operation
        entry = {"event": "begin", "id": operation.id, "kind": kind, "turn": turn, "key": key, "idempotent": idempotent}
        try:
            self._journal.append({**entry, "payload": to_document(payload)}, durable=not idempotent)
        except CheckpointWriteError:  # nobody gets its id, so nobody could ever end it
            with self._lock:
                self._known.pop(operation.id, None)
            raise
        return operation

    def finish(
        self, id: str, status: Status, *, result: Any = None, error: str | None = None, also: Entry | None = None
    ) -> Operation:
        """Journal the end of an operation, and what else is to be kept with it; on the disk before this returns.

        Raises:
            OperationError: there is no such operation, or it is finished already.
        """
        with self._lock:
            operation = self._known.get(id)
            if operation is None:
                operation = next((left for left in self._left.values() if left.id == id), None)
            if operation is None:
                raise OperationError(f"There is no operation {id!r}; begin it first.")
            if operation.status != "pending":
                raise OperationError(f"The operation {id!r} is {operation.status} already.")
            finished = replace(operation, status=status, result=result, error=error)
            if operation.key in self._left:
                self._left[operation.key] = finished
            else:
                self._known[id] = finished
        entry: Entry = {"event": status, "id": id, "error": error}
        if status == "done":
            entry["result"] = to_document(result)
        self._journal.append({**entry, **(also or {})}, durable=True)
        return finished

    @property
    def pending(self) -> list[Operation]:
        """The operations that have begun and have no end, oldest first."""
        with self._lock:
            each = [*self._left.values(), *self._known.values()]
        return [operation for operation in each if operation.status == "pending"]

    @property
    def finished_before(self) -> list[Operation]:
        """What an earlier process finished and this one has not asked for yet."""
        with self._lock:
            return [operation for operation in self._left.values() if operation.status == "done"]

    def new_turn(self, turn: int) -> None:
        """Forget what was finished before this turn, in which equal calls are counted anew.

        What an earlier process finished in later turns is kept: they are still to be run again.
        """
        with self._lock:
            self._known = {id: each for id, each in self._known.items() if each.status == "pending"}
            self._left = {
                key: each for key, each in self._left.items() if each.status == "pending" or each.turn >= turn
            }
            self._seen.clear()

    def take_over(self, saved: list[Operation], entries: list[Entry]) -> None:
        """Take what an earlier process left: the operations pending in its checkpoint, and the journal since then."""
        found = {operation.id: operation for operation in saved}
        for entry in entries:
            match entry:
                case {"event": "begin", "id": id, "kind": kind, "turn": turn, "key": key, "idempotent": idempotent}:
                    found[id] = Operation(
                        id=id,
                        kind=kind,
                        payload=from_document(entry["payload"]),
                        idempotent=idempotent,
                        turn=turn,
                        key=key,
                    )
                case {"event": ("done" | "failed" | "skipped") as status, "id": id} if id in found:
                    result = from_document(entry["result"]) if status == "done" else None
                    found[id] = replace(found[id], status=status, result=result, error=entry.get("error"))
        for operation in found.values():  # a later attempt at the same call replaces an earlier one
            earlier = self._left.get(operation.key)
            if operation.status != "failed" and (earlier is None or earlier.status == "pending"):
                self._left[operation.key] = operation

    def _key(self, kind: str, payload: Any, turn: int) -> str:
        heap, _ = encode([("payload", payload)])
        content = digest(heap.segments[0], heap.roots[0][1])
        same = hashlib.sha256(f"{turn}\0{self._depth}\0{kind}\0{content}".encode()).hexdigest()
        return f"{same}.{self._seen[same] + 1}"

    def _count(self, key: str) -> None:
        self._seen[key.partition(".")[0]] += 1
