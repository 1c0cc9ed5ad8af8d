"""The files of hooks: the events that the gateway reads, and the notes on sessions. Standard library only.

An event exists as soon as its file is renamed; it survives the end of every process, but not a power failure within the
next seconds.
"""

# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH112, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import json
import os
import stat
import time

from remembrancer.protocol.gateway_link import HOOK_FORMAT, HOOK_SUFFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places

MAX_WAITING_EVENTS = 5000
"""The most events that wait for a gateway. Beyond that none is recorded."""
MAX_NOTES = 1000
"""The number of notes on what sessions were given."""
MAX_NOTE_BYTES = 64 * 1024


class Session:
    """The session of an event. `began` is the start of this process (`time.monotonic`)."""

    def __init__(
        self, places: Places, environ: Mapping[str, str], client: str, name: str, directory: str, began: float
    ) -> None:
        self.places, self.environ, self.client = places, environ, client
        self.name, self.directory, self.began = name, directory, began
        self._spool = os.path.join(places.home, "hooks")
        self._notes = os.path.join(self._spool, "running")

    def leave(self, event: str, given: Mapping[str, Any]) -> None:
        """Leave an event for the gateway, with the client's input. Raises `OSError` if it cannot be written, too many
        wait already, others may write there, or there is no home."""
        if self.places.on_disk != self.places.home and not os.path.isdir(self.places.home):
            raise FileNotFoundError("the memory is in RAM, and no runtime is up")
        _make_private(self._spool)
        if len(os.listdir(self._spool)) > MAX_WAITING_EVENTS:
            raise OSError(f"{MAX_WAITING_EVENTS} events wait already: 'remembrancer doctor' says why nobody reads them")
        now_ns = time.time_ns()
        about = {"format": HOOK_FORMAT, "event": event, "at": now_ns / 1e9, "session": self.name}
        about |= {"directory": self.directory, "client": self.client, "given": given}
        name = f"{now_ns:020d}-{os.urandom(4).hex()}{HOOK_SUFFIX}"
        unnamed = os.path.join(self._spool, f".{name}")
        _write_new(unnamed, json.dumps(about, separators=(",", ":")).encode())
        os.rename(unnamed, os.path.join(self._spool, name))

    def note(self, kind: str, content: bytes) -> None:
        """Note the ids that are given to the session. Raises as `leave`."""
        _make_private(self._spool)
        _make_private(self._notes)
        notes = os.listdir(self._notes)
        if len(notes) >= MAX_NOTES:
            for name in sorted(notes, key=lambda name: _changed_at(os.path.join(self._notes, name)))[: len(notes) // 2]:
                _remove(os.path.join(self._notes, name))
        path = self._note(kind)
        _remove(path)
        _write_new(path, content)

    def noted(self, kind: str) -> bytes | None:
        """The ids that were given to the session; None if nothing was."""
        try:
            with open(self._note(kind), "rb", buffering=0) as file:
                return file.read(MAX_NOTE_BYTES)
        except OSError:
            return None

    def _note(self, kind: str) -> str:
        from binascii import crc32

        name, directory = self.name.encode(), self.directory.encode("utf-8", "replace")
        return os.path.join(self._notes, f"{kind}-{crc32(name):08x}-{crc32(directory):08x}")


def _make_private(directory: str) -> None:
    """Make a directory for this user alone, and the home if necessary: a hook may be the first to need it."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
    about = os.lstat(directory)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory that only this user can access")


def _write_new(path: str, content: bytes) -> None:
    with open(path, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            _remove(path)
            raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # another process was faster
        return


def _changed_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
