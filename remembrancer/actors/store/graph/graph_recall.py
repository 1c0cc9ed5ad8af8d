"""`strategy: graph`: the memories that are connected with the entities that a query names, and how closely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from remembrancer.actors.store.graph.graph_files import GraphView, JoinedGraph
from remembrancer.actors.store.graph.graph_names import named_in, with_aliases
from remembrancer.actors.store.graph.walk import Node, Reached, connection, walk
from remembrancer.actors.store.records.contract import Filters, RankingFacts

HOPS: Final = 2
WIDEST: Final = 50
"""Entities of one level that a walk goes on from, the best connected."""
CONNECTED: Final = 100
"""Connected memories that are looked at more closely, the most important and the latest of the nearest."""

Named = dict[int, tuple[RankingFacts, float]]
"""Memories of one file by their numbers: what ranks them, and their nearness in (0, 1]."""


def connections(
    graph: JoinedGraph, query: str, filters: Filters, matching: Sequence[Mapping[int, RankingFacts]]
) -> list[Named] | None:
    """For each file the memories that pass the filters and are connected with what the query names.

    `matching` are, for each file, memories that pass the filters and that another search has found: of these, too, the
    connected ones are named. None: the query names no entity.
    """
    starts = with_aliases(graph, named_in(graph, query))
    if not starts:
        return None
    reached = walk(starts, GraphView(graph, "both", None), HOPS, WIDEST).reached
    near = near_memories(graph, reached, filters, CONNECTED)
    return [with_nearness(graph, place, {**facts, **matching[place]}, reached) for place, facts in enumerate(near)]


def near_memories(
    graph: JoinedGraph, reached: Mapping[Node, Reached], filters: Filters, enough: int
) -> list[dict[int, RankingFacts]]:
    """For each file memories that name entities that were reached: of the nearest, the most important and the latest.

    Level by level, until there are `enough` memories in all.
    """
    found: list[dict[int, RankingFacts]] = []
    nodes = list(reached)[: WIDEST * HOPS]
    for distance in sorted({reached[node].distance for node in nodes}):
        level = [node for node in nodes if reached[node].distance == distance]
        of_level = graph.memories(level, filters, enough)
        found = [earlier | later for earlier, later in zip(found, of_level, strict=True)] if found else of_level
        if sum(len(of_file) for of_file in found) >= enough:
            break
    return found


def with_nearness(
    graph: JoinedGraph, place: int, facts: Mapping[int, RankingFacts], reached: Mapping[Node, Reached]
) -> Named:
    """Those memories of one file that name an entity that was reached, with how near that makes them."""
    named = graph.nodes_named_by(place, list(facts))
    nearness = {
        number: connection(reached[node] for node in nodes if node in reached) for number, nodes in named.items()
    }
    return {number: (facts[number], near) for number, near in nearness.items() if near > 0}
