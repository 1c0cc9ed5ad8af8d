"""How a backup takes the place of what a home has. Only with the locks of the home: nothing may have its files open.

The whole archive is unpacked and checked beside the files first. Then each database is replaced by one renaming, and
what it replaces stays in a directory of its own. A `kill -9` in between leaves each file whole, old or new, and a mark
in the home; the next restore does it all again.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from remembrancer.actors.launcher.home import already_running, prepare_home, read_record, try_lock_home, unusable
from remembrancer.commands.portability.archive import ArchivedFile, Manifest, read_archive, read_manifest
from remembrancer.commands.portability.home_files import names_in, newest_version
from remembrancer.commands.portability.private_files import FileUnusable, cannot, stamp, sync_directory
from remembrancer.protocol.errors import HomeUnusable, SchemaTooNew
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

STAGING: Final = "restore.staging"
LOCK_WAIT_S: Final = 3.0
"""How long to wait for locks: a status takes one for a moment, and what a crashed runtime left is about to die."""
LOOK_S: Final = 0.02
BESIDE_A_DATABASE: Final = ("-wal", "-shm", "-journal")
SPARE_BYTES: Final = 16 * 1024 * 1024


@contextmanager
def locked(paths: RuntimePaths) -> Iterator[None]:
    """The home to ourselves: no runtime is up, none starts, and no process of a crashed one has the files open.

    Raises:
        AlreadyRunning: a runtime is up.
        HomeUnusable: the home cannot be made or locked.
    """
    prepare_home(paths)
    with ExitStack() as stack:
        runtime = _wait_for_home(paths)
        if runtime is None:
            record = read_record(paths)
            raise already_running(paths, None if record is None else record.pid)
        stack.callback(runtime.release)
        for path in (paths.store_lock, paths.gateway_lock):
            lock = stack.enter_context(FileLock(path))
            if not _wait_for(lock):
                raise HomeUnusable(f"a process of a crashed runtime still holds {path}: end it, or wait for its end")
        yield


def check_manifest(archive: Path) -> Manifest:
    """What an archive says of itself, if this release can restore it. Raises as `read_archive`."""
    manifest = read_manifest(archive)
    for file in manifest.files:
        if file.schema_version > newest_version(file.name):
            raise SchemaTooNew(
                f"{archive}: {file.name} has schema version {file.schema_version}, and this release "
                f"({manifest.release} made it) reads up to {newest_version(file.name)}: install that release"
            )
    return manifest


def restore(paths: RuntimePaths, archive: Path, now: float) -> tuple[Manifest, Path | None]:
    """Put the files of an archive in place; returns its manifest, and where the files are that were there before.

    `now` is seconds since the epoch. Only inside `locked`.

    Raises:
        FileUnusable: the archive is damaged, or the home has no room for it: nothing was changed.
        SchemaTooNew: a newer release made it: nothing was changed.
    """
    staging = paths.home / STAGING
    try:
        _remove_tree(staging)
        manifest = _unpack(archive, staging)
        aside = _unused(paths.home / f"before-restore-{stamp(now)}")
        return manifest, _put_in_place(paths, archive, staging, manifest, aside)
    except OSError as error:
        raise cannot("changed", paths.home, error) from error
    finally:
        with suppress(OSError):
            _remove_tree(staging)


def _unpack(archive: Path, staging: Path) -> Manifest:
    """Everything from the archive, checked and durable. Its names are ours alone: see `is_known`."""
    manifest = check_manifest(archive)
    staging.mkdir(mode=0o700)
    needed = sum(file.size_bytes for file in manifest.files) + SPARE_BYTES
    if (free := shutil.disk_usage(staging).free) < needed:
        raise FileUnusable(f"{staging.parent} has {free / 2**20:,.0f} MiB free, and {needed / 2**20:,.0f} are needed")
    read_archive(archive, lambda file: _new(staging / file.name))
    for file in manifest.files:
        _check_database(staging / file.name, file, archive)
    for directory in sorted({(staging / file.name).parent for file in manifest.files}):
        sync_directory(directory)
    return manifest


def _new(path: Path) -> IO[bytes]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.open("xb")


def _check_database(path: Path, file: ArchivedFile, archive: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        found, version = str(error), file.schema_version
    if found != "ok" or version != file.schema_version:
        raise FileUnusable(f"{archive} is damaged: {file.name} is no sound database ({found})")


def _put_in_place(paths: RuntimePaths, archive: Path, staging: Path, manifest: Manifest, aside: Path) -> Path | None:
    """From the mark on, a kill leaves work for the next restore; each file is whole at any moment."""
    home = paths.home
    _mark(paths, {"archive": str(archive.absolute()), "set_aside": str(aside)})
    aside.mkdir(mode=0o700)
    _rename(paths.vectors, aside / paths.vectors.name)  # first: it fits the old records only
    restored = {file.name for file in manifest.files}
    for name in sorted({*names_in(paths), *restored}):
        _set_aside(home, aside, name, stays=name in restored)
    for name in sorted(restored):
        (home / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (staging / name).replace(home / name)
    for directory in {home, paths.projects, *((home / name).parent for name in restored)}:
        if directory.is_dir():
            sync_directory(directory)
    kept = any(aside.iterdir())
    if not kept:
        aside.rmdir()
    paths.restore_mark.unlink()
    sync_directory(home)
    return aside if kept else None


def _set_aside(home: Path, aside: Path, name: str, *, stays: bool) -> None:
    """Keep a database that is there, with all that lies beside it: a log of the old one would spoil the new one.

    One that `stays` has its name in the home until the new one takes it.
    """
    if (home / name).exists():
        _fold_log(home / name, newest_version(name))
        if stays:
            (aside / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link_or_copy(home / name, aside / name)
        else:
            _rename(home / name, aside / name)
    for ending in BESIDE_A_DATABASE:
        _rename(home / f"{name}{ending}", aside / f"{name}{ending}")


def _fold_log(path: Path, newest: int) -> None:
    """Move a database's write-ahead log into it, so that the file alone is whole. What is damaged stays as it is."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] <= newest:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _mark(paths: RuntimePaths, content: dict[str, Any]) -> None:
    fresh = paths.restore_mark.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(paths.restore_mark)
    sync_directory(paths.home)


def _link_or_copy(source: Path, target: Path) -> None:
    """Two names for one file: the next renaming takes the first one away. A copy where there are no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS):
            raise
        shutil.copy2(source, target)


def _rename(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source.rename(target)


def _unused(directory: Path) -> Path:
    """That path, or with a number behind it when it is taken."""
    found, number = directory, 2
    while os.path.lexists(found):
        found, number = directory.with_name(f"{directory.name}-{number}"), number + 1
    return found


def _remove_tree(directory: Path) -> None:
    if os.path.lexists(directory):
        shutil.rmtree(directory)


def _wait_for_home(paths: RuntimePaths) -> FileLock | None:
    give_up_at = time.monotonic() + LOCK_WAIT_S / 10
    while (lock := try_lock_home(paths)) is None and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)  # flock has no event to wait for
    return lock


def _wait_for(lock: FileLock) -> bool:
    give_up_at = time.monotonic() + LOCK_WAIT_S
    try:
        while not lock.try_acquire():
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(LOOK_S)
    except OSError as error:
        raise unusable(lock.path.parent, error) from error
    return True
