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
from remembrancer.protocol.control import Ping, Pong, StoreVitals
from tests.actors.store_process import StoreRig, store_rig
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
    vitals = (await rig.launcher.expect(Pong)).vitals
    assert isinstance(vitals, StoreVitals)
    return vitals.upgrading


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


async def test_a_projects_upgrade_holds_up_nobody_elses_writes(rig: StoreRig) -> None:
    await rig.start()
    async with anyio.create_task_group() as tasks:
        with held(rig.paths.project_database(PROJECT.id)):
            tasks.start_soon(rig.gateway.submit, store_operation("here", "the lantern is out"))
            await rig.gateway.submit(store_operation("elsewhere", "the lantern is lit", project=OTHER_PROJECT))
            assert await upgrading(rig) == (PROJECT.id,)
    await rig.gateway.until(lambda now: now.counts.total == 4)
    assert await upgrading(rig) == ()
