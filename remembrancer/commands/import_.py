"""`remembrancer backup import`: imports Markdown, or the output of `backup export` from this or another machine. If a
tool would refuse any part of a file, the whole file is refused. Existing memories are left unchanged, so importing a
file twice changes nothing, and an interrupted import can be continued."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from remembrancer.actors.store.records.types import USER
from remembrancer.commands import exit_codes
from remembrancer.commands.home_reader import find_memories
from remembrancer.commands.output_files import PRIVATE_UMASK
from remembrancer.commands.report import Report, argument, command, flag, option
from remembrancer.commands.runtime_client import ask_store, paths_here
from remembrancer.commands.terminal import notice_when_slow
from remembrancer.config.project import directory_here, project_of, working_tree_of
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings
from remembrancer.memory.credentials import masked, refuse_credentials
from remembrancer.memory.decay import has_ended
from remembrancer.memory.export_format import EndLine, MemoryLine, ProjectLine, decode_header, decode_line
from remembrancer.memory.fields import check_memory
from remembrancer.memory.markdown_files import DETAILS, read_file, sections_of
from remembrancer.memory.markdown_index import without_block
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.text import client_title, count
from remembrancer.protocol.errors import FileUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.runs import IMPORT_UNDONE, IMPORTS
from remembrancer.protocol.wire import UNDECODABLE
from remembrancer.protocol.writes import (
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    ProjectRef,
    SubmitBatch,
    memory_id_of,
)
from remembrancer.toolsets.files.workspace_files import CLAUDE_CODE, ENDINGS, NATIVE, markdown_below, native_places
from remembrancer.toolsets.memory.store_memory import kind_of

CONTENT_LIMIT_BYTES: Final = Settings().content_limit_bytes
Content = ProjectLine | MemoryLine
PlacedMemory = tuple[ProjectRef | None, PortableMemory]
"""The project is None for the user's memories."""


class Contents(msgspec.Struct):
    """A file's lines after reading and checking, and how many of its memories have been imported."""

    content_limit_bytes: int = CONTENT_LIMIT_BYTES
    allow_secrets: bool = False
    projects: dict[str, ProjectRef] = {}
    memories: list[PlacedMemory] = []
    spellings: dict[str, set[str]] = {}
    """The texts by which a section of a note may already be remembered, by the memory's id."""
    skipped: list[str] = []
    """The place or id of each memory that was not imported, with the reason."""
    imported: int = 0
    ticked: int = 0

    def add(self, where: str, line: Content) -> None:
        """Raises `InvalidInput` if the tools would not have stored the content, or if the project is unknown."""
        if isinstance(line, ProjectLine):
            self.projects[line.id] = ProjectRef(line.id, line.path)
            return
        if line.project is not None and line.project not in self.projects:
            raise InvalidInput(f"no earlier line names the project {line.project[:60]!r}")
        project = None if line.project is None else self.projects[line.project]
        check_memory(line.memory, self.content_limit_bytes)
        if not self.allow_secrets:
            try:
                refuse_credentials(ImportMemory(line.memory))
            except InvalidInput as error:
                self.skipped.append(f"{where}: {error.message} (--allow-secrets imports it anyway)")
                return
        self.memories.append((project, line.memory))


def read_export(
    lines: Iterable[bytes], content_limit_bytes: int = CONTENT_LIMIT_BYTES, *, allow_secrets: bool = False
) -> Contents:
    """Raises `FileUnusable` for an export that is invalid or was cut off, and `SchemaTooNew`."""
    numbered = enumerate(lines, 1)
    decode_header(next(numbered, (1, b""))[1])
    contents = Contents(content_limit_bytes, allow_secrets)
    end: EndLine | None = None
    for number, raw in numbered:
        try:
            if end is not None:
                raise InvalidInput("it comes after the last line")
            line = decode_line(raw)
            if isinstance(line, EndLine):
                end = line
            elif line is not None:
                contents.add(f"line {number}", line)
        except InvalidInput as error:
            raise FileUnusable(f"nothing was imported, because of line {number}: {error.message}") from error
    total = len(contents.memories) + len(contents.skipped)
    if end is None:
        raise FileUnusable(
            "nothing was imported, because the file is incomplete: its last line, with the totals, is missing"
        )
    if total != end.memories:
        raise FileUnusable(
            f"nothing was imported, because the last line counts {end.memories} memories, the file has {total}"
        )
    return contents


