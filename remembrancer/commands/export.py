"""`remembrancer export`: the memories as JSON Lines, for other programs, and for `remembrancer import`.

The first line says what the file is; then come projects, each before what belongs to it, memories and sessions; the
last line counts them, so that a file that was cut off is noticed. `docs/backup.md` describes the lines for others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import msgspec

from remembrancer import __version__
from remembrancer.actors.store.records.schema import SCHEMA_VERSION, migrate
from remembrancer.actors.store.records.sessions import read_sessions
from remembrancer.actors.store.records.transfer import read_portable
from remembrancer.commands import exit_codes
from remembrancer.commands.home_files import (
    CATALOG,
    PRIVATE_UMASK,
    QUEUE,
    USER_RECORDS,
    FileUnusable,
    HomeFile,
    moment,
    new_file,
    stamp,
    target_of,
    unreadable,
)
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import InvalidInput, RecordsUnusable, SchemaTooNew
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.wire import UNDECODABLE
from remembrancer.protocol.writes import PortableMemory, Scope

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
    """What the first line says. Raises `SchemaTooNew`: a newer release wrote it; `FileUnusable`: it is no export."""
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
    """What a line says. Raises `InvalidInput`: it is not as it should be; the message says where."""
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
    return decoded


def _check_memory(line: MemoryLine) -> None:
    memory = line.memory
    if parse_memory_id(memory.id, field="id") != memory.id:
        raise InvalidInput(f"id must be 'memory:' and a ULID in upper case, not {memory.id!r}")
    if (memory.scope == "user") != (line.project is None):
        raise InvalidInput("a memory of the user has no project, and any other memory has one")


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


class Choice(msgspec.Struct, frozen=True):
    """What is to be exported. `projects` None: all, and the user's memories; else ids, and those of `scopes` alone."""

    projects: frozenset[str] | None = None
    scopes: frozenset[Scope] = frozenset()
    forgotten: bool = True

    @property
    def in_projects(self) -> frozenset[Scope]:
        """The scopes that are wanted of a project's file."""
        return (self.scopes or frozenset[Scope](("session", "project"))) - {"user"}

    @property
    def the_user(self) -> bool:
        """Whether the user's memories are wanted: not with named projects, unless they are asked for."""
        return "user" in self.scopes if self.scopes else self.projects is None

    def wants(self, name: str) -> bool:
        """Whether the file of that name is needed."""
        if name in (QUEUE, CATALOG):
            return True
        return self.the_user if name == USER_RECORDS else bool(self.in_projects)


def export_lines(files: Sequence[HomeFile], choice: Choice, counted: Counter[str]) -> Iterator[Line]:
    """The lines after the header. `counted` is kept up to date: projects, memories, forgotten ones, sessions.

    Raises:
        InvalidInput: a project that is wanted is not there.
        RecordsUnusable: a file is damaged.
    """
    projects = {file.project_id: file for file in files if file.project_id}
    missing = sorted((choice.projects or frozenset()) - set(projects))
    if missing:
        raise InvalidInput(f"this home has no memories of {', '.join(missing)}: known are {', '.join(projects) or '-'}")
    paths = next((_project_paths(file) for file in files if file.name == CATALOG), {})
    user = next((file for file in files if file.name == USER_RECORDS), None)
    promoted = set() if user is None else {row[0] for row in user.connection.execute("SELECT id FROM memories")}
    for project_id, file in projects.items():
        if choice.projects is None or project_id in choice.projects:
            counted["projects"] += 1
            yield ProjectLine(project_id, paths.get(project_id, ""))
            yield from _lines_of(file, project_id, choice.in_projects, choice, promoted, counted)
    if user is not None and choice.the_user:
        yield from _lines_of(user, None, frozenset[Scope](("user",)), choice, set(), counted)
    yield EndLine(counted["projects"], counted["memories"], counted["sessions"])


def _lines_of(
    file: HomeFile,
    project: str | None,
    scopes: frozenset[Scope],
    choice: Choice,
    promoted: set[str],
    counted: Counter[str],
) -> Iterator[Line]:
    """The sessions and the memories of one file. Those `promoted` are in the user's file already."""
    try:
        with _of_this_release(file) as connection:
            query = partial(_query, connection)
            for session in read_sessions(query):
                counted["sessions"] += 1
                yield SessionLine(session, project)
            condition = "" if choice.forgotten else "WHERE forgotten_at IS NULL"
            ids = connection.execute(f"SELECT id, scope FROM memories {condition} ORDER BY number")  # noqa: S608 - fixed
            for memory_id, scope in ids:
                if scope not in scopes or memory_id in promoted:
                    continue
                memory = read_portable(query, memory_id, None)
                if memory is not None:
                    counted["memories"] += 1
                    counted["forgotten"] += memory.forgotten_at is not None
                    yield MemoryLine(memory, project)
    except sqlite3.Error as error:
        raise unreadable(file.name, error) from error
    except ValueError as error:  # what the store wrote as JSON does not decode
        raise RecordsUnusable(f"{file.name} is damaged ({error}): put back a backup of it") from error


