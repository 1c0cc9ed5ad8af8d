"""The consolidator's work on a real store, never done twice; and how its jobs are found, handed out and passed on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from remembrancer.actors.consolidator import maintenance
from remembrancer.actors.consolidator.actor import CarryOut, JobLoop, carry_out
from remembrancer.actors.consolidator.derived_memories import name_of
from remembrancer.actors.consolidator.promoting import propose_to_user
from remembrancer.actors.consolidator.store_requests import Clock, all_memories
from remembrancer.config.settings import Settings
from remembrancer.protocol.browsing import FindUndecided
from remembrancer.protocol.consolidation import (
    AwaitJob,
    ConsolidatedMemory,
    Done,
    Job,
    JobSort,
    Maintain,
    Maintained,
    Material,
    NotePresence,
    Promotable,
    PromoteAtOnce,
    ReadMemories,
    Reflect,
    Reflected,
    SessionEnded,
)
from remembrancer.protocol.errors import ConsolidatorUnavailable, InvalidInput, PeerLost
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.kinds import SESSION_RECORD, type_of_kind
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import DescribeSession, NoteAccess, SessionDescription
from remembrancer.protocol.runs import UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Change, ProjectRef, PromoteMemory, Scope, Submit, UpdateMemory
from tests.actors.store_process import Gateway, StoreRig, store_rig
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION
from tests.patience import PATIENCE_S, until
from tests.spaces import connect_space

T = TypeVar("T")
LOOKS_OFTEN = {"remembrancer.actors.store.job_handlers.CHECK_INTERVAL_S": 0.1}
CONVENTION = "every public function of the billing service carries a docstring with its units and errors"
SAME = CONVENTION.replace("carries", "always carries")

OBSERVATIONS = (
    "the checkout test ran into its timeout on the shared runner again",
    "the checkout test ran into its timeout again on the slow shared runner",
    "raising the timeout of the checkout test on the shared runner helped",
    "the checkout test needs forty seconds on the shared runner, near its timeout",
)
STEPS = (
    "How to release: the whole test suite must pass, then the commit gets a tag and the tag is pushed",
    "Release checklist: run the whole test suite, tag the commit, push the tag, write the changelog",
    "1. run the whole test suite 2. tag the commit 3. push the tag, and the version is released",
)


class Workplace(Gateway):
    """Asks a store with an embedder as the gateway does, and reads by a consolidator's link to it."""

    def __init__(self, home: Path, link: StoreClient) -> None:
        super().__init__(home)
        self.home = home
        self.link = link

    async def start(self, session_id: str = SESSION, project: ProjectRef = PROJECT) -> None:
        await self.now(StartSession(session_id), session_id=session_id, project=project)

    async def end(self, session_id: str = SESSION, project: ProjectRef = PROJECT) -> None:
        await self.now(EndSession(session_id), session_id=session_id, project=project)
        await until(partial(self.session, session_id, project), lambda session: session.status != "active")

    async def live(self, session_id: str, project: ProjectRef = PROJECT) -> None:
        await self.start(session_id, project)
        await self.end(session_id, project)

    async def now(self, change: Change, **fields: Any) -> None:
        await self.change(change, requested_at=time.time(), **fields)

    async def note(self, content: str, **fields: Any) -> str:
        fields = {"scope": "session", "kind": "convention", **fields}
        return await self.store(content, type=type_of_kind(fields["kind"]), **fields)

    async def memories(self, project: ProjectRef | None = PROJECT, **fields: Any) -> dict[str, Material]:
        found = await all_memories(self.link, ReadMemories(project, **fields))
        return {memory.id: memory for memory in found if memory.kind != SESSION_RECORD}

    async def statuses(self) -> dict[str, str]:
        return {memory_id: memory.status for memory_id, memory in (await self.memories()).items()}

    async def session(self, session_id: str = SESSION, project: ProjectRef = PROJECT) -> SessionDescription:
        return await self.ask(DescribeSession(project, session_id))

    async def proposals(self, project: ProjectRef = PROJECT) -> dict[str, str]:
        told = await self.ask(FindUndecided(project, SESSION))
        return {each.memory_id: each.reason for each in told.proposals}

    async def observe(self, scope: Scope = "session") -> list[str]:
        return [await self.note(text, kind="observation", scope=scope, importance=0.3) for text in OBSERVATIONS]

    async def reflect(self, name: str = "reflection", **fields: Any) -> Reflected:
        return await self.ask(Reflect(PROJECT, SESSION, name, **fields))

    async def maintain(self, *, dry_run: bool = False) -> Maintained:
        return await self.ask(Maintain(PROJECT, dry_run))


