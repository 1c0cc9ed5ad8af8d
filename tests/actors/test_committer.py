"""The one thread that writes: groups, order, turns, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.committer import Committer, Complete, as_they_are
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RecordsUnusable
from remembrancer.protocol.writes import Applied, Operation
from tests.operations import REQUESTED_AT, store_operation
from tests.patience import PATIENCE_S

NAME = "p_0123456789ab"


class WatchedRecords(Records):
    """Notes which operations were committed together."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(SqliteFile(path), name, lambda: REQUESTED_AT)
        self.groups: list[list[str]] = []
        self.fault: Exception | None = None

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        self.groups.append([operation.operation_id for operation in operations])
        if self.fault is not None:
            raise self.fault
        return super().apply(operations)


@asynccontextmanager
async def writing(
    path: Path, *names: str, complete: Complete = as_they_are
) -> AsyncIterator[tuple[Committer, list[WatchedRecords]]]:
    committer = Committer(complete)
    files = [WatchedRecords(path / name / "memory.db", name) for name in names or (NAME,)]
    try:
        yield committer, files
    finally:
        await asyncio.to_thread(committer.close)
        for records in files:
            records.close()


class Held:
    """Work that holds the writer thread until it is let go, so that others line up behind it."""

    def __init__(self, committer: Committer) -> None:
        self._free = threading.Event()
        self._begun = threading.Event()
        self.done = committer.run(NAME, self._work)

    def _work(self) -> None:
        self._begun.set()
        assert self._free.wait(PATIENCE_S)

    async def begun(self) -> None:
        await asyncio.to_thread(self._begun.wait, 10)

    def let_go(self) -> None:
        self._free.set()


async def held(committer: Committer) -> Held:
    work = Held(committer)
    await work.begun()
    return work


async def test_operations_that_wait_together_are_committed_together_and_in_order(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        gate = await held(committer)
        futures = [committer.submit(records, [store_operation(f"op{n}", f"text {n}")]) for n in range(20)]
        gate.let_go()
        outcomes = [await future for future in futures]
        assert records.groups == [[f"op{n}" for n in range(20)]]
        assert [each.reply.operation_id for [each] in outcomes if isinstance(each.reply, Applied)] == records.groups[0]
        assert [each.to_embed for [each] in outcomes] == list(range(1, 21))


async def test_what_is_committed_is_answered_though_nothing_more_can_be_said_of_it(tmp_path: Path) -> None:
    def complete(operations: Sequence[Operation], outcomes: list[Outcome]) -> list[Outcome]:
        raise RecordsUnusable(f"{operations[0].operation_id} cannot be looked at")

    async with writing(tmp_path, complete=complete) as (committer, [records]):
        (outcome,) = await committer.submit(records, [store_operation("op", "text")])
        assert isinstance(outcome.reply, Applied)
        assert await committer.run(NAME, lambda: "ran") == "ran", "the thread goes on"


async def test_a_file_that_is_held_holds_no_other(tmp_path: Path) -> None:
    async with writing(tmp_path, NAME, "b") as (committer, [one, two]):
        gate = await held(committer)
        places = [one, one, two, one]
        futures = [committer.submit(each, [store_operation(f"op{n}", f"text {n}")]) for n, each in enumerate(places)]
        assert isinstance((await futures[2])[0].reply, Applied)
        assert await committer.run("b", lambda: "ran") == "ran"
        assert [future.done() for future in futures] == [False, False, True, False]
        gate.let_go()
        for future in futures:
            await future
        assert (one.groups, two.groups) == ([["op0", "op1", "op3"]], [["op2"]])


async def test_a_fault_in_the_records_is_an_answer_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        records.fault = RuntimeError("a fault in the records")
        outcomes = await committer.submit(records, [store_operation("a", "x"), store_operation("b", "y")])
        assert [type(each.reply) for each in outcomes] == [InternalError, InternalError]
        with pytest.raises(ZeroDivisionError):
            await committer.run(NAME, lambda: 1 // 0)
        records.fault = None
        outcomes = await committer.submit(records, [store_operation("a", "x")])
        assert isinstance(outcomes[0].reply, Applied)


async def test_closing_finishes_what_was_submitted_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        gate = await held(committer)
        futures = [committer.submit(records, [store_operation(f"op{n}", f"text {n}")]) for n in range(5)]
        ran = committer.run(NAME, lambda: "ran")
        closing = asyncio.create_task(asyncio.to_thread(committer.close))
        gate.let_go()
        await closing
        assert all([isinstance((await future)[0].reply, Applied) for future in futures])
        assert await ran == "ran"
        with pytest.raises(MemoryUnavailable):
            committer.submit(records, [store_operation("late", "x")])
        with anyio.fail_after(PATIENCE_S), pytest.raises(MemoryUnavailable):
            await committer.run(NAME, lambda: "late")
        await asyncio.to_thread(committer.close)
