"""The write queue: acknowledged writes wait here, durably and in order, while the store is away.

One thread owns the file; appends that wait together are committed together. A bounded part of what is queued is also
kept in memory, so that a read without the store can look at it. The drain empties it into the store.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import msgspec

from remembrancer.actors.gateway.events import Events
from remembrancer.actors.gateway.read_cache import ReadCache
from remembrancer.actors.gateway.store_link import StoreLink
from remembrancer.protocol.errors import (
    InternalError,
    MemoryUnavailable,
    QueueFull,
    RemembrancerError,
    SchemaTooNew,
    disk_full,
)
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import encoder
from remembrancer.protocol.writes import BatchApplied, Operation, Rejected, Submit, SubmitBatch

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE queued (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    operation_id TEXT NOT NULL UNIQUE,
    operation BLOB NOT NULL,
    queued_at REAL NOT NULL
);
CREATE TABLE rejected (
    operation_id TEXT PRIMARY KEY,
    operation BLOB NOT NULL,
    queued_at REAL NOT NULL,
    rejected_at REAL NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL
);
"""
OUT_OF_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_UNREADABLE: Final = "unreadable"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Operation)


class QueueFile:
    """The open file.

    Raises:
        SchemaTooNew: it was written by a newer release.
        MemoryUnavailable: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise MemoryUnavailable(f"the write queue {path} cannot be opened: {error}") from error
            # Not a database any more. It is kept for a person to look at; writes must go on.
            path.rename(path.with_suffix(f".damaged-{int(time.time())}"))
            self._database = _open(path)

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._database.close()

    def counts(self) -> tuple[int, int]:
        """How many operations are queued, and how many were rejected."""
        row = self._database.execute("SELECT (SELECT count(*) FROM queued), (SELECT count(*) FROM rejected)")
        depth, rejected = row.fetchone()
        return depth, rejected

    def append(self, operations: Sequence[Operation], now: float) -> set[str]:
        """Add operations at the end, durably, in one transaction. Returns the ids that were not there already.

        Raises:
            StorageFull: the disk has no room.
            MemoryUnavailable: the file cannot be written for another reason.
        """
        added: set[str] = set()
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                for operation in operations:
                    cursor = self._database.execute(
                        "INSERT INTO queued (operation_id, operation, queued_at) VALUES (?, ?, ?)"
                        " ON CONFLICT (operation_id) DO NOTHING",
                        (operation.operation_id, _encoder.encode(operation), now),
                    )
                    if cursor.rowcount == 1:
                        added.add(operation.operation_id)
        except sqlite3.Error as error:
            raise _as_ours(self._path, error) from error
        return added

    def head(self, count: int, size_bytes: int) -> tuple[list[Operation], int]:
        """The oldest operations: at most `count`, and about `size_bytes` of them, but one at least.

        What does not decode (a newer release's) is moved to the rejected ones: the second value says how many.
        """
        found: list[Operation] = []
        unreadable: list[Rejected] = []
        total = 0
        query = "SELECT operation_id, operation FROM queued ORDER BY sequence"
        with closing(self._database.execute(query)) as rows:
            for operation_id, blob in rows:
                try:
                    operation = _decoder.decode(blob)
                except msgspec.DecodeError as error:
                    unreadable.append(Rejected(operation_id, _UNREADABLE, str(error)))
                    continue
                total += len(blob)
                if found and (len(found) == count or total > size_bytes):
                    break
                found.append(operation)
        return found, self.settle((), unreadable, time.time()) if unreadable else 0

    def settle(self, applied: Sequence[str], rejected: Sequence[Rejected], now: float) -> int:
        """Take the applied ones away, and the rejected ones aside. Returns how many left the queue."""
        left = 0
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT OR REPLACE INTO rejected (operation_id, operation, queued_at, rejected_at, code, message)"
                " SELECT operation_id, operation, queued_at, ?, ?, ? FROM queued WHERE operation_id = ?",
                [(now, each.code, each.message, each.operation_id) for each in rejected],
            )
            for operation_id in (*applied, *(each.operation_id for each in rejected)):
                cursor = self._database.execute("DELETE FROM queued WHERE operation_id = ?", (operation_id,))
                left += cursor.rowcount
        return left


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{path} has version {version}, this release reads up to {SCHEMA_VERSION}: update Remembrancer"
            )
        if version == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        database.close()
        raise
    return database


def _as_ours(path: Path, error: sqlite3.Error) -> RemembrancerError:
    if getattr(error, "sqlite_errorcode", None) in OUT_OF_ROOM:
        return disk_full("the disk has no room for the write queue: nothing was stored", path)
    return MemoryUnavailable(f"the write queue cannot be written: {error}")


MAX_GROUP: Final = 512
"""Appends in one transaction."""
MIRROR_OPERATIONS: Final = 2000
MIRROR_BYTES: Final = 8 * 1024 * 1024

T = TypeVar("T")
logger = logging.getLogger(__name__)


class WriteQueue:
    """Use inside a running event loop. `depth` counts an operation from before its append until after its removal."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._appends: deque[tuple[Operation, asyncio.Future[bool]]] = deque()
        self._work: deque[tuple[Callable[[QueueFile], Any], asyncio.Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._mirror: dict[str, Operation] = {}
        self._mirror_bytes = 0
        self._changed = anyio.Event()
        self.depth = 0
        self.rejected = 0

    async def open(self) -> None:
        """Open the file and see what is in it.

        Raises:
            SchemaTooNew: it was written by a newer release.
            MemoryUnavailable: it cannot be opened.
        """
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="write-queue", daemon=True)
        self._thread.start()
        await opened
        self.depth, self.rejected = await self._do(QueueFile.counts)
        for operation in await self.head(MIRROR_OPERATIONS, MIRROR_BYTES):
            self._remember(operation)

    async def aclose(self) -> None:
        """Finish what was begun and close the file. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._wake:
            self._closing = True
            self._wake.notify()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(thread.join)

    async def append(self, operation: Operation) -> None:
        """Queue an operation; it is durable when this returns. One that is queued already is not queued again.

        Raises:
            QueueFull: it holds as many as it may.
            StorageFull: the disk has no room.
            MemoryUnavailable: the file cannot be written.
        """
        if self._thread is None:
            raise MemoryUnavailable("the write queue is closed")
        if self.depth >= self._limit:
            raise QueueFull(f"the store is away and {self.depth} writes wait for it already: try again later")
        self.depth += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        with self._wake:
            self._appends.append((operation, future))
            self._wake.notify()
        try:
            is_new = await asyncio.shield(future)
        except RemembrancerError:
            self.depth -= 1
            raise
        if is_new:
            self._remember(operation)
        else:
            self.depth -= 1
        self._announce()

    async def head(self, count: int, size_bytes: int) -> list[Operation]:
        """The oldest operations: at most `count`, about `size_bytes` of them."""
        found, set_aside = await self._do(lambda file: file.head(count, size_bytes))
        if set_aside:
            logger.error("queued writes cannot be read and were set aside", extra={"count": set_aside})
            self.depth -= set_aside
            self.rejected += set_aside
            self._announce()
        return found

    async def settle(self, applied: Sequence[str], rejected: Sequence[Rejected]) -> None:
        """These leave: the store has the first, and will never take the second. They are not mirrored from now on."""
        for operation_id in (*applied, *(each.operation_id for each in rejected)):
            self._forget(operation_id)
        left = await self._do(lambda file: file.settle(applied, rejected, time.time()))
        self.depth -= left
        self.rejected += len(rejected)
        self._announce()

    def mirrored(self) -> list[Operation]:
        """What is queued and kept in memory, oldest first."""
        return list(self._mirror.values())

    @property
    def unmirrored(self) -> int:
        """How many queued operations are on disk alone."""
        return max(0, self.depth - len(self._mirror))

    async def wait_changed(self) -> None:
        """Wait until something is appended or leaves."""
        await self._changed.wait()

    async def wait_empty(self) -> None:
        """Wait until nothing is queued."""
        while self.depth:
            await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _remember(self, operation: Operation) -> None:
        size = _size(operation)
        if len(self._mirror) < MIRROR_OPERATIONS and self._mirror_bytes + size <= MIRROR_BYTES:
            self._mirror[operation.operation_id] = operation
            self._mirror_bytes += size

    def _forget(self, operation_id: str) -> None:
        operation = self._mirror.pop(operation_id, None)
        if operation is not None:
            self._mirror_bytes -= _size(operation)

    def _do(self, work: Callable[[QueueFile], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        with self._wake:
            self._work.append((work, future))
            self._wake.notify()
        return future

    # --- the thread ---

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            file = QueueFile(self._path)
        except Exception as error:  # noqa: BLE001 - handed to whoever opens the queue
            self._hand_over([(opened, error)])
            return
        self._hand_over([(opened, None)])
        try:
            while self._turn(file):
                pass
        finally:
            file.close()

    def _turn(self, file: QueueFile) -> bool:
        with self._wake:
            while not (self._appends or self._work or self._closing):
                self._wake.wait()
            group = [self._appends.popleft() for _ in range(min(MAX_GROUP, len(self._appends)))]
            work = self._work.popleft() if self._work else None
        if group:
            self._append(file, group)
        if work is not None:
            action, future = work
            try:
                result = action(file)
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
                result = error
            self._hand_over([(future, result)])
        return bool(group or work is not None or not self._closing)

    def _append(self, file: QueueFile, group: list[tuple[Operation, asyncio.Future[bool]]]) -> None:
        try:
            added = file.append([operation for operation, _ in group], time.time())
        except RemembrancerError as error:
            logger.warning("writes could not be queued", extra={"code": error.code, "reason": error.message})
            self._hand_over([(future, error) for _, future in group])
            return
        results: list[tuple[asyncio.Future[Any], Any]] = []
        for operation, future in group:
            results.append((future, operation.operation_id in added))
            added.discard(operation.operation_id)
        self._hand_over(results)

    def _hand_over(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        self._loop.call_soon_threadsafe(_resolve, results)


def _size(operation: Operation) -> int:
    return len(encoder.encode(operation))


def _resolve(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


BATCH_OPERATIONS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_TIMEOUT_S: Final = 10.0
STUCK_PAUSE_S: Final = 1.0
"""Before the oldest operation is tried again when the store has refused it for now (a full disk, say)."""
INTERNAL_TRIES: Final = 5
"""So often an operation is tried that makes the store fail; then it is set aside, so that the others can go on."""


class Drain:
    """Run `run` as a task. Operations leave the queue only after the store has said that it has them."""

    def __init__(self, queue: WriteQueue, link: StoreLink, cache: ReadCache, events: Events) -> None:
        self._queue = queue
        self._link = link
        self._cache = cache
        self._events = events
        self._internal_failures: dict[str, int] = {}
        self.stuck: str | None = None
        """Why the oldest operation is refused at the moment, if it is."""

    async def run(self) -> None:
        """Drain whenever there is something to drain and a store to take it. Ends when it is cancelled."""
        while True:
            if not self._queue.depth:
                await self._queue.wait_changed()
                continue
            await self._link.wait_answering()
            batch = await self._queue.head(BATCH_OPERATIONS, BATCH_BYTES)
            if not batch:  # an append is on its way to the disk
                with anyio.move_on_after(STUCK_PAUSE_S):
                    await self._queue.wait_changed()
                continue
            try:
                await self._send(batch)
            except AWAY as error:
                logger.info("draining stopped", extra={"code": error.code, "depth": self._queue.depth})

    async def _send(self, batch: list[Operation]) -> None:
        """Send a batch. What the store did not get to stays, and is sent again."""
        try:
            reply = await self._link.request(SubmitBatch(tuple(batch)), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError:
            await self._send_oldest(batch[0])
            return
        assert isinstance(reply, BatchApplied)
        if not reply.applied and not reply.rejected:
            await self._send_oldest(batch[0])
            return
        for each in reply.rejected:
            _log_rejected(each)
        self.stuck = None
        done = set(reply.applied)
        await self._settle([operation for operation in batch if operation.operation_id in done], reply.rejected)
        logger.info("drained", extra={"applied": len(reply.applied), "depth": self._queue.depth})

    async def _send_oldest(self, operation: Operation) -> None:
        """The store would not begin: ask it about the oldest operation alone, whose refusal has a reason."""
        try:
            await self._link.request(Submit(operation), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError as error:
            if not self._is_final(operation.operation_id, error):
                self.stuck = error.message
                logger.warning("queued writes have to wait", extra={"code": error.code, "reason": error.message})
                await anyio.sleep(STUCK_PAUSE_S)
                return
            rejected = Rejected(operation.operation_id, error.code, error.message)
            _log_rejected(rejected)
            await self._settle((), (rejected,))
        else:
            await self._settle((operation,), ())
        self.stuck = None
        self._internal_failures.pop(operation.operation_id, None)

    async def _settle(self, applied: Sequence[Operation], rejected: Sequence[Rejected]) -> None:
        """The cache hears of changes as they leave the mirror: no read sees them twice, or not at all."""
        for operation in applied:
            self._cache.note(operation)
        await self._queue.settle([operation.operation_id for operation in applied], rejected)
        self._events.written(applied, is_applied=True)

    def _is_final(self, operation_id: str, error: RemembrancerError) -> bool:
        if not isinstance(error, InternalError):
            return not error.retry_possible
        tries = self._internal_failures[operation_id] = self._internal_failures.get(operation_id, 0) + 1
        return tries >= INTERNAL_TRIES


def _log_rejected(rejected: Rejected) -> None:
    logger.error(
        "a queued write was rejected and is kept aside",
        extra={"operation_id": rejected.operation_id, "code": rejected.code, "reason": rejected.message},
    )
