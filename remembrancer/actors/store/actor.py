"""The store: the one owner of the records, and the hub that gateway and embedders talk to."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.abc

from remembrancer.actors.shell import Actor, LaunchSpec, acquire
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.explaining import Rules
from remembrancer.actors.store.file_handlers import FileHandlers
from remembrancer.actors.store.job_handlers import JobHandlers
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.read_handlers import ReadHandlers, total_counts
from remembrancer.actors.store.records.contract import EmbeddedTexts, Records
from remembrancer.actors.store.requests import Dispatcher, Listener, LoadGate
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.actors.store.write_handlers import WriteHandlers
from remembrancer.config.reading import KNOWN_DIMENSIONS
from remembrancer.config.settings import maintenance_rules, model_choices, promotion_rules
from remembrancer.memory.ranking import Weights
from remembrancer.protocol.control import PeerFailed, PeerGone, StoreHealth
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import FileLock
from remembrancer.protocol.reads import (
    Counts,
    EmbeddingSummary,
)
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.wire import ToStore, ToWorker, to_store
from remembrancer.protocol.work import (
    JobFailed,
    PassagesEmbedded,
    PassagesReranked,
    QueryEmbedded,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)

READ_THREADS: Final = 2
"""Each has its own cache of pages, and Python runs one of them at a time."""
HOUSEKEEPING_S: Final = 1.0

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreActor(Actor):
    """Serves keyword reads and writes as soon as the records are open; vectors join when the index is."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._lock = FileLock(spec.paths.store_lock)
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._gate = LoadGate()
        self._counts = Counts()
        self._counted = (-1, 0)
        self._embedded = 0
        self._background = anyio.CancelScope()
        self._counting = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup
        self._router: Router[ToStore]
        self._committer: Committer
        self._files: MemoryFiles
        self._index: IndexManager
        self._scheduler: EmbeddingScheduler
        self._reads: ReadHandlers
        self._requests: Dispatcher
        self._jobs: JobHandlers
        self._file_handlers: FileHandlers

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        paths, settings = self.spec.paths, self.spec.settings
        await acquire(self._lock, "store")
        self._committer = Committer()
        self._files = MemoryFiles(
            paths,
            self._committer,
            time.time,
            limit_bytes=settings.database_limit_bytes,
            session_limit=settings.max_memories_per_session,
            on_open=self._file_opened,
        )
        self._index = IndexManager(
            paths.vectors, self._committer, exact_up_to=settings.exact_search_passages, busy=self._is_busy
        )
        self._scheduler = EmbeddingScheduler(
            self._files,
            self._committer,
            self._index,
            self._threads,
            self._send_to_worker,
            self._gate,
            *model_choices(settings),
            open_all=lambda: self._file_handlers.open_all(),
        )
        self._file_handlers = FileHandlers(
            paths,
            self._files,
            self._committer,
            self._index,
            self._scheduler,
            self._threads,
            self._gate,
            settings,
            lambda context, model: self._reads.embed_within(context, model),
            self._embedding,
            self._texts_opened,
        )
        self._reads = ReadHandlers(
            paths,
            self._files,
            self._index,
            self._scheduler,
            self._threads,
            self._gate,
            self._embedding,
            self._file_handlers.source_of,
            Weights(settings.relevance_weight, settings.importance_weight, settings.recency_weight),
            rules=Rules(promotion_rules(settings), maintenance_rules(settings)),
            read_budget_s=settings.read_budget_s,
            reranker=None if settings.reranker == "off" else settings,
        )
        writes = WriteHandlers(
            self._files,
            self._committer,
            self._index,
            self._scheduler,
            self._gate,
            lambda name: self._jobs.finder.mark(name),
        )
        self._jobs = JobHandlers(
            self._files,
            self._committer,
            self._index,
            self._scheduler,
            self._gate,
            self._threads,
            settings,
            writes.submit,
            self._count_accesses,
        )
        self._jobs.finder.mark(USER)
        self._requests = Dispatcher(self.traces, self._jobs.hear)
        self._requests.register({**writes.handlers(), **self._reads.handlers()})
        self._requests.register({**self._jobs.handlers(), **self._file_handlers.handlers()})
        self._requests.listen({**self._listeners(), **self._file_handlers.listeners()})
        self._router = self._requests.router = Router(paths.store_endpoint, self.speaker, to_store, self._requests.take)
        async with anyio.create_task_group() as self._tasks, self._requests, self._router:
            self._tasks.start_soon(self._scheduler.run)
            self._tasks.start_soon(self._work_in_background)
            gc.freeze()  # the modules are for good: a collection need not walk through them in the middle of a call
            task_status.started()
            self._tasks.start_soon(self._index.run)
            self._tasks.start_soon(self._find_pending)
            await anyio.sleep_forever()

    def health(self) -> StoreHealth:
        if not hasattr(self, "_router"):
            choice, _ = model_choices(self.spec.settings)
            return StoreHealth(Counts(), EmbeddingSummary(choice.engine, choice.model, 0, 0, 0, vectors_ready=False))
        return StoreHealth(
            self._count(),
            self._embedding(),
            self._router.rejected_frames,
            self._index.figures,
            self._files.unusable,
            has_files=self._file_handlers.has_files,
            models=self._scheduler.needed,
        )

    def _count(self) -> Counts:
        """The counts of all open files, made anew when something was committed since. Some queries of 50 µs each."""
        commits, files = self._committer.commits, list(self._files)
        if (commits, len(files)) != self._counted:
            try:
                self._counts = total_counts([records.counts(None) for records in files])
            except RemembrancerError as error:
                logger.warning("the counts are old", extra={"code": error.code, "reason": error.message})
            else:
                self._counted = (commits, len(files))
        return self._counts

    def on_peer_gone(self, peer: PeerGone) -> None:
        if not hasattr(self, "_jobs"):
            return
        if peer.role == "consolidator":
            self._jobs.consolidator_gone(peer.incarnation)
        else:
            self._scheduler.peer_gone(peer)

    def on_peer_failed(self, peer: PeerFailed) -> None:
        if peer.role == "consolidator" and hasattr(self, "_jobs"):
            self._jobs.consolidator_failed(peer.message)

    async def drain(self, reason: str) -> None:
        """Refuse what comes, commit what was taken, and leave the index whole."""
        if not hasattr(self, "_router"):
            return  # nothing was taken
        self._requests.draining = True
        self._jobs.drain()
        self._file_handlers.drain()
        self._background.cancel()
        await self._count_accesses()
        await self._index.note_compared()
        await asyncio.to_thread(self._committer.close)
        await self._index.flush_all()
        await self._index.aclose()
        await self._let_readers_finish()
        await asyncio.to_thread(self._files.close)
        await asyncio.to_thread(self._file_handlers.close)

    def _listeners(self) -> dict[type, Listener]:
        def hear(peer: Peer, message: Any) -> None:
            self._embedded += isinstance(message, PassagesEmbedded)
            self._scheduler.hear(peer, message)

        work = (WorkerReady, WorkerFailed, WorkerLeaving, PassagesEmbedded, JobFailed, QueryEmbedded, PassagesReranked)
        return dict.fromkeys(work, hear)

    def _embedding(self) -> EmbeddingSummary:
        work = self._scheduler.answering
        identity = work.identity
        return EmbeddingSummary(
            engine=work.choice.engine,
            model=identity.model if identity else work.choice.model,
            dimensions=identity.dimensions if identity else KNOWN_DIMENSIONS.get(work.choice.model, 0),
            pending=self._scheduler.pending,
            workers=len(work.queue.workers),
            vectors_ready=self._index.is_whole(work.key),
            error=self._scheduler.error or self._index.error,
            dead_letters=len(self._scheduler.dead_letters),
            dead_letter_error=self._scheduler.dead_letters.last_reason,
            models=self._scheduler.models(),
        )

    def _revision(self) -> tuple[int, int, int, int]:
        """What changes when anything in the records or in their vectors may have."""
        return self._committer.commits, self._embedded, self._scheduler.pending, len(list(self._files))

    def _is_busy(self) -> bool:
        """Whether there is something better to do than to tidy the index."""
        return self._scheduler.is_busy or not self._gate.is_idle(time.monotonic())

    def _file_opened(self, records: Records) -> None:
        self._jobs.finder.mark(records.name)
        self._texts_opened(records)

    def _texts_opened(self, texts: EmbeddedTexts) -> None:
        self._index.adopt(texts)
        self._tasks.start_soon(self._scheduler.enqueue_missing, texts)

    async def _find_pending(self) -> None:
        """Open the projects that are known, the last used first: what they left pending is embedded now."""
        user = self._files.get(USER)
        if user is not None:
            await self._scheduler.enqueue_missing(user)
        for project in self._files.catalog.projects():
            if not self._files.exists(project):
                continue
            try:
                await self._files.project(project)
            except RemembrancerError as error:
                logger.warning(
                    "a project's records cannot be opened", extra={"project": project.id, "code": error.code}
                )
        self._scheduler.files_opened()

    async def _let_readers_finish(self) -> None:
        """Wait until the reading threads have nothing left: a file that is closed under a reader takes us with it."""
        barrier = threading.Barrier(READ_THREADS)
        await asyncio.gather(*(self._read(barrier.wait) for _ in range(READ_THREADS)))

    async def _work_in_background(self) -> None:
        """What nobody has asked for, until the store is about to stop."""
        with self._background:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_house)
                tasks.start_soon(self._jobs.finder.run)

    async def _keep_house(self) -> None:
        while True:
            await anyio.sleep(HOUSEKEEPING_S)
            await self._count_accesses()
            for records in list(self._files):
                await self._tolerantly(records.name, self._read(records.checkpoint))
            await self._tolerantly("files", self._file_handlers.keep_house())
            for texts in (*self._files, *self._files.indexes.values()):
                while self._gate.is_idle(time.monotonic()) and await self._tolerantly(
                    texts.name, self._committer.run(texts.merge_words)
                ):
                    pass
            if not self._is_busy():
                await self._index.count(lambda: list(self._files), self._read, self._revision)

    async def _count_accesses(self) -> None:
        """Write down which memories answers have shown. When it returns, nothing is left of what was shown before."""
        async with self._counting:
            now = time.time()
            for (name, session_id), shown in self._reads.take_touched().items():
                records = self._files.get(name)
                if records is None:
                    continue
                touch = partial(records.touch, list(shown.elements()), now, session_id)
                await self._tolerantly(name, self._committer.run(touch))
                if name != USER:  # a session's memory may be worth its promotion by now
                    self._jobs.finder.mark(name)

    async def _tolerantly(self, name: str, work: Awaitable[T]) -> T | None:
        """Housekeeping in one file: a full disk or a damaged file puts it off, and stops nothing else."""
        try:
            return await work
        except RemembrancerError as error:
            logger.warning("housekeeping put off", extra={"file": name, "code": error.code, "reason": error.message})
            return None

    def _send_to_worker(self, worker: Peer, message: ToWorker) -> asyncio.Future[bool]:
        sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        sent.set_result(self._router.send(worker, message))  # at once: a task of its own would wait for its turn
        return sent

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
