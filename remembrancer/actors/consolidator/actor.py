"""The consolidator does non-urgent work at low priority. It can be killed at any moment: the store finds its jobs in
the records again, and no operation is applied twice."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, get_args

import anyio
import anyio.abc

from remembrancer.actors.actor_process import Actor, LaunchSpec
from remembrancer.actors.consolidator.maintenance import maintain
from remembrancer.actors.consolidator.promoting import promote_now
from remembrancer.actors.consolidator.reflecting import reflect
from remembrancer.actors.consolidator.session_end import end_session
from remembrancer.actors.consolidator.store_requests import Clock
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    AwaitJob,
    Job,
    JobSort,
    Maintain,
    Maintained,
    PromoteAtOnce,
    Reflect,
    Reflected,
    SessionEnded,
)
from remembrancer.protocol.control import ConsolidatorHealth
from remembrancer.protocol.errors import Failure, InternalError, RemembrancerError
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.system import lower_priority
from remembrancer.protocol.writes import ProjectRef

POLL_S: Final = 10.0
SORTS: Final[tuple[JobSort, ...]] = get_args(JobSort)

Outcome = Reflected | Maintained | None
CarryOut = Callable[[Job, StoreClient, Settings, Clock], Awaitable[Outcome]]
logger = logging.getLogger(__name__)


async def carry_out(job: Job, store: StoreClient, settings: Settings, clock: Clock) -> Outcome:
    """Do a job, and return the result for a caller that may be waiting. Any exception means that the job failed. Longer
    computations run in a thread, since this process must answer heartbeats."""
    if (lane_time := job.lane_time) is not None:
        clock = lambda: lane_time  # noqa: E731
    match job.work, job.project:
        case SessionEnded(session=session), ProjectRef() as project:
            await end_session(session, project, store, settings, clock)
        case PromoteAtOnce(memories=memories), ProjectRef() as project:
            await promote_now([each.memory_id for each in memories], project, store, settings, clock)
        case Reflect() as request, _:
            return await reflect(request, store, settings, clock)
        case Maintain(dry_run=dry_run), _:
            return await maintain(job, store, clock, dry_run=dry_run)
        case work, _:
            raise InternalError(f"the job {type(work).__name__} names no project")
    return None


class ConsolidatorActor(Actor):
    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._store = StoreClient(spec.paths.store_endpoint, self.speaker)
        self._loop = JobLoop(self._store, spec.settings, time.time)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        lower_priority()
        async with self._store:
            task_status.started()
            await self._loop.run()

    def health(self) -> ConsolidatorHealth:
        return self._loop.health()


class JobLoop:
    """Different kinds of job run concurrently, so that reflections and session ends do not wait for maintenance. If two
    jobs change the same memory, the first to commit succeeds, since edits name the version that they expect."""

    def __init__(self, store: StoreClient, settings: Settings, clock: Clock, carry_out: CarryOut = carry_out) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._carry_out = carry_out
        self._jobs: dict[JobSort, str] = {}
        self._finished = 0
        self._failed = 0
        self._error: str | None = None

    def health(self) -> ConsolidatorHealth:
        return ConsolidatorHealth("; ".join(self._jobs.values()) or None, self._finished, self._failed, self._error)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for sort in SORTS:
                tasks.start_soon(self._work, sort)

    async def _work(self, sort: JobSort) -> None:
        request = AwaitJob(sort)
        while True:
            jobs = await self._store.ask(request, POLL_S, away_s=math.inf)
            request = AwaitJob(sort)
            for job in jobs:
                request = AwaitJob(sort, job, await self._outcome_of(job))

    async def _outcome_of(self, job: Job) -> Outcome | Failure:
        description = f"{NAMES[type(job.work)]} {job.project.id if job.project else 'the user'}"
        self._jobs[job.sort] = description
        logger.info("job begun", extra={"job": description})
        try:
            outcome = await self._carry_out(job, self._store, self._settings, self._clock)
        except RemembrancerError as error:
            logger.warning("job failed", extra={"job": description, "code": error.code, "reason": error.message})
            failure = error.to_failure()
        except Exception:
            logger.exception("job failed", extra={"job": description})
            failure = InternalError("the consolidator failed on this job; see consolidator.log").to_failure()
        else:
            self._finished += 1
            self._error = None
            return outcome
        finally:
            self._jobs.pop(job.sort, None)
        self._failed += 1
        self._error = failure.message
        return failure


NAMES: Final = {
    SessionEnded: "a session's end in",
    PromoteAtOnce: "promotion in",
    Maintain: "maintenance of",
    Reflect: "a reflection in",
}
"""The names of the jobs in the log, which must not contain the content of memories."""
