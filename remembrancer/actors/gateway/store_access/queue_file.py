"""The file of the write queue: operations that were acknowledged while the store was away. Synchronous; one thread.

Nothing that was acknowledged is ever deleted unseen: an operation leaves when the store has it, and one that the
store can never apply moves to a table of its own, with the reason.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.protocol.errors import MemoryUnavailable, RemembrancerError, SchemaTooNew, disk_full
from remembrancer.protocol.writes import Operation, Rejected

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE queued (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    operation_id TEXT NOT NULL UNIQUE,
    operation BLOB NOT NULL,
    queued_at REAL NOT NULL
);
CREATE TABLE rejected (
    operation_id TEXT PRIMARY KEY,
    operation BLOB NOT NULL,
    queued_at REAL NOT NULL,
    rejected_at REAL NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL
);
"""
OUT_OF_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_UNREADABLE: Final = "unreadable"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Operation)


class QueueFile:
    """The open file.

    Raises:
        SchemaTooNew: it was written by a newer release.
        MemoryUnavailable: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise MemoryUnavailable(f"the write queue {path} cannot be opened: {error}") from error
            # Not a database any more. It is kept for a person to look at; writes must go on.
            path.rename(path.with_suffix(f".damaged-{int(time.time())}"))
            self._database = _open(path)

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._database.close()

    def counts(self) -> tuple[int, int]:
        """How many operations are queued, and how many were rejected."""
        row = self._database.execute("SELECT (SELECT count(*) FROM queued), (SELECT count(*) FROM rejected)")
        depth, rejected = row.fetchone()
        return depth, rejected

    def append(self, operations: Sequence[Operation], now: float) -> set[str]:
        """Add operations at the end, durably, in one transaction. Returns the ids that were not there already.

        Raises:
            StorageFull: the disk has no room.
            MemoryUnavailable: the file cannot be written for another reason.
        """
        added: set[str] = set()
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                for operation in operations:
                    cursor = self._database.execute(
                        "INSERT INTO queued (operation_id, operation, queued_at) VALUES (?, ?, ?)"
                        " ON CONFLICT (operation_id) DO NOTHING",
                        (operation.operation_id, _encoder.encode(operation), now),
                    )
                    if cursor.rowcount == 1:
                        added.add(operation.operation_id)
        except sqlite3.Error as error:
            raise _as_ours(self._path, error) from error
        return added

    def head(self, count: int, size_bytes: int) -> tuple[list[Operation], int]:
        """The oldest operations: at most `count`, and about `size_bytes` of them, but one at least.

        What does not decode (a newer release's) is moved to the rejected ones: the second value says how many.
        """
        found: list[Operation] = []
        unreadable: list[Rejected] = []
        total = 0
        query = "SELECT operation_id, operation FROM queued ORDER BY sequence"
        with closing(self._database.execute(query)) as rows:
            for operation_id, blob in rows:
                try:
                    operation = _decoder.decode(blob)
                except msgspec.DecodeError as error:
                    unreadable.append(Rejected(operation_id, _UNREADABLE, str(error)))
                    continue
                total += len(blob)
                if found and (len(found) == count or total > size_bytes):
                    break
                found.append(operation)
        return found, self.settle((), unreadable, time.time()) if unreadable else 0

    def settle(self, applied: Sequence[str], rejected: Sequence[Rejected], now: float) -> int:
        """Take the applied ones away, and the rejected ones aside. Returns how many left the queue."""
        left = 0
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO rejected (operation_id, operation, queued_at, rejected_at, code, message)"
                " SELECT operation_id, operation, queued_at, ?, ?, ? FROM queued WHERE operation_id = ?",
                [(now, each.code, each.message, each.operation_id) for each in rejected],
            )
            for operation_id in (*applied, *(each.operation_id for each in rejected)):
                cursor = self._database.execute("DELETE FROM queued WHERE operation_id = ?", (operation_id,))
                left += cursor.rowcount
        return left


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{path} has version {version}, this release reads up to {SCHEMA_VERSION}: update Remembrancer"
            )
        if version == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        database.close()
        raise
    return database


def _as_ours(path: Path, error: sqlite3.Error) -> RemembrancerError:
    if getattr(error, "sqlite_errorcode", None) in OUT_OF_ROOM:
        return disk_full("the disk has no room for the write queue: nothing was stored", path)
    return MemoryUnavailable(f"the write queue cannot be written: {error}")
