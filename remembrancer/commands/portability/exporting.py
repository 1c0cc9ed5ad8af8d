"""What an export has in it: the lines of the memories of a home, read from one moment of it, a memory at a time."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from remembrancer.actors.store.records.portable import read_portable
from remembrancer.actors.store.records.schema import SCHEMA_VERSION, migrate
from remembrancer.actors.store.records.session_registry import read_sessions
from remembrancer.commands.portability.export_format import EndLine, Line, MemoryLine, ProjectLine, SessionLine
from remembrancer.commands.portability.home_files import CATALOG, QUEUE, USER_RECORDS, HomeFile, unreadable
from remembrancer.protocol.errors import InvalidInput, RecordsUnusable
from remembrancer.protocol.writes import Scope


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
