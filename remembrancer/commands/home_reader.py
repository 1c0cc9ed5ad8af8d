"""Reads a whole home for commands: lists its projects, copies or exports it, and checks its files.

Each function reads one snapshot of the records, with or without a running store. Unless stated otherwise, it raises
`SchemaTooNew`, `SchemaTooOld`, `RecordsUnusable`, `FileLocked` or `StorageFull` if a file of the home cannot be read.
"""

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple

import msgspec

from remembrancer.actors.migrations import Schema, damage_in, release_of
from remembrancer.actors.snapshots import Snapshot, copy_database, opened, snapshot_of, unreadable
from remembrancer.actors.store.old_home_migration import is_old, old_files
from remembrancer.actors.store.records.catalog import REMEMBERED, RememberedProject, former_project
from remembrancer.actors.store.records.memory_rows import read_portable
from remembrancer.actors.store.records.schema import FORMER, MEMORY
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.types import USER
from remembrancer.config.project import directory_of, project_of
from remembrancer.memory.export_format import EndLine, Line, MemoryLine, ProjectLine, encode_header, encode_line
from remembrancer.memory.sentences import excerpt
from remembrancer.protocol.errors import (
    FileLocked,
    FileUnusable,
    InvalidInput,
    RecordsUnusable,
    SchemaTooNew,
    SchemaTooOld,
)
from remembrancer.protocol.ids import PROJECT_ID
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION

RECORDS: Final = "memory.db"
WORDS: Final = 80
"""The number of characters by which a person can recognise a memory."""
PROJECTS: Final = f"""
    SELECT own.name, path, directory, created_at, coalesce(max(last_used_at, (SELECT max(changed_at) FROM history WHERE
            space = own.number AND session_id IN ('{BROWSER_SESSION}', '{SHELL_SESSION}'))), last_used_at) AS used_at,
        CAST(total(count) FILTER (WHERE NOT forgotten) AS INTEGER),
        CAST(total(count) FILTER (WHERE forgotten) AS INTEGER),
        (SELECT count(*) FROM sessions WHERE space = own.number
            AND session_id NOT IN ('{BROWSER_SESSION}', '{SHELL_SESSION}')), shares.lane
    FROM spaces AS own LEFT JOIN projects ON id = own.name LEFT JOIN shares USING (name)
        LEFT JOIN spaces AS lane ON lane.name = shares.lane
        LEFT JOIN tallies ON space IN (own.number, lane.number)
    GROUP BY own.number ORDER BY coalesce(used_at, 0) DESC, own.name"""  # noqa: S608 - fixed
SPACES: Final = """
    SELECT own.name, path, own.number, lane.number
    FROM spaces AS own LEFT JOIN projects ON id = own.name LEFT JOIN shares USING (name)
        LEFT JOIN spaces AS lane ON lane.name = shares.lane
    WHERE own.name NOT GLOB 'l_*' ORDER BY own.name"""
FIND: Final = """
    SELECT own.name, id, content, iif(forgotten_at IS NULL, NULL, coalesce(forgotten_reason, '')), source ->> 'file',
        occurred_at, valid_until
    FROM spaces AS own
        JOIN spaces AS part ON part.name = own.name OR part.name = (SELECT lane FROM shares WHERE name = own.name)
        JOIN memories ON space = part.number
    WHERE own.name IN (SELECT value FROM json_each(?))
        AND (id IN (SELECT value FROM json_each(?)) OR source ->> 'file' IN (SELECT value FROM json_each(?))
            OR (content IN (SELECT value FROM json_each(?)) AND scope != 'session'))"""
RESTORE: Final = "'remembrancer down', then 'remembrancer doctor --repair'; or restore a backup"


def memories_in(database: Path) -> int:
    """Counts forgotten memories, too. Raises `sqlite3.Error`."""
    with opened(database) as connection:
        return int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])


