"""The one thread that writes. Operations that wait together are committed together (group commit).

A commit with `synchronous=FULL` costs one wait for the disk, whether it holds one operation or a hundred. Client
operations go before all other writes, which still get their turn under a lasting load.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, QueueFull
from remembrancer.protocol.tracing import Trace, current
from remembrancer.protocol.writes import Operation

MAX_WAITING: Final = 10_000
"""Operations that may wait for their commit before more are refused."""
MAX_GROUP: Final = 256
"""Operations in one transaction: enough to spread the wait for the disk, few enough to answer the first soon."""
MAX_GROUPS_IN_A_ROW: Final = 4
"""Groups of operations that may pass other work that waits."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Appliable(Protocol):
    """What operations are committed to: a file of records, or two of them between which memories move."""

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply each in order, durably, and answer each."""


Done = Callable[[list[Outcome]], None]
Submission = tuple[Appliable, tuple[Operation, ...], Done, Trace]


class Committer:
    """Use inside a running event loop: what was submitted is answered there. Only `close` is for another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._operations: deque[Submission] = deque()
        self._work: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._submitted = 0
        self._taken = 0
        self.commits = 0
        """How many groups of operations have been committed: whoever keeps counts of the records looks here."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def commit(self, target: Appliable, operations: Sequence[Operation], done: Done) -> None:
        """Commit these in order; `done` is called on the event loop with an outcome for each.

        Raises:
            QueueFull: `MAX_WAITING` operations wait already.
            MemoryUnavailable: this is closed.
        """
        if self._closing:
            raise MemoryUnavailable("the store is stopping")
        waiting = self._submitted - self._taken
        if waiting + len(operations) > MAX_WAITING:
            raise QueueFull(f"{waiting} operations wait for their commit already: try again in a moment")
        self._submitted += len(operations)
        self._operations.append((target, tuple(operations), done, current()))
        self._wake.put(None)

    def submit(self, target: Appliable, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """As `commit`, with a future."""
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self.commit(target, operations, partial(_resolve, future))
        return future

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the writer thread when no operation waits. The future fails if this is closed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            future.set_exception(MemoryUnavailable("the store is stopping"))
        else:
            self._work.append((work, future))
            self._wake.put(None)
        return future

    def run_from_thread(self, work: Callable[[], T]) -> T:
        """As `run`, for a thread that waits for it: neither the event loop's nor the writer's."""

        async def run() -> T:
            return await self.run(work)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def close(self) -> None:
        """Finish everything that was submitted, then end the thread. Blocks; may be called twice."""
        self._closing = True
        self._wake.put(None)
        self._thread.join()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._refuse_late)

    def _refuse_late(self) -> None:
        """Answer what was submitted in the very moment in which the thread ended."""
        error = MemoryUnavailable("the store is stopping")
        while self._operations:
            _, operations, done, _ = self._operations.popleft()
            done([Outcome(error)] * len(operations))
        while self._work:
            _fail(self._work.popleft()[1], error)

    def _run(self) -> None:
        in_a_row = 0
        while True:
            if self._operations and not (self._work and in_a_row >= MAX_GROUPS_IN_A_ROW):
                in_a_row += 1
                self._commit(self._take_group())
            elif self._work:
                in_a_row = 0
                self._do(*self._work.popleft())
            elif self._closing:
                return
            else:
                self._wake.get()  # one token for each submission: those that came together make idle turns

    def _take_group(self) -> list[Submission]:
        """The longest run of submissions to one target, within `MAX_GROUP` operations; others keep their order."""
        group: list[Submission] = []
        size = 0
        while self._operations and (not group or self._operations[0][0] is group[0][0]):
            size += len(self._operations[0][1])
            if group and size > MAX_GROUP:
                break
            group.append(self._operations.popleft())
            self._taken += len(group[-1][1])
        return group

    def _commit(self, group: list[Submission]) -> None:
        began = time.monotonic()
        together = [operation for _, operations, _, _ in group for operation in operations]
        try:
            outcomes = group[0][0].apply(together)
        except Exception:
            logger.exception("a commit failed")
            outcomes = [Outcome(InternalError("the store could not write this: see store.log")) for _ in together]
        self.commits += 1
        committed = time.monotonic()
        results: list[tuple[Callable[[Any], None], Any]] = []
        for _, operations, done, trace in group:
            trace.mark("turn came", began)
            trace.mark("committed", committed)
            results.append((done, outcomes[: len(operations)]))
            outcomes = outcomes[len(operations) :]
        self._loop.call_soon_threadsafe(_answer_all, results)

    def _do(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
            self._loop.call_soon_threadsafe(_fail, future, error)
        else:
            self._loop.call_soon_threadsafe(_resolve, future, result)


def _answer_all(results: list[tuple[Callable[[Any], None], Any]]) -> None:
    for done, outcomes in results:
        try:
            done(outcomes)
        except Exception:  # one answer that cannot be given must not cost the others theirs
            logger.exception("what follows a commit failed")


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
