"""The advice of an empty answer: only what could make a difference to that question."""

from __future__ import annotations

from typing import Any

import pytest

from remembrancer.memory.sentences import first_words
from remembrancer.protocol.reads import Recall, Recalled, Scores
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.memory.recall_memories import given_whole, hint_for
from tests.cases import cases
from tests.pure.recalled import recalled


def empty(below: int = 0) -> Recalled:
    return Recalled((), 0, below, "hybrid", 1.0)


def recall(**fields: Any) -> Recall:
    return Recall("session:s", project=ProjectRef("p_0123456789ab", "/code"), query="query", **fields)


@pytest.mark.parametrize(("fields", "below", "hint"), cases("recall_hints", "hints"))
def test_the_hint_names_what_narrowed_the_question(fields: dict[str, Any], below: int, hint: str) -> None:
    assert hint_for(recall(**fields), empty(below)) == hint


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one  two\nthree", "one two three"),
        ("one two three four", "one two three …"),
        ("部署在星期二十点进行" * 9, f"{('部署在星期二十点进行' * 9)[:30]} …"),
        (" " * 400 + "late", "late"),
        ("", ""),
    ],
)
def test_the_first_words_of_a_text_are_on_one_line(text: str, line: str) -> None:
    assert first_words(text, 3) == line


def test_what_probably_replaces_an_answer_is_given_whole_like_the_answer() -> None:
    old, new, other = (
        recalled(id=name, scores=Scores(relevance, relevance, 0.5, 0.5), possibly_superseded_by=by)
        for name, relevance, by in (("old", 0.7, ("new",)), ("new", 0.02, ()), ("other", 0.02, ()))
    )
    assert given_whole([old, new, other], with_nearest=False) == {"old", "new"}
    assert given_whole([other, new], with_nearest=True) == {"other"}
    assert given_whole([new, other], with_nearest=False) == set()
