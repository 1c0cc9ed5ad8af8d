"""The open files of records: the user's always, a project's from its first use; and the lane that a write belongs to.

Isolation between projects begins here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, Never, Protocol, cast

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.file_index import FileIndex
from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.catalog import NAME as CATALOG
from remembrancer.actors.store.records.catalog import Catalog
from remembrancer.actors.store.records.contract import USER as USER
from remembrancer.actors.store.records.contract import EmbeddedTexts, Records
from remembrancer.actors.store.records.schema import RECORDS
from remembrancer.actors.store.records.sqlite_file import unusable
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.memory.changes import unknown_memory
from remembrancer.memory.edits import Move as MoveRow
from remembrancer.protocol.errors import (
    UNREADABLE,
    FileLocked,
    InvalidInput,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
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
"""The id is a part of a path: nothing else may get there."""
USER_AGAIN_S: Final = 2.0
"""The time that after a failed attempt the user's file is opened again, if somebody wants it."""
LOST: Final = "lost"
"""The end of the name of what was in the place of a file that was begun anew: as long as it is there, answers say
so."""
MAX_PENDING_SESSIONS: Final = 256
"""Beyond it the oldest are let go: a project that nothing was ever stored in has little to register."""
logger = logging.getLogger(__name__)


class PendingSessions:
    """The sessions that have begun in projects without a file, until there is one. A store that stops forgets them."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Operation] = {}

    def __len__(self) -> int:
        """The number of open files."""
        return len(self._starts)

    def note(self, operation: Operation) -> None:
        """A project without a file was told this: a session that ends before there is one leaves nothing behind."""
        match operation.change:
            case StartSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)
                self._starts[operation.project.id, session_id] = operation
                while len(self._starts) > MAX_PENDING_SESSIONS:
                    del self._starts[next(iter(self._starts))]
            case EndSession(session_id=session_id):
                self._starts.pop((operation.project.id, session_id), None)

    def take(self, project_id: str) -> list[Operation]:
        """The starts of a project's sessions, the first one first: its file has been made."""
        taken = [key for key in self._starts if key[0] == project_id]
        return [self._starts.pop(key) for key in taken]


class UnusableRecords:
    """Stands where a file cannot be opened: everything that is asked of it is refused with the reason."""

    is_shared = False

    def __init__(self, name: str, error: RemembrancerError, *, is_users: bool = False) -> None:
        self.name = name
        self.is_users = is_users or name == USER
        self._failure = error.to_failure()

    def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, _: str) -> Callable[..., Never]:
        def refuse(*_: object, **__: object) -> Never:
            raise self.error

        return refuse

    @property
    def graph(self) -> Never:
        """As everything else."""
        raise self.error

    @property
    def error(self) -> RemembrancerError:
        """The reason."""
        return from_failure(self._failure)


