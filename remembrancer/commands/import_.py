"""`remembrancer backup import`: imports the output of `backup export`, from this or another machine, or Markdown, or a
database of linked nodes (`memory.db` of the design whose tools are the toolset `nodes`).

Every line is read and checked before anything is sent: content that a tool would refuse is refused here too, and
reported with its line number. The rest goes to the store in batches, in the order of the file. The id of each operation
is derived from the content of its line and its target, so importing a file twice changes nothing, and an interrupted
import can be continued.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import click
import msgspec

from remembrancer import __version__
from remembrancer.commands import exit_codes
from remembrancer.commands.output_files import PRIVATE_UMASK, cannot
from remembrancer.commands.report import Report, argument, command, count, flag, option
from remembrancer.commands.runtime_client import AskStore, connected_store, directory_here
from remembrancer.commands.terminal import said_when_slow
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings
from remembrancer.memory.credentials import refuse_credentials, texts_of
from remembrancer.memory.export_format import EndLine, MemoryLine, ProjectLine, SessionLine, decode_header, decode_line
from remembrancer.memory.fields import check_memory
from remembrancer.memory.limits import MAX_SESSION_ID, check_time
from remembrancer.memory.markdown_files import DETAILS, read_file, sections_of
from remembrancer.memory.text import clean_name, client_title
from remembrancer.protocol.errors import FileUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.home import FindMemories
from remembrancer.protocol.ids import derive_memory_id, new_ulid
from remembrancer.protocol.reads import ListedMemory, ListMemories
from remembrancer.protocol.session_life import SHELL_SESSION, SessionEntry
from remembrancer.protocol.writes import (
    Change,
    ForgetMemory,
    ImportMemory,
    ImportSessions,
    MemoryLink,
    Operation,
    PortableMemory,
    ProjectRef,
    RestoreMemory,
    Scope,
    SourceRef,
    Submit,
    SubmitBatch,
)
from remembrancer.toolsets.files.workspace_files import CLAUDE_CODE, NATIVE, markdown_below, native_places
from remembrancer.toolsets.memory.store_memory import kind_of

CONTENT_LIMIT_BYTES: Final = Settings().content_limit_bytes
MAX_NAMED: Final = 100
"""The number of bad lines and refused memories that a report lists; the others are only counted."""
Content = ProjectLine | MemoryLine | SessionLine
"""A line of an export between the first and the last one."""
PlacedMemory = tuple[ProjectRef | None, PortableMemory]
Placed = tuple[ProjectRef | None, PortableMemory | SessionEntry]
"""The content of a line, and its target project (None: the user)."""


class BadLine(msgspec.Struct, frozen=True):
    """A line that cannot be imported; the first line of a file has the number 1."""

    line: int
    reason: str


class Contents(msgspec.Struct):
    """The lines of a file that were read and checked. `lines` can be imported; `release` wrote them."""

    release: str = __version__
    content_limit_bytes: int = CONTENT_LIMIT_BYTES
    allow_secrets: bool = False
    projects: dict[str, ProjectRef] = {}
    lines: list[MemoryLine | SessionLine] = []
    memories: int = 0
    sessions: int = 0
    bad: list[BadLine] = []

    def add(self, number: int, line: Content) -> None:
        """Add a line if a tool would have stored its content. Raises `InvalidInput` if its project is unknown."""
        if isinstance(line, ProjectLine):
            self.projects[line.id] = ProjectRef(line.id, line.path)
            return
        if line.project is not None and line.project not in self.projects:
            raise InvalidInput(f"no line before this one names the project {line.project[:60]!r}")
        self.memories += isinstance(line, MemoryLine)
        self.sessions += isinstance(line, SessionLine)
        refusal = refusal_of(line, self.content_limit_bytes, allow_secrets=self.allow_secrets)
        if refusal is None:
            self.lines.append(line)
        else:
            self.bad.append(BadLine(number, refusal))

    def placed(self, targets: Mapping[str, ProjectRef]) -> Iterator[Placed]:
        """The contents of the lines, each with its target. `targets` maps the projects of the file to others."""
        for line in self.lines:
            content = line.memory if isinstance(line, MemoryLine) else line.session
            yield None if line.project is None else targets[line.project], content


def read_export(
    lines: Iterable[bytes], content_limit_bytes: int = CONTENT_LIMIT_BYTES, *, allow_secrets: bool = False
) -> Contents:
    """Read and check every line of an export.

    Raises:
        FileUnusable: it is not an export.
        SchemaTooNew: a newer release wrote it.
    """
    numbered = enumerate(lines, 1)
    number, raw = next(numbered, (1, b""))
    contents = Contents(decode_header(raw).release, content_limit_bytes, allow_secrets)
    is_damaged = False
    end: EndLine | None = None
    for number, raw in numbered:
        if end is not None:
            contents.bad.append(BadLine(number, "a line after the last one"))
        try:
            line = decode_line(raw)
            if isinstance(line, EndLine):
                end = line
            else:
                contents.add(number, line)
        except InvalidInput as error:
            is_damaged = True
            contents.bad.append(BadLine(number, error.message))
    if end is None:
        contents.bad = [each for each in contents.bad if each.line < number or raw.endswith(b"\n")]
        reason = "the file was cut off in or after this line: its last line, with the totals, is missing"
        contents.bad.append(BadLine(number, reason))
    elif not is_damaged and (contents.memories, contents.sessions) != (end.memories, end.sessions):
        reason = f"{end.memories} memories are announced, but {contents.memories} are in the file"
        contents.bad.append(BadLine(number, reason))
    return contents


def refusal_of(line: MemoryLine | SessionLine, content_limit_bytes: int, *, allow_secrets: bool) -> str | None:
    """The reason why no tool would have stored a memory or a session; None if one would."""
    try:
        if isinstance(line, MemoryLine):
            check_memory(line.memory, content_limit_bytes)
            if not allow_secrets:
                change = ImportMemory(line.memory)
                refuse_credentials(change, list(texts_of(change)))
        else:
            clean_name(line.session.session_id, field="session_id", longest=MAX_SESSION_ID)
            for name in ("started_at", "last_active_at", "ended_at"):
                check_time(getattr(line.session, name), name)
    except InvalidInput as error:
        file = line.memory.source.file if isinstance(line, MemoryLine) else None
        reason = f"a memory of {file}: {error.message}" if file else error.message
        return f"{reason} (--allow-secrets imports it nevertheless)" if error.remedy else reason
    return None


BATCH_OPERATIONS: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024
UNDONE: Final = "its import was undone"
"""The reason of forgetting after which a memory can be imported again."""
NO_PROJECT: Final = ProjectRef("p_000000000000", "")
"""A placeholder in operations on the user's memories, which belong to no project."""
_canonical: Final = msgspec.json.Encoder(order="deterministic")
_encoder: Final = msgspec.msgpack.Encoder()


