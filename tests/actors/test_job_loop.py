"""The consolidator's loop and its link, in process, against a real store that comes and goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from remembrancer.actors.consolidator.actor import CarryOut, JobLoop
from remembrancer.actors.consolidator.store_connection import Clock, StoreConnection, all_memories
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Job, Maintain, Maintained, ReadMemories, Reflect, Reflected
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.writes import UpdateMemory
from tests.actors.store_process import StoreRig
from tests.operations import PROJECT, SESSION, change_operation
from tests.patience import PATIENCE_S, until

REFLECT = Reflect(PROJECT, SESSION, SESSION, operation_id="reflect-1")


@asynccontextmanager
async def consolidating(rig: StoreRig, carry_out: CarryOut) -> AsyncIterator[JobLoop]:
    """A consolidator that carries out jobs so."""
    link = StoreConnection(rig.paths.store_endpoint, Speaker("consolidator", new_ulid()))
    loop = JobLoop(link, Settings(), time.time, carry_out)
    async with link, anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        yield loop
        tasks.cancel_scope.cancel()


async def test_a_reflection_does_not_wait_for_the_work_on_a_whole_file(rig: StoreRig) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job, store: StoreConnection, settings: Settings, clock: Clock) -> Reflected | Maintained:
        if isinstance(job.work, Reflect):
            found = await all_memories(store, ReadMemories(job.project, limit=1))
            return Reflected(analyzed=len(found))
        begun.set()
        await go_on.wait()
        return Maintained("user")

    async with consolidating(rig, work) as loop:
        maintained = asyncio.create_task(rig.gateway.ask(Maintain(None)))
        with anyio.fail_after(PATIENCE_S):
            await begun.wait()
        assert await rig.gateway.ask(REFLECT) == Reflected(analyzed=0)
        assert loop.health().job == "maintenance of the user"
        go_on.set()
        assert await maintained == Maintained("user")


async def test_a_handler_does_not_notice_that_the_store_is_started_again(rig: StoreRig) -> None:
    memory_id = await rig.gateway.store("Something")
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(job: Job, store: StoreConnection, settings: Settings, clock: Clock) -> Maintained:
        begun.set()
        await go_on.wait()
        await store.submit(change_operation("by the consolidator", UpdateMemory(memory_id, importance=0.9)))
        (memory,) = (await store.ask(ReadMemories(PROJECT))).memories
        assert memory.importance == 0.9
        done.set()
        return Maintained("user")

    async with consolidating(rig, work) as loop:
        asked = asyncio.create_task(rig.gateway.ask(Maintain(None)))
        with anyio.fail_after(PATIENCE_S):
            await begun.wait()
        await rig.store.kill()
        go_on.set()
        await asyncio.gather(asked, return_exceptions=True)
        await rig.start()
        with anyio.fail_after(PATIENCE_S):
            await done.wait()
        await until(lambda: loop.health().finished == 1)
