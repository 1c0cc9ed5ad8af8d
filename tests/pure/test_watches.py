"""The looks at a watched resource, the writes that concern it, and what a session was served."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway import resources
from remembrancer.actors.gateway.resources import (
    FIXED,
    GRAPH,
    MEMORY_START,
    PREFERENCES,
    STATUS,
    SUMMARY,
    RecallCounts,
)
from remembrancer.actors.gateway.subscriptions import COALESCE_S, LONGEST_S, MAX_WATCHES, Watches, concerns
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Change, ForgetMemory, Operation, ProjectRef, PromoteMemory
from remembrancer.toolsets.service import Caller
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, memory_id_of, store_operation


def test_a_mark_is_due_after_a_moment_of_quiet() -> None:
    watches = Watches()
    watches.add(STATUS, "old")
    assert watches.next_due() is None
    watches.mark(STATUS, 10.0)
    assert watches.next_due() == 10.0 + COALESCE_S
    assert watches.take_due(10.0) == []
    assert watches.take_due(10.0 + COALESCE_S) == [STATUS]
    assert watches.next_due() is None


@given(st.lists(st.floats(0.01, 0.25), min_size=1, max_size=40))
def test_a_busy_resource_waits_no_longer_than_the_longest_time(pauses: list[float]) -> None:
    watches = Watches()
    watches.add(STATUS, "old")
    now = 0.0
    watches.mark(STATUS, now)
    for pause in pauses:
        now += pause
        watches.mark(STATUS, now)
    due = watches.next_due()
    assert due is not None
    assert due == min(LONGEST_S, now + COALESCE_S)


def test_only_another_content_is_told_and_only_once() -> None:
    watches = Watches()
    watches.add(STATUS, "old")
    assert not watches.has_news(STATUS, "old")
    assert watches.has_news(STATUS, "new")
    assert not watches.has_news(STATUS, "new")
    assert not watches.has_news(GRAPH, "never watched")


def test_a_content_that_is_not_known_is_told_of_when_it_is() -> None:
    watches = Watches()
    watches.add(STATUS, None)
    assert watches.has_news(STATUS, "whatever")


def test_a_resource_is_watched_until_the_last_holder_has_gone() -> None:
    watches = Watches()
    watches.add(STATUS, "a")
    watches.add(STATUS, "b")
    watches.remove(STATUS)
    assert STATUS in watches
    watches.remove(STATUS)
    watches.remove(STATUS)
    assert len(watches) == 0
    watches.mark(STATUS, 0.0)
    assert watches.next_due() is None


def test_there_is_a_limit_that_a_known_resource_does_not_count_against() -> None:
    watches = Watches()
    for number in range(MAX_WATCHES):
        watches.add(f"{MEMORY_START}{number}", "a")
    watches.add(f"{MEMORY_START}0", "a")
    with pytest.raises(InvalidInput, match="200 resources at most"):
        watches.add(STATUS, "a")


def seen(operation: Operation, project_id: str = PROJECT.id, session_id: str = SESSION) -> set[str]:
    return {uri for uri in FIXED if concerns(operation, uri, project_id, session_id)}


def change(operation: Change) -> Operation:
    return Operation("change", PROJECT, SESSION, 0.0, operation)


def test_a_project_memory_concerns_the_sessions_of_its_project() -> None:
    stored = store_operation("a", "text")
    assert seen(stored) == {STATUS, GRAPH, SUMMARY}
    assert seen(stored, session_id=OTHER_SESSION) == {STATUS, GRAPH}
    assert seen(stored, project_id=OTHER_PROJECT.id) == set()


def test_a_user_memory_concerns_everybody() -> None:
    stored = store_operation("a", "text", scope="user")
    assert seen(stored) == set(FIXED)
    assert seen(stored, OTHER_PROJECT.id, OTHER_SESSION) == {STATUS, GRAPH, PREFERENCES}


def test_a_session_memory_concerns_its_session_alone() -> None:
    stored = store_operation("a", "text", scope="session")
    assert seen(stored) == {STATUS, GRAPH, SUMMARY}
    assert seen(stored, session_id=OTHER_SESSION) == set()


@pytest.mark.parametrize("changed", [ForgetMemory("memory:x"), PromoteMemory("memory:x", "user")])
def test_a_change_may_concern_everybody_for_the_memory_may_be_the_user_s(changed: Change) -> None:
    assert seen(change(changed), OTHER_PROJECT.id, OTHER_SESSION) == set(FIXED)


def test_one_memory_is_concerned_by_its_own_writes_alone() -> None:
    stored = store_operation("a", "text")
    memory_id = memory_id_of(stored)
    assert concerns(stored, MEMORY_START + memory_id, PROJECT.id, SESSION)
    assert concerns(change(ForgetMemory(memory_id)), MEMORY_START + memory_id[7:], PROJECT.id, SESSION)
    assert not concerns(store_operation("b", "text"), MEMORY_START + memory_id, PROJECT.id, SESSION)


def test_a_run_may_concern_any_memory_and_a_session_s_life_its_summary_and_status_alone() -> None:
    uri = MEMORY_START + memory_id_of(store_operation("a", "text"))
    for run in (ApplyRun("run", "project", "consolidation", "promote", ()), UndoRun("run", "project")):
        assert seen(change(run)) == set(FIXED)
        assert concerns(change(run), uri, PROJECT.id, SESSION)
    for life in (StartSession(SESSION), EndSession(SESSION), RecordEvents(SESSION)):
        assert seen(change(life)) == {SUMMARY, STATUS}
        assert seen(change(life), session_id=OTHER_SESSION) == set()
        assert seen(change(life), project_id=OTHER_PROJECT.id) == set()
        assert not concerns(change(life), uri, PROJECT.id, SESSION)


def caller(session: str) -> Caller:
    return Caller("bridge", session, ProjectRef("p", "/"), 0.0)


def test_queries_are_counted_and_each_memory_once() -> None:
    counts = RecallCounts(0.0)
    assert counts.served("p", "s") == (0, 0)
    counts.heard_recall(caller("s"), ("a", "b"))
    counts.heard_recall(caller("s"), ("b", "c"))
    counts.heard_recall(caller("s"), ())
    counts.heard_recall(caller("other"), ("z",))
    assert counts.served("p", "s") == (3, 3)
    assert counts.last_shown("p", "s") == ["b", "c", "a"]
    assert counts.last_shown("q", "s") == []


def test_the_counts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MAX_SESSIONS", 2)
    monkeypatch.setattr(resources, "MAX_MEMORIES", 2)
    counts = RecallCounts(0.0)
    for session in ("one", "two", "one", "three"):
        counts.heard_recall(caller(session), ("a", "b", "c"))
    assert counts.served("p", "two") == (0, 0)
    assert counts.served("p", "one") == (2, 2)
    assert counts.served("p", "three") == (1, 2)
