"""A list with queued changes laid over it is the list that the store has when it has them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from remembrancer.actors.gateway.overlay import Overlay, as_listed, viewer_in
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.view import View
from remembrancer.protocol.reads import ListedMemory, ListMemories, Order
from remembrancer.protocol.writes import (
    Change,
    ForgetMemory,
    Operation,
    PromoteMemory,
    RestoreMemory,
    StoreMemory,
    TagMemory,
    UpdateMemory,
)
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, change_operation, store_operation

TAGS = ("a", "b", "c")
SEEDS = range(10)
STORED = 30
"""Operations that the store has. Texts that it knows are among them."""


class Story:
    """Random operations of two sessions, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids: list[str] = []
        self.count = 0

    def operation(self) -> Operation:
        self.count += 1
        name, pick = f"operation {self.count}", self.random
        at = REQUESTED_AT + self.count
        if not self.ids or pick.random() < 0.3:
            session_id = pick.choice((SESSION, SESSION, OTHER_SESSION))
            operation = store_operation(
                name,
                f"text {self.count if self.count > STORED else pick.randrange(20)}",
                requested_at=at,
                session_id=session_id,
                scope=pick.choice(("session", "project")) if session_id == SESSION else "project",
                tags=tuple(pick.sample(TAGS, pick.randrange(3))),
                importance=pick.choice((0.25, 0.5, 0.75)),
                occurred_at=pick.choice((None, REQUESTED_AT - pick.randrange(50))),
                valid_from=pick.choice((None, None, REQUESTED_AT - 30.0)),
            )
            assert isinstance(operation.change, StoreMemory)
            self.ids.append(operation.change.memory_id)
            return operation
        memory_id = pick.choice(self.ids)
        change: Change = pick.choice(
            (
                TagMemory(memory_id, (pick.choice(TAGS),)),
                TagMemory(memory_id, (), (pick.choice(TAGS),)),
                UpdateMemory(memory_id, content=f"text {pick.randrange(40)}"),
                UpdateMemory(memory_id, importance=pick.choice((0.25, 0.5, 0.75))),
                UpdateMemory(memory_id, valid_from=REQUESTED_AT - 10.0),
                ForgetMemory(memory_id),
                RestoreMemory(memory_id),
                UpdateMemory(memory_id, valid_until=REQUESTED_AT - 5.0),
                PromoteMemory(memory_id, "project"),
            )
        )
        return change_operation(name, change, session_id=pick.choice((SESSION, OTHER_SESSION)), requested_at=at)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqliteRecords]:
    with closing(SqliteRecords(SqliteFile(tmp_path / "memories.db"), PROJECT.id, time.time)) as opened:
        yield opened


def listed(records: SqliteRecords, request: ListMemories) -> list[ListedMemory]:
    return list(View([Source(records, None)]).listed(request))


def questions(pick: random.Random) -> Iterator[ListMemories]:
    for order in get_args(Order):
        for limit in (2, 5, 100):
            yield ListMemories(
                SESSION,
                project=PROJECT,
                order=order,
                limit=limit,
                offset=pick.randrange(6),
                tags=pick.choice(((), ("a",), ("b", "c"))),
                scopes=pick.choice(((), ("session",), ("project",))),
                min_importance=pick.choice((0.0, 0.5)),
                after=pick.choice((None, REQUESTED_AT - 20.0)),
                before=pick.choice((None, REQUESTED_AT + 10.0)),
                include_forgotten=pick.choice((True, False)),
                valid_at=pick.choice((None, REQUESTED_AT)),
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_with_queued_changes_is_the_list_after_them(records: SqliteRecords, seed: int) -> None:
    story = Story(seed)
    records.apply([story.operation() for _ in range(STORED)])
    queued = [story.operation() for _ in range(10)]
    viewer = viewer_in(PROJECT, SESSION)
    changed = Overlay((), queued).changed(viewer)
    laid: list[tuple[ListMemories, list[ListedMemory]]] = []
    for request in questions(story.random):
        end = request.offset + request.limit
        rows = listed(records, msgspec.structs.replace(request, offset=0, limit=end + len(changed)))
        had = {row.id for row in rows}
        known = {each: records.portable(each, SESSION) for each in changed if each not in had}
        others = {each.id: as_listed(each) for each in known.values() if each is not None}
        aliases = {name: each.id for name, each in known.items() if each is not None}
        found = Overlay((), queued, aliases).listed(rows, others.values(), request, viewer)
        laid.append((request, found[request.offset : end]))
    records.apply(queued)
    for request, found in laid:
        assert [shown(each) for each in found] == [shown(each) for each in listed(records, request)], request


def shown(memory: ListedMemory) -> tuple[object, ...]:
    return memory.id, memory.content, memory.scope, memory.importance, memory.tags, memory.forgotten, memory.version
