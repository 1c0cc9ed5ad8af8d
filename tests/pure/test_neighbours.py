"""What a memory lends to those that were told next to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.retrieval.neighbours import LENT, SOURCES, first_of, lent, together
from remembrancer.actors.store.retrieval.ranking import timely

shares = st.floats(0.0, 1.0)


def test_a_match_lends_to_what_was_told_next_to_it_and_less_to_what_was_told_later() -> None:
    relevance = {1: 1.0, 2: 0.1, 3: 0.1, 4: 0.1}
    gained = lent(relevance, [(1, {2: 1, 3: 2})])
    assert gained == {2: LENT[0], 3: LENT[1]}
    whole = together(relevance, gained)
    assert whole[1] == 1.0
    assert whole[1] > whole[2] > whole[3] > whole[4] == 0.1


def test_the_best_offer_counts_and_not_the_sum() -> None:
    relevance = {1: 0.8, 2: 0.0, 3: 0.6}
    assert lent(relevance, [(1, {2: 1}), (3, {2: 1})]) == {2: 0.8 * LENT[0]}


def test_what_is_no_candidate_is_lent_nothing_and_lends_nothing() -> None:
    assert lent({1: 0.5}, [(1, {9: 1}), (9, {1: 1})]) == {1: 0.0}


def test_a_long_memory_is_lent_nothing() -> None:
    assert lent({1: 1.0, 2: 0.1, 3: 0.1}, [(1, {2: 1, 3: 1})], long={2}) == {3: LENT[0]}


def test_the_first_of_a_search_are_its_best_the_earlier_ones_among_equals() -> None:
    values = dict.fromkeys(range(30, 0, -1), 0.5) | {99: 0.9}
    assert first_of(values) == [99, *range(1, SOURCES)]


@given(st.dictionaries(st.integers(0, 5), shares, min_size=1), st.dictionaries(st.integers(0, 5), shares))
def test_relevance_stays_in_its_bounds_and_never_falls(own: dict[int, float], gained: dict[int, float]) -> None:
    whole = together(own, gained)
    assert whole.keys() == own.keys()
    assert all(own[key] <= value <= 1.0 + 1e-9 for key, value in whole.items())


@given(st.dictionaries(st.integers(0, 5), shares, min_size=1), st.dictionaries(st.integers(0, 5), shares))
def test_a_time_moves_ranks_and_takes_nothing_away(own: dict[int, float], near: dict[int, float]) -> None:
    moved = timely(own, near)
    assert moved.keys() == own.keys()
    assert all(0.0 <= value <= 1.0 + 1e-9 for value in moved.values())
    assert all((moved[key] > 0.0) == (own[key] > 0.0) or own[key] < 1e-300 for key in own)


def test_of_two_that_match_alike_the_one_within_the_time_goes_first() -> None:
    moved = timely({1: 0.6, 2: 0.6}, {1: 0.0, 2: 1.0})
    assert moved[2] > moved[1]


def test_a_time_that_is_that_of_all_candidates_says_nothing() -> None:
    assert timely({1: 0.6, 2: 0.4}, {1: 1.0, 2: 1.0}) == {1: 0.6, 2: 0.4}
