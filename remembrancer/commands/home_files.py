"""The databases of a home, read as of one moment, and files that a command makes for a person.

Reading never makes the runtime wait. The moment is a read transaction on each file (https://sqlite.org/wal.html). Their
order is such that nothing is lost: the write queue first, because an operation leaves it only after the records have
it; the projects before the user's file, because a promoted memory is written there before it is deleted here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, ClassVar, Final, NamedTuple

from remembrancer.actors.gateway import write_queue
from remembrancer.actors.store.records import schema
from remembrancer.actors.store.records.sqlite_file import as_error, is_locked
from remembrancer.protocol.errors import (
    InvalidInput,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    disk_full,
    is_disk_full,
)
from remembrancer.protocol.paths import RuntimePaths, sync_directory

PRIVATE_UMASK: Final = 0o077
QUEUE: Final = "queue.db"
CATALOG: Final = "catalog.db"
USER_RECORDS: Final = "user/memory.db"
PROJECT_RECORDS: Final = re.compile(r"projects/(p_[0-9a-f]{12})/memory\.db")
BUSY_S: Final = 2.0
BUSY_MOMENT_S: Final = 10.0
"""How long a database may be busy while it is only looked at, and while a moment is taken of it."""
STEPS_BETWEEN_LOOKS: Final = 100_000
TRIES: Final = 5
OPEN_FILES: Final = 65_536
_NO_HARD_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""What SQLite says of a file that is damaged for certain."""
STAGING: Final = ".remembrancer-unfinished-"
"""How the names begin of directories in which a file for a person is made."""
YOUNG_S: Final = 5.0


class FileUnusable(RemembrancerError):
    """A file that was named cannot be read or written, is damaged, or is not what it should be."""

    code: ClassVar[str] = "file_unusable"


def cannot(what: str, path: Path | str, error: OSError) -> FileUnusable:
    """The error for a file that the system does not let us read or write."""
    return FileUnusable(f"{path} cannot be {what}: {error.strerror or error}")


def unreadable(path: Path | str, error: sqlite3.Error) -> RemembrancerError:
    """The error for a database that is damaged, or that cannot be opened."""
    if is_locked(error):
        return as_error(Path(path), error)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF not in DAMAGE and is_disk_full(Path(path)):
        return disk_full(f"{path} cannot be read now ({error}): make room and try again", Path(path))
    return RecordsUnusable(f"{path} cannot be read ({error}): put back a backup of it, or move it away")


# --- files for a person ---


