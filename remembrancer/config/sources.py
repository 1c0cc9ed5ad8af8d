"""Which files of a workspace are read, by the settings: the notes of a project. Looks at the disk, writes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remembrancer.config.settings import Settings
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.protocol.files import SkippedFile
from remembrancer.protocol.kinds import FileSource

ENDINGS: Final = (".md", ".markdown")
MOST_SKIPPED: Final = 100
"""Files that are named as passed over; there may be more."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is to be read. `shown` is its path as it is shown: relative to its workspace if it is in there."""

    shown: str
    path: Path
    source: FileSource
    mtime_ns: int
    size: int


def note_paths(root: Path, settings: Settings) -> list[Path]:
    """The files and directories that a workspace's notes are in, whether they are there or not."""
    if not settings.notes:
        return []
    return [root / Path(path).expanduser() for path in (*settings.notes_paths, *settings.notes_extra_paths)]


def workspace_root(directory: str, settings: Settings) -> str:
    """Where the notes of a session in a working tree are."""
    return directory if settings.workspace is None else str(Path(settings.workspace).expanduser())


def has_files(root: Path, settings: Settings) -> bool:
    """Whether a workspace has anything that could be read: a few questions to the disk."""
    return any(path.exists() for path in note_paths(root, settings))


def scan(root: Path, settings: Settings) -> tuple[list[FoundFile], list[SkippedFile]]:
    """The files of a workspace in the order of their paths, and what was passed over, with the reason.

    A file that is there under two names (a disk that knows no capitals, a link) is read once.
    """
    found: dict[tuple[int, int], FoundFile] = {}
    skipped: list[SkippedFile] = []
    real_root = Path(os.path.realpath(root))
    for start in note_paths(root, settings):
        for path in _files_below(start):
            shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
            reason = None
            try:
                shown.encode()
                about = path.stat()
                outside = path.is_relative_to(root) and not Path(os.path.realpath(path)).is_relative_to(real_root)
                if outside:
                    reason = "a link out of the workspace"
                elif not stat.S_ISREG(about.st_mode):
                    reason = "no ordinary file"
                elif about.st_size > MAX_FILE_BYTES:
                    reason = f"larger than {MAX_FILE_BYTES // 1024 // 1024} MB"
            except FileNotFoundError:
                if path.is_symlink():
                    skipped.append(SkippedFile(shown, "a link to nothing"))
                continue
            except UnicodeEncodeError:
                shown, reason = shown.encode(errors="replace").decode(), "its name is not UTF-8"
            except OSError as error:
                reason = f"it cannot be read: {error.strerror}"
            if reason is not None:
                skipped.append(SkippedFile(shown, reason))
            else:
                key = (about.st_dev, about.st_ino)
                found.setdefault(key, FoundFile(shown, path, "notes", about.st_mtime_ns, about.st_size))
    return sorted(found.values(), key=lambda file: file.shown), skipped[:MOST_SKIPPED]


def _files_below(start: Path) -> Iterator[Path]:
    """The file itself, or the Markdown below a directory. Links to directories are not followed."""
    if start.is_symlink() or not start.is_dir():
        if start.exists() or start.is_symlink():
            yield start
        return
    for directory, below, names in os.walk(start):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (Path(directory, name) for name in sorted(names) if name.lower().endswith(ENDINGS))
