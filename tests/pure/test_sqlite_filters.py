"""Lists of values as SQL has them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.sqlite_file import padded


@given(st.lists(st.integers(), max_size=70))
def test_a_padded_list_has_the_same_values_and_one_of_few_lengths(values: list[int]) -> None:
    long = padded(values)
    assert long[: len(values)] == values
    assert set(long) == set(values)
    assert len(long) in (0, 1, 2, 4, 8, 16, 32, 64, 128)
    assert len(long) < 2 * len(values) or not values


def test_a_list_is_padded_with_what_it_is_told() -> None:
    assert padded([7, 8, 9], 0) == [7, 8, 9, 0]
    assert padded([], 0) == []
