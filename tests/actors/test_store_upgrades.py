"""A store that meets files of an earlier release, whose upgrade takes long: here for as long as another holds them."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.records.schema import SCHEMA_VERSION, version_of
from remembrancer.actors.store.upgrades import Upgrades
from remembrancer.protocol.control import Ping, Pong, StoreHealth
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.writes import BatchApplied
from tests.actors.store_process import START_S, StoreRig, store_rig
from tests.operations import OTHER_PROJECT, PROJECT, store_operation

pytestmark = pytest.mark.anyio
RELEASED = Path(__file__).parents[1] / "contracts" / "released" / "version_3.db.gz"


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, started=False) as made:
        yield made


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A file of an earlier release that nobody else can write to for a while."""
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress(RELEASED.read_bytes()))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        yield


async def upgrading(rig: StoreRig) -> tuple[str, ...]:
    """What the store says in answer to a heartbeat."""
    await rig.launcher.tell(rig.store, Ping())
    health = (await rig.launcher.expect(Pong)).health
    assert isinstance(health, StoreHealth)
    return health.upgrading


async def test_a_long_upgrade_of_the_users_file_is_not_taken_for_a_start_that_hangs(rig: StoreRig) -> None:
    path = rig.paths.user_database
    with held(path):
        await rig.start()
        assert await upgrading(rig) == ("user",)
    await rig.gateway.until(lambda now: now.counts.total == 3)
    assert await upgrading(rig) == ()
    assert version_of(path) == SCHEMA_VERSION
    assert "records upgraded" in rig.log()


async def test_a_stop_in_the_middle_of_an_upgrade_is_obeyed_and_leaves_the_file_as_it_was(rig: StoreRig) -> None:
    path = rig.paths.user_database
    with held(path):
        await rig.start()
        assert await rig.stop() == 0
    assert version_of(path) == 3
    await rig.start()
    await rig.gateway.until(lambda now: now.counts.total == 3)


async def until_upgraded(rig: StoreRig) -> None:
    """Wait until no file is being upgraded."""
    with anyio.fail_after(START_S):
        while await upgrading(rig):  # noqa: ASYNC110 - it tells nobody
            await anyio.sleep(0.02)


async def test_what_needs_a_project_under_upgrade_is_refused_and_all_else_goes_on(rig: StoreRig) -> None:
    await rig.start()
    here = store_operation("here", "the lantern is out")
    with held(rig.paths.project_database(PROJECT.id)):
        for ask in (rig.gateway.submit(here), rig.gateway.recall("lantern"), rig.gateway.describe()):
            with pytest.raises(MemoryUnavailable, match="being upgraded") as refused:
                await ask
            assert refused.value.is_of_one_file
        await rig.gateway.submit(store_operation("elsewhere", "the lantern is lit", project=OTHER_PROJECT))
        await rig.gateway.submit(store_operation("user", "the lantern is brass", scope="user"))
        assert await upgrading(rig) == (PROJECT.id,)
    await until_upgraded(rig)
    await rig.gateway.submit(here)
    await rig.gateway.until(lambda now: now.counts.total == 5)


async def test_in_a_batch_a_project_under_upgrade_holds_up_its_own_operations_alone(rig: StoreRig) -> None:
    await rig.start()
    operations = (
        store_operation("first", "the lantern is out"),
        store_operation("elsewhere", "the lantern is lit", project=OTHER_PROJECT),
        store_operation("second", "the lantern is brass", scope="user"),
        store_operation("elsewhere too", "the lantern hangs", project=OTHER_PROJECT, scope="user"),
    )
    with held(rig.paths.project_database(PROJECT.id)):
        answer = await rig.gateway.submit_batch(*operations)
        assert answer == BatchApplied(("elsewhere", "elsewhere too"), upgrading=(PROJECT.id,))
    await until_upgraded(rig)
    assert (await rig.gateway.submit_batch(*operations)).applied == tuple(each.operation_id for each in operations)


async def test_an_upgrade_that_is_under_way_is_joined(tmp_path: Path) -> None:
    path = tmp_path / "home" / "memory.db"
    upgrades = Upgrades()
    async with anyio.create_task_group() as tasks:
        with held(path):
            for _ in range(2):
                tasks.start_soon(upgrades.upgrade, path, "p_0")
            await anyio.wait_all_tasks_blocked()
            assert upgrades.under_way == ("p_0",)
    assert upgrades.under_way == ()
    assert version_of(path) == SCHEMA_VERSION
