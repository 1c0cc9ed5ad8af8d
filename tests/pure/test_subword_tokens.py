"""The spellings that are indexed besides a text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.store.records.subword_tokens import LONGEST, subword_tokens
from tests.cases import cases


@pytest.mark.parametrize(("text", "parts"), cases("subword_tokens", "spellings"))
def test_what_full_text_does_not_see_is_spelt_out(text: str, parts: str) -> None:
    assert subword_tokens(text) == parts


def test_a_text_that_is_data_has_no_spellings() -> None:
    assert subword_tokens("aB" * LONGEST) == ""
    assert len(subword_tokens("a-b" * 30)) <= LONGEST


@given(st.text(max_size=300))
@example("\ud800aB")
@example("🌀🌀")
@example("".join(map(chr, range(0x3400))))
def test_any_text_has_spellings_that_are_words_and_not_much_longer_than_itself(text: str) -> None:
    parts = subword_tokens(text)
    assert all(part.isalnum() for part in parts.split())
    assert len(parts) <= 7 * len(unicodedata.normalize("NFKC", text))
