"""The spaces of the records: the user's, and one for each project from its first use. Also finds the lane of a write.

Isolation between projects begins here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol

from remembrancer.actors.migrations import note_made, was_made
from remembrancer.actors.store.bring_forward import bring_forward, is_old, problems
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.file_index import FileIndex
from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.catalog import Catalog, former_files, put_former_aside, take_in_former
from remembrancer.actors.store.records.contract import RECORDS
from remembrancer.actors.store.records.contract import USER as USER
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts, HomeTexts
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.space import SpaceConnection, drop_space
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.records.sqlite_file import SqliteFile, unusable
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.memory.changes import unknown_memory
from remembrancer.memory.edits import NoteWrite
from remembrancer.protocol.errors import (
    FileLocked,
    InvalidInput,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
    from_failure,
    size_on_disk,
)
from remembrancer.protocol.paths import RuntimePaths, database_files, look_at, set_aside
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    ImportMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    Scope,
    StoreMemory,
    WriteNote,
    memory_id_of,
)

PROJECT_ID: Final = re.compile("p_[0-9a-f]{12}")
"""Project ids become parts of paths, so nothing else may pass."""
AGAIN_S: Final = 2.0
"""The time after a failed attempt before the database may be opened again, on demand."""
OPENING_S: Final = 1.5
"""The time that a request waits for the database to open. Shorter than a read's budget."""
LOST: Final = "lost"
"""The suffix of files set aside when the database had to be started anew. Answers carry a notice until they are
removed."""
MAX_PENDING_SESSIONS: Final = 256
"""Above this number the oldest are dropped: a project without memories has little to register."""
logger = logging.getLogger(__name__)


