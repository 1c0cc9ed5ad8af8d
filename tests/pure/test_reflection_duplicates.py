"""Copies: the same text however it is written, of which the strongest stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.reflection.duplicates import Copies, find_copies
from remembrancer.protocol.wording.normalising import normalised
from tests.pure.reflection_world import memory

TEXTS = ["The API uses Postgres", "the  api uses POSTGRES.", "It rains", "It rains!", "Does it rain?"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("The API uses Postgres", "the  API\nuses postgres."),
        ("It works!", "it works …"),
        ("ﬁle", "FILE"),
        ("Straße", "STRASSE"),
        ("完成。", "完成"),
        ("Ａ１", "a1"),
    ],
)
def test_case_blanks_forms_of_characters_and_the_mark_at_the_end_make_no_difference(one: str, two: str) -> None:
    assert normalised(one) == normalised(two)


@pytest.mark.parametrize(("one", "two"), [("It works.", "It works?"), ("a b", "ab"), ("!", "…"), ("v1.2", "v12")])
def test_a_question_and_other_words_make_one(one: str, two: str) -> None:
    assert normalised(one) != normalised(two)


def test_the_strongest_stays_and_of_equals_the_oldest() -> None:
    alike = [memory(0, "A"), memory(1, "a.", strength=0.9), memory(2, "A!", strength=0.9), memory(3, "B")]
    assert find_copies(alike) == [Copies("memory:0001", ("memory:0000", "memory:0002"))]


def test_of_one_age_and_strength_the_lowest_id_stays() -> None:
    same = [memory(2, "A", created_at=0.0), memory(1, "A", created_at=0.0)]
    assert find_copies(same) == [Copies("memory:0001", ("memory:0002",))]


def test_what_not_everybody_sees_is_no_copy_of_what_they_see() -> None:
    scopes = [memory(0, "A", scope="project"), memory(1, "A", scope="user"), memory(2, "A", scope="session")]
    assert find_copies(scopes) == []
    sessions = [memory(0, "A", scope="session"), memory(1, "A", scope="session", session_id="session:2")]
    assert find_copies(sessions) == []
    projects = [memory(0, "A"), memory(1, "A", session_id="session:2")]
    assert len(find_copies(projects)) == 1


def test_blank_memories_and_one_memory_given_twice_are_no_copies() -> None:
    assert find_copies([memory(0, " "), memory(1, "\t")]) == []
    assert find_copies([memory(0, "A"), memory(0, "A")]) == []


@given(st.text())
def test_to_normalise_again_changes_nothing(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


@given(st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from([0.1, 0.5])), max_size=12))
def test_each_text_is_kept_once(world: list[tuple[str, float]]) -> None:
    memories = [memory(place, text, strength=strength) for place, (text, strength) in enumerate(world)]
    gone = {name for each in find_copies(memories) for name in each.rest}
    left = [normalised(each.content) for each in memories if each.id not in gone]
    assert sorted(left) == sorted({normalised(text) for text, _ in world})
    assert find_copies([each for each in memories if each.id not in gone]) == []
    assert find_copies(memories[::-1]) == find_copies(memories)
