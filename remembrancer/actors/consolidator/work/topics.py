"""The communities of a project's entities, as its topics."""

from __future__ import annotations

from typing import Final, Protocol

from remembrancer.actors.consolidator.reflection.communities import find_communities
from remembrancer.actors.consolidator.work.reading import aside
from remembrancer.protocol.consolidation import EntityEdges
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import ProjectRef

AGAIN_S: Final = 3600.0
"""In a file of many memories, topics that are younger than this stay: another session changes them little."""
MOST_EDGES: Final = 20_000
"""Edges that communities are looked for in: those that most memories say."""


class Edges(Protocol):
    """The part of `StoreAccess` that topics need."""

    async def read_edges(self, project: ProjectRef | None, after: int = 0) -> EntityEdges:
        """A page of the entity graph."""


async def topics_of(store: Edges, project: ProjectRef | None, now: float) -> tuple[Topic, ...] | None:
    """The topics as the entity graph shows them now, the largest first; None: those that are known are to stay."""
    page = await store.read_edges(project)
    is_large = page.next_after is not None
    if is_large and page.topics_at is not None and 0 <= now - page.topics_at < AGAIN_S:
        return None
    weights: dict[tuple[str, str], float] = {}
    while True:
        for one, other, weight in page.edges:
            weights[one, other] = weights.get((one, other), 0.0) + weight
        if page.next_after is None:
            break
        page = await store.read_edges(project, page.next_after)
    strongest = sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:MOST_EDGES]
    edges = tuple((one, other, weight) for (one, other), weight in strongest)
    found = await aside(lambda: find_communities(edges))
    return tuple(Topic(each.label, each.members) for each in found)