class PendingSessions:
    """Sessions that started in projects without a space, kept until the space is made. A restart of the store loses
    them."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Operation] = {}

    def __len__(self) -> int:
        """The number of waiting sessions."""
        return len(self._starts)

    def note(self, operation: Operation) -> None:
        """Remember the start of a session in a project without a space. A session that ends before there is one is
        dropped."""
        match operation.change:
            case StartSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)
                self._starts[operation.project.id, session_id] = operation
                while len(self._starts) > MAX_PENDING_SESSIONS:
                    del self._starts[next(iter(self._starts))]
            case EndSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)

    def take(self, project_id: str) -> list[Operation]:
        """Remove and return the session starts of a project that now has a space, oldest first."""
        taken = [key for key in self._starts if key[0] == project_id]
        return [self._starts.pop(key) for key in taken]


class MemoryFiles:
    """The records of a home, in its one database. The database is opened at once and, if that fails, retried. A project
    gets its space on first use; a shared project is also read from its lane.

    A database that existed once and is now missing or empty is started anew: its remains are kept beside it, and
    answers carry a notice until somebody removes them.
    """

    def __init__(
        self,
        paths: RuntimePaths,
        committer: Committer,
        clock: Callable[[], float],
        *,
        limit_bytes: int | None,
        session_limit: int | None = None,
        on_open: Callable[[Records], None],
        lanes: LaneSource | None = None,
    ) -> None:
        self._paths = paths
        self._committer = committer
        committer.thread_of = _thread_of
        self._clock = clock
        self._limits = {"limit_bytes": limit_bytes, "session_limit": session_limit}
        self._on_open = on_open
        self._database: SqliteFile | None = None
        self._memories: HomeTexts | None = None
        self._spaces: set[str] = set()
        """The names of the spaces in the database."""
        self._open: dict[str, Records] = {}
        self._user: Records | None = None
        self._lanes = lanes
        self._shared: dict[str, Records] = {}
        """The shared lanes of open projects, by project id, and the user's, under the name of the user's space."""
        self._loss: str | None = None
        self._opening: dict[str, asyncio.Task[Records]] = {}
        self._unusable: str | None = None
        self._left_out: tuple[str, ...] = ()
        self._notes: dict[str, NoteFiles] = {}
        self.catalog = Catalog(clock)
        self.pending_sessions = PendingSessions()
        self.indexes: dict[str, FileIndex] = {}
        """The indexes of projects' own files, by name. They are embedded like memories."""
        self.opened = asyncio.Event()
        """Set once the database has been opened."""
        self._again_at = 0.0
        self._refusal = FileLocked("the memories are being opened").to_failure()
        self._reopening: asyncio.Task[None] | None = None
        if MEMORY.is_older(paths.database) or is_old(paths):  # migrating may take long, so it runs on its own thread
            self._open_soon()
            return
        try:
            self._take(self._opened_database(wait_s=0.0))
        except RemembrancerError as error:
            self._failed(error)

    def __iter__(self) -> Iterator[Records]:
        """Iterate over the open spaces."""
        return iter([*([] if self._user is None else [self._user]), *self._open.values(), *self._shared.values()])

    # The database.

    @property
    def database(self) -> SqliteFile:
        """The database.

        Raises:
            RemembrancerError: the database cannot be opened. Opening is retried.
        """
        if self._database is None:
            self._open_soon()
            raise from_failure(self._refusal)
        return self._database

    @property
    def user(self) -> Records:
        """The records that take the user's memories: the user's shared lane, or else the user's own space. Raises as
        `database`."""
        if USER not in self._shared and self.shares(USER):
            raise FileLocked("what the user shares is being opened")
        return self._shared.get(USER) or self.user_file

    @property
    def user_file(self) -> Records:
        """The user's own space. Raises as `database`."""
        if self._user is None:
            self._open_soon()
            raise from_failure(self._refusal)
        return self._user

    @property
    def is_open(self) -> bool:
        """True if the database is open."""
        return self._database is not None

    async def wait_for_opening(self) -> SqliteFile:
        """Return the database, waiting a moment if it is being opened: a home of release 0.2.0 is migrated first.
        Raises as `database`."""
        if self._database is None:
            self._open_soon()
            if self._reopening is not None:
                await asyncio.wait([self._reopening], timeout=OPENING_S)
        return self.database

    def _open_soon(self) -> None:
        if self._reopening is None and self._clock() >= self._again_at:
            self._reopening = asyncio.create_task(self._open_again())

    async def _open_again(self) -> None:
        try:
            self._take(await self._committer.run(USER, self._opened_database))
            await self.open_users_lane()
            self._on_open(self.user_file)
        except RemembrancerError as error:
            self._failed(error)
        finally:
            self._reopening = None

    def _opened_database(self, wait_s: float | None = None) -> SqliteFile:
        bring_forward(self._paths)
        self._keep_what_is_left(self._paths.database)
        database = SqliteFile(self._paths.database, wait_s=wait_s)
        try:
            if former_files(self._paths):
                with database.transaction() as connection:
                    take_in_former(connection, self._paths)
                put_former_aside(self._paths)
            note_made(self._paths.database)
        except BaseException as error:
            database.close()
            if isinstance(error, OSError):
                raise unusable(self._paths.database, error) from error
            raise
        return database

    def _take(self, database: SqliteFile) -> None:
        self._left_out = tuple(problems(self._paths).values())
        self._spaces = {name for (name,) in database.read("SELECT name FROM spaces")}
        self.catalog.attach(database)
        self._database, self._memories = database, HomeTexts(database, self._clock)
        self._user = Records(database, USER, self._clock, **self._limits)
        self._unusable = None
        self.opened.set()

    def _failed(self, error: RemembrancerError) -> None:
        logger.error("the records cannot be opened", extra={"code": error.code, "reason": error.message})
        if self._database is not None:
            self._database.close()
        self._database = self._user = None
        self._refusal = error.to_failure()
        self._again_at = self._clock() + AGAIN_S
        self.note_unusable(error)

    def _keep_what_is_left(self, path: Path) -> None:
        """Set aside an empty database file, or the leftover log of a missing one."""
        look = look_at(path)
        if look.problem is None and was_made(path) and not look.size_bytes:
            try:
                path.touch(mode=0o600)
                for beside in database_files(path)[1:]:
                    if beside.exists():
                        set_aside(beside, LOST)
            except OSError as error:
                raise unusable(path, error) from error
            if set_aside(path, LOST) is None:
                raise RecordsUnusable(f"{path} is empty, though memories were in it: put back a backup of it")
            logger.error("the file of memories was missing or empty, and is begun anew")
        left = sorted(path.parent.glob(f"{path.name}.{LOST}-*"))
        if left:
            self._loss = left[-1].name

    @property
    def unusable(self) -> tuple[str, ...]:
        """The problems to report: the last error in opening or reading the database, the notice that it was started
        anew, and the parts of the 0.2.0 files that could not be migrated."""
        return (*filter(None, (self._unusable, self.loss)), *self._left_out)

    @property
    def loss(self) -> str | None:
        """The notice that the database was started anew, with the place of the remains of the old one."""
        if self._loss is None:
            return None
        path = self._paths.database
        if not path.with_name(self._loss).exists():
            self._loss = None
            return None
        return (
            f"{path} was missing or empty, though it had been there, and was begun anew: put back a backup of it with "
            f"'remembrancer backup restore', and delete {path.with_name(self._loss)} when you know of it"
        )

    @property
    def losses(self) -> tuple[Notice, ...]:
        """The notices about lost memories, for an answer."""
        return () if (loss := self.loss) is None else (Notice("memories_lost", loss),)

    def note_unusable(self, error: RemembrancerError) -> None:
        """Record that the database is damaged or of a newer release."""
        self._unusable = error.message

    @property
    def size_bytes(self) -> int:
        """The size of the database on disk in bytes, with its write-ahead log."""
        return size_on_disk(self._paths.database)

    async def reopen_replaced(self, forget: Callable[[str], None]) -> None:
        """Close a database whose file was removed or replaced; calls `forget` with the name of each space.

        The next use opens it again. Shared lanes come back at the next start.
        """
        database = self._database
        if database is None or not database.is_replaced:
            return
        logger.error("the database was taken away or replaced, and is opened anew")
        for name in [USER, *self._open]:
            forget(name)
            self.let_go(name)
        self._database = self._user = None
        self._refusal = FileLocked("the memories are being opened anew").to_failure()
        self._again_at = 0.0
        await self._committer.run(USER, database.close)
        self._open_soon()

    def scrub(self, memory_ids: Sequence[str], quotes: Sequence[str] = (), project_id: str = "") -> None:
        """Like `scrub_spaces`. Runs on the records' thread."""
        scrub_spaces(self.database, self._clock(), memory_ids, quotes, project_id)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database as far as readers allow. Never waits. May be called from any
        thread."""
        if (database := self._database) is not None:
            database.checkpoint()

    def close(self) -> None:
        """Close everything. May be called twice."""
        for notes in self._notes.values():
            notes.close()
        if self._database is not None:
            self._database.close()
        self._open.clear()
        self._shared.clear()
        self._notes.clear()

    # Spaces.

    def get(self, name: str) -> Records | None:
        """Return the open space of that name."""
        return self._user if name == USER else self._open.get(name) or self.shared_lane(name)

    def embedded(self) -> list[EmbeddedTexts]:
        """Return everything open that has vectors."""
        return [*self, *self.indexes.values()]

    def texts(self) -> list[EmbeddedTexts]:
        """Return all texts to embed: the memories of all spaces together, and the open indexes."""
        memories = [] if self._database is None or self._memories is None else [self._memories]
        return [*memories, *self.indexes.values()]

    def is_there(self, project: ProjectRef) -> bool:
        """True if the project has a space."""
        return project.id in self._spaces or self.shares(project.id)

    def open_project(self, project: ProjectRef) -> Records | None:
        """Return the records of a project if they are open, else None."""
        return self._open.get(project.id)

    async def project(self, project: ProjectRef) -> Records:
        """Return the records of a project, making its space if needed.

        Raises:
            InvalidInput: the id is not a project id.
            RemembrancerError: as `database`.
        """
        found = self._open.get(project.id)
        if found is not None:
            return found
        opening = self._opening.get(project.id)
        if opening is None:
            if not PROJECT_ID.fullmatch(project.id):
                raise InvalidInput(f"a project's id is p_ and 12 hexadecimal digits, not {project.id[:60]!r}")
            opening = asyncio.create_task(self._open_project(project))
            self._opening[project.id] = opening
            opening.add_done_callback(partial(self._project_opened, project.id))
        return await asyncio.shield(opening)

    def _project_opened(self, name: str, opening: asyncio.Task[Records]) -> None:
        """Remove a finished task, and retrieve its error in case nobody awaits it. The next caller tries again."""
        del self._opening[name]
        error = None if opening.cancelled() else opening.exception()
        if isinstance(error, RecordsUnusable):
            self.note_unusable(error)

    async def _open_project(self, project: ProjectRef) -> Records:
        database = self.database

        def make() -> Records:
            records = Records(database, project.id, self._clock, **self._limits)
            self.catalog.register(project)
            return records

        records = await self._committer.run(project.id, make)
        self._spaces.add(project.id)
        if records.unfinished(NoteWrite):
            self.notes_of(records).settle_soon()
        while starts := self.pending_sessions.take(project.id):  # more may arrive until the space is known
            await self._committer.run(project.id, partial(self._register, project, records, starts))
        if self._lanes is not None and self.shares(project.id):  # before the first write
            self.share(project.id, await self._lanes.open(project.id))
        self._open[project.id] = records
        self._on_open(records)
        return records

    def _register(self, project: ProjectRef, records: Records, starts: Sequence[Operation]) -> None:
        """Register the sessions that started before the space existed."""
        for operation, outcome in zip(starts, records.apply(starts), strict=True):
            if isinstance(outcome.reply, RemembrancerError):  # the session's first write registers it
                logger.warning("a session was not registered", extra={"file": records.name, "code": outcome.reply.code})
            elif isinstance(operation.change, StartSession):
                self.catalog.note_session(project, operation.change.directory)

    def move(self, old: str, new: ProjectRef, directory: str) -> None:
        """Rename a project's space, replacing any space of the new name. Runs on the records' thread."""
        with self.database.transaction() as connection:
            for (number,) in connection.execute("SELECT number FROM spaces WHERE name = ?", (new.id,)).fetchall():
                drop_space(SpaceConnection(connection, number))
            connection.execute("UPDATE spaces SET name = ? WHERE name = ?", (new.id, old))
            self.catalog.move(connection, old, new, directory)
        self._spaces = (self._spaces - {old}) | {new.id}

    def let_go(self, name: str) -> None:
        """Forget an open space; the next use opens it again."""
        self._open.pop(name, None)
        if (notes := self._notes.pop(name, None)) is not None:
            notes.close()

    def notes_of(self, project: Records) -> NoteFiles:
        """Return the writer of an open project's notes, one for each project."""
        if project.name not in self._notes:
            in_records = partial(self._committer.run_from_thread, project.name)
            self._notes[project.name] = NoteFiles(project, in_records)
        return self._notes[project.name]

    # Shared lanes.

    def shares(self, project_id: str) -> bool:
        """True if a project shares its memories with other machines."""
        return self._lanes is not None and project_id in self.catalog.lanes

    def shared_lane(self, name: str) -> Records | None:
        """Return the shared lane of that name, if an open project shares it. The consolidator passes a lane's name in
        place of a project id."""
        return next((lane for lane in self._shared.values() if lane.name == name), None)

    def sharer_of(self, lane: str) -> str | None:
        """Return the open project that shares the lane of that name, or None."""
        return next((project_id for project_id, shared in self._shared.items() if shared.name == lane), None)

    def share(self, name: str, lane: Records) -> None:
        """Write the memories of an open project, or of the user, to that lane from now on."""
        if self._shared.get(name) is not lane:
            self._shared[name] = lane
            self._on_open(lane)

    async def open_users_lane(self) -> None:
        """Open the user's shared lane, if there is one. Until then the user's memories wait."""
        if self._lanes is not None and self.shares(USER):
            self.share(USER, await self._lanes.open(USER))

    def share_no_more(self, project_id: str) -> None:
        """Write an open project's memories to its own space from now on."""
        del self._shared[project_id]

    @property
    def users(self) -> list[Records]:
        """All records with memories of the user: the user's own space, and the user's shared lane."""
        return list(dict.fromkeys((self.user_file, self.user)))

    def lanes_of(self, project_id: str) -> Lanes:
        """Return the lanes that a project's sessions write to; only the user's if the project is not open."""
        own = self._open.get(project_id)
        users: Lanes = {"user": self.user}
        if USER in self._shared:
            users = {"unshared": self.user_file, **users}
        return users if own is None else {"session": own, "project": self._shared.get(project_id, own), **users}


