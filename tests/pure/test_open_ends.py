"""Lists of open ends, and what is none."""

from __future__ import annotations

import pytest

from remembrancer.memory.open_ends import asks_for_open_ends, is_list_of_open_ends, open_ends_in
from tests.cases import cases


@pytest.mark.parametrize(("text", "items"), cases("open_ends", "items"))
def test_the_items_of_a_list_are_open_ends_of_their_own(text: str, items: list[str]) -> None:
    assert open_ends_in(text) == tuple(items)


def test_a_heading_says_that_open_ends_follow_and_other_words_do_not() -> None:
    for text in ("Next: a", "Open questions (for Ilse): a", "still to do: a", "TODO: a", "Offen: a"):
        assert is_list_of_open_ends(text), text
    for text in ("Next.js: used here", "The next: a", "Opened: a", "Nextcloud: a", "- a\n- b", ""):
        assert not is_list_of_open_ends(text), text


@pytest.mark.parametrize(("query", "asks"), cases("open_ends", "questions"))
def test_a_question_without_a_subject_asks_for_all_open_ends(query: str, *, asks: bool) -> None:
    assert asks_for_open_ends(query) is asks
