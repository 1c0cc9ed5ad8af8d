"""What was told just before and after a memory speaks for it too. Pure.

An answer is often told next to the words of its question: "What did you find?", and then the find, without any of these
words. So a memory that matches lends a part of its relevance to those that the same session told next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

SOURCES: Final = 10
"""So many of the nearest by meaning, and so many by words, lend something to their neighbours."""
LENT: Final = (0.2, 0.1)
"""The share that a memory lends to those one step and two steps away.

On three conversations of LoCoMo (495 questions, a turn a memory) so many in 100 have their evidence among the first ten
(the share of it; any of it): 72.1 and 76.6 without, 75.4 and 80.0 with (0.2,), 77.7 and 82.4 with (0.2, 0.1), 78.1 and
82.8 with (0.2, 0.1, 0.05); 79.3 and 84.4 when only the ten best of each search lend. The first answer of all is right
for 38.0, 36.0, 37.2, 36.8 and 38.8.
"""

Key = TypeVar("Key")


def first_of(values: Mapping[int, float]) -> list[int]:
    """The candidates that one search has put first, of those that may lend."""
    return sorted(values, key=lambda number: (-values[number], number))[:SOURCES]


def lent(relevance: Mapping[Key, float], told: Iterable[tuple[Key, Mapping[Key, int]]]) -> dict[Key, float]:
    """What each memory gets from its neighbours. `told` names lenders and, for each, how many steps others are away."""
    gained: dict[Key, float] = {}
    for lender, others in told:
        given = relevance.get(lender, 0.0)
        for other, steps in others.items():
            if other in relevance and steps <= len(LENT):
                gained[other] = gained.get(other, 0.0) + LENT[steps - 1] * given
    return gained


def together(relevance: Mapping[Key, float], gained: Mapping[Key, float]) -> dict[Key, float]:
    """Each memory's relevance with what it was lent, in [0, 1]."""
    sums = {key: own + gained.get(key, 0.0) for key, own in relevance.items()}
    best = max(sums.values(), default=0.0)
    return sums if best <= 1.0 else {key: value / best for key, value in sums.items()}
