"""The writing threads: one for the records, and one for each writer that may be slow. Operations that wait together are
committed together (group commit).

A commit with `synchronous=FULL` costs one wait for the disk, for one operation or a hundred. Client operations go
before all other writes, which still get their turn under sustained load.
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
"""The number of operations that may wait for one file's commit before more are refused."""
MAX_GROUP: Final = 256
"""Operations in one transaction: enough to spread the cost of the disk wait, few enough to answer the first one
soon."""
MAX_GROUPS_IN_A_ROW: Final = 4
"""The number of groups of operations that may overtake other waiting work."""
IDLE_S: Final = 30.0
"""A thread ends after being idle for this long; the next write starts another."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Appliable(Protocol):
    """A target of operations: a file of records, or a pair of them between which memories move."""

    @property
    def name(self) -> str:
        """The file whose thread commits the operations."""

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply the operations durably and in order, and return an outcome for each."""


Done = Callable[[list[Outcome]], None]
Complete = Callable[[Appliable, Sequence[Operation], list[Outcome]], list[Outcome]]
Submission = tuple[Appliable, tuple[Operation, ...], Done, Trace]


def as_they_are(_: Appliable, __: Sequence[Operation], outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes unchanged."""
    return outcomes


class Committer:
    """Commits operations. Use inside a running event loop, on which answers are delivered; only `close` is for another
    thread.

    `complete` gets each committed group, on the writing thread, and returns the outcomes with whatever else the answers
    need.
    """

    def __init__(self, complete: Complete = as_they_are, thread_of: Callable[[str], str] = lambda name: name) -> None:
        self._loop = asyncio.get_running_loop()
        self._complete = complete
        self.thread_of = thread_of
        """Maps a file's name to the name of the thread that writes it."""
        self._commits: Counter[str] = Counter()
        self._writers: dict[str, _Writer] = {}
        self._closing = False

    @property
    def commits(self) -> int:
        """The number of groups of operations that have been committed to any file."""
        return self._commits.total()

    def commits_of(self, name: str) -> int:
        """Return the number of groups of operations that have been committed to that file."""
        return self._commits[name]

    def note_commit(self, name: str) -> None:
        """Count a commit to that file that was made by `run`, on its thread, not by `commit`."""
        self._commits[name] += 1

    def commit(self, target: Appliable, operations: Sequence[Operation], done: Done) -> None:
        """Commit these operations in order; `done` is called on the event loop with an outcome for each.

        Raises:
            QueueFull: `MAX_WAITING` operations already wait for that file.
            MemoryUnavailable: the committer is closed.
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
        """Like `commit`, but returns a future."""
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self.commit(target, operations, partial(_resolve, future))
        return future

    def run(self, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` on that file's thread when no operation waits. The future fails if the committer is closed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            future.set_exception(MemoryUnavailable("the store is stopping"))
        else:
            writer = self._writer_of(name)
            writer.work.append((work, future))
            writer.wake()
        return future

    def run_soon(self, name: str, work: Callable[[], object]) -> None:
        """Like `run`, from any thread, without waiting for the result."""

        def begin() -> None:
            self.run(name, work).add_done_callback(asyncio.Future.exception)

        self._loop.call_soon_threadsafe(begin)

    def run_from_thread(self, name: str, work: Callable[[], T]) -> T:
        """Like `run`, but waits for the result. Call it neither from the event loop nor from a writing thread."""

        async def run() -> T:
            return await self.run(name, work)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def close(self) -> None:
        """Finish all submitted work, then end the threads. Blocks; may be called twice."""
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
    """The queue of one thread, and the thread, which exists while there is work."""

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
        """Held while the thread is started, and while it checks whether it may end."""
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        self._closing = True
        self._tokens.put(None)

    def join(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()

    def refuse_late(self) -> None:
        """Refuse work that was submitted just as the thread ended."""
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
                    # There is a token for each submission, so grouped submissions leave idle turns.
                    self._tokens.get(timeout=IDLE_S)
                except queue.Empty:
                    with self._guard:
                        if not (self.operations or self.work or self._closing):
                            self._thread = None
                            return

    def _take_group(self) -> list[Submission]:
        """Return the longest run of submissions to one target, within `MAX_GROUP` operations; the rest keep their
        order."""
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
        except RemembrancerError as error:  # a file error, such as a removed file; clients may try again
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
        except Exception:  # one failing answer must not keep the others from theirs
            logger.exception("what follows a commit failed")


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
