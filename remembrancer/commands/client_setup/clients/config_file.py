"""A client's configuration file, read whole and replaced whole: the state before it is kept beside it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from remembrancer.commands.client_setup.clients.json_text import NotEditable

NEW_FILE: Final[dict[str, int]] = {"project": 0o644, "user": 0o600}
"""The mode of a file that is made, by its scope; the process's umask narrows a project's."""
PRIVATE_DIRECTORY: Final = 0o700
_MARK: Final = "\ufeff"


class FileRefused(Exception):
    """A client's file cannot be read or written, or was changed by somebody else meanwhile. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_text(path: Path) -> str | None:
    """What the file holds, with its own line ends; None when there is none.

    Raises:
        FileRefused: it cannot be read.
        NotEditable: it is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileRefused(f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise NotEditable("it is not UTF-8 text") from error


def without_mark(text: str) -> tuple[str, str]:
    """A text without the byte order mark that some editors put first, and the mark (or nothing)."""
    return (text[1:], _MARK) if text.startswith(_MARK) else (text, "")


def replace_text(path: Path, before: str | None, after: str, *, scope: str) -> Path | None:
    """Make the file hold `after`, whole or not at all; returns the backup of `before`, None for a new file.

    A symbolic link stays one: the file behind it is replaced. The file keeps its mode.

    Raises:
        FileRefused: it cannot be written, or does not hold `before` any more.
    """
    real = Path(os.path.realpath(path))
    try:
        if read_text(real) != before:
            raise FileRefused("it was changed by another program just now: run this again")
        if before is None:
            _make_directory(real.parent, scope)
            _write(real, after, NEW_FILE[scope] & ~_umask() if scope == "project" else NEW_FILE[scope])
            return None
        mode = stat.S_IMODE(real.stat().st_mode)
        backup = _backup_path(path, before)
        _write(backup, before, mode)
        _write(real, after, mode)
    except OSError as error:
        raise FileRefused(f"it cannot be written: {error.strerror or error}") from error
    return backup


def _backup_path(path: Path, text: str) -> Path:
    """`<file>.bak`, or a numbered one when that is taken by something else: no backup is ever overwritten."""
    number = 1
    while True:
        backup = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak.{number}")
        if not backup.exists() or backup.read_bytes() == text.encode():
            return backup
        number += 1


def _write(path: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _make_directory(directory: Path, scope: str) -> None:
    if scope == "user":
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    else:
        directory.mkdir(parents=False, exist_ok=True)  # the project itself has to be there


def _umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present
