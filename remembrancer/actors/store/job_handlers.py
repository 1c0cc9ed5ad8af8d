"""The consolidator's questions to the store, and those of clients who wait for it: jobs go out, memories are read,
answers go back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

import anyio
import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.job_finder import Apply, JobFinder, Leases
from remembrancer.actors.store.job_queue import LEASE_S, Backlog, FoundJob, JobQueue
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.near_duplicates import find_near
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    AwaitJob,
    EntityEdges,
    FindNear,
    Job,
    JobReport,
    JobSort,
    Maintain,
    Maintained,
    MaintainJob,
    MaterialRequest,
    MemoriesRead,
    NoJob,
    NotePresence,
    ReadEntityEdges,
    ReadMemories,
    ReadProjects,
    ReadSession,
    ReadUpkeep,
    Reflect,
    Reflected,
    ReflectJob,
    SessionRead,
    Upkeep,
)
from remembrancer.protocol.errors import (
    ConsolidatorUnavailable,
    DeadlineExceeded,
    Failure,
    InternalError,
    InvalidInput,
    MemoryUnavailable,
    RemembrancerError,
    from_failure,
)
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.writes import ProjectRef, Submit, SubmitBatch

ANSWER_MARGIN_S: Final = 0.2
"""The part of a deadline that is kept for the way back."""
DEFAULT_DEADLINE_S: Final = 10.0
NOTHING: Final[dict[type[MaterialRequest], msgspec.Struct]] = {
    ReadMemories: MemoriesRead((), more=False),
    ReadEntityEdges: EntityEdges(()),
    ReadUpkeep: Upkeep(),
    ReadSession: SessionRead(None),
}
"""The answers for a project without a file."""
CONSOLIDATOR: Final = "consolidator"
"""The name that a consolidator speaks under."""
OFF: Final = "there is no consolidator here (the setting consolidator): set REMEMBRANCER_CONSOLIDATOR=1 to have one"

T = TypeVar("T")


@dataclass(slots=True)
class _Awaited:
    """A request that somebody waits for, or several who sent the same one."""

    request: Reflect | Maintain
    answer: asyncio.Future[Reflected | Maintained]
    waiting: int = 0


class JobHandlers:
    """Hands out jobs, and carries out the consolidator's questions. Belongs to one event loop.

    A project that has no file yet has nothing in it: to ask makes none.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        vectors: VectorSpaces,
        scheduler: EmbeddingScheduler,
        gate: LoadGate,
        threads: Executor,
        settings: Settings,
        submit: Apply,
        count_accesses: Callable[[], Awaitable[None]],
        leases: Leases,
    ) -> None:
        self._files = files
        self._vectors = vectors
        self._scheduler = scheduler
        self._gate = gate
        self._threads = threads
        self._queue = JobQueue(first_id=time.time_ns() // 1000)
        self._backlog = Backlog()
        self.finder = JobFinder(
            files,
            committer,
            self._queue,
            settings,
            submit,
            self._read,
            self._wake,
            count_accesses,
            leases,
            self._has_consolidator,
        )
        self._news = anyio.Event()
        self._awaited: dict[int, _Awaited] = {}
        self._latest: dict[tuple[str, JobSort | None], int] = {}
        """By incarnation and sort, the question for a job that counts: the last one."""
        self._heard_at = float("-inf")
        """The time at which a consolidator has last said something."""
        self._refusal: str | None = None if settings.consolidator else OFF
        self._is_off = not settings.consolidator
        self._draining = False

    def handlers(self) -> dict[type, Handler]:
        """The handlers of the consolidator's requests, and of requests for its work."""
        return {
            AwaitJob: self._await_job,
            JobReport: self._take_report,
            Reflect: self.ask,
            Maintain: self.ask,
            **dict.fromkeys(get_args(MaterialRequest), lambda request, _: self._answer_question(request)),
        }

    def hear(self, peer: Peer, message: Any) -> None:
        """Somebody has said this to the store: what of it concerns the jobs."""
        if peer.name == CONSOLIDATOR:
            self._heard_at = time.monotonic()
            self._queue.heard(peer.incarnation, self._heard_at)
        match message:
            case NotePresence():
                self.finder.note_presence(message)
            case Submit(operation=operation):
                self.finder.note_operation(operation)
            case SubmitBatch(operations=operations):
                for operation in operations:
                    self.finder.note_operation(operation)

    def _has_consolidator(self) -> bool:
        return self._refusal is None and time.monotonic() - self._heard_at < LEASE_S

    def drain(self) -> None:
        """The store is about to stop: whoever waits for a job need not wait any more."""
        self._draining = True
        self._wake()

    def consolidator_gone(self, incarnation: str) -> None:
        """A consolidator has died: what it had is free."""
        self._heard_at = float("-inf")
        self._latest = {key: question for key, question in self._latest.items() if key[0] != incarnation}
        self._release(incarnation)

    def consolidator_failed(self, why: str) -> None:
        """No consolidator can be had: whoever waits for one is told."""
        if self._is_off:
            return
        self._refusal = f"the consolidator has failed: {why}"
        for job_id in list(self._awaited):
            self._queue.withdraw(job_id)
            self._answer(job_id, ConsolidatorUnavailable(self._refusal))

    async def ask(self, request: Reflect | Maintain, context: RequestContext) -> Reflected | Maintained:
        """Have the consolidator do this now, before everything else, and return its answer.

        Raises:
            InvalidInput: the session is not the asking one.
            ConsolidatorUnavailable: there is none, or it does not take this in time; or it is work in a shared lane,
                and another host is at work there.
            DeadlineExceeded: it is at work on this, and not done in time.
        """
        if isinstance(request, Reflect) and request.about != request.session_id:
            raise InvalidInput("a session can have its own memories consolidated, and no other's", field="session_id")
        if isinstance(request, Reflect) and not request.project.sees_user:
            raise InvalidInput("a reflection looks at the user's memories too, and they are not for this token")
        if self._refusal is not None:
            raise ConsolidatorUnavailable(self._refusal)
        lane = self.finder.lane_of(request.project) if isinstance(request, Maintain) else None
        if lane is None or not isinstance(request, Maintain):
            return await self._asked(request, None, context)
        async with self.finder.working_in(lane, reads_only=request.dry_run) as lane_time:
            return await self._asked(request, lane_time, context)

    async def _asked(
        self, request: Reflect | Maintain, lane_time: float | None, context: RequestContext
    ) -> Reflected | Maintained:
        job_id, awaited = self._join(request, lane_time)
        timeout_s = context.remaining_s(DEFAULT_DEADLINE_S, ANSWER_MARGIN_S)
        awaited.waiting += 1
        try:
            with anyio.move_on_after(timeout_s):
                return await asyncio.shield(awaited.answer)
            begun = self._queue.has_begun(job_id)
        finally:
            awaited.waiting -= 1
            if not awaited.waiting:
                self._awaited.pop(job_id, None)
                self._queue.withdraw(job_id)
        if begun:
            raise DeadlineExceeded("the consolidator is at work on this: ask again in a moment")
        raise ConsolidatorUnavailable("the consolidator is busy or is being started: ask again in a moment")

    def _join(self, request: Reflect | Maintain, lane_time: float | None) -> tuple[int, _Awaited]:
        """The job of a request. A repetition of one that is under way waits with it."""
        if isinstance(request, Reflect) and request.operation_id:
            for job_id, awaited in self._awaited.items():
                if awaited.request == request:
                    return job_id, awaited
        job = ReflectJob(0, request) if isinstance(request, Reflect) else MaintainJob(0, request, lane_time)
        job_id = self._queue.add_request(job)
        awaited = self._awaited[job_id] = _Awaited(request, asyncio.get_running_loop().create_future())
        self._wake()
        return job_id, awaited

    async def _await_job(self, request: AwaitJob, context: RequestContext) -> Job:
        context.undelivered = lambda: self._release(context.peer.incarnation)
        incarnation, question = context.peer.incarnation, context.envelope.message_id
        if not self._is_off:
            self._refusal = None
        asking = (incarnation, request.sort)
        self._latest[asking] = question
        for job_id in request.done:
            await self._finished(job_id, self._queue.finish(incarnation, job_id, time.monotonic()))
        give_up_at = time.monotonic() + context.remaining_s(DEFAULT_DEADLINE_S, ANSWER_MARGIN_S)
        while self._latest.get(asking) == question and not self._draining:
            now = time.monotonic()
            pending = self._scheduler.pending if self._scheduler.workers else 0
            self._queue.hold_long(self._backlog.held_until(pending, now))
            job = self._queue.take(incarnation, now, request.sort)
            self._refuse_failed_requests()
            if job is not None:
                return job
            if now >= give_up_at:
                break
            until = min(give_up_at, self._queue.next_at(request.sort) or give_up_at)
            news = self._news
            with anyio.move_on_after(max(0.0, until - now)):
                await news.wait()
        return NoJob()

    async def _take_report(self, report: JobReport, context: RequestContext) -> None:
        now, incarnation = time.monotonic(), context.peer.incarnation
        if report.error_code is None:
            found = self._queue.finish(incarnation, report.job_id, now)
            if report.answer is not None:
                self._answer(report.job_id, report.answer)
            await self._finished(report.job_id, found)
        else:
            self._queue.fail(incarnation, report.job_id, now)
            failure = Failure(report.error_code, report.error or "the consolidator could not do it")
            self._answer(report.job_id, from_failure(failure))
            self._wake()

    async def _finished(self, job_id: int, found: FoundJob | None) -> None:
        if found is not None:
            self._answer(job_id, InternalError("the consolidator has done this and does not say what came of it"))
            await self.finder.finished(found)

    def _answer(self, job_id: int, answer: Reflected | Maintained | RemembrancerError) -> None:
        """Answer whoever waits for that job; the first answer counts."""
        awaited = self._awaited.get(job_id)
        if awaited is None or awaited.answer.done():
            return
        if isinstance(answer, RemembrancerError):
            awaited.answer.set_exception(answer)
        else:
            awaited.answer.set_result(answer)

    def _release(self, incarnation: str) -> None:
        self._queue.release(incarnation, time.monotonic())
        self._refuse_failed_requests()
        self._wake()

    def _refuse_failed_requests(self) -> None:
        for job_id in self._queue.take_failed_requests():
            self._answer(job_id, ConsolidatorUnavailable("the consolidator has died of this request several times"))

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # --- What the consolidator reads. It steps aside while clients are being served.

    async def _answer_question(self, request: MaterialRequest) -> object:
        if isinstance(request, ReadProjects):  # which a page of the memory browser waits for, too
            known = [project for project in self._files.catalog.projects() if project.id != request.project.id]
            return tuple(each for each in known if self._files.is_there(each))
        await self._gate.step_aside()
        if self._draining:
            raise MemoryUnavailable("the store is stopping")
        records = await self._records_of(request.project)
        identity = self._scheduler.identity
        if isinstance(request, FindNear):
            if records is None or identity is None:
                return ((),) * request.rows
            index = self._vectors.searchable(records.name, identity.key)
            return await self._read(lambda: find_near(records, index, identity.key, request))
        if records is None:
            return NOTHING[type(request)]
        model = None if identity is None else identity.key
        answer: msgspec.Struct = await self._read(lambda: records.materials(request, model))
        return answer

    async def _records_of(self, project: ProjectRef | None) -> Records | None:
        if project is None:
            return self._files.user
        if (lane := self._files.shared_lane(project.id)) is not None:
            return lane
        return await self._files.project(project) if self._files.is_there(project) else None

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
