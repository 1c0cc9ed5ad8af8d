"""Strength and staleness: bounded, fading, and kept up by use; and the rules of maintenance that follow from them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.memory.decay import (
    DAY_S,
    is_stale,
    memory_strength,
    should_archive,
    should_delete,
)
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SCOPES, STANDING, STATUSES, Scope, Status
from tests.cases import cases
from tests.pure.reflection_world import memory as made

NOW = 1_800_000_000.0

shares = st.floats(0.0, 1.0)
counts = st.integers(0, 10_000)
ages = st.floats(0.0, 5_000 * DAY_S)
scopes: st.SearchStrategy[Scope] = st.sampled_from(SCOPES)


def strength(
    scope: Scope, *, days: float = 0.0, importance: float = 1.0, confidence: float = 1.0, access_count: int = 0
) -> float:
    """The strength of a memory that was last accessed so many days ago."""
    return memory_strength(importance, confidence, access_count, NOW - days * DAY_S, scope, NOW)


@given(shares, shares, counts, ages, scopes)
def test_strength_lies_between_0_and_1_and_has_three_digits(
    importance: float, confidence: float, count: int, age_s: float, scope: Scope
) -> None:
    value = memory_strength(importance, confidence, count, NOW - age_s, scope, NOW)
    assert 0.0 <= value <= 1.0
    assert value == round(value, 3)
    assert value <= importance * confidence + 0.0005 + 1e-12


@given(shares, shares, shares, counts, ages, scopes)
def test_more_importance_or_confidence_is_never_weaker(
    less: float, more: float, other: float, count: int, age_s: float, scope: Scope
) -> None:
    less, more = sorted((less, more))
    at = NOW - age_s
    assert memory_strength(less, other, count, at, scope, NOW) <= memory_strength(more, other, count, at, scope, NOW)
    assert memory_strength(other, less, count, at, scope, NOW) <= memory_strength(other, more, count, at, scope, NOW)


@given(shares, shares, counts, counts, ages, ages, scopes)
def test_use_never_weakens_and_time_never_strengthens(
    importance: float, confidence: float, fewer: int, more: int, earlier_s: float, later_s: float, scope: Scope
) -> None:
    fewer, more = sorted((fewer, more))
    earlier_s, later_s = sorted((earlier_s, later_s))

    def value(count: int, age_s: float) -> float:
        return memory_strength(importance, confidence, count, NOW - age_s, scope, NOW)

    assert value(fewer, later_s) <= value(more, later_s)
    assert value(fewer, later_s) <= value(fewer, earlier_s)


@given(shares, shares, counts, ages)
def test_a_sessions_memories_do_not_decay(importance: float, confidence: float, count: int, age_s: float) -> None:
    value = memory_strength(importance, confidence, count, NOW - age_s, "session", NOW)
    assert value == math.floor(importance * confidence * 1000 + 0.5) / 1000


@given(shares, shares, counts, ages, st.sampled_from(["project", "user"]))
def test_an_access_in_the_future_counts_as_now(
    importance: float, confidence: float, count: int, ahead_s: float, scope: Scope
) -> None:
    now = memory_strength(importance, confidence, count, NOW, scope, NOW)
    assert memory_strength(importance, confidence, count, NOW + ahead_s, scope, NOW) == now


@given(shares, counts, ages)
def test_the_user_forgets_more_slowly_than_a_project(importance: float, count: int, age_s: float) -> None:
    at = NOW - age_s
    project = memory_strength(importance, 1.0, count, at, "project", NOW)
    assert project <= memory_strength(importance, 1.0, count, at, "user", NOW)


@pytest.mark.parametrize(
    ("scope", "days", "access_count", "expected"),
    cases("dynamics", "halves"),
)
def test_strength_halves_with_each_half_life_of_the_seed(
    scope: Scope, days: float, access_count: int, expected: float
) -> None:
    assert strength(scope, days=days, access_count=access_count) == expected
    assert strength("session", importance=0.5, confidence=0.125) == 0.063, "half a thousandth is rounded up"
    assert strength("session", importance=0.499, confidence=0.125) == 0.062


@pytest.mark.parametrize(
    ("status", "days", "access_count", "expected"),
    cases("dynamics", "stale"),
)
def test_what_is_active_and_rarely_used_goes_stale_after_thirty_days(
    status: Status, days: float, access_count: int, expected: bool
) -> None:
    assert is_stale(status, NOW - days * DAY_S, access_count, NOW) is expected


@given(st.sampled_from(STATUSES), st.floats(-100 * DAY_S, 5_000 * DAY_S), counts, counts)
def test_an_access_never_makes_a_memory_stale(status: Status, age_s: float, fewer: int, more: int) -> None:
    fewer, more = sorted((fewer, more))
    if is_stale(status, NOW - age_s, more, NOW):
        assert is_stale(status, NOW - age_s, fewer, NOW)
    assert not is_stale(status, NOW, fewer, NOW)


# --- The rules of archiving and deleting: at the numbers exactly, and never more than they say.


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


def weak(scope: Scope = "project", /, **changes: Any) -> Material:
    """A memory that is just weak, old and unused enough to be archived, with what is to be different."""
    strength, days = {"project": (0.049, 14.01), "user": (0.019, 90.01), "session": (0.0, 400.0)}[scope]
    created = NOW - days * DAY_S
    given = {"scope": scope, "importance": strength, "confidence": 1.0, "last_accessed_at": NOW, "access_count": 1}
    return made(0, **{**given, "created_at": created, "updated_at": created, **changes})


def archived(scope: Scope, days: float) -> Material:
    """A memory that was archived so many days ago."""
    return weak(scope, status="archived", created_at=NOW - 500 * DAY_S, updated_at=NOW - days * DAY_S)


@pytest.mark.parametrize(
    ("scope", "changes", "is_archived"),
    [
        ("project", {}, True),
        ("project", {"importance": 0.05}, False),
        ("project", {"created_at": NOW - 14 * DAY_S}, False),
        ("project", {"access_count": 2}, False),
        ("project", {"scope": "user"}, False),
        ("user", {}, True),
        ("user", {"importance": 0.02}, False),
        ("user", {"created_at": NOW - 90 * DAY_S}, False),
        ("user", {"access_count": 2}, False),
        ("user", {"scope": "project"}, True),
        ("session", {}, False),
        *((scope, {"kind": kind}, False) for kind in STANDING for scope in ("project", "user")),
        *(("project", {"status": status}, False) for status in STATUSES if status != "active"),
    ],
)
def test_what_is_active_weak_old_and_unused_is_archived_unless_it_stands_and_the_user_s_more_slowly(
    scope: Scope, changes: dict[str, Any], is_archived: bool
) -> None:
    assert should_archive(weak(scope, **changes), NOW) is is_archived


def test_what_was_archived_is_deleted_after_ninety_days_without_a_change() -> None:
    assert should_delete(archived("project", 90.01), NOW)
    assert not should_delete(archived("project", 90), NOW)
    assert not should_delete(archived("session", 400), NOW)
    for status in ("active", "consolidated"):
        assert not should_delete(replace(archived("project", 200), status=status), NOW)


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
