"""Finds the consolidator's jobs in the records and hands them out, ends abandoned sessions, and answers requests from
the consolidator and from clients waiting for it.

A space is read again after every commit to it. A shared lane's jobs go to the host that last wrote to it. Two hosts may
do the same job without harm, since edits of memories that have changed meanwhile are skipped.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, get_args

import anyio

from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.records.types import WaitingWork
from remembrancer.actors.store.vectors.near_duplicates import find_near
from remembrancer.memory.promotion import AT_ONCE_SCORE
from remembrancer.protocol.consolidation import (
    AwaitJob,
    FindNear,
    Job,
    JobSort,
    Maintain,
    Maintained,
    MaterialRequest,
    NotePresence,
    PromoteAtOnce,
    ReadEntityEdges,
    ReadProjects,
    Reflect,
    Reflected,
    SessionEnded,
    Work,
)
from remembrancer.protocol.errors import (
    ConsolidatorUnavailable,
    DeadlineExceeded,
    Failure,
    InternalError,
    InvalidInput,
    NotFound,
    RemembrancerError,
    StorageFull,
    from_failure,
)
from remembrancer.protocol.session_life import EndSession
from remembrancer.protocol.writes import Applied, Operation, ProjectRef, Submit

CHECK_INTERVAL_S: Final = 1.0
AGAIN_S: Final = 30.0
"""The pause if the database cannot be read, or a session's end cannot be written."""
ABANDONED_AFTER_S: Final = 86_400.0
"""A session that has not been seen since the store started counts as ended after it has been idle for this long."""
MAINTENANCE_SESSIONS: Final = 10
MAINTENANCE_S: Final = 7 * 86_400.0
"""After this time, maintenance is due regardless of sessions."""
PROMOTIONS_PER_JOB: Final = 100

RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pauses before a job is handed out again, by the number of attempts. The last one is repeated."""

OFF: Final = "the consolidator is turned off; set REMEMBRANCER_CONSOLIDATOR=1 to turn it on"

SessionKey = tuple[str, str]
Apply = Callable[[Submit], Awaitable[Applied]]
logger = logging.getLogger(__name__)


def jobs_of(project: ProjectRef | None, work: WaitingWork, now: float, lane_time: float | None = None) -> list[Job]:
    """Due jobs, most urgent first. `project` is None for the user; for a shared lane, its id is the lane's name."""
    wanted: list[Work] = []
    if project is not None and lane_time is None:
        wanted += [SessionEnded(session) for session in work.sessions if session.ended_at is not None]
        if work.promotable:
            wanted.append(PromoteAtOnce(work.promotable))
    if work.oldest_at is not None:
        age_s = now - (work.oldest_at if work.maintained_at is None else work.maintained_at)
        if work.sessions_since >= MAINTENANCE_SESSIONS or abs(age_s) >= MAINTENANCE_S:
            wanted.append(Maintain(project))
    return [Job(project, each, lane_time) for each in wanted]


class Attempts:
    """The attempts at jobs that are still due. A job is handed out again after increasing pauses, whether it failed,
    killed its consolidator, or changed nothing. Pure; times are monotonic seconds."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[int, float]] = {}
        """The number of attempts, and the time of the next one, by the job's key."""

    def keep(self, due: Sequence[Job]) -> None:
        self._made = {job.key: self._made[job.key] for job in due if job.key in self._made}

    def take(self, due: Sequence[Job], sort: JobSort, now: float) -> Job | None:
        for job in due:
            made, next_at = self._made.get(job.key, (0, now))
            if job.sort == sort and next_at <= now:
                self._made[job.key] = made + 1, now + RETRY_S[min(made, len(RETRY_S) - 1)]
                return job
        return None

    def finish(self, job: Job, now: float) -> None:
        if made := self.made(job):
            self._made[job.key] = made, now + RETRY_S[min(made, len(RETRY_S) - 1)]

    def forget(self, job: Job) -> None:
        self._made.pop(job.key, None)

    def made(self, job: Job) -> int:
        return self._made.get(job.key, (0, 0.0))[0]


