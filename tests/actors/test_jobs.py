"""A real store and scripted consolidators: jobs are found, handed out, passed on, and end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from remembrancer.protocol.consolidation import (
    AwaitJob,
    ConsolidatedMemory,
    Job,
    JobSort,
    Maintained,
    NotePresence,
    Promotable,
    PromoteAtOnce,
    ReadMemories,
    Reflect,
    Reflected,
    SessionEnded,
)
from remembrancer.protocol.errors import ConsolidatorUnavailable, InvalidInput
from remembrancer.protocol.reads import NoteAccess
from remembrancer.protocol.runs import ApplyRun, CloseSession
from remembrancer.protocol.session_life import EndSession, SessionEntry, StartSession
from remembrancer.protocol.writes import Operation, ProjectRef, UpdateMemory
from tests.actors.store_process import Gateway, StoreRig, store_rig
from tests.operations import OTHER_SESSION, PROJECT, SESSION, change_operation
from tests.patience import until

REFLECT = Reflect(PROJECT, SESSION, SESSION, operation_id="reflect-1")
REFLECTED = Reflected((ConsolidatedMemory("m", "c", "semantic", "fact", "session", ("a", "b")),), analyzed=2)
WAIT_S = 15.0
LOOKS_OFTEN = {"remembrancer.actors.store.job_finder.LOOK_S": 0.1}


class Consolidator(Gateway):
    """Does what a test says, on the real socket of a real store."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "consolidator")

    async def job(
        self, sort: JobSort = "session", done: Job | None = None, outcome: Reflected | Maintained | None = None
    ) -> Job:
        """The next job of a sort, which comes within some seconds. `done`: the one before has been carried out."""

        async def handed_out() -> tuple[Job, ...]:
            return await self.ask(AwaitJob(sort, done, outcome), WAIT_S)

        (job,) = await until(handed_out)
        assert isinstance(job, Job)
        return job

    async def no_job(
        self, sort: JobSort = "session", done: Job | None = None, outcome: Reflected | Maintained | None = None
    ) -> None:
        """There is nothing to do now: not even when the store, which looks often, has looked once more."""
        assert await self.ask(AwaitJob(sort, done, outcome), timeout_s=1.0) == ()

    async def close_session(self, job: Job) -> None:
        """Deal with the end of a session, as briefly as can be."""
        assert isinstance(job.work, SessionEnded)
        assert job.project is not None
        session = job.work.session
        assert session.ended_at is not None
        edit = CloseSession(session.session_id, session.ending or "completed", session.ended_at)
        run = ApplyRun(f"run-{session.session_id}-{session.ended_at}", "project", "session_end", "promote", (edit,))
        await self.submit(Operation(run.run_id, job.project, "", time.time(), run))

    async def __aenter__(self) -> Consolidator:
        await self.dealer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.dealer.aclose()


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, constants=LOOKS_OFTEN) as rig:
        yield rig


async def end_session(rig: StoreRig, session_id: str = SESSION, *, project: ProjectRef = PROJECT) -> None:
    await rig.gateway.store(f"Something of {session_id}", session_id=session_id, project=project)
    for name, change in (("start", StartSession(session_id)), ("end", EndSession(session_id))):
        await rig.gateway.submit(change_operation(f"{name} {session_id} {project.id}", change, project=project))


async def restart_with(rig: StoreRig, **settings: object) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, **settings)
    await rig.restart()


def session_of(job: Job) -> SessionEntry:
    assert isinstance(job.work, SessionEnded)
    return job.work.session


async def test_a_consolidator_that_dies_takes_nothing_from_the_next_which_was_heard_of_before(rig: StoreRig) -> None:
    await end_session(rig)
    async with Consolidator(rig.home) as first, Consolidator(rig.home) as second:
        await first.job()
        job = await second.job()
        await second.close_session(job)
        await second.no_job(done=job)


async def test_a_job_that_consolidators_die_of_starts_no_more_of_them_and_is_still_handed_out(home: Path) -> None:
    modules = ("job_finder", "job_handlers")
    at_once = {f"remembrancer.actors.store.{module}.RETRY_S": (0.0, 0.0) for module in modules}
    async with store_rig(home, constants={**LOOKS_OFTEN, **at_once}) as rig:
        await end_session(rig)
        for has_work in (True, False, False):
            async with Consolidator(rig.home) as dying:
                await dying.job()
            assert (await rig.health()).has_jobs is has_work


