"""A project that shares its memories: what it has moves into the lane, hosts follow each other, and one may leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.home_reader import HomeReader
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.requests import LoadGate
from remembrancer.actors.store.shared_lanes import SILENT_S, Connection, FollowUp, SharedLanes
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.write_handlers import WriteHandlers
from remembrancer.commands.backup import back_up, restore
from remembrancer.journal.sealing import KEY_BYTES, Keyring, Sealed
from remembrancer.protocol.errors import InvalidInput, JournalAway, KeyMissing, RemembrancerError
from remembrancer.protocol.home import (
    DescribeProjects,
    ExamineFiles,
    ExportWritten,
    FilesExamined,
    FindMemories,
    MemoriesFound,
    ProjectsDescribed,
    WriteExport,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.projects import MemoriesMoved
from remembrancer.protocol.sharing import DescribeLanes, LaneLeft, LaneState, LeaveLane, RejoinLane, ShareProject
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EraseMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromotedResult,
    PromoteMemory,
    Scope,
    TagMemory,
)
from tests.contracts.records_factories import is_erased, pending
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

LANE = "l_0123456789ab"


class Host:
    """The files of one host's home, and its connection to the journal. Each has a project of its own."""

    is_users = False
    """True if the lane is for the user's own scope."""

    def __init__(self, home: Path, server: InProcessServer, project: ProjectRef) -> None:
        home.mkdir(mode=0o700)
        self.project = project
        self.paths = RuntimePaths(home)
        self.server = server
        self.journal = InProcessJournal(server)
        self.clock = REQUESTED_AT
        self.scrubbed: list[str] = []
        self.told: list[Operation] = []
        self.refusal: RemembrancerError | None = None
        self.start()

    def start(self) -> None:
        def connect(_: str) -> Connection:
            if self.refusal is not None:
                raise self.refusal
            return Connection(self.journal, self.paths.home.name, is_users=self.is_users)

        self.committer = Committer()
        self.lanes = SharedLanes(self.paths, self.committer, lambda: self.clock, connect)
        self.files = MemoryFiles(
            self.paths,
            self.committer,
            lambda: self.clock,
            limit_bytes=None,
            on_open=lambda _: None,
            lanes=self.lanes,
        )
        self.lanes.attach(self.files, FollowUp(self._scrub, self.told.extend, lambda: None))
        scheduler = cast(EmbeddingScheduler, SimpleNamespace(error=None, wake=lambda: None))
        self.writes = WriteHandlers(self.files, self.committer, scheduler, LoadGate())

    async def _scrub(self, memory_id: str) -> None:
        self.scrubbed.append(memory_id)

    async def aclose(self) -> None:
        await self.lanes.aclose()
        await asyncio.to_thread(self.committer.close)
        self.files.close()

    async def ask(self, request: Request[Any]) -> object:
        answer = self.lanes.handlers()[type(request)](request, None)  # type: ignore[arg-type]
        assert answer is not None
        return await answer

    async def share(self, *, dry_run: bool = False) -> object:
        return await self.ask(ShareProject(self.project, LANE, dry_run))

    async def submit(self, operation: Operation) -> Applied | RemembrancerError:
        try:
            return await self.writes.submit(operation)
        except RemembrancerError as refusal:
            return refusal

    async def store(self, name: str, content: str, scope: Scope = "project") -> str:
        operation = store_operation(name, content, project=self.project, scope=scope)
        assert isinstance(await self.submit(operation), Applied)
        return memory_id_of(operation)

    async def change(self, name: str, change: Change) -> Applied | RemembrancerError:
        return await self.submit(change_operation(name, change, project=self.project))

    async def done(self, name: str, change: Change) -> Applied:
        """As `change`, for one that has to succeed."""
        reply = await self.change(name, change)
        assert isinstance(reply, Applied), reply
        return reply

    def records(self, scope: Scope) -> Records:
        return self.files.lanes_of(self.project.id)[scope]

    def memory(self, scope: Scope, memory_id: str, session_id: str | None = None) -> PortableMemory:
        """A memory that is there."""
        memory = self.records(scope).portable(memory_id, session_id)
        assert memory is not None
        return memory

    def finds(self, scope: Scope, word: str) -> bool:
        return bool(self.records(scope).keyword_hits([Phrase(word)], Filters(SESSION), 5))


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[list[Host]]:
    server = InProcessServer()
    await InProcessJournal(server).create(LANE)
    made = [Host(tmp_path / name, server, project) for name, project in (("here", PROJECT), ("there", OTHER_PROJECT))]
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
    await until(lambda: here.finds("project", "torch"))
    number = here.records("project").number_of(torch)
    assert number in pending(here.records("project")), "what others store gets its vectors"


async def both_have_one(here: Host, there: Host) -> str:
    """Have two hosts share a project; the id of a memory that the one has stored, and both have."""
    await here.share()
    await there.share()
    memory_id = await here.store("lantern", "the lantern burns oil")
    await until(lambda: there.finds("project", "lantern"))
    return memory_id


