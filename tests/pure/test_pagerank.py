"""PageRank is as exact as it says, and walks no more than it says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.pagerank import DAMPING, Around, personal_pagerank


class Edges:
    """A graph that is known whole. It counts the edges that were read."""

    def __init__(self, pairs: set[tuple[int, int]]) -> None:
        self.joined: dict[int, list[int]] = {}
        for one, other in sorted(pairs):
            if one != other and other not in self.joined.get(one, ()):
                self.joined.setdefault(one, []).append(other)
                self.joined.setdefault(other, []).append(one)
        self.read = 0

    def look(self, nodes: Mapping[int, int]) -> Around[int]:
        degrees = {node: min(most + 1, len(self.joined.get(node, ()))) for node, most in nodes.items()}
        near = {node: self.joined.get(node, []) for node, most in nodes.items() if degrees[node] <= most}
        self.read += sum(map(len, near.values()))
        return Around(degrees, near)


@given(
    st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=60),
    st.dictionaries(st.integers(0, 15), st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.sampled_from([0.1, 0.02, 0.001, 0.0001]),
)
def test_pagerank_is_below_the_exact_one_by_no_more_than_it_says_and_walks_no_more(
    pairs: set[tuple[int, int]], seeds: dict[int, float], precision: float
) -> None:
    graph = Edges(pairs)
    found = personal_pagerank(seeds, graph, precision)
    steps = np.zeros((16, 16))
    for node, others in graph.joined.items():
        steps[others, node] = 1.0 / len(others)
    start = np.array([seeds.get(node, 0.0) for node in range(16)]) / sum(seeds.values())
    exact = (1.0 - DAMPING) * np.linalg.solve(np.eye(16) - DAMPING * steps, start)
    for node in range(16):
        lacking = exact[node] - found.get(node, 0.0)
        assert -1e-12 < lacking <= precision * len(graph.joined.get(node, ())) + 1e-12
    assert graph.read <= 1.0 / ((1.0 - DAMPING) * precision)
