"""Where the bridge finds the runtime. The same answers as `config.home` and `protocol.paths`, without their imports.

Every session starts a bridge and waits for it: pathlib, hashlib and platformdirs would double the time that takes.
A test holds these functions to the modules that they stand in for.
"""

# ruff: noqa: PTH111, PTH117, PTH118
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_RUN_DIRECTORY = 78
"""Bytes. A longer home has its sockets elsewhere, and `protocol.paths` knows where."""


class Places:
    """The paths of one home that a bridge needs."""

    def __init__(self, home: str, gateway_socket: str) -> None:
        self.home = home
        self.gateway_socket = gateway_socket
        self.start_lock = os.path.join(home, "start.lock")
        self.runtime_lock = os.path.join(home, "runtime.lock")
        self.logs = os.path.join(home, "logs")


def find_places(environ: Mapping[str, str]) -> Places:
    """The places of the home that an environment names."""
    home = _find_home(environ)
    run = os.path.join(home, "run")
    if len(os.fsencode(run)) <= _LONGEST_RUN_DIRECTORY:
        return Places(home, os.path.join(run, "gateway.sock"))
    from pathlib import Path

    from remembrancer.protocol.paths import RuntimePaths

    return Places(home, str(RuntimePaths(Path(home)).gateway_socket))


def _find_home(environ: Mapping[str, str]) -> str:
    named = environ.get("REMEMBRANCER_HOME")
    if named:
        return os.path.realpath(os.path.expanduser(named))
    data = environ.get("XDG_DATA_HOME", "").strip() or os.path.expanduser("~/.local/share")
    if sys.platform == "linux" and os.path.isabs(data):
        return os.path.realpath(os.path.join(data, "remembrancer"))
    from remembrancer.config.home import find_home

    return str(find_home(environ))
