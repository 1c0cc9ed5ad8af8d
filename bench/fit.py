"""Fits the probabilities of `memory/relevance.py`: `python -m bench.fit --kept DIRECTORY FILE …`.

FILE are the development sets of LoCoMo, LongMemEval and the named ones (realmem, beam, xquad); `everyday` and the short
notes come with the benchmark. Two logistic regressions learn from the first candidates of a part of each set's
questions whether they answer. Their weights are printed as they stand in the code, then how well the probabilities hold
on the questions that they did not learn from.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.in_process import Sets, arguments
from remembrancer.memory.relevance import Evidence, features, probability

CANDIDATES: Final = 15
"""Of each question."""
STRENGTH: Final = 10.0
"""The inverse of the regularisation's."""
BINS: Final = (0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 1.01)


class Part(NamedTuple):
    """Which questions of a set are learnt from – each `every`th, of the first `first` –, and what each counts."""

    every: int
    weight: float
    first: int | None = None


PARTS: Final = {
    "everyday": Part(2, 1.0),
    "notes": Part(1, 1.0),
    "xquad": Part(4, 0.3),
    "LongMemEval": Part(2, 0.3),
    "LoCoMo": Part(1, 0.15, first=302),
    "beam": Part(2, 0.2),
    "realmem": Part(4, 0.1),
}

Judged = list[tuple[Evidence, bool]]
"""The first candidates of a question, and whether each answers."""


def weights_of(fitted: Sequence[tuple[Judged, float]], *, by_words: bool) -> tuple[float, ...]:
    """The weights of `features`, to two places; `by_words` of candidates as if they had no vector."""
    rows, answers, counts = [], [], []
    for judged, weight in fitted:
        for evidence, is_answer in judged:
            rows.append(features(evidence._replace(cosine=None) if by_words else evidence)[1:])
            answers.append(is_answer)
            counts.append(weight)
    model = LogisticRegression(C=STRENGTH, max_iter=20_000).fit(np.array(rows), answers, sample_weight=counts)
    return tuple(round(float(each), 2) for each in (*model.intercept_, *model.coef_[0]))


def reliability(judged: Judged) -> str:
    """For each bin the mean of the probabilities as they stand in the code, and the share that answers."""
    known = [(probability(evidence), is_answer) for evidence, is_answer in judged]
    bins = [[each for each in known if low <= each[0] < high] for low, high in itertools.pairwise(BINS)]
    means = ((sum(p for p, _ in each) / len(each), sum(is_ for _, is_ in each) / len(each)) for each in bins if each)
    return "  ".join(f"{p:.2f}/{share:.2f}" for p, share in means)


def main() -> None:
    """Fit, and print."""
    given = arguments(__doc__).parse_args()
    sets = Sets(given.files, given.kept, own=True)
    fitted: list[tuple[Judged, float]] = []
    held_out: dict[str, Judged] = {}
    for name in sets:
        every, weight, first = PARTS[name]
        judged = [
            each.evidence(question)[:CANDIDATES] for each in sets.of(name) for question in each.haystack.questions
        ]
        taken = range(0, len(judged) if first is None else first, every)
        fitted += [(judged[place], weight) for place in taken]
        held_out[name] = [each for place in set(range(len(judged))).difference(taken) for each in judged[place]]
    print("WEIGHTS =", weights_of([(_with_vectors(each), weight) for each, weight in fitted], by_words=False))
    print("WEIGHTS_OF_WORDS =", weights_of(fitted, by_words=True))
    for name, rest in held_out.items():
        if rest:
            print(f"{name:12} probability/share that answers: {reliability(rest)}")


def _with_vectors(judged: Judged) -> Judged:
    return [each for each in judged if each[0].cosine is not None]


if __name__ == "__main__":
    main()
