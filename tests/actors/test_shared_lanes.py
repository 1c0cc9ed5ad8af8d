"""Hosts that share a project or their user: they follow each other, one may leave and return, who wrote last works."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from remembrancer.actors.store import lane_follower
from remembrancer.actors.store.committer import Committer, Readers
from remembrancer.actors.store.dispatcher import StoreParts
from remembrancer.actors.store.job_handlers import JobHandlers
from remembrancer.actors.store.records.browsing import BROWSER_READS
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.replaced_memories import ReplacedMemories
from remembrancer.actors.store.shared_lanes import SILENT_S, Connection, SharedLanes
from remembrancer.actors.store.spaces import HomeSpaces
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.actors.store.write_handlers import WriteHandlers
from remembrancer.commands.home_reader import (
    FoundMemory,
    examine_files,
    export_records,
    find_memories,
    known_projects,
)
from remembrancer.config.settings import Settings
from remembrancer.protocol.browsing import ReadActivity
from remembrancer.protocol.consolidation import Job, Maintain
from remembrancer.protocol.errors import (
    ConfigurationError,
    InvalidInput,
    JournalAway,
    JournalRefused,
    KeyMissing,
    NotFound,
    RemembrancerError,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import ApplyRun, NoteMaintenance, ReviseMemory, UndoneResult, UndoRun
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.sharing import DescribeLanes, LeaveLane, MemoriesMoved, RejoinLane, ShareProject
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EraseMemory,
    ImportMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromotedResult,
    PromoteMemory,
    Scope,
    Submit,
    TagMemory,
    UpdateMemory,
)
from tests.contracts.records_rig import ids_of, is_erased, pending
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.operations import (
    OTHER_PROJECT,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.patience import until
from tests.spaces import dump_of

LANE = "l_0123456789ab"


class Host:
    """The files of one host's home, and its connection to the journal. Each has a project of its own."""

    jobs: JobHandlers

    def __init__(self, home: Path, server: InProcessServer, project: ProjectRef) -> None:
        home.mkdir(mode=0o700)
        self.project = project
        self.paths = RuntimePaths(home)
        self.server = server
        self.journal = InProcessJournal(server)
        self.clock = REQUESTED_AT
        self.scrubbed: list[str] = []
        self.refusal: RemembrancerError | None = None
        self.start()

    def start(self) -> None:
        def connect(_: str) -> Connection:
            if self.refusal is not None:
                raise self.refusal
            return self.journal, self.paths.home.name

        self.committer = Committer()
        self.lanes = SharedLanes(self.paths, self.committer, lambda: self.clock, connect)
        self.files = HomeSpaces(
            self.paths, self.committer, lambda: self.clock, on_open=lambda _: None, open_lane=self.lanes.open
        )
        self.lanes.attach(self.files, self._scrub, lambda _: None, lambda: None)
        scheduler = cast(EmbeddingScheduler, SimpleNamespace(error=None, wake=lambda: None))
        vectors = cast(VectorSpaces, SimpleNamespace(note_kept=lambda _: None))
        parts = StoreParts(self.paths, Settings(), self.files, self.committer, vectors, scheduler, Readers())
        self.writes = WriteHandlers(parts, ReplacedMemories(), self.lanes.purge)
        self.jobs = JobHandlers(parts, self.writes.submit, self._count_accesses)

    async def _count_accesses(self) -> None:
        """Nothing was shown here."""

    async def _scrub(self, memory_ids: Sequence[str]) -> None:
        self.scrubbed.extend(memory_ids)

    async def aclose(self) -> None:
        await self.lanes.aclose()
        assert all(follower._following.done() for follower in self.lanes._open.values())
        await asyncio.to_thread(self.committer.close)
        self.files.close()

    async def reopen(self) -> None:
        await self.aclose()
        await self.begin()

    async def begin(self) -> None:
        self.start()
        await self.files.project(self.project)

    async def ask(self, request: Request[Any]) -> object:
        answer = self.lanes.handlers()[type(request)](request, None)  # type: ignore[arg-type]
        assert answer is not None
        return await answer

    async def share(self, *, dry_run: bool = False) -> object:
        return await self.ask(ShareProject(self.project, LANE, dry_run))

    async def submit(self, operation: Operation) -> Applied | RemembrancerError:
        try:
            return await self.writes.submit(Submit(operation))
        except RemembrancerError as refusal:
            return refusal

    async def store(self, name: str, content: str, scope: Scope = "project") -> str:
        operation = store_operation(name, content, project=self.project, scope=scope)
        assert isinstance(await self.submit(operation), Applied)
        return memory_id_of(operation)

    async def change(self, name: str, change: Change, session: str = SESSION) -> Applied | RemembrancerError:
        return await self.submit(change_operation(name, change, project=self.project, session_id=session))

    async def done(self, name: str, change: Change, session: str = SESSION) -> Applied:
        """As `change`, for one that has to succeed."""
        reply = await self.change(name, change, session)
        assert isinstance(reply, Applied), reply
        return reply

    async def undo(self, run_id: str, scope: Scope = "project", session_id: str = SESSION) -> tuple[str, ...]:
        """The ids of the memories to which it undid a run."""
        undo = UndoRun(run_id, scope)
        undone = await self.done(f"undo {scope}", undo, session_id)
        assert isinstance(undone.result, UndoneResult)
        return undone.result.memories

    def records(self, scope: Scope) -> Records:
        return self.files.lanes_of(self.project.id)[scope]

    def memory(self, scope: Scope, memory_id: str, session_id: str | None = None) -> PortableMemory:
        memory = self.records(scope).portable(memory_id, session_id)
        assert memory is not None
        return memory

    def finds(self, scope: Scope, word: str) -> bool:
        return bool(self.records(scope).keyword_hits([Phrase(word)], Filters(SESSION), 5))

    def versions(self, memory_id: str) -> list[str]:
        return [entry.change for entry in self.memory("project", memory_id).history]

    def dump(self) -> list[str]:
        return dump_of(self.paths.database)

    async def job(self) -> Job | None:
        """The next job on the whole lane, after a look."""
        await self.jobs.look()
        return self.jobs.take("long")

    async def finish(self, job: Job) -> None:
        assert job.project is not None
        run = ApplyRun("run:done", "project", "maintenance", (NoteMaintenance(),))
        await self.writes.submit(Submit(Operation("done", job.project, "", time.time(), run)))
        self.jobs._attempts.finish(job, time.monotonic())


