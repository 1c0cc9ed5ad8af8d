"""The advice of an empty answer: only what could make a difference to that question."""

from __future__ import annotations

from typing import Any

import pytest

from remembrancer.memory.sentences import first_words
from remembrancer.protocol.reads import Recall, Recalled
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.memory.recall_memories import hint_for


def empty(below: int = 0) -> Recalled:
    return Recalled((), 0, below, "hybrid", 1.0)


def recall(**fields: Any) -> Recall:
    return Recall("session:s", project=ProjectRef("p_0123456789ab", "/code"), query="query", **fields)


@pytest.mark.parametrize(
    ("fields", "below", "hint"),
    [
        ({}, 0, "Nothing was found. Try other words or set include_forgotten."),
        ({}, 3, "Nothing was near enough to the query. Try other words or set include_forgotten."),
        ({"include_forgotten": True}, 0, "Nothing was found. Try other words."),
        (
            {"scopes": ("user",), "kinds": ("fact",), "domains": ("auth",), "include_forgotten": True},
            0,
            "Nothing was found. Try other words or leave out scope, kind and domain.",
        ),
        (
            {"types": ("semantic",), "tags": ("x",), "before": 1.0, "min_importance": 0.5},
            0,
            "Nothing was found. Try other words, leave out type, tags, min_importance and time_range or set "
            "include_forgotten.",
        ),
    ],
)
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
