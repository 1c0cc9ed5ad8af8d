"""What a memory lends to those that were told next to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.ranking import NEIGHBOUR_SHARES, NEIGHBOUR_SOURCES, boosted, first_of, neighbour_boosts, timely

shares = st.floats(0.0, 1.0)


def test_a_match_lends_to_what_was_told_next_to_it_and_less_to_what_was_told_later() -> None:
    relevance = {1: 1.0, 2: 0.1, 3: 0.1, 4: 0.1}
    boosts = neighbour_boosts(relevance, [(1, {2: 1, 3: 2})])
    assert boosts == {2: NEIGHBOUR_SHARES[0], 3: NEIGHBOUR_SHARES[1]}
    whole = boosted(relevance, boosts)
    assert whole[1] == 1.0
    assert whole[1] > whole[2] > whole[3] > whole[4] == 0.1


def test_the_best_offer_counts_and_not_the_sum() -> None:
    relevance = {1: 0.8, 2: 0.0, 3: 0.6}
    assert neighbour_boosts(relevance, [(1, {2: 1}), (3, {2: 1})]) == {2: 0.8 * NEIGHBOUR_SHARES[0]}


def test_what_is_no_candidate_is_not_boosted_and_boosts_nothing() -> None:
    assert neighbour_boosts({1: 0.5}, [(1, {9: 1}), (9, {1: 1})]) == {1: 0.0}


def test_a_long_memory_is_not_boosted() -> None:
    assert neighbour_boosts({1: 1.0, 2: 0.1, 3: 0.1}, [(1, {2: 1, 3: 1})], long={2}) == {3: NEIGHBOUR_SHARES[0]}


def test_the_first_of_a_search_are_its_best_the_earlier_ones_among_equals() -> None:
    values = dict.fromkeys(range(30, 0, -1), 0.5) | {99: 0.9}
    assert first_of(values) == [99, *range(1, NEIGHBOUR_SOURCES)]


@given(st.dictionaries(st.integers(0, 5), shares, min_size=1), st.dictionaries(st.integers(0, 5), shares))
def test_relevance_stays_in_its_bounds_and_never_falls(own: dict[int, float], boosts: dict[int, float]) -> None:
    whole = boosted(own, boosts)
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
