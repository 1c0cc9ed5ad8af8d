"""The schema of each kind of file in a home, and the migrations between releases. `PRAGMA user_version` identifies a
file's schema: the release that introduced it, and the number of the step within that release, as decimal digits (0.2.0
has 2 00 00; the first step of 0.3.1 would have 3 01 00)."""

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer import __version__
from remembrancer.protocol.errors import FileUnusable, RecordsUnusable, SchemaTooNew, SchemaTooOld, disk_full
from remembrancer.protocol.paths import move_into_place, sync_directory

WAIT_S: Final = 2.0
"""The maximum wait for another program's lock before a file is copied or its version is read."""
STEPS: Final = 100
"""An upper bound for the steps of a release, the patches of a minor release, and the minor releases of a major one."""
SPARE_BYTES: Final = 4 * 1024 * 1024
"""The free space that must remain on a disk after copying a file."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
NO_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's errors that prove damage, by their primary codes."""
PRIMARY_CODE: Final = 0xFF
"""The mask for the primary code in SQLite's extended result codes."""
OLD_FILES: Final = ("user/memory.db", "projects/p_*/memory.db", "lanes/l_*.db")
OLD_CATALOGUE: Final = ("catalog.db", "lanes/projects.json")
"""The files of release 0.2.0: records and catalogue. They stay in a home until a person deletes them."""
BACKUPS: Final = "backups"
STAMP: Final = "%Y%m%dT%H%M%SZ"
COPY: Final = "release"
"""The suffix of a copy, followed by the release of its schema: `memory.db.release-0.2.0`."""


class Step(NamedTuple):
    """The statements that turn the previous schema (for the first step, an empty database) into the next, and the
    release that introduced them. A released step never changes: each change is a new step."""

    release: str
    statements: str


class Schema:
    """The steps for one kind of file, in order. A `derived` file has one step, and is rebuilt when the step changes."""

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
        return self.versions[-1]

    def refuse(self, path: Path, version: int) -> None:
        """Raises `SchemaTooNew` or `SchemaTooOld`. A file without a version (0) is initialised when it is opened."""
        if version > self.latest:
            raise SchemaTooNew(
                f"{path} was written by a newer release ({release_of(version)} or later; this is {__version__}): "
                f"install that release, restore the copies '*.{COPY}-{__version__}' that it made, or set "
                "REMEMBRANCER_HOME to another directory"
            )
        if version and (version < self.versions[0] or (self.derived and version != self.latest)):
            raise SchemaTooOld(
                f"{path} was written by a release older than {FIRST_RELEASE} (its version is {version}), which this "
                "release cannot read: export its memories with 'remembrancer export' of the release that wrote it, and "
                "import them with 'remembrancer backup import', or set REMEMBRANCER_HOME to another directory"
            )

    def check(self, path: Path, wait_s: float = WAIT_S) -> int:
        """Return the version of a file that is about to be opened for writing, which may change it. Raises the same
        errors as `refuse`, and `sqlite3.DatabaseError` if the file cannot be read."""
        version = version_of(path, wait_s)
        self.refuse(path, version)
        return version

    def is_older(self, path: Path) -> bool:
        """False if the file cannot be checked now."""
        with contextlib.suppress(sqlite3.Error, OSError):
            return self.versions[0] <= version_of(path, 0.0) < self.latest
        return False

    def migrate(self, connection: sqlite3.Connection, path: Path | None) -> None:
        """Migrate a connection's file to the latest version, in one transaction. A file with content is first copied
        next to itself (`path`; None: it is already a copy). If several processes try this, one migrates and the rest
        wait. Raises the same errors as `refuse` and `write_checked_copy`, and `RecordsUnusable` if a step fails."""
        if _version(connection) == self.latest:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = _version(connection)  # read again, now that no other process can write
            if found < self.latest:
                self.refuse(path or Path(), found)
                if path is not None and found:
                    no_room = f"there is no room to copy {path} before this release changes it"
                    write_checked_copy(path, copy_of(path, release_of(found)), no_room)
                self._take_steps(connection, path or Path(), found)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # on a full disk, SQLite has ended the transaction
                connection.execute("ROLLBACK")
            raise

    def _take_steps(self, connection: sqlite3.Connection, path: Path, found: int) -> None:
        for version, step in zip(self.versions, self.steps, strict=True):
            for statement in statements_of(step.statements) if version > found else ():
                try:
                    connection.execute(statement)
                except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
                    code = error.sqlite_errorcode & PRIMARY_CODE
                    if found and code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
                        release = release_of(found)
                        raise RecordsUnusable(
                            f"{path} cannot be upgraded from release {release} to {__version__} ({error}). It is "
                            f"unchanged, and release {release} can still read it. Please report this"
                        ) from error
                    raise
        connection.execute(f"PRAGMA user_version = {self.latest}")


def version_in(release: str) -> int:
    major, minor, patch = map(int, release.split("."))
    return ((major * STEPS + minor) * STEPS + patch) * STEPS


def release_of(version: int) -> str:
    """The release that introduced a version; `older than 0.2.0` for versions that do not name a release."""
    if version < FIRST_KEPT:
        return f"older than {FIRST_RELEASE}"
    numbers = version // STEPS
    return f"{numbers // STEPS**2}.{numbers // STEPS % STEPS}.{numbers % STEPS}"


FIRST_RELEASE: Final = "0.2.0"
FIRST_KEPT: Final = version_in(FIRST_RELEASE)


