"""The lines of an export (docs/backup.md): a header, each project followed by its memories, and a last line with
counts, which reveals a truncated file. Pure."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from remembrancer import __version__
from remembrancer.protocol.errors import FileUnusable, InvalidInput, SchemaTooNew
from remembrancer.protocol.ids import check_project_id, parse_memory_id
from remembrancer.protocol.wire import UNDECODABLE
from remembrancer.protocol.writes import PortableMemory

FORMAT: Final = "remembrancer-export"
FORMAT_VERSION: Final = 1
MAX_LINE_BYTES: Final = 48 * 1024 * 1024
"""A memory must fit into one message to the store."""


class Header(msgspec.Struct, frozen=True):
    """`exported_at` is in seconds since the epoch."""

    format: str
    version: int
    release: str
    exported_at: float


class ProjectLine(msgspec.Struct, frozen=True, tag="project", tag_field="line", forbid_unknown_fields=True):
    id: str
    path: str


class MemoryLine(msgspec.Struct, frozen=True, tag="memory", tag_field="line", forbid_unknown_fields=True):
    """`project` is None for the user's memories."""

    memory: PortableMemory
    project: str | None = None


class EndLine(msgspec.Struct, frozen=True, tag="end", tag_field="line", forbid_unknown_fields=True):
    """The number of lines of each kind. Release 0.2.0 also wrote lines for sessions, and requires their count."""

    projects: int
    memories: int
    sessions: int = 0


Line = ProjectLine | MemoryLine | EndLine
_header_decoder: Final = msgspec.json.Decoder(Header)


def encode_header(now: float) -> bytes:
    return encode_line(Header(FORMAT, FORMAT_VERSION, __version__, now))


def encode_line(line: Line | Header) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def decode_header(line: bytes) -> Header:
    """Raises `SchemaTooNew` for a file from a newer release, and `FileUnusable` for a file that is not an export."""
    try:
        header = _header_decoder.decode(line.removeprefix(BOM_UTF8))  # some editors add a byte order mark
    except UNDECODABLE as error:
        raise FileUnusable(
            "the file is not an export of Remembrancer "
            "(a Markdown file ends in .md, and a backup is for 'backup restore')"
        ) from error
    if header.format != FORMAT:
        raise FileUnusable(f"the file is not an export of Remembrancer: its first line says {header.format[:60]!r}")
    if header.version > FORMAT_VERSION:
        raise SchemaTooNew(
            f"the export has format {header.version}, and this release reads up to {FORMAT_VERSION}: "
            f"release {header.release[:60]} wrote it; install that release or a newer one"
        )
    return header


def decode_line(line: bytes) -> Line | None:
    """Returns None for a `session` line from an older release. Raises `InvalidInput`."""
    if len(line) > MAX_LINE_BYTES:
        raise InvalidInput(f"a line may have at most {MAX_LINE_BYTES} bytes")
    try:
        raw = msgspec.json.decode(line)
        if isinstance(raw, dict) and raw.get("line") == "session":
            return None
        decoded: Line = msgspec.convert(raw, Line)
    except UNDECODABLE as error:
        raise InvalidInput(str(error)) from error
    for unknown in _unknown_fields(raw, decoded, "$"):
        raise InvalidInput(f"unknown field {unknown}")
    match decoded:
        case ProjectLine(id=project_id):
            check_project_id(project_id)
        case MemoryLine(memory=memory, project=project):
            if parse_memory_id(memory.id, field="id") != memory.id:
                raise InvalidInput(f"id must be 'memory:' and a ULID in upper case, not {memory.id!r}")
            if (memory.scope == "user") != (project is None):
                raise InvalidInput("a memory of the user must not have a project, and any other memory must have one")
    return decoded


def _unknown_fields(raw: Any, value: Any, at: str) -> Iterator[str]:
    """Yield fields of the JSON that decoding into the struct would silently drop."""
    if isinstance(value, msgspec.Struct):
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for name, each in raw.items():
            if name in names:
                yield from _unknown_fields(each, getattr(value, names[name]), f"{at}.{name}")
            elif name != value.__struct_config__.tag_field:
                yield f"{at}.{name}"
    elif isinstance(value, tuple):
        for place, (raw_item, item) in enumerate(zip(raw, value, strict=True)):
            yield from _unknown_fields(raw_item, item, f"{at}[{place}]")
