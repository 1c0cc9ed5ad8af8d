"""The threads that write, one for the records and one for each writer that may be slow, and those that read.

Operations waiting at the same time are committed together (group commit), so that they wait for the disk only once
(`synchronous=FULL`). A thread's other work is cut into steps of a few milliseconds, which run between the groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from remembrancer.actors.store.records.types import RECORDS, USER, Outcome
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, QueueFull, RemembrancerError
from remembrancer.protocol.ids import PROJECT_ID
from remembrancer.protocol.writes import Operation

INDEX: Final = ".files"
"""The suffix that follows the project's id in the name of a file index."""
MAX_WAITING: Final = 10_000
"""The maximum number of operations waiting for one thread. Further operations are refused."""
MAX_GROUP: Final = 256
"""Enough operations to share the wait for the disk, but few enough for a fast first answer."""
STOPPING: Final = "the store is stopping"
READ_THREADS: Final = 4
"""Few threads, since each has its own connection with a page cache, and Python runs only one at a time."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Target(Protocol):
    """Applies operations: the writer of all memories, or a shared lane. Its name determines the thread."""

    name: str

    def apply(self, operations: Sequence[Operation], /) -> list[Outcome]:
        """Commit the operations, and return an outcome for each."""


Submission = tuple[Target, Operation, asyncio.Future[Outcome]]


class Committer:
    """Commits operations. Belongs to the running event loop; only `close` may be called from another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writers: dict[str, _Writer] = {}
        self._closing = False

    def submit(self, target: Target, operation: Operation) -> asyncio.Future[Outcome]:
        """Commit an operation after all that were submitted before it. Raises `QueueFull` if too many are waiting."""
        writer = self._writer_of(target.name)
        if len(writer.operations) >= MAX_WAITING:
            raise QueueFull(f"{MAX_WAITING} operations are already waiting to be committed; try again in a moment")
        future: asyncio.Future[Outcome] = self._loop.create_future()
        writer.operations.append((target, operation, future))
        try:
            writer.thread.submit(writer.commit)
        except RuntimeError as error:
            raise MemoryUnavailable(STOPPING) from error
        return future

    def run(self, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the thread with this name, even if the caller is cancelled. The future fails after `close`."""
        try:
            running = self._loop.run_in_executor(self._writer_of(name).thread, work)
            running.add_done_callback(asyncio.Future.exception)  # otherwise asyncio complains if the caller is gone
            return asyncio.shield(running)
        except (MemoryUnavailable, RuntimeError):
            future: asyncio.Future[T] = self._loop.create_future()
            future.set_exception(MemoryUnavailable(STOPPING))
            return future

    def close(self) -> None:
        """Finish all submitted work, then end the threads. Blocks; may be called twice."""
        self._closing = True
        for writer in list(self._writers.values()):
            writer.thread.shutdown()

    def _writer_of(self, name: str) -> _Writer:
        """Each shared lane (which may wait for a journal) and the notes of each project have their own writer."""
        if self._closing:
            raise MemoryUnavailable(STOPPING)
        if name.endswith(INDEX):
            name = INDEX
        elif name == USER or PROJECT_ID.fullmatch(name) is not None:
            name = RECORDS
        if name not in self._writers:
            self._writers[name] = _Writer(name, self._loop)
        return self._writers[name]


class _Writer:
    """Each submission schedules a commit, which does nothing if an earlier commit included the operation."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self.operations: deque[Submission] = deque()
        self.thread = ThreadPoolExecutor(1, f"writer {name}")

    def commit(self) -> None:
        group: list[Submission] = []
        while self.operations and len(group) < MAX_GROUP and (not group or self.operations[0][0] == group[0][0]):
            group.append(self.operations.popleft())
        if not group:
            return
        together = [operation for _, operation, _ in group]
        try:
            outcomes = group[0][0].apply(together)
        except RemembrancerError as error:  # e.g. a file that was removed; clients may try again
            logger.warning("a commit was refused", extra={"file": self._name, "reason": error.message})
            outcomes = [error for _ in together]
        except Exception:
            logger.exception("a commit failed")
            outcomes = [InternalError("the store could not write this; see store.log") for _ in together]
        self._loop.call_soon_threadsafe(_resolve, [future for *_, future in group], outcomes)


def _resolve(futures: Sequence[asyncio.Future[Outcome]], outcomes: Sequence[Outcome]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if not future.done():
            future.set_result(outcome)


class Readers:
    """Runs reads on threads. Work for which no client waits has its own thread, so that it does not delay recalls.
    Closing a file waits for running queries; later queries are refused."""

    def __init__(self) -> None:
        self.threads: Executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="background")

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def in_background(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._background, work)
