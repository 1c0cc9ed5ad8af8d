"""Finds the consolidator's jobs: looks into the files that have changed, and ends the sessions that were abandoned.

A look only reads. What nothing has been committed to is not looked at again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.job_queue import FoundJob, JobQueue, Rank
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.records.contract import ConsolidationRequest, MaintenanceState, Promotable, Records
from remembrancer.config.settings import Settings, promotion_rules
from remembrancer.protocol.consolidation import (
    ConsolidateJob,
    Maintain,
    MaintainJob,
    NotePresence,
    PromoteJob,
    ReadMemories,
    SessionEndJob,
)
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.session_life import EndSession, SessionEntry
from remembrancer.protocol.writes import Applied, ImportMemory, Operation, ProjectRef

LOOK_S: Final = 1.0
"""How often there is a look for what has changed."""
AGAIN_S: Final = 30.0
"""How long a file that could not be read, or an end that could not be written, is left alone."""
FORGOTTEN_S: Final = 86_400.0
"""A session that nobody was connected to in this life of the store is over when it has done nothing for so long."""
MAINTENANCE_SESSIONS: Final = 10
"""A project's maintenance is due after so many sessions."""
MAINTENANCE_S: Final = 7 * 86_400.0
"""And after so long in any case."""
NEVER: Final = MaintenanceState(None, 0)
PROMOTED_TOGETHER: Final = 100
"""Memories in one job."""

T = TypeVar("T")
SessionKey = tuple[str, str]
"""A project's id and a session's."""
Apply = Callable[[Operation], Awaitable[Applied]]
logger = logging.getLogger(__name__)


