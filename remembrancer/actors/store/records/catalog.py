"""The catalogue of a home: which projects it has, and what was decided about the models."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer.actors.migrations import Schema, Step
from remembrancer.actors.store.records.sqlite_file import DAMAGED, as_error, not_opened, unusable
from remembrancer.protocol.errors import RecordsUnusable, RemembrancerError
from remembrancer.protocol.paths import database_files, look_at_database
from remembrancer.protocol.writes import ProjectRef

logger = logging.getLogger(__name__)


NAME: Final = "catalog"
"""Of the thread that writes it."""
WAIT_S: Final = 0.1
"""The time that another program's lock is waited for: nobody's memories depend on it."""
AGAIN_S: Final = 2.0
"""The time that after a failed attempt it is opened again, if something is to be noted."""
SCHEMA: Final = Schema(
    Step(
        "0.2.0",
        """
    CREATE TABLE projects (
        id TEXT PRIMARY KEY, path TEXT NOT NULL, created_at REAL NOT NULL, last_used_at REAL NOT NULL, directory TEXT,
        first_commit TEXT
    ) WITHOUT ROWID;
    CREATE TABLE models (number INTEGER PRIMARY KEY CHECK (number = 1), state BLOB NOT NULL);
    CREATE TABLE files (name TEXT PRIMARY KEY) WITHOUT ROWID;
    """,
    )
)
_PROJECTS: Final = """INSERT INTO projects (id, path, created_at, last_used_at, directory, first_commit)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET path = excluded.path, last_used_at = max(last_used_at, excluded.last_used_at),
    directory = coalesce(excluded.directory, directory), first_commit = coalesce(excluded.first_commit, first_commit)"""


class _Known(NamedTuple):
    path: str
    created_at: float
    last_used_at: float
    directory: str | None = None
    first_commit: str | None = None


class Catalog:
    """The catalogue of a home, a small SQLite file: which projects it has, and what was decided about the models.

    A project's `path` is what its id was made from: its git common directory, or else its directory. `directory` is the
    root of the working tree that a session worked in last; several worktrees share one project. `first_commit` is that
    of its repository. `last_used_at` (seconds since the epoch) is when a session last began in it.

    Notes are made on a thread of its own; one that cannot be written is kept in memory. A file that cannot be opened
    (`problem` says why) is left as it is and tried again; one that is damaged is set aside, and what it said comes
    again with each project's next session.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._projects: dict[str, _Known] = {}
        self._files: set[str] = set()
        self._first_commits: dict[str, str] = {}
        """Of projects that are not registered yet."""
        self._again_at = 0.0
        self.problem: str | None = None
        self._try_open()
        self._is_late = self._connection is None
        """Then what was decided about the models is not known here, and is not to be replaced."""

    def _try_open(self) -> sqlite3.Connection | None:
        if self._connection is None and self._clock() >= self._again_at:
            try:
                self._connection = self._opened()
            except RemembrancerError as error:
                if self.problem != error.message:
                    logger.error("the catalogue cannot be used", extra={"code": error.code, "reason": error.message})
                self.problem = error.message
                self._again_at = self._clock() + AGAIN_S
            else:
                self.problem = None
                self._take_in(self._connection)
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        look = look_at_database(self._path)
        if look.problem is not None:
            raise RecordsUnusable(look.problem)
        if not look.size_bytes and any(self._path.parent.glob("projects/p_*")):
            with contextlib.suppress(OSError):
                self._path.touch(mode=0o600)  # it was there: what is set aside says so
            self._set_aside(RecordsUnusable(f"{self._path} is missing or empty"))
        try:
            return self._open()
        except DAMAGED as error:
            reason = not_opened(self._path, error)
            if not isinstance(reason, RecordsUnusable):
                raise reason from error
            self._set_aside(error)
        try:
            return self._open()
        except DAMAGED as error:
            raise not_opened(self._path, error) from error

    def _open(self) -> sqlite3.Connection:
        path = self._path
        SCHEMA.check(path, WAIT_S)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=WAIT_S)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            SCHEMA.migrate(connection, path)
            for table in ("projects", "models", "files"):
                connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our names
        except BaseException:
            connection.close()
            raise
        return connection

    def _take_in(self, connection: sqlite3.Connection) -> None:
        """Know what the file says, and write into it what was noted before it could be opened."""
        noted, files = self._projects, self._files
        rows = connection.execute(
            "SELECT id, path, created_at, last_used_at, directory, first_commit FROM projects"
        ).fetchall()
        self._projects = {row[0]: _Known(*row[1:]) for row in rows} | noted
        self._files = {row[0] for row in connection.execute("SELECT name FROM files")} | files
        for project_id, known in noted.items():
            self._note(_PROJECTS, (project_id, *known))
        for name in files:
            self._note("INSERT OR IGNORE INTO files VALUES (?)", (name,))

    def _set_aside(self, error: Exception) -> None:
        """Keep a damaged catalogue under another name: what it says comes again with each project's next session.

        Raises:
            RecordsUnusable: its name cannot be changed.
        """
        path, aside = self._path, f"catalog.damaged-{int(self._clock())}"
        logger.error("the catalogue is damaged and set aside", extra={"as": aside, "reason": str(error)})
        try:
            for old, new in zip(database_files(path), database_files(path.with_name(aside)), strict=True):
                if old.exists():
                    old.replace(new)
        except OSError as problem:
            raise unusable(path, problem) from error

    def knows(self, name: str) -> bool:
        """True if the records of that name were made once: `user` stands for all; release 0.2.0 named projects, too."""
        return name in self._files

    def note_file(self, name: str) -> None:
        """Note that there is a file of records."""
        if name not in self._files:
            self._files.add(name)
            self._note("INSERT OR IGNORE INTO files VALUES (?)", (name,))

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

    def move(self, old: str, new: ProjectRef, directory: str) -> None:
        """Have a project lie elsewhere: what was known of it is known of its new place."""
        now = self._clock()
        known = self._projects.pop(old, _Known(new.path, now, now))
        there = self._projects.get(new.id, known)
        self._note("DELETE FROM projects WHERE id = ?", (old,))
        self._put(
            new.id,
            _Known(
                new.path,
                min(known.created_at, there.created_at),
                max(known.last_used_at, there.last_used_at),
                directory,
                there.first_commit or known.first_commit,
            ),
        )

    def _put(self, project_id: str, known: _Known) -> None:
        self._projects[project_id] = known
        self._note(_PROJECTS, (project_id, *known))

    def projects(self) -> list[ProjectRef]:
        """All projects, the last used first."""
        by_use = sorted(self._projects.items(), key=lambda item: item[1].last_used_at, reverse=True)
        return [ProjectRef(project_id, known.path) for project_id, known in by_use]

    def note_models(self, state: bytes) -> None:
        """Keep what was decided about the models.

        Raises:
            RecordsUnusable, StorageFull, FileLocked, InternalError: it cannot be written.
        """
        connection = self._try_open()
        if connection is None:
            raise RecordsUnusable(self.problem or f"{self._path} is being opened")
        if self._is_late and self.models() not in (None, state):
            raise RecordsUnusable(
                f"{self._path} could not be read at the start: its choice of a model counts at the next"
            )
        try:
            connection.execute("INSERT OR REPLACE INTO models VALUES (1, ?)", (state,))
        except sqlite3.Error as error:
            raise as_error(self._path, error) from error

    def models(self) -> bytes | None:
        """The decisions about the models; None: nothing yet, or it cannot be read."""
        if self._connection is None:
            return None
        row = self._connection.execute("SELECT state FROM models").fetchone()
        return None if row is None else bytes(row[0])

    def _note(self, statement: str, values: tuple[object, ...]) -> None:
        connection = self._try_open()
        if connection is None:
            return
        try:
            connection.execute(statement, values)
        except sqlite3.Error as error:  # the catalogue only helps: the memories are elsewhere
            logger.warning("the catalogue cannot be written", extra={"reason": str(error)})

    def close(self) -> None:
        """Close. May be called twice."""
        if self._connection is not None:
            self._connection.close()
