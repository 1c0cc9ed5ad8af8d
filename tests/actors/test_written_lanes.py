"""A write goes to the lane of its scope, and a change to the lane that has its memory, however many lanes there are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import Lanes, MemoryFiles, Target, find_target, moved_to
from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.view import Source
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import (
    Change,
    EraseMemory,
    ImportMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromoteMemory,
    Scope,
    TagMemory,
)
from tests.operations import PROJECT, SESSION, change_operation, memory_id_of, store_operation

pytestmark = pytest.mark.anyio
SCOPES: tuple[Scope, ...] = ("session", "project", "user")


class Lane:
    """A project's three lanes, of which the second is for what the project shares."""

    def __init__(self, files: MemoryFiles, shared: Records) -> None:
        self.files = files
        self.shared = shared
        self.own = files.lanes_of(PROJECT.id)["session"]

    def lanes_of(self, _: str) -> Lanes:
        return {"session": self.own, "project": self.shared, "user": self.files.user}

    async def target_of(self, change: Change, project: ProjectRef = PROJECT) -> object:
        return await find_target(self.files, change_operation("asked", change, project=project))

    async def store(self, name: str, scope: Scope) -> str:
        operation = store_operation(name, f"a lantern for the {scope}", scope=scope)
        target = await find_target(self.files, operation)
        assert target is self.lanes_of("")[scope]
        assert isinstance(target, Records)
        target.apply([operation])
        return memory_id_of(operation)


@pytest.fixture
async def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lane]:
    committer, paths = Committer(), RuntimePaths(tmp_path)
    files = MemoryFiles(paths, committer, time.time, limit_bytes=None, on_open=lambda _: None)
    await files.project(PROJECT)
    shared = Records(files.database, "shared", time.time)
    made = Lane(files, shared)
    monkeypatch.setattr(files, "lanes_of", made.lanes_of)
    yield made
    committer.close()
    files.close()


async def test_a_memory_is_written_to_the_lane_of_its_scope_and_changed_where_it_is(lane: Lane) -> None:
    ids = {scope: await lane.store(scope, scope) for scope in SCOPES}
    lanes = lane.lanes_of("")
    for scope in SCOPES:
        records = lanes[scope]
        assert await lane.target_of(TagMemory(ids[scope], ("lit",))) is records
        imported = PortableMemory(
            id=f"mem_{scope}",
            content="a candle",
            type="semantic",
            scope=scope,
            session_id=SESSION,
            created_at=1.0,
            updated_at=1.0,
        )
        assert await lane.target_of(ImportMemory(imported)) is records
    assert isinstance(await lane.target_of(TagMemory("mem_none", ("lit",))), NotFound)


@pytest.mark.parametrize(
    ("source", "target", "lanes"),
    [
        ("session", "project", (0, 1)),
        ("session", "user", (0, 2)),
        ("user", "project", (2, 1)),
    ],
)
async def test_a_promotion_is_a_move_from_a_lane_to_a_lane(
    lane: Lane, source: Scope, target: Scope, lanes: tuple[int, int]
) -> None:
    assert target != "session"
    each = list(lane.lanes_of("").values())
    promotion = PromoteMemory(await lane.store("moves", source), target)
    move = await lane.target_of(promotion)
    assert isinstance(move, Move)
    assert (move.source, move.destination) == (each[lanes[0]], each[lanes[1]])
    assert move == await lane.target_of(promotion), "those that wait together are carried out together"


async def test_what_was_erased_anywhere_is_answered_from_there(lane: Lane) -> None:
    memory_id = await lane.store("gone", "project")
    erase = EraseMemory(memory_id)
    assert await lane.target_of(erase) is lane.shared
    lane.shared.apply([change_operation("erase", erase)])
    assert await lane.target_of(erase) is lane.shared
    assert await lane.target_of(EraseMemory("mem_none")) is lane.own


async def test_a_memory_that_was_moved_meanwhile_is_looked_for_in_each_lane_that_the_caller_sees(lane: Lane) -> None:
    ids = {scope: await lane.store(scope, scope) for scope in SCOPES}

    def moved(scope: Scope, target: Target, project: ProjectRef = PROJECT) -> object:
        return moved_to(lane.files, Operation("op", project, SESSION, 1.0, TagMemory(ids[scope], ("lit",))), target)

    assert moved("project", lane.own) is lane.shared
    assert moved("user", lane.shared) is lane.files.user
    assert moved("user", lane.shared, ProjectRef(PROJECT.id, PROJECT.path, sees_user=False)) is None
    assert moved("session", lane.shared) is lane.own, "it may have been taken back"
    assert moved("user", lane.files.user) is lane.files.user, "it may have gone and come back"


async def test_a_lane_is_the_user_s_by_what_it_is_and_not_by_its_name(lane: Lane) -> None:
    lane.shared.is_users = True
    memory_id = await lane.store("shared", "project")
    assert Source(lane.shared).scopes == {"user"}
    own_alone = ProjectRef(PROJECT.id, PROJECT.path, sees_user=False)
    assert isinstance(await lane.target_of(TagMemory(memory_id, ("new",)), own_alone), NotFound)
    assert await lane.target_of(TagMemory(memory_id, ("new",))) is lane.shared
