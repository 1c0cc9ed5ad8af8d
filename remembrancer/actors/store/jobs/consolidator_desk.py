"""Where the store and the consolidator meet: jobs go out, material is read, and who waits gets the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.jobs.backlog import Backlog
from remembrancer.actors.store.jobs.job_board import JobBoard, Wanted
from remembrancer.actors.store.jobs.job_finder import Apply, JobFinder
from remembrancer.actors.store.jobs.material_desk import MaterialDesk
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.requests import Handler, RequestContext
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    AwaitJob,
    Job,
    JobReport,
    JobSort,
    Maintain,
    Maintained,
    MaintainJob,
    MaterialRequest,
    NoJob,
    NotePresence,
    Reflect,
    Reflected,
    ReflectJob,
)
from remembrancer.protocol.errors import (
    ConsolidatorUnavailable,
    DeadlineExceeded,
    Failure,
    InternalError,
    InvalidInput,
    RemembrancerError,
    from_failure,
)
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import Envelope, ToStore
from remembrancer.protocol.writes import Submit, SubmitBatch

ANSWER_MARGIN_S: Final = 0.2
"""What is kept of a deadline for the way back."""
DEFAULT_DEADLINE_S: Final = 10.0
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


class ConsolidatorDesk:
    """Hands out jobs, and carries out the consolidator's questions. Belongs to one event loop.

    `waiting_for_vectors` says for how many memories vectors are being made.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        settings: Settings,
        submit: Apply,
        material: MaterialDesk,
        threads: Executor,
        count_accesses: Callable[[], Awaitable[None]],
        waiting_for_vectors: Callable[[], int] = lambda: 0,
    ) -> None:
        self._board = JobBoard(first_id=time.time_ns() // 1000)
        self._backlog = Backlog()
        self._waiting_for_vectors = waiting_for_vectors
        self._threads = threads
        self.finder = JobFinder(files, committer, self._board, settings, submit, self._read, self._wake, count_accesses)
        self._material = material
        self._news = anyio.Event()
        self._awaited: dict[int, _Awaited] = {}
        self._latest: dict[tuple[str, JobSort | None], int] = {}
        """By incarnation and sort, the question for a job that counts: the last one."""
        self._refusal: str | None = None if settings.consolidator else OFF
        self._is_off = not settings.consolidator
        self._draining = False

    def handlers(self) -> dict[type, Handler]:
        """What the consolidator asks, and what is asked of it."""
        return {
            AwaitJob: self._await_job,
            JobReport: self._take_report,
            Reflect: self.ask,
            Maintain: self.ask,
            **dict.fromkeys(get_args(MaterialRequest), lambda request, _: self._material.read(request)),
        }

    def hear(self, peer: Peer, message: ToStore) -> None:
        """Somebody has said this to the store: what of it concerns the jobs."""
        if peer.name == CONSOLIDATOR:
            self._board.heard(peer.incarnation, time.monotonic())
        match message:
            case NotePresence():
                self.finder.note_presence(message)
            case Submit(operation=operation):
                self.finder.note_operation(operation)
            case SubmitBatch(operations=operations):
                for operation in operations:
                    self.finder.note_operation(operation)

    def drain(self) -> None:
        """The store is about to stop: whoever waits for a job need not wait any more."""
        self._draining = self._material.draining = True
        self._wake()

    def consolidator_gone(self, incarnation: str) -> None:
        """A consolidator has died: what it had is free."""
        self._latest = {key: question for key, question in self._latest.items() if key[0] != incarnation}
        self._release(incarnation)

    def consolidator_failed(self, why: str) -> None:
        """No consolidator can be had: whoever waits for one is told."""
        if self._is_off:
            return
        self._refusal = f"the consolidator has failed: {why}"
        for job_id in list(self._awaited):
            self._board.withdraw(job_id)
            self._answer(job_id, ConsolidatorUnavailable(self._refusal))

    async def ask(self, request: Reflect | Maintain, context: RequestContext) -> Reflected | Maintained:
        """Have the consolidator do this now, before everything else, and return its answer.

        Raises:
            InvalidInput: the session is not the asking one.
            ConsolidatorUnavailable: there is none, or it does not take this in time.
            DeadlineExceeded: it is at work on this, and not done in time.
        """
        if isinstance(request, Reflect) and request.about != request.session_id:
            raise InvalidInput("a session can have its own memories consolidated, and no other's", field="session_id")
        if self._refusal is not None:
            raise ConsolidatorUnavailable(self._refusal)
        job_id, awaited = self._join(request)
        timeout_s = context.remaining_s(DEFAULT_DEADLINE_S, ANSWER_MARGIN_S)
        awaited.waiting += 1
        try:
            with anyio.move_on_after(timeout_s):
                return await asyncio.shield(awaited.answer)
            begun = self._board.has_begun(job_id)
        finally:
            awaited.waiting -= 1
            if not awaited.waiting:
                self._awaited.pop(job_id, None)
                self._board.withdraw(job_id)
        if begun:
            raise DeadlineExceeded("the consolidator is at work on this: ask again in a moment")
        raise ConsolidatorUnavailable("the consolidator is busy or is being started: ask again in a moment")

    def _join(self, request: Reflect | Maintain) -> tuple[int, _Awaited]:
        """The job of a request. A repetition of one that is under way waits with it."""
        if isinstance(request, Reflect) and request.operation_id:
            for job_id, awaited in self._awaited.items():
                if awaited.request == request:
                    return job_id, awaited
        job = ReflectJob(0, request) if isinstance(request, Reflect) else MaintainJob(0, request, awaited=True)
        job_id = self._board.ask(job)
        awaited = self._awaited[job_id] = _Awaited(request, asyncio.get_running_loop().create_future())
        self._wake()
        return job_id, awaited

    async def _await_job(self, request: AwaitJob, context: RequestContext) -> Job:
        context.undelivered = lambda: self._release(context.peer.incarnation)
        return await self._next_job(context.peer, context.envelope, request)

    async def _next_job(self, peer: Peer, envelope: Envelope, request: AwaitJob) -> Job:
        if not self._is_off:
            self._refusal = None
        asking = (peer.incarnation, request.sort)
        self._latest[asking] = envelope.message_id
        for job_id in request.done:
            await self._ended(job_id, self._board.finish(peer.incarnation, job_id, time.monotonic()))
        remaining_s = envelope.remaining_s()
        give_up_at = time.monotonic() + (DEFAULT_DEADLINE_S if remaining_s is None else remaining_s) - ANSWER_MARGIN_S
        while self._latest.get(asking) == envelope.message_id and not self._draining:
            now = time.monotonic()
            self._board.hold_long(self._backlog.held_until(self._waiting_for_vectors(), now))
            job = self._board.take(peer.incarnation, now, request.sort)
            self._tell_of_given_up()
            if job is not None:
                return job
            if now >= give_up_at:
                break
            until = min(give_up_at, self._board.next_at(request.sort) or give_up_at)
            news = self._news
            with anyio.move_on_after(max(0.0, until - now)):
                await news.wait()
        return NoJob()

    async def _take_report(self, report: JobReport, context: RequestContext) -> None:
        now, peer = time.monotonic(), context.peer
        if report.error_code is None:
            wanted = self._board.finish(peer.incarnation, report.job_id, now)
            if report.answer is not None:
                self._answer(report.job_id, report.answer)
            await self._ended(report.job_id, wanted)
        else:
            self._board.fail(peer.incarnation, report.job_id, now)
            failure = Failure(report.error_code, report.error or "the consolidator gave it up")
            self._answer(report.job_id, from_failure(failure))
            self._wake()

    async def _ended(self, job_id: int, wanted: Wanted | None) -> None:
        if wanted is None:
            return
        self._answer(job_id, InternalError("the consolidator has done this and does not say what came of it"))
        await self.finder.ended(wanted)

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
        self._board.release(incarnation, time.monotonic())
        self._tell_of_given_up()
        self._wake()

    def _tell_of_given_up(self) -> None:
        for job_id in self._board.take_given_up():
            self._answer(job_id, ConsolidatorUnavailable("the consolidator has died of this request several times"))

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