class Read(Protocol):
    """Runs what blocks on a thread for reading."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Findings:
    """How a file stands. `oldest_at` is when its first memory was made, None for a file without any."""

    sessions: tuple[SessionEntry, ...] = ()
    """The open ones, and those whose end is to be dealt with."""
    requests: tuple[ConsolidationRequest, ...] = ()
    promotable: tuple[Promotable, ...] = ()
    maintenance: MaintenanceState = NEVER
    oldest_at: float | None = None
    wants_consolidation: bool = False
    """Whether a request is to be made."""
    looked_at: float = 0.0
    """When the look was begun, by a clock that only goes forward."""


def jobs_of(
    name: str, project: ProjectRef | None, findings: Findings, declined: Collection[Promotable], wall_now: float
) -> list[FoundJob]:
    """The jobs that follow. `declined` are memories that were looked at for promotion, as they were then."""
    found = []
    if project is not None:
        for session in findings.sessions:
            if session.ended_at is not None:
                key = ("session", name, session.session_id, repr(session.ended_at))
                found.append(FoundJob(key, Rank.SESSION_END, SessionEndJob(0, project, session)))
        new = tuple(each for each in findings.promotable if each not in declined)[:PROMOTED_TOGETHER]
        if new:
            job = PromoteJob(0, project, tuple(each.memory_id for each in new))
            found.append(FoundJob(("promote", name), Rank.PROMOTION, job, new))
    for request in findings.requests:
        consolidate = ConsolidateJob(0, project, request.number, request.reason)
        found.append(FoundJob(("consolidate", name, str(request.number)), Rank.CONSOLIDATION, consolidate))
    if _maintenance_is_due(findings, wall_now):
        found.append(FoundJob(("maintain", name), Rank.MAINTENANCE, MaintainJob(0, Maintain(project))))
    return found


def _maintenance_is_due(findings: Findings, wall_now: float) -> bool:
    """A last time that lies ahead, because the clock was set back, is waited for no longer than a week."""
    state = findings.maintenance
    if findings.oldest_at is None:
        return False
    due_at = (findings.oldest_at if state.done_at is None else state.done_at) + MAINTENANCE_S
    return state.sessions_since >= MAINTENANCE_SESSIONS or wall_now >= due_at or wall_now < due_at - 2 * MAINTENANCE_S


class JobFinder:
    """Puts what it finds into the queue, and calls `on_news` when that may have changed it.

    `count_accesses` writes down what answers have shown: it counts in what is decided about a memory.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        queue: JobQueue,
        settings: Settings,
        submit: Apply,
        read: Read,
        on_news: Callable[[], None],
        count_accesses: Callable[[], Awaitable[None]],
    ) -> None:
        self._files = files
        self._committer = committer
        self._queue = queue
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
        self._findings: dict[str, Findings] = {}
        self._observed: dict[str, list[FoundJob]] = {}
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

    async def finished(self, found: FoundJob) -> None:
        """A job has been done: note it where the records do not say so by themselves, and look again."""
        match found.job:
            case PromoteJob(project=project):
                self._declined[project.id].update(found.promotable)
                self.mark(project.id)
            case MaintainJob(request=request) if not request.dry_run:
                await self._note_maintenance(USER if request.project is None else request.project.id)
            case MaintainJob():
                pass
            case _:
                self.mark(found.key[1] if len(found.key) > 1 else USER)

    async def _note_maintenance(self, name: str) -> None:
        records = self._files.get(name)
        if records is None:
            return
        try:
            await self._committer.run(partial(records.note_maintenance, time.time()))
        except RemembrancerError as error:  # then it is due again, in a while
            logger.warning("a maintenance could not be noted", extra={"file": name, "code": error.code})
        self.mark(name)

    async def _look_into(self, records: Records) -> None:
        name, began_at = records.name, time.monotonic()
        is_project = name != USER
        most = len(self._declined[name]) + PROMOTED_TOGETHER

        def look() -> Findings:
            oldest = records.materials(ReadMemories(None, limit=1, with_content=False)).memories
            work = records.waiting_work(self._threshold, self._at_once_score, most)
            return Findings(
                sessions=work.sessions if is_project else (),
                requests=work.requests,
                promotable=work.promotable if is_project else (),
                maintenance=work.maintenance,
                oldest_at=oldest[0].created_at if oldest else None,
                wants_consolidation=work.is_crowded,
                looked_at=began_at,
            )

        findings = await self._read(look)
        if findings.wants_consolidation:
            ask = partial(records.request_consolidation, self._threshold, time.time())
            if await self._committer.run(ask):
                findings = await self._read(look)
        self._declined[name].intersection_update(findings.promotable)
        self._findings[name] = findings
        self._observed.pop(name, None)

    def _observe_all(self) -> None:
        """Have the queue know what the files want now: the time alone may have made something due."""
        wall_now = time.time()
        for name, findings in self._findings.items():
            project = self._project_of(name)
            if name != USER and project is None:
                continue
            found = jobs_of(name, project, findings, self._declined[name], wall_now)
            if self._observed.get(name) != found:
                self._observed[name] = found
                self._queue.observe(name, found, findings.looked_at)
                self._on_news()

    def _project_of(self, name: str) -> ProjectRef | None:
        if name not in self._projects and name != USER:
            self._projects.update({project.id: project for project in self._files.catalog.projects()})
        return self._projects.get(name)

    async def _end_lost_sessions(self) -> None:
        now, wall_now = time.monotonic(), time.time()
        sessions = [
            OpenSession((name, session.session_id), session.last_active_at)
            for name, findings in self._findings.items()
            for session in findings.sessions
            if session.ended_at is None
        ]
        self._ending = {key: until for key, until in self._ending.items() if until > now}
        for session in self._watch.lost(sessions, now, wall_now):
            project = self._project_of(session.key[0])
            if project is None or session.key in self._ending:
                continue
            self._ending[session.key] = now + AGAIN_S
            try:
                await self._submit(_abandon(project, session, wall_now))
            except RemembrancerError as error:
                logger.warning("a session could not be ended", extra={"code": error.code, "reason": error.message})
            else:
                logger.info("a session was abandoned", extra={"project": project.id, "session": session.key[1]})


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session of the registry that has no end. `last_active_at` is seconds since the epoch."""

    key: SessionKey
    last_active_at: float


class SessionWatch:
    """Remembers when each session was last heard of, by a clock that only goes forward. Pure."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen_at: dict[SessionKey, float] = {}

    @property
    def watched(self) -> int:
        """How many sessions something is remembered of."""
        return len(self._seen_at)

    def note(self, present: Iterable[SessionKey], now: float) -> None:
        """These sessions are connected, begin, or do something."""
        for key in present:
            self._seen_at[key] = now

    def lost(self, sessions: Iterable[OpenSession], now: float, wall_now: float) -> list[OpenSession]:
        """Those of the open sessions that have been abandoned. What else was seen and is over is let go.

        A session that was heard of and has not been for the grace time is; so is one that was not seen at all, and
        was last active a day ago by the wall clock `wall_now` (one that is ahead of it counts as active now).
        """
        known = list(sessions)
        of_registry = {session.key for session in known}
        self._seen_at = {
            key: at for key, at in self._seen_at.items() if key in of_registry or now - at <= self._grace_s
        }
        return [session for session in known if self._is_lost(session, now, wall_now)]

    def _is_lost(self, session: OpenSession, now: float, wall_now: float) -> bool:
        seen_at = self._seen_at.get(session.key)
        if seen_at is not None:  # which the registry may not have been read since
            return now - seen_at > self._grace_s
        return max(0.0, wall_now - session.last_active_at) > FORGOTTEN_S


def _abandon(project: ProjectRef, session: OpenSession, wall_now: float) -> Operation:
    """The operation that ends a session of which nobody has heard any more: the same one for the same silence."""
    session_id = session.key[1]
    about = f"abandon\n{project.id}\n{session_id}\n{session.last_active_at!r}"
    operation_id = hashlib.sha256(about.encode()).hexdigest()[:32]
    return Operation(operation_id, project, "", wall_now, EndSession(session_id, "abandoned"))
