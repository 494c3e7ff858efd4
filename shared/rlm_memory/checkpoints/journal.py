"""What happened since the last checkpoint: one line an event, appended, never changed.

A line is the first 16 digits of a SHA-256, a space, and JSON. A line that a killed process left half written is at the
end and is dropped; a damaged one in the middle is reported and skipped. The journal is data: nothing in it is ever
restored as code, whatever the store trusts.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rlm_memory.checkpoints.codec import decode, encode
from rlm_memory.checkpoints.errors import CheckpointDamagedError, CheckpointWriteError
from rlm_memory.checkpoints.files import sync_directory
from rlm_memory.checkpoints.heap import Heap, from_json, to_json

Entry = dict[str, Any]
_DIGITS = 16


def to_document(value: Any) -> Any:
    """Return a value as JSON that `from_document` turns back: exactly, or into a placeholder that says why."""
    heap, _ = encode([("value", value)])
    blobs = {name: base64.b64encode(blob).decode() for name, blob in heap.blobs.items()}
    slot, nodes = heap.roots[0][1], heap.segments[0]
    return {"is": slot, **({"nodes": nodes} if nodes else {}), **({"blobs": blobs} if blobs else {})}


def from_document(document: Any) -> Any:
    """Return the value of a document; it is read as data, and no code in it is restored.

    Raises:
        CheckpointDamagedError: it is not one.
    """
    match document:
        case {"is": slot}:
            blobs = {name: base64.b64decode(blob) for name, blob in document.get("blobs", {}).items()}
            values, _ = decode(Heap([(0, slot)], [document.get("nodes", [])], blobs), ["value"])
            return values[0]
    raise CheckpointDamagedError("A value of the journal is not written as one.")


class Journal:
    """An append-only file of events; several processes may append to it."""

    def __init__(self, path: Path, lock: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self.path = path
        self._lock = lock

    @property
    def position(self) -> int:
        """The length in bytes: where the next entry will be."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, entry: Entry, *, durable: bool) -> None:
        """Add an entry; with `durable` it survives a loss of power when this returns.

        Raises:
            CheckpointWriteError: the disk refused; the entry may be there in part, and is then dropped.
        """
        text = to_json(entry)
        line = b"%b %b\n" % (_checksum(text), text)
        try:
            with self._lock():
                is_new = not self.path.exists()
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
                with os.fdopen(descriptor, "r+b") as file:
                    _drop_torn_end(file)
                    file.write(line)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                if is_new:
                    sync_directory(self.path.parent)
        except CheckpointWriteError:  # it names the folder of the journal, and is an OSError itself
            raise
        except OSError as error:
            raise CheckpointWriteError(f"The journal {self.path} was not written: {error}.") from error

    def entries(self, *, after: int = 0) -> list[Entry]:
        """Return the entries from a position on, in order; damaged ones are left out (see `problems`)."""
        return [entry for _, entry in self._lines(after) if entry is not None]

    def problems(self) -> list[str]:
        """Return what is wrong with the file; half a line at its end is not."""
        return [f"the line at byte {place} is damaged" for place, entry in self._lines(0) if entry is None]

    def _lines(self, after: int) -> list[tuple[int, Entry | None]]:
        if not self.path.exists():
            return []
        found: list[tuple[int, Entry | None]] = []
        place = after
        for line in self.path.read_bytes()[after:].splitlines(keepends=True):
            if line.endswith(b"\n"):
                found.append((place, _entry(line[:-1])))
            place += len(line)
        return found


def _entry(line: bytes) -> Entry | None:
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    try:
        entry = from_json(text, "an entry")
    except CheckpointDamagedError:
        return None
    return entry if isinstance(entry, dict) else None


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_DIGITS].encode()


def _drop_torn_end(file: Any) -> None:
    """Cut off what a killed process left half written, and stand at the end."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    kept = file.read().rfind(b"\n") + 1
    file.seek(kept)
    file.truncate()