def _thread_of(name: str) -> str:
    """Return the thread for that name. Shared lanes, which may wait for a journal, and indexes have their own; all
    other records share one."""
    return RECORDS if name == USER or PROJECT_ID.fullmatch(name) is not None else name


def scrub_spaces(
    database: SqliteFile, now: float, memory_ids: Sequence[str], quotes: Sequence[str] = (), project_id: str = ""
) -> None:
    """Remove the remains of erased memories from every space, and the project's sessions' quotes of them, in one
    transaction, and then from the database's log. A space that still has a memory of that id keeps it: the memory was
    erased in another space.

    Raises:
        FileLocked: a reader still holds the deleted text in the log. The call can be repeated.
    """
    with database.transaction() as connection:
        for number, name in connection.execute("SELECT number, name FROM spaces").fetchall():
            edits = SqliteEdits(SpaceConnection(connection, number), now)
            is_lane = name != USER and PROJECT_ID.fullmatch(name) is None  # only journal entries change a lane
            was_erased = [edits.is_erased(each) if is_lane else edits.scrub(each, now) for each in memory_ids]
            if any(was_erased):
                edits.drop_deleted_words()
            if name == project_id:
                edits.drop_quotes(quotes)
    database.leave_nothing(memory_ids, quotes)


class LaneSource(Protocol):
    """The shared lanes of a home."""

    async def open(self, project_id: str) -> Records:
        """Open the lane of a project that shares one."""


