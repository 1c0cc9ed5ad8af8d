"""Finds the runtime's paths for the bridge, and builds the bridge's hello to the gateway. Every session waits for its
bridge, and pathlib and hashlib would double the wait: they are imported only if the home is not found otherwise."""

from __future__ import annotations

import json
import os
import stat

from remembrancer import __version__
from remembrancer.config.named_home import IN_MEMORY, MODE_VARIABLES, config_file, named_home
from remembrancer.protocol.environment import is_secret_variable
from remembrancer.protocol.gateway_link import LINK_VERSION
from remembrancer.protocol.system import is_private, run_directory
from remembrancer.protocol.ulids import as_ulid, new_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# ruff: noqa: PTH100, PTH109, PTH112, PTH116, PTH118, PTH120, PTH123


_LONGEST_CONFIG_BYTES = 1024 * 1024


class Places:
    """The paths of one home that a bridge needs, and the arguments that make a runtime use the same home."""

    def __init__(self, home: str, on_disk: str, config: str | None) -> None:
        self.home = home
        self.on_disk = on_disk
        """The directory that identifies the home: the home itself, unless it is in memory."""
        self.config = config
        self.start_lock = os.path.join(home, "start.lock")
        self.runtime_lock = os.path.join(home, "runtime.lock")
        self.logs = os.path.join(home, "logs")
        run = run_directory(home)
        self.gateway_socket = os.path.join(run, "gateway.sock")
        self._among_others = [home] if self.on_disk != home else []
        if os.path.dirname(run) != home:
            self._among_others.append(run)

    def are_private(self) -> bool:
        """False if the socket is missing, or belongs to another user, as it may in a shared directory."""
        try:
            return all(map(is_private, self._among_others))
        except OSError:
            return False  # it does not exist yet, and anybody could create it


def find_places(environ: Mapping[str, str]) -> Places:
    _, home = named_home(environ)
    config = config_file(environ, home)
    in_memory = IN_MEMORY in map(environ.get, MODE_VARIABLES)
    if in_memory or (config is not None and _may_move_home(config)):
        from remembrancer.config.home import locate

        located = locate(environ)
        config = str(located.file) if located.file is not None else None
        return Places(str(located.directory), str(located.on_disk), config)
    return Places(home, home, config)


def _may_move_home(config: str) -> bool:
    """True if the configuration file may move the home, and so must be parsed. Most files do not mention the home."""
    try:
        if not stat.S_ISREG(os.stat(config).st_mode):
            return False
        with open(config, "rb") as file:
            content = file.read(_LONGEST_CONFIG_BYTES)
    except OSError:
        return False
    return any(mark in content for mark in (b"db_path", b"deployment_mode", b"\\"))


SESSION_VARIABLES = ("REMEMBRANCER_SESSION_ID", "MEMORY_SESSION_ID", "CLAUDE_CODE_SESSION_ID")
"""The first one that is set determines the session."""
SETTINGS = {
    name: f"MEMORY_MCP_{name.replace('-', '_').upper()}"
    for name in ("model", "cache-size", "batch-size", "timeout", "log-level")
}
"""The options of another memory server, each with the variable that it sets."""
_UNPREFIXED_SETTINGS = ("MEMORY_LOG_LEVEL", "MEMORY_DEPLOYMENT_MODE", *SETTINGS.values())


def session_id(environ: Mapping[str, str], now: float) -> str:
    named = next((environ[name] for name in SESSION_VARIABLES if environ.get(name)), None)
    return named or f"session:{as_ulid(new_identity(now))}"


def hello_line(
    bridge: bytes,
    session: str,
    project: str | None,
    environ: Mapping[str, str],
    config: str | None = None,
    **others: object,
) -> bytes:
    """The first line of a connection. Paths that are not UTF-8 are encoded as Python prints them."""
    environment = {
        name: value
        for name, value in environ.items()
        if (name.startswith("REMEMBRANCER_") and not is_secret_variable(name)) or name in _UNPREFIXED_SETTINGS
    }
    environment.pop("REMEMBRANCER_CONFIG", None)
    if config is not None:
        environment["REMEMBRANCER_CONFIG"] = config
    hello = {
        "link": LINK_VERSION,
        "version": __version__,
        "bridge": bridge.hex(),
        "session": session,
        "directory": working_directory(environ),
        "project": project,
        "environment": environment,
        "pid": os.getpid(),
        **others,
    }
    return json.dumps(hello, separators=(",", ":")).encode() + b"\n"


def named_project(option: str | None, environ: Mapping[str, str]) -> str | None:
    """The absolute path of the project given with `--project`, or else (unless our own variable is set) of the project
    that Claude Code passes to its servers and hooks. Raises `ValueError` if the option does not name a directory."""
    if option is not None and not os.path.isdir(option):
        raise ValueError(f"--project {option[:1000]!a} is not a directory")
    named = environ.get("CLAUDE_PROJECT_DIR", "")
    if option is None and os.path.isdir(named) and not environ.get("REMEMBRANCER_PROJECT"):
        option = named
    return None if option is None else os.path.abspath(option)


def working_directory(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()
    except OSError:
        return environ.get("PWD") or "/"