@pytest.fixture
async def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Host]]:
    monkeypatch.setattr(lane_follower, "UNREACHABLE_RETRY_S", 0.0)
    server = InProcessServer()
    await InProcessJournal(server).create(LANE)
    made = [Host(tmp_path / name, server, of) for name, of in (("here", PROJECT), ("there", OTHER_PROJECT))]
    yield made
    for host in made:
        await host.aclose()


async def test_a_project_gives_what_it_has_to_the_lane_and_keeps_what_is_a_session_s(hosts: list[Host]) -> None:
    here, there = hosts
    memory_id = await here.store("lantern", "the lantern burns oil")
    await here.store("candle", "the candle burns wax", "session")
    await here.change("tag", TagMemory(memory_id, ("lit",)))
    assert await here.share(dry_run=True) == MemoriesMoved(1)
    assert not here.paths.lanes.exists(), "it was only asked"
    assert await here.share() == MemoriesMoved(1)
    assert await here.share() == MemoriesMoved(0), "to say it again does nothing"
    assert (here.finds("session", "lantern"), here.finds("project", "lantern")) == (False, True)
    assert (here.finds("session", "candle"), here.finds("project", "candle")) == (True, False)
    torch = await there.store("torch", "the torch burns pitch")
    assert await there.share() == MemoriesMoved(1)
    assert there.finds("project", "lantern")
    shown = there.memory("project", memory_id, "session:elsewhere")
    assert [entry.change for entry in shown.history] == ["stored", "tagged"]
    assert {entry.details["member"] for entry in shown.history} == {here.paths.home.name}
    day: Any = BROWSER_READS[ReadActivity](there.records("project"), ReadActivity(OTHER_PROJECT, "session:elsewhere"))
    assert {each.member for each in day.changes if each.memory_id == memory_id} == {here.paths.home.name}
    await until(lambda: here.finds("project", "torch"))
    number = here.records("project").number_of(torch)
    assert number in pending(here.records("project")), "what others store gets its vectors"


async def both_sharing(hosts: Sequence[Host]) -> Sequence[Host]:
    for host in hosts:
        await host.share()
    return hosts


