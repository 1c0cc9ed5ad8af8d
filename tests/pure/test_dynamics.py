"""Strength and staleness: bounded, fading, and kept up by use; and the rules of maintenance that follow from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.memory.decay import DAY_S, is_stale, memory_strength, should_archive, should_delete
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SCOPES, STATUSES, Scope, Status
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


@given(st.tuples(shares, shares), st.tuples(shares, shares), st.tuples(counts, counts), st.tuples(ages, ages), scopes)
def test_strength_is_a_share_of_three_digits_that_grows_with_use_and_falls_with_time_outside_sessions(
    importances: tuple[float, float],
    confidences: tuple[float, float],
    uses: tuple[int, int],
    ages_s: tuple[float, float],
    scope: Scope,
) -> None:
    def value(importance: float, confidence: float, count: int, age_s: float, of: Scope = scope) -> float:
        return memory_strength(importance, confidence, count, NOW - age_s, of, NOW)

    weaker = min(importances), min(confidences), min(uses), max(ages_s)
    strength = value(*weaker)
    assert 0.0 <= strength == round(strength, 3) <= weaker[0] * weaker[1] + 0.0005 + 1e-12
    for place, better in enumerate((max(importances), max(confidences), max(uses), min(ages_s))):
        assert strength <= value(*weaker[:place], better, *weaker[place + 1 :])  # type: ignore[arg-type, call-arg]
    assert value(*weaker[:3], -weaker[3]) == value(*weaker[:3], 0.0), "an access in the future counts as now"
    assert value(*weaker, "session") == value(*weaker[:3], 0.0, "session") >= strength
    assert value(*weaker, "project") <= value(*weaker, "user"), "which forgets more slowly"


@pytest.mark.parametrize(("scope", "days", "access_count", "expected"), cases("dynamics", "halves"))
def test_strength_halves_with_each_half_life_of_the_seed(
    scope: Scope, days: float, access_count: int, expected: float
) -> None:
    assert strength(scope, days=days, access_count=access_count) == expected
    assert strength("session", importance=0.5, confidence=0.125) == 0.063, "half a thousandth is rounded up"
    assert strength("session", importance=0.499, confidence=0.125) == 0.062


@pytest.mark.parametrize(("status", "days", "access_count", "expected"), cases("dynamics", "stale"))
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
        *((scope, {"type": other}, False) for other in ("semantic", "procedural") for scope in ("project", "user")),
        *(("project", {"status": status}, False) for status in STATUSES if status != "active"),
    ],
)
def test_what_is_active_weak_old_and_unused_is_archived_if_it_happened_and_the_user_s_more_slowly(
    scope: Scope, changes: dict[str, Any], is_archived: bool
) -> None:
    assert should_archive(weak(scope, **changes), NOW) is is_archived


def test_what_was_archived_is_deleted_after_ninety_days_without_a_change() -> None:
    assert should_delete(archived("project", 90.01), NOW)
    assert not should_delete(archived("project", 90), NOW)
    assert not should_delete(archived("session", 400), NOW)
    assert not should_delete(replace(archived("project", 200), type="semantic"), NOW)
    for status in ("active", "consolidated"):
        assert not should_delete(replace(archived("project", 200), status=status), NOW)


@given(facts)
def test_nothing_of_the_user_is_ever_deleted(memory: Material) -> None:
    assert not should_delete(replace(memory, scope="user"), NOW)


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
