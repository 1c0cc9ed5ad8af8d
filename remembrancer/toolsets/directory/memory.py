"""The tool `memory`: a directory of files, as models know it from Anthropic's API (`memory_20250818`).

A memory created as a file is a whole file, and its metadata has the `path`. Other memories are lines of one file per
kind. The wording is that of `BetaLocalFilesystemMemoryTool` in Anthropic's Python SDK.
"""

import itertools
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from remembrancer.memory.changes import BREADTH
from remembrancer.memory.limits import MAX_ANSWER_BYTES, MAX_PATH
from remembrancer.memory.text import check_text, clean_name, count
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import Kind, kind_of_type, type_of_kind
from remembrancer.protocol.reads import ListedMemory, ListMemories
from remembrancer.protocol.writes import (
    Change,
    ForgetMemory,
    PromoteMemory,
    Scope,
    StoredResult,
    StoreMemory,
    UpdateMemory,
)
from remembrancer.toolsets.memory.store_memory import DEFAULT_CONFIDENCE
from remembrancer.toolsets.tools import Answer, Call, tool

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
PAGE: Final = 1000
T = TypeVar("T")


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


TextChange = tuple[ListedMemory | None, str | None]
"""A memory gets this text. Without a memory, a new one is stored; without a text, the memory is forgotten."""


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
    lines = text.removesuffix("\n").split("\n")
    if not 0 <= line <= len(lines):
        message = f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}]."
        raise InvalidInput(message, field="insert_line")
    after = "\n".join([*lines[:line], new.rstrip("\n"), *lines[line:]])
    return after if after.endswith("\n") else f"{after}\n"


def changes(file: File, after: str) -> list[TextChange]:
    """The memory changes that turn the content of a file into `after`."""
    if not file.is_group:
        return [(file.memories[0], after)]
    before, wanted = [_normal(memory.content) for memory in file.memories], _items(after)
    made: list[TextChange] = []
    for kind, start, end, to_start, to_end in SequenceMatcher(None, before, wanted, autojunk=False).get_opcodes():
        if kind != "equal":
            made += itertools.zip_longest(file.memories[start:end], wanted[to_start:to_end])
    return made


def _item(content: str) -> str:
    first, *others = _normal(content).split("\n")
    return "\n".join([f"{_BULLET}{first}", *(f"{_INDENT}{line}" if line else "" for line in others)])


def _normal(content: str) -> str:
    return "\n".join(line.rstrip() for line in content.strip().split("\n"))