async def test_who_joins_after_an_erasure_has_what_a_snapshot_has_and_makes_its_vectors(hosts: list[Host]) -> None:
    here, there = hosts
    await here.share()
    await here.store("lantern", "the lantern burns oil")
    secret = await here.store("secret", "the password is brimstone")
    await here.done("erase", EraseMemory(secret))
    lane = here.server.lanes[LANE]
    bodies = [entry.body for entry in lane.entries.values()] + [content for _, content in lane.snapshots.values()]
    assert not any(b"brimstone" in body for body in bodies), "when it is answered, the journal has it no more"
    await there.share()
    assert there.finds("project", "lantern")
    assert len(pending(there.records("project"))) == 1
    await there.store("torch", "the torch burns pitch")
    await until(lambda: here.finds("project", "torch"))
    here.journal.reachable = False
    torch = await there.store("bottle", "the bottle is old")
    await there.done("erase there", EraseMemory(torch))
    here.journal.reachable = True
    await until(lambda: is_erased(here.records("project"), torch))


async def test_what_a_session_gives_to_a_shared_lane_leaves_its_drafts_behind(hosts: list[Host]) -> None:
    here, _ = hosts
    await here.share()
    memory_id = await here.store("lantern", "the lantern burns oil", "session")
    await here.change("tag", TagMemory(memory_id, ("draft",)))
    promotion = PromoteMemory(memory_id, "project")
    done = await here.done("promote", promotion)
    assert done.result == PromotedResult(memory_id, "session", "project", 3)
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


async def test_a_promotion_whose_outcome_nobody_knew_is_done_once_when_it_is_asked_for_again(
    hosts: list[Host],
) -> None:
    here, _ = hosts
    await here.share()
    memory_id = await here.store("lantern", "the lantern burns oil", "session")
    here.journal.loses_answers = 1
    promotion = PromoteMemory(memory_id, "project")
    assert isinstance(await here.change("promote", promotion), JournalAway)
    await until(lambda: here.finds("project", "lantern"))
    assert not here.finds("session", "lantern"), "both in one transaction"
    done = None
    while not isinstance(done, Applied):  # for a moment a journal that did not answer is not asked again
        done = await here.change("promote", promotion)
    assert not here.finds("session", "lantern")
    kept = here.memory("project", memory_id, SESSION)
    assert [entry.version for entry in kept.history] == [2]


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
    await until(lambda: here.lanes._open[LANE].silent is not None)
    assert here.lanes.notices(PROJECT.id) == (), "a server that restarts is no news"
    here.clock += SILENT_S + 5
    (notice,) = here.lanes.notices(PROJECT.id)
    assert notice.code == "partial_results"
    assert "15 s is not here yet" in notice.message
    states = await here.ask(DescribeLanes())
    assert "not reachable" in str(states)
    here.journal.reachable = True
    await until(lambda: here.finds("project", "bottle") and not here.lanes.notices(PROJECT.id))


async def test_who_leaves_keeps_a_copy_and_takes_nothing_from_the_others(hosts: list[Host]) -> None:
    here, there = hosts
    memory_id = await both_have_one(here, there)
    assert await there.ask(LeaveLane(OTHER_PROJECT, dry_run=True)) == LaneLeft(LANE, 1)
    assert await there.ask(LeaveLane(OTHER_PROJECT)) == LaneLeft(LANE, 1)
    assert there.records("project") is there.records("session")
    kept = there.memory("project", memory_id, SESSION)
    assert [entry.details.get("member") for entry in kept.history] == ["here"]
    assert list(there.paths.lanes.glob("*.db*")) == []
    await here.store("torch", "the torch burns pitch")
    assert not there.finds("project", "torch")
    with pytest.raises(InvalidInput, match="shares nothing"):
        await there.ask(LeaveLane(OTHER_PROJECT))
    assert await there.share() == MemoriesMoved(1), "one may come back"
    assert not there.finds("session", "lantern")
    assert there.finds("project", "torch")


async def test_a_lane_is_for_one_project_and_a_project_has_one_lane(hosts: list[Host]) -> None:
    here, _ = hosts
    await here.share()
    with pytest.raises(InvalidInput, match="a lane is for one project"):
        await here.ask(ShareProject(OTHER_PROJECT, LANE))
    with pytest.raises(InvalidInput, match="shares l_0123456789ab already"):
        await here.ask(ShareProject(PROJECT, "l_other"))


async def test_a_restored_lane_goes_on_from_where_it_was_when_the_backup_was_made(
    hosts: list[Host], tmp_path: Path
) -> None:
    here, there = hosts
    await here.share()
    await there.share()
    await here.store("lantern", "the lantern burns oil")
    manifest = back_up(here.paths, tmp_path / "backup.tar", force=False, now=REQUESTED_AT)
    assert "memory.db" in {file.name for file in manifest.files}
    await here.store("torch", "the torch burns pitch")
    await here.aclose()
    _, aside = restore(here.paths, tmp_path / "backup.tar", REQUESTED_AT)
    assert aside is not None
    assert (aside / "memory.db").exists()
    here.journal.reachable = False
    here.start()
    await here.files.project(PROJECT)
    assert (here.finds("project", "lantern"), here.finds("project", "torch")) == (True, False)
    await there.store("bottle", "the bottle is old")
    here.journal.reachable = True
    await until(lambda: here.finds("project", "torch") and here.finds("project", "bottle"))
    await here.store("candle", "the candle burns wax")
    await until(lambda: there.finds("project", "candle"))


