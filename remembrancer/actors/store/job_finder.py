"""Finds the consolidator's jobs: looks into the files that have changed, and ends the sessions that were abandoned.

A look only reads. What nothing has been committed to is not looked at again. In a shared lane one of the hosts works,
which takes a lease for that as soon as there is something to do; what the next one has to know is in the lane.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.job_queue import FoundJob, JobQueue, Rank
from remembrancer.actors.store.memory_files import PROJECT_ID, USER, MemoryFiles
from remembrancer.actors.store.records.contract import ConsolidationRequest, MaintenanceState, Promotable
from remembrancer.actors.store.records.sqlite_records import Records
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
from remembrancer.protocol.errors import ConsolidatorUnavailable, RemembrancerError
from remembrancer.protocol.session_life import EndSession, SessionEntry
from remembrancer.protocol.writes import Applied, ImportMemory, Operation, ProjectRef

LOOK_S: Final = 1.0
"""The time between two looks for what has changed."""
AGAIN_S: Final = 30.0
"""The time that a file that could not be read, or an end that could not be written, is left alone."""
FORGOTTEN_S: Final = 86_400.0
"""A session that nobody was connected to in this life of the store is over when it has done nothing for so long."""
MAINTENANCE_SESSIONS: Final = 10
"""A project's maintenance is due after so many sessions."""
MAINTENANCE_S: Final = 7 * 86_400.0
"""And after so long in any case."""
NEVER: Final = MaintenanceState(None, 0)
RENEW_S: Final = 20.0
"""The lease for the work in a shared lane is renewed so often, or asked for again."""
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


class Leases(Protocol):
    """The leases for the work in shared lanes, and the time that counts in that."""

    def time_of(self, lane: str) -> float:
        """The time of a lane: none of a host's clock."""

    async def take_lease(self, lane: str) -> bool:
        """Take or renew one. The lane has what the host that had it before has done. False: another host has it."""

    async def lease_holder(self, lane: str) -> str | None:
        """The host that has one; None if none has, or that cannot be known."""

    async def give_back_lease(self, lane: str) -> None:
        """Let another host have it."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The state of a file, as far as jobs follow from it. `oldest_at` is when its first memory was made, None for a
    file without any."""

    sessions: tuple[SessionEntry, ...] = ()
    """The open ones, and those whose end is to be dealt with."""
    requests: tuple[ConsolidationRequest, ...] = ()
    promotable: tuple[Promotable, ...] = ()
    maintenance: MaintenanceState = NEVER
    oldest_at: float | None = None
    wants_consolidation: bool = False
    """True if a request is to be made."""
    looked_at: float = 0.0
    """The time at which the look was begun, by a clock that only goes forward."""


def is_lane(name: str) -> bool:
    """True for the name of a shared lane, among those of files of memories."""
    return name != USER and not PROJECT_ID.fullmatch(name)


