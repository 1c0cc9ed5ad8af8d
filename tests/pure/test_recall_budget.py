"""A recall's answer keeps its promise of a size; and what is shown for a query or a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.relevance import MOST_FOR_PROMPT, needed_for_prompt
from remembrancer.memory.sentences import first_words, from_best_sentence
from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import estimate_tokens, whole_characters
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import Recall, Recalled, RecalledMemory, Scores
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.memory.answers import memory_of
from remembrancer.toolsets.memory.recall_budget import HINT, NO_ROOM, within_budget
from remembrancer.toolsets.memory.recall_memories import given_whole, hint_for
from remembrancer.toolsets.tools import Answer, answer_text
from tests.pure.recalled import recalled
from tests.pure.test_context_block import texts

SENTENCE = "The lantern in the attic is lit by the keeper every evening at nine. "


def shown(content: str, number: int = 0, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    return memory_of(recalled(content, id=f"memory:{number:026d}", tags=tags))


def answer_of(contents: Sequence[str], **more: Any) -> Answer:
    memories = [shown(content, number) for number, content in enumerate(contents)]
    return {
        "memories": memories,
        "total_matched": len(memories),
        "strategy_used": "hybrid",
        "query_time_ms": 12.3,
        **more,
    }


def tokens(answer: Answer) -> int:
    return estimate_tokens(answer_text(answer))


def test_what_does_not_fit_is_cut_or_counted_and_of_warnings_the_code_is_left() -> None:
    answer = answer_of(["one", "two"])
    assert within_budget(answer, tokens(answer)) is answer
    answer = answer_of([f"Fact {number}" for number in range(10)])
    found = within_budget(answer, 400)
    assert 0 < len(found["memories"]) < 10
    assert found["memories"] == answer["memories"][: len(found["memories"])]
    assert found["omitted"] == 10 - len(found["memories"])
    assert found["total_matched"] == 10
    assert "hint" not in found
    found = within_budget(answer_of(["Short and whole", SENTENCE * 400, "b"]), 1500)
    assert [memory.get("excerpt", False) for memory in found["memories"]] == [False, True]
    assert found["memories"][1]["content"].startswith(SENTENCE)
    assert (found["hint"], found["omitted"]) == (HINT, 1)
    assert 1400 < tokens(found) <= 1500
    found = within_budget(answer_of([SENTENCE, SENTENCE]), 80)
    assert (found["memories"], found["omitted"], found["hint"]) == ([], 2, NO_ROOM)
    text = "Only words were searched: the model cannot be loaded. " * 5
    answer = answer_of(
        [SENTENCE] * 50,
        degraded=True,
        warnings=[{"code": "embedding_failed", "message": text}],
        below_threshold=100_000,
    )
    found = within_budget(answer, 64)
    assert tokens(found) <= 64
    assert (found["warnings"], found["degraded"], found["omitted"]) == ([{"code": "embedding_failed"}], True, 50)


@pytest.mark.parametrize("max_tokens", range(65, 260, 15))
def test_what_is_left_out_of_a_degraded_answer_is_not_put_back_when_it_is_sent(max_tokens: int) -> None:
    text = "Only words were searched, not meaning: no embedding worker has a model loaded. (keyword_only)"
    warnings = [{"code": "embedding_failed", "message": text}]
    answer = answer_of([SENTENCE] * 50, profile="default", degraded=True, warnings=warnings)
    assert tokens(within_budget(answer, max_tokens)) <= max_tokens


@given(st.lists(texts(), max_size=6), st.integers(64, 1500))
def test_no_answer_is_ever_longer_than_promised(contents: list[str], max_tokens: int) -> None:
    answer = answer_of(contents)
    result = within_budget(answer, max_tokens)
    assert tokens(result) <= max_tokens
    assert len(result["memories"]) + result.get("omitted", 0) == len(contents)
    assert json.loads(answer_text(result)) == result
    for memory, whole in zip(result["memories"], answer["memories"], strict=False):
        if not memory.get("excerpt"):
            assert memory == whole
            continue
        assert memory is result["memories"][-1]
        assert {**memory, "content": whole["content"]} == {**whole, "excerpt": True}
        assert memory["content"] != " …", "an excerpt says something"


@given(texts(), st.integers(150, 600))
def test_an_excerpt_takes_no_character_apart(content: str, max_tokens: int) -> None:
    content = neutralised(content * 20)
    answer = answer_of([content])
    for memory in within_budget(answer, max_tokens)["memories"]:
        if memory.get("excerpt"):
            cut = memory["content"].removesuffix(" …")
            start = content.index(cut)
            assert not content[:start].strip()
            assert whole_characters(content, start + len(cut)) == start + len(cut)


# --- What is shown for a query or a prompt, in which length, and the advice of an empty answer.
def empty(below: int = 0) -> Recalled:
    return Recalled((), 0, below, "hybrid", 1.0)


def recall(**fields: Any) -> Recall:
    return Recall("session:s", project=ProjectRef("p_0123456789ab", "/code"), query="query", **fields)


@pytest.mark.parametrize(
    ("fields", "below", "hint"),
    [
        ({}, 0, "Nothing was found. Try other words or include_forgotten."),
        ({"include_forgotten": True}, 3, "Nothing was near enough to the query. Try other words."),
        (
            {"kinds": ("fact",), "min_importance": 0.5},
            0,
            "Nothing was found. Try other words, fewer filters or include_forgotten.",
        ),
    ],
)
def test_the_hint_says_whether_filters_narrowed_the_question(fields: dict[str, Any], below: int, hint: str) -> None:
    assert hint_for(recall(**fields), empty(below)) == hint


def test_the_first_words_of_a_text_are_on_one_line() -> None:
    week = "部署在星期二十点进行" * 9
    for text, line in (
        ("one  two\nthree", "one two three"),
        ("one two three four", "one two three …"),
        (week, f"{week[:30]} …"),
        (" " * 400 + "late", "late"),
        ("", ""),
    ):
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


def test_a_prompt_gets_near_rules_and_what_probably_replaces_an_answer_is_given_whole_like_it() -> None:
    def found(cosine: float | None, kind: Kind, relevance: float = 0.2) -> RecalledMemory:
        return recalled(id=f"{kind} {cosine}", kind=kind, scores=Scores(1.0, relevance, 0.5, 0.5, cosine=cosine))

    rule, fact, far = found(0.5, "convention"), found(0.5, "fact"), found(0.2, "convention")
    assert needed_for_prompt([fact, far, rule, found(None, "decision")]) == [rule]
    assert needed_for_prompt([found(0.5, "fact", relevance=0.95)])
    assert len(needed_for_prompt([found(0.5 + place / 10, "procedure") for place in range(4)])) == MOST_FOR_PROMPT
    old, new, other = (
        recalled(id=name, scores=Scores(relevance, relevance, 0.5, 0.5), possibly_superseded_by=by)
        for name, relevance, by in (("old", 0.7, ("new",)), ("new", 0.02, ()), ("other", 0.02, ()))
    )
    assert given_whole([old, new, other], with_nearest=False) == {"old", "new"}
    assert given_whole([other, new], with_nearest=True) == {"other"}
    assert given_whole([new, other], with_nearest=False) == set()
