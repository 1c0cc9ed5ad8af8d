"""The open files of records: the user's always, a project's from its first use; and which one a write belongs to.

Isolation between projects begins here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Never, cast

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.file_index import FileIndex
from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.catalog import Catalog
from remembrancer.actors.store.records.contract import EmbeddedTexts, Records
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.records.transfer import Move
from remembrancer.memory.changes import unknown_memory
from remembrancer.protocol.errors import (
    UNREADABLE,
    InvalidInput,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    from_failure,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    ImportMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    StoreMemory,
    WriteNote,
    memory_id_of,
)

USER: Final = "user"
PROJECT_ID: Final = re.compile("p_[0-9a-f]{12}")
"""The id is a part of a path: nothing else may get there."""
USER_AGAIN_S: Final = 2.0
"""How long after a failed attempt the user's file is opened again, if somebody wants it."""
MAX_PENDING_SESSIONS: Final = 256
"""Beyond it the oldest are let go: a project that nothing was ever stored in has little to register."""
logger = logging.getLogger(__name__)


class PendingSessions:
    """The sessions that have begun in projects without a file, until there is one. A store that stops forgets them."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Operation] = {}

    def __len__(self) -> int:
        """How many there are."""
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

    def __init__(self, name: str, error: RemembrancerError) -> None:
        self.name = name
        self._failure = error.to_failure()

    def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, _: str) -> Callable[..., Never]:
        def refuse(*_: object, **__: object) -> Never:
            raise self.error

        return refuse

    @property
    def error(self) -> RemembrancerError:
        """The reason."""
        return from_failure(self._failure)


class MemoryFiles:
    """Opens files on the writer thread, once each; the user's at once, and again and again while it cannot be."""

    def __init__(
        self,
        paths: RuntimePaths,
        committer: Committer,
        clock: Callable[[], float],
        *,
        limit_bytes: int | None,
        session_limit: int | None = None,
        on_open: Callable[[Records], None],
    ) -> None:
        self._paths = paths
        self._committer = committer
        self._clock = clock
        self._limits = {"limit_bytes": limit_bytes, "session_limit": session_limit}
        self._on_open = on_open
        self._open: dict[str, Records] = {}
        self._opening: dict[str, asyncio.Task[Records]] = {}
        self._unusable: dict[str, str] = {}
        self._moves: dict[str, Move] = {}
        self._notes: dict[str, NoteFiles] = {}
        self.catalog = Catalog(paths.catalog, clock)
        self.pending_sessions = PendingSessions()
        self.indexes: dict[str, FileIndex] = {}
        """What was read from projects' own files, by its name: it is embedded as memories are."""
        self._user: Records | None = None
        self._user_again_at = 0.0
        self._user_refusal: UnusableRecords
        self._open_user()

    def __iter__(self) -> Iterator[Records]:
        """The files that are open."""
        return iter([*([] if self._user is None else [self._user]), *self._open.values()])

    @property
    def user(self) -> Records:
        """The user's file; one that cannot be opened refuses what is asked of it, and keeps no project from work."""
        if self._user is None and self._clock() >= self._user_again_at:
            opened = self._open_user()
            if opened is not None:
                self._moves.clear()
                self._on_open(opened)
        return self._user or cast(Records, self._user_refusal)

    def _open_user(self) -> Records | None:
        try:
            self._user = self._connect(self._paths.user_database, USER)
        except RemembrancerError as error:
            logger.error("the user's records cannot be opened", extra={"code": error.code, "reason": error.message})
            self._user_refusal = UnusableRecords(USER, error)
            self._user_again_at = self._clock() + USER_AGAIN_S
            self.note_unusable(USER, error)
        else:
            self._unusable.pop(USER, None)
        return self._user

    @property
    def unusable(self) -> tuple[str, ...]:
        """Why files could not be opened or read when they were last wanted, of those that are still there."""
        return tuple(
            reason
            for name, reason in self._unusable.items()
            if name == USER or self._paths.project_database(name).exists()
        )

    def note_unusable(self, name: str, error: RemembrancerError) -> None:
        """A file turned out to be damaged, or of a newer release."""
        self._unusable[name] = error.message

    def get(self, name: str) -> Records | None:
        """The open file of that name."""
        return self._user if name == USER else self._open.get(name)

    def embedded(self) -> list[EmbeddedTexts]:
        """All that has vectors and is open."""
        return [*self, *self.indexes.values()]

    def embedded_file(self, name: str) -> EmbeddedTexts | None:
        """The open one of that name."""
        return self.get(name) or self.indexes.get(name)

    def exists(self, project: ProjectRef) -> bool:
        """Whether the project has a file: reading must not make one."""
        if project.id in self._open:
            return True
        return bool(PROJECT_ID.fullmatch(project.id)) and self._paths.project_database(project.id).exists()

    async def project(self, project: ProjectRef) -> Records:
        """The file of a project, made when it is missing.

        Raises:
            InvalidInput: the id is none of a project.
            SchemaTooNew: a newer release wrote it.
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
        if isinstance(error, RecordsUnusable | SchemaTooNew):
            self.note_unusable(name, error)
        else:
            self._unusable.pop(name, None)

    def open_project(self, project: ProjectRef) -> Records | None:
        """As `project`, for a file that is open; None when it is not."""
        return self._open.get(project.id)

    def move_from(self, project: Records) -> Move:
        """What moves memories from an open project's file to the user's: one for each file."""
        return self._moves.setdefault(project.name, Move(project, self.user))

    def notes_of(self, project: Records) -> NoteFiles:
        """What writes the notes of an open project: one for each."""
        if project.name not in self._notes:
            self._notes[project.name] = NoteFiles(project, self._committer.run_from_thread)
        return self._notes[project.name]

    def close(self) -> None:
        """Close all. May be called twice."""
        for notes in self._notes.values():
            notes.close()
        for records in self:
            records.close()
        self._open.clear()
        self._moves.clear()
        self._notes.clear()
        self.catalog.close()

    async def _open_project(self, project: ProjectRef) -> Records:
        path = self._paths.project_database(project.id)
        records = await self._committer.run(lambda: self._connect(path, project.id))
        await self._committer.run(lambda: self.catalog.register(project))
        try:
            finished = await self._committer.run(self.move_from(records).finish)
        except RemembrancerError as error:  # a full disk, say: what is in both files is the user's
            logger.warning("a move cannot be finished yet", extra={"file": project.id, "reason": error.message})
            finished = True
        self.notes_of(records).settle_soon()
        while starts := self.pending_sessions.take(project.id):  # others may come until the file is known to be there
            await self._committer.run(partial(self._register, records, project, starts))
        self._open[project.id] = records
        if finished:
            self._on_open(self.user)  # which has got memories without vectors
        self._on_open(records)
        return records

    def _register(self, records: Records, project: ProjectRef, starts: Sequence[Operation]) -> None:
        """Register the sessions that were there before the file."""
        for operation, outcome in zip(starts, records.apply(starts), strict=True):
            if isinstance(outcome.reply, RemembrancerError):  # its first write registers it
                logger.warning("a session was not registered", extra={"file": project.id, "code": outcome.reply.code})
            elif isinstance(operation.change, StartSession):
                self.catalog.note_session(project, operation.change.directory)

    def _connect(self, path: Path, name: str) -> Records:
        return SqliteRecords(path, name, self._clock, **self._limits)


Target = Records | Move | NoteFiles
"""What an operation is given to."""
Answer = Applied | RemembrancerError
NOT_THE_USERS: Final = InvalidInput("the user's memories are not for this token: use scope project or session")


def _has(records: Records, memory_id: str) -> bool:
    """Whether a memory is in a file; in one that cannot be read, nothing is that could be changed."""
    try:
        return records.number_of(memory_id) is not None
    except RemembrancerError as error:
        if error.code not in UNREADABLE:
            raise
        return False


def _is_erased(records: Records, memory_id: str) -> bool:
    try:
        return records.is_erased(memory_id)
    except RemembrancerError as error:
        if error.code not in UNREADABLE:
            raise
        return False


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


def stays_in(target: Target, operation: Operation) -> bool:
    """Whether an operation on a memory that the one before left in `target` belongs there too."""
    if isinstance(target, Move | NoteFiles):
        return False
    leaves = isinstance(operation.change, PromoteMemory) and operation.change.target_scope == "user"
    return not leaves and not isinstance(operation.change, StoreMemory)


def is_ready(files: MemoryFiles, operation: Operation) -> bool:
    """Whether the project's file is open, if it is needed."""
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
    """Where an operation that `is_ready` belongs, or its answer if it belongs nowhere. Some reads of 20 µs."""
    found = _place(files, operation)
    if not operation.project.sees_user and (found is files.user or isinstance(found, Move)):
        memory_id, project = memory_id_of(operation.change) or "", files.open_project(operation.project)
        is_new = isinstance(operation.change, StoreMemory | ApplyRun | UndoRun)
        is_seen = is_new or (project is not None and project.portable(memory_id, operation.session_id) is not None)
        return NOT_THE_USERS if is_seen else unknown_memory(memory_id)
    return found.error if isinstance(found, UnusableRecords) else found