def jobs_of(
    name: str, project: ProjectRef | None, findings: Findings, declined: Collection[Promotable], now: float
) -> list[FoundJob]:
    """The jobs that follow. `declined` are memories that were looked at for promotion, as they were then.

    A shared lane stands there as a project, whose id is its name, or as the user's (None), and `now` is its time.
    """
    found = []
    lane_time = now if is_lane(name) else None
    if project is not None and lane_time is None:
        for session in findings.sessions:
            if session.ended_at is not None:
                key = ("session", name, session.session_id, repr(session.ended_at))
                found.append(FoundJob(key, Rank.SESSION_END, SessionEndJob(0, project, session)))
        new = tuple(each for each in findings.promotable if each not in declined)[:PROMOTED_TOGETHER]
        if new:
            job = PromoteJob(0, project, tuple(each.memory_id for each in new))
            found.append(FoundJob(("promote", name), Rank.PROMOTION, job, new))
    for request in findings.requests:
        consolidate = ConsolidateJob(0, project, request.number, request.reason, lane_time)
        found.append(FoundJob(("consolidate", name, str(request.number)), Rank.CONSOLIDATION, consolidate))
    if _maintenance_is_due(findings, now):
        found.append(FoundJob(("maintain", name), Rank.MAINTENANCE, MaintainJob(0, Maintain(project), lane_time)))
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

    `count_accesses` writes down what answers have shown: it counts in what is decided about a memory. `has_worker` says
    whether there is a consolidator: who has none takes no lease.
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
        leases: Leases,
        has_worker: Callable[[], bool],
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
        self._leases = leases
        self._has_worker = has_worker
        self._leased: dict[str, tuple[bool, float]] = {}
        """Of shared lanes in which there is something to do: True if this host does it, and the time until which that
        is not asked again."""
        self._asked: Counter[str] = Counter()
        """Of shared lanes: how many wait for work there that they asked for."""
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
        if not is_lane(name) or self._files.sharer_of(name) is not None:
            self._changed[name] = 0.0

    def forget(self, name: str) -> None:
        """A file is there no more."""
        for known in (self._changed, self._findings, self._observed, self._declined, self._projects, self._leased):
            known.pop(name, None)
        self._queue.observe(name, [], time.monotonic())

    def note_presence(self, message: NotePresence) -> None:
        """These sessions are connected."""
        self._watch.note(((project.id, session) for project, session in message.sessions), time.monotonic())

    def note_operation(self, operation: Operation) -> None:
        """A session does something: it is there, whether anybody is connected to it or not."""
        if operation.session_id and not isinstance(operation.change, EndSession | ImportMemory):
            self._watch.note([(operation.project.id, operation.session_id)], time.monotonic())

    def lane_of(self, project: ProjectRef | None) -> str | None:
        """The shared lane that stands for a project, or in which the user's memories (None) are; None: it is a file of
        this host's own."""
        name = self._files.user.name if project is None else project.id
        return name if is_lane(name) and self._files.sharer_of(name) is not None else None

    @asynccontextmanager
    async def working_in(self, lane: str, *, reads_only: bool) -> AsyncIterator[float]:
        """Have the lease of a lane for work that somebody asked for, if it does more than read: the lane's time.

        Raises `ConsolidatorUnavailable` if another host has it, or it cannot be had.
        """
        if reads_only:
            yield self._leases.time_of(lane)
            return
        self._asked[lane] += 1
        try:
            if not self._leased.get(lane, (False, 0.0))[0]:
                if not await self._leases.take_lease(lane):
                    holder = await self._leases.lease_holder(lane)
                    why = "its journal is away, or this machine may only read it"
                    why = why if holder is None else f"{holder} is at work there: ask again in two minutes"
                    raise ConsolidatorUnavailable(f"this is shared with other machines, and {why}")
                self._leased[lane] = True, time.monotonic() + RENEW_S
                self._findings.setdefault(lane, Findings())
            yield self._leases.time_of(lane)
        finally:
            self._asked[lane] -= 1  # the next look gives it back

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
        for name in [name for name in self._findings if is_lane(name)]:
            await self._keep_lease(name)
        self._observe_all()
        await self._end_lost_sessions()

    async def finished(self, found: FoundJob) -> None:
        """A job has been done: note it where the records do not say so by themselves, and look again."""
        match found.job:
            case PromoteJob(project=project):
                self._declined[project.id].update(found.promotable)
                self.mark(project.id)
            case MaintainJob(request=request) if not request.dry_run:
                await self._note_maintenance(self._files.user.name if request.project is None else request.project.id)
            case MaintainJob():
                pass
            case _:
                self.mark(found.key[1] if len(found.key) > 1 else USER)

    async def _note_maintenance(self, name: str) -> None:
        records = self._files.get(name)
        if records is None:
            return
        try:
            await self._committer.run(name, partial(records.note_maintenance, time.time()))
        except RemembrancerError as error:  # then it is due again, in a while
            logger.warning("a maintenance could not be noted", extra={"file": name, "code": error.code})
        self.mark(name)

    def _is_users(self, name: str) -> bool:
        """True for the user's file, and for the lane that he shares."""
        return name == USER or self._files.sharer_of(name) == USER

    def _works_in(self, name: str) -> bool:
        """True if this host does the work in a file: in a shared lane, if it has the lease."""
        if name == USER:
            return not self._files.shares(USER)
        return not is_lane(name) or self._leased.get(name, (False, 0.0))[0]

    async def _keep_lease(self, name: str) -> None:
        """Take or renew the lease of a lane in which there is something to do; give back that of another."""
        records, project, findings = self._files.get(name), self._project_of(name), self._findings[name]
        if records is None or (project is None and not self._is_users(name)):
            self.forget(name)
            return
        wanted = (
            self._asked[name] > 0
            or findings.wants_consolidation
            or bool(jobs_of(name, project, findings, (), self._leases.time_of(name)))
        )
        if not wanted or not self._has_worker():
            if self._leased.pop(name, (False, 0.0))[0]:
                await self._leases.give_back_lease(name)
            return
        had, until = self._leased.get(name, (False, 0.0))
        if time.monotonic() < until:
            return
        has = await self._leases.take_lease(name)
        self._leased[name] = has, time.monotonic() + RENEW_S
        if has and not had:  # who had it before may have done all of it
            self._changed.pop(name, None)
            try:
                await self._look_into(records)
            except RemembrancerError as error:
                logger.warning("a file cannot be looked at", extra={"file": name, "code": error.code})
                self._changed.setdefault(name, time.monotonic() + AGAIN_S)

    async def _look_into(self, records: Records) -> None:
        name, began_at = records.name, time.monotonic()
        is_project = PROJECT_ID.fullmatch(name) is not None
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
        if findings.wants_consolidation and self._works_in(name):
            ask = partial(records.request_consolidation, self._threshold, time.time())
            if await self._committer.run(name, ask):
                findings = await self._read(look)
        self._declined[name].intersection_update(findings.promotable)
        self._findings[name] = findings
        self._observed.pop(name, None)

    def _observe_all(self) -> None:
        """Have the queue know what the files want now: the time alone may have made something due."""
        wall_now = time.time()
        for name, findings in self._findings.items():
            project = self._project_of(name)
            if project is None and not self._is_users(name):
                continue
            now = self._leases.time_of(name) if is_lane(name) else wall_now
            found = jobs_of(name, project, findings, self._declined[name], now) if self._works_in(name) else []
            if self._observed.get(name) != found:
                self._observed[name] = found
                self._queue.observe(name, found, findings.looked_at)
                self._on_news()

    def _project_of(self, name: str) -> ProjectRef | None:
        if is_lane(name):
            sharer = self._project_of(self._files.sharer_of(name) or USER)
            return None if sharer is None else ProjectRef(name, sharer.path)
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
        """The number of sessions that something is remembered of."""
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