class Refusal(msgspec.Struct, frozen=True):
    """A memory that the store rejects for good."""

    id: str
    reason: str


class Tally(msgspec.Struct):
    """The result of an import. `present` memories already existed, and were not changed."""

    imported: int = 0
    present: int = 0
    rejected: list[Refusal] = []


async def _import(placed: Sequence[Placed], dry_run: bool) -> Tally:
    """Import memories, in order, and then sessions. `dry_run`: only count.

    Raises:
        MemoryUnavailable: the store went away and did not come back.
        RemembrancerError: it refuses to continue, for example because the disk is full.
    """
    tally, now = Tally(), time.time()
    sessions: dict[ProjectRef | None, list[SessionEntry]] = {}
    for project, content in placed:
        if isinstance(content, SessionEntry):
            sessions.setdefault(project, []).append(content)
    async with connected_store() as ask_store:
        try:
            for batch in _batches(placed):
                changes = await _changes(ask_store, batch, now)
                tally.present += len(batch) - len(changes)
                if dry_run:
                    tally.imported += len(changes)
                else:
                    await _submit(ask_store, changes, tally)
            for project, entries in () if dry_run else sessions.items():
                for first in range(0, len(entries), BATCH_OPERATIONS):
                    await ask_store(ImportSessions(project, tuple(entries[first : first + BATCH_OPERATIONS])))
        except RemembrancerError:
            verb = "was" if tally.imported == 1 else "were"
            print(f"{count(tally.imported, 'memory')} {verb} imported before it ended.", file=sys.stderr)
            raise
    return tally