class MemoryFiles:
    """Opens files, each on its own thread, once; the user's at once, and again and again while it cannot be.

    A file that was there once and is missing, or cut to nothing, is begun anew: what is left of it is kept beside it,
    and answers say so until somebody takes that away.
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
        self._clock = clock
        self._limits = {"limit_bytes": limit_bytes, "session_limit": session_limit}
        self._on_open = on_open
        self._open: dict[str, Records] = {}
        self._lanes = lanes
        self._shared: dict[str, Records] = {}
        """The lanes that open projects share, by the project's id, and the user's, by the name of his file."""
        self._losses: dict[str, str] = {}
        self._opening: dict[str, asyncio.Task[Records]] = {}
        self._unusable: dict[str, str] = {}
        self._moves: dict[tuple[str, str, str], Move] = {}
        self._notes: dict[str, NoteFiles] = {}
        self.catalog = Catalog(paths.catalog, clock)
        self.pending_sessions = PendingSessions()
        self.indexes: dict[str, FileIndex] = {}
        """The indexes of projects' own files, by name: they are embedded as memories are."""
        self._user: Records | None = None
        self._user_again_at = 0.0
        self._user_refusal: UnusableRecords
        self._opening_user: asyncio.Future[Records] | None = None
        if self.shares(USER):
            wait = FileLocked("what the user shares is being opened")
            self._shared[USER] = cast(Records, UnusableRecords(USER, wait))
        if RECORDS.is_older(paths.user_database):  # its copy may take long, and is made on its own thread
            self._user_refusal = UnusableRecords(USER, FileLocked("the user's memories are brought to this release"))
            _ = self.user_file
            return
        try:
            self._user_opened(self._connect(paths.user_database, USER, wait_s=0.0))
        except RemembrancerError as error:
            self._user_failed(error)

    def __iter__(self) -> Iterator[Records]:
        """The files that are open."""
        shared = [lane for lane in self._shared.values() if not isinstance(lane, UnusableRecords)]
        return iter([*([] if self._user is None else [self._user]), *self._open.values(), *shared])

    @property
    def user(self) -> Records:
        """The records that the user's memories are written to: the lane that he shares, or else his file."""
        return self._shared.get(USER) or self.user_file

    @property
    def user_file(self) -> Records:
        """The user's file; one that cannot be opened refuses what is asked of it, and keeps no project from work."""
        if self._user is None and self._opening_user is None and self._clock() >= self._user_again_at:
            connect = partial(self._connect, self._paths.user_database, USER)
            self._opening_user = self._committer.run(USER, connect)
            self._opening_user.add_done_callback(self._user_tried)
        return self._user or cast(Records, self._user_refusal)

    def _user_tried(self, opening: asyncio.Future[Records]) -> None:
        self._opening_user = None
        error = None if opening.cancelled() else opening.exception()
        if error is None:
            self._user_opened(opening.result())
            self._forget_moves(USER)
            self._on_open(opening.result())
        elif isinstance(error, RemembrancerError):
            self._user_failed(error)
        else:
            raise error

    def _user_opened(self, records: Records) -> None:
        self._user = records
        self._unusable.pop(USER, None)

    def _user_failed(self, error: RemembrancerError) -> None:
        logger.error("the user's records cannot be opened", extra={"code": error.code, "reason": error.message})
        self._user_refusal = UnusableRecords(USER, error)
        self._user_again_at = self._clock() + USER_AGAIN_S
        self.note_unusable(USER, error)

    @property
    def unusable(self) -> tuple[str, ...]:
        """Why files could not be opened or read when they were last wanted, of those that are still there; which were
        begun anew; and what is wrong with the catalogue."""
        reasons = [
            reason
            for name, reason in self._unusable.items()
            if name == USER or look_at(self._path_of(name)).kind != "missing"
        ]
        catalog = [] if self.catalog.problem is None else [self.catalog.problem]
        return (*reasons, *filter(None, map(self.loss_of, list(self._losses))), *catalog)

    def loss_of(self, name: str) -> str | None:
        """That the file of that name was begun anew, and where what was left of the one before lies."""
        left = self._losses.get(name)
        if left is None:
            return None
        path = self._path_of(name)
        if not path.with_name(left).exists():
            del self._losses[name]
            return None
        return (
            f"{path} was missing or empty, though it had been there, and was begun anew: put back a backup of it with "
            f"'remembrancer backup restore', and delete {path.with_name(left)} when you know of it"
        )

    def losses(self, names: Sequence[str]) -> tuple[Notice, ...]:
        """The notices about lost memories for an answer from these files."""
        if not self._losses:
            return ()
        return tuple(Notice("memories_lost", loss) for name in names if (loss := self.loss_of(name)) is not None)

    def _path_of(self, name: str) -> Path:
        if name == USER:
            return self._paths.user_database
        is_project = PROJECT_ID.fullmatch(name) is not None
        return self._paths.project_database(name) if is_project else self._paths.lane_database(name)

    def size_bytes(self, name: str) -> int:
        """Bytes on disk of the file of that name, with its write-ahead log."""
        return size_on_disk(self._path_of(name))

    async def reopen_replaced(self, forget: Callable[[str], None]) -> None:
        """Let go of files that were taken away or replaced under us; `forget` is told of each.

        The next use opens it.
        """
        for records in list(self):
            if records in self._shared.values() or not records.is_replaced:
                continue  # a lane refuses writes until the next start, and is read from the journal then
            logger.error("a file was taken away or replaced, and is opened anew", extra={"file": records.name})
            forget(records.name)
            if records is self._user:
                self._forget_moves(USER)
                self._user = None
                self._user_refusal = UnusableRecords(USER, FileLocked("the user's memories are being opened anew"))
                self._user_again_at = 0.0
            else:
                self.let_go(records.name)
            await self._committer.run(records.name, records.close)
            _ = self.user_file

    def let_go(self, name: str) -> None:
        """Know nothing of a project's file any more, which is closed by who says so: the next use opens it."""
        self._open.pop(name, None)
        self._shared.pop(name, None)
        self._forget_moves(name)
        if (notes := self._notes.pop(name, None)) is not None:
            notes.close()

    def note_unusable(self, name: str, error: RemembrancerError) -> None:
        """A file turned out to be damaged, or of a newer release."""
        self._unusable[name] = error.message

    def get(self, name: str) -> Records | None:
        """The open file of that name."""
        if name == USER or name in self._open:
            return self._user if name == USER else self._open[name]
        return self.shared_lane(name)

    def shared_lane(self, name: str) -> Records | None:
        """The shared lane of that name, if a project that is open shares it. The consolidator speaks of one by its name
        where otherwise a project's id stands."""
        return next((lane for lane in self._shared.values() if lane.name == name), None)

    def sharer_of(self, lane: str) -> str | None:
        """The open project that shares the lane of that name; None: there is no such lane."""
        return next((project_id for project_id, shared in self._shared.items() if shared.name == lane), None)

    def embedded(self) -> list[EmbeddedTexts]:
        """All that has vectors and is open."""
        return [*self, *self.indexes.values()]

    def embedded_file(self, name: str) -> EmbeddedTexts | None:
        """The open one of that name."""
        return self.get(name) or self.indexes.get(name)

    def exists(self, project: ProjectRef) -> bool:
        """True if the project has a file, or had one that was lost: reading must not make its first one."""
        return self.is_there(project) or (bool(PROJECT_ID.fullmatch(project.id)) and self.catalog.knows(project.id))

    def is_there(self, project: ProjectRef) -> bool:
        """True if the project has a file now."""
        if project.id in self._open or self.shares(project.id):
            return True
        return bool(PROJECT_ID.fullmatch(project.id)) and self._paths.project_database(project.id).exists()

    def shares(self, project_id: str) -> bool:
        """True if a project shares its memories with other machines."""
        return self._lanes is not None and project_id in self._lanes

    async def share(self, project_id: str, lane: Records) -> None:
        """From now on an open project's memories go into that lane. Moves that are under way there are finished."""
        if self._shared.get(project_id) is not lane:
            self._shared[project_id] = lane
            await self._share(self._open[project_id], lane)

    async def share_user(self, lane: Records) -> None:
        """From now on the user's memories go into that lane. Moves that are under way there are finished."""
        if self._shared.get(USER) is lane:
            return
        self._shared[USER] = lane
        if not isinstance(lane, UnusableRecords):
            for own in list(self._open.values()):
                await self._finish(own)
            self._on_open(lane)

    async def open_users_lane(self) -> None:
        """Open the lane that the user shares, if he does. Until then his memories wait."""
        if self._lanes is not None and self.shares(USER):
            await self.share_user(await self._lanes.open(USER))

    async def _finish(self, own: Records) -> bool:
        """Finish the moves between an open project's file and the user's memories. True if there were any."""
        away = self.move(own, self.user, own.name)
        back = [self.move(each, own, own.name) for each in self.users if not isinstance(each, UnusableRecords)]
        try:
            finished = await self._committer.run(away.name, away.finish)
            for move in back:
                await self._committer.run(move.name, move.finish)
        except RemembrancerError as error:  # a full disk, say: what is in both files is the user's
            logger.warning("a move cannot be finished yet", extra={"file": own.name, "reason": error.message})
            return True
        return finished

    @property
    def users(self) -> list[Records]:
        """All that has memories of the user: his file, and the lane that he shares."""
        return list(dict.fromkeys((self.user_file, self.user)))

    async def _share(self, own: Records, lane: Records) -> None:
        if isinstance(lane, UnusableRecords):
            return
        try:
            for source in (own, *([] if self._user is None else [self._user])):
                await self._committer.run(lane.name, self.move(source, lane, own.name).finish)
        except RemembrancerError as error:  # the journal is away, say: the memory is still where it was
            logger.warning("a move cannot be finished yet", extra={"file": lane.name, "reason": error.message})
        self._on_open(lane)

    def share_no_more(self, project_id: str) -> None:
        """From now on an open project's memories are its own."""
        self._forget_moves(self._shared.pop(project_id).name)

    async def project(self, project: ProjectRef) -> Records:
        """The file of a project, made when it is missing.

        Raises:
            InvalidInput: the id is none of a project.
            SchemaTooNew, SchemaTooOld: another release wrote it.
            RecordsUnusable: it is damaged.
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
            opening.add_done_callback(partial(self._opened, project.id))
        return await asyncio.shield(opening)

    def _opened(self, name: str, opening: asyncio.Task[Records]) -> None:
        """Whoever asks next is told of an error anew: it may be that nobody waits for this one any more."""
        del self._opening[name]
        error = None if opening.cancelled() else opening.exception()
        if isinstance(error, RecordsUnusable | SchemaTooNew | SchemaTooOld):
            self.note_unusable(name, error)
        else:
            self._unusable.pop(name, None)

    def open_project(self, project: ProjectRef) -> Records | None:
        """As `project`, for a file that is open; None when it is not."""
        return self._open.get(project.id)

    def lanes_of(self, project_id: str) -> Lanes:
        """The lanes that sessions of a project write to; of one whose file is not open, the user's alone."""
        own = self._open.get(project_id)
        users: Lanes = {"user": self.user}
        if USER in self._shared:
            users = {"unshared": self.user_file, **users}
        return users if own is None else {"session": own, "project": self._shared.get(project_id, own), **users}

    def readable_lanes(self, project_id: str) -> list[Records]:
        """Those of the lanes of a project's sessions that can be read, each once, the broadest first."""
        lanes = broadest_first(self.lanes_of(project_id))
        return [lane for lane in lanes if not isinstance(lane, UnusableRecords)]

    def move(self, source: Records, destination: Records, project_id: str) -> Move:
        """The moves of a project's sessions from a lane to another: one object for all."""
        key = source.name, destination.name, project_id
        return self._moves.setdefault(key, Move(source, destination, project_id))

    def _forget_moves(self, name: str) -> None:
        """A lane is opened anew."""
        self._moves = {key: move for key, move in self._moves.items() if name not in key}

    def notes_of(self, project: Records) -> NoteFiles:
        """The writer of an open project's notes: one for each project."""
        if project.name not in self._notes:
            in_records = partial(self._committer.run_from_thread, project.name)
            self._notes[project.name] = NoteFiles(project, in_records)
        return self._notes[project.name]

    def close(self) -> None:
        """Close all. May be called twice."""
        for notes in self._notes.values():
            notes.close()
        for records in self:
            records.close()
        self._open.clear()
        self._shared.clear()
        self._moves.clear()
        self._notes.clear()
        self.catalog.close()

    async def _open_project(self, project: ProjectRef) -> Records:
        path = self._paths.project_database(project.id)
        records = await self._committer.run(project.id, lambda: self._connect(path, project.id))
        await self._committer.run(CATALOG, lambda: self.catalog.register(project))
        finished = await self._finish(records)
        self.notes_of(records).settle_soon()
        while starts := self.pending_sessions.take(project.id):  # others may come until the file is known to be there
            for directory in await self._committer.run(project.id, partial(self._register, records, starts)):
                await self._committer.run(CATALOG, partial(self.catalog.note_session, project, directory))
        lane = None
        if self._lanes is not None and project.id in self._lanes:
            lane = self._shared[project.id] = await self._lanes.open(project.id)  # before anything is written
        self._open[project.id] = records
        if lane is not None:
            await self._share(records, lane)
        if finished:
            self._on_open(self.user)  # which has got memories without vectors
        self._on_open(records)
        return records

    def _register(self, records: Records, starts: Sequence[Operation]) -> list[str | None]:
        """Register the sessions that were there before the file; the working trees that they began in."""
        directories = []
        for operation, outcome in zip(starts, records.apply(starts), strict=True):
            if isinstance(outcome.reply, RemembrancerError):  # its first write registers it
                logger.warning("a session was not registered", extra={"file": records.name, "code": outcome.reply.code})
            elif isinstance(operation.change, StartSession):
                directories.append(operation.change.directory)
        return directories

    def _connect(self, path: Path, name: str, wait_s: float | None = None) -> Records:
        self._keep_what_is_left(path, name)
        records = SqliteRecords(path, name, self._clock, **self._limits, wait_s=wait_s)
        self._committer.run_soon(CATALOG, partial(self.catalog.note_file, name))
        return records

    def _keep_what_is_left(self, path: Path, name: str) -> None:
        """Put a file that was cut to nothing, and the log of one that is missing, beside the new one."""
        look = look_at(path)
        if look.problem is None and self.catalog.knows(name) and not look.size_bytes:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600)
                for beside in database_files(path)[1:]:
                    if beside.exists():
                        set_aside(beside, LOST)
            except OSError as error:
                raise unusable(path, error) from error
            if set_aside(path, LOST) is None:
                raise RecordsUnusable(f"{path} is empty, though memories were in it: put back a backup of it")
            logger.error("a file of memories was missing or empty, and is begun anew", extra={"file": name})
        left = sorted(path.parent.glob(f"{path.name}.{LOST}-*"))
        if left:
            self._losses[name] = left[-1].name


