"""Three hosts of a shared lane are upgraded one after the other: who has the older release waits, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from remembrancer.actors.store.shared_lane import FORMAT
from remembrancer.protocol.errors import Failure, SchemaTooNew
from remembrancer.protocol.reads import Recall, Recalled
from remembrancer.protocol.sharing import DescribeLanes, LaneState
from remembrancer.protocol.writes import Applied, Operation, Submit
from tests.faults.shared_soak import Host, SharedSoak, World
from tests.lane_dump import dump_of
from tests.operations import SESSION, store_operation
from tests.patience import until


@pytest.fixture
async def world(home: Path) -> AsyncIterator[World]:
    """Three hosts of the older release, and a server."""
    world = World(home, SharedSoak(0), 2.0, hosts=3, servers=1)
    for host in world.hosts:
        host.newest_format = FORMAT - 1
    async with world.running():
        yield world


def storing(host: Host, name: str) -> Operation:
    return store_operation(name, f"the lantern of {name}", project=host.project, requested_at=host.time())


async def state_of(host: Host) -> LaneState:
    described = await host.answer(DescribeLanes())
    assert not isinstance(described, Failure)
    (state,) = described
    return state


async def contents(host: Host) -> set[str]:
    found = await host.answer(Recall(SESSION, project=host.project, query="lantern", strategy="keyword"))
    assert isinstance(found, Recalled)
    return {memory.content for memory in found.memories}


async def upgrade(host: Host) -> None:
    await host.kill()
    host.newest_format = FORMAT
    await host.start()


async def test_an_older_release_waits_for_its_upgrade_and_has_everything_then(world: World) -> None:
    first, *others = world.hosts
    assert isinstance(await first.answer(Submit(storing(first, "before"))), Applied)
    await world.until_alike()
    await upgrade(first)
    assert isinstance(await first.answer(Submit(storing(first, "after"))), Applied)
    known = {"the lantern of before"}
    for number, host in enumerate(others):
        state = await until(partial(state_of, host), lambda state: state.code)
        assert (state.code, "newer release" in (state.problem or "")) == (SchemaTooNew.code, True)
        assert await contents(host) == known, "what was before can be read"
        waiting = Submit(storing(host, f"waits{number}"))
        refused = await host.answer(waiting)
        assert isinstance(refused, Failure)
        assert refused.code == SchemaTooNew.code
        await upgrade(host)
        assert isinstance(await host.answer(waiting), Applied), "the write queue sends it again"
    await world.until_alike()
    everything = known | {f"the lantern of {each}" for each in ("after", "waits0", "waits1")}
    assert [await contents(host) for host in world.hosts] == [everything] * 3
    await asyncio.gather(*(host.kill() for host in world.hosts))
    dumps = [dump_of(host.database, world.lane) for host in world.hosts]
    assert dumps[0] == dumps[1] == dumps[2]
