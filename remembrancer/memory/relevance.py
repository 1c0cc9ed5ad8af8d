"""How likely a memory answers a question, from what was found out of both; and what is too unlikely to be shown. Pure.

The model is a logistic regression. docs/retrieval.md says on which questions it was fitted and how well its
probabilities hold on others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from operator import mul
from typing import Final, NamedTuple, TypeVar

from remembrancer.memory.ranking import COSINE_FLOOR

# As `bench.fit` prints them.
WEIGHTS: Final = (-2.84, 5.65, 1.14, -5.59, -0.48, -0.3, -0.7, 1.75, -2.31, 10.36, 2.85, -4.07, 4.2, -0.58)
WEIGHTS_OF_WORDS: Final = (-2.33, 7.26, 3.0, -5.06, -1.08, -0.19, -1.78, 1.04)
ANSWERS: Final = 0.12
"""A short fact is shown only where the best of them answers with at least this probability."""
LEAST: Final = 0.05
SHARE_OF_BEST: Final = 0.4
"""Beside the best, a fact needs this share of its probability, and at least `LEAST`."""
RIVALS: Final = slice(2, 8)
"""The other candidates with whose mean a cosine is compared: the third nearest to the eighth, as two more may answer
as well."""
LEAST_RIVALS: Final = 3
"""Where there are fewer, texts that have nothing in common stand for them."""

COMMON: Final = 2_000
"""A word that more memories have weighs as if so many had it."""

Key = TypeVar("Key", bound=Hashable)


class Evidence(NamedTuple):
    """What speaks for one memory. `cosine` None: it has no vector, or meaning was not searched."""

    cosine: float | None
    margin: float
    """How much more that is than the mean of its nearest rivals: two texts of one language are near each other."""
    coverage: float
    """The share of the question's words that it has, each weighed by its rarity."""
    units: int
    """How many words the question has."""
    names_missed: float = 0.0
    """The share of the question's names with a number in them that it does not have: of PAY-9999 no half is enough."""
    other_language: bool = False
    is_long: bool = False
    """It has several passages."""
    is_event: bool = False
    """It is told what happened, often in several memories."""


def features(evidence: Evidence) -> tuple[float, ...]:
    """What the model weighs: with a vector by `WEIGHTS`, without one by `WEIGHTS_OF_WORDS`."""
    cosine, margin, covered, units, missed, other, long, event = evidence
    known = (1.0, covered, long * covered, event * covered, math.log(1 + units), missed, long, event)
    if cosine is None:
        return known
    return (*known, cosine, margin, long * margin, event * margin, cosine * covered, other)


def probability(evidence: Evidence) -> float:
    """The probability that a memory answers."""
    weights = WEIGHTS_OF_WORDS if evidence.cosine is None else WEIGHTS
    return 1.0 / (1.0 + math.exp(-sum(map(mul, weights, features(evidence)))))


def rarity(frequencies: Sequence[int], memories: int) -> list[float]:
    """What each of a question's words weighs among so many memories, by how many have it, up to `COMMON`.

    A word that none of them has counts as the rarest: what it asks for is not here.
    """
    return [math.log(1.0 + memories / min(max(each, 0.5), COMMON)) for each in frequencies]


def coverage(matched: Collection[int], weights: Sequence[float]) -> float:
    """The share in [0, 1] of a question's words that a memory has, by their weights."""
    whole = sum(weights)
    return sum(weights[place] for place in matched) / whole if matched and whole > 0.0 else 0.0


def margins(cosines: Mapping[Key, float]) -> dict[Key, float]:
    """How much each cosine is above those of the others that come next to the nearest."""
    largest = sorted(cosines.values(), reverse=True)[: RIVALS.stop + 1]

    def rivals(others: Sequence[float]) -> float:
        own = [*others[RIVALS], *[COSINE_FLOOR] * (LEAST_RIVALS - len(others[RIVALS]))]
        return sum(own) / len(own)

    of_all = rivals(largest)
    of_others = {own: rivals([*largest[:place], *largest[place + 1 :]]) for place, own in enumerate(largest)}
    return {key: own - of_others.get(own, of_all) for key, own in cosines.items()}


def unlikely(probabilities: Mapping[Key, float]) -> set[Key]:
    """The facts that do not answer, by what the best of them has: all of them, where that is too little."""
    best = max(probabilities.values(), default=0.0)
    least = max(LEAST, SHARE_OF_BEST * best) if best >= ANSWERS else math.inf
    return {key for key, each in probabilities.items() if each < least}
