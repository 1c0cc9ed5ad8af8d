"""The work in the background of a shared lane: who wrote last does it, and the next one knows what was done."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from remembrancer.actors.store.job_finder import Attempts, JobFinder
from remembrancer.actors.store.readers import Readers
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Job, Maintain
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.runs import ApplyRun, NoteMaintenance, ReviseMemory, UndoneResult, UndoRun
from remembrancer.protocol.sharing import ShareProject
from remembrancer.protocol.writes import Applied, EraseMemory, Operation, ProjectRef, Scope
from tests.actors.test_shared_lanes import LANE, Host
from tests.contracts.records_factories import is_erased
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.lane_dump import dump_of
from tests.operations import OTHER_PROJECT, PROJECT
from tests.patience import until


class Worker(Host):
    """A host that looks for work, and has a consolidator."""

    finder: JobFinder
    attempts: Attempts

    def start(self) -> None:
        super().start()
        self.attempts = Attempts()
        self.finder = JobFinder(
            self.files,
            Settings(),
            self.apply,
            Readers(),
            lambda: None,
            self.count_accesses,
            self.lanes,
        )

    async def apply(self, operation: Operation) -> Applied:
        reply = await self.submit(operation)
        if isinstance(reply, RemembrancerError):
            raise reply
        return reply

    async def count_accesses(self) -> None:
        """Nothing was shown here."""

    async def job(self) -> Job | None:
        """The next job on the whole lane, after a look."""
        await self.finder.look()
        return self.attempts.take(self.finder.due, "long", time.monotonic())

    async def finish(self, job: Job) -> None:
        """The consolidator has carried out a job."""
        assert job.project is not None
        run = ApplyRun("run:done", "project", "maintenance", "decay_archive", (NoteMaintenance(),))
        await self.apply(Operation("done", job.project, "", time.time(), run))
        self.attempts.finish(job, time.monotonic())

    def versions(self, memory_id: str) -> list[str]:
        """The changes of a memory of the lane."""
        memory = self.records("project").portable(memory_id, None)
        return [] if memory is None else [entry.change for entry in memory.history]

    def dump(self) -> list[str]:
        return dump_of(self.paths.database)


WorkerT = TypeVar("WorkerT", bound=Worker)


class Server(InProcessServer):
    """A server of lanes whose clock a test sets."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__(lambda: time.time() + self.ahead_s)


class OwnWorker(Worker):
    """One of a user's machines, which share his own scope."""

    is_users = True

    async def share(self, *, dry_run: bool = False) -> object:
        await self.files.project(self.project)
        return await self.ask(ShareProject(None, LANE, dry_run))


@asynccontextmanager
async def two(kind: type[WorkerT], directory: Path, scope: Scope) -> AsyncIterator[list[WorkerT]]:
    """Two hosts of a lane with a memory that is years old: it was never maintained."""
    server = Server()
    await InProcessJournal(server).create(LANE)
    made = [kind(directory / name, server, of) for name, of in (("here", PROJECT), ("there", OTHER_PROJECT))]
    for worker in made:
        await worker.share()
    await made[0].store("lantern", "the lantern burns oil", scope)
    await until(lambda: made[1].finds(scope, "lantern"))
    yield made
    for worker in made:
        await worker.aclose()


@pytest.fixture
async def own_workers(tmp_path: Path) -> AsyncIterator[list[OwnWorker]]:
    async with two(OwnWorker, tmp_path, "user") as made:
        yield made


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[Worker]]:
    async with two(Worker, tmp_path, "project") as made:
        yield made


async def test_who_wrote_last_works_in_a_lane_and_the_others_rest(workers: list[Worker]) -> None:
    here, there = workers
    job = await here.job()
    assert job is not None
    assert job.lane_time == here.lanes.time_of(LANE)
    assert job.work == Maintain(ProjectRef(LANE, PROJECT.path))
    for _ in range(2):
        assert await there.job() is None
    await here.finish(job)
    assert await here.job() is None
    await until(lambda: here.dump() == there.dump())
    assert await there.job() is None, "it knows that this is done"


async def test_a_run_in_a_lane_is_undone_from_any_host_and_leaves_nothing_of_what_is_erased(
    workers: list[Worker],
) -> None:
    here, there = workers
    memory_id = await here.store("torch", "the torch burns pitch")
    archiving = ReviseMemory(memory_id, "archived", expected_version=1, status="archived", reason="weak")
    run = ApplyRun("run:weak", "project", "maintenance", "decay_archive", (archiving,))
    in_lane = Operation("weak", ProjectRef(LANE, ""), "", time.time(), run)
    assert isinstance(await here.submit(in_lane), Applied)
    again = msgspec.structs.replace(in_lane, operation_id="weak too")
    assert isinstance(await here.submit(again), Applied), "what was planned on an old state is passed over"
    await until(lambda: len(there.versions(memory_id)) == 2)
    undone = await there.done("undo", UndoRun("run:weak", "project"))
    assert isinstance(undone.result, UndoneResult)
    assert undone.result.memories == (memory_id,)
    assert there.versions(memory_id) == ["stored", "archived", "undone"]
    await until(lambda: here.dump() == there.dump())
    await there.done("erase", EraseMemory(memory_id))
    lane = here.lanes._open[LANE].lane
    await until(lambda: is_erased(lane, memory_id))
    assert here.server.lanes[LANE].entries == {}, "the entries of the runs too"


async def test_who_asks_for_work_in_a_lane_does_it_by_the_time_of_the_lane(own_workers: list[OwnWorker]) -> None:
    _, there = own_workers
    assert there.finder.lane_time(None) == there.finder.lane_time(ProjectRef(LANE, "")) == there.lanes.time_of(LANE)
    assert there.finder.lane_time(OTHER_PROJECT) is None