class LaneSource(Protocol):
    """The shared lanes of a home."""

    def __contains__(self, project_id: str) -> bool:
        """True if a project shares a lane."""

    async def open(self, project_id: str) -> Records:
        """The lane of a project; one that cannot be opened refuses what is asked of it."""


Lanes = Mapping[Scope | Literal["unshared"], Records]
"""The lane of each scope, from the narrowest to the broadest. One lane may be that of several scopes. `unshared` is the
file of a user who shares a lane: it has what could not go there."""
Target = Records | Move | NoteFiles
"""The recipient of an operation."""
Answer = Applied | RemembrancerError
NOT_THE_USERS: Final = InvalidInput("the user's memories are not for this token: use scope project or session")


def _has(records: Records, memory_id: str) -> bool:
    """True if a memory is in a lane; in the user's, if that cannot be read, nothing is that could be changed."""
    try:
        return records.number_of(memory_id) is not None
    except RemembrancerError as error:
        if not records.is_users or error.code not in UNREADABLE:
            raise
        return False


def _is_erased(records: Records, memory_id: str) -> bool:
    try:
        return records.is_erased(memory_id)
    except RemembrancerError as error:
        if not records.is_users or error.code not in UNREADABLE:
            raise
        return False


def broadest_first(lanes: Lanes) -> list[Records]:
    """Each lane once."""
    return list(dict.fromkeys(reversed(list(lanes.values()))))


