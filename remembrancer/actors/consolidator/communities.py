"""The topics of a project: communities of its entity graph by the Leiden algorithm (Traag, Waltman and van Eck, 2019).

The seed and the order of the edges are fixed, so that one graph always gives one answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import graspologic_native
from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.store_connection import StoreConnection
from remembrancer.protocol.consolidation import ReadEntityEdges
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import ProjectRef

Edge = tuple[str, str, float]

AGAIN_S: Final = 3600.0
"""In a file of many memories, topics that are younger than this stay: another session changes them little."""
MOST_EDGES: Final = 20_000
"""Edges that communities are looked for in: the heaviest."""
MOST_COMMUNITIES: Final = 50
MOST_MEMBERS: Final = 50
"""Members of a community that are named: the best connected."""
LABEL_NAMES: Final = 3
SEED: Final = 20_240_229
ITERATIONS: Final = 4
"""The number of times that the algorithm begins again from its own result. Later ones change next to nothing."""
RANDOMNESS: Final = 0.001
"""The library's own default: how freely a refinement explores."""


async def topics_of(store: StoreConnection, project: ProjectRef | None, now: float) -> tuple[Topic, ...] | None:
    """The topics as the entity graph shows them now, the largest first; None: those that are known are to stay."""
    page = await store.ask(ReadEntityEdges(project))
    is_large = page.next_after is not None
    if is_large and page.topics_at is not None and 0 <= now - page.topics_at < AGAIN_S:
        return None
    weights: dict[tuple[str, str], float] = {}
    while True:
        for one, other, weight in page.edges:
            weights[one, other] = weights.get((one, other), 0.0) + weight
        if page.next_after is None:
            break
        page = await store.ask(ReadEntityEdges(project, page.next_after))
    return await run_sync(lambda: find_communities((*pair, weight) for pair, weight in weights.items()))


def find_communities(edges: Iterable[Edge]) -> tuple[Topic, ...]:
    """The communities of at least two members, the largest first, each with its best connected members first.

    An edge has two names and a positive weight; its direction does not matter. Edges between the same two names count
    together. Edges from a name to itself, and edges whose weight is not a positive number, are left out.
    """
    weights: dict[tuple[str, str], list[float]] = {}
    for one, two, weight in edges:
        if one != two and weight > 0 and math.isfinite(weight):
            pair = (one, two) if one < two else (two, one)
            weights.setdefault(pair, []).append(weight)
    # fsum: the sum of the same weights is the same in whatever order they come.
    sums = {pair: math.fsum(each) for pair, each in weights.items()}
    heaviest = sorted(sums.items(), key=lambda each: (-each[1], each[0]))[:MOST_EDGES]
    if not heaviest:
        return ()
    kept = sorted((*pair, weight) for pair, weight in heaviest)
    _, membership = graspologic_native.leiden(
        edges=kept,
        starting_communities=None,
        resolution=1.0,
        randomness=RANDOMNESS,
        iterations=ITERATIONS,
        use_modularity=True,
        seed=SEED,
        trials=1,
    )
    strengths: dict[str, float] = {}
    for one, two, weight in kept:
        strengths[one] = strengths.get(one, 0.0) + weight
        strengths[two] = strengths.get(two, 0.0) + weight
    groups: dict[int, list[str]] = {}
    for name in sorted(strengths, key=lambda each: (-strengths[each], each)):
        groups.setdefault(membership[name], []).append(name)
    large = sorted((names for names in groups.values() if len(names) > 1), key=lambda names: (-len(names), names[0]))
    large = large[:MOST_COMMUNITIES]
    return tuple(Topic(", ".join(names[:LABEL_NAMES]), tuple(names[:MOST_MEMBERS])) for names in large)
