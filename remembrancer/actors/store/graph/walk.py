"""A walk through the knowledge graph, and what being near is worth. Pure: edges come through a Protocol.

A node is what several files and spellings call the same: the key of a name, and a type. An edge is said by memories;
it is stale when all that say it are forgotten. Stale edges are walked like others, and come last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

STALE_WORTH: Final = 0.5
"""What is left of an entity's nearness when only forgotten memories connect it."""
LONE_WORTH: Final = 0.8
"""A memory with one entity so near has this part of what it would be worth with any number of them."""


class Node(NamedTuple):
    """An entity in all its spellings. `key` is its `name_key`, `type` is in small letters."""

    key: str
    type: str


class Edge(NamedTuple):
    """`subject` --`relationship`--> `target`. The relationship is a `name_key` too."""

    subject: Node
    relationship: str
    target: Node


class Sighting(NamedTuple):
    """That one row of one file says an edge, by so many memories. The same row may be seen from both of its ends."""

    row: Hashable
    edge: Edge
    live: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class Expansion:
    """The edges of some nodes. `cut`: there are more than were looked at."""

    sightings: Sequence[Sighting]
    cut: bool = False


class Neighbourhood(Protocol):
    """Where a walk gets its edges from."""

    def expand(self, nodes: Sequence[Node]) -> Expansion:
        """The edges that lead on from these nodes, in the direction and of the type that the walk is for."""


class Reached(NamedTuple):
    """How a node was reached: hops, the memories that connect it to nearer ones, and whether all are forgotten."""

    distance: int
    weight: int = 0
    stale: bool = False


class Support(NamedTuple):
    """How many memories say an edge."""

    live: int
    forgotten: int

    @property
    def stale(self) -> bool:
        return self.live == 0


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk found. `reached` has the nearest first; of these the fresh, then the well connected first.

    `edges` are those of every node that is nearer than the walk's depth. `cut`: not all that is there was walked.
    """

    reached: dict[Node, Reached]
    edges: dict[Edge, Support]
    depth_reached: int
    cut: bool


def walk(starts: Iterable[Node], graph: Neighbourhood, depth: int, widest: int) -> Walk:
    """Breadth first from `starts` for `depth` hops; of each level the `widest` best connected nodes lead on."""
    reached = {start: Reached(0) for start in starts}
    rows: dict[Hashable, Sighting] = {}
    frontier = list(reached)
    depth_reached, cut = 0, False
    for distance in range(1, depth + 1):
        if not frontier:
            break
        leading = frontier[:widest]
        expansion = graph.expand(leading)
        cut = cut or expansion.cut or len(leading) < len(frontier)
        for sighting in expansion.sightings:
            known = rows.get(sighting.row)
            if known is None or known.live + known.forgotten < sighting.live + sighting.forgotten:
                rows[sighting.row] = sighting
        found = _next_level(expansion.sightings, set(leading), reached, distance)
        if found:
            depth_reached = distance
        reached.update(found)
        frontier = list(found)
    return Walk(reached, _supports(rows.values()), depth_reached, cut)


def _next_level(
    sightings: Iterable[Sighting], leading: set[Node], reached: dict[Node, Reached], distance: int
) -> dict[Node, Reached]:
    """The nodes that edges from `leading` reach for the first time, the best connected first."""
    weights: dict[Node, int] = {}
    fresh: set[Node] = set()
    for sighting in sightings:
        subject, _, target = sighting.edge
        for here, there in ((subject, target), (target, subject)):
            if here in leading and there not in reached:
                weights[there] = weights.get(there, 0) + sighting.live
                if sighting.live and not reached[here].stale:
                    fresh.add(there)
    found = [(node, Reached(distance, weight, node not in fresh)) for node, weight in weights.items()]
    found.sort(key=lambda each: (each[1].stale, -each[1].weight, each[0]))
    return dict(found)


def _supports(sightings: Iterable[Sighting]) -> dict[Edge, Support]:
    """The edges that rows say, the best supported first. Two spellings of one name have none between them."""
    live: dict[Edge, int] = {}
    forgotten: dict[Edge, int] = {}
    for sighting in sightings:
        edge = sighting.edge
        if edge.subject != edge.target:
            live[edge] = live.get(edge, 0) + sighting.live
            forgotten[edge] = forgotten.get(edge, 0) + sighting.forgotten
    order = sorted(live, key=lambda edge: (-live[edge], -forgotten[edge], edge))
    return {edge: Support(live[edge], forgotten[edge]) for edge in order}


def nearness(reached: Reached) -> float:
    """What an entity's distance is worth: 1 for one that was asked for, falling with the hops. In (0, 1]."""
    return (STALE_WORTH if reached.stale else 1.0) / (1 + reached.distance)


def connection(entities: Iterable[Reached]) -> float:
    """What a memory's entities make it worth, in [0, 1]: its nearest counts, and how many there are as near as that.

    Up to three hops a memory with a nearer entity is never worth less than one whose entities are farther.
    """
    worths = [nearness(each) for each in entities]
    if not worths:
        return 0.0
    best = max(worths)
    return best * (1.0 - (1.0 - LONE_WORTH) / worths.count(best))


def fair_share(sizes: Sequence[int], budget: int) -> int:
    """The largest share that each may take, so that all together take no more than `budget`; at least 1."""
    left = budget
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return max(1, share)
        left -= size
    return max(1, *sizes, 1)
