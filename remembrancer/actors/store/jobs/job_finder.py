"""Finds the jobs: looks into the files that have changed, ends the sessions that were abandoned, notes what is done.

A look only reads. What nothing has been committed to is not looked at again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.jobs.findings import MAINTENANCE, Findings, jobs_of, look_into
from remembrancer.actors.store.jobs.job_board import JobBoard, Wanted
from remembrancer.actors.store.jobs.session_watch import OpenSession, SessionKey, SessionWatch
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.records.contract import Promotable, Records
from remembrancer.config.settings import Settings, promotion_rules
from remembrancer.protocol.consolidation import MaintainJob, NotePresence, PromoteJob
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.session_life import EndSession
from remembrancer.protocol.writes import Applied, ImportMemory, Operation, ProjectRef

LOOK_S: Final = 1.0
"""How often there is a look for what has changed."""
AGAIN_S: Final = 30.0
"""How long a file that could not be read, or an end that could not be written, is left alone."""

T = TypeVar("T")
Apply = Callable[[Operation], Awaitable[Applied]]
logger = logging.getLogger(__name__)


class Read(Protocol):
    """Runs what blocks on a thread for reading."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a file said, and when it was asked (by a clock that only goes forward)."""

    findings: Findings
    at: float


class JobFinder:
    """Puts what it finds on the board, and calls `on_news` when that may have changed it.

    `count_accesses` writes down what answers have shown: it counts in what is decided about a memory.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        board: JobBoard,
        settings: Settings,
        submit: Apply,
        read: Read,
        on_news: Callable[[], None],
        count_accesses: Callable[[], Awaitable[None]],
    ) -> None:
        self._files = files
        self._committer = committer
        self._board = board
        self._threshold = settings.consolidation_threshold
        self._at_once_score = promotion_rules(settings).at_once_score
        self._submit = submit
        self._read = read
        self._on_news = on_news
        self._count_accesses = count_accesses
        self._watch = SessionWatch(settings.session_grace_s)
        self._projects: dict[str, ProjectRef] = {}
        self._changed: dict[str, float] = {}
        """The files to look into, and from when on."""
        self._looked: dict[str, _Looked] = {}
        self._observed: dict[str, list[Wanted]] = {}
        self._declined: dict[str, set[Promotable]] = defaultdict(set)
        self._ending: dict[SessionKey, float] = {}

    def mark(self, name: str) -> None:
        """Something was committed to that file, or it has just been opened."""
        self._changed[name] = 0.0

    def note_presence(self, message: NotePresence) -> None:
        """These sessions are connected."""
        self._watch.note(((project.id, session) for project, session in message.sessions), time.monotonic())

    def note_operation(self, operation: Operation) -> None:
        """A session does something: it is there, whether anybody is connected to it or not."""
        if operation.session_id and not isinstance(operation.change, EndSession | ImportMemory):
            self._watch.note([(operation.project.id, operation.session_id)], time.monotonic())

    async def run(self) -> None:
        """Look, once a second at most, until cancelled."""
        while True:
            await self.look()
            await anyio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look into what has changed, and see what has come due."""
        now = time.monotonic()
        changed = [name for name, since in self._changed.items() if since <= now]
        for name in changed:
            del self._changed[name]
            records = self._files.get(name)
            if records is None:
                continue
            try:
                await self._look_into(records)
            except RemembrancerError as error:
                logger.warning("a file cannot be looked at", extra={"file": name, "code": error.code})
                self._changed.setdefault(name, now + AGAIN_S)
        if changed:  # what was seen before the end of a session that was found counts when the end is dealt with
            await self._count_accesses()
        self._observe_all()
        await self._end_lost_sessions()

    async def ended(self, wanted: Wanted) -> None:
        """A job has been done: note it where the records do not say so by themselves, and look again."""
        match wanted.job:
            case PromoteJob(project=project):
                self._declined[project.id].update(wanted.promotable)
                self.mark(project.id)
            case MaintainJob(request=request) if not request.dry_run:
                await self._note_maintenance(USER if request.project is None else request.project.id)
            case MaintainJob():
                pass
            case _:
                self.mark(wanted.key[1] if len(wanted.key) > 1 else USER)

    async def _note_maintenance(self, name: str) -> None:
        records = self._files.get(name)
        if records is None:
            return
        try:
            await self._committer.run(partial(records.note_maintenance, MAINTENANCE, time.time()))
        except RemembrancerError as error:  # then it is due again, in a while
            logger.warning("a maintenance could not be noted", extra={"file": name, "code": error.code})
        self.mark(name)

    async def _look_into(self, records: Records) -> None:
        name, at = records.name, time.monotonic()
        look = partial(
            look_into,
            records,
            of_project=name != USER,
            at_once_score=self._at_once_score,
            declined=len(self._declined[name]),
            threshold=self._threshold,
        )
        findings = await self._read(look)
        if findings.wants_consolidation:
            ask = partial(records.request_consolidation, self._threshold, time.time())
            if await self._committer.run(ask):
                findings = await self._read(look)
        self._declined[name].intersection_update(findings.promotable)
        self._looked[name] = _Looked(findings, at)
        self._observed.pop(name, None)

    def _observe_all(self) -> None:
        """Have the board know what the files want now: the time alone may have made something due."""
        wall_now = time.time()
        for name, looked in self._looked.items():
            project = self._project_of(name)
            if name != USER and project is None:
                continue
            wanted = jobs_of(name, project, looked.findings, self._declined[name], wall_now)
            if self._observed.get(name) != wanted:
                self._observed[name] = wanted
                self._board.observe(name, wanted, looked.at)
                self._on_news()

    def _project_of(self, name: str) -> ProjectRef | None:
        if name not in self._projects and name != USER:
            self._projects.update({project.id: project for project in self._files.catalog.projects()})
        return self._projects.get(name)

    async def _end_lost_sessions(self) -> None:
        now, wall_now = time.monotonic(), time.time()
        sessions = [
            OpenSession((name, session.session_id), session.last_active_at)
            for name, looked in self._looked.items()
            for session in looked.findings.sessions
            if session.ended_at is None
        ]
        self._ending = {key: until for key, until in self._ending.items() if until > now}
        for session in self._watch.lost(sessions, now, wall_now):
            project = self._project_of(session.key[0])
            if project is None or session.key in self._ending:
                continue
            self._ending[session.key] = now + AGAIN_S
            try:
                await self._submit(abandon(project, session, wall_now))
            except RemembrancerError as error:
                logger.warning("a session could not be ended", extra={"code": error.code, "reason": error.message})
            else:
                logger.info("a session was abandoned", extra={"project": project.id, "session": session.key[1]})


def abandon(project: ProjectRef, session: OpenSession, wall_now: float) -> Operation:
    """The operation that ends a session of which nobody has heard any more: the same one for the same silence."""
    session_id = session.key[1]
    about = f"abandon\n{project.id}\n{session_id}\n{session.last_active_at!r}"
    operation_id = hashlib.sha256(about.encode()).hexdigest()[:32]
    return Operation(operation_id, project, "", wall_now, EndSession(session_id, "abandoned"))
