"""Tokens are estimated, rather too many than too few, and no cut takes a character apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.tokens import estimate_tokens, truncate, whole_characters
from tests.cases import cases

SAMPLES = [
    "The lantern's in the harbour, isn't it?  \n\n 1234567 tokens!!!\r\n",
    "Съешь же ещё этих мягких французских булок",
    "我們決定使用新的資料庫 مرحبا بالعالم नमस्ते दुनिया",
    "def f(x):\n\treturn {k: v for k, v in x.items()}  # ok",
    "👩‍👩‍👧‍👦🇩🇪👍🏽 e\u0301",
    "<|endoftext|> and <|fim_prefix|> are plain text",
]
COUNTED = cases("tokens", "counted")
"""Texts and how many tokens they have in cl100k_base, counted with tiktoken 0.14."""


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_the_estimate_errs_upwards_and_not_by_much(text: str, tokens: int) -> None:
    assert tokens <= estimate_tokens(text) <= 2 * tokens


def test_an_empty_text_has_no_tokens_and_a_cut_is_between_words_where_there_are_any() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens(" " * 1000) == 1
    assert truncate("x" + " " * 1_000_000 + "y", 1) == "x"
    text = "internationalisation considerations notwithstanding " * 10
    cut = truncate(text, 11)
    assert text[len(cut)] == " "
    assert truncate("漢字" * 50, 11) != ""


@given(st.one_of(st.text(max_size=200), st.sampled_from(SAMPLES).map(lambda text: text * 5)), st.integers(0, 60))
def test_a_cut_is_a_beginning_of_the_text_that_fits(text: str, max_tokens: int) -> None:
    text = text.encode(errors="ignore").decode()
    cut = truncate(text, max_tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= max_tokens
    if estimate_tokens(text) <= max_tokens:
        assert cut == text


@pytest.mark.parametrize("character", ["e\u0301\u0323", "👩‍👩‍👧‍👦", "👍🏽", "कि", "한", "❤️"])
def test_no_cut_takes_a_character_apart(character: str) -> None:
    text = f"{character}" * 3
    whole = {len(character) * count for count in range(4)}
    for end in range(len(text) + 1):
        assert whole_characters(text, end) in whole, end
    for max_tokens in range(1, estimate_tokens(text) + 1):
        cut = truncate(text, max_tokens)
        assert len(cut) in whole or cut == text.rstrip()


@given(st.text(alphabet=[chr(code) for code in range(128)]))
def test_plain_text_counts_the_same_beside_letters_with_accents(text: str) -> None:
    assert estimate_tokens(text + "\u00e9\u00e9") == estimate_tokens(text) + 3