Lanes = Mapping[Scope | Literal["unshared"], Records]
"""The lane of each scope, narrowest first. Several scopes may have the same lane. `unshared` is the own space of a user
who shares a lane, with the memories that could not be shared."""
Target = Records | Move | NoteFiles
"""The target of an operation."""
Answer = Applied | RemembrancerError
NOT_THE_USERS: Final = InvalidInput("the user's memories are not for this token: use scope project or session")


def broadest_first(lanes: Lanes) -> list[Records]:
    """Return each lane once, broadest scope first."""
    return list(dict.fromkeys(reversed(list(lanes.values()))))


def lane_with(lanes: Lanes, memory_id: str) -> Records | None:
    """Return the lane that holds a memory, read in one snapshot, since the memory may be moving. If two lanes hold it,
    it is moving to the broader one, which is returned."""
    broadest = broadest_first(lanes)
    spaces = {space for space, _ in Reader.of(broadest).numbers_of([memory_id]).values()}
    return next((lane for lane in broadest if lane.space in spaces), None)


def applied_elsewhere(lanes: Lanes, found: Records, operation_id: str) -> Applied | None:
    """Return the answer to an operation that another lane applied, before the memory moved to `found`."""
    others = (lane for lane in broadest_first(lanes) if lane is not found)
    return next((earlier for lane in others if (earlier := lane.outcome_of(operation_id)) is not None), None)


