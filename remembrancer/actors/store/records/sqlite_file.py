"""One SQLite file: its one writing connection, a reading one for each thread, and its errors as ours.

WAL and `synchronous=FULL`: readers see the last commit and never wait for the writer (https://sqlite.org/wal.html).
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.actors.store.records.schema import migrate, refuse_newer
from remembrancer.protocol.errors import (
    FileLocked,
    InternalError,
    MemoryUnavailable,
    RecordsUnusable,
    RemembrancerError,
    disk_full,
    is_disk_full,
    size_on_disk,
)

LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""What the write-ahead log is cut back to once it has been moved into the database."""
BUSY_TIMEOUT_S: Final = 2.0
"""How long another program's lock is waited for (ours has one writer): all files share the thread that waits."""
CACHE_KIB: Final = 32_768
"""Pages that a connection keeps. Ten thousand memories with their graph fit: a walk of one hop takes 4.0 ms instead of
5.5 with a quarter of it."""
HEAP_LIMIT_BYTES: Final = 192 * 1024 * 1024
"""What the caches of all connections of the process may take together: beyond it, SQLite gives pages back."""
STATEMENTS: Final = 256
"""Prepared statements that a connection keeps: lists of values make one for each of their lengths."""
PRIMARY_CODE: Final = 0xFF
"""The part of SQLite's extended result codes that names the sort of error."""
NO_SPACE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)

DAMAGED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What opening a damaged file may raise: SQLite quotes the damage, which need not be UTF-8."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


Query = Callable[[str, Sequence[object]], list[Any]]
"""All rows of a query with its arguments."""
encode_json: Final = msgspec.json.Encoder().encode


def places_for(values: Sequence[object]) -> str:
    """`(?,?,…)`, one for each value."""
    return f"({','.join('?' * len(values))})"


def padded(values: Sequence[T], filler: T | None = None) -> list[T]:
    """The values for an `IN`, of which the last (or `filler`) is repeated until there are a power of two.

    Statements of few different lengths stay prepared: to prepare one takes longer than to run it.
    """
    if not values:
        return []
    missing = (1 << (len(values) - 1).bit_length()) - len(values)
    return [*values, *[values[-1] if filler is None else filler] * missing]


def query_of(connection: sqlite3.Connection) -> Query:
    """What reads inside a transaction of that connection."""
    return lambda query, values: connection.execute(query, values).fetchall()


@dataclass(frozen=True, slots=True)
class _Reader:
    """A thread's reading connection, used under its lock: SQLite does not survive a close in the middle of a query."""

    connection: sqlite3.Connection
    lock: threading.RLock = field(default_factory=threading.RLock)


class SqliteFile:
    """Opens the file, and brings it to the present schema: that of records, or the one that `migrations` make.

    Raises:
        SchemaTooNew: a newer release wrote it; it is left as it is.
        StorageFull: the disk has no room to bring it to the present schema; it is left as it is.
        FileLocked: another program has it locked.
        RecordsUnusable: it is damaged, or its directory cannot be made.
    """

    def __init__(self, path: Path, migrations: Sequence[str] | None = None, *, synchronous: str = "FULL") -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(path, error) from error
        self.path = path
        self._local = threading.local()
        self._readers: list[_Reader] = []
        self._readers_lock = threading.Lock()
        self._closed = False
        try:
            refuse_newer(path, *([] if migrations is None else [len(migrations)]))
            self.writer = _connect(path)
            self.writer.execute(f"PRAGMA synchronous = {synchronous}")
        except DAMAGED as error:
            raise not_opened(path, error) from error
        try:
            migrate(self.writer, migrations)
        except DAMAGED as error:
            self.writer.close()
            raise not_opened(path, error) from error

    def size_bytes(self) -> int:
        """Bytes on disk, with the write-ahead log."""
        return size_on_disk(self.path)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database as far as readers allow. Never waits."""
        self.read("PRAGMA wal_checkpoint(PASSIVE)")

    def empty_log(self) -> None:
        """Move all of the write-ahead log into the database and cut it to nothing, if no reader is in the way."""
        self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close every connection, each when its thread has finished the query that it is at. May be called twice."""
        with self._readers_lock:
            self._closed = True
            readers, self._readers = self._readers, []
        for reader in readers:
            with reader.lock:
                reader.connection.close()
        self.writer.close()

    def read(self, query: str, arguments: Sequence[object] = ()) -> list[Any]:
        """All rows of a query, as of the last commit. From any thread."""
        with self._reading() as connection:
            return connection.execute(query, arguments).fetchall()

    def read_together(self, work: Callable[[Query], T]) -> T:
        """What `work` makes of several queries, all as of one commit. From any thread."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            try:
                return work(query_of(connection))
            finally:
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection. What cannot be decoded is a damaged file."""
        try:
            reader = self._reader
            with reader.lock:
                self._refuse_if_closed()
                yield reader.connection
        except sqlite3.Error as error:
            raise as_error(self.path, error) from error
        except ValueError as error:
            raise unusable(self.path, error) from error

    @property
    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            with self._readers_lock:
                self._refuse_if_closed()
                reader = _Reader(_connect(self.path))
                self._readers.append(reader)
            self._local.reader = reader
        return reader

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction of the writing connection. What SQLite raises in it becomes one of our errors."""
        self._refuse_if_closed()
        try:
            self.writer.execute("BEGIN IMMEDIATE")
            try:
                yield self.writer
                self.writer.execute("COMMIT")
            except BaseException:
                if self.writer.in_transaction:  # a full disk ends a transaction by itself
                    self.writer.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise as_error(self.path, error) from error

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise MemoryUnavailable(f"{self.path.name} is closed: the store is stopping")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # what was erased is not to be read from the file
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # checkpoints have a thread of their own
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA soft_heap_limit = {HEAP_LIMIT_BYTES}")
    return connection


def not_opened(path: Path, error: sqlite3.DatabaseError | UnicodeDecodeError) -> RemembrancerError:
    """The error for a file that cannot be opened: it is damaged, unless it is locked or the disk is full."""
    if isinstance(error, sqlite3.Error) and (is_locked(error) or _is_for_want_of_room(path, error)):
        return as_error(path, error)
    return unusable(path, error)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection's lock is the reason."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_for_want_of_room(path: Path, error: sqlite3.Error) -> bool:
    """Whether a full disk is the reason. SQLite says so of writing; a log that cannot be made is any trouble to it."""
    code = getattr(error, "sqlite_errorcode", 0)
    unclear = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
    return code in NO_SPACE or (code & PRIMARY_CODE in unclear and is_disk_full(path))


def unusable(path: Path, error: Exception) -> RecordsUnusable:
    """The error for a file that is damaged, or that cannot be opened."""
    return RecordsUnusable(f"{path} cannot be read ({error}): put back a backup of it, or move it away to begin anew")


def as_error(path: Path, error: sqlite3.Error) -> RemembrancerError:
    """What SQLite raised, as one of our errors."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code & PRIMARY_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return unusable(path, error)
    if is_locked(error):
        return FileLocked(f"another program has locked {path}: end what it does there")
    if _is_for_want_of_room(path, error):
        return disk_full(f"the disk has no room for this write ({error}): make room and try again", path)
    logger.error("the records failed", extra={"path": str(path), "reason": str(error), "code": code})
    return InternalError(f"the records could not be read or written: {error}")
