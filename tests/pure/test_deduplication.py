"""What several scopes say alike is said once, by the seed's winner, and nothing else is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from remembrancer.actors.store.retrieval.deduplication import (
    KeptMemory,
    ScopedMemory,
    deduplicate,
    later_or_broader,
    winner,
)
from remembrancer.protocol.kinds import SCOPES, Scope

Vector = NDArray[np.float32]


def memory(name: str, scope: Scope, strength: float = 0.5, updated_at: float = 0.0, *tags: str) -> ScopedMemory:
    return ScopedMemory(name, scope, strength, updated_at, tags)


def at(degrees: float) -> Vector:
    """A unit vector; two of them with 25 degrees between have a cosine of 0.906, with 26 of 0.899."""
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def ids(kept: list[KeptMemory]) -> list[str]:
    return [each.memory.id for each in kept]


# --- Which of two.


@pytest.mark.parametrize(("broader", "narrower"), [("user", "project"), ("user", "session"), ("project", "session")])
def test_the_broader_scope_wins_unless_the_other_is_more_than_twice_as_strong(broader: Scope, narrower: Scope) -> None:
    wide = memory("wide", broader, 0.25)
    for strength, expected in ((0.1, wide.id), (0.5, wide.id), (0.501, "near")):
        near = memory("near", narrower, strength)
        assert winner(wide, near).id == expected
        assert winner(near, wide).id == expected


def test_in_one_scope_the_stronger_wins_and_the_first_of_equals() -> None:
    strong, weak = memory("strong", "project", 0.6), memory("weak", "project", 0.5)
    assert winner(strong, weak) is strong
    assert winner(weak, strong) is strong
    same = memory("same", "project", 0.6)
    assert winner(same, strong) is same
    assert winner(strong, same) is strong


def test_of_one_id_in_two_scopes_the_broader_is_kept_unless_the_other_was_updated_later() -> None:
    wide = memory("one", "user", 0.1, 100.0)
    for updated_at, scope in ((99.0, "user"), (100.0, "user"), (100.5, "project")):
        near = memory("one", "project", 0.9, updated_at)
        assert later_or_broader(wide, near).scope == scope
        assert later_or_broader(near, wide).scope == scope


# --- A whole list.


def test_two_scopes_that_say_the_same_become_one_with_the_tags_of_both() -> None:
    ranked = [memory("a", "session", 0.5, 0.0, "x", "y"), memory("b", "project", 0.5, 0.0, "y", "z")]
    assert deduplicate(ranked, [at(0), at(25)]) == [
        KeptMemory(ranked[1], 1, 0, ("y", "z", "x"), ("session", "project"), ("a",))
    ]


def test_a_memory_without_others_stands_for_itself() -> None:
    alone = memory("a", "user", 0.5, 0.0, "x")
    assert deduplicate([alone], [None]) == [KeptMemory(alone, 0, 0, ("x",), ("user",))]
    assert deduplicate([], []) == []


def test_a_cosine_of_the_threshold_itself_is_not_above_it() -> None:
    ranked = [memory("a", "session"), memory("b", "project")]
    vectors = [at(0), np.array([0.9, np.sqrt(1 - 0.81)], dtype=np.float32)]
    assert ids(deduplicate(ranked, vectors)) == ["a", "b"]
    assert ids(deduplicate(ranked, [at(0), at(26)])) == ["a", "b"]
    assert ids(deduplicate(ranked, vectors, threshold=0.89)) == ["b"]


def test_memories_of_one_scope_are_left_as_they_are() -> None:
    assert ids(deduplicate([memory("a", "project"), memory("b", "project")], [at(0), at(0)])) == ["a", "b"]


def test_without_a_vector_a_memory_is_known_by_its_id_alone() -> None:
    ranked = [memory("a", "session"), memory("b", "project"), memory("a", "user")]
    (first, second) = deduplicate(ranked, [at(0), None, None])
    assert (first.memory.scope, first.found_in, first.stands_for) == ("user", ("session", "user"), ())
    assert second.memory.id == "b"


def test_the_winner_takes_the_rank_of_the_first_that_it_stands_for() -> None:
    ranked = [memory("a", "session"), memory("other", "session"), memory("b", "user")]
    kept = deduplicate(ranked, [at(0), at(90), at(0)])
    assert [(each.memory.id, each.place, each.best_place) for each in kept] == [("b", 2, 0), ("other", 1, 1)]


def test_a_strong_narrow_memory_stands_for_the_broader_one() -> None:
    ranked = [memory("a", "session", 0.9), memory("b", "user", 0.4)]
    (kept,) = deduplicate(ranked, [at(0), at(0)])
    assert (kept.memory.id, kept.stands_for, kept.found_in) == ("a", ("b",), ("session", "user"))


def test_one_broad_memory_may_stand_for_several_narrow_ones() -> None:
    ranked = [memory("a", "session"), memory("b", "session"), memory("c", "project"), memory("d", "user")]
    (kept,) = deduplicate(ranked, [at(0), at(5), at(10), at(3)])
    assert (kept.memory.id, kept.stands_for) == ("d", ("a", "b", "c"))
    assert kept.found_in == ("session", "project", "user")


def test_what_loses_to_one_does_not_take_others_with_it() -> None:
    """The project's is like both, and beats the session's alone: the user's stands for it, the session's for itself."""
    ranked = [memory("session", "session"), memory("user", "user"), memory("project", "project")]
    kept = deduplicate(ranked, [at(-20), at(20), at(0)])
    assert [(each.memory.id, each.stands_for) for each in kept] == [("session", ()), ("user", ("project",))]


scopes: st.SearchStrategy[Scope] = st.sampled_from(SCOPES)
memories = st.builds(
    ScopedMemory,
    id=st.sampled_from([f"memory:{n}" for n in range(10)]),
    scope=scopes,
    strength=st.integers(0, 20).map(lambda n: n / 20),
    updated_at=st.integers(0, 3).map(float),
    tags=st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple),
)
found = st.lists(
    st.tuples(memories, st.none() | st.integers(0, 36)), max_size=14, unique_by=lambda each: (each[0].id, each[0].scope)
)


@given(found)
def test_no_two_that_are_left_say_the_same(given_list: list[tuple[ScopedMemory, int | None]]) -> None:
    ranked = [each for each, _ in given_list]
    vectors = [None if turn is None else at(turn * 10) for _, turn in given_list]
    kept = deduplicate(ranked, vectors)
    assert len({each.memory.id for each in kept}) == len(kept)
    for one in kept:
        for two in kept:
            first, second = vectors[one.place], vectors[two.place]
            if one.memory.scope != two.memory.scope and first is not None and second is not None:
                assert float(first @ second) <= 0.9 + 1e-6


@given(found)
def test_every_memory_tag_and_scope_is_accounted_for(given_list: list[tuple[ScopedMemory, int | None]]) -> None:
    ranked = [each for each, _ in given_list]
    kept = deduplicate(ranked, [None if turn is None else at(turn * 10) for _, turn in given_list])
    assert {name for each in kept for name in (each.memory.id, *each.stands_for)} == {each.id for each in ranked}
    assert {tag for each in kept for tag in each.tags} == {tag for each in ranked for tag in each.tags}
    assert {scope for each in kept for scope in each.found_in} == {each.scope for each in ranked}
    for each in kept:
        assert each.memory is ranked[each.place]
        assert each.memory.id not in each.stands_for
        assert each.memory.scope in each.found_in
        assert each.best_place <= each.place
    places = [each.best_place for each in kept]
    assert places == sorted(set(places)), "the order of the list is kept"


@given(found, scopes)
def test_one_scope_alone_is_returned_as_it_was(given_list: list[tuple[ScopedMemory, int | None]], scope: Scope) -> None:
    ranked = list({each.id: replace(each, scope=scope) for each, _ in given_list}.values())
    assert [each.memory for each in deduplicate(ranked, [at(0)] * len(ranked))] == ranked


@given(memories, memories)
def test_which_of_two_is_kept_does_not_depend_on_their_order(a: ScopedMemory, b: ScopedMemory) -> None:
    if a.scope != b.scope:
        assert winner(a, b) is winner(b, a)
        assert later_or_broader(a, b) is later_or_broader(b, a)
