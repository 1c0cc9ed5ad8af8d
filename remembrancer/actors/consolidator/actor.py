"""The consolidator: it does what is not urgent, one job of each sort at a time, and gives way to all else.

It owns nothing. What it has to do the store tells it, from the records; what it decides it submits as operations. So
it may be killed at any moment: the job is handed out again, and what was written already is not written twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_args

import anyio
import anyio.abc

from remembrancer.actors.consolidator.maintenance import consolidate, maintain
from remembrancer.actors.consolidator.promoting import promote_now
from remembrancer.actors.consolidator.reflecting import reflect
from remembrancer.actors.consolidator.session_end import end_session
from remembrancer.actors.consolidator.store_connection import Clock, StoreConnection
from remembrancer.actors.shell import Actor, LaunchSpec, lower_priority
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    AwaitJob,
    ConsolidateJob,
    JobReport,
    JobSort,
    Maintained,
    MaintainJob,
    NoJob,
    PromoteJob,
    Reflected,
    ReflectJob,
    SessionEndJob,
    Work,
)
from remembrancer.protocol.control import ConsolidatorHealth
from remembrancer.protocol.errors import Failure, InternalError, RemembrancerError

POLL_S: Final = 10.0
"""The time that a question for a job stays open."""
SORTS: Final[tuple[JobSort, ...]] = get_args(JobSort)

Handler = Callable[[Any, StoreConnection, Settings, Clock], Awaitable[Reflected | Maintained | None]]
"""Carries out one job of its type, and returns the answer for somebody who waits for it.

It may be cancelled at any await: what it writes has to bear a repetition. It awaits something at the latest after half
a second, since this process answers its heartbeats in between; what computes for longer goes to a thread. Any exception
is a failure of the job.
"""
HANDLERS: Final[Mapping[type[Work], Handler]] = {
    SessionEndJob: end_session,
    PromoteJob: promote_now,
    ConsolidateJob: consolidate,
    MaintainJob: maintain,
    ReflectJob: reflect,
}
logger = logging.getLogger(__name__)


class ConsolidatorActor(Actor):
    """Asks the store for jobs and carries them out."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._store = StoreConnection(spec.paths.store_endpoint, self.speaker)
        self._loop = JobLoop(self._store, HANDLERS, spec.settings, time.time)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        lower_priority()
        async with self._store:
            task_status.started()
            await self._loop.run()

    def health(self) -> ConsolidatorHealth:
        return self._loop.health()


class JobLoop:
    """Asks for a job, carries it out, says what came of it, and asks again. The store knows when to hand out again what
    failed.

    Jobs of three sorts are done side by side, so that nobody who waits for an answer, and no session's end, stands
    behind the work on a whole file. Two that want the same memory are kept apart by the versions that their edits
    expect.
    """

    def __init__(
        self, store: StoreConnection, handlers: Mapping[type[Work], Handler], settings: Settings, clock: Clock
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._settings = settings
        self._clock = clock
        self._jobs: dict[int, str] = {}
        self._finished = 0
        self._failed = 0
        self._error: str | None = None

    def health(self) -> ConsolidatorHealth:
        """The jobs that are done now, and those that were."""
        return ConsolidatorHealth("; ".join(self._jobs.values()) or None, self._finished, self._failed, self._error)

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            for sort in SORTS:
                tasks.start_soon(self._work, sort)

    async def _work(self, sort: JobSort) -> None:
        while True:
            job = await self._store.await_news(lambda: AwaitJob(sort), POLL_S)
            if not isinstance(job, NoJob):
                await self._carry_out(job)

    async def _carry_out(self, job: Work) -> None:
        """Do it. The one place where an error of a job becomes a report."""
        description = self._jobs[job.job_id] = describe(job)
        logger.info("job begun", extra={"job": description, "job_id": job.job_id})
        try:
            handler = self._handlers.get(type(job))
            if handler is None:
                raise InternalError(f"this release has nobody who carries out a {type(job).__name__}")
            result = await handler(job, self._store, self._settings, self._clock)
        except RemembrancerError as error:
            logger.warning("job failed", extra={"job": description, "code": error.code, "reason": error.message})
            self._fail(job, error.to_failure())
        except Exception:
            logger.exception("job failed", extra={"job": description})
            self._fail(job, InternalError("the consolidator failed on this: see consolidator.log").to_failure())
        else:
            self._finished += 1
            self._error = None
            self._store.tell(JobReport(job.job_id, result))
        finally:
            self._jobs.pop(job.job_id, None)

    def _fail(self, job: Work, failure: Failure) -> None:
        self._failed += 1
        self._error = failure.message
        self._store.tell(JobReport(job.job_id, failure))


def describe(job: Work) -> str:
    """A job in a word and a place, without anything that a memory says."""
    match job:
        case SessionEndJob(project=project):
            return f"a session's end in {project.id}"
        case PromoteJob(project=project):
            return f"promotion in {project.id}"
        case ConsolidateJob(project=project):
            return f"consolidation of {project.id if project else 'the user'}"
        case MaintainJob(request=request):
            return f"maintenance of {request.project.id if request.project else 'the user'}"
        case ReflectJob(request=request):
            return f"a reflection in {request.project.id}"
