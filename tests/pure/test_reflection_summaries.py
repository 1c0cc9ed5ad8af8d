"""Where sentences and words end, and the words by which texts are compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.clusters import content_words, tf_idf
from remembrancer.memory.sentences import cut_at_word, split_sentences
from remembrancer.memory.wording import stem
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
