"""Repetitions are said once: across scopes by the winner, in one scope where the words say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.contract import Vectors
from remembrancer.actors.store.retrieval.once import COMPARED_CHARACTERS, SAME_COSINE, Entry, each_once
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import SCOPES, Scope
from tests.pure.test_once import NOW, TOLD, entry, ids


def at(degrees: float) -> Vectors:
    """A unit vector. Two of them with 25 degrees between have a cosine of 0.906, with 26 of 0.899; with 18 degrees of
    0.951, with 19 of 0.946."""
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def in_order(*entries: Entry) -> list[Entry]:
    """The entries that are left of some, ranked as they are given: their final scores are 100, 99 …"""
    for place, each in enumerate(entries):
        object.__setattr__(each, "scores", type(each.scores)(100.0 - place, 1.0, 0.5, 1.0))
    return each_once(entries)


def said(name: str, scope: Scope = "project", degrees: float | None = 0.0, **fields: Any) -> Entry:
    """A memory that says the same as all others, unless `fields` has another content."""
    vector = None if degrees is None else at(degrees)
    return entry(name, 0.0, scope=scope, vector=vector, **{"content": TOLD, **fields})


# --- Of several scopes.


@pytest.mark.parametrize(("broader", "narrower"), [("user", "project"), ("user", "session"), ("project", "session")])
def test_the_broader_scope_wins_unless_the_other_is_more_than_twice_as_strong(broader: Scope, narrower: Scope) -> None:
    for strength, expected in ((0.1, "wide"), (0.5, "wide"), (0.501, "near")):
        wide, near = said("wide", broader, strength=0.25), said("near", narrower, strength=strength)
        assert ids(in_order(wide, near)) == [expected]
        assert ids(in_order(near, wide)) == [expected]


def test_of_one_id_in_two_scopes_the_broader_is_kept_unless_the_other_was_updated_later() -> None:
    for updated_at, scope in ((99.0, "user"), (100.0, "user"), (100.5, "project")):
        wide = said("one", "user", strength=0.1, updated_at=100.0)
        near = said("one", "project", strength=0.9, updated_at=updated_at)
        for pair in ((wide, near), (near, wide)):
            (kept,) = in_order(*pair)
            assert (kept.record.scope, kept.stands_for) == (scope, ())


def test_a_cosine_of_the_threshold_itself_is_not_above_it() -> None:
    assert ids(in_order(said("a", "session"), said("b", degrees=26))) == ["a", "b"]
    assert ids(in_order(said("a", "session"), said("b", degrees=25))) == ["b"]


def test_without_a_vector_a_memory_of_another_scope_is_known_by_its_id_alone() -> None:
    first, second = in_order(said("a", "session"), said("b", degrees=None), said("a", "user", degrees=None))
    assert (first.record.scope, first.found_in, first.stands_for) == ("user", ("session", "user"), ())
    assert second.record.id == "b"


def test_one_broad_memory_may_stand_for_several_narrow_ones() -> None:
    (kept,) = in_order(
        said("a", "session", 0, tags=("x", "y")),
        said("b", "session", 5),
        said("c", "project", 10, tags=("z",)),
        said("d", "user", 3, tags=("y",)),
    )
    assert (kept.record.id, kept.stands_for) == ("d", ("a", "b", "c"))
    assert kept.found_in == ("session", "project", "user")
    assert kept.tags == ("y", "x", "z")


def test_the_winner_takes_the_rank_of_the_first_that_it_stands_for() -> None:
    kept = in_order(said("a", "session"), said("other", "session", 90, content="else"), said("b", "user"))
    assert [(each.record.id, each.scores.final) for each in kept] == [("b", 100.0), ("other", 99.0)]


def test_what_loses_to_one_does_not_take_others_with_it() -> None:
    """The project's is like both, and beats the session's alone: the user's stands for it, the session's for itself."""
    kept = in_order(said("session", "session", -20), said("user", "user", 20), said("project", "project", 0))
    assert [(each.record.id, each.stands_for) for each in kept] == [("session", ()), ("user", ("project",))]


# --- Of one scope.

PUSH = "Run the whole test suite before each push."
PUSHED = "Before each push, run the whole test suite."


def left(*entries: Entry) -> list[str]:
    return ids(in_order(*entries))


def test_near_texts_that_say_the_same_in_their_words_are_one() -> None:
    others = said("b", degrees=90, content="x"), said("c", degrees=18, content=PUSHED)
    assert left(said("a", content=PUSH), *others) == ["a", "b"]


def test_the_words_alone_or_the_vectors_alone_are_not_enough() -> None:
    assert left(said("a", content=PUSH), said("b", degrees=19, content=PUSHED)) == ["a", "b"]
    assert left(said("a", degrees=None, content=PUSH), said("b", content=PUSHED)) == ["a", "b"]


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
    assert left(said("a", content=one), said("b", content=other)) == ["a", "b"]


def test_one_text_is_one_thing_without_vectors_and_whatever_its_case_and_blanks() -> None:
    assert left(said("a", degrees=None, content="Use  tabs."), said("b", degrees=None, content="use tabs")) == ["a"]


def test_a_long_text_is_the_same_only_when_it_is_equal() -> None:
    text = f"{PUSH} " * (COMPARED_CHARACTERS // len(PUSH) + 1)
    assert left(said("a", content=text), said("b", content=text)) == ["a"]
    assert left(said("a", content=text), said("b", content=text + PUSHED)) == ["a", "b"]


def test_what_is_not_current_is_left_alone() -> None:
    over = Entry((0, 2), said("b").record, said("b").scores, 0.5, is_current=False)
    assert left(said("a"), over) == ["a", "b"]


def test_an_event_is_the_same_only_on_the_same_day() -> None:
    for type_, apart_s, expected in (
        ("episodic", DAY_S, ["a", "b"]),
        ("semantic", DAY_S, ["a"]),
        ("episodic", DAY_S - 1, ["a"]),
    ):
        first, second = said("a", type=type_, occurred_at=NOW), said("b", type=type_, occurred_at=NOW + apart_s)
        assert left(first, second) == expected


# --- Whatever is given.

scopes: st.SearchStrategy[Scope] = st.sampled_from(SCOPES)
memories = st.builds(
    said,
    st.sampled_from([f"memory:{n}" for n in range(10)]),
    scopes,
    st.none() | st.integers(0, 36).map(lambda turn: turn * 10.0),
    strength=st.integers(0, 20).map(lambda n: n / 20),
    updated_at=st.integers(0, 3).map(float),
    tags=st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple),
    content=st.sampled_from([TOLD, PUSH, PUSHED, "The threshold is 5.", "The threshold is 7.", PUSH.upper()]),
)
found = st.lists(memories, max_size=14, unique_by=lambda each: (each.record.id, each.record.scope))


@given(found)
def test_no_two_that_are_left_say_the_same(given_list: list[Entry]) -> None:
    kept = in_order(*given_list)
    assert len(set(ids(kept))) == len(kept)
    for one in kept:
        for two in kept:
            same = one.record.content == two.record.content and one.record.scope != two.record.scope
            if same and one.vector is not None and two.vector is not None:
                assert float(one.vector @ two.vector) <= SAME_COSINE + 1e-6


@given(found)
def test_every_memory_tag_and_scope_is_accounted_for(given_list: list[Entry]) -> None:
    kept = in_order(*given_list)
    assert {name for each in kept for name in (each.record.id, *each.stands_for)} == set(ids(given_list))
    tags = {tag for each in kept for tag in (*each.record.tags, *each.tags)}
    assert tags == {tag for each in given_list for tag in each.record.tags}
    seen = {scope for each in kept for scope in (each.record.scope, *each.found_in)}
    assert seen == {each.record.scope for each in given_list}
    assert finals(kept) == sorted(set(finals(kept)), reverse=True), "the order of the list is kept"
    for each in kept:
        assert each.record.id not in each.stands_for
        assert not each.found_in or each.record.scope in each.found_in


def finals(entries: Sequence[Entry]) -> list[float]:
    return [each.scores.final for each in entries]
