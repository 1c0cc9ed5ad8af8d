"""The central sentence of some texts, a text in one line, and where sentences and words end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.central_sentences import (
    MOST_SENTENCES,
    Source,
    central_sentence,
    content_words,
    one_line,
    sentences_of,
    statements_of,
    tf_idf,
)
from remembrancer.memory.sentences import cut_at_word, split_sentences
from remembrancer.memory.wording import stem
from tests.cases import cases


def test_an_important_source_is_preferred() -> None:
    alike = ["Redis keeps sessions", "Postgres keeps orders", "Kafka keeps events"]
    for place in range(3):
        given_ = [Source(text, 1.0 if each == place else 0.1) for each, text in enumerate(alike)]
        sentence = central_sentence(given_)
        assert sentence is not None
        assert sentence.source == place


def test_headings_and_items_of_a_list_are_no_pattern() -> None:
    review = "# Refunds\nWhat went well: the flag.\n- the runbook for refunds\nRefunds were paid twice by the job."
    alone = [Source(review), Source("Refunds are checked by hand")]
    assert [each.text for each in statements_of(alone)] == [
        "Refunds were paid twice by the job.",
        "Refunds are checked by hand",
    ]
    assert central_sentence([Source("What went well:\n- the flag\n- the runbook for refunds")]) is None


def test_of_very_long_sources_each_gives_its_first_sentences() -> None:
    many = [Source("Word. " * 900), Source("Short one. Another one.")]
    sentences = sentences_of(many)
    assert len(sentences) == MOST_SENTENCES
    assert [each.text for each in sentences if each.source == 1] == ["Short one.", "Another one."]


def test_blank_texts_have_no_line_and_no_central_sentence() -> None:
    assert one_line(" \n\t") == ""
    assert central_sentence([Source("")]) is None


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("The API uses Postgres.", "The API uses Postgres."),
        ("# The plan\n\nThe plan is to move the cache.", "The plan is to move the cache."),
        ("- first  point\n- second point", "first point"),
        (
            "Hey! The cache is cold after a deploy. A cold cache makes the deploy slow.",
            "The cache is cold after a deploy.",
        ),
        ("接口使用缓存。缓存在部署后是空的。", "接口使用缓存。"),
        ("word " * 60, ("word " * 24).strip()[:119] + "…"),
        ("x" * 300, "x" * 119 + "…"),
    ],
)
def test_a_line_says_what_a_text_is_about(content: str, line: str) -> None:
    assert one_line(content) == line


@given(st.text(max_size=400), st.integers(2, 150))
def test_a_line_is_one_line_and_is_never_too_long(content: str, length: int) -> None:
    line = one_line(content, length)
    assert len(line) <= length
    assert "\n" not in line
    assert bool(line) == bool(content.strip())
    assert one_line(content, length) == line


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
