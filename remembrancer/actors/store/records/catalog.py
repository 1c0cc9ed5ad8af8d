"""The catalogue of a home, in its database: the projects, their shared lanes, and the decisions about models."""

import math
import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.types import Clock
from remembrancer.config.project import directory_of, is_gone
from remembrancer.protocol.errors import FileLocked
from remembrancer.protocol.problems import OPENING
from remembrancer.protocol.writes import ProjectRef

NEW_S: Final = 7 * 86400.0
"""Up to this age of its first memory, a project may be an older project that was moved."""
REMEMBERED: Final = """
    SELECT id, path, last_used_at, CAST(total(count) AS INTEGER),
        min((SELECT created_at FROM memories WHERE space = tallies.space ORDER BY number LIMIT 1)),
        max((SELECT created_at FROM memories WHERE space = tallies.space ORDER BY number DESC LIMIT 1))
    FROM projects JOIN spaces AS own ON own.name = id LEFT JOIN shares ON shares.name = id
        LEFT JOIN spaces AS lane ON lane.name = shares.lane
        JOIN tallies ON space IN (own.number, lane.number) AND NOT forgotten
    GROUP BY id HAVING total(count) ORDER BY last_used_at DESC"""


class RememberedProject(NamedTuple):
    """A row of `REMEMBERED`: a project that has memories, with the times of the first and the last one of them."""

    id: str
    path: str
    last_used_at: float
    memories: int
    first_at: float
    newest_at: float

    @property
    def directory(self) -> Path:
        return Path(directory_of(self.path))


def former_project(
    remembered: Iterable[tuple[Any, ...]], project: ProjectRef, directory: Path, now: float
) -> RememberedProject | None:
    """The project in the rows of `REMEMBERED` that was probably moved to `project`, as seen from a directory. Its own
    directory is gone, and the new one is the same after `git init`, has the same name, or is next to it and contains
    something older than the newest memory. If `project` has memories, the first one must be recent, and later than any
    use of the former one. An imported memory counts from its original time."""
    known = [RememberedProject(*row) for row in remembered]
    first_at = next((each.first_at for each in known if each.id == project.id), now)
    here, oldest, is_new = Path(directory_of(project.path)), math.inf, now - first_at <= NEW_S

    def is_missing(former: RememberedProject) -> bool:
        return is_gone(ProjectRef(former.id, former.path))

    def may_be(former: RememberedProject) -> bool:
        place, is_late = former.directory, not is_new or max(former.last_used_at, former.newest_at) > first_at
        is_renamed = place.parent == here.parent and oldest < former.newest_at
        return place in (directory, here) or (not is_late and (place.name == here.name or is_renamed))

    # Reads the disk as little as possible, since every request for context runs this.
    if is_new and any(each.directory.parent == here.parent and is_missing(each) for each in known):
        with suppress(OSError), os.scandir(here) as entries:
            oldest = min((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=math.inf)
    near = [each for each in known if may_be(each) and is_missing(each)]

    def distance(former: RememberedProject) -> tuple[bool, ...]:
        place = former.directory
        return place != directory, place != here, place.name != here.name

    return min(near, key=distance, default=None)


class Catalog:
    """The projects of a home. Empty until there is a database. `directory` is the root of the working tree in which a
    session last ran; several worktrees share one project. `last_used_at` (seconds since the epoch) is the start of the
    latest session.

    Methods that write run on the records' thread, and raise the same errors as a database transaction.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.database: SqliteFile | None = None

    def note_session(self, project: ProjectRef, directory: str | None = None) -> None:
        """Record the start of a session in a project and, if known, its working tree. Also registers the project."""
        self._write(
            """INSERT INTO projects (id, path, created_at, last_used_at, directory) VALUES (?1, ?2, ?3, ?3, ?4)
               ON CONFLICT DO UPDATE SET path = excluded.path, last_used_at = excluded.last_used_at,
               directory = coalesce(excluded.directory, directory)""",
            (project.id, project.path, self._clock(), directory or None),
        )

    def path_of(self, project_id: str) -> str:
        """Return the path of a project; empty if it is not registered."""
        rows = self._read("SELECT path FROM projects WHERE id = ?", (project_id,))
        return str(rows[0][0]) if rows else ""

    def move(self, connection: sqlite3.Connection, old: str, new: ProjectRef, directory: str) -> None:
        """Move a project's entry to a new path, and merge it with an entry there. Must run inside a transaction."""
        connection.execute(
            """INSERT OR REPLACE INTO projects (id, path, created_at, last_used_at, directory)
               SELECT ?1, ?2, coalesce(min(created_at), ?3), coalesce(max(last_used_at), ?3), ?4
               FROM projects WHERE id IN (?1, ?5)""",
            (new.id, new.path, self._clock(), directory, old),
        )
        connection.execute("DELETE FROM projects WHERE id = ?", (old,))

    def projects(self) -> list[ProjectRef]:
        """Return all projects, the most recently used first."""
        return [ProjectRef(*row) for row in self._read("SELECT id, path FROM projects ORDER BY last_used_at DESC")]

    def former_place(self, project: ProjectRef, directory: str) -> str:
        """Return the probable former directory of a project (see `former_project`); empty if there is none."""
        former = former_project(self._read(REMEMBERED), project, Path(directory), self._clock())
        return str(former.directory) if former else ""

    def share(self, name: str, lane: str) -> None:
        """Record the shared lane of a project, or of `user`. `SharedLane.leave` removes it."""
        self._write("INSERT INTO shares VALUES (?, ?)", (name, lane))

    def shares(self) -> list[tuple[str, str]]:
        return self._read("SELECT name, lane FROM shares ORDER BY name")

    def note_models(self, state: bytes) -> None:
        self._write("INSERT OR REPLACE INTO models VALUES (1, ?)", (state,))

    def models(self) -> bytes | None:
        """Return the decisions about the models; None if there are none, or they cannot be read."""
        rows = self._read("SELECT state FROM models")
        return bytes(rows[0][0]) if rows else None

    def _read(self, query: str, arguments: tuple[object, ...] = ()) -> list[Any]:
        return [] if self.database is None else self.database.read(query, arguments)

    def _write(self, statement: str, arguments: tuple[object, ...]) -> None:
        if self.database is None:
            raise FileLocked(OPENING)
        with self.database.transaction() as connection:
            connection.execute(statement, arguments)
