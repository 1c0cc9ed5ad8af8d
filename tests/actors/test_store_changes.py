"""A write is applied once, in order, to where its memory is, and is there whatever happens; its thread."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from msgspec.structs import replace

from remembrancer.actors.actor_process import EXIT_STOPPED
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store import actor
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.control import StoreHealth
from remembrancer.protocol.errors import InternalError, InvalidInput, MemoryUnavailable, RemembrancerError, StorageFull
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import TakeNear
from remembrancer.protocol.writes import (
    Applied,
    ForgetMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)
from tests.actors.store_process import Gateway, StoreRig, store_rig
from tests.contracts.records_rig import apply
from tests.operations import (
    OTHER_PROJECT,
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    result_of,
    store_operation,
)
from tests.patience import PATIENCE_S, until


async def test_a_refused_write_says_why_and_stores_nothing(rig: StoreRig) -> None:
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "x", importance=7.0))
    with pytest.raises(InvalidInput, match="12 hexadecimal digits"):
        await rig.gateway.submit(store_operation("bad", "x", project=ProjectRef("../../etc", "/x")))
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "x", project=ProjectRef("user", "/x")))
    assert await rig.gateway.found("x", project=ProjectRef("../user", "/x")) == []
    assert rig.rows("SELECT id FROM memories") == []
    assert list(rig.home.parent.glob(f"{rig.home.name}/**/*.db")) == [rig.paths.database], "no other was made"


async def test_a_text_that_another_scope_has_is_named_when_it_is_stored(rig: StoreRig) -> None:
    known: list[str] = []
    scopes: tuple[Scope, ...] = ("project", "user", "session")
    for scope in scopes:
        result = result_of(await rig.gateway.submit(store_operation(scope, "a lantern", scope=scope)))
        assert sorted(result.duplicates) == sorted(known)
        known.append(result.memory_id)
    without_user = replace(PROJECT, sees_user=False)
    again = result_of(await rig.gateway.submit(store_operation("token", "a lantern", project=without_user)))
    assert (again.memory_id, again.duplicates) == (known[0], (known[2],)), "what is the user's is not for this token"


async def test_a_stop_in_good_order_answers_what_was_begun_and_leaves_the_files_whole(rig: StoreRig) -> None:
    await rig.worker()
    operations = [store_operation(f"op{n}", f"lantern number {n}") for n in range(50)]

    async def send(place: int) -> Applied | RemembrancerError:
        try:
            return await rig.gateway.submit(operations[place])
        except RemembrancerError as error:
            return error

    sending = [asyncio.create_task(send(place)) for place in range(50)]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    assert await rig.stop() == EXIT_STOPPED
    assert not rig.paths.database.with_name("memory.db-wal").exists(), "closed, not dropped"
    answers = await asyncio.gather(*sending)
    assert rig.rows("PRAGMA integrity_check") == [("ok",)]
    kept = {memory_id for (memory_id,) in rig.rows("SELECT id FROM memories")}
    assert {result_of(answer).memory_id for answer in answers if isinstance(answer, Applied)} <= kept
    assert all(isinstance(answer, Applied) or answer.retry_possible for answer in answers)
    assert "Traceback" not in rig.log()
    assert "crashed" not in rig.log()


async def test_a_second_store_waits_for_the_first_and_never_shares_its_files(rig: StoreRig) -> None:
    await rig.gateway.store("a lantern")
    second = rig.launch("store")
    await until(lambda: second.spec.incarnation in rig.log())
    await rig.gateway.store("another lantern")
    assert not any(isinstance(message, StoreHealth) for message in rig.launcher.heard)
    await rig.store.kill()
    await rig.launcher.expect(StoreHealth)
    assert len(await rig.gateway.found("lantern")) == 2
    await second.kill()


async def test_a_full_disk_is_told_apart_survived_and_forgotten(rig: StoreRig) -> None:
    """The kernel refuses to let any file of the store grow: as on a full disk, every write fails half-way."""
    worker = await rig.worker()
    first = await rig.gateway.store("the first lantern")
    await rig.gateway.until_embedded()
    process = psutil.Process(rig.store.process.pid)
    unlimited = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, unlimited[1]))
    began_s = (await rig.gateway.describe()).uptime_s
    with pytest.raises(StorageFull, match="room") as caught:
        await rig.gateway.store("no room")
    current, limit = (caught.value.details[name] for name in ("current_size_bytes", "limit_bytes"))
    assert isinstance(current, int)
    assert isinstance(limit, int)
    assert 0 < current < limit < current + 2 * psutil.disk_usage(str(rig.paths.home)).free
    assert caught.value.details.keys() >= {"current_size", "limit"}
    worker.announce()
    assert first in await rig.gateway.found("first lantern", strategy="keyword")
    await rig.gateway.until(lambda now: now.uptime_s > began_s + 2.5)  # rounds of housekeeping, which cannot write
    with pytest.raises(StorageFull):
        await rig.gateway.store("no room yet")
    assert first in await rig.gateway.found("first lantern", strategy="keyword")
    process.rlimit(psutil.RLIMIT_FSIZE, unlimited)
    await rig.gateway.store("there is room again")
    await rig.gateway.until_embedded()
    assert rig.store.process.poll() is None
    assert first in await rig.gateway.found("first lantern", strategy="vector")


@pytest.mark.parametrize(("constant", "value"), [("HOUSEKEEPING_S", 3600.0), ("COUNTED_AT_ONCE_BYTES", 0)])
async def test_the_store_reports_what_it_has_and_what_clients_and_commands_ask_but_for_its_state(
    home: Path, constant: str, value: float
) -> None:
    command = Gateway(home, "command")
    async with store_rig(home, constants={f"{actor.__name__}.{constant}": value}) as rig, command.dealer:
        for asking in (rig.gateway, command):
            before = (await rig.health()).asked
            await asking.describe()
            await asking.submit_batch()
            assert (await rig.health()).asked == before
            await asking.recall("lantern")
            await asking.store("a lantern")
            assert (await rig.health()).asked >= before + 2, "which wakes what rests"
        await until(lambda: rig.health(), lambda health: health.counts is not None and health.counts.total == 1)


async def test_no_content_is_in_the_log(rig: StoreRig) -> None:
    await rig.gateway.store("a very secret lantern")
    await rig.gateway.recall("secret lantern")
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "a very secret lantern", importance=7.0, tags=("secret",)))
    await rig.stop()
    assert "secret" not in rig.log()
    assert SESSION not in rig.log()


async def test_a_batch_goes_to_where_each_memory_is_by_then(rig: StoreRig) -> None:
    before = await rig.gateway.store("was there before", scope="user")
    new = store_operation("new", "a lantern", scope="session")
    other = store_operation("other", "another lantern", project=OTHER_PROJECT)
    new_id, other_id = memory_id_of(new), memory_id_of(other)
    batch = [
        new,
        change_operation("update new", UpdateMemory(new_id, "a candle")),
        change_operation("tag before", TagMemory(before, ("x",))),
        change_operation("to project", PromoteMemory(new_id, "project")),
        other,
        change_operation("to user", PromoteMemory(new_id, "user")),
        change_operation("again to user", PromoteMemory(new_id, "user")),
        change_operation("tag new", TagMemory(new_id, ("y",))),
        change_operation("tag other", TagMemory(other_id, ("z",)), project=OTHER_PROJECT),
        change_operation("tag other from here", TagMemory(other_id, ("z",))),
        change_operation("forget new", ForgetMemory(new_id)),
        change_operation("update forgotten", UpdateMemory(new_id, "x")),
        change_operation("restore new", RestoreMemory(new_id, 1)),
    ]
    refused = {
        "again to user": "invalid_input",
        "tag other from here": "not_found",
        "update forgotten": "invalid_input",
    }
    good = [each for each in batch if each.operation_id not in refused]
    done = await rig.gateway.submit_batch(*batch)
    assert {operation_id: failure.code for operation_id, failure in done.rejected.items()} == refused
    assert done.applied == tuple(each.operation_id for each in good)
    assert (await rig.gateway.submit_batch(*good)).applied == done.applied
    shown = (await rig.gateway.show(new_id, project=OTHER_PROJECT, session_id=OTHER_SESSION)).memory
    assert (shown.scope, shown.content, shown.tags, shown.version) == ("user", "a lantern", (), 7)
    since = ["promoted", "tagged", "forgotten", "restored"]
    assert [entry.change for entry in shown.history] == since, "from when it was the user's"
    own = (await rig.gateway.show(new_id)).memory
    assert [entry.change for entry in own.history] == ["stored", "updated", "promoted", *since]
    assert (await rig.gateway.show(before)).memory.tags == ("x",)
    assert (await rig.gateway.show(other_id, project=OTHER_PROJECT)).memory.tags == ("z",)


async def test_a_pair_that_is_found_while_a_session_is_queued_is_told_to_it_later(rig: StoreRig) -> None:
    await rig.worker()
    store = rig.gateway
    mondays = await store.store("the pool is shut on Mondays", occurred_at=time.time() - 5 * DAY_S)
    fridays = await store.store("the pool is shut on Fridays now, not on Mondays")
    await until(lambda: store.recall("bread"), lambda found: found.near_waits)
    await store.submit_batch(store_operation("queued", "bread is baked at four", requested_at=time.time()))
    (near,) = (await store.ask(TakeNear(PROJECT, SESSION))).near
    assert (near.memory_id, near.replaced_by) == (mondays, fridays)


async def test_vectors_of_the_old_text_that_come_late_are_neither_kept_nor_reported(rig: StoreRig) -> None:
    worker = await rig.worker(holds=True)
    memory_id = await rig.gateway.store("a brass lantern")
    await until(lambda: worker.jobs)
    waiting = asyncio.create_task(rig.gateway.embedding_of(memory_id))
    await rig.gateway.change(UpdateMemory(memory_id, "seven green bottles"))
    worker.answer(worker.jobs[:1])
    await until(lambda: len(worker.jobs) == 2)
    assert worker.jobs[1].text == "seven green bottles"
    assert not waiting.done()
    assert not (await rig.gateway.show(memory_id)).embedded
    worker.answer(worker.jobs[1:])
    assert (await waiting).embedded
    assert (await rig.gateway.found("seven green bottles", strategy="vector")) == [memory_id]
    (found,) = (await rig.gateway.recall("a brass lantern", strategy="vector")).memories
    assert found.scores.shares.get("meaning", 0.0) < 1.0, "it adds some four points where it says the same"


NAME = "p_0123456789ab"


class WatchedRecords(Records):
    """Notes which operations were committed together."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(SqliteFile(path, MEMORY), name, lambda: REQUESTED_AT)
        self.groups: list[list[str]] = []
        self.fault: Exception | None = None

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        self.groups.append([operation.operation_id for operation in operations])
        if self.fault is not None:
            raise self.fault
        return apply(self, operations)


