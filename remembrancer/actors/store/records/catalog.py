"""The catalogue of a home, in tables of its database: its projects, their shared lanes, and the decisions about
models."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.protocol.errors import FileLocked
from remembrancer.protocol.writes import ProjectRef

INTO_PROJECTS: Final = """INSERT INTO projects (id, path, created_at, last_used_at, directory) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET path = excluded.path, last_used_at = max(last_used_at, excluded.last_used_at),
    directory = coalesce(excluded.directory, directory)"""
"""Registers a project, or notes what is new about it."""


class _Known(NamedTuple):
    path: str
    created_at: float
    last_used_at: float
    directory: str | None = None


class Catalog:
    """The projects of a home, cached from its database. Empty until there is a database.

    A project's `path` is the source of its id: its git common directory, or else its directory. `directory` is the root
    of the working tree last used by a session; several worktrees share one project. `last_used_at` (seconds since the
    epoch) is the start of its latest session.

    Methods that write run on the records' thread, and raise the errors of a database transaction.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._database: SqliteFile | None = None
        self._projects: dict[str, _Known] = {}
        self.lanes: Mapping[str, str] = {}
        """The lane of each sharing project, and the user's under `user`. Replaced, not changed: any thread may iterate
        over it."""

    def attach(self, database: SqliteFile) -> None:
        """Load the catalogue from a database."""
        known = "SELECT id, path, created_at, last_used_at, directory FROM projects"
        self._projects = {row[0]: _Known(*row[1:]) for row in database.read(known)}
        self.lanes = dict(database.read("SELECT name, lane FROM shares"))
        self._database = database

    def register(self, project: ProjectRef) -> None:
        """Register a project. Registering a known project does not count as use."""
        now = self._clock()
        known = self._projects.get(project.id, _Known(project.path, now, now))
        self._put(project.id, known._replace(path=project.path))

    def note_session(self, project: ProjectRef, directory: str | None) -> None:
        """Record the start of a session in a registered project and, if known, its working tree."""
        known = self._projects.get(project.id)
        if known is not None:
            self._put(project.id, known._replace(last_used_at=self._clock(), directory=directory or known.directory))

    def path_of(self, project_id: str) -> str:
        """Return the path of a project; empty if it is not registered."""
        known = self._projects.get(project_id)
        return "" if known is None else known.path

    def move(self, connection: sqlite3.Connection, old: str, new: ProjectRef, directory: str) -> None:
        """Move a project's entry to a new place, merging the two. Inside a transaction."""
        now = self._clock()
        known = self._projects.pop(old, _Known(new.path, now, now))
        there = self._projects.get(new.id, known)
        self._projects[new.id] = moved = _Known(
            new.path,
            min(known.created_at, there.created_at),
            max(known.last_used_at, there.last_used_at),
            directory,
        )
        connection.execute("DELETE FROM projects WHERE id = ?", (old,))
        connection.execute(INTO_PROJECTS, (new.id, *moved))

    def projects(self) -> list[ProjectRef]:
        """Return all projects, most recently used first."""
        by_use = sorted(self._projects.items(), key=lambda item: item[1].last_used_at, reverse=True)
        return [ProjectRef(project_id, known.path) for project_id, known in by_use]

    def share(self, name: str, lane: str) -> None:
        """Record the shared lane of a project, or of `user`. `SharedLane.leave` removes it."""
        with self._open.transaction() as connection:
            connection.execute("INSERT INTO shares VALUES (?, ?)", (name, lane))
        self.lanes = {**self.lanes, name: lane}

    def share_no_more(self, name: str) -> None:
        """Forget a lane that `SharedLane.leave` has ended."""
        self.lanes = {each: lane for each, lane in self.lanes.items() if each != name}

    def note_models(self, state: bytes) -> None:
        """Store the decisions about the models."""
        with self._open.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO models VALUES (1, ?)", (state,))

    def models(self) -> bytes | None:
        """Return the decisions about the models; None if there are none or they cannot be read."""
        rows = [] if self._database is None else self._database.read("SELECT state FROM models")
        return bytes(rows[0][0]) if rows else None

    def _put(self, project_id: str, known: _Known) -> None:
        with self._open.transaction() as connection:
            connection.execute(INTO_PROJECTS, (project_id, *known))
        self._projects[project_id] = known

    @property
    def _open(self) -> SqliteFile:
        if self._database is None:
            raise FileLocked("the memories are being opened")
        return self._database