@asynccontextmanager
async def consolidating(
    rig: StoreRig, work: CarryOut = carry_out, **settings: Any
) -> AsyncIterator[tuple[JobLoop, StoreClient]]:
    link = StoreClient(rig.paths.store_endpoint, Speaker("consolidator", new_ulid()))
    loop = JobLoop(link, Settings(**settings), time.time, work)
    async with link, anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run)
        yield loop, link
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def workplace(home: Path, **settings: Any) -> AsyncIterator[Workplace]:
    async with store_rig(home, constants=LOOKS_OFTEN) as rig, consolidating(rig, **settings) as (loop, link):
        await rig.worker()
        async with Workplace(home, link) as place:
            yield place
        assert loop.health().failed == 0, loop.health()


@pytest.fixture
async def place(home: Path) -> AsyncIterator[Workplace]:
    async with workplace(home) as place:
        yield place


async def test_two_projects_that_end_at_once_keep_to_themselves(place: Workplace) -> None:
    for project in (PROJECT, OTHER_PROJECT):
        await place.start(project=project)
    one = await place.note(CONVENTION, importance=0.8, confidence=0.8)
    two = await place.note(SAME, importance=0.8, confidence=0.8, project=OTHER_PROJECT)
    async with anyio.create_task_group() as tasks:
        for project in (PROJECT, OTHER_PROJECT):
            tasks.start_soon(place.end, SESSION, project)
    assert (await place.memories())[one].scope == "project"
    assert (await place.memories(OTHER_PROJECT))[two].scope == "project"
    assert len(await place.memories()) == len(await place.memories(OTHER_PROJECT)) == 1


PREFERENCE = "The user prefers small commits with a reason in each message over a large commit at the end"
DEPLOYS = "Production is deployed on Mondays at 09:30"


async def test_what_two_projects_say_of_the_user_goes_to_him_and_can_be_taken_back(place: Workplace) -> None:
    fields = {"scope": "project", "kind": "preference", "importance": 0.5, "confidence": 0.8}
    one = await place.note(PREFERENCE, **fields)
    await place.live("session:last")
    assert await place.memories(None) == {}, "one project alone has said it"
    assert await place.proposals() == {one: "it is a preference that is not only about this project"}
    two = await place.note(f"{PREFERENCE}!", project=OTHER_PROJECT, **fields)
    await place.live("session:last", OTHER_PROJECT)
    shared = await place.memories(None)
    assert list(shared) == [two]
    assert shared[two].confidence == 0.9
    assert (await place.memories())[one].status == "promoted"
    assert await place.proposals() == await place.proposals(OTHER_PROJECT) == {}
    shown = await place.show(two, project=OTHER_PROJECT)
    assert shown.observed_in == (OTHER_PROJECT.id, PROJECT.id)
    reason = f"the project {name_of(PROJECT)} says the same thing, and it is about the user"
    assert shown.memory.promotion_chain[0].reason == reason

    back = PromoteMemory(two, "project", "not everywhere")
    with pytest.raises(InvalidInput, match=f"came from the project {OTHER_PROJECT.id}"):
        await place.now(back)
    await place.now(back, project=OTHER_PROJECT)
    assert await place.memories(None) == {}
    (again,) = (await place.memories(OTHER_PROJECT)).values()
    assert (again.id, again.scope, again.status) == (two, "project", "active")
    await place.live("session:later", OTHER_PROJECT)
    assert await place.memories(None) == {}, "for good"
    assert any("Kept in the project on" in reason for reason in (await place.show(two, project=OTHER_PROJECT)).reasons)


async def test_what_only_one_project_knows_goes_to_the_user_when_somebody_says_so(place: Workplace) -> None:
    fields = {"scope": "project", "kind": "convention", "importance": 0.9, "confidence": 0.9}
    kept = await place.note(DEPLOYS, **fields)
    taken = await place.note("Commit messages are in the imperative", **fields)
    shown = await place.note("Branches are named after their tickets", **fields)
    for session_id in ("session:a", "session:b", "session:c"):
        await place.ask(NoteAccess(PROJECT, session_id, (kept, taken, shown), (kept, taken)))

    async def are_used() -> bool:
        memories = await place.memories()
        return memories[kept].sessions_used == memories[taken].sessions_used == 3

    await until(are_used)
    await place.live("session:last")
    assert await place.memories(None) == {}
    assert set(await place.proposals()) == {kept, taken}, "to have been shown is no use"
    assert all("it was used in 3 sessions" in reason for reason in (await place.proposals()).values())
    await place.now(PromoteMemory(kept, "project"))
    await place.now(PromoteMemory(taken, "user"))
    assert list(await place.memories(None)) == [taken]
    assert await place.proposals() == {}
    await place.live("session:later")
    assert await place.proposals() == {}