def _batches(placed: Iterable[Placed]) -> Iterator[list[PlacedMemory]]:
    batch: list[PlacedMemory] = []
    size = 0
    for project, content in placed:
        if isinstance(content, PortableMemory):
            size += len(_encoder.encode(content))
            if batch and (len(batch) >= BATCH_OPERATIONS or size > BATCH_BYTES):
                yield batch
                batch, size = [], len(_encoder.encode(content))
            batch.append((project, content))
    yield batch


async def _submit(ask_store: AskStore, changes: Iterable[tuple[str, Operation]], tally: Tally) -> None:
    """Have the store apply the operations, each given with its memory's id."""
    operations = {operation.operation_id: (memory_id, operation) for memory_id, operation in changes}
    while operations:
        waiting = [operation for _, operation in operations.values()]
        try:
            answer = await ask_store(SubmitBatch(tuple(waiting)))
        except RemembrancerError as error:  # of the first one
            if error.retry_possible:
                raise
            memory_id, _ = operations.pop(waiting[0].operation_id)
            tally.rejected.append(Refusal(memory_id, error.message))
            continue
        tally.imported += sum(operations.pop(each, None) is not None for each in answer.applied)
        for operation_id, failure in answer.rejected.items():
            memory_id, _ = operations.pop(operation_id, ("", None))
            tally.rejected.append(Refusal(memory_id, failure.message))


async def _changes(ask_store: AskStore, batch: Sequence[PlacedMemory], now: float) -> list[tuple[str, Operation]]:
    """The operations that import the memories of a batch, each with its memory's id. There is none for a memory that
    exists already, in its project or, after a promotion, among the user's, unless undoing its import has forgotten it.
    The second of two with the same id counts as existing."""
    wanted: dict[str | None, dict[str, None]] = {}
    for project, memory in batch:
        for place in {None, _place(project)}:
            wanted.setdefault(place, {})[memory.id] = None
    answers = {place: await ask_store(FindMemories(place, tuple(ids))) for place, ids in wanted.items()}
    present = {place: set(answer.words) for place, answer in answers.items()}
    changes: list[tuple[str, Operation]] = []
    for project, memory in batch:
        there, reasons = present[_place(project)], answers[_place(project)].forgotten | answers[None].forgotten
        if memory.id not in there | present[None]:
            changes.append((memory.id, import_operation(project, memory, now)))
            there.add(memory.id)
        elif reasons.pop(memory.id, None) == UNDONE and memory.forgotten_at is None:
            again = RestoreMemory(memory.id, reason="its import was repeated")
            changes.append((memory.id, _operation(project, memory.session_id, now, again)))
    return changes


def _place(project: ProjectRef | None) -> str | None:
    return None if project is None else project.id


def _operation(project: ProjectRef | None, session_id: str, now: float, change: Change) -> Operation:
    return Operation(new_ulid(), project or NO_PROJECT, session_id, now, change)


def import_operation(project: ProjectRef | None, memory: PortableMemory, now: float) -> Operation:
    """The operation that imports a memory. Its id is derived from the memory's content and its target."""
    place = "user" if project is None else project.id
    digest = hashlib.sha256(_canonical.encode(["import", place, memory])).hexdigest()
    return Operation(digest[:32], project or NO_PROJECT, memory.session_id, now, ImportMemory(memory))


_NAMED_TARGET: Final = re.compile("(p_[0-9a-f]{12})=(.+)", re.DOTALL)


