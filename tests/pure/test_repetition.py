"""What one scope says twice is one thing; another number, another day and what it was made of are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.contract import Vectors
from remembrancer.actors.store.retrieval.repetition import COMPARED_CHARACTERS, NEAR_COSINE, Said, repetitions
from remembrancer.memory.decay import DAY_S


def at(degrees: float) -> Vectors:
    """A unit vector; two of them with 18 degrees between have a cosine of 0.951, with 19 of 0.946."""
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def said(content: str, name: str = "a", **fields: Any) -> Said:
    given_fields: dict[str, Any] = {"scope": "project", "type": "semantic", "happened_at": 0.0, **fields}
    return Said(id=name, content=content, **given_fields)


PUSH = "Run the whole test suite before each push."
PUSHED = "Before each push, run the whole test suite."


def test_near_texts_that_say_the_same_in_their_words_are_a_pair() -> None:
    assert repetitions([said(PUSH, vector=at(0)), said("x", vector=at(90)), said(PUSHED, vector=at(18))]) == [(0, 2)]


def test_the_words_alone_or_the_vectors_alone_are_not_enough() -> None:
    assert repetitions([said(PUSH, vector=at(0)), said(PUSHED, vector=at(19))]) == []
    assert repetitions([said(PUSH), said(PUSHED, vector=at(0))]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The threshold is 5.", "The threshold is 7."),
        ("Secrets go into the repository.", "Secrets never go into the repository."),
        ("The service is owned by Alice.", "The service is owned by Bob."),
        ("Set `max_size` to the limit.", "Set `min_size` to the limit."),
        ("The importer waits for the exporter.", "The exporter waits for the importer."),
    ],
)
def test_another_number_name_or_denial_is_another_fact_however_near(one: str, other: str) -> None:
    assert repetitions([said(one, vector=at(0)), said(other, vector=at(0))]) == []


def test_one_text_is_a_pair_without_vectors_and_whatever_its_case_and_blanks() -> None:
    assert repetitions([said("Use  tabs."), said("use tabs")]) == [(0, 1)]


def test_a_long_text_is_the_same_only_when_it_is_equal() -> None:
    text = f"{PUSH} " * (COMPARED_CHARACTERS // len(PUSH) + 1)
    assert repetitions([said(text, vector=at(0)), said(text, vector=at(0))]) == [(0, 1)]
    assert repetitions([said(text, vector=at(0)), said(text + PUSHED, vector=at(0))]) == []


def test_other_scopes_sources_and_what_says_nothing_are_left_alone() -> None:
    assert repetitions([said(PUSH), said(PUSH, scope="user")]) == []
    assert repetitions([said(PUSH, "a"), said(PUSH, "b", sources=("a",))]) == []
    assert repetitions([said(PUSH), None]) == []


def test_an_event_is_the_same_only_on_the_same_day() -> None:
    for type_ in ("episodic", "semantic"):
        pairs = repetitions([said(PUSH, type=type_), said(PUSH, type=type_, happened_at=DAY_S)])
        assert pairs == ([] if type_ == "episodic" else [(0, 1)])
    assert repetitions([said(PUSH, type="episodic"), said(PUSH, type="episodic", happened_at=DAY_S - 1)]) == [(0, 1)]


contents = st.sampled_from([PUSH, PUSHED, "The threshold is 5.", "The threshold is 7.", PUSH.upper()])
memories = st.lists(
    st.none() | st.builds(said, contents, vector=st.none() | st.integers(0, 3).map(lambda each: at(each * 10))),
    max_size=8,
)


@given(memories)
def test_every_pair_is_in_order_and_of_equal_or_near_texts(found: list[Said | None]) -> None:
    for one, other in repetitions(found):
        a, b = found[one], found[other]
        assert one < other
        assert a is not None
        assert b is not None
        near = a.vector is not None and b.vector is not None and float(a.vector @ b.vector) > NEAR_COSINE
        assert near or a.content.casefold() == b.content.casefold()
        assert ("threshold" in a.content) == ("threshold" in b.content)
