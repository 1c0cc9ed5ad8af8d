"""Memories that say the same: the same text however it is written, or nearly the same words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator import promoting
from remembrancer.actors.consolidator.standing_for import says_the_same
from remembrancer.memory.wording import normalised
from tests.cases import cases
from tests.pure.reflection_world import memory, rows, with_vectors


@pytest.mark.parametrize(("one", "two"), cases("reflection_duplicates", "same"))
def test_case_blanks_forms_of_characters_and_the_mark_at_the_end_make_no_difference(one: str, two: str) -> None:
    assert normalised(one) == normalised(two)


@pytest.mark.parametrize(("one", "two"), [("It works.", "It works?"), ("a b", "ab"), ("!", "…"), ("v1.2", "v12")])
def test_a_question_and_other_words_make_one(one: str, two: str) -> None:
    assert normalised(one) != normalised(two)


@given(st.text())
def test_to_normalise_again_changes_nothing(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


def test_what_two_projects_say_is_found_by_a_look_at_each_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def counted(text: str) -> str:
        looked_at.append(text)
        return normalised(text)

    monkeypatch.setattr(promoting, "normalised", counted)
    mine = [memory(number, f"Ilse wants feature {number}") for number in range(1000)]
    theirs = [
        memory(5000, "Ilse wants feature 7!"),
        memory(5001, "ilse wants  feature 8", valid_until=1.0),
        *(memory(6000 + number, f"Ilse wants menu {number}") for number in range(1000)),
    ]
    found = promoting.said_in_both(mine, theirs, 1e9)
    assert [(one.id, other.id, cosine) for one, other, cosine in found] == [(mine[7].id, theirs[0].id, 1.0)]
    assert len(looked_at) <= len(mine) + len(theirs)


def test_what_says_the_same_as_well_stands_for_a_memory_and_in_two_projects_nearly_the_same_words() -> None:
    texts = ("Ilse wants short commits with a reason", "Ilse wants short commits, with a reason given", "Ada is away")
    one, near, far = with_vectors([memory(place, text) for place, text in enumerate(texts)], rows([0, 0, 1], 0.97))
    assert [other.id for _, other, _ in promoting.said_in_both([one], [far, near], 1e9)] == [near.id]
    text = "The API runs on Postgres"
    one, other = memory(1, text), memory(2, text + ".")
    assert says_the_same(one, [(other, 0.99)], 10.0, 0.85) == (other, 0.99)
    assert says_the_same(one, [(other, 0.85)], 10.0, 0.85) is None
    for changes in ({"valid_until": 5.0}, {"derived_from": ("memory:other",)}, {"derived_from": (one.id,)}):
        assert says_the_same(one, [(memory(2, text, **changes), 0.99)], 10.0, 0.85) is None
