"""Connects to the local gateway and starts a runtime if there is none. Only one bridge at a time starts a runtime."""

# ruff: noqa: PTH103
from __future__ import annotations

import contextlib
import os
import socket
import sys

from remembrancer.actors.bridge.places import SESSION_VARIABLES
from remembrancer.config.named_home import CONFIG_VARIABLES, HOME_VARIABLES
from remembrancer.protocol.environment import TOOLSETS_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from typing import IO

    from remembrancer.actors.bridge.places import Places
    from remembrancer.protocol.file_locks import FileLock

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LOOK_AGAIN_S = 0.05
"""The interval between checks on a runtime that another process is starting."""
_OF_A_SESSION = ("REMEMBRANCER_PROJECT", TOOLSETS_VARIABLE, "REMEMBRANCER_BRIDGE_BUDGET_S", *SESSION_VARIABLES)
_NOT_INHERITED = frozenset((*_OF_A_SESSION, *HOME_VARIABLES, *CONFIG_VARIABLES))
"""A runtime gets the absolute paths of the home and its configuration file, since its working directory differs."""
HOME_UNUSABLE = 6
LASTING_STATUSES = frozenset({HOME_UNUSABLE, 7})
"""Exit statuses of a runtime that will keep failing until a person corrects its home or its settings."""
_SPEAKER = "remembrancer up: "
_LONGEST_REASON_BYTES = 2048


class Starter:
    """Starts the runtime of one home, detached from this process, unless one is running or starting."""

    def __init__(self, places: Places, environ: Mapping[str, str]) -> None:
        self._places = places
        self._environ = environ
        self._pause_s = FIRST_PAUSE_S
        self._not_before = 0.0
        self._lock: FileLock | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._reached = False
        self.failure: str | None = None
        """The error reported by the last attempt, until the next one. A killed attempt is simply repeated."""
        self.status = 0
        self.is_lasting = False
        self._output: IO[bytes] | None = None

    def dial(self) -> socket.socket | None:
        """Return a connected socket, or None. A Unix socket connects at once or not at all."""
        if not self._places.are_private():
            return None
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.setblocking(False)
        try:
            link.connect(self._places.gateway_socket)
        except OSError:
            link.close()
            return None
        return link

    def connected(self) -> None:
        self._pause_s, self._not_before = FIRST_PAUSE_S, 0.0
        self._reached = True
        self._fail(None)
        self._close_output()
        self.finish()

    def _pause(self, now: float) -> None:
        self._not_before = now + self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)

    def _fail(self, reason: str | None, status: int = 0) -> None:
        self.failure, self.status, self.is_lasting = reason, status, status in LASTING_STATUSES

    def tend(self, now: float) -> None:
        """Call this after a failed connection. Starts a runtime unless another process does. Sets `failure`."""
        try:
            if self._child is None and now >= self._not_before:
                self._fail(None)
                self._start(now)
            elif self._child is not None and (status := self._child.poll()) is not None:
                self._ended(status, now)
        except OSError as error:
            from remembrancer.protocol.paths import reason_of

            self.finish()
            remedy = "set REMEMBRANCER_HOME to a directory of your own; 'remembrancer doctor' checks this home"
            reason = f"the memory's home {self._places.home} cannot be used: {reason_of(error)} ({remedy})"
            self._fail(reason, HOME_UNUSABLE)
            self._pause(now)

    def _start(self, now: float) -> None:
        from remembrancer.protocol.file_locks import FileLock

        os.makedirs(self._places.home, mode=0o700, exist_ok=True)
        self._not_before = now + LOOK_AGAIN_S
        lock = FileLock(self._places.start_lock)
        if not lock.try_acquire():
            return
        self._lock = lock
        # Check only while holding the start lock, and not while our child starts: it takes the runtime's lock briefly.
        if FileLock(self._places.runtime_lock).is_held_elsewhere():
            self.finish()
        else:
            self._spawn(lock)

    def _spawn(self, lock: FileLock) -> None:
        """The runtime inherits the start lock, so no other process starts one, even after this process exits."""
        import subprocess
        import tempfile

        from remembrancer.protocol.environment import runtime_environment

        inherited = runtime_environment(self._environ)
        environ = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
        environ["REMEMBRANCER_HOME"] = self._places.on_disk
        if self._places.config is not None:
            environ["REMEMBRANCER_CONFIG"] = self._places.config
        self._reached = False
        self._close_output()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - open until it is read
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "remembrancer", "up", "--for-sessions", "--secrets-on-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._output,
            cwd="/",
            env=environ,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it has already exited, and `_ended` reads the reason
            self._child.stdin.write(self._secrets())
            self._child.stdin.close()

    def _secrets(self) -> bytes:
        """The variables of this session that embedders may need, as JSON: the runtime's own environment omits them."""
        import json
        import re

        from remembrancer.protocol.environment import NETWORK_VARIABLES, PROVIDER_KEYS

        settings = [value for name, value in self._environ.items() if name.startswith("REMEMBRANCER_")]
        if self._places.config is not None:
            from remembrancer.protocol.paths import read_file

            with contextlib.suppress(OSError):
                settings.append(read_file(self._places.config).decode("utf-8", "replace"))
        named = re.findall(r"\$\{(\w+)\}", "\n".join(settings))
        names = {*named, *PROVIDER_KEYS, *NETWORK_VARIABLES}
        return json.dumps({name: value for name, value in self._environ.items() if name in names}).encode()

    def _ended(self, status: int, now: float) -> None:
        from remembrancer.protocol.file_locks import FileLock

        self._child = None
        self.finish()
        if self._reached:
            return  # it started and died later, which is not a failure to start
        if FileLock(self._places.runtime_lock).is_held_elsewhere():
            return  # another runtime started first
        self._pause(now)
        if status > 0:
            assert self._output is not None
            reason = os.pread(self._output.fileno(), _LONGEST_REASON_BYTES, 0).decode("utf-8", "replace").strip()
            if not reason.startswith(_SPEAKER):
                reason = f"it exited with status {status}; its log is in {self._places.logs}"
            why = f"the memory service could not be started: {reason.removeprefix(_SPEAKER)}"
            self._fail(why, status)
        self._close_output()

    def _close_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.close()

    def finish(self) -> None:
        """Release the start lock, if held: a runtime is running or cannot be started, or the client has gone."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
