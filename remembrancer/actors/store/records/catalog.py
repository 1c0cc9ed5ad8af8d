"""The catalogue of a home: which projects it has, which share a lane, and what was decided about the models. These are
tables of the database; release 0.2.0 had files for them, which are taken in."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.migrations import FIRST_RELEASE, Schema, Step, copy_of
from remembrancer.actors.snapshots import opened
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.protocol.errors import FileLocked, FileUnusable
from remembrancer.protocol.paths import RuntimePaths, database_files, sync_directory
from remembrancer.protocol.writes import ProjectRef

SCHEMA: Final = Schema(Step("0.2.0", ""))
"""The version of the file that release 0.2.0 had."""
_PROJECTS: Final = """INSERT INTO projects (id, path, created_at, last_used_at, directory, first_commit)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET path = excluded.path, last_used_at = max(last_used_at, excluded.last_used_at),
    directory = coalesce(excluded.directory, directory), first_commit = coalesce(excluded.first_commit, first_commit)"""
decode_shares: Final = msgspec.json.Decoder(dict[str, str]).decode
"""Decodes `lanes/projects.json` of release 0.2.0: the lane of each project that shares one, and of the user under
`user`. Raises `msgspec.DecodeError`."""
logger = logging.getLogger(__name__)


class _Known(NamedTuple):
    path: str
    created_at: float
    last_used_at: float
    directory: str | None = None
    first_commit: str | None = None


class Catalog:
    """The projects of a home as its database and memory have them. Nothing is known until there is a database.

    A project's `path` is what its id was made from: its git common directory, or else its directory. `directory` is the
    root of the working tree that a session worked in last; several worktrees share one project. `first_commit` is that
    of its repository. `last_used_at` (seconds since the epoch) is when a session last began in it.

    Methods that note something are for the thread of the records, and raise what a transaction of the database does.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._database: SqliteFile | None = None
        self._projects: dict[str, _Known] = {}
        self._first_commits: dict[str, str] = {}
        """Of projects that are not registered yet."""
        self.lanes: Mapping[str, str] = {}
        """The lane of each project that shares one, and under `user` that of the user."""

    def attach(self, database: SqliteFile) -> None:
        """Know what a database says."""
        known = "SELECT id, path, created_at, last_used_at, directory, first_commit FROM projects"
        self._projects = {row[0]: _Known(*row[1:]) for row in database.read(known)}
        self.lanes = dict(database.read("SELECT name, lane FROM shares"))
        self._database = database

    def register(self, project: ProjectRef) -> None:
        """Note that there is a project. One that is known is not used by that."""
        now = self._clock()
        known = self._projects.get(project.id, _Known(project.path, now, now))
        commit = self._first_commits.pop(project.id, known.first_commit)
        self._put(project.id, known._replace(path=project.path, first_commit=commit))

    def note_session(self, project: ProjectRef, directory: str | None) -> None:
        """Note that a session has begun in a registered project, and (if it is known) in which working tree."""
        known = self._projects.get(project.id)
        if known is not None:
            self._put(project.id, known._replace(last_used_at=self._clock(), directory=directory or known.directory))

    def first_commit_of(self, project_id: str) -> str:
        """The first commit of a project's repository; empty where nobody has said which."""
        known = self._projects.get(project_id)
        return (known and known.first_commit) or self._first_commits.get(project_id, "")

    def note_first_commit(self, project_id: str, commit: str) -> None:
        """Keep the first commit of a project's repository: of one that is not registered yet, until it is."""
        known = self._projects.get(project_id)
        if known is None:
            self._first_commits[project_id] = commit
        elif known.first_commit != commit:
            self._put(project_id, known._replace(first_commit=commit))

    def alike(self, project_id: str, commit: str) -> list[ProjectRef]:
        """The other projects whose repository has that first commit, the last used first."""
        return [
            project
            for project in self.projects()
            if project.id != project_id and self._projects[project.id].first_commit == commit
        ]

    def age_s(self, project_id: str) -> float:
        """For how many seconds a project has been known."""
        known = self._projects.get(project_id)
        return 0.0 if known is None else self._clock() - known.created_at

    def move(self, connection: sqlite3.Connection, old: str, new: ProjectRef, directory: str) -> None:
        """Have a project lie elsewhere: what was known of it is known of its new place. Inside a transaction."""
        now = self._clock()
        known = self._projects.pop(old, _Known(new.path, now, now))
        there = self._projects.get(new.id, known)
        self._projects[new.id] = moved = _Known(
            new.path,
            min(known.created_at, there.created_at),
            max(known.last_used_at, there.last_used_at),
            directory,
            there.first_commit or known.first_commit,
        )
        connection.execute("DELETE FROM projects WHERE id = ?", (old,))
        connection.execute(_PROJECTS, (new.id, *moved))

    def projects(self) -> list[ProjectRef]:
        """All projects, the last used first."""
        by_use = sorted(self._projects.items(), key=lambda item: item[1].last_used_at, reverse=True)
        return [ProjectRef(project_id, known.path) for project_id, known in by_use]

    def note_lanes(self, lanes: Mapping[str, str]) -> None:
        """From now on these share lanes, and no others."""
        with self._open.transaction() as connection:
            connection.execute("DELETE FROM shares")
            connection.executemany("INSERT INTO shares VALUES (?, ?)", lanes.items())
        self.lanes = dict(lanes)

    def note_models(self, state: bytes) -> None:
        """Keep what was decided about the models."""
        with self._open.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO models VALUES (1, ?)", (state,))

    def models(self) -> bytes | None:
        """The decisions about the models; None: nothing yet, or it cannot be read."""
        rows = [] if self._database is None else self._database.read("SELECT state FROM models")
        return bytes(rows[0][0]) if rows else None

    def _put(self, project_id: str, known: _Known) -> None:
        with self._open.transaction() as connection:
            connection.execute(_PROJECTS, (project_id, *known))
        self._projects[project_id] = known

    @property
    def _open(self) -> SqliteFile:
        if self._database is None:
            raise FileLocked("the memories are being opened")
        return self._database


