"""A lock between processes that a crash cannot leave behind. Standard library only: the bridge imports this.

`flock` (2) belongs to the open file: the kernel releases it when the process dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive lock on a file, which is made with mode 0600 and never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it. True when it is ours (also when it was already)."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def is_held_elsewhere(self) -> bool:
        """Whether another holder has the lock now. Nobody has it where its directory is gone."""
        if self._descriptor is not None or not self.path.exists():
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
