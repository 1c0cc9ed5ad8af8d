"""The `memory` tool: a directory of files as in Anthropic's API (`memory_20250818`), with the messages of the Python
SDK's `BetaLocalFilesystemMemoryTool`. A memory created as a file is shown as that file (`path` in its metadata); other
memories are lines in one file per kind."""

import inspect
import posixpath
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from remembrancer.memory.changes import BREADTH
from remembrancer.memory.limits import MAX_ANSWER_BYTES, MAX_PATH
from remembrancer.memory.text import check_text, clean_name, count
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import Kind, kind_of_type, type_of_kind
from remembrancer.protocol.reads import ListedMemory, ListMemories
from remembrancer.protocol.writes import Change, ForgetMemory, PromoteMemory, Scope, StoreMemory, UpdateMemory
from remembrancer.toolsets.memory.store_memory import DEFAULT_CONFIDENCE
from remembrancer.toolsets.tools import Answer, Call, tool

ROOT: Final = "/memories"
PATH: Final = "path"
"""The metadata key for the name of a memory's file."""
_DIRECTORIES: Final[dict[Scope, str]] = {"project": f"{ROOT}/repo", "session": f"{ROOT}/session", "user": ROOT}
"""The last directory contains the others."""
_GROUPS: Final[dict[Kind, str]] = {
    "preference": "preferences.md",
    "decision": "decisions.md",
    "convention": "conventions.md",
    "procedure": "procedures.md",
    "architecture": "architecture.md",
    "error_fix": "fixes.md",
    "pattern": "patterns.md",
    "fact": "facts.md",
    "entity": "facts.md",
    "open_end": "open_ends.md",
}
"""The files for all other memories. A new line gets the first kind of its file."""
_OTHERS: Final = "notes.md"
_SECOND: Final = "more-"
"""The prefix of a group's name if a file already has the plain name."""
_LEVELS: Final = 2
_NUMBER_WIDTH: Final = 6
_CONTEXT: Final = 2
"""The number of lines shown in a snippet before and after a change."""
_BULLET: Final = "- "
_INDENT: Final = "  "
PAGE: Final = 1000


@dataclass(frozen=True)
class File:
    """A single memory, or a group with one list item per memory."""

    path: str
    memories: Sequence[ListedMemory]
    is_group: bool = False

    @property
    def text(self) -> str:
        if not self.is_group:
            return self.memories[0].content
        return "".join(f"{_item(memory.content)}\n" for memory in self.memories)


def normal_path(path: str) -> str:
    """Raises `InvalidInput` if a path is not below `/memories`."""
    if not f"{path}/".startswith(f"{ROOT}/"):
        raise InvalidInput(f"Path must start with /memories, got: {path}", field=PATH)
    normal = posixpath.normpath(path)
    if not f"{normal}/".startswith(f"{ROOT}/"):
        raise InvalidInput(f"Path {path} would escape /memories directory", field=PATH)
    return normal


def scope_and_name(path: str) -> tuple[Scope, str]:
    """The name is relative to the scope's directory, and empty for the directory itself."""
    return next(
        (scope, path[len(directory) + 1 :])
        for scope, directory in _DIRECTORIES.items()
        if f"{path}/".startswith(f"{directory}/")
    )


def files_of(memories: Iterable[ListedMemory]) -> dict[str, File]:
    """The files of the valid memories, by path. A group whose name is taken by a file is called `more-…`."""
    files: dict[str, File] = {}
    groups: dict[tuple[str, str], list[ListedMemory]] = {}
    for memory in sorted(memories, key=lambda each: (each.created_at, each.id)):
        directory, name = _DIRECTORIES[memory.scope], memory.metadata.get(PATH)
        path = f"{directory}/{name}"
        if isinstance(name, str) and name and path not in files:
            files[path] = File(path, [memory])
        elif not (memory.superseded_by or memory.done or memory.status != "active" or memory.kind == "session_record"):
            group = _GROUPS.get(memory.kind or kind_of_type(memory.type), _OTHERS)
            groups.setdefault((directory, group), []).append(memory)
    for (directory, name), grouped in groups.items():
        path = f"{directory}/{name}" if f"{directory}/{name}" not in files else f"{directory}/{_SECOND}{name}"
        files[path] = File(path, grouped, is_group=True)
    return files


def listing(files: Iterable[File], directory: str, path: str) -> str:
    """List a directory's files with sizes, two levels deep, without hidden ones."""
    sizes = Counter[tuple[str, ...]]()
    folders: set[tuple[str, ...]] = {(), *([("repo",), ("session",)] if directory == ROOT else ())}
    for file in files:
        parts = tuple(file.path.removeprefix(f"{directory}/").split("/"))
        above = [parts[:depth] for depth in range(len(parts))]
        folders.update(above)
        for each in (*above, parts):
            sizes[each] += len(file.text.encode())
    rows = [
        f"{_size(sizes[parts])}\t{'/'.join((path, *parts))}{'/' if parts and parts in folders else ''}"
        for parts in sorted(folders.union(sizes))
        if len(parts) <= _LEVELS and not any(part.startswith(".") for part in parts)
    ]
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join((header, *rows))