def has_later(former: Path, database: Path) -> bool:
    """True if the newest memory in a file from release 0.2.0 was never in the database."""
    known = """SELECT id FROM memories WHERE id = :id UNION ALL SELECT alias FROM aliases WHERE alias = :id
        UNION ALL SELECT memory_id FROM erased WHERE memory_id = :id"""
    with suppress(sqlite3.Error), opened(former) as old, opened(database) as new:
        newest = old.execute("SELECT id FROM memories ORDER BY created_at DESC LIMIT 1").fetchone()
        return newest is not None and new.execute(known, {"id": newest[0]}).fetchone() is None
    return False


class KnownProject(msgspec.Struct, frozen=True):
    """Times are epoch seconds. The id was derived from `path`. `directory` is the working tree of the latest session.
    `memories` counts those that are not forgotten, including any in the `lane` that the project shares."""

    id: str
    path: str | None
    directory: str | None
    created_at: float | None
    last_used_at: float | None
    memories: int
    forgotten: int
    sessions: int
    lane: str | None = None


class FoundMemory(NamedTuple):
    """A memory of the project with the id `place`, or of the user. `forgotten` is the reason, which may be empty."""

    place: str
    id: str
    content: str
    forgotten: str | None
    file: str | None = None
    occurred_at: float | None = None
    valid_until: float | None = None


class ExaminedFile(msgspec.Struct, frozen=True):
    """The state of a records file. `found` may quote SQLite, which names pages and rows but never their content."""

    path: str
    size_bytes: int
    status: Literal["ok", "warning", "problem"] = "ok"
    found: str = ""
    advice: str = ""


def _records(paths: RuntimePaths, *, leaves_no_log: bool = False) -> AbstractContextManager[Snapshot | None]:
    _refuse_older(paths)
    return snapshot_of(paths.database, MEMORY, leaves_no_log=leaves_no_log)


def _refuse_older(paths: RuntimePaths) -> None:
    if is_old(paths) or MEMORY.is_older(paths.database):
        raise RecordsUnusable(
            f"{paths.home} was last used by an earlier release; run 'remembrancer list', which upgrades it and "
            "keeps its files; then run this again"
        )


def known_projects(paths: RuntimePaths) -> list[KnownProject]:
    """The projects that have memories, the most recently used first."""
    with _records(paths, leaves_no_log=True) as file:
        rows = [] if file is None else file.rows(PROJECTS)
    return [
        KnownProject(name, path, (directory or path) and directory_of(directory or path), *others)
        for name, path, directory, *others in rows
        if PROJECT_ID.fullmatch(name)
    ]


def moved_project(paths: RuntimePaths, directory: Path) -> RememberedProject | None:
    with _records(paths, leaves_no_log=True) as file:
        rows = [] if file is None else file.rows(REMEMBERED)
    return former_project(rows, project_of(directory), directory, time.time())


def find_memories(
    paths: RuntimePaths,
    projects: Iterable[str],
    memory_ids: Iterable[str],
    files: Iterable[str] = (),
    texts: Iterable[str] = (),
) -> list[FoundMemory]:
    values = tuple(json.dumps(list(each)) for each in ((USER, *projects), memory_ids, files, texts))
    with _records(paths) as file:
        rows = [] if file is None else file.rows(FIND, values)
    return [FoundMemory(*row) for row in rows]


def first_words(paths: RuntimePaths, projects: Iterable[str], memory_ids: Iterable[str]) -> dict[str, str]:
    return {memory.id: excerpt(memory.content, WORDS) for memory in find_memories(paths, projects, memory_ids)}


def read_models(paths: RuntimePaths) -> bytes | None:
    with suppress(sqlite3.Error), opened(paths.database) as connection:
        for (state,) in connection.execute("SELECT state FROM models"):
            return bytes(state)
    return None


def examine_files(paths: RuntimePaths) -> list[ExaminedFile]:
    database, files = paths.database, []
    has_database = os.path.lexists(database)
    for path in [database] if has_database else old_files(paths).values():
        schema = MEMORY if has_database else FORMER
        condition = examine_file(path, schema)
        # A store may have moved pages during the read, so a bad result is checked once more.
        files.append(condition if condition.status == "ok" else examine_file(path, schema))
    return files


