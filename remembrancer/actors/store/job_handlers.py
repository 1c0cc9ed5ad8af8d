"""Handles requests of the consolidator, and of clients that wait for it: hands out jobs, reads memories, returns
results."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, get_args

import anyio

from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts
from remembrancer.actors.store.job_finder import RETRY_S, Apply, Attempts, JobFinder
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.vectors.near_duplicates import find_near
from remembrancer.protocol.consolidation import (
    AwaitJob,
    FindNear,
    Job,
    JobSort,
    Maintain,
    Maintained,
    MaterialRequest,
    ReadEntityEdges,
    ReadProjects,
    Reflect,
    Reflected,
)
from remembrancer.protocol.errors import (
    ConsolidatorUnavailable,
    DeadlineExceeded,
    Failure,
    InternalError,
    InvalidInput,
    from_failure,
)
from remembrancer.protocol.writes import ProjectRef

OFF: Final = "the consolidator is turned off: set REMEMBRANCER_CONSOLIDATOR=1 to turn it on"


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that one or more clients wait for."""

    job: Job
    answer: asyncio.Future[Reflected | Maintained | Failure]
    waiting: int = 0

    def settle(self, answer: Reflected | Maintained | Failure) -> None:
        """Answer the waiting clients. Later answers are ignored."""
        if not self.answer.done():
            self.answer.set_result(answer)


class JobHandlers(Handlers):
    """Hands out jobs, and answers the consolidator's requests.

    Requests never create a space: a project without one has no material.
    """

    def __init__(self, parts: StoreParts, submit: Apply, count_accesses: Callable[[], Awaitable[None]]) -> None:
        super().__init__(parts)
        self._attempts = Attempts()
        self.finder = JobFinder(parts.files, parts.settings, submit, parts.readers, self._wake, count_accesses)
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
        """True if a consolidator is needed. Jobs that were attempted again and again do not count."""
        is_due = any(self._attempts.made(job) < len(RETRY_S) for job in self.finder.due)
        return self._settings.consolidator and (bool(self._asked) or is_due)

    def consolidator_failed(self, why: str) -> None:
        self._refusal = f"the consolidator has failed: {why}"
        for asked in self._asked.values():
            asked.settle(ConsolidatorUnavailable(self._refusal).to_failure())

    async def ask(self, request: Reflect | Maintain, context: RequestContext) -> Reflected | Maintained:
        """Have the consolidator do this now, before all other jobs, and return its answer."""
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
            if not asked.waiting:  # a job that has started continues
                self._asked.pop(request, None)
        if self._attempts.made(asked.job):
            raise DeadlineExceeded("the consolidator is still working on this: ask again in a moment")
        raise ConsolidatorUnavailable("the consolidator is busy or starting: ask again in a moment")

    async def _await_job(self, request: AwaitJob, context: RequestContext) -> tuple[Job, ...]:
        if self._settings.consolidator:
            self._refusal = None
        if (done := request.done) is not None:
            self._attempts.finish(done, time.monotonic())
            if isinstance(done.work, Reflect | Maintain) and (asked := self._asked.get(done.work)) is not None:
                lost = InternalError("the consolidator has done this, but its answer is missing").to_failure()
                asked.settle(request.outcome or lost)
        with anyio.move_on_after(context.remaining_s()):
            while (job := self._next_job(request.sort)) is None:
                await self._news.wait()
            return (job,)
        return ()

    def _next_job(self, sort: JobSort) -> Job | None:
        due = [*(each.job for each in self._asked.values() if not each.answer.done()), *self.finder.due]
        self._attempts.keep(due)
        return self._attempts.take(due, sort, time.monotonic())

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

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