@command(
    argument(
        "file",
        required=False,
        metavar="[FILE]",
        help="What 'backup export' has written, a directory of Markdown, or a memory.db of linked nodes; - is "
        "standard input.",
    ),
    option(
        "--from",
        "client",
        type=click.Choice((CLAUDE_CODE, *NATIVE)),
        help="Import this assistant's own memory files instead of FILE, one memory a section.",
    ),
    flag("--undo", help="Forget the memories of FILE again, also those that were here before."),
    option(
        "--project",
        multiple=True,
        metavar="[ID=]DIR",
        help="Import the memories of the project (of that id, when there are several) into the one of this directory.",
    ),
    flag("--dry-run", help="Only check the file and show what would be imported."),
    flag("--allow-secrets", help="Also import text that looks like a credential."),
    name="import",
)
def import_(
    file: str | None, client: str | None, undo: bool, project: Sequence[str], dry_run: bool, allow_secrets: bool
) -> Report:
    """Import the memories of an export, with their ids and history. Existing memories are not changed. Invalid lines,
    and memories that no tool would store (too large, with a secret), are reported and skipped. Exit status 1: some were
    skipped."""
    if (file is None) is (client is None):
        raise click.UsageError("name a FILE, or an assistant with --from")
    os.umask(PRIVATE_UMASK)
    project_here = project_of(directory_here())
    notes = _notes(file, client)
    limit_bytes = load_settings(os.environ).content_limit_bytes
    try:
        contents = _read(file, notes, project_here, limit_bytes, allow_secrets=allow_secrets)
    except OSError as error:
        raise cannot("read", file or "the assistant's memory", error) from error
    placed = list(contents.placed(choose_targets(contents.projects, project)))
    places = () if notes is None else notes.places
    tally = Tally()
    if undo:
        tally = anyio.run(_undo, placed, places, project_here, dry_run)
    elif placed:
        with said_when_slow(f"Importing {count(contents.memories, 'memory')}"):
            tally = anyio.run(_import, placed, dry_run)
    status = exit_codes.FAILED if tally.rejected or contents.bad else exit_codes.OK
    text = _summary_lines(contents, tally, dry_run=dry_run, undo=undo)
    facts = {
        "dry_run": dry_run,
        "release": contents.release,
        "memories": contents.memories,
        "sessions": contents.sessions,
        "imported": 0 if undo else tally.imported,
        "forgotten": tally.imported if undo else 0,
        "present": tally.present,
        "rejected": len(tally.rejected),
        "rejections": tally.rejected[:MAX_NAMED],
        "bad": len(contents.bad),
        "bad_lines": contents.bad[:MAX_NAMED],
    }
    more = len(contents.bad) - MAX_NAMED
    refusals = [f"line {bad.line}: {bad.reason}" for bad in contents.bad[:MAX_NAMED]]
    refusals += [f"and {count(more, 'line')} more"] if more > 0 else []
    named = [(each.reason, each.id) for each in tally.rejected[:MAX_NAMED]]
    refusals += [reason if memory_id in reason else f"{memory_id}: {reason}" for reason, memory_id in named]
    return Report(facts, text, status, refusals)


def choose_targets(projects: Mapping[str, ProjectRef], named: Sequence[str]) -> dict[str, ProjectRef]:
    """The target of each project in the file: the project itself, unless `named` has another.

    Raises:
        InvalidInput: a directory is given for a project that is not in the file or is ambiguous, or is not a
        directory.
    """
    targets = dict(projects)
    for each in named:
        match = _NAMED_TARGET.fullmatch(each)
        if match is None and len(projects) != 1:
            known = ", ".join(f"{project.id} ({project.path})" for project in projects.values())
            raise InvalidInput(
                f"the file has {len(projects)} projects: choose one with --project ID=DIR: {known or '-'}"
            )
        source = match[1] if match else next(iter(projects))
        if source not in projects:
            raise InvalidInput(f"the file has no project {source}: it has {', '.join(projects) or 'none'}")
        directory = Path(match[2] if match else each).expanduser()
        if not directory.is_dir():
            raise InvalidInput(f"{directory} is not a directory: no session would find the imported memories")
        targets[source] = project_of(directory)
    return targets