def stamp(now: float) -> str:
    """A time (seconds since the epoch) as it stands in names of files: `20260131T235959Z`, in UTC."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


def target_of(named: str | None, default_name: str, *, force: bool) -> Path:
    """The file to make: what was named, `default_name` in a directory that was named, or else in the present one.

    Raises:
        InvalidInput: it is there already, and `force` was not given.
    """
    target = Path(default_name) if named is None else Path(named).expanduser()
    if target.is_dir():
        target = target / default_name
    if not force:
        _refuse_existing(target)
    return target.absolute()


@contextmanager
def new_file(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A file of mode 0600 to write into, which gets its name, durably, at the end of the block. An error leaves none.

    Until then it is found under the file object's own `name`.

    Raises:
        InvalidInput: a file of that name is there (and not `force`).
        FileUnusable: it cannot be written.
    """
    with new_directory(target) as directory:
        fresh = directory / "new"
        try:
            with open(fresh, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if force or not _linked(fresh, target):
                fresh.replace(target)
            sync_directory(target.parent)
        except OSError as error:
            raise cannot("written", target, error) from error


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A private directory beside `target`, so that what is made in it can be renamed; it is gone after the block.

    It is locked as long as its process lives: those that killed ones have left there are removed.
    """
    try:
        for left in target.parent.glob(f"{STAGING}*"):
            if left.is_dir() and not left.is_symlink() and _is_ours_and_free(left):
                shutil.rmtree(left, ignore_errors=True)
        directory = tempfile.TemporaryDirectory(prefix=STAGING, dir=target.parent)
    except OSError as error:
        raise cannot("written", target, error) from error
    with directory as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield Path(name)
        finally:
            os.close(held)


def _is_ours_and_free(directory: Path) -> bool:
    """Whether it is this user's, and no living process has it. One is locked a moment after it was made."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        about = os.fstat(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return about.st_uid == os.getuid() and time.time() - about.st_mtime > YOUNG_S
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _linked(fresh: Path, target: Path) -> bool:
    """Give a file its name unless somebody else has made one meanwhile; False where there are no hard links."""
    try:
        os.link(fresh, target)
    except OSError as error:
        _refuse_existing(target)
        if error.errno not in _NO_HARD_LINKS:
            raise
        return False
    return True


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidInput(f"{target} is there already: name another file, or replace it with --force")


# --- the databases of a home ---


@contextmanager
def opened(path: Path, *, limit_s: float | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. After `limit_s` a statement is interrupted (`sqlite3.OperationalError`).

    A file in WAL mode that nobody has open is opened as immutable: SQLite would leave an empty log beside it else.

    Raises:
        sqlite3.Error: from here, and from what is done with the connection.
    """
    address = _address(path, immutable=_is_at_rest(path))
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
        if limit_s is not None:
            give_up_at = time.monotonic() + limit_s
            connection.set_progress_handler(lambda: time.monotonic() > give_up_at, STEPS_BETWEEN_LOOKS)
        yield connection


def _is_at_rest(path: Path) -> bool:
    """Whether all of a database is in the file itself, and nobody has it open: a log says otherwise."""
    log = path.with_name(path.name + "-wal")
    return not log.exists() or (log.stat().st_size == 0 and not log.with_name(path.name + "-shm").exists())


def _address(path: Path, *, immutable: bool) -> str:
    """The URI that opens a database for reading. `immutable`: without a log or a lock, while nobody writes."""
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"


class HomeFile(NamedTuple):
    """One database: its name within the home, and a connection that reads it as of one moment."""

    name: str
    connection: sqlite3.Connection
    version: int

    @property
    def project_id(self) -> str | None:
        """Whose records they are; None for all but a project's."""
        match = PROJECT_RECORDS.fullmatch(self.name)
        return match[1] if match else None

    @property
    def holds_records(self) -> bool:
        """Whether memories are in it."""
        return self.name == USER_RECORDS or self.project_id is not None


def is_known(name: str) -> bool:
    """Whether a file of a home may have this name: nothing else gets into a backup, or out of one."""
    return name in (QUEUE, CATALOG, USER_RECORDS) or PROJECT_RECORDS.fullmatch(name) is not None


def newest_version(name: str) -> int:
    """The schema version up to which this release reads the file of that name."""
    versions = {QUEUE: write_queue.SCHEMA_VERSION, CATALOG: schema.CATALOG_VERSION}
    return versions.get(name, schema.SCHEMA_VERSION)


def names_in(paths: RuntimePaths) -> list[str]:
    """The databases that a home has, in the order in which they have to be read."""
    projects = sorted(path.parent.name for path in paths.projects.glob("p_*/memory.db"))
    names = [QUEUE, *(f"projects/{project}/memory.db" for project in projects), USER_RECORDS, CATALOG]
    return [name for name in names if is_known(name) and (paths.home / name).is_file()]


@contextmanager
def moment(paths: RuntimePaths, wanted: Callable[[str], bool] = is_known) -> Iterator[list[HomeFile]]:
    """The databases of a home, those of them whose name is `wanted`, all as of one moment. Read only.

    Raises:
        FileUnusable: an interrupted restore has left the home in pieces.
        SchemaTooNew: a newer release wrote a file.
        RecordsUnusable: a file cannot be read.
    """
    refuse_unfinished(paths)
    _allow_many_files()
    for last in (False,) * (TRIES - 1) + (True,):
        with ExitStack() as stack:
            files: list[HomeFile] = []
            for name in filter(wanted, names_in(paths)):
                file = open_file(paths.home / name, name)
                stack.callback(file.connection.close)
                if file.version > 0:
                    files.append(file)
            if last or not _was_promoted_between(files):
                yield files
                return


def open_file(path: Path, name: str) -> HomeFile:
    """One database as of now; its connection is the caller's to close. Version 0: there is nothing in it yet.

    On a disk that cannot be written SQLite finds no room for the log that it reads by: the file is all there is then.

    Raises:
        SchemaTooNew: a newer release wrote it.
        RecordsUnusable: it cannot be read.
    """
    try:
        try:
            return _begun(path, name, immutable=False)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                schema.version_of(path)  # which takes back what was begun when its making was killed
                return _begun(path, name, immutable=False)
            if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or not _is_at_rest(path):
                raise
            return _begun(path, name, immutable=True)
    except sqlite3.DatabaseError as error:
        raise unreadable(path, error) from error


def _begun(path: Path, name: str, *, immutable: bool) -> HomeFile:
    """A database with a transaction in it, whose moment is that of its first read."""
    address = _address(path, immutable=immutable)
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_MOMENT_S, isolation_level=None)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > newest_version(name):
            raise SchemaTooNew(
                f"{path} has schema version {version}, and this release reads up to {newest_version(name)}: "
                "install the newer release that wrote it"
            )
    except BaseException:
        connection.close()
        raise
    return HomeFile(name, connection, version)


def refuse_unfinished(paths: RuntimePaths) -> None:
    """Raises `FileUnusable` when a restore of this home was interrupted."""
    if paths.restore_mark.exists():
        raise FileUnusable(
            f"a restore of {paths.home} was interrupted while it replaced files ({paths.restore_mark} says which): "
            "run 'remembrancer restore' again"
        )


def memory_ids(file: HomeFile) -> set[str]:
    """The ids of the memories in a file of records."""
    return {row[0] for row in file.connection.execute("SELECT id FROM memories")}


def _was_promoted_between(files: list[HomeFile]) -> bool:
    """Whether a memory is in a project's file and in the user's: it was promoted between the two moments."""
    users = next((memory_ids(file) for file in files if file.name == USER_RECORDS), set())
    return bool(users) and any(users & memory_ids(file) for file in files if file.project_id)


def _allow_many_files() -> None:
    """An open database takes three descriptors, and a home may have hundreds of projects."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
