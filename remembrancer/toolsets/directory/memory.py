"""The tool `memory`: a directory of files, as models know it from Anthropic's API (`memory_20250818`)."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from remembrancer.memory.changes import BREADTH
from remembrancer.memory.limits import MAX_ANSWER_BYTES, MAX_PATH
from remembrancer.memory.text import check_text, clean_name, count
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import type_of_kind
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
from remembrancer.toolsets.directory.files import (
    PATH,
    ROOT,
    DirectoryPath,
    File,
    TextChange,
    below,
    changes,
    check_free,
    file_at,
    files_of,
    inserted,
    is_directory,
    kind_of_file,
    listing,
    numbered,
    place_of,
    replaced,
)
from remembrancer.toolsets.memory.store_memory import STATED
from remembrancer.toolsets.tools import Answer, Call, tool

PAGE: Final = 1000
T = TypeVar("T")


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
    """The files that a call sees, and the changes it makes."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._parts = 0

    async def read(self, *scopes: Scope) -> dict[DirectoryPath, File]:
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

    async def file(self, path: str) -> File:
        return file_at(await self.read(place_of(path).scope), path)

    async def submit(self, change: Change) -> object:
        """Make one change. The changes of a call are numbered, so that each gets its own id."""
        self._parts += 1
        return await self._call.submit(change, part=f"change {self._parts - 1}")

    async def store(self, place: DirectoryPath, text: str, *, is_file: bool) -> None:
        kind = kind_of_file(place.name)
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
            confidence=STATED,
            metadata={PATH: name} if is_file else {},
            pinned=is_file,
        )
        result = await self.submit(change)
        if is_file and isinstance(result, StoredResult) and result.already_known:
            # A line of a kind's file has the text, and becomes this file.
            await self.submit(UpdateMemory(result.memory_id, metadata={PATH: name}))

    async def apply(self, file: File, wanted: Iterable[TextChange]) -> None:
        for memory, text in wanted:
            if text is None:
                assert memory is not None
                await self.submit(ForgetMemory(memory.id, reason=f"deleted from {file.place.path}"))
            elif memory is None:
                await self.store(file.place, text, is_file=False)
            else:
                check_text(text, field="new_str", longest_bytes=self._call.service.settings.content_limit_bytes)
                await self.submit(UpdateMemory(memory.id, content=text))


@tool(
    "Files that outlast this conversation: view, create, str_replace, insert, delete, rename below /memories.",
    destructive=True,
    marks_data=False,
    answers_text=True,
)
async def memory(call: Call, arguments: MemoryArguments) -> Answer:
    """Run one command; the answer's `text` is what the SDK's own tool would return."""
    run = {
        "view": _view,
        "create": _create,
        "str_replace": _str_replace,
        "insert": _insert,
        "delete": _delete,
        "rename": _rename,
    }[arguments.command]
    return {"text": await run(_Directory(call), arguments)}


def _required(value: T | None, field: str) -> T:
    if value is None:
        raise InvalidInput(f"{field} is required for this command", field=field)
    return value


async def _view(directory: _Directory, arguments: MemoryArguments) -> str:
    path = _required(arguments.path, PATH).rstrip("/")
    place = place_of(path)
    scopes: tuple[Scope, ...] = (place.scope,) if path != ROOT else ()
    files = await directory.read(*scopes)
    if place not in files and is_directory(files, place):
        return listing(files, place, path)
    text = numbered(path, file_at(files, path).text, arguments.view_range)
    if len(text.encode()) > MAX_ANSWER_BYTES:
        raise InvalidInput(f"{path} is too long to be shown at once: give a view_range", field="view_range")
    return text


async def _create(directory: _Directory, arguments: MemoryArguments) -> str:
    path = _required(arguments.path, PATH)
    text, place = _required(arguments.file_text, "file_text"), place_of(path)
    files = await directory.read(place.scope)
    check_free(files, place, f"File {path} already exists", PATH)
    for file in files.values():
        if file.text == text and not file.is_group:  # the same text is one memory, which has one name
            raise InvalidInput(f"File {file.place.path} has the same text", field="file_text")
    await directory.store(place, text, is_file=True)
    return f"File created successfully at: {path}"


async def _str_replace(directory: _Directory, arguments: MemoryArguments) -> str:
    path = _required(arguments.path, PATH)
    file = await directory.file(path)
    old = _required(arguments.old_str, "old_str")
    after, text = replaced(path, file.text, old, arguments.new_str or "")
    await directory.apply(file, list(changes(file, after)))
    return text


async def _insert(directory: _Directory, arguments: MemoryArguments) -> str:
    path = _required(arguments.path, PATH)
    file = await directory.file(path)
    new = arguments.insert_text if arguments.insert_text is not None else arguments.new_str
    line = _required(arguments.insert_line, "insert_line")
    after = inserted(file.text, line, _required(new, "insert_text"))
    await directory.apply(file, list(changes(file, after)))
    return f"The file {path} has been edited."


async def _delete(directory: _Directory, arguments: MemoryArguments) -> str:
    path = _required(arguments.path, PATH)
    place = place_of(path)
    if not place.name:
        raise InvalidInput(f"Cannot delete the {place.path} directory itself", field=PATH)
    files = await directory.read(place.scope)
    doomed = [files[place]] if place in files else below(files, place)
    if not doomed:
        raise NotFound(f"The path {path} does not exist", field=PATH)
    for file in doomed:
        _check_own(file, "deleted: replace single lines by nothing")
        await directory.apply(file, [TextChange(file.memories[0], None)])
    return f"Successfully deleted {path}"


async def _rename(directory: _Directory, arguments: MemoryArguments) -> str:
    old_path = _required(arguments.old_path or arguments.path, "old_path")
    new_path = _required(arguments.new_path, "new_path")
    old, new = place_of(old_path), place_of(new_path)
    if not old.name:
        raise InvalidInput(f"Cannot rename the {old.path} directory itself", field="old_path")
    files = await directory.read(old.scope, new.scope)
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
        await directory.submit(UpdateMemory(memory_id, metadata={PATH: clean_name(name, field=PATH, longest=MAX_PATH)}))
        if new.scope != old.scope and new.scope != "session":
            await directory.submit(PromoteMemory(memory_id, new.scope, reason=f"renamed to {new_path}"))
    return f"Successfully renamed {old_path} to {new_path}"


def _check_own(file: File, advice: str) -> None:
    if file.is_group:
        memories = count(len(file.memories), "memory")
        raise InvalidInput(f"{file.place.path} shows {memories} and cannot be {advice}", field=PATH)
