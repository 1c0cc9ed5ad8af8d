"""A directory of files over memories: paths, listings, and the memory changes that an edit of a file implies. Pure.

A memory created as a file is a whole file, and its metadata has the `path`. Other memories are lines of one file per
kind. The wording is that of `BetaLocalFilesystemMemoryTool` in Anthropic's Python SDK, which models know.
"""

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import Kind, kind_of_type
from remembrancer.protocol.reads import ListedMemory
from remembrancer.protocol.writes import Scope

ROOT: Final = "/memories"
PATH: Final = "path"
"""The metadata key that holds the name of a memory's file."""
_FOLDERS: Final[dict[str, Scope]] = {"repo": "project", "session": "session"}
_GROUPS: Final[dict[str, tuple[Kind, ...]]] = {
    "preferences.md": ("preference",),
    "decisions.md": ("decision",),
    "conventions.md": ("convention",),
    "procedures.md": ("procedure",),
    "architecture.md": ("architecture",),
    "fixes.md": ("error_fix",),
    "patterns.md": ("pattern",),
    "facts.md": ("fact", "entity"),
    "open_ends.md": ("open_end",),
}
"""The files for memories that were not created as files, with their kinds; a new line gets the first kind."""
_OTHERS: Final = "notes.md"
_NAMES: Final = {kind: name for name, kinds in _GROUPS.items() for kind in kinds}
_LEVELS: Final = 2
_NUMBER_WIDTH: Final = 6
_CONTEXT: Final = 2
"""The number of lines that a snippet shows before and after a change."""
_BULLET: Final = "- "
_INDENT: Final = "  "


class DirectoryPath(NamedTuple):
    """A path below `/memories`: the scope, and the name within it ("" is the scope's own directory)."""

    scope: Scope
    name: str

    @property
    def path(self) -> str:
        folder = next((f"/{folder}" for folder, scope in _FOLDERS.items() if scope == self.scope), "")
        return f"{ROOT}{folder}" + (f"/{self.name}" if self.name else "")


def place_of(path: str) -> DirectoryPath:
    """The place that a path names. Raises `InvalidInput` if it is not below `/memories`."""
    if not f"{path}/".startswith(f"{ROOT}/"):
        raise InvalidInput(f"Path must start with /memories, got: {path}", field=PATH)
    _, root, *parts = posixpath.normpath(path).split("/")
    if f"/{root}" != ROOT:
        raise InvalidInput(f"Path {path} would escape /memories directory", field=PATH)
    if parts and parts[0] in _FOLDERS:
        return DirectoryPath(_FOLDERS[parts[0]], "/".join(parts[1:]))
    return DirectoryPath("user", "/".join(parts))


@dataclass(frozen=True)
class File:
    """A file: one whole memory, or a group of memories with one list item each."""

    place: DirectoryPath
    memories: tuple[ListedMemory, ...]
    is_group: bool

    @property
    def text(self) -> str:
        if not self.is_group:
            return self.memories[0].content
        return "".join(f"{_item(memory.content)}\n" for memory in self.memories)


class TextChange(NamedTuple):
    """A memory change that an edit of a file implies: `memory` gets `text`. Without a memory, a new one is stored;
    without a text, the memory is forgotten."""

    memory: ListedMemory | None
    text: str | None


def kind_of_file(name: str) -> Kind:
    """The kind of the memories in a file of that name."""
    return _GROUPS.get(name, ("fact",))[0]


def files_of(memories: Iterable[ListedMemory]) -> dict[DirectoryPath, File]:
    """The files of the valid memories, by their places. A group whose name is taken by a file is called `more-…`."""
    files: dict[DirectoryPath, File] = {}
    groups: dict[DirectoryPath, list[ListedMemory]] = {}
    for memory in sorted(memories, key=lambda each: (each.created_at, each.id)):
        name = memory.metadata.get(PATH)
        if isinstance(name, str) and name and DirectoryPath(memory.scope, name) not in files:
            place = DirectoryPath(memory.scope, name)
            files[place] = File(place, (memory,), is_group=False)
        elif not (memory.superseded_by or memory.done or memory.status != "active" or memory.kind == "session_record"):
            group = _NAMES.get(memory.kind or kind_of_type(memory.type), _OTHERS)
            groups.setdefault(DirectoryPath(memory.scope, group), []).append(memory)
    for place, grouped in groups.items():
        free = place if place not in files else DirectoryPath(place.scope, f"more-{place.name}")
        files[free] = File(free, tuple(grouped), is_group=True)
    return files


def below(files: Mapping[DirectoryPath, File], place: DirectoryPath) -> list[File]:
    """The files in this directory and its subdirectories."""
    inside = f"{place.path}/"
    return [file for file in files.values() if file.place.path.startswith(inside)]


def is_directory(files: Mapping[DirectoryPath, File], place: DirectoryPath) -> bool:
    """True for a scope's own directory, which always exists, and for any directory that has files."""
    return not place.name or bool(below(files, place))