def _item(content: str) -> str:
    first, *others = _normal(content).split("\n")
    return "\n".join([f"{_BULLET}{first}", *(f"{_INDENT}{line}" if line else "" for line in others)])


def _normal(content: str) -> str:
    return "\n".join(line.rstrip() for line in content.strip().split("\n"))


def _items(text: str) -> list[str]:
    """Each line that is neither indented nor blank starts an item, bulleted or not."""
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


_ALIASES: Final = {"old_path": "path", "insert_text": "new_str"}


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
    """Each command is a method of the same name, which returns the answer's text and appends to `changes`."""

    def __init__(self, call: Call, files: dict[str, File]) -> None:
        self._call = call
        self._files = files
        self._longest_bytes = call.service.settings.content_limit_bytes
        self.changes: list[Change] = []

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        path = path.rstrip("/")
        directory = normal_path(path)
        if directory not in self._files and self._is_directory(directory):
            return listing(self._below(directory), directory, path)
        lines = self._file(path).text.split("\n")
        first, last = view_range if view_range and len(view_range) == 2 else (1, -1)
        start = max(1, first) - 1
        shown = _with_numbers(lines[start : len(lines) if last == -1 else last], start)
        text = f"Here's the content of {path} with line numbers:\n{shown}"
        if len(text.encode()) > MAX_ANSWER_BYTES:
            raise InvalidInput(f"{path} is too long to be shown at once; give a view_range", field="view_range")
        return text

    def create(self, path: str, file_text: str) -> str:
        self._check_free(path, f"File {path} already exists", PATH)
        for file in self._files.values():
            if file.text == file_text and not file.is_group:  # equal texts are one memory, which has only one name
                raise InvalidInput(f"File {file.path} has the same text", field="file_text")
        self._store(normal_path(path), file_text, is_file=True)
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        file = self._file(path)
        text = file.text
        breaks = [found.start() for found in re.finditer("\n", text)]
        places = [found.start() for found in re.finditer(f"(?={re.escape(old_str)})", text)]
        at = [bisect_left(breaks, place) for place in places]
        if text.count(old_str) != 1:
            none = f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
            many = f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
            many += f"{', '.join(str(line + 1) for line in at)}. Please ensure it is unique"
            raise InvalidInput(many if places else none, field="old_str")
        after = text.replace(old_str, new_str)
        self._edit(file, after)
        start = max(0, at[0] - _CONTEXT)
        snippet = _with_numbers(after.split("\n")[start : at[0] + _CONTEXT + 1], start)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{head}\n{snippet}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        file = self._file(path)
        lines = file.text.removesuffix("\n").split("\n")
        if not 0 <= insert_line <= len(lines):
            allowed = f"It should be within the range [0, {len(lines)}]."
            raise InvalidInput(f"Invalid `insert_line` parameter: {insert_line}. {allowed}", field="insert_line")
        after = "\n".join([*lines[:insert_line], insert_text.rstrip("\n"), *lines[insert_line:]])
        self._edit(file, after if after.endswith("\n") else f"{after}\n")
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        for file in self._chosen(path, PATH, "delete", "deleted; replace single lines with nothing"):
            self._set(file, file.memories[0], None)
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        moved = self._chosen(old_path, "old_path", "rename", "renamed: its lines belong to a kind of memory")
        self._check_free(new_path, f"The destination {new_path} already exists", "new_path")
        (old_scope, old_name), (scope, new_name) = (scope_and_name(normal_path(each)) for each in (old_path, new_path))
        if BREADTH[scope] < BREADTH[old_scope]:
            message = f"{old_path} cannot be moved to a narrower scope: create {new_path}, then delete {old_path}"
            raise InvalidInput(message, field="new_path")
        for file in moved:
            memory_id = file.memories[0].id
            name = new_name + scope_and_name(file.path)[1].removeprefix(old_name)
            metadata = {PATH: clean_name(name, field=PATH, longest=MAX_PATH)}
            self.changes.append(UpdateMemory(memory_id, metadata=metadata))
            if scope != old_scope and scope != "session":
                self.changes.append(PromoteMemory(memory_id, scope, reason=f"renamed to {new_path}"))
        return f"Successfully renamed {old_path} to {new_path}"

    def _below(self, directory: str) -> list[File]:
        return [file for path, file in self._files.items() if path.startswith(f"{directory}/")]

    def _is_directory(self, path: str) -> bool:
        """True also for a scope's own directory, which always exists."""
        return path in _DIRECTORIES.values() or bool(self._below(path))

    def _file(self, path: str) -> File:
        normal = normal_path(path)
        if normal in self._files:
            return self._files[normal]
        if self._is_directory(normal):
            raise InvalidInput(f"The path {path} is not a file.", field=PATH)
        raise NotFound(f"The path {path} does not exist. Please provide a valid path.", field=PATH)

    def _chosen(self, path: str, field: str, verb: str, advice: str) -> list[File]:
        normal = normal_path(path)
        if normal in _DIRECTORIES.values():
            raise InvalidInput(f"Cannot {verb} the {normal} directory itself", field=field)
        chosen = [self._files[normal]] if normal in self._files else self._below(normal)
        if not chosen:
            raise NotFound(f"The path {path} does not exist", field=field)
        for file in chosen:
            if file.is_group:
                memories = count(len(file.memories), "memory")
                raise InvalidInput(f"{file.path} shows {memories} and cannot be {advice}", field=PATH)
        return chosen

    def _check_free(self, path: str, taken: str, field: str) -> None:
        normal = normal_path(path)
        if normal in self._files or self._is_directory(normal):
            raise InvalidInput(taken, field=field)
        for file in self._files:
            if normal.startswith(f"{file}/"):
                raise InvalidInput(f"The path {file} is not a directory.", field=field)

    def _edit(self, file: File, after: str) -> None:
        """In a group, only the memories whose items differ are changed."""
        if not file.is_group:
            self._set(file, file.memories[0], after)
            return
        before, wanted = [_normal(memory.content) for memory in file.memories], _items(after)
        for kind, start, end, to_start, to_end in SequenceMatcher(None, before, wanted, autojunk=False).get_opcodes():
            if kind != "equal":
                for memory, text in zip_longest(file.memories[start:end], wanted[to_start:to_end]):
                    self._set(file, memory, text)

    def _set(self, file: File, memory: ListedMemory | None, text: str | None) -> None:
        """Store a new memory if `memory` is None, and forget it if `text` is None."""
        if memory is None:
            self._store(file.path, text or "", is_file=False)
        elif text is None:
            self.changes.append(ForgetMemory(memory.id, reason=f"deleted from {file.path}"))
        else:
            check_text(text, field="new_str", longest_bytes=self._longest_bytes)
            self.changes.append(UpdateMemory(memory.id, content=text))

    def _store(self, path: str, text: str, *, is_file: bool) -> None:
        check_text(text, field="file_text", longest_bytes=self._longest_bytes)
        scope, name = scope_and_name(path)
        kind: Kind = next((kind for kind, group in _GROUPS.items() if group == name.removeprefix(_SECOND)), "fact")
        part = len(self.changes)
        change = StoreMemory(
            # The ids from one call sort in the order of its parts, so its lines keep their order.
            memory_id=derive_memory_id(f"{self._call.operation_id} {part}", at=part / 1000),
            content=text,
            type=type_of_kind(kind),
            kind=kind,
            scope=scope,
            session_id=self._call.caller.session_id,
            confidence=DEFAULT_CONFIDENCE,
            metadata={PATH: clean_name(name, field=PATH, longest=MAX_PATH)} if is_file else {},
            pinned=is_file,
        )
        self.changes.append(change)


