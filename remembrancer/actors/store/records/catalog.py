"""The catalogue of a home: which projects it has, and what was decided about the models."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from remembrancer.actors.store.records.schema import CATALOG_VERSION, version_of
from remembrancer.actors.store.records.sqlite_file import DAMAGED, as_error, not_opened, unusable
from remembrancer.protocol.errors import RecordsUnusable, SchemaTooNew
from remembrancer.protocol.writes import ProjectRef

logger = logging.getLogger(__name__)


_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS projects (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, created_at REAL NOT NULL, last_used_at REAL NOT NULL, directory TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (number INTEGER PRIMARY KEY CHECK (number = 1), state BLOB NOT NULL);
"""


class Catalog:
    """The catalogue of a home, a small SQLite file: which projects it has, and what was decided about the models.

    A project's `path` is what its id was made from: its git common directory, or else its directory. `directory` is the
    root of the working tree that a session worked in last; several worktrees share one project. `last_used_at` (seconds
    since the epoch) is when a session last began in it. Notes are made on the store's writer thread; one that cannot be
    written is logged and let go.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        try:
            self._open(path)
        except DAMAGED as error:
            reason = not_opened(path, error)
            if not isinstance(reason, RecordsUnusable):
                raise reason from error
            self._set_aside(path, error)
            self._open(path)

    def _open(self, path: Path) -> None:
        found = version_of(path)
        if found > CATALOG_VERSION:
            raise SchemaTooNew(f"{path} has version {found}, this release reads up to {CATALOG_VERSION}")
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        if found < CATALOG_VERSION:
            self._connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {CATALOG_VERSION};COMMIT;")
        for table in ("projects", "models"):
            self._connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our names

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Keep a damaged catalogue under another name: what it says comes again with each project's next session.

        Raises:
            RecordsUnusable: its name cannot be changed.
        """
        aside = f"catalog.damaged-{int(self._clock())}"
        logger.error("the catalogue is damaged and set aside", extra={"as": aside, "reason": str(error)})
        try:
            for ending in ("", "-wal", "-shm"):
                beside = path.with_name(path.name + ending)
                if beside.exists():
                    beside.replace(path.with_name(aside + ending))
        except OSError as problem:
            raise unusable(path, problem) from error

    def register(self, project: ProjectRef) -> None:
        """Note that there is a project. One that is known is not used by that."""
        now = self._clock()
        self._note(
            """INSERT INTO projects (id, path, created_at, last_used_at) VALUES (?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET path = excluded.path""",
            (project.id, project.path, now, now),
        )

    def note_session(self, project: ProjectRef, directory: str | None) -> None:
        """Note that a session has begun in a registered project, and (if it is known) in which working tree."""
        self._note(
            "UPDATE projects SET last_used_at = ?, directory = coalesce(?, directory) WHERE id = ?",
            (self._clock(), directory, project.id),
        )

    def projects(self) -> list[ProjectRef]:
        """All projects, the last used first."""
        try:
            rows = self._connection.execute("SELECT id, path FROM projects ORDER BY last_used_at DESC").fetchall()
        except sqlite3.Error as error:
            logger.warning("the catalogue cannot be read", extra={"reason": str(error)})
            return []
        return [ProjectRef(*row) for row in rows]

    def note_models(self, state: bytes) -> None:
        """Keep what was decided about the models.

        Raises:
            RecordsUnusable, StorageFull, InternalError: it cannot be written.
        """
        try:
            self._connection.execute("INSERT OR REPLACE INTO models VALUES (1, ?)", (state,))
        except sqlite3.Error as error:
            raise as_error(self._path, error) from error

    def models(self) -> bytes | None:
        """What was decided about the models; None: nothing yet."""
        row = self._connection.execute("SELECT state FROM models").fetchone()
        return None if row is None else bytes(row[0])

    def _note(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:  # the catalogue only helps: the memories are elsewhere
            logger.warning("the catalogue cannot be written", extra={"reason": str(error)})

    def close(self) -> None:
        """Close. May be called twice."""
        self._connection.close()
