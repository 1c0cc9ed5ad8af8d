"""A home on disk or in memory: its private directories, its lock, and the record of its launcher."""

import contextlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from remembrancer.protocol.errors import AlreadyRunning, HomeUnusable
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths, read_file, reason_of
from remembrancer.protocol.system import is_private

PRIVATE_DIRECTORY: Final = 0o700


def claim_home(paths: RuntimePaths, *, in_memory: bool) -> None:
    """Create the home's directory. Raises `HomeUnusable` if that fails or others can write to it."""
    try:
        if in_memory:  # anybody can create directories there
            _claim(paths.home, "the memory would be kept there")
        else:
            paths.home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            about = paths.home.stat()
            if about.st_uid != os.getuid():
                raise unusable(paths.home, "it belongs to another user")
            if about.st_mode & (stat.S_ISVTX | stat.S_IWOTH):  # e.g. /tmp, whose mode is not ours to change
                raise unusable(paths.home, "everyone can write to it")
            paths.home.chmod(PRIVATE_DIRECTORY)
    except OSError as error:
        raise unusable(paths.home, error) from error


def prepare_home(paths: RuntimePaths) -> None:
    """Call this only while holding the home's lock. Raises `HomeUnusable`."""
    try:
        with contextlib.suppress(OSError):  # nothing depends on the logs
            paths.logs.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        if paths.run.parent == paths.home:
            paths.run.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
            paths.run.chmod(PRIVATE_DIRECTORY)
        else:
            _claim(paths.run, "the sockets would be there")
    except OSError as error:
        raise unusable(paths.home, error) from error
    _remove_sockets(paths)


def _claim(directory: Path, use: str) -> None:
    """Create a directory for this user only, where another user may already have created a link or directory."""
    directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    if not is_private(directory):
        raise unusable(directory, f"{use}, but other users can access it")


def unusable(directory: Path, reason: OSError | str) -> HomeUnusable:
    why = reason if isinstance(reason, str) else reason_of(reason)
    return HomeUnusable(
        f"the directory {directory} cannot be used: {why}. "
        "Set REMEMBRANCER_HOME to a directory of your own, or fix its owner and mode (0700)"
    )


def take_home(paths: RuntimePaths, wait_s: float) -> FileLock:
    """Raises `AlreadyRunning`, or `HomeUnusable` if the home cannot be locked."""
    lock = FileLock(paths.runtime_lock)
    try:
        if lock.acquire(wait_s):
            return lock
    except OSError as error:
        raise unusable(paths.home, error) from error
    pid = read_record(paths)
    who = "another process" if pid is None else f"process {pid}"
    raise AlreadyRunning(
        f"a runtime is already running for {paths.home} ({who}): "
        "'remembrancer status' shows it, and 'remembrancer down' stops it"
    )


def _remove_sockets(paths: RuntimePaths) -> None:
    for path in paths.run.glob("*.sock"):
        with contextlib.suppress(OSError):  # the socket's process then cannot listen, and reports the reason
            path.unlink(missing_ok=True)


def leave_run_directory(paths: RuntimePaths) -> None:
    """Call this only while holding the home's lock."""
    _remove_sockets(paths)
    with contextlib.suppress(OSError):
        paths.run.rmdir()


def clear_memory_home(paths: RuntimePaths) -> None:
    """Delete everything except locks, which other processes may be checking. Call this while holding the lock."""
    for path in paths.home.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".lock":
            path.unlink(missing_ok=True)


def read_record(paths: RuntimePaths) -> int | None:
    """The process id of the last launcher; None if there is no readable record."""
    try:
        return int(json.loads(read_file(paths.runtime_record))["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_record(paths: RuntimePaths, pid: int) -> None:
    paths.runtime_record.write_text(json.dumps({"pid": pid}), encoding="utf-8")