async def test_a_job_pauses_also_while_long_work_gives_way_to_the_embedding_of_a_backlog(home: Path) -> None:
    modules = {"job_finder.RETRY_S": (60.0,), "job_handlers.BACKLOG": -1}
    constants = {f"remembrancer.actors.store.{name}": value for name, value in modules.items()}
    async with store_rig(home, constants={**LOOKS_OFTEN, **constants}) as rig, Consolidator(rig.home) as consolidator:
        await rig.worker()
        await end_session(rig)
        await consolidator.job()
        await consolidator.no_job("long")
        await consolidator.no_job()


async def test_a_consolidator_beside_another_is_kept_waiting_like_it(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as first, Consolidator(rig.home) as second:
        waiting = asyncio.create_task(first.ask(AwaitJob("session"), timeout_s=30.0))
        await asyncio.sleep(0)
        await first.ask(ReadMemories(PROJECT))  # it was sent later, so that the store has both
        await second.no_job()
        assert not waiting.done()
        waiting.cancel()


async def test_a_session_that_is_left_without_a_word_is_abandoned(rig: StoreRig) -> None:
    await restart_with(rig, session_grace_s=1.0)
    await rig.gateway.store("Something")
    await rig.gateway.change(StartSession(SESSION))
    rig.gateway.dealer.send(NotePresence(((PROJECT, SESSION),)))
    async with Consolidator(rig.home) as consolidator:
        session = session_of(await consolidator.job())
        assert (session.session_id, session.ending) == (SESSION, "abandoned")


async def test_a_strong_memory_of_a_running_session_is_offered_once_at_each_of_its_versions(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as consolidator:
        memory_id = await rig.gateway.store("Never deploy on Fridays", scope="session", importance=1.0, confidence=0.9)
        await rig.gateway.store("Lunch was good", scope="session", importance=0.2)
        job = await consolidator.job()
        assert (job.project, job.work) == (PROJECT, PromoteAtOnce((Promotable(memory_id, 1, 0),)))
        await consolidator.no_job(done=job)
        await rig.gateway.change(UpdateMemory(memory_id, confidence=1.0))
        assert (await consolidator.job()).work == PromoteAtOnce((Promotable(memory_id, 2, 1),))


async def test_a_request_is_answered_by_the_consolidator_and_the_same_one_is_the_same_job(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as consolidator:
        asked = [asyncio.create_task(rig.gateway.ask(REFLECT)) for _ in range(2)]
        job = await consolidator.job("asked")
        assert job.work == REFLECT
        await consolidator.no_job("asked", job, REFLECTED)
        assert [await each for each in asked] == [REFLECTED] * 2


async def test_a_request_outlives_the_consolidator_that_had_it(rig: StoreRig) -> None:
    asked = asyncio.create_task(rig.gateway.ask(REFLECT))
    async with Consolidator(rig.home) as first:
        await first.job("asked")
    async with Consolidator(rig.home) as second:
        job = await second.job("asked")
        await second.no_job("asked", job, REFLECTED)
        assert await asked == REFLECTED


async def test_without_a_consolidator_by_the_settings_requests_are_refused_at_once_and_jobs_wait(rig: StoreRig) -> None:
    await restart_with(rig, consolidator=False)
    await end_session(rig)
    with pytest.raises(ConsolidatorUnavailable, match="REMEMBRANCER_CONSOLIDATOR=1"):
        await rig.gateway.ask(REFLECT)
    await restart_with(rig, consolidator=True)
    async with Consolidator(rig.home) as consolidator:
        await consolidator.job()


async def test_a_session_cannot_have_anothers_memories_consolidated(rig: StoreRig) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await rig.gateway.ask(Reflect(PROJECT, SESSION, OTHER_SESSION))
    assert refusal.value.field == "session_id"


async def test_a_store_that_stops_lets_the_consolidator_go(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as consolidator:
        await consolidator.ask(ReadMemories(PROJECT))
        waiting = asyncio.create_task(consolidator.ask(AwaitJob("long")))
        await asyncio.sleep(0)
        await consolidator.ask(ReadMemories(PROJECT))  # it was sent later, so that the store has both
        assert await rig.stop() == 0
        assert await waiting == ()


async def test_accesses_are_counted_whoever_saw_it_and_uses_by_the_sessions_that_used_it(rig: StoreRig) -> None:
    memory_id = await rig.gateway.store("The cache lives in Redis")
    for session_id in (SESSION, OTHER_SESSION, OTHER_SESSION):
        await rig.gateway.ask(NoteAccess(PROJECT, session_id, (memory_id,)))
    await rig.gateway.ask(NoteAccess(PROJECT, OTHER_SESSION, (), (memory_id,)))
    async with Consolidator(rig.home) as consolidator:

        async def counted() -> list[tuple[int, int]]:
            read = await consolidator.ask(ReadMemories(PROJECT))
            return [(each.access_count, each.sessions_used) for each in read.memories if each.access_count == 3]

        assert await until(counted) == [(3, 1)]
