"""The rules of archiving and deleting: at the numbers exactly, and never more than they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.memory.decay import DAY_S, ArchiveRule, MaintenanceRules, should_archive, should_delete
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SCOPES, STATUSES, Scope, Status
from tests.pure.reflection_world import memory as made

NOW = 1_800_000_000.0

facts = st.builds(
    made,
    st.just(0),
    confidence=st.just(1.0),
    last_accessed_at=st.just(NOW),
    scope=st.sampled_from(SCOPES),
    status=st.sampled_from(STATUSES),
    importance=st.floats(0.0, 1.0),
    created_at=st.floats(NOW - 400 * DAY_S, NOW + 10 * DAY_S),
    updated_at=st.floats(NOW - 400 * DAY_S, NOW + 10 * DAY_S),
    access_count=st.integers(0, 10),
)


def weak(scope: Scope = "project", **changes: Any) -> Material:
    """A memory that is just weak, old and unused enough to be archived, with what is to be different."""
    strength, days = {"project": (0.049, 14.01), "user": (0.019, 90.01), "session": (0.0, 400.0)}[scope]
    created = NOW - days * DAY_S
    given = {"scope": scope, "importance": strength, "confidence": 1.0, "last_accessed_at": NOW, "access_count": 1}
    return made(0, **{**given, "created_at": created, "updated_at": created, **changes})


def archived(scope: Scope, days: float) -> Material:
    """A memory that was archived so many days ago."""
    return weak(scope, status="archived", created_at=NOW - 500 * DAY_S, updated_at=NOW - days * DAY_S)


def test_a_project_archives_what_is_weak_old_and_unused() -> None:
    assert should_archive(weak(), NOW)
    assert not should_archive(weak(importance=0.05), NOW)
    assert not should_archive(weak(created_at=NOW - 14 * DAY_S), NOW)
    assert not should_archive(weak(access_count=2), NOW)


def test_the_user_archives_more_slowly() -> None:
    assert should_archive(weak("user"), NOW)
    assert not should_archive(weak("user", importance=0.02), NOW)
    assert not should_archive(weak("user", created_at=NOW - 90 * DAY_S), NOW)
    assert not should_archive(weak("user", access_count=2), NOW)
    assert should_archive(replace(weak("user"), scope="project"), NOW)
    assert not should_archive(replace(weak("project"), scope="user"), NOW)


def test_a_sessions_memories_are_left_alone() -> None:
    assert not should_archive(weak("session"), NOW)
    assert not should_delete(archived("session", 400), NOW)


@pytest.mark.parametrize("status", [each for each in STATUSES if each != "active"])
def test_only_what_is_active_is_archived(status: Status) -> None:
    assert not should_archive(weak(status=status), NOW)


def test_what_was_archived_is_deleted_after_ninety_days_without_a_change() -> None:
    assert should_delete(archived("project", 90.01), NOW)
    assert not should_delete(archived("project", 90), NOW)
    assert not should_delete(replace(archived("project", 200), status="active"), NOW)
    assert not should_delete(replace(archived("project", 200), status="consolidated"), NOW)


@given(facts)
def test_nothing_of_the_user_is_ever_deleted(memory: Material) -> None:
    assert not should_delete(replace(memory, scope="user"), NOW)


@given(facts)
def test_no_memory_is_archived_and_deleted_in_one_pass(memory: Material) -> None:
    assert not (should_archive(memory, NOW) and should_delete(memory, NOW))


@given(facts, st.floats(0.0, 1.0), st.floats(0.0, 100 * DAY_S), st.integers(0, 5))
def test_a_stronger_younger_or_more_used_memory_is_not_archived_sooner(
    memory: Material, stronger: float, younger_s: float, used: int
) -> None:
    better = replace(
        memory,
        importance=min(1.0, memory.importance + stronger),
        created_at=memory.created_at + younger_s,
        access_count=memory.access_count + used,
    )
    if should_archive(better, NOW):
        assert should_archive(memory, NOW)


@given(facts, st.floats(0.0, 400 * DAY_S))
def test_a_clock_that_was_set_back_archives_and_deletes_nothing_more(memory: Material, back_s: float) -> None:
    assert should_archive(memory, NOW) or not should_archive(memory, NOW - back_s)
    assert should_delete(memory, NOW) or not should_delete(memory, NOW - back_s)


def test_other_numbers_may_be_given() -> None:
    rules = MaintenanceRules(project=ArchiveRule(0.5, DAY_S, 10), delete_after_s=DAY_S)
    memory = weak(importance=0.49, created_at=NOW - 2 * DAY_S, access_count=9)
    assert should_archive(memory, NOW, rules)
    assert not should_archive(memory, NOW)
    assert should_delete(archived("project", 2), NOW, rules)
