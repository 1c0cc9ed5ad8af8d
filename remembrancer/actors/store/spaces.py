"""Opens the spaces of a home, one for the user and one for each project. Projects are isolated from each other here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from remembrancer.actors.migrations import BACKUPS, note_made, was_made
from remembrancer.actors.sqlite_file import SqliteFile, unusable
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.file_index import FileIndex
from remembrancer.actors.store.old_home_migration import is_old, migrate_old_home
from remembrancer.actors.store.records.catalog import Catalog
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts, HomeTexts
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits, merge
from remembrancer.actors.store.records.sqlite_records import NO_LIMITS, Limits, Reader, Records
from remembrancer.actors.store.records.types import USER as USER
from remembrancer.actors.store.records.types import Clock
from remembrancer.protocol.errors import (
    FileLocked,
    RecordsUnusable,
    RemembrancerError,
    StorageFull,
    from_failure,
    size_on_disk,
)
from remembrancer.protocol.ids import PROJECT_ID, check_project_id
from remembrancer.protocol.paths import RuntimePaths, is_empty
from remembrancer.protocol.problems import OPENING
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.writes import ProjectRef, Scope

if TYPE_CHECKING:
    from remembrancer.actors.store.shared_lane import SharedLane

Lanes = Mapping[Scope | Literal["unshared"], Records]
"""The lane of each scope, narrowest first. Several scopes may have the same lane. `unshared` is the private space of a
user who shares a lane, with the memories that could not be shared."""
AGAIN_S: Final = 2.0
"""The minimum time before a failed attempt to open the database is repeated, on demand."""
OPENING_S: Final = 1.5
"""The maximum time that a request waits for the database to open: shorter than a read's budget."""
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class HomeSpaces:
    """The records of a home, in its one database. The database is opened immediately; if this fails, further attempts
    follow. A project gets its space on first use. A shared project is also read from its lane.

    A database that once existed and is now missing or empty is not recreated: writes wait until the user decides.
    """

    paths: RuntimePaths
    committer: Committer
    clock: Clock
    on_open: Callable[[Records], None]
    limits: Limits = NO_LIMITS
    open_lane: Callable[[str, SqliteFile, str, Limits], SharedLane] | None = None

    def __post_init__(self) -> None:
        self._database: SqliteFile | None = None
        self._open: dict[str, Records] = {}
        self._user: Records | None = None
        self.shared: dict[str, SharedLane] = {}
        """The shared lanes: those of projects by project id, and the user's by the name of the user's space."""
        self._unusable: str | None = None
        self.catalog = Catalog(self.clock)
        self.indexes: dict[str, FileIndex] = {}
        """The indexes of projects' own files, by project id. They are embedded like memories."""
        self._again_at = 0.0
        self._refusal = FileLocked(OPENING).to_failure()
        self._reopening: asyncio.Task[None] | None = None
        if MEMORY.is_older(self.paths.database) or is_old(self.paths):  # on a thread, since a migration may take long
            self._open_soon()
            return
        try:
            self._take(self._opened_database())
        except RemembrancerError as error:
            self._failed(error)

    def __iter__(self) -> Iterator[Records]:
        return iter([*([] if self._user is None else [self._user]), *self._open.values(), *self.shared.values()])

    # The database.

    @property
    def database(self) -> SqliteFile:
        """The open database. Raises the error that prevents opening it; `wait_for_opening` tries again."""
        if self._database is None:
            raise from_failure(self._refusal)
        return self._database

    @property
    def user(self) -> Records:
        """The records that store the user's memories: the user's shared lane, or else the user's own space."""
        return self.shared.get(USER) or self.user_file

    @property
    def user_file(self) -> Records:
        if self._user is None:
            raise from_failure(self._refusal)
        return self._user

    @property
    def is_opening(self) -> bool:
        """True while the database of an older release is being upgraded. Answers do not wait for this."""
        return self._reopening is not None and self._unusable is None

    async def wait_for_opening(self) -> SqliteFile:
        """Wait a moment if the database is being opened or migrated. Raises the same errors as `database`."""
        if self._database is None:
            self._open_soon()
            if self._reopening is not None:
                await asyncio.wait([self._reopening], timeout=OPENING_S)
        return self.database

    def _open_soon(self) -> None:
        if self._reopening is None and self.clock() >= self._again_at:
            self._reopening = asyncio.create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            self._take(await self.committer.run(USER, self._opened_database))
            for records in self:
                self.on_open(records)
        except RemembrancerError as error:
            self._failed(error)
        finally:
            self._reopening = None

    def _opened_database(self) -> SqliteFile:
        migrate_old_home(self.paths)
        path = self.paths.database
        if was_made(path) and is_empty(path):
            raise RecordsUnusable(
                f"{path} is missing or empty, although it had memories. Run 'remembrancer doctor --repair' to restore "
                "its last copy, or 'remembrancer backup restore' to restore a backup; to start over, delete "
                f"{path.parent / BACKUPS}"
            )
        database = SqliteFile(path, MEMORY)
        try:
            note_made(path)
        except OSError as error:
            database.close()
            raise unusable(path, error) from error
        return database

    def _take(self, database: SqliteFile) -> None:
        names = [name for (name,) in database.read("SELECT name FROM spaces")]
        self._database = self.catalog.database = database
        self._user = Records(database, USER, self.clock, self.limits)
        shares = self.catalog.shares()
        for name in filter(PROJECT_ID.fullmatch, dict.fromkeys([*names, *(name for name, _ in shares)])):
            self._open[name] = Records(database, name, self.clock, self.limits)
        if self.open_lane is not None:
            self.shared = {name: self.open_lane(lane, database, name, self.limits) for name, lane in shares}
        self._unusable = None

    def _failed(self, error: RemembrancerError) -> None:
        if isinstance(error, StorageFull):  # a write may still fit into the queue
            error = RecordsUnusable(error.message)
        logger.error("the records cannot be opened", extra={"code": error.code, "reason": error.message})
        if self._database is not None:
            self._database.close()
        self._database = self._user = None
        self._open.clear()
        self.shared.clear()
        self._refusal = error.to_failure()
        self._again_at = self.clock() + AGAIN_S
        self.note_unusable(error)

    @property
    def unusable(self) -> tuple[str, ...]:
        damage = self._unusable or (self._database.damage if self._database is not None else None)
        return () if damage is None else (damage,)

    def note_unusable(self, error: RemembrancerError) -> None:
        self._unusable = error.message

    @property
    def size_bytes(self) -> int:
        return size_on_disk(self.paths.database)

    @property
    def version(self) -> object:
        """A value that changes with each commit; None while the database is not open."""
        return None if self._database is None else (self._database, self._database.commits)

    def counts(self) -> Counts:
        return Reader.of(list(self), self.database).counts(None)

    @property
    def is_replaced(self) -> bool:
        return self._database is not None and self._database.is_replaced

    def drop_quotes(self, quotes: Sequence[str], project_id: str) -> None:
        """Delete the records of a project's sessions that contain one of the quotes. Runs on the records' thread."""
        with self.database.transaction() as connection:
            for (number,) in connection.execute("SELECT number FROM spaces WHERE name = ?", (project_id,)).fetchall():
                SqliteEdits(connection, number, self.clock()).drop_quotes(quotes)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._open.clear()
        self.shared.clear()

    # Spaces.

    def embedded(self) -> list[EmbeddedTexts]:
        return [*self, *self.indexes.values()]

    def texts(self) -> list[EmbeddedTexts]:
        memories = [] if self._database is None else [HomeTexts(self._database, self.clock)]
        return [*memories, *self.indexes.values()]

    def open_project(self, project: ProjectRef) -> Records | None:
        return self._open.get(project.id)

    async def project(self, project: ProjectRef) -> Records:
        """The project's space, created if needed. Raises `InvalidInput` if its id is invalid."""
        records = self._open.get(project.id)
        if records is None:
            check_project_id(project.id)
            records = await self.committer.run(project.id, partial(self._make, self.database, project))
            records = self._open.setdefault(project.id, records)
            self.on_open(records)
        return records

    def _make(self, database: SqliteFile, project: ProjectRef) -> Records:
        records = Records(database, project.id, self.clock, self.limits)
        self.catalog.note_session(project)
        return records

    async def move(self, old: str, new: ProjectRef, directory: str) -> None:
        """Rename a project's space, and merge any space with the new name into it, in one transaction."""
        await self.committer.run(new.id, partial(self._move, self.database, old, new, directory))
        self._open.pop(old, None)
        self.on_open(self._open[new.id])

    def _move(self, database: SqliteFile, old: str, new: ProjectRef, directory: str) -> None:
        with database.transaction() as connection:
            spaces = dict(connection.execute("SELECT name, number FROM spaces").fetchall())
            if new.id in spaces:
                merge(SqliteEdits(connection, spaces[new.id], self.clock()), spaces[old])
            connection.execute("UPDATE spaces SET name = ? WHERE name = ?", (new.id, old))
            SqliteEdits(connection, spaces[USER], self.clock()).rename_project(old, new.id)
            self.catalog.move(connection, old, new, directory)
        self._open[new.id] = Records(database, new.id, self.clock, self.limits)  # before the next write

    # Shared lanes.

    def shared_lane(self, name: str) -> SharedLane | None:
        """The shared lane of a project. The consolidator passes a lane's name in place of a project's id."""
        return next((lane for lane in list(self.shared.values()) if lane.name == name), None)

    def sharer_of(self, lane: str) -> str | None:
        return next((project_id for project_id, shared in self.shared.items() if shared.name == lane), None)

    async def share(self, name: str, lane: SharedLane) -> None:
        """From now on, write the memories of a project with a space, or of the user, to that lane."""
        if name not in self.shared:
            await self.committer.run(USER, partial(self.catalog.share, name, lane.name))
            self.shared[name] = lane
            self.on_open(lane)

    def lanes_of(self, project_id: str) -> Lanes:
        """The lanes to which a project's sessions write; if the project is not open, only the user's."""
        own, user_file, users_lane = self._open.get(project_id), self.user_file, self.shared.get(USER)
        users: Lanes = {"user": user_file} if users_lane is None else {"unshared": user_file, "user": users_lane}
        return users if own is None else {"session": own, "project": self.shared.get(project_id, own), **users}


def scrub_spaces(database: SqliteFile, now: float, memory_ids: Sequence[str], texts: Sequence[str] = ()) -> None:
    """Remove the remains of erased memories from every space, in one transaction, and then from the rest of the
    database. If a space still has a memory with an erased id, that memory stays: it was erased in another space. Raises
    `FileLocked` if a reader keeps the deleted text in the log; the call can then be repeated."""
    with database.transaction() as connection:
        for number, name in connection.execute("SELECT number, name FROM spaces").fetchall():
            edits = SqliteEdits(connection, number, now)
            is_lane = name != USER and PROJECT_ID.fullmatch(name) is None  # only journal entries change a lane
            was_erased = [
                edits.erased_at(each) is not None if is_lane else edits.scrub(each, now) for each in memory_ids
            ]
            if any(was_erased):
                for table in (f"words_{number}", f"names_{number}"):  # words stay there until segments are merged
                    edits.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - our names
    database.leave_nothing(texts)
