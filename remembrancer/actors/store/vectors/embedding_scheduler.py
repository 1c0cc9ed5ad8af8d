"""Schedules the embedding of what is stored, and of questions: jobs go out on credit, vectors come back to be kept."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import numpy as np

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.contract import EmbeddedMemory, EmbeddedTexts, Vectors
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.requests import JOBS_UNDER_LOAD, LoadGate
from remembrancer.actors.store.vectors.embedding_queue import (
    HAND_BYTES,
    MAX_DEATHS,
    DeadLetters,
    EmbeddingQueue,
    Job,
)
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.errors import EmbeddingUnavailable, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import ToWorker, WorkerMessage
from remembrancer.protocol.work import (
    EmbedPassages,
    EmbedQuery,
    JobFailed,
    ModelIdentity,
    PassageJob,
    PassagesEmbedded,
    PassagesReranked,
    QueryEmbedded,
    RerankPassages,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)

SAVE_BATCH: Final = 64
"""Memories whose vectors are saved in one transaction: few enough that a client's write does not wait for long."""
BYTES_UNDER_LOAD: Final = 5_000
"""Text in a worker's hands while clients are served: about 50 ms of its time, as `JOBS_UNDER_LOAD` are."""
LEASE_CHECK_S: Final = 5.0
RETRY_S: Final = 1.0
"""Before the records are written again that could not be: a full disk, say."""
DEADLY: Final = f"its text was alone in the hands of {MAX_DEATHS} embedders that died: it is found by its words"
UNATTENDED_S: Final = 10.0
"""So long after the start, or after the last that was heard of any worker, one may still be on its way."""
NO_WORKER: Final = "no embedder is running: see `remembrancer status`"
FIRST_ID_BITS: Final = 48
"""A store counts its jobs and questions from anywhere: an answer that an earlier store asked for fits none of them."""

CACHED_QUERIES: Final = 1024
"""1.5 MB at 384 dimensions."""

logger = logging.getLogger(__name__)


class _Finished(NamedTuple):
    """Vectors that have come and are to be saved; `digest` tells which text they were made of."""

    job: Job
    message: PassagesEmbedded
    made_by: ModelIdentity
    digest: bytes


