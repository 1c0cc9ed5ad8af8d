"""Copies: the same text however it is written, of which the strongest stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator import promoting
from remembrancer.actors.consolidator.maintenance import plan_copies
from remembrancer.actors.consolidator.standing_for import says_the_same
from remembrancer.memory.wording import normalised
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import AddLink
from tests.cases import cases
from tests.pure.reflection_world import memory, rows, with_vectors

NOW = 1_000.0


@pytest.mark.parametrize(("one", "two"), cases("reflection_duplicates", "same"))
def test_case_blanks_forms_of_characters_and_the_mark_at_the_end_make_no_difference(one: str, two: str) -> None:
    assert normalised(one) == normalised(two)


@pytest.mark.parametrize(("one", "two"), [("It works.", "It works?"), ("a b", "ab"), ("!", "…"), ("v1.2", "v12")])
def test_a_question_and_other_words_make_one(one: str, two: str) -> None:
    assert normalised(one) != normalised(two)


def copies(memories: list[Material]) -> dict[str, list[str]]:
    """By what stays: what points at it."""
    found: dict[str, list[str]] = {}
    for copy, (_, link) in plan_copies(memories, NOW).items():
        assert isinstance(link, AddLink)
        found.setdefault(link.target, []).append(copy)
    return found


def test_the_strongest_of_all_sessions_stays_and_of_equals_the_oldest_or_the_one_with_the_lowest_id() -> None:
    later = memory(2, "A!", importance=0.9, session_id="session:2")
    alike = [memory(0, "A"), memory(1, "a.", importance=0.9), later, memory(3, "B")]
    assert copies(alike) == {alike[1].id: [alike[0].id, alike[2].id]}
    one, other = (memory(place, "A", created_at=0.0) for place in (2, 1))
    assert copies([one, other]) == {other.id: [one.id]}


def test_blank_memories_and_one_memory_given_twice_are_no_copies() -> None:
    assert copies([memory(0, " "), memory(1, "\t")]) == {}
    assert copies([memory(0, "A"), memory(0, "A")]) == {}


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


def test_what_two_projects_say_in_nearly_the_same_words_is_found_by_their_vectors() -> None:
    texts = ("Ilse wants short commits with a reason", "Ilse wants short commits, with a reason given", "Ada is away")
    one, near, far = with_vectors([memory(place, text) for place, text in enumerate(texts)], rows([0, 0, 1], 0.97))
    assert [other.id for _, other, _ in promoting.said_in_both([one], [far, near], 1e9)] == [near.id]


def test_what_another_one_says_as_well_stands_for_it_unless_that_is_over_or_made_of_it() -> None:
    text = "The API runs on Postgres"
    one, other = memory(1, text), memory(2, text + ".")
    assert says_the_same(one, [(other, 0.99)], 10.0, 0.85) == (other, 0.99)
    assert says_the_same(one, [(other, 0.85)], 10.0, 0.85) is None
    for changes in ({"valid_until": 5.0}, {"is_derived": True}, {"derived_from": (one.id,)}):
        assert says_the_same(one, [(memory(2, text, **changes), 0.99)], 10.0, 0.85) is None
