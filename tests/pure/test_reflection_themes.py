"""Themes: what comes up in several sessions, where it belongs, and whether it says how to do something."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.themes import LEAST_SESSIONS, Theme
from remembrancer.actors.consolidator.themes import find_themes as find_themes_of
from remembrancer.protocol.consolidation import Material
from tests.pure.reflection_world import memory, rows, with_vectors

ERRORS = [
    "The user asked how errors of the client are handled",
    "Errors of the client are handled with a retry",
    "A question about how client errors should be handled",
    "Client errors are handled in one place",
]


SPECIFIC = " in src/client.py"
"""What makes a text one of its project alone."""


def find_themes(memories: list[Material], topics: list[int]) -> list[Theme]:
    return find_themes_of(with_vectors(memories, rows(topics)), "engram")


def ids(theme: Theme) -> list[str]:
    return [each.id for each in theme.members]


def in_sessions(texts: list[str], **changes: Any) -> list[Any]:
    return [memory(place, text, session_id=f"session:{place}", **changes) for place, text in enumerate(texts)]


def test_what_comes_up_in_three_sessions_is_a_theme_and_the_most_frequent_comes_first() -> None:
    memories = [*in_sessions(ERRORS), memory(9, "Lunch", session_id="session:9")]
    (theme,) = find_themes(memories, [0, 0, 0, 0, 1])
    assert theme.frequency == 4
    assert ids(theme) == ["memory:0000", "memory:0001", "memory:0002", "memory:0003"]
    assert theme.picked.content in ERRORS
    memories = [memory(place, session_id=f"session:{place}") for place in range(9)]
    themes = find_themes(memories, [0, 1, 1, 0, 1, 0, 1, 2, 2])
    assert [each.frequency for each in themes] == [4, 3]


@pytest.mark.parametrize(
    ("kind", "specific", "scope"),
    [("preference", True, "user"), ("observation", False, "user"), ("observation", True, "project")],
)
def test_preferences_and_what_holds_anywhere_belong_to_the_user(kind: str, specific: bool, scope: str) -> None:
    texts = [text + SPECIFIC if specific else text for text in ERRORS]
    (theme,) = find_themes(in_sessions(texts, kind=kind), [0] * 4)
    assert theme.suggested_scope == scope


@pytest.mark.parametrize(
    ("kinds", "is_procedure"),
    [
        (["procedure", "error_fix", "observation"], True),
        (["procedure", "observation", "observation"], False),
    ],
)
def test_a_theme_about_how_something_is_done_becomes_a_procedure(kinds: list[str], is_procedure: bool) -> None:
    said = [memory(place, ERRORS[place], kind=kind, session_id=f"session:{place}") for place, kind in enumerate(kinds)]
    (theme,) = find_themes(said, [0] * 3)
    assert theme.as_procedure is is_procedure


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=30))
def test_a_theme_counts_its_sessions_and_no_memory_is_in_two(world: list[tuple[int, int]]) -> None:
    memories = [memory(place, session_id=f"session:{session}") for place, (_, session) in enumerate(world)]
    themes = find_themes(memories, [topic for topic, _ in world])
    taken = [name for each in themes for name in ids(each)]
    assert len(taken) == len(set(taken))
    for theme in themes:
        assert theme.frequency == len({each.session_id for each in theme.members}) >= LEAST_SESSIONS
        assert theme.picked.content
