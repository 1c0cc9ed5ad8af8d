"""What is shown for a query or a prompt, in which length, and the advice of an empty answer."""

from __future__ import annotations

from typing import Any

import pytest

from remembrancer.memory.relevance import MOST_FOR_PROMPT, needed_for_prompt
from remembrancer.memory.sentences import first_words, from_best_sentence
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import Recall, Recalled, RecalledMemory, Scores
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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("One is red. Two is green.\nThree is grey.", "… Two is green. Three is …"),
        ("Green is one, and two is red as well", "Green is one, and two …"),
        ("Nothing of it.", "Nothing of it."),
        ("", ""),
    ],
)
def test_a_line_begins_with_the_sentence_that_matches_best(text: str, line: str) -> None:
    assert first_words(from_best_sentence(text, lambda each: "green" in each.lower()), 5 + ("…" in line[:1])) == line


def test_a_prompt_gets_the_rules_that_are_near_to_it_rather_than_facts_and_at_most_two() -> None:
    def found(cosine: float | None, kind: Kind, relevance: float = 0.2) -> RecalledMemory:
        return recalled(id=f"{kind} {cosine}", kind=kind, scores=Scores(1.0, relevance, 0.5, 0.5, cosine=cosine))

    rule, fact, far = found(0.5, "convention"), found(0.5, "fact"), found(0.2, "convention")
    assert needed_for_prompt([fact, far, rule, found(None, "decision")]) == [rule]
    assert needed_for_prompt([found(0.5, "fact", relevance=0.95)])
    assert len(needed_for_prompt([found(0.5 + place / 10, "procedure") for place in range(4)])) == MOST_FOR_PROMPT


def test_what_probably_replaces_an_answer_is_given_whole_like_the_answer() -> None:
    old, new, other = (
        recalled(id=name, scores=Scores(relevance, relevance, 0.5, 0.5), possibly_superseded_by=by)
        for name, relevance, by in (("old", 0.7, ("new",)), ("new", 0.02, ()), ("other", 0.02, ()))
    )
    assert given_whole([old, new, other], with_nearest=False) == {"old", "new"}
    assert given_whole([other, new], with_nearest=True) == {"other"}
    assert given_whole([new, other], with_nearest=False) == set()
