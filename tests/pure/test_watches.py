"""The writes that a watched resource is told of for, and what a session was served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from remembrancer.actors.gateway.subscriptions import MAX_WATCHES, SessionWatcher
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Change, ForgetMemory, Operation, ProjectRef, PromoteMemory
from remembrancer.toolsets.memory import resources
from remembrancer.toolsets.memory.resources import FIXED, MEMORY_START, STATUS, SUMMARY, RecallCounts
from remembrancer.toolsets.service import Caller
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, memory_id_of, store_operation
from tests.patience import until


@asynccontextmanager
async def watching(session_id: str = SESSION, project: ProjectRef = PROJECT) -> AsyncIterator[SessionWatcher]:
    async with anyio.create_task_group() as tasks:
        yield SessionWatcher(caller(session_id, project), tasks)
        tasks.cancel_scope.cancel()


async def test_many_writes_are_told_of_once() -> None:
    heard: list[str] = []

    async def tell(uri: str) -> None:
        heard.append(uri)

    async with watching() as watcher:
        for uri in FIXED:
            watcher.subscribe(uri, tell, is_replay=False)
        for number in range(5):
            watcher.heard_write(store_operation(str(number), "text", scope="user"))
        await until(lambda: not watcher._is_telling)
    assert sorted(heard) == sorted(FIXED)


async def test_a_resource_is_watched_until_the_last_holder_has_gone_and_so_many_at_most() -> None:
    async with watching() as watcher:
        for _ in range(2):
            watcher.hold(STATUS, is_replay=False)
        watcher.release((STATUS,))
        watcher.mark()
        assert watcher._marked == {STATUS}
        watcher.release((STATUS, STATUS))
        assert not watcher._held
    async with watching() as watcher:
        for number in range(MAX_WATCHES):
            watcher.hold(f"{MEMORY_START}{number}", is_replay=False)
        watcher.hold(f"{MEMORY_START}0", is_replay=False)
        with pytest.raises(InvalidInput, match="200 resources at most"):
            watcher.hold(STATUS, is_replay=False)


async def seen(
    operation: Operation, project: ProjectRef = PROJECT, session_id: str = SESSION, *, also: str = ""
) -> set[str]:
    """The resources that a session hears of after a write."""
    async with watching(session_id, project) as watcher:
        for uri in (*FIXED, also) if also else FIXED:
            watcher.hold(uri, is_replay=False)
        watcher.heard_write(operation)
        return set(watcher._marked)


def change(operation: Change) -> Operation:
    return Operation("change", PROJECT, SESSION, 0.0, operation)


@pytest.mark.parametrize(
    ("operation", "others"),
    [
        (store_operation("a", "text"), {OTHER_SESSION}),
        (store_operation("a", "text", scope="session"), set()),
        (store_operation("a", "text", scope="user"), {OTHER_SESSION, OTHER_PROJECT}),
        (change(ForgetMemory("memory:x")), {OTHER_SESSION, OTHER_PROJECT}),  # the memory may be the user's
        (change(PromoteMemory("memory:x", "user")), {OTHER_SESSION, OTHER_PROJECT}),
    ],
)
async def test_a_memory_of_a_session_or_project_concerns_it_alone_and_any_other_everybody(
    operation: Operation, others: set[str | ProjectRef]
) -> None:
    assert await seen(operation) == set(FIXED)
    assert await seen(operation, session_id=OTHER_SESSION) == (set(FIXED) if OTHER_SESSION in others else set())
    in_another = await seen(operation, OTHER_PROJECT, OTHER_SESSION)
    assert in_another == (set(FIXED) if OTHER_PROJECT in others else set())


async def test_one_memory_is_concerned_by_its_own_writes_alone() -> None:
    stored = store_operation("a", "text")
    memory_id = memory_id_of(stored)
    whole, bare = MEMORY_START + memory_id, MEMORY_START + memory_id[7:]
    assert whole in await seen(stored, also=whole)
    assert bare in await seen(change(ForgetMemory(memory_id)), also=bare)
    assert whole not in await seen(store_operation("b", "text"), also=whole)


async def test_a_run_may_concern_any_memory_and_a_session_s_life_its_summary_and_status_alone() -> None:
    uri = MEMORY_START + memory_id_of(store_operation("a", "text"))
    for run in (ApplyRun("run", "project", "consolidation", "promote", ()), UndoRun("run", "project")):
        assert await seen(change(run), also=uri) == {*FIXED, uri}
    for life in (StartSession(SESSION), EndSession(SESSION), RecordEvents(SESSION)):
        assert await seen(change(life), also=uri) == {SUMMARY, STATUS}
        assert await seen(change(life), session_id=OTHER_SESSION) == set()
        assert await seen(change(life), OTHER_PROJECT) == set()


def caller(session: str = SESSION, project: ProjectRef = PROJECT) -> Caller:
    return Caller("bridge", session, project, 0.0)


P = ProjectRef("p", "/")


def test_queries_are_counted_and_each_memory_once_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RecallCounts(0.0)
    assert counts.served("p", "s") == (0, 0)
    counts.heard_recall(caller("s", P), ("a", "b"))
    counts.heard_recall(caller("s", P), ("b", "c"))
    counts.heard_recall(caller("s", P), ())
    counts.heard_recall(caller("other", P), ("z",))
    assert counts.served("p", "s") == (3, 3)
    monkeypatch.setattr(resources, "MAX_SESSIONS", 2)
    monkeypatch.setattr(resources, "MAX_MEMORIES", 2)
    counts = RecallCounts(0.0)
    for session in ("one", "two", "one", "three"):
        counts.heard_recall(caller(session, P), ("a", "b", "c"))
    assert counts.served("p", "two") == (0, 0)
    assert counts.served("p", "one") == (2, 2)
    assert counts.served("p", "three") == (1, 2)
