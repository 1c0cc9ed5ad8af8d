"""Which embedders to start and which to stop, and which numbers are possible."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.launcher.supervision import check_embedders, parse_scale, plan_scale
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.work import ModelChoice

ONE, OTHER, THIRD = (ModelChoice("onnx", name) for name in ("one", "other", "third"))


def test_the_highest_numbers_leave_first() -> None:
    assert plan_scale(1, [ONE], dict.fromkeys((1, 2, 3, 4), ONE)).stop == (4, 3, 2)


def test_gaps_are_filled_from_the_lowest_number() -> None:
    assert plan_scale(4, [ONE], {2: ONE}).start == ((1, ONE), (3, ONE), (4, ONE))


@given(
    st.integers(0, 64),
    st.permutations([ONE, OTHER, THIRD]),
    st.integers(1, 3),
    st.dictionaries(st.integers(1, 64), st.sampled_from([ONE, OTHER, THIRD])),
)
def test_a_plan_leads_to_the_wanted_number_of_the_first_model_and_one_of_each_other(
    wanted: int, order: list[ModelChoice], count: int, running: dict[int, ModelChoice]
) -> None:
    models = order[:count]
    plan = plan_scale(wanted, models, running)
    numbers = [number for number, _ in plan.start]
    assert not running.keys() & set(numbers)
    assert numbers == sorted(set(numbers))
    assert set(plan.stop) <= set(running)
    left = Counter([model for number, model in running.items() if number not in plan.stop])
    left.update(model for _, model in plan.start)
    assert left == Counter([models[0]] * wanted + (models[1:] if wanted else []))


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
