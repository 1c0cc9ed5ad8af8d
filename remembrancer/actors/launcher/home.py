"""The directories of a home: made, private, and free of what a crashed runtime left. Standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

if TYPE_CHECKING:
    from remembrancer.protocol.errors import AlreadyRunning, HomeUnusable

PRIVATE_DIRECTORY: Final = 0o700


def prepare_home(paths: RuntimePaths) -> None:
    """Make the home and its directories, for this user alone.

    Raises:
        HomeUnusable: a directory cannot be made, or others may write in it.
    """
    try:
        paths.home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        _make_private(paths.home)
        paths.logs.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        _make_run_directory(paths.run, inside=_is_inside(paths))
    except OSError as error:
        raise unusable(paths.home, error) from error


def refuse_half_restored(paths: RuntimePaths) -> None:
    """Look whether a restore was killed in this home. Only with the lock of the home, which a restore holds too.

    Raises:
        HomeUnusable: some of its files may be of the backup, and some of before.
    """
    if paths.restore_mark.exists():
        from remembrancer.protocol.errors import HomeUnusable

        raise HomeUnusable(
            f"a restore of {paths.home} was interrupted while it replaced files: run 'remembrancer restore' again"
        )


def _make_private(directory: Path) -> None:
    about = directory.stat()
    if about.st_uid != os.getuid():
        raise unusable(directory, "it belongs to another user")
    if about.st_mode & (stat.S_ISVTX | stat.S_IWOTH):
        raise unusable(directory, "everyone may write in it")  # /tmp itself, say: not ours to close
    if stat.S_IMODE(about.st_mode) != PRIVATE_DIRECTORY:
        directory.chmod(PRIVATE_DIRECTORY)


def _make_run_directory(directory: Path, *, inside: bool) -> None:
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    about = directory.lstat()  # outside of the home, someone else may have put a link or a directory in its place
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    if inside and ours:
        directory.chmod(PRIVATE_DIRECTORY)
    elif not ours or stat.S_IMODE(about.st_mode) != PRIVATE_DIRECTORY:
        raise unusable(directory, "sockets go there, and it is not a directory of this user alone")


def unusable(directory: Path, reason: OSError | str) -> HomeUnusable:
    """The error that says why a directory of the home cannot be used, and what to do."""
    from remembrancer.protocol.errors import HomeUnusable  # costs 20 ms, which clients would wait for

    why = reason if isinstance(reason, str) else reason.strerror or str(reason)
    return HomeUnusable(
        f"the directory {directory} cannot be used: {why}. "
        "Set REMEMBRANCER_HOME to a directory of your own, or mend its owner and mode (0700)"
    )


def try_lock_home(paths: RuntimePaths) -> FileLock | None:
    """The lock of the home, taken; None while another runtime has it.

    Raises:
        HomeUnusable: the lock's file cannot be made or locked.
    """
    lock = FileLock(paths.runtime_lock)
    try:
        return lock if lock.try_acquire() else None
    except OSError as error:
        raise unusable(paths.home, error) from error


def already_running(paths: RuntimePaths, pid: int | None) -> AlreadyRunning:
    """The error that says who has the lock."""
    from remembrancer.protocol.errors import AlreadyRunning

    who = "another process" if pid is None else f"process {pid}"
    return AlreadyRunning(
        f"a runtime of the home {paths.home} is up already ({who}): "
        "see it with 'remembrancer status', stop it with 'remembrancer down'"
    )


def remove_sockets(paths: RuntimePaths) -> None:
    """Remove the sockets of a runtime that has gone. Only with the lock of the home."""
    for path in paths.run.glob("*.sock"):
        path.unlink(missing_ok=True)


def leave_run_directory(paths: RuntimePaths) -> None:
    """Remove the sockets, and outside of the home their directory, too. Only with the lock of the home."""
    remove_sockets(paths)
    if not _is_inside(paths):
        with contextlib.suppress(OSError):
            paths.run.rmdir()


def _is_inside(paths: RuntimePaths) -> bool:
    return paths.run.parent == paths.home
