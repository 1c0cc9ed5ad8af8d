"""One SQLite file: its single writing connection, its reading connections, and its errors, converted to ours. In WAL
mode, readers see the last commit and never wait for the writer (https://sqlite.org/wal.html)."""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from remembrancer.actors.migrations import DAMAGE, NO_ROOM, PRIMARY_CODE, Schema, drop_copies, drop_old_files
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import (
    FileLocked,
    InternalError,
    MemoryUnavailable,
    RecordsUnusable,
    RemembrancerError,
    disk_full,
    is_disk_full,
)
from remembrancer.protocol.paths import problem_of

READ_BYTES: Final = 1024 * 1024
LOG_LIMIT_BYTES: Final = 4 * 1024 * 1024
BUSY_TIMEOUT_S: Final = 0.2
"""Short enough for a client's write, and for the event loop."""
CACHE_KIB: Final = 32_768
"""The page cache of a connection: enough for ten thousand memories with their graph."""
HEAP_LIMIT_BYTES: Final = 192 * 1024 * 1024
"""The limit for all connections in the process. Above it, SQLite releases pages."""
STATEMENTS: Final = 256
"""The number of prepared statements that a connection keeps. Lists of different lengths need different statements."""

DAMAGED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors that opening a damaged file may raise. SQLite quotes the damaged text, which may not be UTF-8."""

logger = logging.getLogger(__name__)
_name_key: Final = lru_cache(4096)(name_key)


Query = Callable[[str, Sequence[object]], list[Any]]
_encode_json: Final = msgspec.json.Encoder().encode
decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def places_for(values: Sequence[object]) -> str:
    """`(?,?,…)`, one placeholder for each value."""
    return f"({','.join('?' * len(values))})"


def where(*rows: Sequence[Any]) -> tuple[str, list[Any]]:
    """Conditions joined by AND, with their arguments. Rows with an empty condition or a None argument are left out."""
    given = [row for row in rows if row[0] and None not in row]
    return " AND ".join(row[0] for row in given), [value for _, *values in given for value in values]


AMONG: Final = "(SELECT value FROM json_each(?))"
"""The values of a list for `IN`; the argument is the `json_list` of these values."""


def as_json(value: object) -> str:
    return _encode_json(value).decode()


def json_list(values: Iterable[object]) -> str:
    """The values as an argument for `json_each`, so that one prepared statement serves any number of them."""
    return as_json(list(values))


class SqliteFile:
    """Opens the file, and migrates it to the current version of its schema. `wait_s` is the maximum wait for another
    program's lock (None: `BUSY_TIMEOUT_S`). Raises the same errors as `Schema.migrate`, `FileLocked`, and
    `RecordsUnusable` if the file is damaged or its directory cannot be created."""

    def __init__(self, path: Path, schema: Schema, *, synchronous: str = "FULL", wait_s: float | None = None) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(path, error) from error
        problem = problem_of(path)
        if problem is not None:
            raise RecordsUnusable(problem)
        self.path = path
        self._wait_s = BUSY_TIMEOUT_S if wait_s is None else wait_s
        self._pool = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._closed = False
        self._bytes: int | None = None
        """A descriptor of the file, once its bytes have been read. If it were closed before the connections, the
        process would lose all its locks on the file, and another program could remove the log."""
        self.writing = threading.RLock()
        """Held during a transaction, since each shared lane is written by its own thread."""
        self._synchronous = synchronous
        self.commits = 0
        self.writes = 0
        """The number of transactions, except those that only counted accesses."""
        self.damage: str | None = None
        try:
            schema.check(path, self._wait_s)
            self.writer = self._connect()
            try:
                self.writer.execute(f"PRAGMA synchronous = {synchronous}")
                schema.migrate(self.writer, path)
            except BaseException:
                self.writer.close()
                raise
        except DAMAGED as error:
            raise as_error(path, error, REPAIR) from error
        self._identity = _identity_of(path)

    @property
    def is_replaced(self) -> bool:
        """True if the file was deleted, emptied or replaced, so that writes to it would be lost."""
        return _identity_of(self.path) != self._identity

    def empty_log(self) -> bool:
        """Move the log into the database. Returns False if a reader prevents this for `BUSY_TIMEOUT_S`."""
        with self.writing:
            ((is_busy, _, _),) = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not is_busy

    def leave_nothing(self, texts: Sequence[str] = ()) -> None:
        """Remove deleted content from the log, and delete all copies of the database and the 0.2.0 files. The database
        is rewritten if it still contains one of the texts, or if they are unknown: when SQLite moves rows between
        pages, `secure_delete` does not reach their old bytes. Raises `FileLocked` if the log cannot be emptied now (try
        again), or `FileUnusable` if a copy cannot be deleted."""
        self._empty_whole_log()
        if not texts or self._has_any(texts):
            with self.writing:
                self.writer.execute("VACUUM")
            self._empty_whole_log()
        drop_old_files(self.path.parent)
        drop_copies(self.path)

    def _empty_whole_log(self) -> None:
        if not self.empty_log():
            raise FileLocked(
                f"deleted words are still in the log of {self.path}, because it is being read or written "
                "(a copy or an export takes a while): they will be removed afterwards"
            )

    def _has_any(self, texts: Sequence[str]) -> bool:
        """Also searches unused space."""
        words = [text.encode() for text in texts]
        overlap = max(map(len, words))
        step = max(READ_BYTES, 2 * overlap)
        if self._bytes is None:
            self._bytes = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        for start in range(0, os.fstat(self._bytes).st_size, step - overlap):
            content = os.pread(self._bytes, step, start)
            if any(word in content for word in words):
                return True
        return False

    def close(self) -> None:
        """Close all connections when the running queries have finished. May be called twice."""
        self._closed = True
        with self._pool:
            self._pool.wait_for(lambda: not self._in_use)
            while self._idle:
                self._idle.pop().close()
        with self.writing:
            self.writer.close()
        if self._bytes is not None:
            os.close(self._bytes)
            self._bytes = None

    def read(self, query: str, arguments: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """All rows of a query, as of the last commit. May be called from any thread."""
        with self.reading() as connection:
            return connection.execute(query, arguments).fetchall()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provide a connection that no other thread is using, on which all queries see one commit. A value that cannot
        be decoded indicates a damaged file. Raises `FileLocked` if the file was removed and no connection is idle."""
        try:
            with self._pool:
                self._refuse_if_closed()
                if not self._idle and self.is_replaced:  # a new connection would create an empty file without tables
                    raise self._replaced()
                connection = self._idle.pop() if self._idle else self._connect()
                self._in_use += 1
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.rollback()
            finally:
                with self._pool:
                    self._idle.append(connection)
                    self._in_use -= 1
                    self._pool.notify_all()
        except sqlite3.Error as error:
            raise self._noted(as_error(self.path, error)) from error
        except (ValueError, TypeError) as error:  # TypeError if a damaged value reads as NULL
            raise self._noted(unusable(self.path, error)) from error

    def _noted(self, error: RemembrancerError) -> RemembrancerError:
        if isinstance(error, RecordsUnusable):
            self.damage = error.message
        return error

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True, is_access: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a transaction on the writing connection. Unless it is `durable`, a power failure may undo the commit:
        this is for accesses and for data that can be rebuilt, so that clients' writes do not wait for the disk twice.
        Raises `FileLocked` if another program has removed the file, and the errors of `as_error`."""
        with self.writing:
            self._refuse_if_closed()
            if self.is_replaced:
                raise self._replaced()
            try:
                if not durable:
                    self.writer.execute("PRAGMA synchronous = NORMAL")
                self.writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self.writer
                    self.writer.execute("COMMIT")
                    self.commits += 1
                    self.writes += not is_access
                except BaseException:
                    if self.writer.in_transaction:  # on a full disk, SQLite has ended the transaction
                        self.writer.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._noted(as_error(self.path, error)) from error
            finally:
                if not durable:
                    self.writer.execute(f"PRAGMA synchronous = {self._synchronous}")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._wait_s, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # erased content must not remain readable
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA soft_heap_limit = {HEAP_LIMIT_BYTES}")
        connection.create_function("name_key", 1, _name_key, deterministic=True)
        return connection

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise MemoryUnavailable(f"{self.path.name} is closed: the store is stopping")

    def _replaced(self) -> FileLocked:
        return FileLocked(f"{self.path} was removed or replaced while it was open: it is being opened again")


def _identity_of(path: Path) -> tuple[int, int] | None:
    """None if the file is missing or empty."""
    try:
        about = os.stat(path)  # noqa: PTH116 - before each write: a Path takes three times as long
    except OSError:
        return None
    return (about.st_dev, about.st_ino) if about.st_size else None


REPAIR: Final = "repair it with 'remembrancer doctor --repair', or restore a backup"


def unusable(path: Path, error: Exception, advice: str = REPAIR) -> RecordsUnusable:
    return RecordsUnusable(f"{path} cannot be read ({error}): {advice}")


def as_error(path: Path, error: Exception, advice: str | None = None) -> RemembrancerError:
    """Convert an error to one of ours. With `advice`, the file counts as damaged unless SQLite gives another reason."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code & PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return FileLocked(f"another program has locked {path}: close that program, or wait")
    # SQLite reports a full disk for writes, but not for a log that it cannot create.
    is_unclear = code & PRIMARY_CODE in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
    if code in NO_ROOM or (is_unclear and is_disk_full(path)):
        return disk_full(f"the disk has no room for this write ({error}): make room and try again", path)
    if advice is not None or code & PRIMARY_CODE in DAMAGE or "malformed JSON" in str(error):
        return unusable(path, error, advice or REPAIR)
    logger.error("the records failed", extra={"path": str(path), "reason": str(error), "code": code})
    return InternalError(f"the records could not be read or written: {error}")
