"""A newer memory against an older one: what contradicts, what only adds, and what is about something else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.contradictions import (
    Contradiction,
    contradiction,
    contradictions_with,
    says_the_same,
)
from remembrancer.memory.names import SAME_SUBJECT_COSINE
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Kind, type_of_kind
from tests.pure.reflection_world import memory

OLD, NEW = "The API listens on port 8080", "The API listens on port 9090"


def fact(content: str, when: float = 1.0, entities: tuple[str, ...] = ("subject",), kind: Kind = "fact") -> Material:
    fields: dict[str, Any] = {"kind": kind, "type": type_of_kind(kind), "created_at": when, "entities": entities}
    return memory(0, content, id=f"memory:{when:g}", **fields)


def found(older: str, newer: str, cosine: float = 0.9) -> Contradiction | None:
    return contradiction(fact(older, 1.0), fact(newer, 2.0), cosine)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (OLD, NEW),
        ("The project needs Python 3.11", "The project needs Python 3.12"),
        ("Logs are kept for 30 days", "Logs are kept for 90 days"),
        ("Der Dienst nutzt Postgres", "Der Dienst nutzt kein Postgres mehr"),
    ],
)
def test_another_value_of_the_same_thing_contradicts(older: str, newer: str) -> None:
    assert found(older, newer) == Contradiction("memory:1", "memory:2", 0.9)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The API uses Postgres", "The API does not use MySQL"),
        ("The API uses Postgres in production", "The API uses SQLite in tests"),
        ("The limit for uploads is 10 MB", "The limit for downloads is 50 MB"),
        ("We use Redis for caching", "We use Redis for sessions"),
        ("Alice prefers tabs", "Bob prefers spaces"),
        ("All endpoints need a token", "Every endpoint needs a token"),
        ("The first run took 40 seconds", "The second run took 12 seconds"),
        ("The user likes Thai food", "The user likes Italian food"),
        ("", "The API uses Postgres"),
        ("…", "!"),
    ],
)
def test_a_detail_another_subject_or_another_case_contradicts_nothing(older: str, newer: str) -> None:
    assert found(older, newer) is None
    assert found(newer, older) is None
    assert found(older, older) is None


def test_what_is_not_near_contradicts_nothing() -> None:
    assert found(OLD, NEW, SAME_SUBJECT_COSINE) is not None
    assert found(OLD, NEW, SAME_SUBJECT_COSINE - 0.01) is None


@pytest.mark.parametrize("kind", ["tool_outcome", "scratchpad", "observation"])
def test_what_held_for_a_moment_contradicts_nothing(kind: Kind) -> None:
    assert contradiction(fact(OLD, 1.0, kind=kind), fact(NEW, 2.0, kind=kind), 0.95) is None


def test_what_is_over_contradicts_nothing_any_more() -> None:
    older = memory(1, OLD, kind="fact", type="semantic", entities=("subject",), valid_until=5.0)
    newer = memory(2, NEW, kind="fact", type="semantic", entities=("subject",))
    assert len(contradictions_with(newer, [(older, 0.9)], 4.0)) == 1
    assert contradictions_with(newer, [(older, 0.9)], 6.0) == []


@given(st.text(max_size=80), st.text(max_size=80), st.floats(-1.0, 1.0))
def test_any_two_texts_can_be_compared_in_either_order(one: str, two: str, cosine: float) -> None:
    first, second = fact(one, 1.0), fact(two, 2.0)
    each = contradiction(first, second, cosine)
    assert each == contradiction(second, first, cosine)
    assert each is None or (cosine >= SAME_SUBJECT_COSINE and one != two)


def test_what_another_one_says_as_well_stands_for_it_unless_that_is_over_or_made_of_it() -> None:
    text = "The API runs on Postgres"
    one, other = memory(1, text), memory(2, text + ".")
    assert says_the_same(one, [(other, 0.99)], 10.0, 0.85) == (other, 0.99)
    assert says_the_same(one, [(other, 0.85)], 10.0, 0.85) is None
    for changes in ({"valid_until": 5.0}, {"is_derived": True}, {"derived_from": (one.id,)}):
        assert says_the_same(one, [(memory(2, text, **changes), 0.99)], 10.0, 0.85) is None
