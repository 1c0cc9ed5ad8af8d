"""The threads that write: one for the records, and one each for what may be slow by itself. Operations that wait
together are committed together (group commit).

A commit with `synchronous=FULL` costs one wait for the disk, whether it holds one operation or a hundred. Client
operations go before all other writes, which still get their turn under a lasting load.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, QueueFull, RemembrancerError
from remembrancer.protocol.tracing import Trace, current
from remembrancer.protocol.writes import Operation

MAX_WAITING: Final = 10_000
"""Operations that may wait for their commit to one file before more are refused."""
MAX_GROUP: Final = 256
"""Operations in one transaction: enough to spread the wait for the disk, few enough to answer the first soon."""
MAX_GROUPS_IN_A_ROW: Final = 4
"""Groups of operations that may pass other work that waits."""
IDLE_S: Final = 30.0
"""A thread that had nothing to write for so long ends; the next write starts another."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Appliable(Protocol):
    """A place that operations are committed to: a file of records, or two of them between which memories move."""

    @property
    def name(self) -> str:
        """The file whose thread commits it."""

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply each in order, durably, and answer each."""


Done = Callable[[list[Outcome]], None]
Complete = Callable[[Appliable, Sequence[Operation], list[Outcome]], list[Outcome]]
Submission = tuple[Appliable, tuple[Operation, ...], Done, Trace]


def as_they_are(_: Appliable, __: Sequence[Operation], outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes, with nothing added to them."""
    return outcomes


class Committer:
    """Use inside a running event loop: what was submitted is answered there. Only `close` is for another thread.

    `complete` is given what was committed together, on the thread that did it, and returns the outcomes with what else
    an answer says.
    """

    def __init__(self, complete: Complete = as_they_are, thread_of: Callable[[str], str] = lambda name: name) -> None:
        self._loop = asyncio.get_running_loop()
        self._complete = complete
        self.thread_of = thread_of
        """The thread that writes what has a name."""
        self._commits: Counter[str] = Counter()
        self._writers: dict[str, _Writer] = {}
        self._closing = False

    @property
    def commits(self) -> int:
        """The number of groups of operations that have been committed to any file."""
        return self._commits.total()

    def commits_of(self, name: str) -> int:
        """The number of groups of operations that have been committed to that file."""
        return self._commits[name]

    def note_commit(self, name: str) -> None:
        """Something was committed to that file in another way than by `commit`: by `run`, on its thread."""
        self._commits[name] += 1

    def commit(self, target: Appliable, operations: Sequence[Operation], done: Done) -> None:
        """Commit these in order; `done` is called on the event loop with an outcome for each.

        Raises:
            QueueFull: `MAX_WAITING` operations wait for that file already.
            MemoryUnavailable: this is closed.
        """
        if self._closing:
            raise MemoryUnavailable("the store is stopping")
        writer = self._writer_of(target.name)
        waiting = writer.submitted - writer.taken
        if waiting + len(operations) > MAX_WAITING:
            raise QueueFull(f"{waiting} operations wait for their commit already: try again in a moment")
        writer.submitted += len(operations)
        writer.operations.append((target, tuple(operations), done, current()))
        writer.wake()

    def submit(self, target: Appliable, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        """As `commit`, with a future."""
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self.commit(target, operations, partial(_resolve, future))
        return future

    def run(self, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on the thread of that file when no operation waits. The future fails if this is closed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            future.set_exception(MemoryUnavailable("the store is stopping"))
        else:
            writer = self._writer_of(name)
            writer.work.append((work, future))
            writer.wake()
        return future

    def run_soon(self, name: str, work: Callable[[], object]) -> None:
        """As `run`, from any thread, for what nobody waits for."""

        def begin() -> None:
            self.run(name, work).add_done_callback(asyncio.Future.exception)

        self._loop.call_soon_threadsafe(begin)

    def run_from_thread(self, name: str, work: Callable[[], T]) -> T:
        """As `run`, for a thread that waits for it: neither the event loop's nor a file's."""

        async def run() -> T:
            return await self.run(name, work)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def close(self) -> None:
        """Finish everything that was submitted, then end the threads. Blocks; may be called twice."""
        self._closing = True
        writers = list(self._writers.values())
        for writer in writers:
            writer.close()
        for writer in writers:
            writer.join()
        if not self._loop.is_closed():
            for writer in writers:
                self._loop.call_soon_threadsafe(writer.refuse_late)

    def _writer_of(self, name: str) -> _Writer:
        name = self.thread_of(name)
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = _Writer(name, self._loop, self._complete, self.note_commit)
        return writer


class _Writer:
    """The operations that wait for one thread, and that thread, which is there while there is something to write."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, complete: Complete, committed: Callable[[str], None]
    ) -> None:
        self._name = name
        self._loop = loop
        self._complete = complete
        self._committed = committed
        self.operations: deque[Submission] = deque()
        self.work: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self.submitted = 0
        self.taken = 0
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = False
        self._guard = threading.Lock()
        """Held while the thread is started, and while it makes sure that it may end."""
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        self._closing = True
        self._tokens.put(None)

    def join(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()

    def refuse_late(self) -> None:
        """Answer what was submitted in the very moment in which the thread ended."""
        error = MemoryUnavailable("the store is stopping")
        while self.operations:
            _, operations, done, _ = self.operations.popleft()
            done([Outcome(error)] * len(operations))
        while self.work:
            _fail(self.work.popleft()[1], error)

    def wake(self) -> None:
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"writer {self._name}", daemon=True)
                self._thread.start()
        self._tokens.put(None)

    def _run(self) -> None:
        in_a_row = 0
        while True:
            if self.operations and not (self.work and in_a_row >= MAX_GROUPS_IN_A_ROW):
                in_a_row = in_a_row + 1 if self.work else 0
                self._commit(self._take_group())
            elif self.work:
                in_a_row = 0
                self._do(*self.work.popleft())
            elif self._closing:
                return
            else:
                try:
                    # A token for each submission: those that came together make idle turns.
                    self._tokens.get(timeout=IDLE_S)
                except queue.Empty:
                    with self._guard:
                        if not (self.operations or self.work or self._closing):
                            self._thread = None
                            return

    def _take_group(self) -> list[Submission]:
        """The longest run of submissions to one target, within `MAX_GROUP` operations; others keep their order."""
        group: list[Submission] = []
        size = 0
        while self.operations and (not group or self.operations[0][0] == group[0][0]):
            size += len(self.operations[0][1])
            if group and size > MAX_GROUP:
                break
            group.append(self.operations.popleft())
            self.taken += len(group[-1][1])
        return group

    def _commit(self, group: list[Submission]) -> None:
        began = time.monotonic()
        together = [operation for _, operations, _, _ in group for operation in operations]
        try:
            outcomes = group[0][0].apply(together)
        except RemembrancerError as error:  # of the file, as one that is taken away meanwhile: it may be tried again
            logger.warning("a commit was refused", extra={"file": self._name, "reason": error.message})
            outcomes = [Outcome(error) for _ in together]
        except Exception:
            logger.exception("a commit failed")
            outcomes = [Outcome(InternalError("the store could not write this: see store.log")) for _ in together]
        self._committed(group[0][0].name)
        committed = time.monotonic()
        try:
            outcomes = self._complete(group[0][0], together, outcomes)
        except Exception:
            logger.exception("what was committed is answered without what else there is to say")
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
