"""What was told just before and after a memory speaks for it too. Pure.

An answer is often told next to the words of its question: "What did you find?", and then the find, without any of these
words. So a memory that matches lends a part of its relevance to those that the same session told next to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

SOURCES: Final = 10
"""So many of the nearest by meaning, and so many by words, lend something to their neighbours."""
LENT: Final = (0.5, 0.35)
"""The share that a memory lends to those one step and two steps away; each takes the most that it is offered.

On three conversations of LoCoMo (495 questions, a turn a memory) so many in 100 have their evidence among the first ten
(the share of it; any of it), and evidence as the first of all: 72.3, 76.8 and 37.8 without, 79.1, 83.6 and 38.6 with
(0.35, 0.25), 80.9, 86.1 and 38.8 with (0.5, 0.35), 81.5, 86.7 and 38.4 with (0.6, 0.4). When all candidates lend, and
not the ten best of each search alone, it is a little less. Adding up what is offered finds as much, and puts what
stands in the middle of equals before them.
"""

Key = TypeVar("Key")


def first_of(values: Mapping[int, float]) -> list[int]:
    """The candidates that one search has put first, of those that may lend."""
    return sorted(values, key=lambda number: (-values[number], number))[:SOURCES]


def lent(
    relevance: Mapping[Key, float], told: Iterable[tuple[Key, Mapping[Key, int]]], long: Collection[Key] = ()
) -> dict[Key, float]:
    """What each memory gets from its neighbours. `told` names lenders and, for each, how many steps others are away.

    Those in `long` get nothing: a whole text has its own context, and is told next to others by chance.
    """
    gained: dict[Key, float] = {}
    for lender, others in told:
        given = relevance.get(lender, 0.0)
        for other, steps in others.items():
            if other in relevance and other not in long and steps <= len(LENT):
                gained[other] = max(gained.get(other, 0.0), LENT[steps - 1] * given)
    return gained


def together(relevance: Mapping[Key, float], gained: Mapping[Key, float]) -> dict[Key, float]:
    """Each memory's relevance with what it was lent, in [0, 1]: that fills up a part of what it lacks."""
    return {key: own + gained.get(key, 0.0) * (1.0 - own) for key, own in relevance.items()}
