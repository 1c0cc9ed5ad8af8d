"""Memories as Markdown files: an export for people, and the import of notes as memories. Pure.

Each memory is a file: its fields as front matter (in JSON, which is also YAML), then its text. Data for programs only
(histories, sessions) is beside them in `details.jsonl`, so that an import loses nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from remembrancer.memory.chunks import headings_of
from remembrancer.memory.export_format import MemoryLine
from remembrancer.memory.limits import moment
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import MEMORY_PREFIX, derive_memory_id
from remembrancer.protocol.kinds import Kind, kind_of_type, type_of_kind
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.writes import PortableMemory, Scope, SourceRef

DETAILS: Final = "details.jsonl"
_UNREAD: Final = ("history", "promotion_chain", "accessed_in")
"""The fields that are stored in `DETAILS`."""
_FRONT: Final = re.compile(r"---\n(.*?\n)---\n(.*)", re.DOTALL)
_LONGEST_NAME: Final = 60
_json: Final = msgspec.json.Encoder()


def file_of(line: MemoryLine, folder: str) -> tuple[str, str]:
    """The path and the text of a memory's file in its project's folder."""
    memory = line.memory
    fields = {name: value for name, value in msgspec.to_builtins(memory).items() if name not in ("content", *_UNREAD)}
    if line.project is not None:
        fields["project"] = line.project
    front = "".join(f"{name}: {_json.encode(value).decode()}\n" for name, value in fields.items())
    day = moment(memory.created_at).date().isoformat()
    kind = memory.kind or kind_of_type(memory.type)
    name = f"{day} {_slug(memory.content)} {memory.id[-6:]}.md"
    return f"{folder}/{kind}/{name}", f"---\n{front}---\n{memory.content}\n"


def details_of(memory: PortableMemory) -> dict[str, Any]:
    """The fields of a memory that its file does not show, with its id."""
    whole = msgspec.to_builtins(memory)
    return {"id": memory.id} | {name: whole[name] for name in _UNREAD if name in whole}


def line_of(text: str, details: Mapping[str, Mapping[str, Any]]) -> MemoryLine | None:
    """The memory in a file that an export wrote; None for any other file. `details` has `details_of` by id.

    Raises:
        InvalidInput: its front matter is no longer valid.
    """
    match = _FRONT.fullmatch(text)
    if match is None or f'id: "{MEMORY_PREFIX}' not in match[1]:
        return None
    try:
        fields = {
            name: _value(value) for name, _, value in (line.partition(": ") for line in match[1].split("\n")[:-1])
        }
        project = fields.pop("project", None)
        content = match[2].removesuffix("\n")
        memory = msgspec.convert({**fields, **details.get(fields["id"], {}), "content": content}, PortableMemory)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvalidInput(f"its front matter cannot be read: {error}") from error
    return MemoryLine(memory, project)


def sections_of(path: str, text: str, at: float, scope: Scope, kind_of: Callable[[str], Kind]) -> list[PortableMemory]:
    """The sections of a note as memories, each with its headings, as if stored at `at` (seconds since the epoch).

    The same section of the same file always gives the same memory. Front matter (Claude Code's has a `description`) is
    skipped, and so are headings without text.
    """
    front = _FRONT.fullmatch(text)
    body = front[2] if front else text
    lines = body.split("\n")
    headings = headings_of(body)
    starts = [(0, 0, ""), *((heading.first, heading.end, heading.path) for heading in headings)]
    made: dict[str, PortableMemory] = {}
    for (_, begin, headed), end in zip(starts, [*(first for first, *_ in starts[1:]), len(lines)], strict=True):
        section = "\n".join(lines[begin:end]).strip()
        if not section:
            continue
        content = f"{headed}: {section}" if headed else section
        kind = kind_of(section)
        memory_id = derive_memory_id(f"section of {path}\n{content}")
        made[memory_id] = PortableMemory(
            id=memory_id,
            content=content,
            type=type_of_kind(kind),
            kind=kind,
            scope=scope,
            session_id=SHELL_SESSION,
            source=SourceRef(file=path),
            created_at=at,
            updated_at=at,
        )
    return list(made.values())


def _value(text: str) -> Any:
    """A JSON value; quotation marks around a text are optional."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.strip()


def _slug(text: str) -> str:
    """The first words of a text, in a form that every file system accepts."""
    words = re.sub(r"[^\w]+", "-", unicodedata.normalize("NFC", text[: 4 * _LONGEST_NAME]).lower()).strip("-_")
    return words[:_LONGEST_NAME].strip("-_") or "memory"
