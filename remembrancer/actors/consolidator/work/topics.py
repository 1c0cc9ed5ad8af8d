"""The communities of a project's entities, as its topics."""

from __future__ import annotations

from remembrancer.actors.consolidator.reflection.communities import find_communities
from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.actors.consolidator.work.reading import aside
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import ProjectRef


async def topics_of(store: StoreAccess, project: ProjectRef | None) -> tuple[Topic, ...]:
    """The topics as the entity graph shows them now, the largest first."""
    edges = (await store.read_edges(project)).edges
    found = await aside(lambda: find_communities(edges))
    return tuple(Topic(each.label, each.members) for each in found)
