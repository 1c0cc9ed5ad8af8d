"""The command that a client should start: absolute, and one that will be there tomorrow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COMMAND: Final = "remembrancer"
PASSING: Final = (
    ("uv", "archive-v0"),
    ("uv", "builds-v0"),
    ("uv", "environments-v2"),
    ("pipx", ".cache"),
    (".cache", "pipx"),
)
"""Neighbouring parts of paths under which tools keep environments for one run (uvx, pipx run)."""
PASSING_ROOTS: Final = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/folders", "/dev/shm")  # noqa: S108 - to keep away


def own_command(program: str, interpreter: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of `mcp`, from this process's `sys.argv[0]`, `sys.executable` and environment.

    The program itself if it is the installed command (as it was named: a link in the user's `bin` outlives what it
    points at), else the command beside the interpreter (a virtual environment's), else the one on the PATH, else
    the interpreter with the module. A place that lasts goes before one that passes.
    """
    beside = Path(interpreter).parent / COMMAND
    on_path = shutil.which(COMMAND, path=environ.get("PATH", ""))
    candidates = [Path(program)] if Path(program).name == COMMAND else []
    candidates += [beside, *([Path(on_path)] if on_path else [])]
    usable = [each.absolute() for each in candidates if _is_executable(each)]
    for each in sorted(usable, key=passes_away):  # stable: the order stands among those that last
        return (str(each), "mcp")
    return (interpreter, "-P", "-m", COMMAND, "mcp")


def passes_away(path: Path) -> bool:
    """Whether what lies there is made for one run, or for the time until the next start of the machine."""
    spellings = (path, Path(os.path.realpath(path)))
    return any(_is_passing(each) for each in spellings)


def _is_passing(path: Path) -> bool:
    neighbours = set(zip(path.parts, path.parts[1:], strict=False))
    return bool(neighbours.intersection(PASSING)) or any(path.is_relative_to(root) for root in PASSING_ROOTS)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
