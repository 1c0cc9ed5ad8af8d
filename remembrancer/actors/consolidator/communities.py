"""The topics of a project: communities of its entity graph by the Leiden algorithm (Traag, Waltman and van Eck, 2019).

The seed and the order of the edges are fixed, so that one graph always gives one answer.
"""

from collections.abc import Iterable
from typing import Final

import graspologic_native
from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.store_connection import StoreConnection
from remembrancer.protocol.consolidation import ReadEntityEdges
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import ProjectRef

Edge = tuple[str, str, int]
"""Two names and a positive weight. Each pair comes once; its order does not matter."""

MOST_COMMUNITIES: Final = 50
MOST_MEMBERS: Final = 50
"""Members of a community that are named: the best connected."""
LABEL_NAMES: Final = 3
SEED: Final = 20_240_229
ITERATIONS: Final = 4
"""The number of times that the algorithm begins again from its own result. Later ones change next to nothing."""
RANDOMNESS: Final = 0.001
"""The library's own default: how freely a refinement explores."""


async def topics_of(store: StoreConnection, project: ProjectRef | None) -> tuple[Topic, ...]:
    """The topics of a space, the largest first."""
    edges = await store.ask(ReadEntityEdges(project))
    return await run_sync(find_communities, edges)


def find_communities(edges: Iterable[Edge]) -> tuple[Topic, ...]:
    """The communities of at least two members, the largest first, each with its best connected members first.

    The order of the edges does not matter.
    """
    if not edges:
        return ()
    kept = sorted((min(one, two), max(one, two), float(weight)) for one, two, weight in edges)
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
