"""Where hooks leave events for the gateway: one file each, in a private directory of the home. Standard library only.

Nothing is waited for: no lock, no process, no flush to the disk. An event is there as soon as its file has its name,
and survives the end of every process, though not a loss of power within the next seconds.
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH118, PTH120, PTH208
from __future__ import annotations

import json
import os
import stat

from remembrancer.protocol.hooks import DROPPED, MAX_WAITING, RUNNING, SUFFIX, event_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RUNNING = 1000
"""Notes on tools that have begun. Of a tool that is never done, because it was refused say, the note stays."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def leave(directory: str, event: dict[str, Any], now_ns: int) -> None:
    """Leave an event for the gateway. `now_ns` is the time in nanoseconds since the epoch.

    Raises:
        OSError: it cannot be written, or others may write there.
    """
    _make_private(directory)
    waiting = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]
    if len(waiting) >= MAX_WAITING:
        _drop(directory, sorted(waiting)[: len(waiting) - MAX_WAITING + 1])
    name = event_name(now_ns, os.urandom(4).hex())
    unnamed = os.path.join(directory, f".{name}")
    _write(unnamed, json.dumps(event, separators=(",", ":")).encode())
    os.rename(unnamed, os.path.join(directory, name))


def note_beginning(directory: str, key: str, now_ns: int) -> None:
    """Note that a tool begins. Raises as `leave`."""
    _make_private(directory)
    running = os.path.join(directory, RUNNING)
    _make_private(running)
    notes = os.listdir(running)
    if len(notes) >= MAX_RUNNING:
        for name in sorted(notes, key=lambda name: _changed_at(os.path.join(running, name)))[: len(notes) // 2]:
            _remove(os.path.join(running, name))
    path = os.path.join(running, key)
    _remove(path)
    _write(path, b"%d" % now_ns)


def take_duration_ms(directory: str, key: str, now_ns: int) -> int | None:
    """How long the tool took that began under this key; None when nobody noted it."""
    path = os.path.join(directory, RUNNING, key)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        began_ns = int(os.read(descriptor, 32))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
        _remove(path)
    return max(0, (now_ns - began_ns) // 1_000_000)


def _make_private(directory: str) -> None:
    """Make a directory for this user alone. The home is made, too: a hook may be the first to want it."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
    about = os.lstat(directory)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory of this user alone")


def _drop(directory: str, names: list[str]) -> None:
    """Take the oldest events away, and count them for the gateway."""
    counted = os.open(
        os.path.join(directory, DROPPED), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        for name in names:
            if _remove(os.path.join(directory, name)):
                os.write(counted, b".")
    finally:
        os.close(counted)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, _NEW, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        _remove(path)
        raise
    finally:
        os.close(descriptor)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:  # somebody else was faster
        return False
    return True


def _changed_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