async def test_what_a_session_gives_to_a_shared_lane_leaves_its_drafts_behind(hosts: list[Host]) -> None:
    here, _ = hosts
    await here.share()
    memory_id = await here.store("lantern", "the lantern burns oil", "session")
    await here.change("tag", TagMemory(memory_id, ("draft",)))
    promotion = PromoteMemory(memory_id, "project")
    done = await here.done("promote", promotion)
    assert done.result == PromotedResult(memory_id, "session")
    assert here.records("session").number_of(memory_id) is None
    given = here.memory("project", memory_id)
    assert (given.scope, given.source_project, given.tags) == ("project", None, ("draft",))
    assert [entry.version for entry in given.history] == [3], "what it was in its session is nobody else's"
    again = await here.done("promote", promotion)
    assert again.replayed


async def test_a_shared_project_takes_back_what_it_gave_to_the_user_before(hosts: list[Host]) -> None:
    here, there = hosts
    memory_id = await here.store("lantern", "the lantern burns oil")
    await here.done("promote", PromoteMemory(memory_id, "user"))
    await here.share()
    await there.share()
    back = await here.done("back", PromoteMemory(memory_id, "project"))
    assert isinstance(back.result, PromotedResult)
    assert (back.result.previous_scope, here.finds("user", "lantern")) == ("user", False)
    await until(lambda: there.finds("project", "lantern"))


async def test_without_the_journal_what_is_shared_waits_and_what_is_private_does_not(hosts: list[Host]) -> None:
    here, there = hosts
    await here.store("candle", "the candle burns wax", "session")
    await here.share()
    await there.share()
    here.journal.reachable = False
    refused = await here.submit(store_operation("lantern", "the lantern burns oil"))
    assert isinstance(refused, JournalAway)
    assert refused.retry_possible, "so that it is queued"
    await here.store("torch", "the torch burns pitch", "session")
    await there.store("bottle", "the bottle is old")
    await until(lambda: here.lanes._open[LANE].lane.silent is not None)
    assert (here.lanes.notices(PROJECT.id), here.lanes.cut_off()) == ((), ()), "a server that restarts is no news"
    here.clock += SILENT_S + 5
    (notice,) = here.lanes.notices(PROJECT.id)
    assert notice.code == "partial_results"
    assert "in the last 15 s are missing" in notice.message
    states = await here.ask(DescribeLanes())
    assert "not reachable" in str(states)
    assert here.lanes.cut_off() == states, "status and doctor say so"
    here.journal.refusal = JournalRefused("this host was removed")
    await until(lambda: [lane.code for lane in here.lanes.cut_off()] == ["journal_refused"])
    here.journal.reachable = True
    await until(lambda: here.finds("project", "bottle") and not here.lanes.notices(PROJECT.id))


async def test_a_lane_is_for_one_project_and_a_project_has_one_lane(hosts: list[Host]) -> None:
    here, _ = hosts
    await here.share()
    with pytest.raises(InvalidInput, match=f"if it was moved here, .* move {PROJECT.id}"):
        await here.ask(ShareProject(OTHER_PROJECT, LANE))
    with pytest.raises(InvalidInput, match="already shares l_0123456789ab"):
        await here.ask(ShareProject(PROJECT, "l_other"))


async def test_what_is_shared_can_be_read_without_a_membership_and_goes_on_with_one(hosts: list[Host]) -> None:
    here, there = await both_sharing(hosts)
    await here.store("lantern", "the lantern burns oil")
    here.refusal = KeyMissing("join again")
    await here.reopen()
    assert here.finds("project", "lantern")
    refused = await here.submit(store_operation("torch", "the torch burns pitch"))
    assert isinstance(refused, KeyMissing)
    (notice,) = here.lanes.notices(PROJECT.id)
    assert "join again" in notice.message
    assert [lane.code for lane in here.lanes.cut_off()] == ["key_missing"]
    await there.store("bottle", "the bottle is old")
    here.refusal = None
    await here.ask(RejoinLane(LANE))
    await until(lambda: here.finds("project", "bottle"))