def version_of(path: Path, wait_s: float = WAIT_S) -> int:
    """A file's version; 0 if there is no file. Changes nothing, but SQLite rolls back an interrupted creation."""
    if not path.is_file():  # a pipe would block
        return 0
    try:
        with contextlib.closing(connect_to_read(path, wait_s)) as connection:
            return _version(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        address = f"{path.absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=wait_s)) as connection:
            return _version(connection)


def is_at_rest(path: Path) -> bool:
    """True if the file is complete by itself, without a log, and no process has it open."""
    log, index, journal = (path.with_name(f"{path.name}-{suffix}") for suffix in ("wal", "shm", "journal"))
    return not journal.exists() and (not log.exists() or (log.stat().st_size == 0 and not index.exists()))


def connect_to_read(path: Path, wait_s: float, *, immutable: bool | None = None) -> sqlite3.Connection:
    """By default, a file at rest is opened as immutable, since SQLite would leave an empty log beside it."""
    mode = "mode=ro&immutable=1" if (is_at_rest(path) if immutable is None else immutable) else "mode=ro"
    address = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(address, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)


def copy_of(path: Path, release: str) -> Path:
    return path.with_name(f"{path.name}.{COPY}-{release}")


def write_checked_copy(path: Path, target: Path, no_room: str) -> None:
    """Copy a consistent state of a database durably, and check the copy. Raises `StorageFull` with the message
    `no_room`, `RecordsUnusable` if the file is damaged, `FileUnusable`, or an SQLite error."""
    fresh = target.with_name(f"{target.name}.new")
    try:
        with contextlib.closing(connect_to_read(path, WAIT_S, immutable=False)) as source:
            source.execute("BEGIN")
            ((size,),) = source.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            if shutil.disk_usage(path.parent).free < size + SPARE_BYTES:
                raise disk_full(no_room, path)
            write_copy(source, fresh)
        move_into_place(fresh, target)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise disk_full(no_room, path) from error
        raise FileUnusable(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def daily_copies(path: Path) -> list[Path]:
    """The daily copies of a database, newest first: `backups/memory.db.20260131T120000Z` beside it. Copies with a time
    in the future come last: the clock was wrong, so they are older than they look."""
    now = f"{path.name}.{datetime.now(UTC):{STAMP}}"
    copies = (path.parent / BACKUPS).glob(f"{path.name}.*Z")
    return sorted(copies, key=lambda copy: (copy.name <= now, copy.name), reverse=True)


def was_made(path: Path) -> bool:
    """True if there was a database once: the directory for its copies exists."""
    return (path.parent / BACKUPS).is_dir()


def note_made(path: Path) -> None:
    (path.parent / BACKUPS).mkdir(mode=0o700, exist_ok=True)


def drop_copies(path: Path) -> None:
    """Raises `FileUnusable` if a copy cannot be deleted."""
    daily = (path.parent / BACKUPS).glob(f"{path.name}.*")  # also unfinished copies
    _delete((*path.parent.glob(f"{path.name}.{COPY}-*"), *daily))


def drop_old_files(home: Path) -> None:
    """Delete the 0.2.0 files, with their logs and copies. Raises the same errors as `drop_copies`."""
    for path in [path for pattern in (*OLD_FILES, *OLD_CATALOGUE) for path in home.glob(pattern)]:
        _delete((*path.parent.glob(f"{path.name}*"), *(path.parent / BACKUPS).glob(f"{path.name}.*")))


def _delete(paths: Iterable[Path]) -> None:
    for each in paths:
        try:
            each.unlink(missing_ok=True)
            sync_directory(each.parent)
        except OSError as error:
            why = error.strerror or error
            raise FileUnusable(
                f"{each} may still contain erased content and cannot be deleted ({why}); delete it yourself"
            ) from error


def write_copy(source: sqlite3.Connection, target: Path) -> None:
    """Write a checked copy. Raises `RecordsUnusable` if it is damaged, `OSError` or `sqlite3.Error` if that fails."""
    target.unlink(missing_ok=True)  # an interrupted attempt may have left it
    target.touch(mode=0o600, exist_ok=False)
    try:
        with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file without a log; its owner changes this
            found = damage_in(copy)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in NO_ROOM:  # for the copy, since the source is only read
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
    if found is not None:
        raise RecordsUnusable(f"the database to be copied to {target} is damaged ({found})")


_ENDS: Final = {"memories": "promotion_chain || parts", "history": "details || ifnull(owner, '')"}
"""The last texts in the long rows of `memory.db`. None of them contains a NUL."""


def damage_in(connection: sqlite3.Connection) -> str | None:
    """The first damage found in a database; None if it is intact. SQLite does not notice if the last page of a long row
    is empty, not even in a copy. Raises `sqlite3.Error` or `UnicodeDecodeError` if the database cannot be read."""
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        return found
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'spaces'").fetchone() is None:
        return None  # not a `memory.db`
    for table, ends in _ENDS.items():
        if connection.execute(f"SELECT 1 FROM {table} WHERE instr({ends}, char(0)) LIMIT 1").fetchone():  # noqa: S608
            return f"a page of {table} is empty"
    return None


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def statements_of(script: str) -> Iterator[str]:
    """The statements of a script, one by one, since `executescript` would end the open transaction."""
    statement = ""
    for piece in script.strip().removesuffix(";").split(";"):
        statement += f"{piece};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
