"""Finds the files that belong to a workspace: its notes and the transcripts of its sessions.

All code that reads, indexes or writes a note must find it with `find_note`, and open it with `open_directory` or
`open_note`, since a cloned repository may contain links to anything.
"""

import contextlib
import errno
import glob
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from remembrancer.config.project import project_of
from remembrancer.config.settings import Settings
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.memory.text import quote
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.system import real_path

ENDINGS: Final = (".md", ".markdown")
VSCODE: Final = "vscode"
_VSCODE_DATA: Final = ("~/.config/Code/User", "~/Library/Application Support/Code/User", "~/.vscode-server/data/User")
_VSCODE_MEMORIES: Final = "memory-tool/memories"
NATIVE: Final = {
    "codex": ("~/.codex/memories",),
    VSCODE: tuple(f"{data}/globalStorage/github.copilot-chat/{_VSCODE_MEMORIES}" for data in _VSCODE_DATA),
    "windsurf": ("~/.codeium/windsurf/memories",),
    "gemini-cli": ("~/.gemini/GEMINI.md",),
}
CLAUDE_CODE: Final = "claude-code"
MAX_TRANSCRIPT_BYTES: Final = 32 * 1024 * 1024
"""A transcript of this size has about 200 chunks."""
NOT_ORDINARY: Final = "not an ordinary file"
MOST_SKIPPED: Final = 100
"""The maximum number of skipped files to list."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """`shown` is the path shown to people, relative to the workspace if the file is inside it."""

    shown: str
    path: Path
    source: FileSource
    mtime_ns: int
    size: int


def note_paths(root: Path, settings: Settings) -> list[Path]:
    places = (Path(path).expanduser() for path in places_of(settings, root))
    return [Path(os.path.realpath(place)) if place.is_absolute() else root / place for place in places]


class RealNote(NamedTuple):
    """A note's directory, and the `parts` of its path below that directory. None of these is a link."""

    directory: Path
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.parts[-1]


def real_note(path: str, root: str, places: Sequence[str]) -> RealNote:
    """Like `find_note`, but raises `InvalidInput` with the reason."""
    found = find_note(path, root, places)
    if isinstance(found, str):
        raise InvalidInput(f"{quote(path)} is {found}; give the path of a note", field="path")
    return found


def find_note(path: str | Path, root: str | Path, places: Sequence[str]) -> RealNote | str:
    """The note at a path in a workspace, with links resolved, or the reason why the file is not a note in one of the
    `places`. Links in a place itself are followed only if the place is an absolute path, which only the user's own
    settings may contain."""
    real_root = os.path.realpath(root)
    real = Path(os.path.realpath(Path(root, path)))
    for named in places:
        place = Path(named).expanduser()
        base = Path(os.path.realpath(place) if place.is_absolute() else os.path.normpath(Path(real_root, place)))
        is_file = base.suffix.lower() in ENDINGS
        inside = real.relative_to(base).parts if real.is_relative_to(base) else None
        if inside is None or bool(inside) is is_file or any(part.startswith(".") for part in inside):
            continue
        if real.suffix.lower() in ENDINGS:
            directory = Path(real_root) if base.is_relative_to(real_root) else base.parent if is_file else base
            return RealNote(directory, real.relative_to(directory).parts)
    if real.suffix.lower() not in ENDINGS and Path(path).suffix.lower() not in ENDINGS:
        return "not a Markdown file"
    return f"a link {'to a file that is not a note' if real.is_relative_to(real_root) else 'out of the workspace'}"


def open_directory(note: RealNote, *, make: bool = False) -> int:
    """Open a note's directory without following links. Raises `OSError`, for example if a directory is now a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(note.directory, flags)
    for part in note.parts[:-1]:
        above = descriptor
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
                    os.fsync(above)
            descriptor = os.open(part, flags, dir_fd=above)
        finally:
            os.close(above)
    return descriptor


def open_note(note: RealNote) -> int:
    """Open a note for reading. Raises `OSError`, for example if it has been replaced with a link."""
    directory = open_directory(note)
    try:
        return open_ordinary(note.name, directory)
    finally:
        os.close(directory)


def open_ordinary(name: str, directory: int) -> int:
    """Open a regular file for reading. Raises `OSError` for anything else, such as a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # does not wait for a pipe
    descriptor = os.open(name, flags, dir_fd=directory)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, NOT_ORDINARY)


def places_of(settings: Settings, root: Path) -> tuple[str, ...]:
    own = (*settings.notes_paths, *settings.notes_extra_paths) if settings.notes else ()
    return (*own, *native_places(root)) if settings.native_memories else own