@pytest.mark.parametrize(("sums_up", "status"), [(True, "consolidated"), (False, "active")])
async def test_the_end_of_a_session_sums_up_unless_the_settings_say_no(home: Path, sums_up: bool, status: str) -> None:
    async with workplace(home, consolidation_on_shutdown=sums_up) as place:
        await place.start()
        notes = await place.observe()
        await place.end()
        assert {each for name, each in (await place.statuses()).items() if name in notes} == {status}


async def test_a_reflection_does_what_its_dry_run_said_once_and_can_be_undone(place: Workplace) -> None:
    await place.start()
    notes = await place.observe()
    plan = await place.reflect(dry_run=True)
    assert plan.run_id is None
    assert await place.statuses() == dict.fromkeys(notes, "active")
    (planned,) = plan.memories
    assert set(planned.derived_from) == set(notes)
    done = await place.reflect()
    assert done.run_id is not None
    assert [memory.id for memory in done.memories] == [planned.id]
    assert (done.analyzed, done.skipped) == (len(notes), 0)
    before = await place.memories()
    again = await place.reflect()
    assert (again.memories, again.run_id) == ((), None)
    assert await place.memories() == before
    await place.now(UndoRun(done.run_id, "project"))
    assert await place.statuses() == dict.fromkeys(notes, "active")


async def test_a_theme_of_three_sessions_is_a_procedure_once_and_when_that_is_undone_a_suggestion(
    place: Workplace,
) -> None:
    for number, text in enumerate(STEPS):
        await place.start(f"session:{number}")
        await place.note(text, kind="procedure", scope="project", session_id=f"session:{number}")
    run_ids = []
    for name in ("first", "again"):
        await place.until_embedded()
        done = await place.reflect(name, strategy="extract_patterns")
        run_ids.append(done.run_id)
        (pattern,) = done.patterns
        memories = await place.memories()
        assert len(memories) == len(STEPS) + 1
        made = memories[pattern.memory_id or ""]
        assert (made.kind, made.scope, made.type) == ("procedure", "project", "procedural")
        assert pattern.frequency == 3 or name == "again"
    run_id, _ = run_ids
    assert run_id is not None
    await place.now(UndoRun(run_id, "project"))
    later = await place.reflect("later", strategy="extract_patterns")
    assert (later.run_id, later.skipped, [each.memory_id for each in later.patterns]) == (None, 1, [None])


async def test_maintenance_does_what_its_dry_run_said_and_then_finds_nothing_to_do(place: Workplace) -> None:
    notes = await place.observe("project")
    await place.until_embedded()
    plan = await place.maintain(dry_run=True)
    assert plan.done == {"derived": Done(1)}
    assert await place.statuses() == dict.fromkeys(notes, "active")
    done = await place.maintain()
    (made,) = done.of("derived").ids
    assert await place.statuses() == {**dict.fromkeys(notes, "consolidated"), made: "active"}
    again = await place.maintain()
    assert again == Maintained(PROJECT.id, examined=1)
    assert plan.run_ids == again.run_ids == ()


class Dying(StoreClient):
    """A link whose owner dies after so many operations: the last one is applied, and nobody hears of it."""

    def __init__(self, home: Path, operations: int) -> None:
        super().__init__(RuntimePaths(home).store_endpoint, Speaker("consolidator", new_ulid()))
        self._left = operations

    async def request(self, question: Request[T], timeout_s: float) -> T:
        answer = await super().request(question, timeout_s)
        if isinstance(question, Submit):
            self._left -= 1
            if self._left == 0:
                raise Died
        return answer


class Died(Exception):
    """The consolidator is no more."""


