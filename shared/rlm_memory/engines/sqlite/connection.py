"""One SQLite file: its connections, transactions and errors.

One connection writes, behind a lock; any number read, each taken from a pool for the time of a read, so that readers
wait neither for each other nor for the writer (WAL). A database in memory has a single connection, used in turn.
A fork waits until no connection is in use, and the child opens connections of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from os import PathLike
from typing import Any, Final
from urllib.parse import quote

import apsw

from rlm_memory.engines.sqlite.extension import load_vec0
from rlm_memory.engines.sqlite.filters import register_functions
from rlm_memory.engines.sqlite.owned_files import is_there, locked, open_private
from rlm_memory.errors import (
    InvalidInputError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)
from rlm_memory.forks import idle_through_fork

MEMORY: Final = ":memory:"

PAGE_BYTES: Final = 8192
"""Measured on vectors of 1,536 floats: 50 of them are read at random in 0.57 ms, against 0.72 with pages of 4 KiB;
16 KiB gains nothing more, and wastes space in small stores."""
_WAL_KEPT_BYTES = 64 << 20
_WRITER_CACHE_KIB: Final = 8 << 10
"""What a transaction of 500 nodes changes in a store of 100,000 fits. SQLite's own 2 MiB do not hold it: pages are read
and written several times, and deleting takes a seventh more of the processor."""

_NOT_OURS: Final = "the file, or its folder, may not be written by this user; check their permissions"
_DAMAGED: Final = "the database is damaged; restore a backup, or export what can be read"

# What a driver error means to a caller. The first class that fits wins.
_TRANSLATIONS: tuple[tuple[type[apsw.Error], type[StoreError], str], ...] = (
    (
        apsw.BusyError,
        StoreBusyError,
        "another process held the write lock for more than {timeout:g} s; try again later",
    ),
    (apsw.LockedError, StoreBusyError, "the database is locked by another statement of this process"),
    (apsw.FullError, StoreFullError, "the disk is full; nothing of this call was written"),
    (apsw.IOError, StoreFullError, "the file could not be read or written; nothing of this call was written"),
    (apsw.CantOpenError, StoreError, "the file cannot be opened; check that its folder exists and who may use the two"),
    (
        apsw.NotADBError,
        StoreCorruptError,
        "this is not an SQLite database; check the name, a new store needs one that is free",
    ),
    (apsw.CorruptError, StoreCorruptError, _DAMAGED),
    (
        apsw.ReadOnlyError,
        StoreReadOnlyError,
        "the store was opened for reading; open it without read_only=True to write",
    ),
    (apsw.PermissionsError, StoreReadOnlyError, _NOT_OURS),
    (apsw.AuthError, StoreReadOnlyError, _NOT_OURS),
)

_FAILURES: Final = (apsw.IOError, apsw.FullError, apsw.CorruptError, StoreFullError, StoreCorruptError)


class Database:
    """A file, or a database in memory, with one writer and a pool of readers. Safe to use from any thread."""

    def __init__(self, location: str, *, read_only: bool = False, timeout: float = 10.0) -> None:
        """Open the file, creating an empty one with mode 0600 where there is none.

        Args:
            location: A path, or ":memory:".
            read_only: Refuse writes; the file and its folder are left as they are.
            timeout: Seconds to wait for another process's write lock.

        Raises:
            StoreError: The file cannot be opened, or there is none and it may not be made.
        """
        self.in_memory = location == MEMORY
        self.location = location if self.in_memory else os.path.abspath(location)
        if read_only and (self.in_memory or not os.path.exists(self.location)):
            where = "a store in memory begins empty" if self.in_memory else "the file does not exist"
            raise StoreError(
                f"{self.location}: there is no store to read, {where}. Check the name and its folder; "
                "a store is made when it is first opened to write."
            )
        if os.path.isdir(self.location):
            raise StoreError(
                f"{self.location} is a folder, and a store is a file; name one in it, such as "
                f"{os.path.join(self.location, 'memory.db')}"
            )
        self.read_only = read_only
        self.timeout = timeout
        # For whoever remembers what it has read inside a transaction.
        self.after_rollback: Callable[[], None] = lambda: None
        self._closed = False
        self._start()
        with self.translated():
            self._open()
        idle_through_fork(self)

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._idle = threading.Condition()
        self._readers: list[apsw.Connection] = []
        self._in_use = 0
        self._local = _Current()
        self._writer: apsw.Connection | None = None  # opened when it is needed
        # What the writer has been told of `synchronous`: telling it each time is a tenth of a small transaction.
        self._durable: bool | None = None

    # -- reading and writing ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True, wait: bool = True) -> Iterator[apsw.Connection]:
        """Write in one transaction: all of the block is kept, or none of it.

        A block inside another of the same thread joins it. With `durable`, the commit is on disk when the block ends;
        without, a power cut may take the last ones (a killed process does not). Without `wait`, a lock that another
        thread or process holds is a StoreBusyError at once.
        """
        if self._local.writing:
            yield self._open()
            return
        with self.translated(), self._writing(wait) as connection:
            if self.read_only:
                raise apsw.ReadOnlyError("read only")
            if durable is not self._durable:
                connection.pragma("synchronous", "FULL" if durable else "NORMAL")
                self._durable = durable
            self._begin(connection, wait)
            self._local.writing = True
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                self._take_back(connection, error)
                raise
            finally:
                self._local.writing = False

    def _take_back(self, connection: apsw.Connection, error: BaseException) -> None:
        """Roll the transaction back, and part with a connection to which the file has failed."""
        sound = self.in_memory or not isinstance(error, _FAILURES)
        try:
            if connection.in_transaction:  # a full disk may have rolled back already
                connection.execute("ROLLBACK")
        except apsw.Error:  # what broke the block is what the caller is told
            sound = self.in_memory
        finally:
            self.after_rollback()
            if not sound:  # FTS5 keeps what it has read in memory, and takes an index for damaged that is not
                self._writer = None
                connection.close(True)

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction."""
        return self._local.writing

    @contextlib.contextmanager
    def _writing(self, wait: bool) -> Iterator[apsw.Connection]:
        """Hold the writing connection against other threads."""
        if not self._lock.acquire(blocking=wait):
            raise apsw.BusyError("another thread is writing")
        try:
            yield self._open()
        finally:
            self._lock.release()

    def _begin(self, connection: apsw.Connection, wait: bool) -> None:
        if wait:
            connection.execute("BEGIN IMMEDIATE")
            return
        connection.set_busy_timeout(0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.set_busy_timeout(int(self.timeout * 1000))

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Read one consistent state of the database, without waiting for a writer.

        Inside a transaction of the same thread, the block sees what that transaction has written so far.
        """
        if self._local.reader is not None and not self._local.writing:
            yield self._local.reader
            return
        if self._local.writing or self.in_memory:
            with self._lock, self.translated():
                yield self._open()
            return
        with self.translated():
            reader = self._take_reader()
            self._local.reader = reader
            try:
                reader.execute("BEGIN")
                yield reader
            finally:
                self._local.reader = None
                try:
                    if reader.in_transaction:
                        reader.execute("COMMIT")
                finally:
                    self._give_back(reader)

    def renew(self, connection: apsw.Connection) -> None:
        """Let a reader see what has been committed since its block began."""
        if connection is self._local.reader:
            connection.execute("COMMIT")
            connection.execute("BEGIN")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[apsw.Connection]:
        """Hold the connection that has vec0, outside any transaction, for VACUUM and the like."""
        with self._lock, self.translated():
            yield self._open()

    def backup(self, path: str | PathLike[str]) -> None:
        """Write a copy of one state of the database to `path`, complete or not at all, while others go on writing.

        What killed processes have left of copies to the same path is deleted.

        Raises:
            InvalidInputError: There is a file already, or no folder that this user may write to.
        """
        target = os.path.abspath(path)
        if os.path.exists(target):
            raise InvalidInputError(f"{target} exists already; choose another path for the backup.")
        if not os.access(os.path.dirname(target), os.W_OK):
            raise InvalidInputError(
                f"{target}: the file cannot be made; check that its folder exists and may be written."
            )
        with self.translated(), self.reading() as connection:
            _copy(connection, target)

    def keep_copy(self, path: str) -> None:
        """Write a copy of what has been committed, in place of an earlier one; within a transaction too."""
        with self.translated(), contextlib.closing(self._open_reader()) as connection:
            _copy(connection, path)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except apsw.Error as error:
            for theirs, ours, meaning in _TRANSLATIONS:
                if isinstance(error, theirs):
                    if ours is StoreReadOnlyError and not self.read_only:
                        meaning = _NOT_OURS
                    raise ours(f"{self.location}: {meaning.format(timeout=self.timeout)} ({error})") from error
            raise StoreError(f"{self.location}: {type(error).__name__}: {error}") from error
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{error.object[:40]!r} has a lone surrogate and is no valid Unicode text."
            ) from error
        except (UnicodeDecodeError, json.JSONDecodeError) as error:  # what is stored was valid when it was written
            raise StoreCorruptError(f"{self.location}: {_DAMAGED} ({error})") from error

    # -- connections --------------------------------------------------------------------------------------------

    def _open(self) -> apsw.Connection:
        """Return the writing connection, opened anew in a forked child."""
        if self._closed:
            raise StoreClosedError(f"{self.location} was closed; open it again with Memory.open")
        if self._writer is None:
            self._writer = self._open_writer()
            self._durable = None  # a new connection has been told nothing
        return self._writer

    def _open_writer(self) -> apsw.Connection:
        if self.in_memory:
            connection = apsw.Connection(MEMORY)
        elif self.read_only:
            connection = self._open_reader()
            load_vec0(connection)
            return connection
        else:
            _create_private(self.location)
            connection = apsw.Connection(self.location, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(int(self.timeout * 1000))
        if connection.pragma("schema_version") == 0:
            connection.pragma("page_size", PAGE_BYTES)
            # A vector lies somewhere in a chain of pages. With the map that this keeps, SQLite need not read all those
            # before it: 7 us in place of 12. (Nothing is vacuumed by itself.)
            connection.pragma("auto_vacuum", "INCREMENTAL")
        if not self.in_memory:
            self._use_wal(connection)
        connection.pragma("cache_size", -_WRITER_CACHE_KIB)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.pragma("journal_size_limit", _WAL_KEPT_BYTES)
        load_vec0(connection)
        register_functions(connection)
        return connection

    def _use_wal(self, connection: apsw.Connection) -> None:
        # Changing the journal mode does not ask the busy handler while another process opens the new file too.
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                connection.pragma("journal_mode", "WAL")
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def _open_reader(self) -> apsw.Connection:
        if self.read_only:
            connection = self._open_leaving_no_trace()
        else:
            connection = apsw.Connection(self.location, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(int(self.timeout * 1000))
        connection.pragma("query_only", True)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        register_functions(connection)
        return connection

    def _open_leaving_no_trace(self) -> apsw.Connection:
        """Open for reading what may be a file, or in a folder, that this user cannot write."""
        path = self.location
        has_log = os.path.exists(path + "-wal")
        # WAL wants two files beside the database. Who may write takes them away again when closing as the last one; who
        # opens for reading alone leaves them behind.
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        if has_log:  # of a writer, or of one that died: its log is not ours to move into the file
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        elif connection.readonly("main") or not os.access(os.path.dirname(path), os.W_OK):
            connection.close()  # where the two files cannot be made and taken away, nobody else is writing either
            uri = f"file:{quote(path)}?mode=ro&immutable=1"
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        return connection

    def _take_reader(self) -> apsw.Connection:
        if self._closed:
            raise StoreClosedError(f"{self.location} was closed; open it again with Memory.open")
        with self._idle:
            self._in_use += 1
            if self._readers:
                return self._readers.pop()  # the last one used has the warmest cache
        try:
            return self._open_reader()
        except BaseException:
            self._note_idle()
            raise

    def _give_back(self, reader: apsw.Connection) -> None:
        with self._idle:
            if self._closed or reader.in_transaction:  # whose end the file has refused
                reader.close(True)
            else:
                self._readers.append(reader)
        self._note_idle()

    def _note_idle(self) -> None:
        with self._idle:
            self._in_use -= 1
            self._idle.notify_all()

    def close(self) -> None:
        """Close every connection; the files are released. Closing twice is fine."""
        with self._lock:
            with self._idle:
                self._closed = True
                while self._readers:
                    self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def before_fork(self) -> None:
        """Wait until no other thread reads or writes, and let none begin before `after_fork_in_parent`, or in child."""
        self._forking = self._lock.acquire(timeout=self.timeout)
        self._idle.acquire()
        own = int(self._local.reader is not None)
        self._forking &= self._idle.wait_for(lambda: self._in_use <= own, self.timeout)

    def after_fork_in_parent(self) -> None:
        """Let the others go on."""
        self._idle.release()
        with contextlib.suppress(RuntimeError):  # not held: another thread has been writing for too long
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's connections, so that those the child opens are its own.

        While one is open, SQLite takes its file locks to be those of this process and asks for none: the parent, when
        it closes, would see nobody, and delete the log that the child goes on writing to. Closing does nothing to the
        file as long as the parent holds its lock. What is in use is left alone: its rollback would be the parent's.
        """
        if self.in_memory:
            self.after_fork_in_parent()
        else:
            idle = [*self._readers, *([self._writer] if self._writer is not None and self._forking else [])]
            for connection in idle:
                if not connection.in_transaction:
                    connection.close()
            _abandoned.append((self._writer, self._readers))
            self._start()


def rows_of(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
    """Return all rows of a statement, each a tuple of what its columns hold."""
    return connection.execute(sql, bindings).fetchall()


def row_of(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> Any:
    """Return the first row of a statement, None if there is none."""
    return connection.execute(sql, bindings).fetchone()


class _Current(threading.local):
    """What this thread is in the middle of."""

    writing: bool = False
    reader: apsw.Connection | None = None


def _create_private(location: str) -> None:
    """Create the file, readable by its owner alone; SQLite gives -wal and -shm the same mode."""
    try:
        os.close(os.open(location, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(
            f"{location}: the file cannot be made ({error.strerror}); check that its folder exists and may be written"
        ) from error


def _copy(connection: apsw.Connection, target: str) -> None:
    """Write the database to a file that gets its name when it is complete."""
    _clear_partial(target)
    partial = f"{target}.{uuid.uuid4().hex}.partial"
    try:  # from before there is a file on, as Ctrl-C may come at any moment
        with _owned(partial, target) as owned:
            copy = apsw.Connection(partial)
            try:
                with copy.backup("main", connection, "main") as backup:
                    backup.step()  # all pages in one step: one snapshot, however much is written meanwhile
                copy.pragma("journal_mode", "DELETE")  # one file, nothing beside it
            finally:
                copy.close()
            if sys.platform == "win32":  # which renames no file that is open
                owned.close()
            os.replace(partial, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _owned(partial: str, target: str) -> FileIO:
    """Return a new file for a copy under way, which is this process's until it is closed."""
    while True:
        try:
            file = FileIO(partial, "x+", opener=open_private)
        except FileExistsError:  # whoever took it for a dead process's, see below, is about to delete it
            continue
        except OSError as error:
            raise StoreError(
                f"{target}: the file cannot be made ({error.strerror}); check that its folder exists and may be written"
            ) from error
        # Somebody may have found it in this instant, and taken it for a dead process's.
        ours = False
        try:
            ours = locked(file) and is_there(file)
        finally:
            if not ours:
                file.close()
        if ours:
            return file


def _clear_partial(target: str) -> None:
    """Delete what processes have left that were killed while they wrote this file, where that is allowed."""
    folder, name = os.path.split(target)
    pattern = re.compile(re.escape(name) + r"\.[0-9a-f]+\.partial")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for path in [entry.path for entry in entries if pattern.fullmatch(entry.name)]:
            with contextlib.suppress(OSError), FileIO(path, "r+") as file:
                if not locked(file):
                    continue
                for beside in ("-journal", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path + beside)
                if sys.platform == "win32":
                    file.close()
                os.unlink(path)


_abandoned: list[Any] = []
