"""Which embedders to start and which to stop, and which numbers are possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.launcher.supervision import check_embedders, parse_scale, plan_scale
from remembrancer.protocol.errors import InvalidInput


def test_the_highest_numbers_leave_first() -> None:
    assert plan_scale(1, {1, 2, 3, 4}).stop == (4, 3, 2)


def test_gaps_are_filled_from_the_lowest_number() -> None:
    assert plan_scale(4, {2}).start == (1, 3, 4)


@given(st.integers(0, 64), st.sets(st.integers(1, 64)))
def test_a_plan_leads_to_the_numbers_from_one_to_the_wanted_one(wanted: int, present: set[int]) -> None:
    plan = plan_scale(wanted, present)
    assert (present | set(plan.start)) - set(plan.stop) == set(range(1, wanted + 1))
    assert not set(plan.start) & present
    assert set(plan.stop) <= present


@pytest.mark.parametrize(("text", "number"), [("embedder=0", 0), ("embedder=64", 64), (" embedders=2 ", 2)])
def test_a_possible_number_is_understood(text: str, number: int) -> None:
    assert parse_scale(text) == number


@pytest.mark.parametrize("text", ["", "embedder", "embedder=", "embedder=two", "embedder=1.5", "store=2", "embedder=٣"])
def test_what_is_no_number_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="embedder=2"):
        parse_scale(text)


@pytest.mark.parametrize("number", [-1, 65, 10**9])
def test_a_number_out_of_bounds_is_refused(number: int) -> None:
    with pytest.raises(InvalidInput, match="embedders are not possible: give a whole number from 0 to 64"):
        check_embedders(number)
