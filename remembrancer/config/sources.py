"""Which files are read for a workspace, by the settings: its notes, and the transcripts of sessions in it."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from remembrancer.config.settings import Settings
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.memory.transcripts import PROJECT_HASH, START, Position, Turn, read_turns
from remembrancer.protocol.files import SkippedFile
from remembrancer.protocol.kinds import FileSource

ENDINGS: Final = (".md", ".markdown")
MAX_TRANSCRIPT_BYTES: Final = 512 * 1024 * 1024
PIECE_BYTES: Final = 256 * 1024
"""So much of a transcript is read at once: some 200 chunks."""
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
    return any(path.exists() for path in note_paths(root, settings)) or any(transcript_paths(root, settings))


def transcript_paths(root: Path, settings: Settings) -> Iterator[Path]:
    """The transcripts that may be of sessions in a workspace. Which are, `is_of_workspace` says of what is in them."""
    if not settings.transcripts:
        return
    name = _folder_name(root)
    for found in glob.iglob(str(Path(settings.transcripts_path).expanduser()), recursive=True):  # noqa: PTH207 - absolute
        path = Path(found)
        folders = [part for part in path.parts if part.startswith("-")]
        if folders and not any(folder == name or folder.startswith(f"{name}-") for folder in folders):
            continue
        if path.is_dir():
            yield from sorted(path.glob("*.jsonl"))
        elif path.suffix == ".jsonl":
            yield path


def _folder_name(root: Path) -> str:
    """The folder in which Claude Code keeps the transcripts of sessions in a directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(root))


def is_of_workspace(directory: str, transcript: Path, root: Path) -> bool:
    """Whether the session of a transcript worked in a workspace, by the directory that it says, or else its folder."""
    if directory.startswith(PROJECT_HASH):
        roots = {str(root), os.path.realpath(root)}
        return directory.removeprefix(PROJECT_HASH) in {hashlib.sha256(each.encode()).hexdigest() for each in roots}
    if directory:
        return Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(root))
    return _folder_name(root) in transcript.parts


def turns_after(transcript: BinaryIO, position: Position, seen: set[str]) -> tuple[list[Turn], Position, bool] | None:
    """What the next piece of a transcript says, as `read_turns`, and whether there is more. What it says has been
    `seen` from then on."""
    size = PIECE_BYTES
    while True:
        transcript.seek(position.start)
        data = transcript.read(size)
        read = read_turns(data, position, seen)
        if read is None:
            return None
        turns, after = read
        if len(data) < size or after.offset > position.offset:
            seen.update(turn.uuid for turn in turns)
            return turns, after, len(data) == size
        size *= 2  # a line longer than a piece


def all_turns(transcript: BinaryIO) -> tuple[list[Turn], Position]:
    """All that a transcript says, and where it ends."""
    turns: list[Turn] = []
    position, seen, more = START, set[str](), True
    while more and (read := turns_after(transcript, position, seen)) is not None:
        new, position, more = read
        turns += new
    return turns, position


def scan(root: Path, settings: Settings) -> tuple[list[FoundFile], list[SkippedFile]]:
    """The files of a workspace in the order of their paths, and what was passed over, with the reason.

    A file that is there under two names (a disk that knows no capitals, a link) is read once.
    """
    found: dict[tuple[int, int], FoundFile] = {}
    skipped: list[SkippedFile] = []
    real_root = Path(os.path.realpath(root))
    notes = (path for start in note_paths(root, settings) for path in _files_below(start))
    sources: list[tuple[FileSource, Iterator[Path], int]] = [
        ("notes", notes, MAX_FILE_BYTES),
        ("sessions", transcript_paths(root, settings), MAX_TRANSCRIPT_BYTES),
    ]
    for source, path, most in ((source, path, most) for source, paths, most in sources for path in paths):
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
            elif about.st_size > most:
                reason = f"larger than {most // 1024 // 1024} MB"
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
            found.setdefault(key, FoundFile(shown, path, source, about.st_mtime_ns, about.st_size))
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
