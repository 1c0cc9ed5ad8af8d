"""File locks of processes. Hooks import this while a session waits, so it avoids pathlib."""

# ruff: noqa: PTH101, PTH110, PTH116
from __future__ import annotations

import fcntl
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def _open_to_lock(path: Path | str) -> int:
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    except IsADirectoryError:  # a directory can be locked as well
        return os.open(path, os.O_RDONLY | flags)
    except PermissionError:
        about = os.stat(path)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode):
            raise
        os.chmod(path, 0o600)  # the file has lost its mode, and it is empty
        return os.open(path, os.O_RDWR | flags)


class FileLock:
    """An exclusive lock on a file, which is created with mode 0600 and never deleted.

    `flock` (2) belongs to the open file: the kernel releases it when the process dies, however it dies.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Returns True if this object holds it, even from before."""
        if self._descriptor is not None:
            return True
        descriptor = _open_to_lock(self.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Release the lock. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def is_held_elsewhere(self) -> bool:
        """True if another holder has the lock now; False if its directory does not exist."""
        if self._descriptor is not None or not os.path.exists(self.path):
            return False
        try:
            if self.try_acquire():
                self.release()
                return False
        except FileNotFoundError:
            return False
        return True

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