async def find_target(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """Like `target_of`, but opens the project first where needed. A project's space is made only for a new memory."""
    await files.wait_for_opening()
    if not is_ready(files, operation):
        await files.project(operation.project)
    return target_of(files, operation)


def moved_to(files: MemoryFiles, operation: Operation, target: Target) -> Target | None:
    """Return the new target of an operation whose memory is no longer in `target`, or whose run is in the project's
    shared lane. It is `target` itself if the memory has come back, and None if there is no target."""
    if isinstance(operation.change, UndoRun):
        lanes = files.lanes_of(operation.project.id)
        lane = lanes.get("project")
        return lane if target is lanes.get("session") is not lane else None
    if memory_id_of(operation.change) is None:
        return None
    try:
        found = target_of(files, operation)
    except RemembrancerError:  # then the earlier answer stands
        return None
    return None if isinstance(found, Applied | RemembrancerError) else found


def stays_in(files: MemoryFiles, target: Target, operation: Operation) -> bool:
    """True if an operation on the same memory as the one before, which left it in `target`, belongs there too."""
    if isinstance(target, Move | NoteFiles) or isinstance(operation.change, StoreMemory | PromoteMemory):
        return False
    return applied_elsewhere(files.lanes_of(operation.project.id), target, operation.operation_id) is None


def is_ready(files: MemoryFiles, operation: Operation) -> bool:
    """True if the database is open, and so is the project's space if the operation needs it."""
    if not files.is_open:
        return False
    if files.open_project(operation.project) is not None:
        return True
    match operation.change:
        case StoreMemory(scope=scope):
            return scope == "user"
        case ApplyRun(place="user") | UndoRun(place="user"):
            return True
        case RecordEvents() | WriteNote():
            return False
        case ImportMemory(memory=memory) if memory.scope != "user":
            return False
        case _:
            return not files.is_there(operation.project)


def target_of(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """Return the lane of an operation that `is_ready`, or the answer if no lane can take it. Costs a few reads of 20
    µs."""
    found = _place(files, operation)
    if not operation.project.sees_user and _touches_user(found):
        memory_id, project = memory_id_of(operation.change) or "", files.open_project(operation.project)
        is_new = isinstance(operation.change, StoreMemory | ApplyRun | UndoRun)
        is_seen = is_new or (project is not None and project.portable(memory_id, operation.session_id) is not None)
        return NOT_THE_USERS if is_seen else unknown_memory(memory_id)
    return found


def _touches_user(found: Target | Answer) -> bool:
    if isinstance(found, Move):
        return found.source.is_users or found.destination.is_users
    return not isinstance(found, NoteFiles | Applied | RemembrancerError) and found.is_users


def _place(files: MemoryFiles, operation: Operation) -> Target | Answer:
    lanes = files.lanes_of(operation.project.id)
    own, user = lanes.get("session"), lanes["user"]
    match operation.change:
        case StoreMemory(scope=scope):
            return _once(lanes, lanes.get(scope, user), operation)
        case ApplyRun(place="user") | UndoRun(place="user"):
            return _once(lanes, user, operation)
        case ApplyRun() | UndoRun():
            no_project = NotFound(f"the project {operation.project.id} has no memories")
            return own or files.shared_lane(operation.project.id) or no_project
        case StartSession(session_id=session_id) | EndSession(session_id=session_id) if own is None:
            # A project gets its space with its first memory; until then a session has nothing to record.
            return Applied(operation.operation_id, SessionResult(session_id, "active"))
        case StartSession() | EndSession() | RecordEvents() if own is not None:
            return own
        case WriteNote() if own is not None:
            return files.notes_of(own)
    memory_id = memory_id_of(operation.change)
    assert memory_id is not None
    found = lane_with(lanes, memory_id)
    if found is not None:
        return _place_of_known(operation, lanes, found)
    match operation.change:
        case EraseMemory():
            return next(
                (lane for lane in lanes.values() if lane.is_erased(memory_id)),
                own or user,
            )
        case ImportMemory(memory=memory):
            return _once(lanes, lanes.get(memory.scope, user), operation)
        case _:
            return unknown_memory(memory_id)


def _once(lanes: Lanes, found: Records, operation: Operation) -> Records | Applied:
    """Return the lane for an operation that makes something, or its answer if the space beside a shared lane applied it
    before this host joined."""
    earlier = applied_elsewhere(lanes, found, operation.operation_id) if found.is_shared else None
    return found if earlier is None else earlier


SHARED: Final = (
    "this memory is shared with other machines, and would be gone for them: store what is of use to you alone anew, "
    "with the scope user"
)


SHARED_WITH_OTHERS: Final = (
    "this memory is yours, on your machines alone, and the project is shared with others: store anew in the project "
    "what they may read"
)


def _place_of_known(operation: Operation, lanes: Lanes, found: Records) -> Target | Answer:
    """Return the target of an operation on a memory that a lane holds."""
    change = operation.change
    earlier = applied_elsewhere(lanes, found, operation.operation_id)
    if earlier is not None:
        return earlier
    destination = lanes.get(change.target_scope) if isinstance(change, PromoteMemory) else None
    own = lanes.get("session")
    if destination is None or destination is found or (found.is_users and destination.is_users):
        return found
    if not found.is_users and found is not own:
        return InvalidInput(SHARED, field="target_scope")
    if found.is_shared and destination.is_shared:
        return InvalidInput(SHARED_WITH_OTHERS, field="target_scope")
    return Move(found, destination)
