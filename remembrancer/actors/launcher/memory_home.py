"""A home in memory: made in a place that all users share, and gone with its runtime. Standard library only.

Unlike one on disk it is deleted while others may look at it, so whoever takes its lock makes sure that the lock's file
is still the one that is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from remembrancer.actors.launcher.home import PRIVATE_DIRECTORY, unusable
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

REMOVE_ATTEMPTS: Final = 20
"""Somebody who asks for a lock makes its file, and so keeps the directory from being removed: then once more."""


class CurrentLock(FileLock):
    """A lock that is only taken on the file that its path names now."""

    def try_acquire(self) -> bool:
        """As `FileLock`; False also when the file, or its directory, was deleted meanwhile."""
        try:
            if not super().try_acquire():
                return False
        except FileNotFoundError:
            return False
        if self._is_current():
            return True
        self.release()
        return False

    def _is_current(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        except FileNotFoundError:
            return False


def try_lock_memory_home(paths: RuntimePaths) -> FileLock | None:
    """Make the home, for this user alone, and take its lock; None while another runtime has it, or is deleting it.

    Raises:
        HomeUnusable: somebody else has put something in its place, or it cannot be made.
    """
    lock = CurrentLock(paths.runtime_lock)
    try:
        _claim(paths.home)
        if not lock.try_acquire():
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(paths.home, error) from error
    return lock


def _claim(home: Path) -> None:
    with contextlib.suppress(FileExistsError):  # exist_ok would not put up with one that is deleted just now
        home.mkdir(mode=PRIVATE_DIRECTORY)
    about = home.lstat()  # not what a link in its place leads to
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise unusable(home, "this memory goes there, and it is not a directory of this user alone")


def remove_memory_home(paths: RuntimePaths) -> None:
    """Delete the home. Only with the lock of the home; another runtime may have it when this returns."""
    newer: FileLock | None = None
    for _ in range(REMOVE_ATTEMPTS):
        _delete_content(paths, keep=(paths.runtime_lock,))
        paths.runtime_lock.unlink(missing_ok=True)
        if newer is not None:
            newer.release()
        try:
            paths.home.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # somebody has made a lock's file in it
            newer = CurrentLock(paths.runtime_lock)
            if not newer.try_acquire():
                return  # it is the home of the next runtime
        else:
            return


def _delete_content(paths: RuntimePaths, keep: tuple[Path, ...]) -> None:
    try:
        found = list(paths.home.iterdir())
    except FileNotFoundError:  # its user was faster
        return
    for path in found:
        if path in keep:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
