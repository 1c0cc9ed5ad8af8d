"""File locks held by processes. Hooks import this module while a session waits, so it avoids pathlib."""

# ruff: noqa: PTH110
from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """An exclusive flock(2) on a file, created with mode 0600 and never deleted. It ends when the process dies."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Returns True if this object holds it now, even if it already did."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def acquire(self, wait_s: float) -> bool:
        give_up_at = time.monotonic() + wait_s
        while not self.try_acquire():
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.01)  # flock offers no event to wait for
        return True

    def fileno(self) -> int:
        """The descriptor of the held lock. A child that inherits it holds the lock as well, until both have ended."""
        assert self._descriptor is not None
        return self._descriptor

    def release(self) -> None:
        """May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def is_held_elsewhere(self) -> bool:
        """True if another holder has the lock now."""
        if self._descriptor is not None or not os.path.exists(self.path):
            return False
        is_free = self.try_acquire()
        if is_free:
            self.release()
        return not is_free

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
