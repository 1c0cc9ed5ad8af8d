"""The one thread that writes. Operations that wait together are committed together (group commit).

A commit with `synchronous=FULL` costs one wait for the disk, whether it holds one operation or a hundred. Client
operations go before all other writes, which still get their turn under a lasting load.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
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


Submission = tuple[Appliable, tuple[Operation, ...], "asyncio.Future[list[Outcome]]", Trace]


class Committer:
    """Use inside a running event loop; the futures belong to it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._operations: deque[Submission] = deque()
        self._work: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._waiting = 0
        self.commits = 0
        """How many groups of operations have been committed: whoever keeps counts of the records looks here."""
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, target: Appliable, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """Commit these in order; the future gives an outcome for each.

        Raises:
            QueueFull: `MAX_WAITING` operations wait already.
            MemoryUnavailable: this is closed.
        """
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        with self._wake:
            if self._closing:
                raise MemoryUnavailable("the store is stopping")
            if self._waiting + len(operations) > MAX_WAITING:
                raise QueueFull(f"{self._waiting} operations wait for their commit already: try again in a moment")
            self._waiting += len(operations)
            self._operations.append((target, tuple(operations), future, current()))
            self._wake.notify()
        return future

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the writer thread when no operation waits. The future fails if this is closed."""
        future: asyncio.Future[T] = self._loop.create_future()
        with self._wake:
            if self._closing:
                future.set_exception(MemoryUnavailable("the store is stopping"))
                return future
            self._work.append((work, future))
            self._wake.notify()
        return future

    def close(self) -> None:
        """Finish everything that was submitted, then end the thread. Blocks; may be called twice."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        in_a_row = 0
        while True:
            with self._wake:
                while not (self._operations or self._work or self._closing):
                    self._wake.wait()
                turn_of_work = bool(self._work) and in_a_row >= MAX_GROUPS_IN_A_ROW
                group = [] if turn_of_work else self._take_group()
                work = None if group or not self._work else self._work.popleft()
            if group:
                in_a_row += 1
                self._commit(group)
            elif work is not None:
                in_a_row = 0
                self._do(*work)
            else:
                return

    def _take_group(self) -> list[Submission]:
        """The longest run of submissions to one target, within `MAX_GROUP` operations; others keep their order."""
        group: list[Submission] = []
        size = 0
        while self._operations and (not group or self._operations[0][0] is group[0][0]):
            size += len(self._operations[0][1])
            if group and size > MAX_GROUP:
                break
            group.append(self._operations.popleft())
            self._waiting -= len(group[-1][1])
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
        results = []
        for _, operations, future, trace in group:
            trace.mark("turn came", began)
            trace.mark("committed", committed)
            results.append((future, outcomes[: len(operations)]))
            outcomes = outcomes[len(operations) :]
        self._resolve(results)

    def _do(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
            self._loop.call_soon_threadsafe(_fail, future, error)
        else:
            self._resolve([(future, result)])

    def _resolve(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        self._loop.call_soon_threadsafe(_resolve_all, results)


def _resolve_all(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if not future.done():
            future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
