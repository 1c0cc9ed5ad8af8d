"""Which parts of a long memory come first for a question, by meaning or by words."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from remembrancer.actors.store.records.contract import PassageVectors
from remembrancer.actors.store.retrieval.best_passages import (
    MOST_PASSAGES,
    STRETCH_CHARACTERS,
    by_cosine,
    by_words,
    stretches,
)
from tests.pure.test_context_block import texts


def test_by_cosine_the_nearest_passage_of_each_memory_comes_first() -> None:
    vectors = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    known = PassageVectors([11, 12, 13], [1, 1, 2], [0, 1, 0], vectors)
    ranges = {11: (0, 5), 12: (4, 9), 13: (0, 3)}
    assert by_cosine(vectors[1], known, ranges) == {1: ((4, 9), (0, 5)), 2: ((0, 3),)}
    assert by_cosine(vectors[1], known, {11: (0, 5)}) == {1: ((0, 5),)}, "a passage that is gone is left out"


def test_by_words_a_rare_word_counts_for_more_than_a_common_one() -> None:
    content = "the keeper|the keeper of bread|the lantern|nothing"
    ranges = [(0, 10), (11, 30), (31, 42), (43, 50)]
    assert by_words("Which keeper has the lantern?", content, ranges)[0] == (31, 42)
    assert by_words("the", content, ranges) == tuple(ranges), "words that say nothing leave the order as it is"


@given(texts().map(lambda text: text * 10))
def test_stretches_are_the_whole_text_and_none_is_too_long(content: str) -> None:
    found = stretches(content)
    assert "".join(content[start:end] for start, end in found) == content
    assert all(0 < end - start <= 3 * STRETCH_CHARACTERS for start, end in found)
    assert len(by_words("x", content, found)) == min(len(found), MOST_PASSAGES)
