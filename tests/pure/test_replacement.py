"""The probability that a later text replaces an earlier one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.replacement import (
    LONG_EARLIER,
    LONG_LATER,
    POSSIBLE,
    PROBABLE,
    TextPair,
    probability,
    read,
    share_of,
)
from remembrancer.memory.wording import stem
from tests.cases import cases

LATER_S = 3 * 86_400.0


def chance(earlier: str, later: str, cosine: float = 0.9, apart_s: float = LATER_S, **having: int) -> float:
    return probability(TextPair(read(earlier), read(later), cosine, apart_s, having, 100))


@pytest.mark.parametrize(("earlier", "later", "cosine"), cases("replacement", "values"))
def test_another_value_of_the_same_thing_probably_replaces_the_first(earlier: str, later: str, cosine: float) -> None:
    assert chance(earlier, later, cosine) >= PROBABLE


@pytest.mark.parametrize(("earlier", "later", "cosine", "replaces"), cases("replacement", "rules"))
def test_of_rules_that_are_stated_together_only_those_of_one_slot_replace_each_other(
    earlier: str, later: str, cosine: float, *, replaces: bool
) -> None:
    assert (chance(earlier, later, cosine, 60.0) >= PROBABLE) is replaces


@pytest.mark.parametrize(("earlier", "later"), cases("replacement", "two_things"))
def test_texts_about_two_things_replace_none_of_each_other(earlier: str, later: str) -> None:
    assert chance(earlier, later, 0.5) < POSSIBLE


@pytest.mark.parametrize(("earlier", "later"), cases("replacement", "one_sort"))
def test_two_things_of_one_sort_do_not_replace_each_other(earlier: str, later: str) -> None:
    assert chance(earlier, later, 0.93) < PROBABLE
    assert chance(earlier, later, 0.93, 60.0) < POSSIBLE


def test_a_preface_makes_no_two_rules_one_and_what_others_have_as_well_is_no_value() -> None:
    rules = "never mock the database in tests", "one behaviour per test, factories from tests/factories"
    bare = chance(*rules, 0.65)
    assert chance(
        f"2026-02-16 Correction from Marta: {rules[0]}", f"2026-02-18 Correction from Ana: {rules[1]}", 0.65
    ) == (pytest.approx(bare))
    earlier, later = "In staging the pool has 20 connections", "In production the pool has 60 connections"
    known = {stem("staging"): 20, stem("production"): 20}
    assert chance(earlier, later, 0.75) > 2 * chance(earlier, later, 0.75, LATER_S, **known)


def test_on_one_day_less_is_replaced_unless_the_change_names_it_and_of_a_long_text_less() -> None:
    pair = ("The demo is on Monday at 13:00", "The demo is on Tuesday at 9:30")
    assert chance(*pair, apart_s=60.0) < chance(*pair) / 1.5
    assert chance("Sessions are cached in Redis 7.2", "We have moved from Redis to Valkey 8.", 0.5, 60.0) >= POSSIBLE
    assert chance("The shop opens from Monday to Friday", "We open from Monday to Sunday", 0.5, 60.0) < POSSIBLE
    few, many, very_many = (read("word " * number) for number in (LONG_EARLIER, LONG_EARLIER + 1, LONG_LATER + 1))
    assert share_of(few, many) == 1.0 > share_of(few, very_many) == share_of(many, few) > share_of(many, very_many)


@given(st.text(max_size=60), st.text(max_size=60), st.floats(-1.0, 1.0), st.floats(0.0, 1e9))
def test_any_two_texts_have_a_probability(earlier: str, later: str, cosine: float, apart_s: float) -> None:
    assert 0.0 < chance(earlier, later, cosine, apart_s) < 1.0


@pytest.mark.parametrize(("earlier", "later", "cosine"), cases("replacement", "values"))
@pytest.mark.parametrize("apart_s", [60.0, LATER_S])
def test_a_probability_that_is_too_small_stays_too_small_when_it_is_found_sooner(
    earlier: str, later: str, cosine: float, apart_s: float
) -> None:
    for nearness in (0.3, 0.5, cosine):
        pair = TextPair(read(earlier), read(later), nearness, apart_s)
        whole, soon = probability(pair), probability(pair, POSSIBLE)
        assert soon == whole if whole >= POSSIBLE else whole <= soon
        assert (soon >= POSSIBLE) is (whole >= POSSIBLE)