def lane_with(lanes: Lanes, memory_id: str) -> Records | None:
    """The lane that has a memory. One that is in two of them is on its way to the broader one, which counts.

    Raises what a lane but the user's cannot be read for, if no other one has the memory.
    """
    trouble: RemembrancerError | None = None
    for lane in broadest_first(lanes):
        try:
            if _has(lane, memory_id):
                return lane
        except RemembrancerError as error:
            if error.code not in UNREADABLE:
                raise
            trouble = error
    if trouble is not None:
        raise trouble
    return None


def applied_elsewhere(lanes: Lanes, found: Records, operation_id: str) -> Applied | None:
    """The answer to an operation on a memory that is in `found` now, if another lane, where it was before, applied it.

    A lane that cannot be read counts as one that did not.
    """
    for lane in broadest_first(lanes):
        if lane is found or isinstance(lane, UnusableRecords):
            continue
        if earlier := lane.outcome_of(operation_id):
            return earlier
    return None


async def find_target(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """As `target_of`, but opens the project's file first where that is needed: it is made for a new memory only."""
    if not is_ready(files, operation):
        try:
            await files.project(operation.project)
        except RemembrancerError as error:  # the project's trouble is none of the user's memories
            memory_id = memory_id_of(operation.change)
            is_users = memory_id is not None and operation.project.sees_user and _has(files.user, memory_id)
            return files.user if is_users else error
    return target_of(files, operation)


def moved_to(files: MemoryFiles, operation: Operation, target: Target) -> Target | None:
    """The file of an operation on a memory that `target` does not find any more, or on a run that is in the lane which
    the project shares. None: it is nowhere else."""
    if isinstance(operation.change, UndoRun):
        lanes = files.lanes_of(operation.project.id)
        lane = lanes.get("project")
        is_next = target is lanes.get("session") is not lane and not isinstance(lane, UnusableRecords)
        return lane if is_next else None
    if memory_id_of(operation.change) is None:
        return None
    try:
        found = target_of(files, operation)
    except RemembrancerError:  # then it stays as it was answered
        return None
    return None if found is target or isinstance(found, Applied | RemembrancerError) else found


def stays_in(files: MemoryFiles, target: Target, operation: Operation) -> bool:
    """True if an operation on a memory that the one before left in `target` belongs there too."""
    if isinstance(target, Move | NoteFiles) or isinstance(operation.change, StoreMemory | PromoteMemory):
        return False
    return applied_elsewhere(files.lanes_of(operation.project.id), target, operation.operation_id) is None


def is_ready(files: MemoryFiles, operation: Operation) -> bool:
    """True if the project's file is open, if it is needed."""
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
            return not files.exists(operation.project)


def target_of(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """The lane of an operation that `is_ready`, or its answer if it belongs nowhere. Some reads of 20 µs."""
    found = _place(files, operation)
    if not operation.project.sees_user and _touches_user(found):
        memory_id, project = memory_id_of(operation.change) or "", files.open_project(operation.project)
        is_new = isinstance(operation.change, StoreMemory | ApplyRun | UndoRun)
        is_seen = is_new or (project is not None and project.portable(memory_id, operation.session_id) is not None)
        return NOT_THE_USERS if is_seen else unknown_memory(memory_id)
    return found.error if isinstance(found, UnusableRecords) else found


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
            # A project gets its file with its first memory: nothing is to be remembered of a session before that.
            return Applied(operation.operation_id, SessionResult(session_id, "active"))
        case StartSession() | EndSession() | RecordEvents() if own is not None:
            return own
        case WriteNote() if own is not None:
            return files.notes_of(own)
    memory_id = memory_id_of(operation.change)
    assert memory_id is not None
    found = lane_with(lanes, memory_id)
    if found is not None:
        return _place_of_known(files, operation, lanes, found)
    match operation.change:
        case EraseMemory():
            return next((lane for lane in lanes.values() if _is_erased(lane, memory_id)), own or user)
        case ImportMemory(memory=memory):
            return _once(lanes, lanes.get(memory.scope, user), operation)
        case _:
            return unknown_memory(memory_id)


def _once(lanes: Lanes, found: Records, operation: Operation) -> Records | Applied:
    """The lane for what an operation makes; or the answer, if the file beside a shared lane has applied it, while this
    host had not joined."""
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


def _place_of_known(files: MemoryFiles, operation: Operation, lanes: Lanes, found: Records) -> Target | Answer:
    """The recipient of an operation on a memory that a lane has."""
    change = operation.change
    is_taken_back = found.is_users and isinstance(change, PromoteMemory) and change.target_scope == "project"
    if not (found.is_shared and is_taken_back):  # of which the lane has the last word, and not who took it in
        earlier = applied_elsewhere(lanes, found, operation.operation_id)
        if earlier is not None:
            return earlier
    destination = lanes.get(change.target_scope) if isinstance(change, PromoteMemory) else None
    own = lanes.get("session")
    if destination is found and found.is_shared and own is not None and _has(own, memory_id_of(change) or ""):
        return files.move(own, found, operation.project.id)  # begun when the journal did not answer
    if destination is None or destination is found or (found.is_users and destination.is_users):
        return found
    if not found.is_users and found is not own:
        if own is not None and any(each.operation_id == operation.operation_id for each in own.unfinished(MoveRow)):
            return files.move(own, destination, operation.project.id)  # begun while the project was not shared
        return InvalidInput(SHARED, field="target_scope")
    if found.is_shared and destination.is_shared:
        return InvalidInput(SHARED_WITH_OTHERS, field="target_scope")
    return files.move(found, destination, operation.project.id)
