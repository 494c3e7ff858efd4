"""One store on a server: its connections, transactions and errors.

Connections are taken from a pool of our own for the time of a read or a write. That is forty lines, and saves what a
general pool costs: no thread works in the background, and no connection is tried out before it is used: the BEGIN of a
transaction does that, for nothing was done yet that could be lost.

Writers of a namespace take turns by the lock of its row, from their first statement on. So what they read stays true
until they commit, no two of them wait for each other, and READ COMMITTED is enough, whatever the server's default is.
What is left are others: a newer release that changes the tables, somebody's own statements, a replica that must go on.
The server may then undo a transaction of ours (a deadlock, a serialization failure). That is a StoreConflictError of
the outermost block, when all is rolled back; whoever gave the block can do it again: see `rlm_memory.conflicts`.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias
from uuid import UUID

import psycopg
from psycopg import errors

from rlm_memory.conflicts import CutReadError
from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.location import parse_location
from rlm_memory.engines.postgres.values import key_of, register_values, row_of, rows_of
from rlm_memory.errors import (
    InvalidInputError,
    StoreBusyError,
    StoreClosedError,
    StoreConflictError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from rlm_memory.forks import renewed_in_child

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_DAMAGED: Final = "the database is damaged; restore a backup, or export what can be read"
_UNDONE: Final = (
    "another transaction was in the way, and the server has undone this one; nothing of this is kept, call it again"
)
_ENDED: Final = "a transaction took longer than the server's {} lets it; nothing of this call was written"
_CONFLICTS: Final = (errors.DeadlockDetected, errors.SerializationFailure)
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0

# What a driver error means to a caller. The first class that fits wins.
_TRANSLATIONS: tuple[tuple[type[psycopg.Error], type[StoreError], str], ...] = (
    (
        errors.LockNotAvailable,
        StoreBusyError,
        "somebody else held the write lock of the namespace for more than {timeout:g} s; try again later",
    ),
    (errors.DeadlockDetected, StoreConflictError, _UNDONE),
    (errors.SerializationFailure, StoreConflictError, _UNDONE),
    (errors.QueryCanceled, StoreBusyError, "a statement took longer than the server's statement_timeout lets it"),
    (
        errors.TooManyConnections,
        StoreBusyError,
        "the server takes no more connections; lower pool_size, or raise its limit",
    ),
    (errors.DiskFull, StoreFullError, "the server's disk is full; nothing of this call was written"),
    (errors.ReadOnlySqlTransaction, StoreReadOnlyError, "the server, or the store as it was opened, takes no writes"),
    (errors.InsufficientPrivilege, StoreReadOnlyError, "the role may not do that; see the grants in docs/server.md"),
    (errors.DataCorrupted, StoreCorruptError, _DAMAGED),
    (errors.IndexCorrupted, StoreCorruptError, _DAMAGED),
    (errors.UndefinedTable, StoreCorruptError, "a table of the store is missing"),
    (
        errors.UndefinedObject,
        StoreError,
        "something is not found by the search_path; add the schema of pgvector behind that of the store",
    ),
    (errors.AdminShutdown, StoreUnavailableError, "the server was shut down; nothing of this call was written"),
    (errors.CrashShutdown, StoreUnavailableError, "the server has crashed; nothing of this call was written"),
    (errors.CannotConnectNow, StoreUnavailableError, "the server is starting or stopping; try again later"),
    (
        errors.IdleInTransactionSessionTimeout,
        StoreUnavailableError,
        _ENDED.format("idle_in_transaction_session_timeout"),
    ),
    (errors.TransactionTimeout, StoreUnavailableError, _ENDED.format("transaction_timeout")),
    (errors.InvalidPassword, StoreError, "the server refuses the password"),
    (errors.InvalidAuthorizationSpecification, StoreError, "the server refuses the role"),
    (errors.InvalidCatalogName, StoreError, "there is no such database; create it first"),
)

# What a server says that refuses a connection: libpq passes on its text, in English unless the server is set to another
# language, and not its code.
_REFUSALS: Final[tuple[tuple[re.Pattern[str], type[psycopg.Error]], ...]] = (
    (
        re.compile("too many clients already|remaining connection slots are reserved|too many connections for "),
        errors.TooManyConnections,
    ),
    (re.compile("the database system is (starting|shutting|in recovery|not )"), errors.CannotConnectNow),
    (re.compile("password authentication failed|no password supplied"), errors.InvalidPassword),
    (
        re.compile(
            'role ".*" (does not exist|is not permitted to log in)|authentication failed for user|no pg_hba.conf entry'
        ),
        errors.InvalidAuthorizationSpecification,
    ),
    (re.compile('database ".*" does not exist'), errors.InvalidCatalogName),
)
_PASSING: Final = (errors.TooManyConnections, errors.CannotConnectNow)
_LASTING: Final = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)


class Database:
    """A namespace of a store on a server, with a pool of connections. Safe to use from any thread."""

    def __init__(self, url: str, *, namespace: str, read_only: bool = False) -> None:
        """Connect to the server.

        Args:
            url: See `parse_location`.
            namespace: The name of the namespace that transactions write to.
            read_only: Refuse writes.
        """
        self._place = parse_location(url)
        self.location = self._place.shown
        self.timeout = self._place.timeout
        self.partitions = self._place.partitions
        self.read_only = read_only
        self.name = namespace
        self.namespace: UUID = key_of(namespace)
        # For whoever remembers what it has read inside a transaction.
        self.after_rollback: Callable[[], None] = lambda: None
        self._closed = False
        self._start()
        with self.translated():
            self._idle.append(self._first_connection())
        renewed_in_child(self)

    def _start(self) -> None:
        self._free = threading.Condition()
        self._idle: list[Connection] = []
        self._in_use = 0
        self._local = _Current()
        self._side_lock = threading.Lock()
        self._side: Connection | None = None

    # -- reading and writing ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True, wait: bool = True, everywhere: bool = False) -> Iterator[Connection]:
        """Write to the namespace in one transaction: all of the block is kept, or none of it.

        A block inside another of the same thread joins it. With `durable`, the commit is on disk when the block ends;
        without, a crash of the server may take what was committed in its last half second. Without `wait`, a lock that
        another thread or process holds is a StoreBusyError at once. With `everywhere`, all namespaces are written to:
        whoever writes to one of them comes before, or after.
        """
        if self._local.writer is not None:
            yield self._local.writer
            return
        if self.read_only:
            raise StoreReadOnlyError(
                f"{self.location}: the store was opened for reading; open it without read_only=True to write"
            )
        with self.translated(), self._taken("BEGIN ISOLATION LEVEL READ COMMITTED") as connection:
            if everywhere:
                self._lock_all_namespaces(connection)
            else:
                self._lock_namespace(connection, wait)
            if not durable:
                connection.execute("SET LOCAL synchronous_commit = off")
            self._local.writer = connection
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self.after_rollback()
                raise
            finally:
                self._local.writer = None

    def _lock_namespace(self, connection: Connection, wait: bool) -> None:
        """Take the lock that makes this the only writer of the namespace, which is made if it is new."""
        lock = statements.LOCK_NAMESPACE if wait else statements.LOCK_NAMESPACE_OR_FAIL
        if row_of(connection, lock, (self.namespace,)) is None:
            connection.execute(statements.LOCK_NAMES_TO_ADD)
            connection.execute(statements.INSERT_NAMESPACE, (self.namespace, self.name))
            row_of(connection, lock, (self.namespace,))

    @staticmethod
    def _lock_all_namespaces(connection: Connection) -> None:
        """Take the lock of each namespace, in an order that all keep to: of two who do this, none waits for the other.

        A new one is made before, or afterwards. One by one: Citus locks no rows of several shards at once.
        """
        connection.execute(statements.WRITE_SHARD_BY_SHARD)
        connection.execute(statements.LOCK_NAMES)
        keys = rows_of(connection, statements.SELECT_NAMESPACE_KEYS)
        with connection.pipeline():
            for key in keys:
                connection.execute(statements.LOCK_NAMESPACE, key)

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction."""
        return self._local.writer is not None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read one consistent state of the database, without waiting for a writer.

        Inside a transaction of the same thread, the block sees what that transaction has written so far.
        """
        current = self._local.writer or self._local.reader
        if current is not None:
            yield current  # what goes wrong, the outermost block translates when it has rolled back
            return
        with self.translated(), self._taken("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            self._local.reader = connection
            try:
                yield connection
                connection.execute("COMMIT")
            except psycopg.Error as error:
                if not (connection.closed or _is_lost(error)):
                    raise
                raise CutReadError(
                    f"{self.location}: the connection was lost in the middle of a read; call it again ({error})"
                ) from error
            finally:
                self._local.reader = None

    def look_up(self, sql: str) -> list[Any]:
        """Return the rows of one SELECT that needs no transaction around it: one journey to the server, not three."""
        current = self._local.writer or self._local.reader
        if current is not None:
            return rows_of(current, sql)
        with self.translated():
            connection, cursor = self._begun(sql)
            try:
                return cursor.fetchall()
            finally:
                self._give_back(connection)

    @contextlib.contextmanager
    def outside(self) -> Iterator[Connection]:
        """Give a connection that is in no transaction, for VACUUM and for the schema."""
        with self.translated(), self._taken("SELECT 1") as connection:
            yield connection

    def at_once(self, sql: str, values: tuple[Any, ...]) -> None:
        """Execute one statement of its own on a connection beside the pool, whatever this thread is in the middle of.

        It waits for no disk: a crash of the server may take what was committed in its last half second.
        """
        with self._side_lock, self.translated():
            if self._closed:
                raise StoreClosedError(f"{self.location} was closed; open it again with Memory.open")
            for attempt in (1, 2, 3):
                if self._side is None or self._side.closed:
                    self._side = self._connect()
                    self._side.execute("SET synchronous_commit = off")
                try:
                    self._side.execute(sql, values)
                    return
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if attempt == 3 or not (self._side.closed or isinstance(error, _CONFLICTS)):
                        raise

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        try:
            yield
        except psycopg.Error as error:
            for theirs, ours, meaning in _TRANSLATIONS:
                if isinstance(error, theirs):
                    raise ours(f"{self.location}: {meaning.format(timeout=self.timeout)} ({error})") from error
            if _is_lost(error):
                raise StoreUnavailableError(
                    f"{self.location}: the server cannot be reached, or the connection is lost; "
                    f"what was not acknowledged may not be kept ({error})"
                ) from error
            raise StoreError(f"{self.location}: {type(error).__name__}: {error}") from error
        except (UnicodeDecodeError, json.JSONDecodeError) as error:  # what is stored was valid when it was written
            raise StoreCorruptError(f"{self.location}: {_DAMAGED} ({error})") from error

    # -- connections --------------------------------------------------------------------------------------------

    def _first_connection(self) -> Connection:
        """Connect; a server that is full or starting is waited for, one that is not there is told at once."""
        pauses = _pauses(time.monotonic() + self.timeout)
        while True:
            try:
                return self._connect()
            except _PASSING:
                if (pause := next(pauses, None)) is None:
                    raise
                time.sleep(pause)

    def _connect(self) -> Connection:
        try:
            connection: Connection = psycopg.connect(
                self._place.conninfo, autocommit=True, application_name="rlm-memory"
            )
        except psycopg.ProgrammingError as error:
            raise InvalidInputError(f"{self.location}: {error}") from error
        except psycopg.OperationalError as error:
            for pattern, meant in _REFUSALS:
                if pattern.search(str(error)):
                    raise meant(str(error)) from error
            raise
        try:
            register_values(connection.adapters)
            settings = (f"{int(self.timeout * 1000)}ms", "on" if self.read_only else None)
            encoding, *_ = row_of(connection, statements.PREPARE_CONNECTION, settings)
            if encoding != "UTF8":
                raise StoreError(f"{self.location}: the database has the encoding {encoding}; expected UTF8.")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _taken(self, begin: str) -> Iterator[Connection]:
        """Hold a connection on which `begin` was executed; in no transaction and sound when it is given back."""
        connection, _ = self._begun(begin)
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _begun(self, begin: str) -> tuple[Connection, psycopg.Cursor[tuple[Any, ...]]]:
        """Return a connection that works, with what `begin` gave: one that a restart has cut is replaced."""
        deadline = time.monotonic() + self.timeout
        self._wait_for_place(deadline)
        pauses = _pauses(deadline)
        try:
            while True:
                with self._free:
                    connection = self._idle.pop() if self._idle else None
                fresh = connection is None
                try:
                    connection = connection or self._connect()
                    return connection, connection.execute(begin)
                except _LASTING:
                    raise
                except errors.QueryCanceled:  # the connection is sound, the server slow
                    if connection is not None:
                        connection.close()
                    raise
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if connection is not None:
                        connection.close()
                    if not fresh:
                        continue  # it had grown old; the next may be sound
                    if (pause := next(pauses, None)) is None:
                        raise
                    time.sleep(pause)
        except BaseException:
            self._leave_place()
            raise

    def _wait_for_place(self, deadline: float) -> None:
        with self._free:
            while True:
                if self._closed:
                    raise StoreClosedError(f"{self.location} was closed; open it again with Memory.open")
                if self._in_use < self._place.most_connections:
                    self._in_use += 1
                    return
                if not self._free.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise StoreBusyError(
                        f"{self.location}: all {self._in_use} connections were in use for {self.timeout:g} s; "
                        "use fewer threads, or a larger pool_size in the location"
                    )

    def _leave_place(self) -> None:
        with self._free:
            self._in_use -= 1
            self._free.notify()

    def _give_back(self, connection: Connection) -> None:
        try:
            if not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        with self._free:
            if self._closed or connection.closed:
                connection.close()
            else:
                self._idle.append(connection)
        self._leave_place()

    def close(self) -> None:
        """Close every connection that is not in use, and the others as they are given back. Twice is fine."""
        with self._free:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            self._free.notify_all()
        with self._side_lock:
            if self._side is not None:
                self._side.close()
                self._side = None

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections to it: what this process writes to them would be answered there."""
        _abandoned.append((self._idle, self._local, self._side))
        self._start()


def _pauses(deadline: float) -> Iterator[float]:
    """Yield how long to wait before each further try, as long as there is time for one."""
    pause = _FIRST_PAUSE
    while time.monotonic() + pause <= deadline:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether this is what the client says of a connection, and not what the server says."""
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


class _Current(threading.local):
    """What this thread is in the middle of."""

    writer: Connection | None = None
    reader: Connection | None = None


_abandoned: list[Any] = []