async def test_what_is_shared_is_exported_listed_and_examined(hosts: list[Host], tmp_path: Path) -> None:
    here, there = await both_sharing(hosts)
    await here.store("candle", "the candle burns wax", "session")
    await here.store("lantern", "the lantern burns oil")
    torch = await there.store("torch", "the torch burns pitch")
    await until(lambda: here.finds("project", "torch"))
    with (tmp_path / "export").open("wb") as file:
        assert export_records(here.paths, (PROJECT.id,), file, "export")["memories"] == 3
    lines = [json.loads(line) for line in (tmp_path / "export").read_bytes().splitlines()]
    memories = {line["memory"]["content"]: line for line in lines if line.get("line") == "memory"}
    said = {
        content: (line["project"], line["memory"]["scope"], line["memory"]["history"][0].get("details"))
        for content, line in memories.items()
    }
    assert said == {
        "the candle burns wax": (PROJECT.id, "session", None),
        "the lantern burns oil": (PROJECT.id, "project", {"member": "here"}),
        "the torch burns pitch": (PROJECT.id, "project", {"member": "there"}),
    }
    found = [FoundMemory(PROJECT.id, torch, "the torch burns pitch", None)]
    assert find_memories(here.paths, [PROJECT.id], [torch]) == found, "so that an import says that it is there"
    known = known_projects(here.paths)
    assert [(each.lane, each.memories) for each in known] == [(LANE, 3)]
    examined = {file.path: (file.status, file.found) for file in examine_files(here.paths)}
    assert examined[str(here.paths.database)] == ("ok", "")


