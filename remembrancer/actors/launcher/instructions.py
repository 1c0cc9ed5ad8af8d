"""What the decisions of the launcher ask its shell to do."""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.control import FromLauncher, ProcessState, Role


class Start(msgspec.Struct, frozen=True):
    """Start a process. `threads` is what an embedder may use."""

    role: Role
    name: str
    incarnation: str
    threads: int


class Tell(msgspec.Struct, frozen=True):
    """Send a message to that incarnation of a process; nothing is lost if it is not connected."""

    name: str
    incarnation: str
    message: FromLauncher


class Signal(msgspec.Struct, frozen=True):
    """Send SIGTERM to a process, or SIGKILL to it and all that it started."""

    name: str
    signal: Literal["TERM", "KILL"]


class Changed(msgspec.Struct, frozen=True):
    """A process has come to another state: for the log, and for a person who watches."""

    name: str
    state: ProcessState
    error: str | None
    after_s: float
    """Seconds since the process was started."""


Instruction = Start | Tell | Signal | Changed
