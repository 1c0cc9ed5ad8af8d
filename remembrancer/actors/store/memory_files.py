"""Which files of records are open: the user's always, a project's from its first use. Isolation begins here."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from remembrancer.actors.store.catalog import Catalog
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.records.transfer import Move
from remembrancer.protocol.errors import (
    InvalidInput,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.writes import Operation, ProjectRef

USER: Final = "user"
PROJECT_ID: Final = re.compile("p_[0-9a-f]{12}")
"""The id is a part of a path: nothing else may get there."""
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


class MemoryFiles:
    """Opens files on the writer thread, once each."""

    def __init__(
        self,
        paths: RuntimePaths,
        committer: Committer,
        clock: Callable[[], float],
        *,
        limit_bytes: int | None,
        on_open: Callable[[Records], None],
    ) -> None:
        self._paths = paths
        self._committer = committer
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._on_open = on_open
        self._open: dict[str, Records] = {}
        self._opening: dict[str, asyncio.Task[Records]] = {}
        self._unusable: dict[str, str] = {}
        self._moves: dict[str, Move] = {}
        self.catalog = Catalog(paths.catalog, clock)
        self.pending_sessions = PendingSessions()
        self.user: Records = self._connect(paths.user_database, USER)

    def __iter__(self) -> Iterator[Records]:
        return iter([self.user, *self._open.values()])

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
        return self.user if name == USER else self._open.get(name)

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

    def close(self) -> None:
        """Close all. May be called twice."""
        for records in self:
            records.close()
        self._open.clear()
        self._moves.clear()
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
        return SqliteRecords(path, name, self._clock, limit_bytes=self._limit_bytes)
