"""The catalogue of a home: which projects it has, and which model made vectors last."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.store.records.schema import CATALOG_VERSION, version_of
from remembrancer.actors.store.records.sqlite_file import DAMAGED, as_error, is_for_want_of_room, unusable
from remembrancer.protocol.errors import SchemaTooNew
from remembrancer.protocol.work import ModelIdentity
from remembrancer.protocol.writes import ProjectRef

logger = logging.getLogger(__name__)


_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS projects (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, created_at REAL NOT NULL, last_used_at REAL NOT NULL, directory TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (
    key TEXT PRIMARY KEY, identity BLOB NOT NULL, last_used_at REAL NOT NULL
) WITHOUT ROWID;
"""


class Catalog:
    """The catalogue of a home, a small SQLite file: which projects it has, and which model made vectors last.

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
            if isinstance(error, sqlite3.Error) and is_for_want_of_room(path, error):
                raise as_error(path, error) from error
            self._set_aside(path, error)
            self._open(path)

    def _open(self, path: Path) -> None:
        found = version_of(path)
        if found > CATALOG_VERSION:
            raise SchemaTooNew(f"{path} has version {found}, this release reads up to {CATALOG_VERSION}")
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
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

    def note_model(self, identity: ModelIdentity) -> None:
        """Note that a model makes the vectors from now on."""
        self._note(
            "INSERT OR REPLACE INTO models VALUES (?, ?, ?)",
            (identity.key, msgspec.msgpack.encode(identity), self._clock()),
        )

    def last_model(self) -> ModelIdentity | None:
        """The model that made vectors last."""
        row = self._connection.execute("SELECT identity FROM models ORDER BY last_used_at DESC LIMIT 1").fetchone()
        try:
            return None if row is None else msgspec.msgpack.decode(row[0], type=ModelIdentity)
        except ValueError:  # of another release: the workers will say which model it is now
            return None

    def _note(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:  # the catalogue only helps: the memories are elsewhere
            logger.warning("the catalogue cannot be written", extra={"reason": str(error)})

    def close(self) -> None:
        """Close. May be called twice."""
        self._connection.close()
