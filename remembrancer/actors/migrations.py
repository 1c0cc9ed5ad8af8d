"""The schema of each kind of file in a home, and its way from release to release: the one place where files are brought
forward, and where those that cannot be read are refused by the name of their release.

`PRAGMA user_version` is the one place in a file that says its schema: the release that brought it, and the number of
the step in that release, as decimal digits (0.2.0 has 2 00 00; what 0.3.1 adds first would have 3 01 00).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer import __version__
from remembrancer.protocol.errors import (
    FileUnusable,
    RecordsUnusable,
    SchemaTooNew,
    SchemaTooOld,
    disk_full,
)
from remembrancer.protocol.paths import sync_directory

WAIT_S: Final = 2.0
"""The time that another program's lock is waited for when a version is looked at."""
STEPS: Final = 100
"""There are fewer steps in a release, fewer patches of a minor release, and fewer minor releases of a major one."""
SPARE_BYTES: Final = 4 * 1024 * 1024
"""The room that has to be left on a disk beside the copy of a file."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
OLD_FILES: Final = ("user/memory.db", "projects/p_*/memory.db", "lanes/l_*.db")
"""The files of records of release 0.2.0, which stay in a home until a person deletes them."""
PAGES_AT_ONCE: Final = 256
"""Copied between two pauses: a megabyte."""
BACKUPS: Final = "backups"
"""The directory beside a database with its daily copies."""
COPY: Final = "release"
"""The word between the name of a file and the release whose schema a copy of it has: `memory.db.release-0.2.0`."""


class Step(NamedTuple):
    """The statements that make a schema out of the one before it (the first one: out of nothing), and the release that
    brought them. What was released is never changed: a change is another step."""

    release: str
    statements: str


class Schema:
    """The steps of one kind of file, in order. A `derived` file has one step, and is made anew when that changes."""

    def __init__(self, *steps: Step, derived: bool = False) -> None:
        self.steps = steps
        self.derived = derived

    @property
    def versions(self) -> tuple[int, ...]:
        """The `user_version` that a file has after each step."""
        releases = [step.release for step in self.steps]
        return tuple(version_in(each) + releases[:place].count(each) for place, each in enumerate(releases))

    @property
    def latest(self) -> int:
        """The version that this release writes."""
        return self.versions[-1]

    def refuse(self, path: Path, version: int) -> None:
        """Refuse a file of a version that this release does not read. A file without one (0) is made at its opening.

        Raises:
            SchemaTooNew: a newer release wrote it.
            SchemaTooOld: it is older than the first release whose files are kept.
        """
        if version > self.latest:
            raise SchemaTooNew(
                f"{path} was written by a newer release ({release_of(version)} or later, and this is {__version__}): "
                f"install that one, put back the copies '*.{COPY}-{__version__}' that it made, or set "
                "REMEMBRANCER_HOME to another directory"
            )
        if version and (version < self.versions[0] or (self.derived and version != self.latest)):
            raise SchemaTooOld(
                f"{path} is older than release {FIRST_RELEASE}, the first one whose files are kept (its "
                f"version is {version}): write its memories with 'remembrancer export' of the release that made it and "
                "take them in with 'remembrancer backup import', or set REMEMBRANCER_HOME to another directory"
            )

    def check(self, path: Path, wait_s: float = WAIT_S) -> int:
        """Look at a file before it is opened for writing, which may change it even if nothing is written; its version.

        Raises:
            SchemaTooNew, SchemaTooOld: as `refuse`.
            sqlite3.DatabaseError: it cannot be read.
        """
        version = version_of(path, wait_s)
        self.refuse(path, version)
        return version

    def is_older(self, path: Path) -> bool:
        """True if a file is to be brought forward; False also of one that cannot be looked at now."""
        with contextlib.suppress(sqlite3.Error, OSError):
            return self.versions[0] <= version_of(path, 0.0) < self.latest
        return False

    def migrate(self, connection: sqlite3.Connection, path: Path | None) -> None:
        """Bring the file behind a connection to the latest version, in one transaction for all steps.

        A file that has something in it is copied first, beside itself (`path`; None: it is a copy already). A kill, a
        full disk or a step that fails leaves the file as it was. Of several at once, one does it and the others wait.

        Raises:
            SchemaTooNew, SchemaTooOld: as `refuse`.
            StorageFull: the disk has no room for the copy.
            RecordsUnusable: it is damaged, or a step cannot be done.
            sqlite3.DatabaseError: anything else that SQLite says.
        """
        if _version(connection) == self.latest:
            return
        ((enforced,),) = connection.execute("PRAGMA foreign_keys").fetchall()
        connection.execute("PRAGMA foreign_keys = OFF")  # a step may make a table anew that others refer to
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = _version(connection)  # as it is now that nobody else writes
            if found < self.latest:
                self.refuse(path or Path(), found or _unnamed(connection))
                if path is not None and found:
                    keep_copy(path, release_of(found))
                self._take_steps(connection, path or Path(), found)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk ends a transaction by itself
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.execute(f"PRAGMA foreign_keys = {enforced}")

    def _take_steps(self, connection: sqlite3.Connection, path: Path, found: int) -> None:
        dangling = len(connection.execute("PRAGMA foreign_key_check").fetchall()) if found else 0
        for version, step in zip(self.versions, self.steps, strict=True):
            if version <= found:
                continue
            try:
                for statement in statements_of(step.statements):
                    connection.execute(statement)
            except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
                if found and error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
                    raise _not_migrated(path, found, str(error)) from error
                raise
        if found and len(connection.execute("PRAGMA foreign_key_check").fetchall()) > dangling:
            raise _not_migrated(path, found, "rows would refer to rows that are gone")
        connection.execute(f"PRAGMA user_version = {self.latest}")


def version_in(release: str) -> int:
    """The version of the first step of a release."""
    major, minor, patch = map(int, release.split("."))
    return ((major * STEPS + minor) * STEPS + patch) * STEPS


def release_of(version: int) -> str:
    """The release that brought a version; `older than 0.2.0` for one from before versions named releases."""
    if version < FIRST_KEPT:
        return f"older than {FIRST_RELEASE}"
    numbers = version // STEPS
    return f"{numbers // STEPS**2}.{numbers // STEPS % STEPS}.{numbers % STEPS}"


FIRST_RELEASE: Final = "0.2.0"
FIRST_KEPT: Final = version_in(FIRST_RELEASE)


def version_of(path: Path, wait_s: float = WAIT_S) -> int:
    """The `user_version` of a database, 0 when there is no file. Nothing of the file changes, or beside it.

    But of one whose making was killed before it had a write-ahead log: SQLite first takes back what was begun.
    """
    if not path.is_file():  # a pipe would be waited for
        return 0
    address = path.absolute().as_uri()
    is_open = any(path.with_name(f"{path.name}-{suffix}").exists() for suffix in ("wal", "journal"))
    reading = "mode=ro" if is_open else "mode=ro&immutable=1"  # which makes no log that would be left there
    try:
        with contextlib.closing(sqlite3.connect(f"{address}?{reading}", uri=True, timeout=wait_s)) as connection:
            return _version(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        with contextlib.closing(sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=wait_s)) as connection:
            return _version(connection)


def releases_in(home: Path) -> dict[str, str]:
    """The release of each database of a home that is no index, by its name there; those that cannot be read are left
    out."""
    found = {}
    for pattern in ("*.db", "user/*.db", "projects/*/memory.db", "lanes/*.db"):
        for path in sorted(home.glob(pattern)):
            with contextlib.suppress(sqlite3.Error, OSError):
                if version := version_of(path, 0.0):
                    found[str(path.relative_to(home))] = release_of(version)
    return found


def copy_of(path: Path, release: str) -> Path:
    """The place of the copy of a file that has the schema of that release."""
    return path.with_name(f"{path.name}.{COPY}-{release}")


def keep_copy(path: Path, release: str) -> Path:
    """Copy a database beside itself, whole and durably, while nobody writes it; the place of the copy.

    Raises:
        StorageFull: the disk has no room for it.
        RecordsUnusable: the file is damaged.
        FileUnusable: the copy cannot be written for another reason.
        sqlite3.DatabaseError: anything else that SQLite says.
    """
    target = copy_of(path, release)
    write_checked_copy(
        path, target, f"there is no room for the copy of {path} that is made before this release changes it"
    )
    return target


def write_checked_copy(path: Path, target: Path, no_room: str, pause: Callable[[], None] | None = None) -> None:
    """Copy a database as of one moment, whole and durably, and check the copy. With a `pause`, which is called between
    some pages and the next, whoever writes meanwhile is not held up.

    Raises:
        StorageFull: the disk has no room for it (`no_room`).
        RecordsUnusable, FileUnusable, sqlite3.DatabaseError: as `keep_copy`.
    """
    fresh = target.with_name(f"{target.name}.new")
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source:
            source.execute("BEGIN")
            ((size,),) = source.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            if shutil.disk_usage(path.parent).free < size + SPARE_BYTES:
                raise disk_full(no_room, path)
            write_copy(source, fresh, pause)
        with fresh.open("rb") as written:
            os.fsync(written.fileno())
        fresh.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(no_room, path) from error
        raise FileUnusable(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def daily_copies(path: Path) -> list[Path]:
    """The copies of a database that are made every day, the newest first: `backups/memory.db.20260131T120000Z` beside
    it."""
    return sorted((path.parent / BACKUPS).glob(f"{path.name}.*Z"), reverse=True)


def was_made(path: Path) -> bool:
    """True if there was a database once: there is the directory of its copies, or the catalogue of release 0.2.0."""
    return (path.parent / BACKUPS).is_dir() or path.with_name("catalog.db").exists()


def note_made(path: Path) -> None:
    """Note that there is a database. Raises `OSError`."""
    (path.parent / BACKUPS).mkdir(mode=0o700, exist_ok=True)


def drop_copies(path: Path, *words: str) -> None:
    """Delete the copies of a file that have one of these words in them; all of them if no word is given.

    Raises:
        FileUnusable: one cannot be read or deleted.
    """
    daily = (path.parent / BACKUPS).glob(f"{path.name}.*")  # one that is being made, too
    for copy in (*path.parent.glob(f"{path.name}.{COPY}-*"), *daily):
        try:
            if not words or _has(copy, words):
                copy.unlink(missing_ok=True)
                sync_directory(copy.parent)
        except OSError as error:
            raise FileUnusable(
                f"{copy} may still have what was erased, and cannot be deleted ({error.strerror or error}): delete it"
            ) from error


def drop_old_files(home: Path, *words: str) -> int:
    """Delete the files of records that release 0.2.0 had, with their logs and copies: those with one of these words in
    them, all of them if no word is given. The bytes that they had.

    Raises:
        FileUnusable: one cannot be read or deleted.
    """
    size = 0
    for path in [path for pattern in OLD_FILES for path in home.glob(pattern)]:
        beside = [*path.parent.glob(f"{path.name}*"), *(path.parent / BACKUPS).glob(f"{path.name}.*")]
        try:
            if not words or any(_has(each, words) for each in beside):
                for each in beside:
                    size += each.stat().st_size
                    each.unlink(missing_ok=True)
                sync_directory(path.parent)
        except OSError as error:
            raise FileUnusable(
                f"{path} may still have what was erased, and cannot be deleted ({error.strerror or error}): delete it"
            ) from error
    return size


def _has(path: Path, words: Sequence[str]) -> bool:
    if not path.stat().st_size:  # which cannot be mapped
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(word.encode()) >= 0 for word in words)


def write_copy(source: sqlite3.Connection, target: Path, pause: Callable[[], None] | None = None) -> None:
    """Copy a database (https://sqlite.org/backup.html) into a file that is made anew, and check the copy: in one step,
    or with a `pause` between some pages and the next.

    Raises:
        RecordsUnusable: it is damaged.
        OSError, sqlite3.Error: the copy cannot be written.
    """
    target.unlink(missing_ok=True)  # of an attempt that ended in the middle
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
        if pause is None:
            source.backup(copy)
        else:
            source.backup(copy, pages=PAGES_AT_ONCE, progress=lambda _status, _left, _all: pause())
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no log beside it; its owner sets it again
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise RecordsUnusable(f"the database that was to be copied to {target} is damaged ({found})")


def _unnamed(connection: sqlite3.Connection) -> int:
    """The version to refuse a database by that has none: of one with something in it, one from before all releases."""
    return -1 if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() else 0


def _not_migrated(path: Path, found: int, reason: str) -> RecordsUnusable:
    return RecordsUnusable(
        f"{path} cannot be brought from release {release_of(found)} to {__version__} ({reason}) and is as it was: "
        f"release {release_of(found)} reads it; please report this"
    )


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def statements_of(script: str) -> Iterator[str]:
    """The statements of a script one by one: to run it whole would end the transaction that is open."""
    statement = ""
    for piece in script.split(";")[:-1]:
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
