"""The write queue on its own: durable, in order, each operation once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from remembrancer.actors.gateway import write_queue
from remembrancer.actors.gateway.write_queue import INTERNAL_TRIES, Drain, WriteQueue
from remembrancer.command_line import main
from remembrancer.protocol.errors import Failure, InternalError, MemoryUnavailable
from remembrancer.protocol.paths import database_files
from remembrancer.protocol.writes import (
    BatchApplied,
    Operation,
    ProjectRef,
    StoreMemory,
    SubmitBatch,
)
from tests.patience import until
from tests.spaces import locked


def operation(number: int, content: str = "x", project: str = "p_0") -> Operation:
    change = StoreMemory(
        memory_id=f"memory:{number}", content=content, type="semantic", scope="project", session_id="session:s"
    )
    return Operation(f"{number:032x}", ProjectRef(project, "/"), "session:s", 1.0, change)


@asynccontextmanager
async def opened(path: Path, limit: int = 1000) -> AsyncIterator[WriteQueue]:
    queue = WriteQueue(path, limit)
    try:
        await queue.open()
        yield queue
    finally:
        await queue.aclose()


async def test_a_queue_that_another_program_has_locked_keeps_what_it_has(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db") as queue:
        await queue.append(operation(1))
        with locked(tmp_path / "queue.db"), pytest.raises(MemoryUnavailable, match="another program"):
            await queue.settle(["0" * 31 + "1"], {})
        assert queue.depth == 1
        await queue.settle(["0" * 31 + "1"], {})
        assert queue.depth == 0


async def test_an_operation_is_queued_once_also_when_it_comes_twice_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db") as queue:
        await queue.append(operation(1))
        async with anyio.create_task_group() as tasks:
            for number in (1, 2, 2, 3):
                tasks.start_soon(queue.append, operation(number))
        assert queue.depth == 3
        assert len(await queue.head("p_0", 10, 10_000)) == 3


async def test_the_head_is_bounded_in_number_and_size_but_never_empty(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db") as queue:
        for number in range(5):
            await queue.append(operation(number, "y" * 1000))
        assert len(await queue.head("p_0", 3, 10**9)) == 3
        assert len(await queue.head("p_0", 5, 3000)) == 2
        assert len(await queue.head("p_0", 5, 10)) == 1


async def test_what_is_settled_leaves_and_what_is_rejected_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    async with opened(path) as queue:
        for number in range(3):
            await queue.append(operation(number))
        await queue.settle([operation(0).operation_id], {operation(1).operation_id: Failure("invalid_input", "why")})
        assert (queue.depth, queue.rejected) == (1, 1)
        assert await queue.head("p_0", 10, 10_000) == [operation(2)]
    async with opened(path) as queue:
        assert (queue.depth, queue.rejected) == (1, 1)
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT operation_id, code, message FROM rejected").fetchall()
    database.close()
    assert rows == [(operation(1).operation_id, "invalid_input", "why")]


class FailingStore:
    """A store that fails at every batch with the first operation."""

    def __init__(self) -> None:
        self.failures = 0

    async def wait_answering(self) -> None:
        """It always answers."""

    async def request(self, batch: SubmitBatch, _: float) -> BatchApplied:
        if operation(0) in batch.operations:
            self.failures += 1
            raise InternalError("the store failed on this batch")
        return BatchApplied(tuple(each.operation_id for each in batch.operations))


@pytest.mark.parametrize("others", [0, 1])
async def test_what_fails_the_store_goes_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    monkeypatch.setattr(write_queue, "RETRY_S", 0.001)
    store: Any = FailingStore()
    applied, refused = list[Operation](), list[tuple[Operation, Failure]]()
    async with opened(tmp_path / "queue.db") as queue, anyio.create_task_group() as tasks:
        for number in range(1 + others):
            await queue.append(operation(number))
        drain = Drain(queue, store, applied.append, lambda *refusal: refused.append(refusal))
        tasks.start_soon(drain.run)
        await until(lambda: not queue.depth)
        tasks.cancel_scope.cancel()
        assert queue.rejected == 1
    assert store.failures == INTERNAL_TRIES
    assert [(each, why.code) for each, why in refused] == [(operation(0), "internal_error")]
    assert applied == [operation(number) for number in range(1, 1 + others)]


async def test_what_was_erased_before_it_is_rejected_is_not_counted_as_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db") as queue:
        await queue.append(operation(0))
        await queue.erase("memory:0")
        await queue.settle([], {operation(0).operation_id: Failure("invalid_input", "it was erased")})
        assert (queue.depth, queue.rejected) == (0, 0)


async def test_an_operation_that_this_release_cannot_read_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    async with opened(path) as queue:
        await queue.append(operation(1))
        await queue.append(operation(2))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE queued SET operation = x'c1' WHERE sequence = 1")
    database.close()
    async with opened(path) as queue:
        assert await queue.head("p_0", 10, 10_000) == [operation(2)]
        assert (queue.depth, queue.rejected) == (1, 1)


async def test_a_damaged_file_is_put_aside_and_writes_go_on(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(b"not a database at all, but long enough to look like one" * 100)
    async with opened(path) as queue:
        await queue.append(operation(1))
        assert queue.depth == 1
    assert len([each async for each in anyio.Path(tmp_path).glob("queue.damaged-*")]) == 1


@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("replaced_by", [None, b"", b"something else"])
async def test_a_file_that_is_deleted_while_it_is_open_is_made_anew_with_its_writes(
    tmp_path: Path, replaced_by: bytes | None, with_log: bool
) -> None:
    path, kept = tmp_path / "queue.db", tmp_path / "kept"
    async with opened(path) as queue:
        for number in (1, 2, 3):
            await queue.append(operation(number))
        await queue.settle([], {operation(1).operation_id: Failure("invalid_input", "why")})
        for file in database_files(path) if with_log else [path]:
            file.unlink(missing_ok=True)
        if replaced_by is not None:
            path.write_bytes(replaced_by)
        await queue.append(operation(4))
        assert (queue.depth, queue.rejected) == (3, 1)
        assert queue.damage is not None
        assert "deleted or replaced: 2 queued writes" in queue.damage
        if replaced_by is not None:
            assert path.with_name(queue.damage.rsplit(" ", 1)[1]).read_bytes() == replaced_by
        await queue.append(operation(5))
        await queue.settle([operation(2).operation_id], {})
        kept.mkdir()
        for file in database_files(path):  # as a crash would leave it
            if file.exists():
                shutil.copy(file, kept)
    async with opened(kept / path.name) as queue:
        assert await queue.head("p_0", 10, 10_000) == [operation(number) for number in (3, 4, 5)]
        assert queue.rejected == 1
    assert not path.with_suffix(".new").exists()


async def test_each_project_has_a_lane(tmp_path: Path) -> None:
    async with opened(tmp_path / "queue.db") as queue:
        await queue.append(operation(1, project="p_1"))
        assert not queue.is_next(operation(2, project="p_1"))
        assert queue.is_next(operation(3, project="p_2"))
        await queue.append(operation(6, project="p_2"))
        assert await queue.head("p_2", 10, 10_000) == [operation(6, project="p_2")]
        assert (queue.waits("p_1"), queue.waits("p_3")) == (1, 0)


@pytest.mark.parametrize("writes", [1, 300])
async def test_what_can_be_read_of_a_file_damaged_behind_its_header_is_applied(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "queue.db"
    async with opened(path) as queue:
        for number in range(writes):
            await queue.append(operation(number, "y" * 500))
    pages = bytearray(path.read_bytes())
    pages[-4096:] = b"\xff" * 4096
    path.write_bytes(pages)
    async with opened(path) as queue:
        assert queue.damage is not None
        assert "queue.damaged-" in queue.damage
        assert queue.depth == len(await queue.head("p_0", 1000, 10**9))
        assert queue.depth >= writes - 10
        await queue.append(operation(1000))
    async with opened(path) as queue:
        assert queue.damage is None


async def test_the_command_shows_exports_drops_what_is_aside(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "queue.db"
    async with opened(path) as queue:
        for number in range(3):
            await queue.append(operation(number, f"content {number}"))
        refused = {operation(number).operation_id: Failure("not_found", "gone") for number in (0, 1)}
        await queue.settle([], refused)
        assert main(["admin", "queue", "list", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [each["about"] for each in listed["queued"]] == ["StoreMemory content 2"]
        assert [each["message"] for each in listed["set_aside"]] == ["gone", "gone"]
        assert main(["admin", "queue", "export", operation(1).operation_id]) == 0
        assert json.loads(capsys.readouterr().out)["operation"]["change"]["content"] == "content 1"
    assert main(["admin", "queue", "drop", "nothing"]) == 2
    assert main(["admin", "queue", "drop", "--all"]) == 0
    async with opened(path) as queue:
        assert (queue.depth, queue.rejected) == (1, 0)