def check_free(files: Mapping[DirectoryPath, File], place: DirectoryPath, taken: str, field: str) -> None:
    """Raises `InvalidInput` if no file can be made at a place: `taken` if there is one already."""
    if place in files or is_directory(files, place):
        raise InvalidInput(taken, field=field)
    for file in files.values():
        if place.path.startswith(f"{file.place.path}/"):
            raise InvalidInput(f"The path {file.place.path} is not a directory.", field=field)


def file_at(files: Mapping[DirectoryPath, File], path: str) -> File:
    """The file at a path. Raises `NotFound` and `InvalidInput` with the SDK's messages."""
    place = place_of(path)
    if place in files:
        return files[place]
    if is_directory(files, place):
        raise InvalidInput(f"The path {path} is not a file.", field=PATH)
    raise NotFound(f"The path {path} does not exist. Please provide a valid path.", field=PATH)


def listing(files: Mapping[DirectoryPath, File], place: DirectoryPath, path: str) -> str:
    """A listing of a directory, two levels deep, without hidden items, with sizes."""
    sizes: dict[tuple[str, ...], int] = {}
    folders: dict[tuple[str, ...], int] = {(): 0}
    if place == DirectoryPath("user", ""):
        folders |= {(folder,): 0 for folder in _FOLDERS}
    for file in below(files, place):
        parts = tuple(file.place.path.removeprefix(f"{place.path}/").split("/"))
        size = len(file.text.encode())
        for depth in range(len(parts)):
            folders[parts[:depth]] = folders.get(parts[:depth], 0) + size
        sizes[parts] = size
    entries = sorted([*sizes.items(), *folders.items()])
    rows = [
        f"{_size(size)}\t{path}" + "".join(f"/{part}" for part in parts) + ("/" if parts and parts in folders else "")
        for parts, size in entries
        if len(parts) <= _LEVELS and not any(part.startswith(".") for part in parts)
    ]
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join((header, *rows))


def numbered(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """The numbered lines of a file, or of a range of it (1-based; an end of -1 means the last line)."""
    lines = text.split("\n")
    first, last = view_range if view_range and len(view_range) == 2 else (1, -1)
    start = max(1, first) - 1
    selected = lines[start : len(lines) if last == -1 else last]
    return f"Here's the content of {path} with line numbers:\n" + _with_numbers(selected, start)


def replaced(path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """The text with the single occurrence of `old` replaced, and the command's answer."""
    count = text.count(old)
    if count != 1:
        none = f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
        at = [text[:place].count("\n") + 1 for place in range(len(text) + 1) if text.startswith(old, place)]
        many = f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
        raise InvalidInput(
            f"{many}{', '.join(map(str, at))}. Please ensure it is unique" if count else none, field="old_str"
        )
    changed = text.replace(old, new)
    at_line = text[: text.find(old)].count("\n")
    start = max(0, at_line - _CONTEXT)
    snippet = _with_numbers(changed.split("\n")[start : at_line + _CONTEXT + 1], start)
    head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return changed, f"{head}\n{snippet}"


def inserted(text: str, line: int, new: str) -> str:
    """The text with `new` inserted after line `line`. Raises `InvalidInput` if there are fewer lines."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not 0 <= line <= len(lines):
        message = f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}]."
        raise InvalidInput(message, field="insert_line")
    after = "\n".join([*lines[:line], new.rstrip("\n"), *lines[line:]])
    return after if after.endswith("\n") else f"{after}\n"


def changes(file: File, after: str) -> Iterator[TextChange]:
    """The memory changes that turn the content of a file into `after`. Raises `InvalidInput` if a file that is one
    memory would become empty."""
    if not file.is_group:
        if not after.strip():
            raise InvalidInput(f"{file.place.path} would be empty: delete it instead", field="new_str")
        yield TextChange(file.memories[0], after)
        return
    before, wanted = [_normal(memory.content) for memory in file.memories], _items(after)
    for kind, start, end, to_start, to_end in SequenceMatcher(None, before, wanted, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = itertools.zip_longest(file.memories[start:end], wanted[to_start:to_end])
            yield from itertools.starmap(TextChange, pairs)


def _item(content: str) -> str:
    first, *others = _normal(content).split("\n")
    return "\n".join([f"{_BULLET}{first}", *(f"{_INDENT}{line}" if line else "" for line in others)])


def _normal(content: str) -> str:
    return "\n".join(line.rstrip() for line in content.strip().split("\n"))


def _items(text: str) -> list[str]:
    """The items of a group's text. A line that is neither indented nor blank starts an item, with or without a
    bullet."""
    items: list[list[str]] = []
    for line in text.split("\n"):
        if items and (line.startswith(_INDENT) or not line.strip()):
            items[-1].append(line.removeprefix(_INDENT))
        elif line.strip():
            items.append([line.removeprefix(_BULLET)])
    return [text for lines in items if (text := _normal("\n".join(lines)))]


def _with_numbers(lines: Iterable[str], start: int) -> str:
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines, start + 1))


def _size(size: int) -> str:
    if size == 0:
        return "0B"
    power = min((size.bit_length() - 1) // 10, 3)
    value = size / 1024**power
    return f"{int(value)}{'BKMG'[power]}" if value == int(value) else f"{value:.1f}{'BKMG'[power]}"
