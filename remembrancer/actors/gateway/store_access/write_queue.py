"""The write queue: acknowledged writes wait here, durably and in order, while the store is away.

One thread owns the file; appends that wait together are committed together. A bounded part of what is queued is also
kept in memory, so that a read without the store can look at it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from remembrancer.actors.gateway.store_access.queue_file import QueueFile
from remembrancer.protocol.errors import MemoryUnavailable, QueueFull, RemembrancerError
from remembrancer.protocol.wire import encoder
from remembrancer.protocol.writes import Operation, Rejected

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
