"""PageRank personalised by weights, walked as far as it matters. Pure: the graph is read a part at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

DAMPING: Final = 0.5
"""The share of PageRank that goes on at each step; the rest starts again at the seeds (as HippoRAG has it)."""
ROUNDS: Final = 15
PRECISION: Final = 5e-4
"""The least share for each edge that goes on from a node; less is left there: see `personal_pagerank`."""

Key = TypeVar("Key", bound=Hashable)


class Around(NamedTuple, Generic[Key]):
    """The numbers of edges that nodes have, and the nodes that some of them are joined to, each once."""

    degrees: Mapping[Key, int]
    neighbours: Mapping[Key, Sequence[Key]]


class Neighbourhood(Protocol[Key]):
    """An undirected graph of which a part is read at a time."""

    def look(self, nodes: Mapping[Key, int]) -> Around[Key]:
        """The surroundings of these nodes: the neighbours of those that have no more edges than is said of each. Of a
        node that has more, so many at least are counted."""


def personal_pagerank(
    seeds: Mapping[Key, float],
    graph: Neighbourhood[Key],
    precision: float = PRECISION,
    known: Around[Key] | None = None,
) -> dict[Key, float]:
    """PageRank personalised by the weights of `seeds`, as far as it was walked. `known` need not be
    asked for.

    Forward push (Andersen, Chung and Lang, 2006) in `ROUNDS` rounds: what a node has received stays there to a half,
    and goes on to its neighbours in equal parts to the other, where that is at least `precision` for each. So no more
    than 1 / ((1 - `DAMPING`) * `precision`) edges are walked, whatever the size of the graph. No value is above the
    exact one, and where the rounds were enough none is below it by more than `precision` for each edge of its node.
    """
    whole = sum(seeds.values())
    waiting = {node: weight / whole for node, weight in seeds.items() if weight > 0.0}
    ranks: defaultdict[Key, float] = defaultdict(float)
    degrees: dict[Key, int] = {} if known is None else dict(known.degrees)
    neighbours: dict[Key, Sequence[Key]] = {} if known is None else dict(known.neighbours)
    for _ in range(ROUNDS):
        heavy = [node for node, mass in waiting.items() if mass >= precision * max(1, degrees.get(node, 1))]
        around = graph.look({node: int(waiting[node] / precision) for node in heavy if node not in neighbours})
        degrees |= around.degrees
        neighbours |= around.neighbours
        going = [node for node in heavy if waiting[node] >= precision * degrees.get(node, 0)]
        if not going:
            break
        pushed = [(node, waiting.pop(node)) for node in going]
        for node, mass in pushed:
            ranks[node] += mass * (1.0 - DAMPING)
            others = neighbours.get(node, ())
            for other in others:
                waiting[other] = waiting.get(other, 0.0) + mass * DAMPING / len(others)
    for node, mass in waiting.items():
        ranks[node] += mass * (1.0 - DAMPING)
    return dict(ranks)