async def test_who_left_and_joins_again_has_what_both_have_done_meanwhile(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await both_sharing(hosts)
    lantern = await here.store("lantern", "the lantern burns oil")
    candle = await here.store("candle", "the candle burns wax")
    await until(lambda: there.finds("project", "candle"))
    for dry_run in (True, False):
        assert await there.ask(LeaveLane(OTHER_PROJECT, dry_run=dry_run)) == (LANE, 2)
    with pytest.raises(InvalidInput, match="shares nothing"):
        await there.ask(LeaveLane(OTHER_PROJECT))
    await there.done("own", UpdateMemory(lantern, content="the lantern burns gas"))
    await there.store("torch", "the torch burns pitch")
    await here.done("theirs", UpdateMemory(candle, content="the candle burns tallow"))
    with monkeypatch.context() as small:
        small.setattr("remembrancer.actors.store.shared_lane.MAX_ENTRY_BYTES", 1)
        moved: Any = await there.share()
        assert (moved.memories, moved.left) == (0, 3), "what the lane does not take stays"
    for _ in range(2):
        await there.share()
        await until(lambda: here.finds("project", "torch"))
        await until(lambda: here.finds("project", "gas"))
        for host in hosts:
            lane = host.records("project")
            contents = {found.content for each in ids_of(lane) if (found := lane.portable(each, None))}
            assert contents == {
                "the lantern burns oil",
                "the lantern burns gas",
                "the candle burns tallow",
                "the torch burns pitch",
            }
            assert lane.counts(None).total == 4, "and nothing is there twice"
            kept = host.memory("project", lantern)
            assert kept.content == "the lantern burns oil", "what the others have is as they left it"
        await there.ask(LeaveLane(OTHER_PROJECT))


async def test_what_the_lane_has_applied_is_answered_after_leaving_and_not_applied_again(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    lantern = await there.store("lantern", "the lantern burns oil")
    change = UpdateMemory(lantern, content="the lantern burns gas")
    first = await there.done("gas", change)
    await there.ask(LeaveLane(OTHER_PROJECT))
    again = await there.done("gas", change)
    assert (again.result, again.replayed) == (first.result, True)
    kept = there.memory("project", lantern)
    assert [entry.version for entry in kept.history] == [1, 2]


async def test_what_is_changed_while_a_lane_is_left_is_not_lost(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    stored = [await there.store(f"lantern {number}", f"lantern {number} burns oil") for number in range(120)]
    leaving = asyncio.create_task(there.ask(LeaveLane(OTHER_PROJECT)))
    made: list[str] = []
    while not leaving.done():
        name = f"change {len(made)}"
        answer = await there.change(name, UpdateMemory(stored[len(made) % len(stored)], content=f"{name} was made"))
        if isinstance(answer, Applied):
            made.append(name)
        else:
            assert isinstance(answer, JournalAway), answer
            assert answer.retry_possible
            await asyncio.sleep(0)
    assert await leaving == (LANE, len(stored))
    assert made, "or it was left before anything was asked"
    histories = [there.memory("project", each).history for each in stored]
    assert {entry.record.content for history in histories for entry in history} >= {f"{each} was made" for each in made}


async def test_a_host_that_cannot_reach_the_journal_any_more_leaves_and_keeps_what_it_has(hosts: list[Host]) -> None:
    _, there = hosts
    await there.share()
    await there.store("lantern", "the lantern burns oil")
    there.refusal = ConfigurationError("this release does not share by that")
    await there.reopen()
    assert there.finds("project", "oil")
    assert await there.ask(LeaveLane(OTHER_PROJECT)) == (LANE, 1)
    await there.files.project(OTHER_PROJECT)
    assert there.finds("project", "oil")


@pytest.fixture
async def workers(hosts: list[Host]) -> list[Host]:
    """Two hosts of a lane with a memory that is years old: it was never maintained."""
    here, there = await both_sharing(hosts)
    await here.store("lantern", "the lantern burns oil")
    await until(lambda: there.finds("project", "lantern"))
    return hosts


async def test_who_wrote_last_works_in_a_lane_and_the_others_rest(workers: list[Host]) -> None:
    here, there = workers
    job = await here.job()
    assert job is not None
    assert job.lane_time == here.lanes._open[LANE].lane.time
    assert job.work == Maintain(ProjectRef(LANE, PROJECT.path))
    for _ in range(2):
        assert await there.job() is None
    await here.finish(job)
    assert await here.job() is None
    await until(lambda: here.dump() == there.dump())
    assert await there.job() is None, "it knows that this is done"


async def test_a_run_in_a_lane_is_undone_from_any_host_and_keeps_nothing_erased(workers: list[Host]) -> None:
    here, there = workers
    memory_id = await here.store("torch", "the torch burns pitch")
    archiving = ReviseMemory(memory_id, "archived", expected_version=1, status="archived", reason="weak")
    run = ApplyRun("run:weak", "project", "maintenance", (archiving,))
    in_lane = Operation("weak", ProjectRef(LANE, ""), "", time.time(), run)
    assert isinstance(await here.submit(in_lane), Applied)
    again = msgspec.structs.replace(in_lane, operation_id="weak too")
    assert isinstance(await here.submit(again), Applied), "what was planned on an old state is passed over"
    await until(lambda: there.finds("project", "torch") and len(there.versions(memory_id)) == 2)
    assert await there.undo("run:weak") == (memory_id,)
    assert there.versions(memory_id) == ["stored", "archived", "undone"]
    await until(lambda: here.dump() == there.dump())
    await there.done("erase", EraseMemory(memory_id))
    lane = here.lanes._open[LANE].lane
    await until(lambda: is_erased(lane, memory_id))
    assert here.server.lanes[LANE].entries == {}, "the entries of the runs too"


@pytest.mark.parametrize("is_shared_before", [True, False])
async def test_an_import_is_undone_where_it_brought_each_memory(hosts: list[Host], *, is_shared_before: bool) -> None:
    here, _ = hosts
    whole = here.memory("project", await here.store("lantern", "the lantern burns oil"))
    if is_shared_before:
        await here.share()
    scopes: tuple[Scope, ...] = ("project", "session")
    for scope in scopes:
        content = f"the candle of the {scope} burns wax"
        imported = msgspec.structs.replace(whole, id=f"mem_{scope}", content=content, scope=scope, history=())
        await here.done(f"import {scope}", ImportMemory(imported, run_id="run:import-1"))
    await here.share()
    for scope in scopes:
        assert await here.undo("run:import-1", scope, SHELL_SESSION) == (f"mem_{scope}",)


USER = ShareProject(None, LANE)


def contents(host: Host) -> list[str]:
    users = {host.files.user_file, host.files.user}
    found = (records.portable(each, None) for records in users for each in ids_of(records))
    return sorted(memory.content for memory in found if memory is not None)


@pytest.fixture
async def owners(hosts: list[Host]) -> list[Host]:
    for host in hosts:
        await host.files.project(host.project)
        await host.ask(USER)
    return hosts


async def test_a_user_has_on_each_machine_what_he_had_on_any(hosts: list[Host]) -> None:
    here, there = hosts
    tea = await here.store("tea", "I drink tea", "user")
    await here.change("tag", TagMemory(tea, ("kitchen",)))
    await here.store("lantern", "the lantern burns oil")
    await there.store("coffee", "I drink no coffee", "user")
    twin = await there.store("tea there", "I drink tea", "user")
    assert await here.ask(ShareProject(None, LANE, dry_run=True)) == MemoriesMoved(1)
    assert not here.paths.lanes.exists(), "it was only asked"
    assert await here.ask(USER) == MemoriesMoved(1)
    assert await here.ask(USER) == MemoriesMoved(0), "to say it again does nothing"
    assert await there.ask(USER) == MemoriesMoved(2)
    await until(lambda: here.finds("user", "coffee"))
    for host in hosts:
        assert contents(host) == ["I drink no coffee", "I drink tea"], "the same text is one memory"
    kept = here.memory("user", tea)
    assert [entry.change for entry in kept.history] == ["stored", "tagged"]
    merged = here.memory("user", twin)
    assert merged.id == tea, "who knows it by its other id finds it"
    assert here.finds("project", "lantern")
    await here.store("bed", "I go to bed late", "user")
    await until(lambda: there.finds("user", "bed"))
    assert dump_of(here.paths.database) == dump_of(there.paths.database)


async def test_a_project_gives_a_memory_to_the_user_and_takes_it_back(owners: list[Host]) -> None:
    here, there = owners
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user", "everywhere so"))
    assert not here.finds("project", "tea")
    await until(lambda: there.finds("user", "tea"))
    await there.reopen()
    assert there.finds("user", "tea"), "it is shared after a restart, too"
    refused = await there.change("not theirs", PromoteMemory(memory_id, "project"))
    assert isinstance(refused, InvalidInput)
    assert "it came from the project p_" in refused.message
    assert there.finds("user", "tea")
    back = await here.done("back", PromoteMemory(memory_id, "project", "not so"))
    assert isinstance(back.result, PromotedResult)
    assert (back.result.previous_scope, here.finds("project", "tea"), here.finds("user", "tea")) == (
        "user",
        True,
        False,
    )
    await until(lambda: not there.finds("user", "tea"))
    for host in owners:
        assert not any("drink" in row for row in dump_of(host.paths.database)), "its history went along"
    again = await here.done("back", PromoteMemory(memory_id, "project", "not so"))
    assert again.replayed
    assert dump_of(here.paths.database) == dump_of(there.paths.database)


async def test_what_is_taken_back_by_an_unanswered_append_is_the_project_s_when_read(owners: list[Host]) -> None:
    here, there = owners
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user"))
    here.journal.loses_answers = 1
    assert isinstance(await here.change("back", PromoteMemory(memory_id, "project")), JournalAway)
    await here.reopen()
    await until(lambda: here.finds("project", "tea"))
    assert not here.finds("user", "tea")
    await until(lambda: not there.finds("user", "tea"))
    again = await here.done("back", PromoteMemory(memory_id, "project"))
    assert again.replayed


async def test_who_does_not_see_the_user_sees_nothing_of_what_he_shares(owners: list[Host]) -> None:
    here, _ = owners
    memory_id = await here.store("tea", "I drink tea", "user")
    own_alone = ProjectRef(PROJECT.id, PROJECT.path, sees_user=False)
    refused = await here.submit(change_operation("tag", TagMemory(memory_id, ("x",)), project=own_alone))
    assert isinstance(refused, NotFound)
    lost = await here.submit(change_operation("back", PromoteMemory(memory_id, "project"), project=own_alone))
    assert isinstance(lost, NotFound | InvalidInput)
    assert not any(here.records(scope).number_of(memory_id) for scope in ("session", "project"))


async def test_a_project_that_is_moved_can_still_take_back_what_it_gave(owners: list[Host]) -> None:
    here, there = owners
    memory_id = await here.store("tea", "we drink tea")
    await here.done("promote", PromoteMemory(memory_id, "user"))
    lane = here.files.shared[here.files.user_file.name]
    await here.committer.run(lane.name, partial(lane.rename_project, PROJECT.id, OTHER_PROJECT.id))
    await until(lambda: there.finds("user", "tea"))

    def source() -> str | None:
        found = there.records("user").portable(memory_id, SESSION)
        return None if found is None else found.source_project

    await until(lambda: source() == OTHER_PROJECT.id)
    await there.done("back", PromoteMemory(memory_id, "project"))
    assert there.finds("project", "tea")
