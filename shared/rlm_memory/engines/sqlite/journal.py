"""Accesses that have been reported and are not in the database yet.

A search must not wait for the write lock, and what it reports must survive the process. So it appends a line to a small
file of its own beside the database, which takes some microseconds, and whoever next holds the lock anyway writes the
lines into the tables. A process that died leaves its file behind; the next one takes it in.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import apsw

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database

try:
    import fcntl
except ImportError:  # Windows deletes no file that is open, which tells as much as a lock does
    fcntl = None  # type: ignore[assignment]  # tested before each use

_MARK: Final = "-accesses-"


class AccessJournal:
    """The queue of one namespace of one file, safe against a kill; of a store in memory, a list. Thread-safe."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = hashlib.sha256(namespace.encode()).hexdigest()[:16]
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._queued: list[Mapping[str, Any]] = []
        self._taken: list[Mapping[str, Any]] = []
        self._settled: list[IO[bytes] | Path] = []  # files whose entries the transaction under way writes down
        self._deleted: list[tuple[str]] = []  # names that need not be noted any longer
        self._owner = os.getpid()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Keep an entry; when this returns, a kill of the process does not lose it."""
        with self._lock:
            self._leave_to_parent()
            if not self._database.in_memory:
                self._write(entry)
            self._queued.append(entry)

    def __len__(self) -> int:
        return len(self._queued)

    def take(self, connection: apsw.Connection) -> list[Mapping[str, Any]]:
        """Return what is queued here and what dead processes have left, in the transaction that writes it down.

        The names of the files are noted in the same transaction, so that none is taken in twice; `forget` deletes the
        files after its commit, `keep` takes the entries back if it failed. One taker at a time.
        """
        with self._lock:
            self._leave_to_parent()
            taken, self._queued = self._queued, []
            self._taken = taken
            if self._file is not None:
                self._settled.append(self._file)
                self._file = None
        entries: list[Mapping[str, Any]] = []
        for path in self._left_behind(connection):
            entries.extend(_entries(path.read_bytes()))
            self._settled.append(path)
        connection.executemany(statements.FORGET_JOURNAL, self._deleted)
        connection.executemany(statements.NOTE_JOURNAL, [(_name(file),) for file in self._settled])
        return [*entries, *taken]

    def forget(self) -> None:
        """Delete the files whose entries are in the database now."""
        with self._lock:
            settled, self._settled, self._taken = self._settled, [], []
        self._deleted = [(_name(file),) for file in settled]
        for file in settled:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file if isinstance(file, Path) else file.name)
            if not isinstance(file, Path):
                file.close()

    def keep(self) -> None:
        """Queue again what was taken: its transaction did not commit."""
        with self._lock:
            self._queued[:0] = self._taken
            self._taken = []
            own = [file for file in self._settled if not isinstance(file, Path)]
            self._settled = list(own)  # noted anew, and deleted, with the next take

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._file is None:
            name = f"{self._database.location}{_MARK}{self._namespace}-{uuid.uuid4().hex}"
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # held as long as this process lives
            self._file = open(name, "ab", buffering=0, opener=lambda *_: descriptor)  # noqa: SIM115 - closed by forget
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")

    @property
    def left_behind(self) -> bool:
        """Whether there are files of processes that are gone."""
        return any(True for _ in self._orphans())

    def _orphans(self) -> Iterator[Path]:
        if self._database.in_memory:
            return
        database = Path(self._database.location)
        own = {_name(file) for file in [*self._settled, *([self._file] if self._file else [])]}
        for path in sorted(database.parent.glob(f"{glob.escape(database.name)}{_MARK}{self._namespace}-*")):
            if path.name not in own and _is_left(path):
                yield path

    def _left_behind(self, connection: apsw.Connection) -> Iterator[Path]:
        """Yield the files of processes that are gone, but for those that are in the database already."""
        for path in self._orphans():
            if connection.execute(statements.FIND_JOURNAL, (path.name,)).fetchone():
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()  # its process died between the commit and the deletion
            else:
                yield path

    def _leave_to_parent(self) -> None:
        """After a fork, drop what belongs to the parent, which will write it down itself."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        if self._database.in_memory:
            return
        self._queued, self._settled, self._taken = [], [], []
        if self._file is not None:
            self._file.close()  # the parent's lock stays: it has the file open too
            self._file = None


def _name(file: IO[bytes] | Path) -> str:
    return file.name if isinstance(file, Path) else Path(file.name).name


def _is_left(path: Path) -> bool:
    """Return whether no living process has the file open."""
    if fcntl is None:
        try:
            path.rename(path)
        except OSError:
            return False
        return True
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _entries(stored: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a file, but for a last line that was cut off by a kill."""
    *lines, _torn = stored.split(b"\n")
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry
