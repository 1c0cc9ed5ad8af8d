"""A write goes to the lane of its scope, and a change to the lane that has its memory, however many lanes there are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.memory_writer import Lanes, MemoryWriter
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.view import Source
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import (
    Applied,
    Change,
    ErasedResult,
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

SCOPES: tuple[Scope, ...] = ("session", "project", "user")


class Lane:
    """A project's three lanes, of which the second is for what the project shares."""

    def __init__(self, files: MemoryFiles, shared: Records) -> None:
        self.files = files
        self.shared = shared
        self.own = files.lanes_of(PROJECT.id)["session"]
        self.writer = MemoryWriter(lambda: files.database, self.lanes_of, files.shared_lane)
        self._count = 0

    def lanes_of(self, _: str) -> Lanes:
        return {"session": self.own, "project": self.shared, "user": self.files.user}

    def change(self, change: Change, project: ProjectRef = PROJECT) -> Applied | RemembrancerError:
        self._count += 1
        (outcome,) = self.writer.apply([Operation(f"op{self._count}", project, SESSION, 1.0, change)])
        return outcome.reply

    def store(self, name: str, scope: Scope) -> str:
        operation = store_operation(name, f"a lantern for the {scope}", scope=scope)
        (outcome,) = self.writer.apply([operation])
        assert isinstance(outcome.reply, Applied)
        return memory_id_of(operation)

    def places(self, memory_id: str) -> list[Records]:
        """The lanes that have a memory."""
        return [records for records in self.lanes_of("").values() if records.number_of(memory_id) is not None]


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[Lane]:
    committer, paths = Committer(), RuntimePaths(tmp_path)
    files = MemoryFiles(paths, committer, time.time, limit_bytes=None, on_open=lambda _: None)
    await files.project(PROJECT)
    yield Lane(files, Records(files.database, "shared", time.time))
    committer.close()
    files.close()


async def test_a_memory_is_written_to_the_lane_of_its_scope_and_changed_where_it_is(lane: Lane) -> None:
    for scope, records in lane.lanes_of("").items():
        assert scope != "unshared"
        memory_id = lane.store(scope, scope)
        assert lane.places(memory_id) == [records]
        assert isinstance(lane.change(TagMemory(memory_id, ("lit",))), Applied)
        imported = PortableMemory(
            id=f"mem_{scope}",
            content="a candle",
            type="semantic",
            scope=scope,
            session_id=SESSION,
            created_at=1.0,
            updated_at=1.0,
        )
        assert isinstance(lane.change(ImportMemory(imported)), Applied)
        assert lane.places(imported.id) == [records]
    assert isinstance(lane.change(TagMemory("mem_none", ("lit",))), NotFound)


@pytest.mark.parametrize(("source", "target"), [("session", "project"), ("session", "user")])
async def test_a_promotion_moves_a_memory_from_a_lane_to_a_lane(lane: Lane, source: Scope, target: Scope) -> None:
    assert target != "session"
    memory_id = lane.store("moves", source)
    assert isinstance(lane.change(PromoteMemory(memory_id, target)), Applied)
    assert lane.places(memory_id) == [lane.lanes_of("")[target]]


async def test_operations_that_wait_together_find_their_memory_wherever_those_before_them_moved_it(lane: Lane) -> None:
    memory_id = lane.store("moves", "session")
    changes: list[Change] = [TagMemory(memory_id, (f"t{number}",)) for number in range(3)]
    changes.insert(1, PromoteMemory(memory_id, "user"))
    changes.insert(3, PromoteMemory(memory_id, "project"))
    outcomes = lane.writer.apply([change_operation(str(place), change) for place, change in enumerate(changes)])
    assert all(isinstance(each.reply, Applied) for each in outcomes)
    assert [set(each.changed) for each in outcomes][1] == {lane.own.name, "user"}
    (place,) = lane.places(memory_id)
    memory = place.portable(memory_id, None)
    assert memory is not None
    assert set(memory.tags) == {"t0", "t1", "t2"}


async def test_what_was_erased_anywhere_is_answered_from_there(lane: Lane) -> None:
    memory_id = lane.store("gone", "project")
    for was_erased in (False, True):
        done = lane.change(EraseMemory(memory_id))
        assert isinstance(done, Applied)
        assert isinstance(done.result, ErasedResult)
        assert done.result.already == was_erased
    assert isinstance(lane.change(EraseMemory("mem_none")), NotFound)


async def test_a_lane_is_the_user_s_by_what_it_is_and_not_by_its_name(lane: Lane) -> None:
    lane.shared.is_users = True
    memory_id = lane.store("shared", "project")
    assert Source(lane.shared).scopes == {"user"}
    own_alone = ProjectRef(PROJECT.id, PROJECT.path, sees_user=False)
    assert isinstance(lane.change(TagMemory(memory_id, ("new",)), own_alone), NotFound)
    assert isinstance(lane.change(TagMemory(memory_id, ("new",))), Applied)