class Notes(NamedTuple):
    """Markdown to import: its files and directories, and the scope of its memories."""

    places: list[Path]
    scope: Scope


def _notes(named: str | None, client: str | None) -> Notes | None:
    if client is not None:
        places = [Path(place).expanduser() for place in native_places(working_tree_of(directory_here()), client)]
        if not any(True for place in places for _ in markdown_below(place)):
            looked = ", ".join(map(str, places))
            raise InvalidInput(f"there are no memory files of {client_title(client)}: looked for them in {looked}")
        return Notes(places, "user" if client in NATIVE else "project")
    path = Path(named or "").expanduser()
    return Notes([path.resolve()], "project") if named != "-" and path.is_dir() else None


def _read(
    named: str | None, notes: Notes | None, project: ProjectRef, limit_bytes: int, *, allow_secrets: bool
) -> Contents:
    """Read and check the input. Raises OSError if it cannot be read."""
    if notes is None and named == "-":
        return read_export(sys.stdin.buffer, limit_bytes, allow_secrets=allow_secrets)
    if notes is not None:
        lines = lines_of_notes(notes.places, project, notes.scope)
    else:
        path = Path(named or "").expanduser()
        with path.open("rb") as file:
            if not file.peek(len(SQLITE)).startswith(SQLITE):
                return read_export(file, limit_bytes, allow_secrets=allow_secrets)
        lines = lines_of_nodes(path, project)
    contents = Contents(content_limit_bytes=limit_bytes, allow_secrets=allow_secrets)
    for number, line in enumerate(lines, 2):  # as the lines of an export, after its header
        contents.add(number, line)
    return contents


SQLITE: Final = b"SQLite format 3\0"