async def test_a_backup_from_before_a_project_was_shared_brings_it_back_as_private(
    hosts: list[Host], tmp_path: Path
) -> None:
    here, _ = hosts
    await here.store("lantern", "the lantern burns oil")
    back_up(here.paths, tmp_path / "backup.tar", force=False, now=REQUESTED_AT)
    await here.share()
    await here.aclose()
    restore(here.paths, tmp_path / "backup.tar", REQUESTED_AT)
    here.start()
    await here.files.project(PROJECT)
    assert here.records("project") is here.records("session")
    assert here.finds("session", "lantern")
    assert await here.share() == MemoriesMoved(1)


async def test_what_is_shared_can_be_read_without_a_membership_and_goes_on_with_one(hosts: list[Host]) -> None:
    here, there = hosts
    await here.share()
    await there.share()
    await here.store("lantern", "the lantern burns oil")
    await here.aclose()
    here.refusal = KeyMissing("join again")
    here.start()
    await here.files.project(PROJECT)
    assert here.finds("project", "lantern")
    refused = await here.submit(store_operation("torch", "the torch burns pitch"))
    assert isinstance(refused, KeyMissing)
    (notice,) = here.lanes.notices(PROJECT.id)
    assert "join again" in notice.message
    await there.store("bottle", "the bottle is old")
    here.refusal = None
    await here.ask(RejoinLane(LANE))
    await until(lambda: here.finds("project", "bottle"))


async def test_a_host_that_a_new_key_has_not_reached_yet_waits_and_goes_on_with_it(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server that it reads from has not taken over the key that others have."""
    here, there = hosts
    monkeypatch.setattr("remembrancer.actors.store.lane_follower.AGAIN_S", 0.0)
    keys, secret = Keyring.new(), b"s" * KEY_BYTES
    sealed = Sealed(InProcessJournal(here.server), keys)
    here.journal, there.journal = (
        cast("InProcessJournal", each)
        for each in (sealed, Sealed(InProcessJournal(here.server), keys, member="there", secret=secret))
    )
    await both_have_one(here, there)
    newer = Keyring.new(keys)
    await sealed.hand_keys(LANE, newer, {})
    await here.store("torch", "the torch burns pitch")

    async def code() -> str | None:
        (state,) = cast("tuple[LaneState, ...]", await there.ask(DescribeLanes()))
        return state.code

    async def is_waiting() -> bool:
        return await code() == KeyMissing.code

    await until(is_waiting)
    waiting = await there.submit(store_operation("candle", "the candle burns wax", project=there.project))
    assert isinstance(waiting, JournalAway)
    await sealed.hand_keys(LANE, newer, {"there": secret})
    await until(lambda: there.finds("project", "torch"))
    await until(lambda: there.lanes._open[LANE].silent is None)
    await there.store("candle", "the candle burns wax")
    await until(lambda: here.finds("project", "candle"))


async def test_what_is_shared_is_exported_listed_and_examined(hosts: list[Host], tmp_path: Path) -> None:
    here, there = hosts
    await here.share()
    await there.share()
    await here.store("candle", "the candle burns wax", "session")
    await here.store("lantern", "the lantern burns oil")
    torch = await there.store("torch", "the torch burns pitch")
    await until(lambda: here.finds("project", "torch"))
    reader = HomeReader(here.paths)
    written = reader.answer(WriteExport(str(tmp_path / "export"), (PROJECT.id,)))
    assert isinstance(written, ExportWritten)
    assert (written.memories, written.sessions) == (3, 1)
    lines = [json.loads(line) for line in (tmp_path / "export").read_bytes().splitlines()]
    memories = {line["memory"]["content"]: line for line in lines if line.get("line") == "memory"}
    said = {
        content: (
            line["project"],
            line["memory"]["scope"],
            line["memory"]["history"][0].get("details", {}).get("member"),
        )
        for content, line in memories.items()
    }
    assert said == {
        "the candle burns wax": (PROJECT.id, "session", None),
        "the lantern burns oil": (PROJECT.id, "project", "here"),
        "the torch burns pitch": (PROJECT.id, "project", "there"),
    }
    found = reader.answer(FindMemories(PROJECT.id, (torch,)))
    assert found == MemoriesFound({torch: "the torch burns pitch"}), "so that an import says that it is there"
    described = reader.answer(DescribeProjects())
    assert isinstance(described, ProjectsDescribed)
    assert [(each.lane, each.memories) for each in described.projects] == [(LANE, 3)]
    lane = here.paths.database
    examined = reader.answer(ExamineFiles())
    assert isinstance(examined, FilesExamined)
    assert {file.path: file.state for file in examined.files}[str(lane)] == "whole"
