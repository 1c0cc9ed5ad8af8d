"""The store: the sole owner of the records, and the hub for the gateway and the embedders."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.abc

from remembrancer.actors.actor_process import Actor, LaunchSpec, acquire
from remembrancer.actors.store.code_handlers import CodeHandlers
from remembrancer.actors.store.committer import Committer, Readers
from remembrancer.actors.store.daily_copies import DailyCopies
from remembrancer.actors.store.dispatcher import Dispatcher, Listener, StoreParts
from remembrancer.actors.store.file_handlers import FileHandlers
from remembrancer.actors.store.indexer_work import IndexerPoll
from remembrancer.actors.store.job_handlers import JobHandlers
from remembrancer.actors.store.read_handlers import ReadHandlers
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.sqlite_records import Limits, Records
from remembrancer.actors.store.records.types import RECORDS
from remembrancer.actors.store.replaced_memories import ReplacedMemories
from remembrancer.actors.store.shared_lanes import SharedLanes
from remembrancer.actors.store.spaces import USER, HomeSpaces
from remembrancer.actors.store.vectors.chroma import Server
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.actors.store.write_handlers import WriteHandlers
from remembrancer.config.settings import model_choices
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.control import PeerGone, StoreHealth
from remembrancer.protocol.errors import FileLocked, RemembrancerError
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.files import SyncDone
from remembrancer.protocol.reads import Counts, DescribeStore, EmbeddingSummary
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.work import WorkerState
from remembrancer.protocol.writes import Operation, SubmitBatch

if TYPE_CHECKING:
    from remembrancer.actors.store.remote_workers import RemoteWorkers

HOUSEKEEPING_S: Final = 1.0
IDLE_S: Final = 0.3
"""The store looks for names after this long without a request."""
COUNTED_AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Up to this size, memories are counted whenever the status is read, so that every acknowledged write counts."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreActor(Actor):
    """Serves writes and keyword searches once the records are open, and vector searches once their index is open."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._lock = FileLock(spec.paths.store_lock)
        self._readers = Readers()
        self._counted: tuple[object, Counts | None] = (None, None)
        """The version of the records, and the counts of all memories at that version."""
        self._named: object = None
        self._asked = 0
        """Counts requests from clients and commands, and their answers, except those about the store's status."""
        self._gateway: Peer | None = None
        self._background = anyio.CancelScope()
        self._counting = anyio.Lock()
        self._remote: RemoteWorkers | None = None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        paths, settings = self.spec.paths, self.spec.settings
        await acquire(self._lock, "store")
        kept = 0 if settings.deployment_mode == "embedded-memory" else settings.backup_copies
        self._copies = DailyCopies(paths.database, kept, lambda error: self._files.note_unusable(error))
        replaced = ReplacedMemories()
        self._committer = Committer()
        self._lanes = SharedLanes(paths, self._committer, time.time)
        limits = Limits(settings.database_limit_bytes, settings.max_memories_per_session)
        self._files = HomeSpaces(paths, self._committer, time.time, self._file_opened, limits, self._lanes.open)
        self._vectors = VectorSpaces(
            paths.vectors,
            self._committer,
            self._files.embedded,
            exact_up_to=settings.exact_search_passages,
            judge=replaced.judge,
            until_quiet=lambda: self._scheduler.until_quiet(),
            server=Server(settings.chroma_url, settings.chroma_credential_file) if settings.chroma_url else None,
        )
        self._scheduler = EmbeddingScheduler(
            self._files,
            self._committer,
            self._vectors,
            self._readers,
            self._router_of,
            *model_choices(settings),
            open_all=lambda: self._file_handlers.open_all(),
        )
        if settings.embedders:
            self._scheduler.expect_workers()
        parts = StoreParts(paths, settings, self._files, self._committer, self._vectors, self._scheduler, self._readers)
        self._indexer = IndexerPoll()
        self._code = CodeHandlers(parts, self._indexer)
        self._file_handlers = FileHandlers(parts, self._indexer, self._code.drop)
        notes_of = self._file_handlers.source_of
        self._reads = ReadHandlers(parts, replaced, notes_of, self._code, self._lanes.notices)
        writes = WriteHandlers(parts, replaced, self._lanes.purge)
        self._jobs = JobHandlers(parts, writes.submit, self._count_accesses)
        self._lanes.attach(self._files, writes.scrub, self._tell_gateway, self._scheduler.wake)
        for records in self._files:
            self._file_opened(records)
        listeners: dict[type, Listener] = {
            WorkerState: self._scheduler.hear,
            SyncDone: self._file_handlers.hear,
            NotePresence: self._note_presence,
        }
        self._requests = Dispatcher(self._hear, self._note_use, listeners)
        files = (self._file_handlers, self._indexer, self._code)
        for each in (writes, self._reads, self._jobs, self._lanes, *files):
            self._requests.register(each.handlers())
        self._router = self._requests.router = Router(
            paths.store_endpoint, self.speaker, self._requests.decoder(), self._requests.take
        )
        async with anyio.create_task_group() as tasks, self._requests.tasks, self._router:
            tasks.start_soon(self._scheduler.run)
            if settings.embedder_listen is not None:
                tasks.start_soon(self._listen_for_workers, settings.embedder_listen)
            tasks.start_soon(self._work_in_background)
            gc.freeze()  # modules stay loaded, so garbage collections can skip them
            task_status.started()
            await anyio.sleep_forever()

    def health(self) -> StoreHealth:
        if not hasattr(self, "_router"):
            choice, _ = model_choices(self.spec.settings)
            return StoreHealth(None, EmbeddingSummary(choice.engine, choice.model, 0, 0, 0))
        if self._files.size_bytes <= COUNTED_AT_ONCE_BYTES and self._files.version != self._counted[0]:
            with contextlib.suppress(RemembrancerError, OSError):  # the background task tries again and reports it
                self._count()
        limit, size = self.spec.settings.database_limit_bytes, self._files.size_bytes
        return StoreHealth(
            self._counted[1],
            self._scheduler.summary(),
            self._files.unusable,
            has_files=self._file_handlers.has_files or any(tree.kind == "code" for tree in self._indexer.work.trees),
            has_jobs=self._jobs.has_work,
            models=self._scheduler.needed,
            remote=None if self._remote is None else self._remote.state(),
            asked=self._asked,
            opening=self._files.is_opening,
            cut_off=self._lanes.cut_off(),
            limit_reached_bytes=limit if limit is not None and size >= limit else None,
        )

    async def _listen_for_workers(self, endpoint: str) -> None:
        # Imported here, so that hosts without remote embedders need not load it.
        from remembrancer.actors.store.remote_workers import RemoteWorkers
        from remembrancer.config.worker_keys import WorkerKeys

        keys, silence_s = WorkerKeys(self.spec.paths.keys), self.spec.settings.stall_timeout_s
        self._remote = RemoteWorkers(endpoint, self.speaker, keys, self._scheduler, silence_s)
        await self._remote.run()

    def _count(self) -> None:
        version = self._files.version
        self._counted = version, self._files.counts()

    def on_peer_gone(self, peer: PeerGone) -> None:
        if hasattr(self, "_scheduler"):
            self._scheduler.peer_gone(peer)
        if peer.role == "consolidator" and peer.failure is not None and hasattr(self, "_jobs"):
            self._jobs.consolidator_failed(peer.failure)

    async def drain(self, reason: str) -> None:
        if not hasattr(self, "_router"):
            return  # nothing was accepted
        self._requests.draining = True
        self._background.cancel()
        await self._count_accesses()
        await asyncio.to_thread(self._committer.close)
        await self._lanes.aclose()
        await self._vectors.aclose()
        await asyncio.to_thread(self._files.close)
        await asyncio.to_thread(self._file_handlers.close)
        await asyncio.to_thread(self._code.close)

    def _hear(self, peer: Peer, message: Any) -> None:
        if peer.name == "gateway":
            self._gateway = peer
        self._note_use(peer, message)

    def _note_use(self, peer: Peer, message: Any) -> None:
        is_about_state = message == SubmitBatch(()) or isinstance(message, NotePresence | DescribeStore)
        if peer.name in ("gateway", "command") and not is_about_state:
            self._asked += 1
            self._scheduler.note_request()

    def _note_presence(self, _: Peer, note: NotePresence) -> None:
        self._file_handlers.note_presence(note)
        self._jobs.note_presence(note)

    def _tell_gateway(self, operations: Sequence[Operation]) -> None:
        """Tell the gateway, which caches answers, about writes from other machines."""
        if self._gateway is not None:
            self._router.send(self._gateway, OthersWrote(tuple(operations)))

    def _file_opened(self, records: Records) -> None:
        if records.name == USER:
            self._scheduler.read_state()
        self._vectors.note_kept(records.name)
        self._scheduler.wake()

    async def _work_in_background(self) -> None:
        with self._background:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_house)
                tasks.start_soon(self._jobs.run)
                tasks.start_soon(self._copies.run)
                tasks.start_soon(self._vectors.run)

    async def _keep_house(self) -> None:
        while True:
            await anyio.sleep(HOUSEKEEPING_S)
            if self._files.is_replaced:  # writes already fail, and the next store will open the new file
                raise FileLocked(f"{self.spec.paths.database} was removed or replaced while it was open")
            await self._count_accesses()
            if self._files.version != self._counted[0]:
                await self._tolerantly("records", self._readers.in_background(self._count))
            await self._tolerantly("files", self._file_handlers.keep_house())
            self._code.keep_house()
            while self._files.version != self._named and time.monotonic() >= self._scheduler.served_at + IDLE_S:
                version, find = self._files.version, partial(find_names, self._files.database, time.time())
                if not await self._tolerantly("names", self._committer.run(RECORDS, find)):
                    self._named = version

    async def _count_accesses(self) -> None:
        async with self._counting:
            now, spaces = time.time(), {records.space: records for records in self._files}
            for (space, session_id), (shown, used) in self._reads.take_touched().items():
                if (records := spaces.get(space)) is not None:
                    touch = partial(records.touch, list(shown.elements()), now, session_id, sorted(used))
                    await self._tolerantly(records.name, self._committer.run(records.name, touch))

    async def _tolerantly(self, name: str, work: Awaitable[T]) -> T | None:
        """Run housekeeping on one file. A full disk or a damaged file only postpones it."""
        try:
            return await work
        except RemembrancerError as error:
            logger.warning("housekeeping postponed", extra={"file": name, "code": error.code, "reason": error.message})
            return None

    def _router_of(self, worker: Peer) -> Router[Any]:
        of_others = None if self._remote is None else self._remote.router
        return of_others if worker.key and of_others is not None else self._router
