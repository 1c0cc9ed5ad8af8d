"""A remembered text as it is shown: what is taken out of it, and what scripts and pictures need and keep."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.text import harmless, neutralised, neutralised_value, printable

KEPT = (
    "plain, with tabs\tand\nlines\r\nof both kinds",
    "می‌خواهم",  # Persian: two parts of a word that are not joined
    "क्‍ष क्‌ष",  # Hindi: both forms of a cluster
    "ශ්‍රී ලංකා",
    "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 👩🏽‍🚀 1️⃣ ☎︎",
    "葛\U000e0100城",
    "עברית, العربية, 日本語, Ελληνικά, naïve",
    "e\u0301 n\u0303",
)
HIDDEN = (
    ("a\u200bb\u2060c\ufeffd\u00ade", "abcde"),
    ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
    ("\x9b31m", "\ufffd31m"),
    ("gpj.\u202egnp\u202c", "gpj.\ufffdgnp\ufffd"),
    ("\u2066x\u2069", "\ufffdx\ufffd"),
    ("yes\U000e0049\U000e0067\U000e006e\U000e007f", "yes"),
    ("🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🏴"),
    ("a\u200db", "ab"),
    ("a\u200cb", "ab"),
    ("می\u200c\u200d\u200cخواهم", "میخواهم"),
    ("👩\u200d\u200d💻", "👩💻"),
    ("😀\ufe01\ufe02\U000e0101\U000e01ef", "😀"),
    ("a\ufe0f", "a"),
    ("\u115f\u1160\u3164\uffa0x", "x"),
    ("one\u2028two\u2029three", "one\ntwo\nthree"),
    ("over\rwritten", "over\ufffdwritten"),
    ("<\u200bsystem>", "‹system>"),
    ("[I\u2060NST]", "［INST]"),
)


@pytest.mark.parametrize("text", KEPT)
def test_what_a_script_or_a_picture_needs_stays(text: str) -> None:
    assert harmless(text) == text
    assert neutralised_value({text: [text, 1, None, True]}) == {text: [text, 1, None, True]}


@pytest.mark.parametrize(("text", "shown"), HIDDEN)
def test_what_steers_or_is_not_seen_goes(text: str, shown: str) -> None:
    assert neutralised(text) == shown


@given(st.text(max_size=60))
def test_nothing_that_steers_or_hides_is_left_of_any_text_and_twice_is_once(text: str) -> None:
    shown = neutralised(text)
    assert neutralised(shown) == shown
    assert not any(unicodedata.category(each) == "Cc" and each not in "\t\n\r" for each in shown)
    assert not any("\u202a" <= each <= "\u202e" or "\u2066" <= each <= "\u2069" for each in shown)
    assert not any("\U000e0000" <= each <= "\U000e007f" or each in "\u200b\u2060\ufeff\u200e\u200f" for each in shown)
    assert "\r" not in printable(text)