@contextmanager
def _of_this_release(file: HomeFile) -> Iterator[sqlite3.Connection]:
    """The file, or a migrated copy of it when an older release wrote it and no runtime has opened it since."""
    if file.version == SCHEMA_VERSION:
        yield file.connection
        return
    with (
        TemporaryDirectory(prefix="remembrancer-export-") as directory,
        closing(sqlite3.connect(Path(directory) / "memory.db", isolation_level=None)) as copy,
    ):
        file.connection.backup(copy)
        migrate(copy)
        yield copy


def _query(connection: sqlite3.Connection, statement: str, arguments: Sequence[object]) -> list[Any]:
    return connection.execute(statement, arguments).fetchall()


def _project_paths(catalog: HomeFile) -> dict[str, str]:
    rows: list[tuple[str, str]] = catalog.connection.execute("SELECT id, path FROM projects").fetchall()
    return dict(rows)


def main(argv: list[str]) -> int:
    """Write the export; says how much is in it."""
    parser = argparse.ArgumentParser(
        prog="remembrancer export",
        description="Write memories with their history as JSON Lines, also while the runtime works. docs/backup.md "
        "describes the lines; 'remembrancer import' takes them in.",
        epilog="exit status: 0 written, 2 the file is there already or a project is not known, "
        "10 a file cannot be read or written",
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="default: remembrancer-<time>.jsonl here; - is standard output"
    )
    parser.add_argument(
        "--project", action="append", metavar="DIR|ID", help="only this project (may be said several times)"
    )
    parser.add_argument(
        "--scope", action="append", choices=("session", "project", "user"), help="only this scope (several times)"
    )
    parser.add_argument(
        "--include-forgotten", action=argparse.BooleanOptionalAction, default=True, help="default: they are in it"
    )
    parser.add_argument("--force", action="store_true", help="replace the file")
    parser.add_argument("--json", action="store_true", help="the summary for programs (on stderr when FILE is -)")
    arguments = parser.parse_args(argv)
    os.umask(PRIVATE_UMASK)
    now = time.time()
    to_stdout = arguments.file == "-"
    target = None if to_stdout else target_of(arguments.file, f"remembrancer-{stamp(now)}.jsonl", force=arguments.force)
    choice = Choice(
        None if arguments.project is None else frozenset(map(_project_id, arguments.project)),
        frozenset(arguments.scope or ()),
        arguments.include_forgotten,
    )
    counted: Counter[str] = Counter()
    with moment(paths_here(), choice.wants) as files:
        if not any(file.holds_records for file in files):
            raise FileUnusable(f"there are no memories in {paths_here().home}: nothing to export")
        counted["queued"] = _queued(files)
        with _output(target, force=arguments.force) as output:
            output.write(encode_header(now))
            for line in export_lines(files, choice, counted):
                output.write(encode_line(line))
    said = _summary(target, counted)
    print(json.dumps(said) if arguments.json else _in_words(target, counted), file=sys.stderr if to_stdout else None)
    return exit_codes.OK


def _project_id(named: str) -> str:
    return named if PROJECT_ID.fullmatch(named) else project_of(Path(named).expanduser()).id


@contextmanager
def _output(target: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    if target is not None:
        with new_file(target, force=force) as file:
            yield file
        return
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or else Python complains again at its end
        raise FileUnusable("standard output was closed before the export was whole") from error


def _queued(files: list[HomeFile]) -> int:
    return sum(
        file.connection.execute("SELECT count(*) FROM queued").fetchone()[0] for file in files if file.name == QUEUE
    )


def _summary(target: Path | None, counted: Counter[str]) -> dict[str, Any]:
    numbers = {name: counted[name] for name in ("projects", "memories", "forgotten", "sessions", "queued")}
    return {"file": "-" if target is None else str(target), **numbers}


def _in_words(target: Path | None, counted: Counter[str]) -> str:
    where = "standard output" if target is None else str(target)
    said = (
        f"{where}: {counted['memories']:,} memories ({counted['forgotten']:,} of them forgotten) "
        f"of {counted['projects']} projects and the user, {counted['sessions']:,} sessions."
    )
    if counted["queued"]:
        said += (
            f"\n{counted['queued']:,} writes wait in the queue and are not in it: export again when the store has them."
        )
    return said
