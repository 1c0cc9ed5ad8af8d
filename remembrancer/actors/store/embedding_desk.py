"""Where the store and its embedding workers meet: jobs go out on credit, vectors come back and are kept.

Decisions are `EmbeddingWork`'s; this is the part with sockets, records and time in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Final, TypeVar

import anyio
import numpy as np

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.embedding_work import EmbeddingWork, Lease
from remembrancer.actors.store.index_keeper import IndexKeeper
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.query_vectors import QueryVectors
from remembrancer.actors.store.records import EmbeddedMemory, Records, Vectors
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import ToWorker, WorkerMessage
from remembrancer.protocol.work import (
    EmbedPassages,
    JobFailed,
    ModelIdentity,
    PassageJob,
    PassagesEmbedded,
    QueryEmbedded,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)

SAVE_BATCH: Final = 64
"""Memories whose vectors are saved in one transaction: few enough that a client's write does not wait for long."""
LEASE_CHECK_S: Final = 5.0

Job = tuple[str, int]
"""A memory that needs vectors: the name of its file, its number there."""
T = TypeVar("T")
logger = logging.getLogger(__name__)


class EmbeddingDesk:
    """`send` sends to a worker; False: it is gone. `model_changed` is told the workers' model when it is new."""

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        index: IndexKeeper,
        threads: Executor,
        send: Callable[[Peer, ToWorker], asyncio.Future[bool]],
    ) -> None:
        self._files = files
        self._committer = committer
        self._index = index
        self._threads = threads
        self._send = send
        self.work: EmbeddingWork[Job, Peer] = EmbeddingWork()
        self._queries: QueryVectors[Peer] = QueryVectors(send)
        self._arrived: list[tuple[Job, PassagesEmbedded, int]] = []
        self._waiters: dict[Job, list[asyncio.Future[str | None]]] = {}
        self._failures: dict[str, str] = {}
        self._handing = asyncio.Event()
        self._saving = asyncio.Event()
        self.identity: ModelIdentity | None = files.catalog.last_model()

    @property
    def error(self) -> str | None:
        """Why there are no vectors: the last word of a worker that could not load its model."""
        if self.work.workers:
            return None
        return next(iter(self._failures.values()), None)

    async def run(self) -> None:
        """Hand out jobs and save vectors until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hand_out)
            tasks.start_soon(self._save)

    def enqueue(self, name: str, numbers: Iterable[int]) -> None:
        """These memories of a file need vectors."""
        self.work.enqueue((name, number) for number in numbers)
        self._handing.set()

    async def embed_query(self, text: str, timeout_s: float) -> Vectors:
        """The vector of a question. Raises `EmbeddingUnavailable`."""
        return await self._queries.embed(text, self.work.identity, self.work.workers, timeout_s)

    async def wait_for(self, records: Records, number: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait until a memory has its vectors: whether it has them now, and the error if it cannot have any."""
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault((records.name, number), [])
        waiters.append(future)
        try:
            if self.is_embedded(records, number):
                return True, None
            with anyio.move_on_after(timeout_s):
                error = await future
                return error is None, error
            return False, self.error
        finally:
            waiters.remove(future)
            if not waiters:
                self._waiters.pop((records.name, number), None)

    def is_embedded(self, records: Records, number: int) -> bool:
        """Whether a memory has its vectors under the present model."""
        return self.identity is not None and records.is_embedded(self.identity.key, number)

    def hear(self, worker: Peer, message: WorkerMessage) -> None:
        """What a worker says."""
        match message:
            case WorkerReady(identity=identity, credit=credit):
                self._failures.pop(worker.name, None)
                asyncio.create_task(self._welcome(worker, identity, credit))  # noqa: RUF006 - awaited by the work
            case WorkerFailed(message=reason):
                self._failures[worker.name] = reason
                self._lose(worker)
            case WorkerLeaving():
                self._lose(worker)
            case QueryEmbedded():
                self._queries.answered(worker, message)
            case PassagesEmbedded() | JobFailed() if not self.work.knows(worker):
                asyncio.ensure_future(self._send(worker, WhoAreYou()))  # noqa: RUF006 - best effort
            case PassagesEmbedded(job_id=job_id):
                job = self.work.finish(worker, job_id)
                if job is not None and self.identity is not None:
                    self._arrived.append((job, message, self.identity.dimensions))
                    self._saving.set()
                self._handing.set()
            case JobFailed(job_id=job_id, message=reason):
                self._job_failed(worker, job_id, reason)

    def peer_gone(self, gone: PeerGone) -> None:
        """A process of the runtime has died. If it was a worker, its jobs go to another."""
        for worker in self.work.workers:
            if worker.incarnation == gone.incarnation:
                self._lose(worker)
        self._failures = {name: reason for name, reason in self._failures.items() if gone.role != "embedder"}

    def _lose(self, worker: Peer) -> None:
        self.work.worker_gone(worker)
        self._queries.worker_gone(worker)
        self._handing.set()

    async def _welcome(self, worker: Peer, identity: ModelIdentity, credit: int) -> None:
        """Let a worker in. One with another model than the others' is the new model: all is embedded again."""
        present = self.work.identity
        if present is not None and present.key != identity.key:
            for other in self.work.workers:
                self._lose(other)
        new_model = self.identity is None or self.identity.key != identity.key
        self.identity = identity
        self._index.use_model(identity, list(self._files))
        self.work.worker_ready(worker, identity, credit)
        if new_model:
            await self._committer.run(lambda: self._files.catalog.note_model(identity))
        for records in list(self._files):
            await self.enqueue_missing(records)
        self._handing.set()

    async def enqueue_missing(self, records: Records) -> None:
        """Queue every memory of a file that has no vectors under the present model."""
        identity = self.identity
        if identity is not None:
            await self._committer.run(lambda: records.require_embeddings(identity.key))
        self.enqueue(records.name, await self._on_thread(records.pending))

    def _job_failed(self, worker: Peer, job_id: int, reason: str) -> None:
        failed = self.work.fail(worker, job_id)
        self._handing.set()
        if failed is None:
            return
        (name, number), final = failed
        records = self._files.get(name)
        logger.warning("a memory could not be embedded", extra={"file": name, "number": number, "reason": reason})
        if records is not None:
            self._committer.run(lambda: records.fail_embedding(number, reason, final=final))
        if final:
            self._tell((name, number), reason)

    async def _hand_out(self) -> None:
        while True:
            with anyio.move_on_after(LEASE_CHECK_S):
                await self._handing.wait()
            self._handing.clear()
            for worker, leases in self.work.hand_out(time.monotonic()).items():
                await self._send_jobs(worker, leases)
            self._index.nudge()

    async def _send_jobs(self, worker: Peer, leases: list[Lease[Job, Peer]]) -> None:
        by_file: dict[str, dict[int, Lease[Job, Peer]]] = {}
        for lease in leases:
            by_file.setdefault(lease.key[0], {})[lease.key[1]] = lease
        jobs: list[PassageJob] = []
        for name, wanted in by_file.items():
            records = self._files.get(name)
            texts = {} if records is None else await self._on_thread(_texts_of(records, list(wanted)))
            for number, lease in wanted.items():
                if number in texts:
                    jobs.append(PassageJob(lease.job_id, texts[number]))
                else:
                    self.work.finish(worker, lease.job_id)
        if jobs and not await self._send(worker, EmbedPassages(tuple(jobs))):
            self._lose(worker)

    async def _save(self) -> None:
        while True:
            await self._saving.wait()
            batch, self._arrived = self._arrived[:SAVE_BATCH], self._arrived[SAVE_BATCH:]
            if not self._arrived:
                self._saving.clear()
            by_file: dict[str, list[EmbeddedMemory]] = {}
            for (name, number), message, dimensions in batch:
                vectors = np.frombuffer(message.vectors, dtype="<f4").reshape(-1, dimensions)
                by_file.setdefault(name, []).append(EmbeddedMemory(number, message.passages, vectors))
            for name, embedded in by_file.items():
                await self._save_file(name, embedded)

    async def _save_file(self, name: str, embedded: list[EmbeddedMemory]) -> None:
        records = self._files.get(name)
        if records is None or self.identity is None:
            return
        model = self.identity.key
        saved = await self._committer.run(lambda: records.save_embeddings(model, embedded))
        self._index.add(name, saved)
        for memory in embedded:
            self._tell((name, memory.number), None)

    def _tell(self, job: Job, error: str | None) -> None:
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(error)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _texts_of(records: Records, numbers: list[int]) -> Callable[[], dict[int, str]]:
    return lambda: records.texts(numbers)
