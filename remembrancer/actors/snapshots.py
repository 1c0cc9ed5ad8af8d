"""Reads a consistent state of a database without changing it, from a process that does not own it, while others may
write. This uses a read transaction (https://sqlite.org/wal.html), which does not block writers."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from remembrancer.actors.migrations import Schema, connect_to_read, damage_in, is_at_rest, write_copy
from remembrancer.actors.sqlite_file import as_error
from remembrancer.protocol.errors import FileUnusable, RecordsUnusable, RemembrancerError
from remembrancer.protocol.paths import problem_of

BUSY_S: Final = 2.0
BUSY_MOMENT_S: Final = 10.0
"""The maximum wait for a busy database when checking it or taking a snapshot."""
SQLITE_RELEASE: Final = sqlite3.sqlite_version


class Snapshot(NamedTuple):
    """A connection that reads one consistent state of a database."""

    path: Path
    connection: sqlite3.Connection

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Run a query. Raises the error that `unreadable` returns."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise unreadable(self.path, error) from error


def unreadable(path: Path, error: Exception) -> RemembrancerError:
    return as_error(path, error, advice="restore a backup of it, or move it elsewhere")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection. Opening and using it may raise `sqlite3.Error`."""
    problem = problem_of(path, os.R_OK)
    if problem is not None:
        raise sqlite3.OperationalError(problem)
    with closing(connect_to_read(path, BUSY_S)) as connection:
        yield connection


@contextmanager
def snapshot_of(path: Path, schema: Schema, *, leaves_no_log: bool = False) -> Iterator[Snapshot | None]:
    """A snapshot of a database's current state; None if there is no database yet, or it is empty. If no process has the
    database open, this creates an empty log beside it or, with `leaves_no_log`, reads it on the assumption that no
    process will open it. Raises `SchemaTooNew`, `SchemaTooOld`, `FileLocked` or `RecordsUnusable`."""
    if not os.path.lexists(path):
        yield None
        return
    problem = problem_of(path, os.R_OK)
    if problem is not None:
        raise RecordsUnusable(problem)
    try:
        version = schema.check(path, BUSY_MOMENT_S)  # also rolls back an interrupted creation
        try:
            connection = _begin(path, immutable=leaves_no_log and is_at_rest(path))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or not is_at_rest(path):
                raise
            connection = _begin(path, immutable=True)
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from error
    with closing(connection):
        yield Snapshot(path, connection) if version > 0 else None


def _begin(path: Path, *, immutable: bool) -> sqlite3.Connection:
    connection = connect_to_read(path, BUSY_MOMENT_S, immutable=immutable)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


# --- whole copies ---


def copy_database(path: Path, schema: Schema, target: Path) -> bool:
    """Copy a database's current state, and check the copy. Any process may call this. Returns False if there is no
    database yet. Raises the same errors as `snapshot_of`, and `FileUnusable` if the copy cannot be written."""
    with snapshot_of(path, schema) as snapshot:
        if snapshot is not None:
            try:
                write_copy(snapshot.connection, target)
            except sqlite3.Error as error:
                raise unreadable(path, error) from error
            except OSError as error:
                raise FileUnusable(f"{target} cannot be written: {error.strerror or error}") from error
        return snapshot is not None


def damage_of(path: Path) -> str | None:
    """The first damage found in a database, or the reason why SQLite cannot read it; None if it is intact."""
    try:
        with opened(path) as connection:
            return damage_in(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def fold_log(path: Path, schema: Schema) -> None:
    """Move the write-ahead log into a database that no process has open. A damaged database remains unchanged."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] <= schema.latest:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
