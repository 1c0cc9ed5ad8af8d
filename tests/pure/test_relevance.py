"""How likely a memory answers: what raises it, what lowers it, and what is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.relevance import ANSWERS, Evidence, coverage, margins, probability, rarity, unlikely
from remembrancer.memory.stop_words import language_of, stop_words_of

SHARES = st.floats(0.0, 1.0)
GOOD = Evidence(0.6, 0.3, 0.8, 3)


@given(st.none() | st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), SHARES, st.integers(0, 40), st.booleans())
def test_it_is_a_probability_and_grows_with_the_words_that_a_fact_has(
    cosine: float | None, margin: float, covered: float, units: int, is_long: bool
) -> None:
    some = Evidence(cosine, margin, covered * 0.5, units, is_long=is_long)
    more = some._replace(coverage=covered)
    assert 0.0 <= probability(some) <= 1.0
    if cosine is None or cosine >= 0.0:
        assert probability(some) <= probability(more)


@pytest.mark.parametrize(
    "worse",
    [
        GOOD._replace(margin=0.0),
        GOOD._replace(coverage=0.0),
        GOOD._replace(names_missed=1.0),
        GOOD._replace(other_language=True),
    ],
)
def test_what_speaks_against_a_memory_lowers_it(worse: Evidence) -> None:
    assert probability(worse) < probability(GOOD)


def test_a_rare_word_counts_for_more_than_a_common_one_and_one_that_nobody_has_for_most() -> None:
    rare, common = rarity([1, 90], 100)
    assert coverage([0], [rare, common]) > 0.8 > 0.2 > coverage([1], [rare, common])
    assert coverage([0], rarity([1, 0], 100)) < 0.5
    assert (coverage([0, 1], [rare, common]), coverage([], [])) == (1.0, 0.0)


def test_what_is_near_everything_is_no_nearer_than_what_stands_out() -> None:
    crowd = dict.fromkeys(range(10), 0.6)
    assert margins(crowd)[0] == pytest.approx(0.0)
    assert margins(crowd | {10: 0.7})[10] == pytest.approx(0.1)
    two_more = margins(dict.fromkeys(range(10), 0.2) | {10: 0.7, 11: 0.7, 12: 0.7})
    assert two_more[10] == two_more[12] == pytest.approx(0.5), "three may answer alike"
    assert margins({0: 0.7, 1: 0.68})[1] > 0.5, "of two none is the background of the other"


def test_nothing_is_left_where_none_answers_and_of_the_others_what_hardly_does_goes() -> None:
    assert unlikely({"a": ANSWERS - 0.01, "b": 0.01}) == {"a", "b"}
    assert unlikely({"a": 0.9, "b": 0.8, "c": 0.1}) == {"c"}
    assert unlikely({}) == set()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wie lange hat das Lager offen?", "de"),
        ("Où est le serveur de préproduction ?", "fr"),
        ("¿Quién lleva la facturación?", "es"),
        ("Где ключи от склада", "ru"),
        ("請求書の担当者は誰ですか", "ja"),
        ("where is the car", "en"),
        ("kubernetes", None),
    ],
)
def test_a_language_is_known_by_its_letters_and_its_small_words(text: str, language: str | None) -> None:
    assert language_of(text) == language


def test_a_question_loses_the_small_words_of_its_own_language_alone() -> None:
    assert "des" not in stop_words_of("where is the file of des")
    assert "des" in stop_words_of("où sont les clés des bureaux")