@asynccontextmanager
async def writing(path: Path, *names: str) -> AsyncIterator[tuple[Committer, list[WatchedRecords]]]:
    committer = Committer()
    files = [WatchedRecords(path / name / "memory.db", name) for name in names or (NAME,)]
    try:
        yield committer, files
    finally:
        await asyncio.to_thread(committer.close)
        for records in files:
            records.close()


async def held(committer: Committer) -> threading.Event:
    """The writer thread is held until this is set, so that others line up behind it."""
    begun, let_go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert let_go.wait(PATIENCE_S)

    committer.run(NAME, work)
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    return let_go


async def test_operations_that_wait_together_are_committed_together_and_in_order(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        let_go = await held(committer)
        futures = [committer.submit(records, store_operation(f"op{n}", f"text {n}")) for n in range(20)]
        let_go.set()
        outcomes = [await future for future in futures]
        assert records.groups == [[f"op{n}" for n in range(20)]]
        assert [each.operation_id for each in outcomes if isinstance(each, Applied)] == records.groups[0]
        ids = [memory_id_of(store_operation(name, "")) for name in records.groups[0]]
        assert [records.number_of(each) for each in ids] == list(range(1, 21))


async def test_a_file_that_is_held_holds_no_other(tmp_path: Path) -> None:
    async with writing(tmp_path, NAME, "b") as (committer, [one, two]):
        let_go = await held(committer)
        places = [one, one, two, one]
        futures = [committer.submit(each, store_operation(f"op{n}", f"text {n}")) for n, each in enumerate(places)]
        assert isinstance((await futures[2]), Applied)
        assert await committer.run("b", lambda: "ran") == "ran"
        assert [future.done() for future in futures] == [False, False, True, False]
        let_go.set()
        for future in futures:
            await future
        assert (one.groups, two.groups) == ([["op0", "op1", "op3"]], [["op2"]])


async def test_a_fault_in_the_records_is_an_answer_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        records.fault = RuntimeError("a fault in the records")
        futures = [committer.submit(records, store_operation(name, "x")) for name in ("a", "b")]
        assert [type(await each) for each in futures] == [InternalError, InternalError]
        with pytest.raises(ZeroDivisionError):
            await committer.run(NAME, lambda: 1 // 0)
        records.fault = None
        assert isinstance((await committer.submit(records, store_operation("a", "x"))), Applied)


async def test_closing_finishes_what_was_submitted_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async with writing(tmp_path) as (committer, [records]):
        let_go = await held(committer)
        futures = [committer.submit(records, store_operation(f"op{n}", f"text {n}")) for n in range(5)]
        ran = committer.run(NAME, lambda: "ran")
        closing = asyncio.create_task(asyncio.to_thread(committer.close))
        let_go.set()
        await closing
        assert all([isinstance((await future), Applied) for future in futures])
        assert await ran == "ran"
        with pytest.raises(MemoryUnavailable):
            committer.submit(records, store_operation("late", "x"))
        with anyio.fail_after(PATIENCE_S), pytest.raises(MemoryUnavailable):
            await committer.run(NAME, lambda: "late")
        await asyncio.to_thread(committer.close)