def _place(files: MemoryFiles, operation: Operation) -> Target | Answer:
    """A memory that is in both files is on its way to the user's, which counts."""
    project, user = files.open_project(operation.project), files.user
    match operation.change:
        case StoreMemory(scope=scope):
            return user if scope == "user" or project is None else project
        case ApplyRun(place=place) | UndoRun(place=place):
            no_project = NotFound(f"the project {operation.project.id} has no memories")
            return user if place == "user" else project or no_project
        case StartSession(session_id=session_id) | EndSession(session_id=session_id) if project is None:
            # A project gets its file with its first memory: nothing is to be remembered of a session before that.
            return Applied(operation.operation_id, SessionResult(session_id, "active"))
        case StartSession() | EndSession() | RecordEvents() if project is not None:
            return project
        case WriteNote() if project is not None:
            return files.notes_of(project)
    memory_id = memory_id_of(operation.change)
    assert memory_id is not None
    if _has(user, memory_id):
        # The same operation may have been applied before the memory was moved there.
        earlier = None if project is None else project.outcome_of(operation.operation_id)
        return earlier or user
    if project is not None and project.number_of(memory_id) is not None:
        match operation.change:
            case PromoteMemory(target_scope="user"):
                return files.move_from(project)
            case _:
                return project
    match operation.change:
        case EraseMemory():
            is_there = project is not None and (not _is_erased(user, memory_id) or project.is_erased(memory_id))
            return project if project is not None and is_there else user
        case ImportMemory(memory=memory):
            return user if memory.scope == "user" or project is None else project
        case _:
            return unknown_memory(memory_id)
