"""The lines of an export: JSON objects, one a line, in UTF-8. Pure. `docs/backup.md` describes them for others.

The first line says what the file is; then come projects, each before what belongs to it, memories and sessions; the
last line counts them, so that a file that was cut off is noticed. Times are seconds since the epoch as JSON numbers,
which keep every bit of a double; an absent field has its default.
"""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from remembrancer import __version__
from remembrancer.commands.portability.private_files import FileUnusable
from remembrancer.protocol.errors import InvalidInput, SchemaTooNew
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.wire import UNDECODABLE
from remembrancer.protocol.writes import PortableMemory

FORMAT: Final = "remembrancer-export"
FORMAT_VERSION: Final = 1
MAX_LINE_BYTES: Final = 48 * 1024 * 1024
"""A memory has to fit into one message to the store."""


class Header(msgspec.Struct, frozen=True):
    """The first line. `exported_at` is seconds since the epoch."""

    format: str
    version: int
    release: str
    exported_at: float


class ProjectLine(msgspec.Struct, frozen=True, tag="project", tag_field="line", forbid_unknown_fields=True):
    """A project whose memories or sessions follow."""

    id: str
    path: str


class MemoryLine(msgspec.Struct, frozen=True, tag="memory", tag_field="line", forbid_unknown_fields=True):
    """A memory whole. `project` is None for the user's."""

    memory: PortableMemory
    project: str | None = None


class SessionLine(msgspec.Struct, frozen=True, tag="session", tag_field="line", forbid_unknown_fields=True):
    """When a session was active in a project, or (None) with the user's memories."""

    session: SessionEntry
    project: str | None = None


class EndLine(msgspec.Struct, frozen=True, tag="end", tag_field="line", forbid_unknown_fields=True):
    """The last line: how many there were."""

    projects: int
    memories: int
    sessions: int


Line = ProjectLine | MemoryLine | SessionLine | EndLine
PROJECT_ID: Final = re.compile("p_[0-9a-f]{12}")
_encoder: Final = msgspec.json.Encoder()
_message_encoder: Final = msgspec.msgpack.Encoder()
_header_decoder: Final = msgspec.json.Decoder(Header)


def encode_header(now: float) -> bytes:
    """The first line of an export that is made at `now` (seconds since the epoch)."""
    return encode_line(Header(FORMAT, FORMAT_VERSION, __version__, now))


def encode_line(line: Line | Header) -> bytes:
    """A line with its end."""
    return _encoder.encode(line) + b"\n"


def decode_header(line: bytes) -> Header:
    """What the first line says.

    Raises:
        SchemaTooNew: a newer release wrote it.
        FileUnusable: it is no export.
    """
    try:
        header = _header_decoder.decode(line.removeprefix(BOM_UTF8))  # which some editors put there
    except UNDECODABLE as error:
        raise FileUnusable(f"it is no export of Remembrancer: its first line is none ({error})") from error
    if header.format != FORMAT:
        raise FileUnusable(f"it is no export of Remembrancer: its first line says {header.format[:60]!r}")
    if header.version > FORMAT_VERSION:
        raise SchemaTooNew(
            f"the export has format {header.version}, and this release reads up to {FORMAT_VERSION}: "
            f"release {header.release[:60]} wrote it, install that one or a newer one"
        )
    return header


def decode_line(line: bytes) -> Line:
    """What a line says.

    Raises:
        InvalidInput: it is not as it should be; the message says where.
    """
    try:
        raw = msgspec.json.decode(line)
        decoded: Line = msgspec.convert(raw, Line)
    except UNDECODABLE as error:
        raise InvalidInput(str(error)) from error
    for unknown in _unknown_fields(raw, decoded, "$"):
        raise InvalidInput(f"unknown field {unknown}")
    match decoded:
        case ProjectLine(id=project_id) if not PROJECT_ID.fullmatch(project_id):
            raise InvalidInput(f"a project's id is p_ and 12 hexadecimal digits, not {project_id[:60]!r}")
        case MemoryLine():
            _check_memory(decoded)
        case SessionLine(session=session):
            _check_times("session", session.started_at, session.last_active_at)
    return decoded


def _check_memory(line: MemoryLine) -> None:
    memory = line.memory
    if parse_memory_id(memory.id, field="id") != memory.id:
        raise InvalidInput(f"id must be 'memory:' and a ULID in upper case, not {memory.id!r}")
    if (memory.scope == "user") != (line.project is None):
        raise InvalidInput("a memory of the user has no project, and any other memory has one")
    if not memory.content.strip():
        raise InvalidInput("content is empty")
    for importance in (memory.importance, *(entry.record.importance for entry in memory.history)):
        if not 0.0 <= importance <= 1.0:
            raise InvalidInput(f"importance must be between 0 and 1, not {importance}")
    if memory.version < 1 or memory.access_count < 0:
        raise InvalidInput("version must be 1 or more, and access_count 0 or more")
    _check_times("memory", memory.created_at, memory.updated_at)
    try:
        _message_encoder.encode(memory)
    except (OverflowError, RecursionError) as error:
        raise InvalidInput(f"it has a number that is too large, or is nested too deeply: {error}") from error
    versions = [entry.version for entry in memory.history]
    if versions != sorted(versions):
        raise InvalidInput("history must be in the order of its versions")


def _check_times(what: str, *times: float) -> None:
    if not all(map(math.isfinite, times)):
        raise InvalidInput(f"a time of the {what} is not finite")


def _unknown_fields(raw: Any, value: Any, at: str) -> Iterator[str]:
    """Fields of the JSON that the structs which were made of it do not have: they would be lost in silence."""
    if isinstance(value, msgspec.Struct):
        names = _names(type(value))
        yield from (f"{at}.{name}" for name in raw if name not in names)
        for name, attribute in names.items():
            if attribute and name in raw:
                yield from _unknown_fields(raw[name], getattr(value, attribute), f"{at}.{name}")
    elif isinstance(value, tuple):
        for place, (raw_item, item) in enumerate(zip(raw, value, strict=True)):
            yield from _unknown_fields(raw_item, item, f"{at}[{place}]")


@cache
def _names(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The JSON names of a struct's fields, with its tag's (which belongs to no attribute)."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    tag_field = kind.__struct_config__.tag_field
    return names if tag_field is None else {**names, tag_field: ""}
