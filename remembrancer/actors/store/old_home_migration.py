"""Migrates a 0.2.0 home, which has a records file for each space, to a single database.

The database is built under a temporary name, and renamed at the end. If the process is killed before that, the home is
unchanged, and the next attempt starts over. The old files are only read, and are kept.
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.migrations import NO_SPACE, OLD_FILES, version_of, write_checked_copy
from remembrancer.actors.repair import drop_dangling
from remembrancer.actors.snapshots import opened, unreadable
from remembrancer.actors.sqlite_file import as_error
from remembrancer.actors.store.records.schema import FORMER, MEMORY
from remembrancer.actors.store.records.space_copies import take_in
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.records.types import USER
from remembrancer.protocol.errors import FileUnusable, RecordsUnusable, disk_full
from remembrancer.protocol.paths import RuntimePaths, delete_database, move_into_place
from remembrancer.protocol.writes import Operation, PromoteMemory

_decode_shares: Final = msgspec.json.Decoder(dict[str, str]).decode
_decode_operation: Final = msgspec.msgpack.Decoder(Operation).decode


def old_files(paths: RuntimePaths) -> dict[str, Path]:
    """Return the old record files of a home by the names of their spaces, the user's first."""
    found = [path for pattern in OLD_FILES for path in sorted(paths.home.glob(pattern))]
    names = [path.parent.name if path.name == "memory.db" else path.stem for path in found]
    there = zip(names, found, strict=True)
    return {name: path for name, path in there if path.is_file() and path.stat().st_size}


def is_old(paths: RuntimePaths) -> bool:
    return not paths.database.exists() and bool(old_files(paths))


def migrate_old_home(paths: RuntimePaths) -> None:
    """Create the database of a home that has only old files, which no other process may have open. After an error, the
    home is unchanged. Raises `SchemaTooNew`, `SchemaTooOld`, `StorageFull`, `FileLocked`, `RecordsUnusable` if an old
    file is damaged, and `FileUnusable` if the database cannot be written, or the list of shared lanes cannot be read.
    """
    if not is_old(paths):
        return
    files, database = old_files(paths), paths.database
    fresh, copy = database.with_name("memory.db.new"), database.with_name("memory.db.taking")
    no_room = f"there is no room to migrate the memories of {paths.home} to one database; make room and try again"
    try:
        delete_database(fresh)  # left by an attempt that was killed
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")  # no need to recover this file after a crash
            connection.execute("PRAGMA foreign_keys = ON")
            MEMORY.migrate(connection, None)
            with connection:
                connection.execute("BEGIN")
                moves: list[tuple[int, str, bytes]] = []
                for name, path in files.items():
                    try:
                        write_checked_copy(path, copy, no_room)
                    except (RecordsUnusable, sqlite3.Error, UnicodeDecodeError) as error:
                        raise unreadable(path, error) from error
                    FORMER.refuse(path, version_of(copy))
                    with closing(sqlite3.connect(copy, isolation_level=None)) as old:
                        drop_dangling(old)
                        space = take_in(connection, old, name)
                        moves += ((space, *row) for row in old.execute("SELECT operation_id, operation FROM moves"))
                _finish(paths, connection, moves)
        delete_database(copy)  # now, since nothing would find it if the process were killed later
        move_into_place(fresh, database)
    except sqlite3.Error as error:
        raise as_error(fresh, error) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(no_room, database) from error
        raise FileUnusable(f"{database} cannot be created ({error}); the old files are unchanged") from error
    finally:
        for unfinished in (fresh, copy):
            delete_database(unfinished)


def _finish(paths: RuntimePaths, connection: sqlite3.Connection, moves: Sequence[tuple[int, str, bytes]]) -> None:
    """Import the catalogue, and finish moves: a memory that is in its new space is deleted from the old one."""
    spaces = dict(connection.execute("SELECT name, number FROM spaces").fetchall())
    lanes = former_shares(paths)
    connection.executemany("INSERT INTO shares VALUES (?, ?)", lanes.items())
    _take_in_catalogue(connection, paths)
    for source, operation_id, encoded in moves:
        operation = _decode_operation(encoded)
        change = operation.change
        assert isinstance(change, PromoteMemory)
        name = USER if change.target_scope == "user" else operation.project.id
        target = spaces.get(lanes.get(name, name))
        done = "SELECT ?, operation_id, result, applied_at FROM applied_operations WHERE space = ? AND operation_id = ?"
        added = connection.execute(f"INSERT OR IGNORE INTO applied_operations {done}", (source, target, operation_id))
        if added.rowcount:
            SqliteEdits(connection, source, 0.0).delete(change.memory_id)


def former_shares(paths: RuntimePaths) -> dict[str, str]:
    """Raises `FileUnusable` if the list is damaged, since without it, shared projects would become unshared."""
    if not os.path.lexists(paths.shares):
        return {}
    try:
        return _decode_shares(paths.shares.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise FileUnusable(f"{paths.shares} cannot be read ({error}); restore a backup of it") from error


def _take_in_catalogue(connection: sqlite3.Connection, paths: RuntimePaths) -> None:
    if not os.path.lexists(paths.catalog):
        return
    try:
        with opened(paths.catalog) as old:
            projects = old.execute("SELECT id, path, created_at, last_used_at, directory FROM projects").fetchall()
            models = old.execute("SELECT number, state FROM models").fetchall()
    except sqlite3.Error as error:
        raise unreadable(paths.catalog, error) from error
    into = "INSERT INTO projects (id, path, created_at, last_used_at, directory) VALUES (?, ?, ?, ?, ?)"
    connection.executemany(into, projects)
    connection.executemany("INSERT INTO models VALUES (?, ?)", models)
