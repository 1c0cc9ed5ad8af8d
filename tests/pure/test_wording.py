"""The wording of texts: sentences, stems, which say the same, and which replaces which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.clusters import content_words, tf_idf
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
from remembrancer.memory.sentences import cut_at_word, split_sentences
from remembrancer.memory.wording import same_in_words, stem
from tests.cases import cases


@pytest.mark.parametrize(("text", "sentences"), cases("reflection_summaries", "sentences"))
def test_a_text_is_split_where_its_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text(max_size=200))
def test_every_letter_of_a_text_is_in_one_of_its_sentences(text: str) -> None:
    sentences = split_sentences(text)
    letters = [character for character in text if character.isalpha()]
    assert [character for each in sentences for character in each if character.isalpha()] == letters
    assert all(each in text and each == each.strip() for each in sentences)


@given(st.text(max_size=80), st.integers(1, 90))
def test_a_text_is_cut_to_a_beginning_of_it(text: str, length: int) -> None:
    cut = cut_at_word(text, length)
    assert text.startswith(cut)
    assert len(cut) <= length


@pytest.mark.parametrize("forms", cases("reflection_summaries", "stems"))
def test_the_forms_of_a_word_have_one_stem(forms: list[str]) -> None:
    assert len({stem(each) for each in forms}) == 1


@pytest.mark.parametrize("word", ["redis", "status", "class", "string", "need", "speed", "3.11", "缓存", "aws"])
def test_what_only_looks_like_a_form_is_left_alone(word: str) -> None:
    assert stem(word) == word


@given(st.lists(st.text(max_size=40), max_size=8))
def test_rows_of_words_have_length_one_or_none(texts: list[str]) -> None:
    assume(texts)
    lengths = np.linalg.norm(tf_idf(texts), axis=1)
    for text, length in zip(texts, lengths.tolist(), strict=True):
        assert length == pytest.approx(1.0 if content_words(text) else 0.0, abs=1e-5)


# --- Which texts say the same, and which only nearly.
@pytest.mark.parametrize(("one", "other"), cases("sameness", "same"))
def test_the_same_words_in_the_same_order_say_the_same_also_if_a_part_has_moved_to_the_front(
    one: str, other: str
) -> None:
    assert same_in_words(one, other)
    assert same_in_words(other, one)


@pytest.mark.parametrize(("one", "other"), cases("sameness", "different"))
def test_another_fact_is_never_the_same_however_near_it_is(one: str, other: str) -> None:
    assert not same_in_words(one, other)
    assert not same_in_words(other, one)


@given(st.text(max_size=80), st.text(max_size=80))
def test_it_does_not_matter_which_one_is_first(one: str, other: str) -> None:
    assert same_in_words(one, other) == same_in_words(other, one)


@given(st.text(max_size=80).filter(lambda text: any(each.isalnum() for each in text)), st.sampled_from([".", " !"]))
def test_a_text_says_the_same_as_its_copy(text: str, end: str) -> None:
    assert same_in_words(text, f" {text}{end}")


# --- The probability that a later text replaces an earlier one.
LATER_S = 3 * 86_400.0


def chance(earlier: str, later: str, cosine: float = 0.9, apart_s: float = LATER_S, **having: int) -> float:
    return probability(TextPair(read(earlier), read(later), cosine, apart_s, having, 100))


@pytest.mark.parametrize(("earlier", "later", "cosine"), cases("replacement", "values"))
def test_another_value_of_the_same_thing_probably_replaces_the_first(earlier: str, later: str, cosine: float) -> None:
    assert chance(earlier, later, cosine) >= PROBABLE


@pytest.mark.parametrize(("earlier", "later", "cosine", "replaces"), cases("replacement", "rules"))
def test_of_rules_stated_together_those_of_one_slot_replace(
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


def test_less_is_replaced_of_one_day_of_a_long_text_or_of_what_others_have_as_well() -> None:
    rules = "never mock the database in tests", "one behaviour per test, factories from tests/factories"
    bare = chance(*rules, 0.65)
    assert chance(
        f"2026-02-16 Correction from Marta: {rules[0]}", f"2026-02-18 Correction from Ana: {rules[1]}", 0.65
    ) == (pytest.approx(bare))
    earlier, later = "In staging the pool has 20 connections", "In production the pool has 60 connections"
    known = {stem("staging"): 20, stem("production"): 20}
    assert chance(earlier, later, 0.75) > 2 * chance(earlier, later, 0.75, LATER_S, **known)
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
def test_a_probability_too_small_stays_so_when_found_sooner(
    earlier: str, later: str, cosine: float, apart_s: float
) -> None:
    for nearness in (0.3, 0.5, cosine):
        pair = TextPair(read(earlier), read(later), nearness, apart_s)
        whole, soon = probability(pair), probability(pair, POSSIBLE)
        assert soon == whole if whole >= POSSIBLE else whole <= soon
        assert (soon >= POSSIBLE) is (whole >= POSSIBLE)
