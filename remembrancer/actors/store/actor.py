"""The store: the one owner of the records, and the hub that gateway and embedders talk to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.abc

from remembrancer.actors.launch import LaunchSpec
from remembrancer.actors.shell import Actor, acquire
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.embedding_desk import EmbeddingDesk
from remembrancer.actors.store.index_keeper import IndexKeeper, open_chroma
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.recalls import Source, recall
from remembrancer.actors.store.records import Records, Vectors
from remembrancer.actors.store.schema import SCHEMA_VERSION
from remembrancer.protocol.control import PeerGone, StoreVitals
from remembrancer.protocol.envelope import Envelope
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.locks import FileLock
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    Counts,
    DescribeStore,
    EmbeddingState,
    EmbeddingSummary,
    Recall,
    Recalled,
    StoreDescription,
)
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.wire import GatewayRequest, ToStore, ToWorker, to_store
from remembrancer.protocol.work import (
    JobFailed,
    PassagesEmbedded,
    QueryEmbedded,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)
from remembrancer.protocol.writes import Applied, BatchApplied, Operation, ProjectRef, Rejected, Submit, SubmitBatch

READ_THREADS: Final = 4
QUERY_VECTOR_TIMEOUT_S: Final = 1.0
"""How long a recall waits for its query's vector before it goes on with words alone."""
COMPARISON_S: Final = 0.5
"""How long an answer about a memory's vectors waits for the search for its near-duplicates, which goes on."""
HOUSEKEEPING_S: Final = 1.0
DEFAULT_DEADLINE_S: Final = 5.0

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreActor(Actor):
    """Serves keyword reads and writes as soon as the records are open; vectors join when the index is."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._started_at = time.monotonic()
        self._lock = FileLock(spec.paths.store_lock)
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._touched: dict[str, list[int]] = defaultdict(list)
        self._draining = False
        self._counts = Counts()
        self._tasks: anyio.abc.TaskGroup
        self._router: Router[ToStore]
        self._committer: Committer
        self._files: MemoryFiles
        self._index: IndexKeeper
        self._desk: EmbeddingDesk

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        paths = self.spec.paths
        await acquire(self._lock, "store")
        self._committer = Committer()
        self._files = MemoryFiles(
            paths,
            self._committer,
            time.time,
            limit_bytes=self.spec.settings.database_limit_bytes,
            on_open=self._file_opened,
        )
        self._index = IndexKeeper(
            lambda: open_chroma(paths.vectors), self._committer, busy=lambda: self._desk.work.pending > 0
        )
        self._desk = EmbeddingDesk(self._files, self._committer, self._index, self._threads, self._send_to_worker)
        self._counts = self._files.user.counts(None)
        self._router = Router(paths.store_endpoint, self.speaker, to_store, self._hear)
        async with anyio.create_task_group() as self._tasks, self._router:
            self._tasks.start_soon(self._desk.run)
            self._tasks.start_soon(self._keep_house)
            task_status.started()
            if self._desk.identity is not None:
                self._index.use_model(self._desk.identity, list(self._files))
            self._tasks.start_soon(self._index.run)
            self._tasks.start_soon(self._find_pending)
            await anyio.sleep_forever()

    def vitals(self) -> StoreVitals:
        return StoreVitals(self._counts, self._embedding(), self._router.rejected_frames)

    def on_peer_gone(self, peer: PeerGone) -> None:
        if hasattr(self, "_desk"):
            self._desk.peer_gone(peer)

    async def drain(self, reason: str) -> None:
        """Refuse what comes, commit what was taken, and leave the index whole."""
        self._draining = True
        await asyncio.to_thread(self._committer.close)
        await self._index.flush_all()
        await self._index.aclose()
        await asyncio.to_thread(self._files.close)

    def _hear(self, peer: Peer, envelope: Envelope, message: ToStore) -> None:
        match message:
            case WorkerReady() | WorkerFailed() | WorkerLeaving() | PassagesEmbedded() | JobFailed() | QueryEmbedded():
                self._desk.hear(peer, message)
            case _:
                self._tasks.start_soon(self._answer, peer, envelope, message)

    async def _answer(self, peer: Peer, envelope: Envelope, request: GatewayRequest) -> None:
        """The one place where an error of a request becomes a message."""
        try:
            if self._draining:
                raise MemoryUnavailable("the store is stopping")
            reply: Any = await self._carry_out(request, envelope)
        except RemembrancerError as error:
            await self._router.refuse(peer, error.to_failure(), in_reply_to=envelope.message_id)
        except Exception:
            logger.exception("a request failed", extra={"request": type(request).__name__})
            failure = InternalError("the store failed on this request: see store.log").to_failure()
            await self._router.refuse(peer, failure, in_reply_to=envelope.message_id)
        else:
            await self._router.send(peer, reply, in_reply_to=envelope.message_id)

    def _carry_out(self, request: GatewayRequest, envelope: Envelope) -> Awaitable[Any]:
        match request:
            case Submit(operation=operation):
                return self._submit(operation)
            case SubmitBatch(operations=operations):
                return self._submit_batch(operations)
            case Recall():
                return self._recall(request, envelope)
            case AwaitEmbedding():
                return self._await_embedding(request, envelope)
            case DescribeStore():
                return self._describe(request)

    async def _submit(self, operation: Operation) -> Applied:
        records = await self._files.for_scope(operation.change.scope, operation.project)
        outcome = (await self._committer.submit(records, [operation]))[0]
        if isinstance(outcome.reply, RemembrancerError):
            raise outcome.reply
        if outcome.to_embed is not None:
            self._desk.enqueue(records.name, [outcome.to_embed])
        return outcome.reply

    async def _submit_batch(self, operations: tuple[Operation, ...]) -> BatchApplied:
        """Apply in order. A refusal for good is named and passed over; anything else ends the batch there."""
        applied: list[str] = []
        rejected: list[Rejected] = []
        for operation in operations:
            try:
                done = await self._submit(operation)
            except RemembrancerError as error:
                if error.retry_possible:
                    break
                rejected.append(Rejected(operation.operation_id, error.code, error.message))
            else:
                applied.append(done.operation_id)
        return BatchApplied(tuple(applied), tuple(rejected))

    async def _recall(self, request: Recall, envelope: Envelope) -> Recalled:
        files = await self._files_in_scope(request)
        sources = [Source(records, self._index.searchable(records.name)) for records in files]
        remaining_s = envelope.remaining_s()
        timeout_s = min(QUERY_VECTOR_TIMEOUT_S, (DEFAULT_DEADLINE_S if remaining_s is None else remaining_s) * 0.6)

        async def embed(text: str) -> Vectors:
            return await self._desk.embed_query(text, timeout_s)

        answer, seen = await recall(request, sources, embed, self._threads, time.time())
        for place, numbers in seen.items():
            self._touched[files[place].name].extend(numbers)
        return answer

    async def _files_in_scope(self, request: Recall) -> list[Records]:
        scopes = request.scopes or ("session", "project", "user")
        files: list[Records] = []
        if {"session", "project"}.intersection(scopes) and self._files.exists(request.project):
            files.append(await self._files.project(request.project))
        if "user" in scopes:
            files.append(self._files.user)
        return files

    async def _await_embedding(self, request: AwaitEmbedding, envelope: Envelope) -> EmbeddingState:
        for records in await self._files_that_exist(request.project):
            number = await self._read(partial(records.number_of, request.memory_id))
            if number is None:
                continue
            remaining_s = envelope.remaining_s()
            embedded, error = await self._desk.wait_for(
                records, number, DEFAULT_DEADLINE_S if remaining_s is None else remaining_s * 0.95
            )
            if embedded:
                with anyio.move_on_after(COMPARISON_S):
                    await asyncio.shield(asyncio.ensure_future(self._index.check_now(records.name, number)))
            similar = await self._read(partial(records.similar_ids, number, request.session_id))
            return EmbeddingState(request.memory_id, embedded, similar, error)
        return EmbeddingState(request.memory_id, embedded=False, error="there is no such memory")

    async def _describe(self, request: DescribeStore) -> StoreDescription:
        files = await self._files_that_exist(request.project)
        return await self._read(lambda: self._description(files, request))

    async def _files_that_exist(self, project: ProjectRef) -> list[Records]:
        """The user's file, and the project's if it has one: to ask makes none."""
        exists = self._files.exists(project)
        return [self._files.user, await self._files.project(project)] if exists else [self._files.user]

    def _description(self, files: list[Records], request: DescribeStore) -> StoreDescription:
        counts = _sum([records.counts(request.session_id) for records in files])
        sessions = [records.session(request.session_id) for records in files]
        return StoreDescription(
            counts=counts,
            embedding=self._embedding(),
            database_bytes=sum(records.size_bytes() for records in files),
            database_path=self._path_of(request.project),
            uptime_s=time.monotonic() - self._started_at,
            schema_version=SCHEMA_VERSION,
            memories_this_session=sum(stored for _, stored in sessions),
            session_started_at=min((started for started, _ in sessions if started is not None), default=None),
        )

    def _path_of(self, project: ProjectRef) -> str:
        return str(self.spec.paths.project_database(project.id))

    def _embedding(self) -> EmbeddingSummary:
        identity = self._desk.identity
        settings = self.spec.settings
        return EmbeddingSummary(
            engine=identity.engine if identity else settings.engine,
            model=identity.model if identity else settings.model,
            dimensions=identity.dimensions if identity else 0,
            pending=self._desk.work.pending,
            workers=len(self._desk.work.workers),
            vectors_ready=self._index.ready,
            error=self._desk.error or self._index.error,
        )

    def _file_opened(self, records: Records) -> None:
        self._index.adopt(records)
        self._tasks.start_soon(self._desk.enqueue_missing, records)

    async def _find_pending(self) -> None:
        """Open the projects that are known, the last used first: what they left pending is embedded now."""
        await self._desk.enqueue_missing(self._files.user)
        for project in self._files.catalog.projects():
            if not self._files.exists(project):
                continue
            try:
                await self._files.project(project)
            except RemembrancerError as error:
                logger.warning(
                    "a project's records cannot be opened", extra={"project": project.id, "code": error.code}
                )

    async def _keep_house(self) -> None:
        while True:
            await anyio.sleep(HOUSEKEEPING_S)
            touched, self._touched = self._touched, defaultdict(list)
            now = time.time()
            for name, numbers in touched.items():
                records = self._files.get(name)
                if records is not None:
                    await self._tolerantly(name, self._committer.run(partial(records.touch, numbers, now)))
            counts = [
                await self._tolerantly(records.name, self._read(partial(_checkpoint_and_count, records)))
                for records in list(self._files)
            ]
            self._counts = _sum([each for each in counts if each is not None])

    async def _tolerantly(self, name: str, work: Awaitable[T]) -> T | None:
        """Housekeeping in one file: a full disk or a damaged file puts it off, and stops nothing else."""
        try:
            return await work
        except RemembrancerError as error:
            logger.warning("housekeeping put off", extra={"file": name, "code": error.code, "reason": error.message})
            return None

    def _send_to_worker(self, worker: Peer, message: ToWorker) -> asyncio.Future[bool]:
        return asyncio.ensure_future(self._router.send(worker, message))

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _checkpoint_and_count(records: Records) -> Counts:
    records.checkpoint()
    return records.counts(None)


def _sum(all_counts: list[Counts]) -> Counts:
    by_scope: dict[str, int] = defaultdict(int)
    by_type: dict[str, int] = defaultdict(int)
    for counts in all_counts:
        for scope, count in counts.by_scope.items():
            by_scope[scope] += count
        for kind, count in counts.by_type.items():
            by_type[kind] += count
    return Counts(
        total=sum(counts.total for counts in all_counts),
        by_scope=dict(by_scope),
        by_type=dict(by_type),
        forgotten=sum(counts.forgotten for counts in all_counts),
        entities=sum(counts.entities for counts in all_counts),
        relationships=sum(counts.relationships for counts in all_counts),
    )
