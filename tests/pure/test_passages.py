"""Splitting: over the default model's own tokenizer, and over one that counts differently where words are cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.embedder import passages as passages_module
from remembrancer.actors.embedder.engine import default_tokenizer
from remembrancer.actors.embedder.passages import (
    PIECE_CHARACTERS,
    MeasuredPassage,
    TokenCounter,
    TokenSpans,
    split_passages,
)

WORD_PIECES = default_tokenizer()
SENTENCES = (
    "The build fails when the cache is cold. ",
    "Why does it? Nobody knows!\n\n",
    "Мы храним память на диске. ",
    "我们今天去公园散步。",
    "天気がいいですね！",
    "한국어 문장도 있습니다. ",
    "यह एक वाक्य है। ",
    "هل هذا سؤال؟ ",
    "👩‍👩‍👧 🎉🎉 ",
    "e\u0301te\u0301 ǆ ﬁn ",
    "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo+/" * 4,
    "deadbeefcafe0123" * 3,
    "    \t\n \u3000",
    "x" * 150,
    "[SEP] [CLS] ",
    "a\u0000\u200db\u0301",
)
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(st.one_of(st.sampled_from(SENTENCES), st.text(max_size=12)), max_size=60).map("".join),
)


class Characters:
    """A tokenizer of one token a character, without words: and a piece that does not begin a text costs one more."""

    def spans(self, text: str) -> TokenSpans:
        return TokenSpans(range(len(text)), range(1, len(text) + 1), [index == 0 for index in range(len(text))])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) + (not text.startswith("^")) for text in texts]


def assert_covers(text: str, passages: list[MeasuredPassage]) -> None:
    assert passages
    assert passages[0].start >= 0
    assert passages[-1].end <= len(text)
    for earlier, later in pairwise(passages):
        assert earlier.start < later.start
        assert earlier.end < later.end
    covered = set[int]().union(*(range(each.start, each.end) for each in passages))
    assert all(index in covered for index, character in enumerate(text) if not character.isspace())


@pytest.mark.parametrize("tokenizer", [WORD_PIECES, Characters()], ids=["word pieces", "characters"])
@given(text=TEXTS, budget=st.integers(min_value=4, max_value=80))
def test_passages_cover_the_text_in_order_and_fit_the_window(tokenizer: TokenCounter, text: str, budget: int) -> None:
    passages = split_passages(text, tokenizer, budget)
    assert_covers(text, passages)
    measured = tokenizer.count_tokens([text[each.start : each.end] for each in passages])
    if len(passages) > 1:
        assert [each.tokens for each in passages] == measured
    for passage in passages:
        assert passage.tokens <= budget or passage.end - passage.start == 1


@pytest.mark.parametrize("text", ["", " ", "\n" * 5000, "\u200d"])
def test_a_text_without_tokens_is_still_one_passage(text: str) -> None:
    assert split_passages(text, WORD_PIECES) == [MeasuredPassage(0, len(text), 0)]


def test_passages_end_where_sentences_end_and_without_spaces_where_tokens_allow() -> None:
    sentences = [f"Sentence number {index} says a thing of its own." for index in range(200)]
    text = " ".join(sentences)
    passages = split_passages(text, WORD_PIECES)
    assert len(passages) > 5
    for passage in passages:
        said = text[passage.start : passage.end]
        assert said.startswith("Sentence number")
        assert said.endswith("own.")
    for earlier, later in pairwise(passages):
        again = text[later.start : earlier.end]
        assert 1 <= len(re.findall(r"own\.", again)) <= 5
        assert sum(WORD_PIECES.count_tokens([again])) <= 254 * 0.2
    text = "我们今天去公园散步" * 100
    passages = split_passages(text, WORD_PIECES)
    assert_covers(text, passages)
    assert sum(each.tokens for each in passages[:-1]) / (len(passages) - 1) > 200
    assert split_passages("  Tea at five. \n", WORD_PIECES) == [MeasuredPassage(2, 14, 4)]


@given(text=TEXTS)
def test_a_text_that_is_cut_piece_by_piece_is_covered_as_well(text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passages_module, "PIECE_CHARACTERS", 50)
        passages = split_passages(text * 3, WORD_PIECES, 20)
    assert_covers(text * 3, passages)
    assert all(passage.tokens <= 20 or passage.end - passage.start == 1 for passage in passages)


def test_no_more_of_a_huge_text_is_cut_into_tokens_at_once_than_fits_the_memory() -> None:
    asked: list[int] = []

    class Counting(Characters):
        def spans(self, text: str) -> TokenSpans:
            asked.append(len(text))
            return super().spans(text)

    text = "every line says a thing\n" * 60_000
    passages = split_passages(text, Counting(), 200)
    assert max(asked) <= PIECE_CHARACTERS
    assert passages[-1].end == len(text.rstrip())