async def test_a_merge_into_the_user_s_memory_that_was_broken_off_is_finished_and_counted_once(home: Path) -> None:
    text = "prefer small commits with a reason in each message over a large commit at the end"
    async with store_rig(home) as rig, Dying(home, 0) as alive, Workplace(home, alive) as place:
        await rig.worker()
        known = await place.store(text, scope="user", kind="preference", importance=0.5, confidence=0.2)
        projects = [ProjectRef(f"p_{number:012x}", f"/work/shop{number}") for number in range(1, 5)]
        for deaths, project in enumerate(projects, start=1):
            memory_id = await place.store(
                f"{text}, always", project=project, kind="preference", importance=0.8, confidence=0.8
            )
            await place.until_embedded(project)
            async with Dying(home, deaths) as link:
                with contextlib.suppress(Died):
                    await propose_to_user(link, project, time.time)
            await propose_to_user(alive, project, time.time)
            assert (await place.memories(project))[memory_id].status == "promoted"
        (user,) = (await place.memories(None)).values()
        assert (user.id, user.confidence, user.access_count) == (known, 0.6, 4)
        shown = await place.show(known)
        assert [step.source_project for step in shown.memory.promotion_chain] == [each.id for each in projects]
        assert shown.observed_in == tuple(project.id for project in projects)


def counts(home: Path, *tables: str) -> list[int]:
    with closing(connect_space(RuntimePaths(home), PROJECT.id)) as connection:
        return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


async def test_what_closed_sessions_noted_goes_after_a_while(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SESSION_DETAILS_KEPT_S", 0.001)
    await place.start()
    scratch = await place.note("try the other flag", kind="scratchpad")
    outcome = await place.note("pytest: 3 failed", kind="tool_outcome")
    kept = await place.note("the coffee machine is out of order", kind="observation", importance=0.2)
    await place.start(OTHER_SESSION)
    running = await place.note("still needed", kind="scratchpad", session_id=OTHER_SESSION)
    await place.now(RecordEvents(SESSION, (Turn("user", "hello", 1.0),), (ToolCall("Bash", 2.0),)))
    assert "notes" not in (await place.maintain()).done, "not while the session runs"
    await place.end()
    plan = await place.maintain(dry_run=True)
    assert counts(place.home, "turns", "tool_calls") == [1, 1]
    done = await place.maintain()
    found = [{sort: of.count for sort, of in each.done.items()} for each in (plan, done)]
    assert found == [{"notes": 2}, {"notes": 2, "pruned": 2}]
    assert set(await place.memories()) == {kept, running}
    assert counts(place.home, "turns", "tool_calls") == [0, 0]
    assert (await place.session()).status == "completed"
    again = await place.maintain()
    assert (again.done, again.run_ids) == ({}, ())
    (run_id,) = done.run_ids
    await place.now(UndoRun(run_id, "project"), session_id="")
    assert {scratch, outcome} <= set(await place.memories())
    assert "notes" not in (await place.maintain()).done, "somebody wanted it back"


REFLECT = Reflect(PROJECT, SESSION, "reflect-1")


async def test_a_reflection_does_not_wait_for_the_work_on_a_whole_file(rig: StoreRig) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(job: Job, store: StoreClient, settings: Settings, clock: Clock) -> Reflected | Maintained:
        if isinstance(job.work, Reflect):
            found = await all_memories(store, ReadMemories(job.project, limit=1))
            return Reflected(analyzed=len(found))
        begun.set()
        await go_on.wait()
        return Maintained("user")

    async with consolidating(rig, work) as (loop, _):
        maintained = asyncio.create_task(rig.gateway.ask(Maintain(None)))
        with anyio.fail_after(PATIENCE_S):
            await begun.wait()
        assert await rig.gateway.ask(REFLECT) == Reflected(analyzed=0)
        assert loop.health().job == "maintenance of the user"
        go_on.set()
        assert await maintained == Maintained("user")


REFLECTED = Reflected((ConsolidatedMemory("m", "c", "semantic", "session", ("a", "b")),), analyzed=2)
WAIT_S = 15.0


class Consolidator(Gateway):
    def __init__(self, home: Path) -> None:
        super().__init__(home, "consolidator")

    async def job(self, sort: JobSort = "session") -> Job:
        (job,) = await until(partial(self.ask, AwaitJob(sort), WAIT_S))
        assert isinstance(job, Job)
        return job

    async def finish(self, job: Job, outcome: Reflected | None = None) -> None:
        """A job was carried out, and no other follows, not even when the store, which looks often, has looked again."""
        assert await self.ask(AwaitJob(job.sort, job, outcome), timeout_s=0.5) == ()


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, constants=LOOKS_OFTEN) as rig:
        yield rig


