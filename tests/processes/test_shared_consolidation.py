"""Consolidators at work on what hosts share, over a real server: a host that is killed or held up in the middle of its
work leaves the lane as if one alone had worked there."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.consolidator.actor import HANDLERS, JobLoop
from remembrancer.actors.consolidator.maintenance import maintain
from remembrancer.actors.consolidator.store_connection import Clock, StoreConnection
from remembrancer.actors.store import job_finder, shared_lanes
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Maintain, Maintained, MaintainJob
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.writes import Applied, BatchApplied, Operation, ProjectRef, Submit, SubmitBatch
from tests.faults import shared_soak
from tests.faults.shared_soak import Host, SharedSoak, World
from tests.lane_dump import dump_of
from tests.operations import SESSION, store_operation
from tests.patience import PATIENCE_S, PATIENT_JOURNAL

PAIRS = 110
"""Memories that are there twice: the work on them has two parts."""
IN_A_PART = 100
WEEK_AGO_S = 8 * 86400.0
LEASE_S = 1.0
Meanwhile = Callable[[], Awaitable[None]]


def run_store(ahead_s: float, *given: int) -> None:
    """Run a store whose leases are short. That of the first host does not know when one has ended."""
    shared_lanes.LEASE_S = LEASE_S  # type: ignore[misc]
    job_finder.RENEW_S = LEASE_S / 4 if ahead_s else PATIENCE_S  # type: ignore[misc]
    job_finder.LOOK_S = 0.1  # type: ignore[misc]
    for name, value in PATIENT_JOURNAL.items():  # a job that failed for that rests for longer than a test waits
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    shared_soak.run_store(ahead_s, *given)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_soak, "run_store", run_store)


class Consolidator:
    """A consolidator of a host. What happens `meanwhile` does so before the second part of its work is submitted."""

    def __init__(self, host: Host, meanwhile: Meanwhile | None = None) -> None:
        self.host = host
        self.meanwhile = meanwhile
        self.done = asyncio.Event()
        self.results: list[Maintained] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        speaker = shared_soak._Ahead("consolidator", new_ulid(), self.host.ahead_s)
        link = _Link(RuntimePaths(self.host.home).store_endpoint, speaker)
        link.of = self
        handlers = {**HANDLERS, MaintainJob: self._maintain}
        async with link, anyio.create_task_group() as tasks:
            loop = JobLoop(link, handlers, Settings(), self.host.time)
            tasks.start_soon(loop.run)
            yield
            tasks.cancel_scope.cancel()

    async def _maintain(
        self, job: MaintainJob, store: StoreConnection, settings: Settings, clock: Clock
    ) -> Maintained | None:
        if job.lane_time is None:
            return None
        result = await maintain(job, store, settings, clock)
        self.results.append(result)
        self.done.set()
        return result


class _Link(StoreConnection):
    of: Consolidator

    async def submit(self, operation: Operation) -> Applied:
        change = operation.change
        if isinstance(change, ApplyRun) and change.part == 1 and self.of.meanwhile is not None:
            meanwhile, self.of.meanwhile = self.of.meanwhile, None
            await meanwhile()
        return await super().submit(operation)


class Idle(World):
    """Two hosts that share a project. No consolidator works there yet."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, SharedSoak(0), 100_000, hosts=2, servers=1, seed=0)

    def _consolidate(self, host: Host) -> None:
        """A test starts them."""


@asynccontextmanager
async def two_hosts(home: Path) -> AsyncIterator[Idle]:
    """Two hosts of a lane that was never maintained, in which everything is said twice."""
    world = Idle(home)
    async with world.running():
        host = world.hosts[0]
        stored = [
            store_operation(
                f"{number}-{name}",
                f"the lantern {number} {text}",
                memory_id=f"mem_{number:05}_{name}",
                project=host.project,
                requested_at=time.time() - WEEK_AGO_S,
            )
            for number in range(PAIRS)
            for name, text in (("one", "burns oil"), ("two", "burns Oil."))
        ]
        async with asyncio.timeout(PATIENCE_S):
            while stored:  # those that were not attempted are sent again
                applied = await host.answer(SubmitBatch(tuple(stored)))
                assert isinstance(applied, BatchApplied)
                assert not applied.rejected, applied.rejected[:1]
                stored = [each for each in stored if each.operation_id not in applied.applied]
        await world.until_alike()
        yield world


def statuses(world: Idle) -> Counter[tuple[str, int]]:
    """How many memories of the lane have a status and so many versions."""
    with world.hosts[1].read_space(world.lane) as file:
        return Counter(file.execute("SELECT status, version FROM memories"))


async def settled(world: Idle) -> None:
    await world.settle()
    first, second = (dump_of(host.database, world.lane) for host in world.hosts)
    assert [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]] == []
    assert len(first) == len(second)


async def test_another_host_goes_on_when_the_one_that_works_is_killed(home: Path) -> None:
    async with two_hosts(home) as world:
        here, there = world.hosts
        killed = asyncio.Event()

        async def kill() -> None:
            await here.kill()
            killed.set()
            await asyncio.Event().wait()

        async with Consolidator(here, kill).running(), asyncio.timeout(PATIENCE_S):
            await killed.wait()
        other = Consolidator(there)
        async with other.running(), asyncio.timeout(PATIENCE_S):
            await other.done.wait()
            asked = await there.answer(Maintain(ProjectRef(world.lane, "")))
        assert isinstance(asked, Maintained), asked
        assert (asked.place, asked.examined, asked.of("duplicates").count) == (world.lane, PAIRS, 0), (
            "whoever asks is answered"
        )
        assert other.results[0].of("duplicates").count == PAIRS - IN_A_PART, "the rest"
        assert statuses(world) == {("active", 1): PAIRS, ("consolidated", 2): PAIRS}
        await here.start()
        await settled(world)


async def test_a_host_that_goes_on_without_its_lease_does_nothing_twice_and_its_work_is_undone_from_another(
    home: Path,
) -> None:
    async with two_hosts(home) as world:
        here, there = world.hosts
        other, is_held_up = Consolidator(there), asyncio.Event()

        async def wait_for_the_other() -> None:
            is_held_up.set()
            await other.done.wait()

        held_up = Consolidator(here, wait_for_the_other)
        async with held_up.running():
            async with asyncio.timeout(PATIENCE_S):
                await is_held_up.wait()
            async with other.running(), asyncio.timeout(PATIENCE_S):
                await held_up.done.wait()
        assert other.results[0].of("duplicates").count == PAIRS - IN_A_PART, (
            "and what both have planned is one operation"
        )
        assert statuses(world) == {("active", 1): PAIRS, ("consolidated", 2): PAIRS}
        (run_id,) = held_up.results[0].run_ids
        undo = Operation("undo", there.project, SESSION, there.time(), UndoRun(run_id, "project"))
        undone = await there.answer(Submit(undo))
        assert isinstance(undone, Applied), undone
        assert statuses(world)["active", 3] == IN_A_PART
        await settled(world)
