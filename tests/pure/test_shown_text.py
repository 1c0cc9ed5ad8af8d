"""A remembered text as it is shown: what is taken out of it, and what scripts and pictures need and keep."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.browser.view import names_of
from remembrancer.memory.text import harmless, neutralised, neutralised_value, printable
from remembrancer.protocol.writes import ProjectRef
from tests.cases import cases

KEPT = cases("shown_text", "kept")
HIDDEN = cases("shown_text", "hidden")


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


def test_projects_of_the_same_name_are_named_with_the_directory_above() -> None:
    projects = [ProjectRef(path, path) for path in ("/work/app/.git", "/old/app", "/srv/site/.git")]
    assert list(names_of(projects).values()) == ["work/app", "old/app", "site"]