class EmbeddingScheduler:
    """Has the workers embed what is stored, and saves the vectors. `send` sends to a worker; False: it is gone."""

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        index: IndexManager,
        threads: Executor,
        send: Callable[[Peer, ToWorker], asyncio.Future[bool]],
        gate: LoadGate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._committer = committer
        self._index = index
        self._threads = threads
        self._send = send
        self._gate = gate
        self.queue: EmbeddingQueue[Job, Peer] = EmbeddingQueue(secrets.randbits(FIRST_ID_BITS))
        self._questions = WorkerQuestions(send, secrets.randbits(FIRST_ID_BITS))
        self._query_vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._finished: list[_Finished] = []
        self._waiters: dict[Job, list[asyncio.Future[str | None]]] = {}
        self._failures: dict[str, str] = {}  # by the worker's incarnation
        self._clock = clock
        self._attended_at = clock()
        self.dead_letters = DeadLetters()
        self._unsaved: Counter[Job] = Counter()
        self._digests: dict[int, bytes] = {}
        """By job id, of the texts that were handed out: what the vectors that come back are made of."""
        self._handing = asyncio.Event()
        self._awaited = asyncio.Event()
        self._saving = asyncio.Event()
        self._model_came = asyncio.Event()
        self.identity: ModelIdentity | None = files.catalog.last_model()

    @property
    def pending(self) -> int:
        """Memories that wait for their vectors, to the moment in which these can be searched."""
        return self.queue.pending + len(self._unsaved)

    @property
    def error(self) -> str | None:
        """Why there are no vectors: the last word of a worker that could not load its model, or that there is none."""
        if self.queue.has_workers:
            return None
        for failure in self._failures.values():
            return failure
        return NO_WORKER if self._clock() - self._attended_at >= UNATTENDED_S else None

    async def run(self) -> None:
        """Hand out jobs and save vectors until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hand_out)
            tasks.start_soon(self._save)
            tasks.start_soon(self._catch_up)

    def enqueue(self, name: str, numbers: Iterable[int]) -> None:
        """These memories of a file need vectors: they are new, or their content is another."""
        jobs = [(name, number) for number in numbers]
        for job in jobs:
            self.dead_letters.remove(job)
        self.queue.enqueue(jobs)
        self._handing.set()

    async def embed_query(self, text: str, timeout_s: float) -> Vectors:
        """The unit vector of a question, (dimensions,); recent ones are kept.

        Raises:
            EmbeddingUnavailable: no worker has a model, none answered within `timeout_s`, or the answer is no vector.
        """
        identity = self.queue.identity
        if identity is None:
            raise EmbeddingUnavailable("no embedding worker has a model loaded")
        key = (identity.key, text)
        if (cached := self._query_vectors.get(key)) is not None:
            self._query_vectors.move_to_end(key)
            return cached
        least_busy = sorted(self.queue.workers, key=lambda worker: len(self.queue.held_by(worker)))
        asked = partial(EmbedQuery, text=text)
        answer = await self._questions.ask(asked, QueryEmbedded, least_busy, timeout_s)
        if not vectors_fit(answer.vector, 1, identity.dimensions):
            raise EmbeddingUnavailable("a worker's answer does not fit its model")
        vector = np.frombuffer(answer.vector, dtype="<f4")
        self._query_vectors[key] = vector
        if len(self._query_vectors) > CACHED_QUERIES:
            self._query_vectors.popitem(last=False)
        return vector

    async def rerank(self, query: str, passages: Sequence[str], timeout_s: float) -> Sequence[float]:
        """How well each passage answers the query, in [0, 1], as one worker's reranker says.

        Raises:
            EmbeddingUnavailable: there is no reranker yet, or it has not answered within `timeout_s`, or could not.
        """
        asked = partial(RerankPassages, query=query, passages=tuple(passages), answer_by=time.time() + timeout_s)
        first = self.queue.workers[:1]  # always the same one: each that is asked loads the model
        answer = await self._questions.ask(asked, PassagesReranked, first, timeout_s)
        if len(answer.scores) != len(passages) or not all(0.0 <= score <= 1.0 for score in answer.scores):
            raise EmbeddingUnavailable("the reranker's answer does not fit the question")
        return answer.scores

    async def wait_for(self, records: EmbeddedTexts, number: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait until a memory has its vectors: whether it has them now, and the error if it cannot have any.

        While there is nobody who could make them, that is said at once."""
        job = (records.name, number)
        with anyio.move_on_after(timeout_s):
            while True:
                with self._waiting_for(job) as news:
                    if self.is_embedded(records, number):
                        return True, None
                    if job in self.dead_letters:
                        return False, self.dead_letters.reason_of(job)
                    if self.error is not None:
                        return False, self.error
                    self._awaited.set()
                    error = await news
                if error is not None:
                    return False, error
        return False, self.error

    @contextlib.contextmanager
    def _waiting_for(self, job: Job) -> Iterator[asyncio.Future[str | None]]:
        """What is said of a job next: None when its vectors are kept, or else why it has none."""
        news: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(job, [])
        waiters.append(news)
        try:
            yield news
        finally:
            waiters.remove(news)
            if not waiters:
                self._waiters.pop(job, None)

    def is_embedded(self, records: EmbeddedTexts, number: int) -> bool:
        """Whether a memory has its vectors under the present model."""
        return self.identity is not None and records.is_embedded(self.identity.key, number)

    def hear(self, worker: Peer, message: WorkerMessage) -> None:
        """What a worker says."""
        self._attended_at = self._clock()
        match message:
            case WorkerReady(identity=identity, credit=credit):
                self._failures.pop(worker.incarnation, None)
                self._welcome(worker, identity, credit)
            case WorkerFailed(message=reason):
                self._failures[worker.incarnation] = reason
                self._lose(worker)
            case WorkerLeaving():
                self._failures.pop(worker.incarnation, None)
                self._lose(worker)
            case QueryEmbedded() | PassagesReranked():
                self._questions.answered(worker, message)
            case PassagesEmbedded() | JobFailed() if not self.queue.knows(worker):
                asyncio.ensure_future(self._send(worker, WhoAreYou()))  # noqa: RUF006 - best effort
            case PassagesEmbedded():
                self._vectors_came(worker, message)
            case JobFailed(job_id=job_id, message=reason):
                self._job_failed(worker, job_id, reason)

    def peer_gone(self, gone: PeerGone) -> None:
        """A process of the runtime has died. If it was a worker, its jobs go to another."""
        if gone.role == "embedder":
            self._attended_at = self._clock()
        for worker in self.queue.workers:
            if worker.incarnation == gone.incarnation:
                self._lose(worker, died=True)
        self._failures.pop(gone.incarnation, None)

    def _lose(self, worker: Peer, *, died: bool = False) -> None:
        for job_id in self.queue.held_by(worker):
            self._digests.pop(job_id, None)
        if died:
            for job in self.queue.worker_died(worker):
                logger.error("a memory ends its embedders", extra={"file": job[0], "number": job[1]})
                self.dead_letters.add(job, DEADLY, now=self._clock(), deadly=True)
                self._tell(job, DEADLY)
        else:
            self.queue.worker_gone(worker)
        self._questions.worker_gone(worker)
        self._handing.set()

    def _vectors_came(self, worker: Peer, message: PassagesEmbedded) -> None:
        identity = self.identity
        if identity is None or not vectors_fit(message.vectors, len(message.passages), identity.dimensions):
            self._job_failed(worker, message.job_id, "the worker's answer does not fit its model")
            return
        job = self.queue.finish(worker, message.job_id, self._clock())
        digest = self._digests.pop(message.job_id, b"")
        if job is not None:
            self._finished.append(_Finished(job, message, identity, digest))
            self._unsaved[job] += 1
            self._saving.set()
        self._handing.set()

    def _welcome(self, worker: Peer, identity: ModelIdentity, credit: int) -> None:
        """Let a worker in. One with another model than the others' is the new model: all is embedded again."""
        present = self.queue.identity
        if present is not None and present.key != identity.key:
            for other in self.queue.workers:
                self._lose(other)
        self.identity = identity
        self._index.use_model(identity, self._files.embedded())
        self.queue.worker_ready(worker, identity, credit)
        self._model_came.set()
        self._handing.set()

    async def _catch_up(self) -> None:
        """After a worker's arrival, queue what has no vectors under its model."""
        noted: str | None = None
        while True:
            await self._model_came.wait()
            self._model_came.clear()
            identity = self.identity
            if identity is not None and identity.key != noted:
                with contextlib.suppress(MemoryUnavailable):  # the store is stopping
                    await self._committer.run(partial(self._files.catalog.note_model, identity))
                noted = identity.key
            for records in self._files.embedded():
                await self.enqueue_missing(records)

    async def enqueue_missing(self, records: EmbeddedTexts) -> None:
        """Queue every memory of a file that has no vectors under the present model."""
        identity = self.identity
        try:
            # On the writer's thread: what is not pending there any more is still among the unsaved here.
            missing = await self._committer.run(partial(records.pending, None if identity is None else identity.key))
        except RemembrancerError as error:
            logger.warning("a file's embedding waits", extra={"file": records.name, "reason": error.message})
            return
        now, jobs = self._clock(), [(records.name, number) for number in missing]
        self.queue.enqueue_missing(
            job for job in jobs if job not in self._unsaved and self.dead_letters.try_again(job, now)
        )
        self._handing.set()

    def _job_failed(self, worker: Peer, job_id: int, reason: str) -> None:
        failed = self.queue.fail(worker, job_id, self._clock())
        self._digests.pop(job_id, None)
        self._handing.set()
        if failed is None:
            return
        (name, number), final = failed
        logger.warning("a memory could not be embedded", extra={"file": name, "number": number, "reason": reason})
        if final:
            self.dead_letters.add((name, number), reason, now=self._clock())
            self._tell((name, number), reason)

    async def _hand_out(self) -> None:
        while True:
            with anyio.move_on_after(LEASE_CHECK_S):
                await self._handing.wait()
            self._handing.clear()
            limit = await self._let_clients_pass()
            hand_bytes = HAND_BYTES if limit is None else BYTES_UNDER_LOAD
            tickets = self.queue.next_up(self._clock(), limit, hand_bytes)
            texts = await self._texts_of([ticket.key for ticket in tickets])
            sizes = [(each, len(texts[each.key].encode()) if each.key in texts else None) for each in tickets]
            for worker, leases in self.queue.hand_out(sizes, self._clock(), hand_bytes).items():
                jobs = tuple(PassageJob(lease.job_id, texts[lease.key]) for lease in leases)
                self._digests.update((job.job_id, digest_of(job.text)) for job in jobs)
                if not await self._send(worker, EmbedPassages(jobs)):
                    self._lose(worker)
            self._index.nudge()

    async def _let_clients_pass(self) -> int | None:
        """Hold the jobs back while clients are served, unless one of them waits for its vector.

        Returns how many may go out now; None: as many as the workers take.
        """
        began = time.monotonic()
        while self.queue.has_queued and not self._waiters:
            hold_s = self._gate.hold_s(time.monotonic(), began)
            if hold_s <= 0:
                return JOBS_UNDER_LOAD if self._gate.is_serving(time.monotonic()) else None
            self._awaited.clear()
            with anyio.move_on_after(hold_s):
                await self._awaited.wait()
        return None

    async def _save(self) -> None:
        while True:
            await self._saving.wait()
            batch, self._finished = self._finished[:SAVE_BATCH], self._finished[SAVE_BATCH:]
            if not self._finished:
                self._saving.clear()
            for name in dict.fromkeys(each.job[0] for each in batch):
                finished = [each for each in batch if each.job[0] == name]
                try:
                    await self._save_file(name, finished)
                except RemembrancerError as error:
                    logger.warning("vectors cannot be saved yet", extra={"file": name, "reason": error.message})
                    self._finished.extend(finished)
                    self._saving.set()
                    await anyio.sleep(RETRY_S)
                else:
                    self._unsaved -= Counter(each.job for each in finished)

    async def _save_file(self, name: str, finished: list[_Finished]) -> None:
        """Save the present model's vectors of what the memories are now. The others are dropped, and made again.

        (Of an earlier model's memories the welcome of the new one takes care.)
        """
        records, identity = self._files.embedded_file(name), self.identity
        if records is None or identity is None:
            return
        embedded = [
            EmbeddedMemory(job[1], digest, message.passages, vectors_of(message.vectors, identity.dimensions))
            for job, message, made_by, digest in finished
            if made_by.key == identity.key
        ]
        saved = await self._committer.run(lambda: records.save_embeddings(identity.key, embedded))
        self._index.add(name, identity.key, saved)
        for memory in embedded:
            if memory.number not in saved.outdated:
                self._tell((name, memory.number), None)
        self.queue.enqueue_missing((name, number) for number in saved.outdated)
        self._handing.set()

    async def _texts_of(self, jobs: list[Job]) -> dict[Job, str]:
        """The contents of memories. Of a file that cannot be read: none, and their jobs end."""
        texts: dict[Job, str] = {}
        for name in dict.fromkeys(name for name, _ in jobs):
            records, numbers = self._files.embedded_file(name), [number for file, number in jobs if file == name]
            try:
                read = asyncio.get_running_loop().run_in_executor
                found = {} if records is None else await read(self._threads, records.texts, numbers)
            except RemembrancerError as error:
                logger.warning("a file's embedding waits", extra={"file": name, "reason": error.message})
                continue
            texts.update(((name, number), text) for number, text in found.items())
        return texts

    def _tell(self, job: Job, error: str | None) -> None:
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(error)