def lines_of_nodes(path: Path, project: ProjectRef) -> Iterator[Content]:
    """The export lines for a database of linked nodes, as memories of a project. Links are stored at both of their
    nodes. A memory's id is derived from its node's id.

    Raises:
        FileUnusable: it has no such nodes, or a row is invalid.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute(
                "SELECT id, content, tags, links, source, created_at, last_accessed, access_count FROM nodes"
            ).fetchall()
        created = {row[0]: datetime.fromisoformat(row[5]).timestamp() for row in rows}
        ids = {node: derive_memory_id(f"node {node}", at) for node, at in created.items()}
        memories, linked = [], set[frozenset[str]]()
        for node, content, tags, links, source, _, last_accessed, access_count in rows:
            at, related = created[node], []
            for other in json.loads(links or "[]"):
                if other in ids and other != node and frozenset((node, other)) not in linked:
                    linked.add(frozenset((node, other)))
                    related.append(MemoryLink(ids[other], "related_to", 1.0, at))
            memories.append(
                PortableMemory(
                    id=ids[node],
                    content=content,
                    type="semantic",
                    scope="project",
                    session_id=SHELL_SESSION,
                    tags=tuple(json.loads(tags or "[]")),
                    source=SourceRef(label=source or None),
                    pinned=True,
                    created_at=at,
                    updated_at=at,
                    access_count=access_count or 0,
                    last_accessed_at=datetime.fromisoformat(last_accessed).timestamp() if last_accessed else None,
                    links=tuple(related),
                )
            )
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise FileUnusable(f"{path} is a database, but not one of linked nodes: {error}") from error
    yield ProjectLine(project.id, project.path)
    yield from (MemoryLine(memory, project.id) for memory in memories)


def lines_of_notes(places: Sequence[Path], project: ProjectRef, scope: Scope) -> Iterator[Content]:
    """The export lines for Markdown: memories that an export wrote are restored as they were; in other files each
    section becomes one.

    Raises:
        FileUnusable: a file that an export wrote is no longer valid.
    """
    details: dict[str, dict[str, Any]] = {}
    projects: dict[str, ProjectLine] = {}
    sessions: list[SessionLine] = []
    for raw in (raw for place in places for raw in _details_in(place)):
        if "line" not in msgspec.json.decode(raw):
            about = msgspec.json.decode(raw)
            details[about.pop("id")] = about
            continue
        match decode_line(raw):
            case ProjectLine() as line:
                projects[line.id] = line
            case SessionLine() as line:
                sessions.append(line)
    lines: list[MemoryLine] = []
    for path in (path for place in places for path in markdown_below(place)):
        text = path.read_bytes().decode("utf-8-sig", "replace")
        try:
            notes, written = read_file(text, details)
        except InvalidInput as error:
            raise FileUnusable(f"{path}: {error.message}") from error
        made = sections_of(str(path), notes, path.stat().st_mtime, scope, kind_of)
        lines += [*written, *(MemoryLine(memory, None if scope == "user" else project.id) for memory in made)]
    if project.id in {line.project for line in lines}:
        projects.setdefault(project.id, ProjectLine(project.id, project.path))
    yield from projects.values()
    yield from lines
    yield from sessions


def _details_in(place: Path) -> list[bytes]:
    file = place / DETAILS
    return file.read_bytes().splitlines(keepends=True)[1:] if file.is_file() else []


PAGE: Final = 1000


async def _listed(ask_store: AskStore, project: ProjectRef | None) -> AsyncIterator[ListedMemory]:
    """The memories of a project and of the user (None: the user's only)."""
    offset, cut = 0, True
    while cut:
        request = ListMemories(
            project=project or NO_PROJECT,
            session_id=SHELL_SESSION,
            scopes=("user",) if project is None else (),
            limit=PAGE,
            offset=offset,
        )
        reply = await ask_store(request)
        for each in reply.memories:
            yield each
        offset += len(reply.memories)
        cut = reply.more or len(reply.memories) == PAGE


def _is_from(file: str | None, places: Sequence[Path]) -> bool:
    return file is not None and any(Path(file).is_relative_to(place) for place in places)


async def _undo(placed: Sequence[Placed], places: Sequence[Path], here: ProjectRef, dry_run: bool) -> Tally:
    """Forget the memories of a file; for notes, also the memories of earlier versions of them."""
    report = Tally()
    async with connected_store() as ask_store:
        taken: dict[str, tuple[ProjectRef | None, str]] = {}
        async for each in _listed(ask_store, here):
            if _is_from(each.source.file, places):
                taken[each.id] = here, SHELL_SESSION
        for project, memory in placed:
            if isinstance(memory, PortableMemory):
                answer = await ask_store(FindMemories(_place(project), (memory.id,)))
                taken |= dict.fromkeys(answer.words.keys() - answer.forgotten, (project, memory.session_id))
        for memory_id, (project, session_id) in taken.items():
            report.imported += 1
            if not dry_run:
                change = ForgetMemory(memory_id, reason=UNDONE)
                await ask_store(Submit(_operation(project, session_id, time.time(), change)))
    return report


def _summary_lines(contents: Contents, tally: Tally, *, dry_run: bool, undo: bool) -> list[str]:
    if undo:
        return [
            f"{count(tally.imported, 'memory')} forgotten again{' (not done: this is a dry run)' if dry_run else ''}."
        ]
    verb = "would be imported" if dry_run else "imported"
    were = "was" if tally.present == 1 else "were"
    line = f"{count(tally.imported, 'memory')} {verb}, {tally.present:,} {were} there already"
    if tally.rejected:
        line += f", {len(tally.rejected):,} refused"
    if contents.bad:
        line += f"; {count(len(contents.bad), 'line')} skipped, for the reasons above"
    if not tally.imported or dry_run:
        return [f"{line}."]
    they, their = ("It", "its") if tally.imported == 1 else ("They", "their")
    return [f"{line}.", f"{they} can be found by {their} words now, and by {their} meaning in a moment."]