async def end_session(rig: StoreRig) -> None:
    await rig.gateway.store("Something")
    for change in (StartSession(SESSION), EndSession(SESSION)):
        await rig.gateway.change(change)


async def restart_with(rig: StoreRig, **settings: object) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, **settings)
    await rig.restart()


async def test_a_job_that_consolidators_die_of_starts_no_more_of_them_and_is_still_handed_out(home: Path) -> None:
    at_once = {"remembrancer.actors.store.job_handlers.RETRY_S": (0.0, 0.0)}
    async with store_rig(home, constants={**LOOKS_OFTEN, **at_once}) as rig:
        await end_session(rig)
        for has_work in (True, False, False):
            async with Consolidator(rig.home) as dying:
                await dying.job()
            assert (await rig.health()).has_jobs is has_work


async def test_a_session_that_is_left_without_a_word_is_abandoned(rig: StoreRig) -> None:
    await restart_with(rig, session_grace_s=1.0)
    await rig.gateway.store("Something")
    await rig.gateway.change(StartSession(SESSION))
    rig.gateway.dealer.send(NotePresence(((PROJECT, SESSION),)))
    async with Consolidator(rig.home) as consolidator:
        job = await consolidator.job()
        assert isinstance(job.work, SessionEnded)
        assert (job.work.session.session_id, job.work.session.ending) == (SESSION, "abandoned")


async def test_a_strong_memory_of_a_running_session_is_offered_once_at_each_of_its_versions(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as consolidator:
        memory_id = await rig.gateway.store("Never deploy on Fridays", scope="session", importance=1.0, confidence=1.0)
        await rig.gateway.store("Lunch was good", scope="session", importance=0.2)
        job = await consolidator.job()
        assert (job.project, job.work) == (PROJECT, PromoteAtOnce((Promotable(memory_id, 1),)))
        await consolidator.finish(job)
        await rig.gateway.change(UpdateMemory(memory_id, domain="work"))
        assert (await consolidator.job()).work == PromoteAtOnce((Promotable(memory_id, 2),))


async def test_a_request_of_two_clients_is_one_job_and_outlives_the_consolidator_that_had_it(rig: StoreRig) -> None:
    asked = [asyncio.create_task(rig.gateway.ask(REFLECT)) for _ in range(2)]
    async with Consolidator(rig.home) as first:
        await first.job("asked")
    async with Consolidator(rig.home) as second:
        job = await second.job("asked")
        assert job.work == REFLECT
        await second.finish(job, REFLECTED)
        assert [await each for each in asked] == [REFLECTED] * 2


async def test_without_a_consolidator_by_the_settings_requests_are_refused_at_once_and_jobs_wait(rig: StoreRig) -> None:
    await restart_with(rig, consolidator=False)
    await end_session(rig)
    with pytest.raises(ConsolidatorUnavailable, match="REMEMBRANCER_CONSOLIDATOR=1"):
        await rig.gateway.ask(REFLECT)
    await restart_with(rig, consolidator=True)
    async with Consolidator(rig.home) as consolidator:
        await consolidator.job()


async def test_a_store_that_stops_lets_the_consolidator_go(rig: StoreRig) -> None:
    async with Consolidator(rig.home) as consolidator:
        await consolidator.ask(ReadMemories(PROJECT))
        waiting = asyncio.create_task(consolidator.ask(AwaitJob("long")))
        await asyncio.sleep(0)
        await consolidator.ask(ReadMemories(PROJECT))  # it was sent later, so that the store has both
        assert await rig.stop() == 0
        with pytest.raises(PeerLost):
            await waiting


async def test_of_a_shared_lane_old_runs_go_and_the_results_of_operations_stay(home: Path) -> None:
    later = time.time() + 2 * maintenance.RUNS_KEPT_S
    async with store_rig(home) as rig, Dying(home, 0) as link:
        await rig.gateway.store("the coffee machine is out of order")
        await maintenance.maintain(Job(PROJECT, Maintain(PROJECT), time.time()), link, time.time)
        runs, results = counts(home, "runs", "applied_operations")
        done = await maintenance.maintain(Job(PROJECT, Maintain(PROJECT), later), link, lambda: later)
        assert done.done["pruned"].count >= runs > 0
        assert counts(home, "applied_operations")[0] > results
