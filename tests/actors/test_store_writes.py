"""The store as a process: a write is applied exactly once, in order, and is there whatever happens to the store."""

from __future__ import annotations

import asyncio
from contextlib import closing

import psutil
import pytest

from remembrancer.actors.shell import EXIT_STOPPED
from remembrancer.protocol.control import Ready
from remembrancer.protocol.errors import InvalidInput, RemembrancerError, StorageFull
from remembrancer.protocol.writes import Applied, ProjectRef
from tests.actors.store_process import StoreRig
from tests.operations import PROJECT, SESSION, result_of, store_operation
from tests.patience import until
from tests.spaces import connect_space


def stored_ids(rig: StoreRig) -> list[str]:
    """The ids in the project's file, on disk. Checks the file's integrity."""
    with closing(connect_space(rig.paths, PROJECT.id)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT id FROM memories ORDER BY number")]


async def test_a_refused_write_says_why_and_stores_nothing(rig: StoreRig) -> None:
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "x", importance=7.0))
    with pytest.raises(InvalidInput, match="12 hexadecimal digits"):
        await rig.gateway.submit(store_operation("bad", "x", project=ProjectRef("../../etc", "/x")))
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "x", project=ProjectRef("user", "/x")))
    assert await rig.gateway.found("x", project=ProjectRef("../user", "/x")) == []
    assert stored_ids(rig) == []
    assert list(rig.home.parent.glob(f"{rig.home.name}/**/*.db")) == [rig.paths.database], "no other was made"


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
    answers = await asyncio.gather(*sending)
    kept = stored_ids(rig)
    assert {result_of(answer).memory_id for answer in answers if isinstance(answer, Applied)} <= set(kept)
    assert all(isinstance(answer, Applied) or answer.retry_possible for answer in answers)
    assert "Traceback" not in rig.log()
    assert "crashed" not in rig.log()
    assert not rig.paths.database.with_name("memory.db-wal").exists(), "closed, not dropped"


async def test_a_second_store_waits_for_the_first_and_never_shares_its_files(rig: StoreRig) -> None:
    await rig.gateway.store("a lantern")
    second = rig.launch("store")
    await until(lambda: second.spec.incarnation in rig.log())
    await rig.gateway.store("another lantern")
    assert not any(isinstance(message, Ready) for message in rig.launcher.heard)
    await rig.store.kill()
    await rig.launcher.expect(Ready)
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


async def test_no_content_is_in_the_log(rig: StoreRig) -> None:
    await rig.gateway.store("a very secret lantern")
    await rig.gateway.recall("secret lantern")
    with pytest.raises(InvalidInput):
        await rig.gateway.submit(store_operation("bad", "a very secret lantern", importance=7.0, tags=("secret",)))
    await rig.stop()
    assert "secret" not in rig.log()
    assert SESSION not in rig.log()
