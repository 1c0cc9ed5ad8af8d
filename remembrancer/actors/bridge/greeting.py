"""The bridge's hello: who it is, for whom it speaks, and what of the client's environment matters."""

# ruff: noqa: PTH109
from __future__ import annotations

import json
import os

from remembrancer import __version__
from remembrancer.protocol.hello import LINK_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Variables whose names end so stay where they are."""
SESSION_VARIABLES = ("REMEMBRANCER_SESSION_ID", "MEMORY_SESSION_ID", "CLAUDE_CODE_SESSION_ID")
"""What names the session, the first that is set."""
_OF_SEEDS = ("MEMORY_LOG_LEVEL", "MEMORY_DEPLOYMENT_MODE")
"""Variables without our prefix that are settings of ours."""


def new_identity(now: float) -> bytes:
    """The 16 bytes of a ULID: `now` in milliseconds since the epoch, and 80 random bits."""
    return int(now * 1000).to_bytes(6, "big") + os.urandom(10)


def as_ulid(identity: bytes) -> str:
    """A ULID as text, 26 characters (https://github.com/ulid/spec)."""
    number = int.from_bytes(identity, "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def session_id(environ: Mapping[str, str], now: float) -> str:
    """The session that the environment names, or a new one. Claude Code names its own, which its hooks speak of too."""
    named = next((environ[name] for name in SESSION_VARIABLES if environ.get(name)), None)
    return named or f"session:{as_ulid(new_identity(now))}"


def hello_line(
    bridge: bytes, session: str, project: str | None, environ: Mapping[str, str], config: str | None = None
) -> bytes:
    """The first line of a connection, with its newline. Paths that are not UTF-8 travel as Python writes them.

    `config` is the path of the configuration file that counts for this session.
    """
    environment = {
        name: value
        for name, value in environ.items()
        if (name.startswith("REMEMBRANCER_") and not name.endswith(_SECRET_ENDINGS)) or name in _OF_SEEDS
    }
    environment.pop("REMEMBRANCER_CONFIG", None)
    if config is not None:
        environment["REMEMBRANCER_CONFIG"] = config
    hello = {
        "link": LINK_VERSION,
        "version": __version__,
        "bridge": bridge.hex(),
        "session": session,
        "directory": _working_directory(environ),
        "project": project,
        "environment": environment,
        "pid": os.getpid(),
    }
    return json.dumps(hello, separators=(",", ":")).encode() + b"\n"


def _working_directory(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return environ.get("PWD") or "/"