BATCH_OPERATIONS: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024
MOST_NAMED: Final = 10
"""The maximum number of memories that a dry run prints."""
EXTENDS: Final = 0.9
"""The probability that a section replaces a memory whose text it extends, if the file no longer has that memory."""
NO_PROJECT: Final = ProjectRef("p_000000000000", "")
"""A placeholder in operations on the user's memories, which belong to no project."""
_encoder: Final = msgspec.msgpack.Encoder()


def _import(operations: Sequence[Operation], contents: Contents) -> None:
    waiting = {operation.operation_id: operation for operation in operations}
    try:
        while waiting:
            answer = ask_store(SubmitBatch(_batch(waiting.values())), slow="")
            contents.imported += sum(waiting.pop(entry, None) is not None for entry in answer.applied)
            for operation_id, failure in answer.rejected.items():
                memory_id, reason = memory_id_of(waiting.pop(operation_id).change) or "", failure.message
                contents.skipped.append(reason if memory_id in reason else f"{memory_id}: {reason}")
    except RemembrancerError:
        print(f"Imported before the error: {count(contents.imported, 'memory')}.", file=sys.stderr)
        raise


def _batch(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    batch: list[Operation] = []
    size = 0
    for operation in islice(operations, BATCH_OPERATIONS):
        size += len(_encoder.encode(operation))
        if batch and size > BATCH_BYTES:
            break
        batch.append(operation)
    return tuple(batch)


def _operations(contents: Contents, run_id: str) -> tuple[list[Operation], dict[str, list[str]]]:
    """Return the operations that import memories, and the ids of memories that only here are forgotten, are replaced
    (or expired), or have a different text. Existing memories are skipped, unless an undone import has forgotten them. A
    second memory with the same id counts as existing, and so does a section whose text is remembered for that day."""
    memories, spellings, now = contents.memories, contents.spellings, time.time()
    projects = {project.id for project, _ in memories if project is not None}
    ids, files = {memory.id for _, memory in memories}, {memory.source.file or "" for _, memory in memories} - {""}
    known = find_memories(paths_here(), projects, ids, files, set().union(*spellings.values()))
    why_forgotten = {(memory.place, memory.id): memory.forgotten for memory in known}
    known = [each for each in known if each.forgotten is None]
    remembered = {(each.place, each.content, each.occurred_at) for each in known}
    valid = {(each.place, each.content.strip()) for each in known if not has_ended(each.valid_until, now)}
    contents_here = {each.id: each.content.strip() for each in known}
    gone = [each for each in known if each.file and each.id not in ids]
    operations: list[Operation] = []
    only_here: dict[str, list[str]] = {"forgotten": [], "differing": [], "replaced": []}
    for project, memory in memories:
        place, text = USER if project is None else project.id, memory.content.strip()
        places, texts = ((place, memory.id), (USER, memory.id)), spellings.get(memory.id, {text})
        is_known = any((place, each, memory.occurred_at) in remembered for each in spellings.get(memory.id, ()))
        reasons = {None} if is_known else {why_forgotten[each] for each in places if each in why_forgotten}
        if not reasons or (reasons == {IMPORT_UNDONE} and memory.forgotten_at is None):
            why_forgotten |= dict.fromkeys(places)
            valid.add((place, text))
            extended = [
                MemoryLink(each.id, "contradicts", EXTENDS, now)
                for each in gone
                if each.file == memory.source.file and memory.content.startswith(each.content)
            ]
            links = (*memory.links, *extended)
            change = ImportMemory(msgspec.structs.replace(memory, links=links), run_id=run_id)
            operations.append(Operation(new_ulid(), project or NO_PROJECT, memory.session_id, now, change))
        elif reasons - {None, IMPORT_UNDONE} and memory.forgotten_at is None:
            only_here["forgotten"].append(memory.id)
        elif contents_here.get(memory.id, text) != text:
            only_here["differing"].append(memory.id)
        elif not (memory.forgotten_at or memory.valid_until) and valid.isdisjoint(product((place, USER), texts)):
            only_here["replaced"].append(memory.id)
    return operations, only_here


@command(
    argument(
        "file",
        required=False,
        metavar="[FILE]",
        help="An export from 'backup export', or Markdown (a directory or a file); - is standard input.",
    ),
    option(
        "--from",
        "client",
        type=click.Choice((CLAUDE_CODE, *NATIVE)),
        help="Import this assistant's own memory files instead of FILE.",
    ),
    flag("--dry-run", help="Only check the file and show what would be imported."),
    flag("--allow-secrets", help="Also import text that looks like a credential."),
    name="import",
)
def import_(file: str | None, client: str | None, dry_run: bool, allow_secrets: bool) -> Report:
    """Import an export's memories, with their ids and history; 'remembrancer undo' with the printed id undoes the
    import. Existing memories are not changed. An incomplete file, or one with an invalid line, is refused. Exit status
    1: memories were skipped, because they look like credentials or were erased for good."""
    if (file is None) is (client is None):
        raise click.UsageError("name a FILE, or an assistant with --from")
    os.umask(PRIVATE_UMASK)
    project_here = project_of(directory_here())
    limit_bytes = load_settings(os.environ).content_limit_bytes
    run_id = IMPORTS + new_ulid()
    with notice_when_slow("Reading and checking the memories"):
        contents = _read(file, client, project_here, limit_bytes, allow_secrets=allow_secrets)
        operations, only_here = _operations(contents, run_id)
    if dry_run:
        contents.imported = len(operations)
    elif operations:
        with notice_when_slow(f"Importing {count(len(operations), 'memory')}"):
            _import(operations, contents)
    facts = {"run_id": run_id, "dry_run": dry_run, "present": len(contents.memories) - len(operations)}
    facts |= only_here | {name: getattr(contents, name) for name in ("imported", "skipped", "ticked")}
    if dry_run:
        memories = [each.change.memory for each in operations if isinstance(each.change, ImportMemory)]
        facts["memories"] = [{"id": memory.id, "content": memory.content} for memory in memories]
    is_elsewhere = not contents.projects.keys() <= {project_here.id}
    status = exit_codes.FAILED if contents.skipped else exit_codes.OK
    return Report(facts, _summary_lines(facts, is_elsewhere=is_elsewhere), status, contents.skipped)


def _read(
    named: str | None, client: str | None, project: ProjectRef, limit_bytes: int, *, allow_secrets: bool
) -> Contents:
    path = Path(named or "").expanduser()
    if client is not None:
        places = [Path(place).expanduser() for place in native_places(working_tree_of(directory_here()), client)]
        if not any(True for place in places for _ in markdown_below(place)):
            looked = " or ".join(map(str, places))
            raise InvalidInput(f"there are no memory files of {client_title(client)} in {looked}")
    elif named != "-" and (path.is_dir() or (path.suffix.lower() in ENDINGS and not _is_export(path))):
        places = [path.resolve(strict=True)]
    else:
        with click.open_file(str(path), "rb") as file:
            return read_export(file, limit_bytes, allow_secrets=allow_secrets)
    contents = Contents(content_limit_bytes=limit_bytes, allow_secrets=allow_secrets)
    _read_notes(places, None if client in NATIVE else project, contents)
    return contents


def _is_export(file: Path) -> bool:
    with suppress(FileUnusable):
        decode_header(file.read_bytes().partition(b"\n")[0] if file.is_file() else b"")
        return True
    return False


def _read_notes(places: Sequence[Path], project: ProjectRef | None, contents: Contents) -> None:
    """Sections become memories, except in exported files. Raises `FileUnusable` if one of those is no longer valid."""
    project_id = None if project is None else project.id
    details: dict[str, dict[str, Any]] = {}
    for place in places:
        _read_details((place if place.is_dir() else place.parent.parent) / DETAILS, contents.projects, details)
    if project is not None:
        contents.projects.setdefault(project.id, project)
    for path in (path for place in places for path in markdown_below(place)):
        if _is_export(path):
            raise FileUnusable(f"{path} is an export; move it out of the directory, and import it by itself")
        text = path.read_bytes().decode("utf-8-sig", "replace")
        try:
            notes, written = read_file(text, details)
        except InvalidInput as error:
            raise FileUnusable(f"{path}: {error.message}") from error
        at = path.stat().st_mtime
        made, ticked, spellings = sections_of(str(path), without_block(notes), at, project_id, kind_of)
        contents.ticked += ticked
        contents.spellings |= spellings
        for line in (*written, *(MemoryLine(memory, project_id) for memory in made)):
            where = f"{path}, “{excerpt(masked(line.memory.content))}”"
            try:
                contents.add(where, line)
            except InvalidInput as error:
                raise FileUnusable(f"nothing was imported: a memory in {where} is invalid: {error.message}") from error


def _read_details(file: Path, projects: dict[str, ProjectRef], details: dict[str, dict[str, Any]]) -> None:
    lines = file.read_bytes().splitlines()[1:] if _is_export(file) else []
    for number, raw in enumerate(lines, 2):
        try:
            about = msgspec.json.decode(raw, type=dict[str, Any])
            if "line" not in about:
                details[about["id"]] = about
            elif isinstance(line := decode_line(raw), ProjectLine):
                projects[line.id] = ProjectRef(line.id, line.path)
        except (*UNDECODABLE, LookupError, TypeError, InvalidInput) as error:
            raise FileUnusable(f"nothing was imported, because of line {number} of {file}: {error}") from error


def _summary_lines(facts: Mapping[str, Any], *, is_elsewhere: bool) -> list[str]:
    imported, present = facts["imported"], facts["present"]
    everywhere = " --all-projects" if is_elsewhere else ""
    verb = "would be imported" if facts["dry_run"] else "imported"
    line = f"{count(imported, 'memory')} {verb}, {present:,} already there"
    reasons = {"differing": "with a different text here", "replaced": "replaced or expired since"}
    reasons |= {"forgotten": f"forgotten, see 'remembrancer list --forgotten{everywhere}'"}
    remarks = [f"{len(facts[name]):,} {reason}" for name, reason in reasons.items() if facts[name]]
    line += f" ({', '.join(remarks)})" if remarks else ""
    if facts["skipped"]:
        line += f"; {len(facts['skipped']):,} skipped (the messages above say why)"
    if facts["ticked"]:
        line += f"; {count(facts['ticked'], 'ticked item')} left out as done"
    lines = [f"{line}."]
    if coming := facts.get("memories"):
        lines += [f"  {excerpt(memory['content'])}" for memory in coming[:MOST_NAMED]]
        lines += [f"  … and {len(coming) - MOST_NAMED:,} more"] if len(coming) > MOST_NAMED else []
    if not imported or facts["dry_run"]:
        return lines
    return [
        *lines,
        "They are found by words at once, and by meaning when they have vectors (see 'remembrancer model').",
        "After that, run 'remembrancer list --review' to see memories that contradict or nearly repeat others.",
        f"To undo this import, run 'remembrancer undo {facts['run_id']}{everywhere}'.",
    ]
