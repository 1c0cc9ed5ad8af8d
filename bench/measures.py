"""Quality measures of rankings. Pure."""

import math
from collections.abc import Iterable, Sequence, Set
from typing import Final

import msgspec

DEPTH: Final = 10
"""The number of results that all figures consider."""
NAMES: Final = ("any@1", "any@3", "any@5", "any@10", "all@5", "NDCG@10", "fractional@10")

Figures = dict[str, float]


class Answered(msgspec.Struct, frozen=True):
    """One question's ranking: the labels found, best first, the wanted ones, and those with an outdated answer."""

    kind: str
    ranked: tuple[str, ...]
    wanted: frozenset[str]
    stale: frozenset[str] = frozenset()

    @property
    def is_stale_first(self) -> bool:
        """True if an outdated answer ranks above all wanted ones."""
        known = self.wanted | self.stale
        return next((label in self.stale for label in self.ranked if label in known), False)


def measure(ranked: Sequence[str], wanted: Set[str]) -> Figures:
    """Return the figures of one ranking, each from 0 to 1. A repeated label counts only once, at its first rank.

    `any@k`: a wanted label is among the first k; `all@5`: all of them are; `fractional@10`: the share that is. NDCG
    uses gains of 1 and a discount of log2(rank + 1), divided by that of the best ranking (Järvelin and Kekäläinen,
    2002).
    """
    if not wanted:
        raise ValueError("a question without evidence has no figures")
    gains = _gains(ranked[:DEPTH], wanted)
    ideal = sum(_discount(rank) for rank in range(1, min(DEPTH, len(wanted)) + 1))
    figures = {f"any@{k}": float(any(gains[:k])) for k in (1, 3, 5, 10)}
    figures["all@5"] = float(sum(gains[:5]) == len(wanted))
    figures["NDCG@10"] = sum(_discount(rank) for rank, gain in enumerate(gains, 1) if gain) / ideal
    figures["fractional@10"] = sum(gains) / len(wanted)
    return figures


def _gains(ranked: Sequence[str], wanted: Set[str]) -> list[bool]:
    seen: set[str] = set()
    gains = []
    for label in ranked:
        gains.append(label in wanted and label not in seen)
        seen.add(label)
    return gains


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def percentages(answers: Iterable[Answered]) -> Figures:
    """Return the means of the figures, in per cent to two places; empty without answers."""
    measured = [measure(answer.ranked, answer.wanted) for answer in answers]
    if not measured:
        return {}
    return {name: round(100 * sum(each[name] for each in measured) / len(measured), 2) for name in NAMES}


def by_kind(answers: Sequence[Answered]) -> dict[str, list[Answered]]:
    """Group the answers by kind of question, in alphabetical order."""
    kinds = sorted({answer.kind for answer in answers})
    return {kind: [answer for answer in answers if answer.kind == kind] for kind in kinds}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this `share` of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values have no percentile")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