def _items(text: str) -> list[str]:
    """The items of a group's text: a line that is neither indented nor blank starts one, with or without a bullet."""
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
    power = min((max(1, size).bit_length() - 1) // 10, 3)
    value = size / 1024**power
    return f"{int(value)}{'BKMG'[power]}" if value == int(value) else f"{value:.1f}{'BKMG'[power]}"


class MemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: Annotated[str, Meta(description="/memories: user; /memories/repo: project; /memories/session")] | None = None
    file_text: str | None = None
    old_str: Annotated[str, Meta(description="Must occur once")] | None = None
    new_str: str | None = None
    insert_line: Annotated[int, Meta(description="Insert after this line")] | None = None
    insert_text: str | None = None
    view_range: list[int] | None = None
    old_path: str | None = None
    new_path: str | None = None


class _Directory:
    """The commands over the files that a call sees: a method each, of the command's name."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._parts = 0

    async def _read(self, *scopes: Scope) -> dict[DirectoryPath, File]:
        caller = self._call.caller
        memories: list[ListedMemory] = []
        while True:
            request = ListMemories(
                project=caller.project,
                session_id=caller.session_id,
                scopes=scopes,
                limit=PAGE,
                offset=len(memories),
                valid_at=self._call.received_at,
            )
            service = self._call.service
            reply = await service.require(request, service.settings.call_budget_s)
            memories += reply.memories
            if not reply.more and len(reply.memories) < PAGE:
                return files_of(memories)

    async def _file(self, path: str) -> File:
        return file_at(await self._read(place_of(path).scope), path)

    async def _submit(self, change: Change) -> object:
        """Make one change. The changes of a call are numbered, so that each gets its own id."""
        self._parts += 1
        return await self._call.submit(change, part=f"change {self._parts - 1}")

    async def _store(self, place: DirectoryPath, text: str, *, is_file: bool) -> None:
        kind = _GROUPS.get(place.name, ("fact",))[0]
        check_text(text, field="file_text", longest_bytes=self._call.service.settings.content_limit_bytes)
        name = clean_name(place.name, field=PATH, longest=MAX_PATH)
        change = StoreMemory(
            # The ids of one call sort in the order of its parts, so its lines keep their order.
            memory_id=derive_memory_id(f"{self._call.operation_id} {self._parts}", at=self._parts / 1000),
            content=text,
            type=type_of_kind(kind),
            kind=kind,
            scope=place.scope,
            session_id=self._call.caller.session_id,
            confidence=DEFAULT_CONFIDENCE,
            metadata={PATH: name} if is_file else {},
            pinned=is_file,
        )
        result = await self._submit(change)
        if is_file and isinstance(result, StoredResult) and result.already_known:
            # A line of a kind's file has the text, and becomes this file.
            await self._submit(UpdateMemory(result.memory_id, metadata={PATH: name}))

    async def _apply(self, file: File, wanted: Iterable[TextChange]) -> None:
        for memory, text in wanted:
            if text is None:
                assert memory is not None
                await self._submit(ForgetMemory(memory.id, reason=f"deleted from {file.place.path}"))
            elif memory is None:
                await self._store(file.place, text, is_file=False)
            else:
                check_text(text, field="new_str", longest_bytes=self._call.service.settings.content_limit_bytes)
                await self._submit(UpdateMemory(memory.id, content=text))

    async def view(self, arguments: MemoryArguments) -> str:
        path = _required(arguments.path, PATH).rstrip("/")
        place = place_of(path)
        scopes: tuple[Scope, ...] = (place.scope,) if path != ROOT else ()
        files = await self._read(*scopes)
        if place not in files and is_directory(files, place):
            return listing(files, place, path)
        text = numbered(path, file_at(files, path).text, arguments.view_range)
        if len(text.encode()) > MAX_ANSWER_BYTES:
            raise InvalidInput(f"{path} is too long to be shown at once: give a view_range", field="view_range")
        return text

    async def create(self, arguments: MemoryArguments) -> str:
        path = _required(arguments.path, PATH)
        text, place = _required(arguments.file_text, "file_text"), place_of(path)
        files = await self._read(place.scope)
        check_free(files, place, f"File {path} already exists", PATH)
        for file in files.values():
            if file.text == text and not file.is_group:  # the same text is one memory, which has one name
                raise InvalidInput(f"File {file.place.path} has the same text", field="file_text")
        await self._store(place, text, is_file=True)
        return f"File created successfully at: {path}"

    async def str_replace(self, arguments: MemoryArguments) -> str:
        path = _required(arguments.path, PATH)
        file = await self._file(path)
        old = _required(arguments.old_str, "old_str")
        after, text = replaced(path, file.text, old, arguments.new_str or "")
        await self._apply(file, changes(file, after))
        return text

    async def insert(self, arguments: MemoryArguments) -> str:
        path = _required(arguments.path, PATH)
        file = await self._file(path)
        new = arguments.insert_text if arguments.insert_text is not None else arguments.new_str
        line = _required(arguments.insert_line, "insert_line")
        after = inserted(file.text, line, _required(new, "insert_text"))
        await self._apply(file, changes(file, after))
        return f"The file {path} has been edited."

    async def delete(self, arguments: MemoryArguments) -> str:
        path = _required(arguments.path, PATH)
        place = place_of(path)
        if not place.name:
            raise InvalidInput(f"Cannot delete the {place.path} directory itself", field=PATH)
        files = await self._read(place.scope)
        doomed = [files[place]] if place in files else below(files, place)
        if not doomed:
            raise NotFound(f"The path {path} does not exist", field=PATH)
        for file in doomed:
            _check_own(file, "deleted: replace single lines by nothing")
            await self._apply(file, [(file.memories[0], None)])
        return f"Successfully deleted {path}"

    async def rename(self, arguments: MemoryArguments) -> str:
        old_path = _required(arguments.old_path or arguments.path, "old_path")
        new_path = _required(arguments.new_path, "new_path")
        old, new = place_of(old_path), place_of(new_path)
        if not old.name:
            raise InvalidInput(f"Cannot rename the {old.path} directory itself", field="old_path")
        files = await self._read(old.scope, new.scope)
        check_free(files, new, f"The destination {new_path} already exists", "new_path")
        moved = [files[old]] if old in files else below(files, old)
        if not moved:
            raise NotFound(f"The path {old_path} does not exist", field="old_path")
        if BREADTH[new.scope] < BREADTH[old.scope]:
            message = f"{old_path} cannot be moved to a narrower scope: create {new_path}, then delete {old_path}"
            raise InvalidInput(message, field="new_path")
        for file in moved:
            _check_own(file, "renamed: its lines belong to a kind of memory")
        for file in moved:
            name = new.name + file.place.name.removeprefix(old.name)
            memory_id = file.memories[0].id
            await self._submit(UpdateMemory(memory_id, metadata={PATH: clean_name(name, field=PATH, longest=MAX_PATH)}))
            if new.scope != old.scope and new.scope != "session":
                await self._submit(PromoteMemory(memory_id, new.scope, reason=f"renamed to {new_path}"))
        return f"Successfully renamed {old_path} to {new_path}"


def _required(value: T | None, field: str) -> T:
    if value is None:
        raise InvalidInput(f"{field} is required for this command", field=field)
    return value


def _check_own(file: File, advice: str) -> None:
    if file.is_group:
        memories = count(len(file.memories), "memory")
        raise InvalidInput(f"{file.place.path} shows {memories} and cannot be {advice}", field=PATH)


@tool(
    "Files that outlast this conversation: view, create, str_replace, insert, delete, rename below /memories.",
    destructive=True,
    marks_data=False,
    answers_text=True,
)
async def memory(call: Call, arguments: MemoryArguments) -> Answer:
    """Run one command; the answer's `text` is what the SDK's own tool would return."""
    text: str = await getattr(_Directory(call), arguments.command)(arguments)
    return {"text": text}