def _given(command: Callable[..., str], arguments: MemoryArguments) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        values = (getattr(arguments, each) for each in (name, _ALIASES.get(name, name)))
        given[name] = next((value for value in values if value is not None), parameter.default)
        if given[name] is parameter.empty:
            raise InvalidInput(f"{name} is required for this command", field=name)
    return given


async def _read(call: Call, scopes: Iterable[Scope]) -> dict[str, File]:
    project, session_id = call.caller.viewer
    request = ListMemories(session_id, tuple(scopes), project=project, limit=PAGE, valid_at=call.received_at)
    memories: list[ListedMemory] = []
    while True:
        page = msgspec.structs.replace(request, offset=len(memories))
        reply = await call.service.require(page, call.service.settings.call_budget_s)
        memories += reply.memories
        if not reply.more and len(reply.memories) < PAGE:
            return files_of(memories)


@tool(
    "Files that outlast this conversation: view, create, str_replace, insert, delete, rename below /memories.",
    destructive=True,
    marks_data=False,
    answers_text=True,
)
async def memory(call: Call, arguments: MemoryArguments) -> Answer:
    """The answer's `text` is what the SDK's own tool would return."""
    paths = [normal_path(each) for each in (arguments.path, arguments.old_path, arguments.new_path) if each is not None]
    scopes = {scope_and_name(path)[0] for path in paths if ROOT not in paths}
    directory = _Directory(call, await _read(call, scopes))
    command: Callable[..., str] = getattr(directory, arguments.command)
    text = command(**_given(command, arguments))
    for number, change in enumerate(directory.changes):
        await call.submit(change, part=f"change {number}")
    return {"text": text}