def vectors_of(data: bytes, dimensions: int) -> Vectors:
    """Vectors as a worker sends them, one a row."""
    return np.frombuffer(data, dtype="<f4").reshape(-1, dimensions)


def vectors_fit(data: bytes, count: int, dimensions: int) -> bool:
    """Whether `data` is `count` vectors of finite float32 values, and not none."""
    if not count or len(data) != 4 * count * dimensions:
        return False
    return bool(np.isfinite(np.frombuffer(data, dtype="<f4")).all())


Question = EmbedQuery | RerankPassages
Answer = TypeVar("Answer", QueryEmbedded, PassagesReranked)


class WorkerQuestions:
    """Questions to the workers that somebody waits for. `send` sends to a worker; False: it is gone."""

    def __init__(self, send: Callable[[Peer, ToWorker], Awaitable[bool]], first_id: int) -> None:
        self._send = send
        self._waiting: dict[int, tuple[Peer, asyncio.Future[Any]]] = {}
        self._ids = itertools.count(first_id)

    async def ask(
        self, question: Callable[[int], Question], answer: type[Answer], workers: Sequence[Peer], timeout_s: float
    ) -> Answer:
        """What the first of `workers` that can be reached answers to the question, which is made with its id.

        Raises:
            EmbeddingUnavailable: none can be reached, none answered within `timeout_s`, or the answer is an error.
        """
        asked = question(next(self._ids))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            with anyio.fail_after(timeout_s):
                for worker in workers:
                    self._waiting[asked.query_id] = (worker, future)
                    if await self._send(worker, asked):
                        break
                else:
                    raise EmbeddingUnavailable("no embedding worker can be reached")
                found = await future
        except TimeoutError as error:
            raise EmbeddingUnavailable(f"no embedding worker answered within {timeout_s:.2g} s") from error
        finally:
            self._waiting.pop(asked.query_id, None)
        if not isinstance(found, answer) or found.error is not None:
            raise EmbeddingUnavailable(getattr(found, "error", None) or "a worker's answer does not fit the question")
        return found

    def answered(self, worker: Peer, answer: QueryEmbedded | PassagesReranked) -> None:
        """A worker's answer. One that nobody waits for any more is dropped."""
        asked, future = self._waiting.get(answer.query_id, (None, None))
        if future is not None and not future.done() and asked == worker:
            future.set_result(answer)

    def worker_gone(self, worker: Peer) -> None:
        """Wait no longer for what that worker was asked."""
        for asked, future in self._waiting.values():
            if asked == worker and not future.done():
                future.set_exception(EmbeddingUnavailable("the embedding worker died"))
