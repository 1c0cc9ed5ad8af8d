"""Which parts of a long memory come first for a question, by meaning or by words."""

from __future__ import annotations

from hypothesis import given

from remembrancer.actors.store.retrieval.once import (
    MOST_PASSAGES,
    STRETCH_CHARACTERS,
    best_first,
    stretches,
)
from tests.pure.test_context_block import texts

CONTENT = "the keeper|the keeper of bread|the lantern|nothing"
RANGES = [(0, 10), (11, 30), (31, 42), (43, 50)]


def test_where_no_word_tells_the_nearest_passage_comes_first() -> None:
    assert best_first("who bakes?", CONTENT, RANGES, [0.1, 0.5, -0.2, 0.3]) == ((11, 30), (43, 50), (0, 10), (31, 42))


def test_a_passage_with_the_words_that_were_asked_for_comes_before_one_that_is_a_little_nearer() -> None:
    assert best_first("shard lantern", CONTENT, RANGES, [0.62, 0.6, 0.55, 0.5])[0] == (31, 42)


def test_by_words_a_rare_word_counts_for_more_than_a_common_one() -> None:
    assert best_first("Which keeper has the lantern?", CONTENT, RANGES)[0] == (31, 42)
    assert best_first("the", CONTENT, RANGES) == tuple(RANGES), "words that say nothing leave the order as it is"


@given(texts().map(lambda text: text * 10))
def test_stretches_are_the_whole_text_and_none_is_too_long(content: str) -> None:
    found = stretches(content)
    assert "".join(content[start:end] for start, end in found) == content
    assert all(0 < end - start <= 3 * STRETCH_CHARACTERS for start, end in found)
    assert len(best_first("x", content, found)) == min(len(found), MOST_PASSAGES)
