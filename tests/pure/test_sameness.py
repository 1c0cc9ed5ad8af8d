"""Which texts say the same in other words, and which only nearly: pairs with the cosines of the default model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.wording import same_in_words
from tests.cases import cases

SAME = cases("sameness", "same")
"""With three more that are not merged, these are the fifteen that the rule was measured with."""

DIFFERENT = cases("sameness", "different")


@pytest.mark.parametrize(("cosine", "one", "other"), SAME)
def test_an_addition_another_order_and_another_word_elsewhere_say_the_same(cosine: float, one: str, other: str) -> None:
    assert same_in_words(one, other, cosine)
    assert same_in_words(other, one, cosine)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_fact_is_never_the_same_however_near_it_is(one: str, other: str) -> None:
    for cosine in (0.86, 0.93, 0.999):
        assert not same_in_words(one, other, cosine)
        assert not same_in_words(other, one, cosine)


def test_below_the_second_threshold_both_may_not_have_words_of_their_own() -> None:
    one, other = "we store bookings in Postgres", "bookings are kept in Postgres"
    assert same_in_words(one, other, 0.921)
    assert not same_in_words(one, other, 0.92)


@given(st.text(max_size=80), st.text(max_size=80), st.floats(0.85, 1.0))
def test_it_does_not_matter_which_one_is_first(one: str, other: str, cosine: float) -> None:
    assert same_in_words(one, other, cosine) == same_in_words(other, one, cosine)


@given(st.text(max_size=80).filter(lambda text: any(each.isalnum() for each in text)), st.sampled_from([".", " !"]))
def test_a_text_says_the_same_as_its_copy(text: str, end: str) -> None:
    assert same_in_words(text, f" {text}{end}", 1.0)