def lost_sessions(
    seen_at: dict[SessionKey, float], active_at: Mapping[SessionKey, float], grace_s: float, now: float, wall_now: float
) -> list[SessionKey]:
    """Return the open sessions that have been abandoned, and drop closed sessions from `seen_at`, which maps sessions
    to the monotonic times when they were last seen.

    `active_at` maps the registry's open sessions to the wall-clock times of their last activity. A session is abandoned
    if it has not been seen for the grace time or, if it was never seen, a day after its last activity.
    """
    for key, at in list(seen_at.items()):
        if key not in active_at and now - at > grace_s:  # a session seen recently may not have been read yet
            del seen_at[key]
    return [
        key
        for key, at in active_at.items()
        if (now - seen_at[key] > grace_s if key in seen_at else wall_now - at > ABANDONED_AFTER_S)
    ]


class _Space(NamedTuple):
    """A space's work when it was last read, and the number of writes to the space before that."""

    writes: int = -1
    work: WaitingWork = WaitingWork()
    project: ProjectRef | None = None


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that one or more clients are waiting for."""

    job: Job
    answer: asyncio.Future[Reflected | Maintained | Failure]
    waiting: int = 0

    def settle(self, answer: Reflected | Maintained | Failure) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class JobHandlers(Handlers):
    """Finds jobs and hands them out, and answers the consolidator's requests, which never create a space.
    `count_accesses` stores pending accesses to memories, which influence decisions about them."""

    def __init__(self, parts: StoreParts, submit: Apply, count_accesses: Callable[[], Awaitable[None]]) -> None:
        super().__init__(parts)
        self._submit = submit
        self._count_accesses = count_accesses
        self._attempts = Attempts()
        self._seen_at: dict[SessionKey, float] = {}
        self._spaces: dict[Records, _Space] = {}
        self._due: list[Job] = []
        self._news = anyio.Event()
        self._asked: dict[Reflect | Maintain, _Asked] = {}
        self._refusal: str | None = None if parts.settings.consolidator else OFF

    def handlers(self) -> dict[type, Handler]:
        return {
            AwaitJob: self._await_job,
            Reflect: self.ask,
            Maintain: self.ask,
            **dict.fromkeys(get_args(MaterialRequest), lambda request, _: self._answer_question(request)),
        }

    @property
    def has_work(self) -> bool:
        """True if a consolidator is needed. Jobs that were attempted too often do not count."""
        is_due = any(self._attempts.made(job) < len(RETRY_S) for job in self._due)
        return self._settings.consolidator and (bool(self._asked) or is_due)

    def consolidator_failed(self, why: str) -> None:
        self._refusal = f"the consolidator has failed: {why}"
        for asked in self._asked.values():
            asked.settle(ConsolidatorUnavailable(self._refusal).to_failure())

    async def ask(self, request: Reflect | Maintain, context: RequestContext) -> Reflected | Maintained:
        """Have the consolidator carry out a request before any other job, and return the result."""
        if isinstance(request, Reflect) and not request.project.sees_user:
            raise InvalidInput("a reflection also reads the user's memories, which this token may not see")
        if self._refusal is not None:
            raise ConsolidatorUnavailable(self._refusal)
        asked = self._asked.get(request)
        if asked is None:
            records = self._records_of(request.project) if isinstance(request, Maintain) else None
            job = Job(request.project, request, None if records is None else records.lane_time)
            asked = self._asked[request] = _Asked(job, asyncio.get_running_loop().create_future())
            self._attempts.forget(job)
            self._wake()
        asked.waiting += 1
        try:
            with anyio.move_on_after(context.remaining_s()):
                answer = await asyncio.shield(asked.answer)
                if isinstance(answer, Failure):
                    raise from_failure(answer)
                return answer
        finally:
            asked.waiting -= 1
            if not asked.waiting:  # a job in progress continues
                self._asked.pop(request, None)
        if self._attempts.made(asked.job):
            raise DeadlineExceeded("the consolidator is still working on this; try again in a moment")
        raise ConsolidatorUnavailable("the consolidator is busy or starting; try again in a moment")

    async def _await_job(self, request: AwaitJob, context: RequestContext) -> tuple[Job, ...]:
        if self._settings.consolidator:
            self._refusal = None
        if (done := request.done) is not None:
            self._attempts.finish(done, time.monotonic())
            if isinstance(done.work, Reflect | Maintain) and (asked := self._asked.get(done.work)) is not None:
                lost = InternalError("the consolidator has done this, but its result is missing").to_failure()
                asked.settle(request.outcome or lost)
        with anyio.move_on_after(context.remaining_s()):
            while (job := self.take(request.sort)) is None:
                await self._news.wait()
            return (job,)
        return ()

    def take(self, sort: JobSort) -> Job | None:
        due = [*(each.job for each in self._asked.values() if not each.answer.done()), *self._due]
        self._attempts.keep(due)
        return self._attempts.take(due, sort, time.monotonic())

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # --- Looking for work.

    def note_presence(self, note: NotePresence) -> None:
        self._seen_at |= {(project.id, session_id): time.monotonic() for project, session_id in note.sessions}

    async def run(self) -> None:
        while True:
            pause_s = CHECK_INTERVAL_S
            try:
                await self.look()
            except RemembrancerError as error:
                logger.warning("jobs are delayed", extra={"code": error.code, "reason": error.message})
                pause_s = AGAIN_S
            await anyio.sleep(pause_s)

    async def look(self) -> None:
        """Raises `RemembrancerError` if the database cannot be read or written now."""
        spaces = self._spaces = {records: self._spaces.get(records, _Space()) for records in self._files}
        changed = [records for records, space in spaces.items() if space.writes != records.writes]
        if changed:
            await self._count_accesses()  # so that accesses before a session's end count
        for records in changed:
            writes, read = records.writes, partial(records.waiting_work, AT_ONCE_SCORE, PROMOTIONS_PER_JOB)
            spaces[records] = _Space(writes, await self._readers.in_background(read), self._project_of(records))
        self._due = [
            job
            for records in spaces
            if records.works_here and (not records.is_users or records is self._files.user)
            for job in jobs_of(spaces[records].project, spaces[records].work, records.time, records.lane_time)
        ]
        if self._due:
            self._wake()
        await self._end_lost_sessions()

    def _project_of(self, records: Records) -> ProjectRef | None:
        """For a shared lane, the project's id is the lane's name."""
        if records.is_users:
            return None
        project_id = self._files.sharer_of(records.name) or records.name
        return ProjectRef(records.name, self._files.catalog.path_of(project_id))

    async def _end_lost_sessions(self) -> None:
        now, wall_now = time.monotonic(), time.time()
        active_at = {
            (records.name, session.session_id): session.last_active_at
            for records, space in self._spaces.items()
            if not (records.is_shared or records.is_users)
            for session in space.work.sessions
            if session.ended_at is None
        }
        for name, session_id in lost_sessions(self._seen_at, active_at, self._settings.session_grace_s, now, wall_now):
            project = ProjectRef(name, self._files.catalog.path_of(name))
            about = f"abandon\n{name}\n{session_id}\n{active_at[name, session_id]!r}"
            operation_id = hashlib.sha256(about.encode()).hexdigest()[:32]
            end = Operation(operation_id, project, "", wall_now, EndSession(session_id, "abandoned"))
            try:
                await self._submit(Submit(end))
            except (InvalidInput, NotFound, StorageFull) as refusal:
                self._seen_at[name, session_id] = time.monotonic()  # it is tried again after the grace time
                about_it = {"project": name, "session": session_id, "reason": refusal.message}
                logger.warning("the end of a session was refused", extra=about_it)
                continue
            logger.info("a session was abandoned", extra={"project": name, "session": session_id})

    # --- The consolidator's reads.

    async def _answer_question(self, request: MaterialRequest) -> object:
        if isinstance(request, ReadProjects):  # a page of the memory browser waits for it, too
            others = [project for project in self._files.catalog.projects() if project.id != request.project.id]
            return tuple(project for project in others if self._files.open_project(project) is not None)
        records = self._records_of(request.project)
        if isinstance(request, FindNear):
            vectors = None if records is None else self._vectors.searchable(records.name)
            if records is None or vectors is None:
                return ((),) * len(request.numbers)
            return await self._readers.in_background(lambda: find_near(records, vectors, request))
        reader = Reader.of([], self._files.database) if records is None else records
        if isinstance(request, ReadEntityEdges):
            return await self._readers.in_background(reader.entity_edges)
        return await self._readers.in_background(lambda: reader.materials(request, self._scheduler.answering.key))

    def _records_of(self, project: ProjectRef | None) -> Records | None:
        if project is None:
            return self._files.user
        return self._files.shared_lane(project.id) or self._files.open_project(project)