def former_files(paths: RuntimePaths) -> list[Path]:
    """The files of a home in which release 0.2.0 kept its catalogue, as far as they are there."""
    return [path for path in (paths.catalog, paths.shares) if os.path.lexists(path)]


def take_in_former(connection: sqlite3.Connection, paths: RuntimePaths) -> None:
    """Take the catalogue of release 0.2.0 into a database. What is known there already stays. Inside a transaction.

    Of a catalogue that is damaged nothing is taken: each project comes again with its next session.

    Raises:
        FileUnusable: it cannot be read which projects share a lane. Without that, what is shared would be a project's
            own again.
    """
    if os.path.lexists(paths.catalog):
        try:
            with opened(paths.catalog) as old:
                columns = "id, path, created_at, last_used_at, directory, first_commit"
                projects = old.execute(f"SELECT {columns} FROM projects").fetchall()  # noqa: S608 - our names
                models = old.execute("SELECT number, state FROM models").fetchall()
        except sqlite3.Error as error:
            logger.error("the former catalogue cannot be read", extra={"reason": str(error)})
        else:
            connection.executemany(_PROJECTS, projects)
            connection.executemany("INSERT OR IGNORE INTO models VALUES (?, ?)", models)
    connection.executemany("INSERT OR IGNORE INTO shares VALUES (?, ?)", former_shares(paths).items())


def former_shares(paths: RuntimePaths) -> dict[str, str]:
    """The lanes that are shared, by the file that release 0.2.0 has left. Raises `FileUnusable` for a damaged one."""
    try:
        return decode_shares(paths.shares.read_bytes()) if os.path.lexists(paths.shares) else {}
    except (OSError, msgspec.DecodeError) as error:
        raise FileUnusable(f"{paths.shares} cannot be read ({error}): put back a backup of it") from error


def put_former_aside(paths: RuntimePaths) -> None:
    """Keep the files that were taken in under the names that copies for a return to release 0.2.0 have."""
    for path in former_files(paths):
        files = zip(database_files(path), database_files(copy_of(path, FIRST_RELEASE)), strict=True)
        for old, new in reversed(list(files)):  # the log first: what is in it was taken in
            if os.path.lexists(old):
                old.replace(new)
        sync_directory(path.parent)