def copy_records(paths: RuntimePaths, target: Path) -> bool:
    """Returns False if there are no records."""
    _refuse_older(paths)
    return copy_database(paths.database, MEMORY, target)


def export_records(paths: RuntimePaths, projects: Collection[str], output: IO[bytes], name: str) -> dict[str, int]:
    """Without `projects`, export all projects and the user's memories. A project's export includes the lane that it
    shares. Raises `InvalidInput` for an unknown project, and `FileUnusable` also if there are no memories."""
    with _records(paths) as file:
        rows = [] if file is None else file.rows(SPACES)
        spaces = {name: (path or "", list(filter(None, numbers))) for name, path, *numbers in rows}
        known = list(filter(PROJECT_ID.fullmatch, spaces))
        missing = sorted(set(projects).difference(known))
        if missing:
            known_ids = ", ".join(known) or "-"
            raise InvalidInput(f"this home has no memories of {', '.join(missing)}: it has memories of {known_ids}")
        if file is None or not spaces:
            raise FileUnusable(f"there are no memories in {paths.home}: nothing to export")
        written = {"projects": 0, "memories": 0, "forgotten": 0}
        wanted = projects or [*known, *({USER} & spaces.keys())]
        lines = chain.from_iterable(_lines_of(file.connection, space, *spaces[space], written) for space in wanted)
        try:
            # A separate buffer: on a full disk, closing it fails like the write, and this must happen inside the `try`.
            with open(output.fileno(), "wb", closefd=False) as buffered:
                buffered.write(encode_header(time.time()))
                buffered.writelines(map(encode_line, lines))
                buffered.write(encode_line(EndLine(written["projects"], written["memories"])))
        except sqlite3.Error as error:
            raise unreadable(file.path, error) from error
        except ValueError as error:  # stored JSON that cannot be decoded
            raise RecordsUnusable(f"{file.path} is damaged ({error}); restore a backup of it") from error
        except OSError as error:
            raise FileUnusable(f"{name} cannot be written: {error.strerror or error}") from error
    return written


def _lines_of(
    connection: sqlite3.Connection, name: str, path: str, spaces: Sequence[int], written: dict[str, int]
) -> Iterator[Line]:
    project = None if name == USER else name
    if project is not None:
        written["projects"] += 1
        yield ProjectLine(project, path)
    for space in spaces:
        query = SpaceConnection(connection, space).query
        for (memory_id,) in query("SELECT id FROM memories WHERE space = @SPACE ORDER BY number"):
            memory = read_portable(query, memory_id, None)
            if memory is not None:
                written["memories"] += 1
                written["forgotten"] += memory.forgotten_at is not None
                yield MemoryLine(memory, project)


def examine_file(path: Path, schema: Schema) -> ExaminedFile:
    examined = partial(ExaminedFile, str(path), path.stat().st_size if path.exists() else 0)
    is_former = schema is FORMER  # it is imported, never repaired
    advice_if_damaged = "restore a backup of it, or move it elsewhere" if is_former else RESTORE
    try:
        with opened(path) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            schema.refuse(path, version)
            damage = damage_in(connection)
            dangling = len(connection.execute("PRAGMA foreign_key_check").fetchall())
    except (SchemaTooNew, SchemaTooOld) as error:
        return examined("problem", *error.message.removeprefix(f"{path} ").split(": ", 1))
    except sqlite3.Error as error:
        problem = unreadable(path, error)
        if isinstance(problem, RecordsUnusable):
            return examined("problem", f"cannot be read: {error}", advice_if_damaged)
        parts = problem.message.replace(str(path), "\0").rsplit(": ", 1)  # a path may contain this, too
        found_and_advice = (part.replace("\0", str(path)) for part in parts)
        return examined("warning" if isinstance(problem, FileLocked) else "problem", *found_and_advice)
    if damage is not None:
        return examined("problem", f"damaged: {damage}", advice_if_damaged)
    if dangling:
        return examined("problem", f"{dangling} rows refer to missing rows", advice_if_damaged)
    if 0 < version < schema.latest and not is_former:
        return examined("ok", f"from release {release_of(version)}: it is copied and upgraded when next opened")
    return examined()
