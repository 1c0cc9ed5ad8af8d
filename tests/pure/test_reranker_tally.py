"""What a reranker costs: counted alike for both kinds of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remembrancer.protocol.control import RerankerFigures
from remembrancer.protocol.reranker_tally import RerankerTally

BARE = RerankerFigures("client", "ready", candidates=20)


class GaveNothingError(Exception):
    """What the tests' reranker fails with."""


def test_before_the_first_question_nothing_is_counted() -> None:
    assert RerankerTally(GaveNothingError).added_to(BARE) == BARE


def test_answers_have_their_times_and_what_fails_has_none() -> None:
    moments: Iterator[float] = iter((0.0, 0.050, 1.0, 2.0, 2.030, 3.0, 3.010))
    tally = RerankerTally(GaveNothingError, lambda: next(moments))
    with tally.asking():
        pass
    with pytest.raises(GaveNothingError), tally.asking():
        raise GaveNothingError
    for _ in range(2):
        with tally.asking():
            pass
    figures = tally.added_to(BARE)
    assert (figures.kind, figures.candidates) == ("client", 20)
    assert (figures.asked, figures.failed) == (4, 1)
    assert figures.last_ms == pytest.approx(10.0)
    assert figures.median_ms == pytest.approx(30.0)


def test_what_is_broken_off_was_asked_and_is_neither_an_answer_nor_a_failure() -> None:
    tally = RerankerTally(GaveNothingError)
    with pytest.raises(KeyboardInterrupt), tally.asking():
        raise KeyboardInterrupt
    figures = tally.added_to(BARE)
    assert (figures.asked, figures.failed, figures.last_ms) == (1, 0, None)
