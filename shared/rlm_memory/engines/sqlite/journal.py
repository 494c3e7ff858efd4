"""Accesses that have been reported and are not in the database yet.

A search must not wait for the write lock, and what it reports must survive the process. So it appends a line to a small
file of its own beside the database, which takes some microseconds. Whoever next writes accesses down, in whatever
process, takes in the new lines of all such files, and notes in the same transaction how far it has read each: no line
is lost, and none is counted twice. A file is deleted by its owner, or by whoever finds it once its owner is dead.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

import apsw

from rlm_memory.engines.reports import Report, line_of, report_of
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import rows_of
from rlm_memory.engines.sqlite.owned_files import is_there, locked, open_private
from rlm_memory.errors import StoreClosedError
from rlm_memory.forks import renewed_in_child

_ATTEMPTS: Final = 20

_logger = logging.getLogger("rlm_memory")


class AccessJournal:
    """The queue of one namespace of one file, safe against a kill; of a store in memory, a list. Thread-safe."""

    def __init__(self, location: str | None, namespace: str) -> None:
        """Queue accesses beside the database at this location; None for a store in memory."""
        # SQLite puts its own files beside the real one too, wherever a link to it is.
        self._database = None if location is None else Path(os.path.realpath(location))
        self._prefix = f"{_name(location)}-accesses-{hashlib.sha256(namespace.encode()).hexdigest()[:16]}-"
        self._lock = threading.Lock()
        self._closed = False
        self._file: FileIO | None = None  # takes what is reported
        self._full: list[FileIO] = []  # take no more; they go once the database has what they hold
        self._loose: list[Report] = []  # what is in no file
        # What the transaction under way takes: files of ours and of dead processes, and how much of what is in none.
        self._taken: list[FileIO] = []
        self._loose_taken = 0
        renewed_in_child(self)

    def append(self, tracked: Report) -> None:
        """Keep accesses, or an outcome; when this returns, a kill of the process does not lose them."""
        with self._lock:
            if self._closed:
                raise StoreClosedError(f"{self._database or ':memory:'} was closed; open it again with Memory.open")
            if self._database is None:
                self._loose.append(tracked)
                return
            try:
                self._write(tracked)
            except OSError as error:  # a search is not to fail for that: what it found is worth more than its trace
                _logger.warning("Accesses are kept in memory alone, no file can be written for them: %s", error)
                self._loose.append(tracked)
                self._finish_file()  # half a line may be its end, and must stay its end

    def _write(self, tracked: Report) -> None:
        if self._file is None:
            self._file = self._create()
        line = line_of(tracked).encode("ascii") + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

    def _finish_file(self) -> None:
        if self._file is not None:
            self._full.append(self._file)
            self._file = None

    def _create(self) -> FileIO:
        """Return a new file that is locked for as long as this process lives."""
        assert self._database is not None
        for _ in range(_ATTEMPTS):
            path = self._database.with_name(self._prefix + uuid.uuid4().hex)
            file = FileIO(str(path), "x+", opener=open_private)
            # Somebody may have found it in this instant, taken it for a dead process's, and be about to delete it.
            if locked(file) and is_there(file):
                return file
            file.close()
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(self._database.parent))

    @property
    def queued(self) -> bool:
        """Whether this process has reported something that it has not seen written down."""
        return self._file is not None or bool(self._full) or bool(self._loose)

    @property
    def waiting(self) -> bool:
        """Whether any process has reported something that may not be written down yet."""
        return self.queued or bool(self._paths())

    def take(self, connection: apsw.Connection) -> list[Report]:
        """Return what has been reported, by any process, since the last time, in the transaction that writes it down.

        After its end comes `finish`. One taker of this process at a time.
        """
        with self._lock:
            self._finish_file()
            self._taken = list(self._full)
            entries = list(self._loose)
            self._loose_taken = len(entries)
        if self._database is None:
            return entries
        taken: dict[str, int] = dict(rows_of(connection, statements.SELECT_JOURNALS))
        for file in self._files():
            name = Path(file.name).name
            start = taken.get(name, 0)
            file.seek(start)
            stored = file.readall() or b""
            whole = stored[: stored.rfind(b"\n") + 1]  # its owner may be in the middle of a line
            entries.extend(_entries(whole))
            if whole:
                connection.execute(statements.PUT_JOURNAL, (name, start + len(whole)))
        # A name whose file is gone can never be read again.
        gone = [(name,) for name in taken if not self._database.with_name(name).exists()]
        connection.executemany(statements.DELETE_JOURNAL, gone)
        return entries

    def _files(self) -> Iterator[FileIO]:
        """Yield every file of this namespace, open for reading as long as the step lasts."""
        own = list(self._taken)
        yield from own
        for path in self._paths():
            if any(path == file.name for file in own):
                continue
            try:
                file = FileIO(path, "r+")
            except OSError:  # deleted since, or another user's
                continue
            if locked(file):
                self._taken.append(file)  # held, so that nobody else deletes it meanwhile
                yield file
            else:
                with file:
                    yield file

    def _paths(self) -> list[str]:
        if self._database is None:
            return []
        with os.scandir(self._database.parent) as folder:
            return sorted(entry.path for entry in folder if entry.name.startswith(self._prefix))

    def finish(self, failed: type[BaseException] | None, *_: object) -> None:
        """Delete the files whose content is in the database now; or leave all as it was, if nothing was committed."""
        with self._lock:
            if failed is None:
                done = self._taken
                self._full = [file for file in self._full if file not in done]
                del self._loose[: self._loose_taken]
            else:
                done = [file for file in self._taken if file not in self._full]
            self._taken, self._loose_taken = [], 0
        for file in done:
            if sys.platform == "win32":  # which deletes no file that is open
                file.close()
            # Before the lock is given back: see `_create`. What cannot be deleted is known to have been read.
            if failed is None:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
            file.close()

    def close(self) -> None:
        """Let go of the files; what is in them is taken in by whoever comes next."""
        with self._lock:
            self._closed = True
            self._finish_file()
            files, self._full = self._full, []
            lost, self._loose = len(self._loose), []
        for file in files:
            file.close()
        if lost and self._database is not None:
            _logger.error("%d reports of accesses are lost: neither a file nor the database could be written", lost)

    def after_fork_in_child(self) -> None:
        """Leave the parent's files to it: its lock on them lasts, for it has them open itself."""
        self._lock = threading.Lock()
        if self._database is None:
            return
        self._finish_file()
        for file in {*self._full, *self._taken}:
            file.close()
        self._full, self._taken, self._loose, self._loose_taken = [], [], [], 0


def _name(location: str | None) -> str:
    return "" if location is None else Path(os.path.realpath(location)).name


def _entries(stored: bytes) -> list[Report]:
    """Return the entries of whole lines, but for what a kill or a full disk has cut off."""
    return [entry for line in stored.split(b"\n") if (entry := report_of(line)) is not None]
