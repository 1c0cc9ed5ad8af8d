"""A recall's answer keeps its promise of a size: best memories whole, or their best passages, and never a half word."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.text import neutralised
from remembrancer.memory.tokens import estimate_tokens, whole_characters
from remembrancer.toolsets.memory.answers import memory_of
from remembrancer.toolsets.memory.recall_budget import HINT, NO_ROOM, Range, cut_to, within_budget
from remembrancer.toolsets.tools import Answer, answer_text
from tests.cases import cases
from tests.pure.recalled import recalled
from tests.pure.test_context_block import texts

SENTENCE = "The lantern in the attic is lit by the keeper every evening at nine. "


def shown(content: str, number: int = 0, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    """A memory as an answer shows it."""
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


def fitted(answer: Answer, max_tokens: int, passages: Sequence[Sequence[Range]] | None = None) -> Answer:
    given_ranges = [()] * len(answer["memories"]) if passages is None else passages
    return within_budget(answer, given_ranges, max_tokens)


def tokens(answer: Answer) -> int:
    return estimate_tokens(answer_text(answer))


def test_an_answer_that_fits_is_returned_as_it_is() -> None:
    answer = answer_of(["one", "two"])
    assert fitted(answer, tokens(answer)) is answer


def test_whole_memories_are_taken_the_best_first_and_the_rest_is_counted() -> None:
    answer = answer_of([f"Fact {number}" for number in range(10)])
    found = fitted(answer, 400)
    assert 0 < len(found["memories"]) < 10
    assert found["memories"] == answer["memories"][: len(found["memories"])]
    assert found["omitted"] == 10 - len(found["memories"])
    assert found["total_matched"] == 10
    assert "hint" not in found


def test_a_memory_that_is_too_long_shows_its_best_passages_in_their_order() -> None:
    parts = [f"Passage number {number} tells of thing {number}. " for number in range(200)]
    content = "".join(parts).strip()
    starts = [content.index(part.strip()) for part in parts]
    ranges = [(start, start + len(part.strip())) for start, part in zip(starts, parts, strict=True)]
    best = [ranges[150], ranges[3], ranges[4], ranges[199]]
    found = fitted(answer_of([content]), 260, [best])
    (memory,) = found["memories"]
    assert memory["excerpt"] is True
    assert memory["content"].startswith("… Passage number 3 tells of thing 3. Passage number 4 tells of thing 4. … ")
    assert "Passage number 150 tells" in memory["content"]
    assert found["hint"] == HINT
    assert "omitted" not in found


def test_a_long_memory_leaves_room_for_those_after_it() -> None:
    found = fitted(answer_of([SENTENCE * 400, "Short and whole", SENTENCE * 400]), 1500)
    assert [memory.get("excerpt", False) for memory in found["memories"]] == [True, False, True]
    assert tokens(found) > 1200


def test_what_is_left_over_goes_to_the_passages_again() -> None:
    found = fitted(answer_of([SENTENCE * 400, "a", "b"]), 2000)
    assert len(found["memories"]) == 3
    assert tokens(found) > 1900


def test_an_answer_without_room_for_any_memory_says_so() -> None:
    found = fitted(answer_of([SENTENCE, SENTENCE]), 80)
    assert (found["memories"], found["omitted"], found["hint"]) == ([], 2, NO_ROOM)


@pytest.mark.parametrize("max_tokens", range(65, 260, 15))
def test_what_is_left_out_of_a_degraded_answer_is_not_put_back_when_it_is_sent(max_tokens: int) -> None:
    text = "Only words were searched, not meaning: no embedding worker has a model loaded. (keyword_only)"
    warnings = [{"code": "embedding_failed", "message": text}]
    answer = answer_of([SENTENCE] * 50, profile="default", degraded=True, warnings=warnings)
    assert tokens(fitted(answer, max_tokens)) <= max_tokens


def test_of_warnings_that_do_not_fit_the_code_is_left() -> None:
    text = "Only words were searched: the model cannot be loaded. " * 5
    answer = answer_of(
        [SENTENCE] * 50,
        degraded=True,
        warnings=[{"code": "embedding_failed", "message": text}],
        below_threshold=100_000,
    )
    found = fitted(answer, 64)
    assert tokens(found) <= 64
    assert (found["warnings"], found["degraded"], found["omitted"]) == ([{"code": "embedding_failed"}], True, 50)


@pytest.mark.parametrize(("ranges", "cut"), cases("recall_budget", "cuts"))
def test_cuts_are_marked_and_what_overlaps_is_said_once(ranges: list[Range], cut: str) -> None:
    assert cut_to("abc efg ijk", ranges) == cut


@st.composite
def found_memories(draw: st.DrawFn) -> tuple[list[str], list[list[Range]]]:
    """Contents in several scripts, each with some of its ranges in some order."""
    contents = draw(st.lists(texts(), max_size=6))
    passages = []
    for content in contents:
        place = st.integers(0, len(content))
        pairs = draw(st.lists(st.tuples(place, place), max_size=8))
        passages.append([(min(pair), max(pair)) for pair in pairs])
    return contents, passages


@given(found_memories(), st.integers(64, 1500))
def test_no_answer_is_ever_longer_than_promised(found: tuple[list[str], list[list[Range]]], max_tokens: int) -> None:
    contents, passages = found
    answer = answer_of(contents)
    result = fitted(answer, max_tokens, passages)
    assert tokens(result) <= max_tokens
    assert len(result["memories"]) + result.get("omitted", 0) == len(contents)
    assert json.loads(answer_text(result)) == result
    by_id = {memory["id"]: memory for memory in answer["memories"]}
    for memory in result["memories"]:
        whole = by_id[memory["id"]]
        if not memory.get("excerpt"):
            assert memory == whole
            continue
        assert {**memory, "content": whole["content"]} == {**whole, "excerpt": True}
        assert memory["content"] != "…", "an excerpt says something"


@given(texts(), st.integers(150, 600))
def test_an_excerpt_takes_no_character_apart(content: str, max_tokens: int) -> None:
    content = neutralised(content * 20)
    answer = answer_of([content])
    for memory in fitted(answer, max_tokens)["memories"]:
        if memory.get("excerpt"):
            cut = memory["content"].removesuffix(" …")
            start = content.index(cut)
            assert not content[:start].strip()
            assert whole_characters(content, start + len(cut)) == start + len(cut)
