"""What a reranker makes of an order: pure functions, and the asking with what can go wrong in it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.embedder.reranker import TOO_LATE, reranked
from remembrancer.actors.store.retrieval.reranking import excerpt, merged
from remembrancer.actors.store.retrieval.shortlist import Place
from remembrancer.memory.ranking import Weights
from remembrancer.protocol.reads import Scores
from remembrancer.protocol.work import PassagesReranked, RerankPassages

WEIGHTS = Weights()
FRACTION = st.floats(0, 1)


def candidate(number: int, relevance: float, importance: float = 0.5, factor: float = 1.0) -> tuple[Place, Scores]:
    final = factor * WEIGHTS.final(relevance, importance, 1.0)
    return (0, number), Scores(final, relevance, importance, 1.0)


def order(ranked: list[tuple[Place, Scores]]) -> list[int]:
    return [number for (_, number), _ in ranked]


def test_what_the_reranker_finds_better_comes_first_and_its_score_is_seen() -> None:
    ranked = [candidate(1, 1.0), candidate(2, 0.9), candidate(3, 0.8)]
    after = merged(ranked, [0.01, 0.02, 0.99], WEIGHTS)
    assert order(after) == [3, 2, 1] or order(after) == [3, 1, 2]
    assert after[0][1].reranker == 0.99


def test_what_was_not_read_keeps_its_scores_and_stays_behind_what_is_as_important() -> None:
    ranked = [candidate(number, 1.0 - number / 10) for number in range(6)]
    after = merged(ranked, [0.1, 0.5, 0.9], WEIGHTS)
    assert order(after)[:3] == [2, 1, 0]
    assert after[3:] == ranked[3:]
    assert all(scores.reranker is None for _, scores in after[3:])


def test_a_reranker_without_an_opinion_changes_no_order() -> None:
    ranked = [candidate(1, 0.9), candidate(2, 0.4)]
    after = merged(ranked, [0.3, 0.3], WEIGHTS)
    assert [scores.final for _, scores in after] == pytest.approx([scores.final for _, scores in ranked])
    assert order(after) == [1, 2]


@pytest.mark.parametrize("recency", [0.0, 1.0])
def test_equal_verdicts_leave_the_final_scores_of_a_question_as_they_were(recency: float) -> None:
    weights = WEIGHTS.asked("lantern?")
    ranked: list[tuple[Place, Scores]] = [
        ((0, number), Scores(weights.final(relevance, 0.5, recency), relevance, 0.5, recency))
        for number, relevance in enumerate((0.9, 0.4, 0.0))
    ]
    after = merged(ranked, [0.5, 0.5, 0.5], weights)
    assert [scores.final for _, scores in after] == pytest.approx([scores.final for _, scores in ranked])


def test_equal_relevance_leaves_the_reranker_room_to_speak() -> None:
    assert order(merged([candidate(number, 1.0) for number in range(3)], [0.1, 0.3, 0.9], WEIGHTS)) == [2, 1, 0]


def test_what_is_archived_is_still_weighed_less() -> None:
    after = merged([candidate(1, 1.0), candidate(2, 0.5, factor=0.5)], [0.50, 0.51], WEIGHTS)
    assert order(after) == [1, 2]


@given(st.lists(st.tuples(FRACTION, FRACTION, FRACTION, st.floats(0.5, 1)), min_size=2, max_size=12), st.data())
def test_merging_loses_and_invents_nothing_and_is_sorted(
    made: list[tuple[float, float, float, float]], data: st.DataObject
) -> None:
    ranked = [candidate(number, rel, imp, factor) for number, (rel, imp, _, factor) in enumerate(made)]
    ranked.sort(key=lambda item: -item[1].final)
    read = data.draw(st.integers(0, len(ranked)))
    after = merged(ranked, [score for _, _, score, _ in made[:read]], WEIGHTS)
    assert sorted(order(after)) == sorted(order(ranked))
    finals = [scores.final for _, scores in after]
    assert finals == sorted(finals, reverse=True)
    assert all(0.0 <= scores.final <= 1.0 + 1e-9 and 0.0 <= scores.relevance <= 1.0 + 1e-9 for _, scores in after)


def test_of_a_long_text_the_best_passages_are_read_as_they_stand_in_it() -> None:
    text = "".join(f"{number:04d}" for number in range(100))
    assert excerpt("short", ((0, 2),), 10) == "short"
    assert excerpt(text, ((200, 208), (40, 48), (0, 8)), 16) == "00100011\n00500051"
    assert excerpt(text, ((40, 48), (44, 52)), 16) == "001000110012", "what overlaps is joined"
    assert excerpt(text, ((40, 400),), 16) == text[40:56]
    assert excerpt(text, (), 16) == text[:16]


@given(st.text(min_size=30, max_size=200), st.lists(st.tuples(st.integers(0, 29), st.integers(1, 40)), max_size=6))
def test_an_excerpt_is_of_the_text_and_hardly_longer_than_allowed(text: str, made: list[tuple[int, int]]) -> None:
    ranges = [(start, min(len(text), start + length)) for start, length in made]
    read = excerpt(text, ranges, 20)
    assert len(read) <= 20 + len(made)
    assert read or not made


class Slow:
    name = "slow"

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.read = 0

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.clock[0] += 1.0
        self.read += len(passages)
        return [0.5] * len(passages)


def test_a_worker_stops_reading_for_one_who_has_gone() -> None:
    clock = [0.0]
    slow = Slow(clock)
    answer = reranked(slow, RerankPassages(7, "q", ("p",) * 40, answer_by=1.5), lambda: clock[0])
    assert answer == PassagesReranked(7, (), TOO_LATE)
    assert slow.read == 16
    answer = reranked(slow, RerankPassages(8, "q", ("p",) * 40, answer_by=100.0), lambda: clock[0])
    assert answer == PassagesReranked(8, (0.5,) * 40)