def native_places(root: Path, client: str | None = None) -> list[str]:
    """Claude Code keeps a project's memories under the path of its repository, which all worktrees share."""
    if client in NATIVE:
        return list(NATIVE[client])
    shared = Path(project_of(root).path)
    trees = {root, shared.parent if shared.name == ".git" else shared}
    claude = sorted(f"~/.claude/projects/{_folder_name(tree)}/memory" for tree in trees)
    claude += map(str, _own_directory())
    if client:
        return claude
    vscode = [str(place) for place in _vscode_projects() if _folder_of(place) in trees]
    return [*claude, *vscode, *itertools.chain.from_iterable(NATIVE.values())]


def native_files() -> dict[str, int]:
    """The number of memory files that each client keeps itself, for all projects."""
    places = {client: [Path(path).expanduser() for path in paths] for client, paths in NATIVE.items()}
    places[CLAUDE_CODE] = [*Path("~/.claude/projects").expanduser().glob("*/memory"), *_own_directory()]
    places[VSCODE] += _vscode_projects()
    counts = {client: sum(1 for place in own for _ in markdown_below(place)) for client, own in places.items()}
    return {client: number for client, number in sorted(counts.items()) if number}


def _own_directory() -> list[Path]:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        named = json.loads(Path("~/.claude/settings.json").expanduser().read_bytes())["autoMemoryDirectory"]
        return [Path(named).expanduser()] if isinstance(named, str) else []
    return []


def _vscode_projects() -> list[Path]:
    """VS Code keeps memories of single conversations next to these folders. Those are not read."""
    folder = f"workspaceStorage/*/GitHub.copilot-chat/{_VSCODE_MEMORIES}/repo"
    return sorted(place for data in _VSCODE_DATA for place in Path(data).expanduser().glob(folder))


def _folder_of(place: Path) -> Path | None:
    """The directory that VS Code had open for this memory folder; None if it had several open."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        address = urlsplit(json.loads((place.parents[3] / "workspace.json").read_bytes())["folder"])
        return Path(unquote(address.path)) if address.scheme == "file" else None
    return None


def has_files(root: Path, settings: Settings) -> bool:
    """Checks only a few paths."""
    return any(path.exists() for path in note_paths(root, settings)) or any(transcript_paths(root, settings))


def transcript_paths(root: Path, settings: Settings) -> Iterator[Path]:
    """Transcripts that may belong to a workspace: `is_of_workspace` decides by content."""
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
    return re.sub(r"[^A-Za-z0-9]", "-", str(root))


def is_of_workspace(directory: str, transcript: Path, root: Path) -> bool:
    """Decides by the `directory` that a transcript names, or else by the transcript's own folder."""
    if directory:
        return Path(real_path(directory)).is_relative_to(real_path(root))
    return _folder_name(root) in transcript.parts


def scan(root: Path, settings: Settings) -> tuple[list[FoundFile], dict[str, str]]:
    """The files of a workspace, each only once even if it has several names, and the reasons for skipped files."""
    found: dict[tuple[int, int], FoundFile] = {}
    skipped: dict[str, str] = {}
    places = places_of(settings, root)
    notes = (path for start in note_paths(root, settings) for path in markdown_below(start))
    sources: list[tuple[FileSource, Iterator[Path], int]] = [
        ("notes", notes, MAX_FILE_BYTES),
        ("sessions", transcript_paths(root, settings), MAX_TRANSCRIPT_BYTES),
    ]
    for source, path, most in ((source, path, most) for source, paths, most in sources for path in paths):
        named = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
        reason = None
        try:
            named.encode()
            if path.is_symlink() and not path.exists():
                reason = "a broken link"
            elif source == "notes" and isinstance(note := find_note(path, root, places), str):
                reason = note
            about = path.stat()
            if reason is None and not stat.S_ISREG(about.st_mode):
                reason = NOT_ORDINARY
            elif about.st_size > most:
                reason = f"larger than {most // 1024 // 1024} MB"
        except FileNotFoundError:
            if reason is None:
                continue
        except UnicodeEncodeError:
            named, reason = named.encode(errors="replace").decode(), "its name is not UTF-8"
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
        if reason is not None:
            skipped[named] = reason
        else:
            key = (about.st_dev, about.st_ino)
            found.setdefault(key, FoundFile(named, path, source, about.st_mtime_ns, about.st_size))
    return sorted(found.values(), key=lambda file: file.shown), dict(itertools.islice(skipped.items(), MOST_SKIPPED))


def markdown_below(start: Path) -> Iterator[Path]:
    """The file itself, or the files below a directory, without following links to directories."""
    if start.is_symlink() or not start.is_dir():
        if start.exists() or start.is_symlink():
            yield start
        return
    for directory, below, names in os.walk(start):
        below[:] = sorted(name for name in below if not name.startswith("."))
        notes = (name for name in sorted(names) if name.lower().endswith(ENDINGS) and not name.startswith("."))
        yield from (Path(directory, name) for name in notes)
