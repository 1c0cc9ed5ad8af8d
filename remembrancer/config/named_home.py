"""Finds the home and its configuration file, as strings, from an environment. Every session waits for a bridge to
start, so this module imports nothing that the bridge has not imported."""

# ruff: noqa: PTH100, PTH111, PTH113, PTH110, PTH117, PTH118
from __future__ import annotations

import os

from remembrancer.protocol.system import DATA_DIRECTORY, real_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_FILE = "config.toml"
CONFIG_FILES = (CONFIG_FILE, "config.md", "config.json", "memory.config.json")
"""Without a variable, the first that exists in the home is used, unless it must be imported first."""
CONFIG_VARIABLES = ("REMEMBRANCER_CONFIG", "MEMORY_CONFIG_PATH")
HOME_VARIABLES = ("REMEMBRANCER_HOME", "MEMORY_DB_PATH", "FLOOD_MEMORY_DIR", "MEMORY_MCP_DATA_DIR")
MODE_VARIABLES = ("REMEMBRANCER_DEPLOYMENT_MODE", "MEMORY_DEPLOYMENT_MODE")
"""In each group, the first variable that is set is used."""
IN_MEMORY = "embedded-memory"


class RelativeHome(ValueError):
    """Raised for a relative path, which would mean a separate memory for each directory."""


def first_of(environ: Mapping[str, str], variables: tuple[str, ...]) -> tuple[str, str | None]:
    return next(((name, environ[name]) for name in variables if environ.get(name)), (variables[0], None))


def named_home(environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable (or `default`), and the home: absolute, with links resolved. Raises `RelativeHome`."""
    variable, named = first_of(environ, HOME_VARIABLES)
    if named:
        home = os.path.expanduser(named)
        if not os.path.isabs(home):
            raise RelativeHome(
                f"{variable} is {named[:1000]!r}, which would mean a separate memory in each directory; give an "
                f"absolute path, such as {os.path.abspath(home)}"
            )
        return variable, real_path(home)
    data = environ.get("XDG_DATA_HOME", "").strip()
    if not os.path.isabs(data):  # the specification says to ignore relative ones
        data = os.path.expanduser(DATA_DIRECTORY)
    return "default", real_path(os.path.join(data, "remembrancer"))


def config_file(environ: Mapping[str, str], home: str) -> str | None:
    _, named = first_of(environ, CONFIG_VARIABLES)
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return next((file for name in CONFIG_FILES if is_file(file := os.path.join(home, name))), None)


def is_file(path: str | os.PathLike[str]) -> bool:
    """True also for a broken link, but not for directories and pipes, which contain no settings."""
    return os.path.lexists(path) and (os.path.isfile(path) or not os.path.exists(path))
