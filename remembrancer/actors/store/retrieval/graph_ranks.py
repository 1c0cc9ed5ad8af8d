"""PageRank around the candidates of a recall: over the graph of memories and entities, read from the files as it is
walked.

An entity is what several spellings, types and files call the same: the `name_key` of its name.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from remembrancer.actors.store.records.contract import GraphRecords
from remembrancer.actors.store.retrieval.shortlist import Place
from remembrancer.memory.ranking import DAMPING, PAGERANK_SEEDS, Signals, personal_pagerank, relevances

Node = Place | str
"""A memory, or an entity's key."""
MOST_COUNTED: Final = 1000
"""Edges of each sort that are counted of a memory at which a walk starts."""
LEAST_RECEIVED: Final = 1e-9
"""Less is an error of rounding."""


class FilesGraph:
    """The graphs of several files as one, as one session sees them: the neighbourhood of `personal_pagerank`."""

    def __init__(self, graphs: Mapping[int, GraphRecords], session_id: str) -> None:
        self._graphs = graphs
        self._session_id = session_id

    def degrees(self, nodes: Sequence[Node], most: int) -> dict[Node, int]:
        counts: defaultdict[Node, int] = defaultdict(int)
        for place, graph in self._graphs.items() if nodes else ():
            for node, count in graph.degrees(*_split(place, nodes), most).items():
                counts[_node(place, node)] += count
        return counts

    def neighbours(self, nodes: Sequence[Node]) -> dict[Node, Sequence[Node]]:
        found: defaultdict[Node, dict[Node, None]] = defaultdict(dict)
        for place, graph in self._graphs.items() if nodes else ():
            for here, there in graph.adjacent(*_split(place, nodes), self._session_id):
                if here != there:
                    found[_node(place, here)][_node(place, there)] = None
        return {node: list(others) for node, others in found.items()}


def page_ranks(
    candidates: Mapping[Place, Signals], graphs: Mapping[int, GraphRecords], session_id: str
) -> dict[Place, float]:
    """What PageRank makes of the memories around the best candidates, in [0, 1]; empty where none of these has an edge.

    It starts at those of the most relevant that have edges, the more relevant the more. What counts is what a memory
    receives from others, over the most that any but the first of these does: its own start says nothing that its
    relevance does not, and what goes to and fro between the first one and its entities is no news of it.
    """
    relevance = relevances(candidates, "hybrid")
    first = sorted((key for key in relevance if key[0] in graphs), key=lambda key: (-relevance[key], key))[
        :PAGERANK_SEEDS
    ]
    graph = FilesGraph(graphs, session_id)
    degrees = graph.degrees(first, MOST_COUNTED)
    # A memory that names everything says little of each.
    seeds: dict[Node, float] = {
        key: relevance[key] ** 2 / math.sqrt(degree)
        for key in first
        if relevance[key] > 0.0 and (degree := degrees.get(key, 0))
    }
    if not seeds:
        return {}
    best = next(iter(seeds))
    own = (1.0 - DAMPING) / sum(seeds.values())
    ranks = personal_pagerank(seeds, graph, known=degrees)
    received = {
        node: got
        for node, rank in ranks.items()
        if not isinstance(node, str) and (got := rank - own * seeds.get(node, 0.0)) > LEAST_RECEIVED
    }
    most = max((got for node, got in received.items() if node != best), default=0.0)
    return {node: min(1.0, got / most) for node, got in received.items()} if most else {}


def _split(place: int, nodes: Sequence[Node]) -> tuple[list[int], list[str]]:
    """The memories among the nodes that are in this file, and all entities."""
    return (
        [node[1] for node in nodes if not isinstance(node, str) and node[0] == place],
        [node for node in nodes if isinstance(node, str)],
    )


def _node(place: int, node: int | str) -> Node:
    return node if isinstance(node, str) else (place, node)
