"""The fit of the weights: what it learns from a few made-up questions, and what it leaves as it is."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data_forms import Question
from bench.fit import FIXED, PRIOR, Judged, calibration_error, figures_of, fit, fitted_on, threshold
from remembrancer.memory.features import NAMES
from remembrancer.memory.ranking import column_of

TELLING = "context_meaning"
"""A feature that the fit is free to weigh, and of which the prior says little."""


def questions(telling: str, count: int = 60, *, candidates: int = 8, seed: int = 0) -> list[Judged]:
    """Questions whose answer is the candidate with the most of one feature; all else is noise."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        table = np.zeros((candidates, len(NAMES)))
        free = [place for place, name in enumerate(NAMES) if name not in FIXED]
        table[:, free] = random.uniform(0.0, 1.0, (candidates, len(free)))
        best = int(random.integers(candidates))
        table[:, NAMES.index(telling)] *= 0.5
        table[best, NAMES.index(telling)] = 1.0
        labels = [f"{number}-{place}" for place in range(candidates)]
        answers = np.arange(candidates) == best
        made.append(Judged(table, answers, Question(str(number), "?", "made", 0.0, frozenset({labels[best]})), labels))
    return made


def test_the_fit_finds_what_tells_answers_apart_on_questions_that_it_has_not_seen() -> None:
    sets = {"one": questions(TELLING), "two": questions(TELLING, seed=1)}
    held_out = questions(TELLING, seed=2)
    fitted = fit(sets.values())
    prior = column_of(PRIOR)
    assert fitted[NAMES.index(TELLING)] > PRIOR[TELLING] + 2.0
    assert figures_of(held_out, fitted)["any@1"] > figures_of(held_out, prior)["any@1"] + 20
    assert figures_of(held_out, fitted)["NDCG@10"] > 90


def test_with_a_heavy_ridge_and_nothing_to_learn_the_weights_are_those_of_the_prior() -> None:
    assert fit([questions(TELLING)], ridge=1e6) == pytest.approx(column_of(PRIOR), abs=1e-3)
    one = questions(TELLING, 1)[0]
    silent = Judged(one.table, np.zeros(len(one.table), dtype=bool), one.question, one.labels)
    told = fit([[silent, one]])
    assert told == pytest.approx(fit([[one]]), abs=1e-6), "a question without an answer teaches nothing"


def test_what_is_fixed_or_left_out_is_not_fitted() -> None:
    fitted = fit([questions("words")], without={"words"})
    for name in FIXED:
        assert fitted[NAMES.index(name)] == PRIOR.get(name, 0.0)
    assert fitted[NAMES.index("words")] == 0.0


def test_the_probabilities_are_calibrated_and_the_threshold_loses_hardly_anything() -> None:
    sets = {"one": questions(TELLING, 200)}
    fitted = fitted_on(sets)
    assert fitted.slope > 0.0
    least = threshold(sets, fitted)
    assert 0.0 <= least < 1.0
    error, shown, wrong = calibration_error(sets["one"], fitted, 0.0)
    assert error < 0.1
    assert shown == 8.0
    assert wrong == pytest.approx(100 * 7 / 8)
    column = column_of(fitted.weights)
    lost = sum(fitted.probabilities(each.table @ column)[each.answers][0] < least for each in sets["one"])
    assert lost <= 0.01 * len(sets["one"])
