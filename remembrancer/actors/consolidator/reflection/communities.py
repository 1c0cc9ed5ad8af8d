"""Communities of the entity graph by the Leiden algorithm (Traag, Waltman and van Eck, 2019), maximising modularity.

Leiden's communities are connected, which Louvain's need not be. The seed and the order of the edges are fixed, so that
one graph always gives one answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import graspologic_native

Edge = tuple[str, str, float]

SEED: Final = 20_240_229
ITERATIONS: Final = 4
"""How often the algorithm begins again from its own result. Later ones change next to nothing."""
RANDOMNESS: Final = 0.001
"""The library's own default: how freely a refinement explores."""
LABEL_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class CommunityBounds:
    """How much is looked at and told. Of too many edges the heaviest count; of too many members the best connected."""

    edges: int = 50_000
    communities: int = 50
    members: int = 50
    min_size: int = 2
    resolution: float = 1.0


@dataclass(frozen=True, slots=True)
class Community:
    """Entities that are connected with one another more than with others, the best connected first.

    `label` names the best connected ones. `size` counts all members; `members` may be fewer.
    """

    label: str
    members: tuple[str, ...]
    size: int


DEFAULT_BOUNDS: Final = CommunityBounds()


def find_communities(edges: Iterable[Edge], bounds: CommunityBounds = DEFAULT_BOUNDS) -> list[Community]:
    """The communities, the largest first. An edge has two names and a positive weight; its direction does not matter.

    Edges between the same two names count together. Edges from a name to itself, and edges whose weight is not a
    positive number, are left out.
    """
    weights: dict[tuple[str, str], list[float]] = {}
    for one, two, weight in edges:
        if one != two and weight > 0 and math.isfinite(weight):
            pair = (one, two) if one < two else (two, one)
            weights.setdefault(pair, []).append(weight)
    # fsum: the sum of the same weights is the same in whatever order they come.
    sums = {pair: math.fsum(each) for pair, each in weights.items()}
    heaviest = sorted(sums.items(), key=lambda each: (-each[1], each[0]))[: bounds.edges]
    if not heaviest:
        return []
    kept = sorted((*pair, weight) for pair, weight in heaviest)
    _, membership = graspologic_native.leiden(
        edges=kept,
        starting_communities=None,
        resolution=bounds.resolution,
        randomness=RANDOMNESS,
        iterations=ITERATIONS,
        use_modularity=True,
        seed=SEED,
        trials=1,
    )
    return _described(membership, _strengths(kept), bounds)


def _strengths(edges: Iterable[Edge]) -> dict[str, float]:
    """The weights of all edges of a name together."""
    strengths: dict[str, float] = {}
    for one, two, weight in edges:
        strengths[one] = strengths.get(one, 0.0) + weight
        strengths[two] = strengths.get(two, 0.0) + weight
    return strengths


def _described(membership: dict[str, int], strengths: dict[str, float], bounds: CommunityBounds) -> list[Community]:
    groups: dict[int, list[str]] = {}
    for name in sorted(strengths, key=lambda each: (-strengths[each], each)):
        groups.setdefault(membership[name], []).append(name)
    large = [names for names in groups.values() if len(names) >= bounds.min_size]
    large.sort(key=lambda names: (-len(names), names[0]))
    return [
        Community(", ".join(names[:LABEL_NAMES]), tuple(names[: bounds.members]), len(names))
        for names in large[: bounds.communities]
    ]
