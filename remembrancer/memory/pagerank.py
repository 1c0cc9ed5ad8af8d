"""Personalized PageRank that visits only nodes that matter. Pure; the caller loads the graph in parts."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

DAMPING: Final = 0.5
"""The share of a node's PageRank that its neighbours receive; the rest restarts at the seeds (as in HippoRAG)."""
ROUNDS: Final = 15
PRECISION: Final = 5e-4
"""The smallest amount per edge that a node passes on."""

Key = TypeVar("Key", bound=Hashable)


class Around(NamedTuple, Generic[Key]):
    """Degrees of nodes, and the distinct neighbours of some of them."""

    degrees: Mapping[Key, int]
    neighbours: Mapping[Key, Sequence[Key]]


def personal_pagerank(
    seeds: Mapping[Key, float],
    look: Callable[[Mapping[Key, int]], Around[Key]],
    precision: float = PRECISION,
    known: Around[Key] | None = None,
) -> dict[Key, float]:
    """PageRank personalized by the weights of `seeds`, for the nodes reached. Nodes in `known` are not queried again.

    `look` takes nodes of an undirected graph, each with a maximum degree. It returns their degrees, and the neighbours
    of those within the maximum. For the others, the returned degree only has to exceed the maximum.

    Forward push (Andersen, Chung and Lang, 2006) in `ROUNDS` rounds: a node passes half of what it receives to its
    neighbours, if each part is at least `precision`. So at most 1 / ((1 - `DAMPING`) * `precision`) edges are followed.
    No value exceeds the exact value, and with enough rounds, none is below it by more than `precision` times the node's
    degree.
    """
    total = sum(seeds.values())
    waiting = {node: weight / total for node, weight in seeds.items() if weight > 0.0}
    ranks: defaultdict[Key, float] = defaultdict(float)
    degrees: dict[Key, int] = {} if known is None else dict(known.degrees)
    neighbours: dict[Key, Sequence[Key]] = {} if known is None else dict(known.neighbours)
    for _ in range(ROUNDS):
        heavy = [node for node, mass in waiting.items() if mass >= precision * max(1, degrees.get(node, 1))]
        around = look({node: int(waiting[node] / precision) for node in heavy if node not in neighbours})
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
