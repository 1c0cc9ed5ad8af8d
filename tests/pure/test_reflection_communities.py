"""Communities of a graph of entities: found, named, bounded, and the same every time."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.communities import MOST_MEMBERS, Edge, find_communities
from remembrancer.protocol.runs import Topic


def clique(prefix: str, size: int, weight: float = 1.0) -> list[Edge]:
    names = [f"{prefix}{place}" for place in range(size)]
    return [(one, two, weight) for one, two in itertools.combinations(names, 2)]


def test_two_groups_with_a_bridge_between_them_are_two_communities() -> None:
    found = find_communities([*clique("a", 5), *clique("b", 4), ("a0", "b0", 1.0)])
    assert [len(each.entities) for each in found] == [5, 4]
    assert [set(each.entities) for each in found] == [{f"a{place}" for place in range(5)}, {f"b{n}" for n in range(4)}]


def test_a_label_names_the_best_connected_members_first() -> None:
    edges = [("API", name, 2.0) for name in ("Postgres", "Redis", "JWT")] + [("Postgres", "Redis", 1.0)]
    (only,) = find_communities(edges)
    assert only == Topic("API, Postgres, Redis", ("API", "Postgres", "Redis", "JWT"))


def test_parts_without_a_connection_are_communities_of_their_own() -> None:
    assert [each.entities for each in find_communities([("c", "d", 1.0), ("a", "b", 1.0)])] == [("a", "b"), ("c", "d")]


def test_a_graph_without_edges_that_count_has_no_communities() -> None:
    assert find_communities([]) == ()
    assert find_communities([("a", "a", 1.0), ("a", "b", 0.0), ("a", "b", -1.0), ("a", "b", math.nan)]) == ()
    assert find_communities([("a", "b", math.inf)]) == ()


def test_both_directions_of_an_edge_count_together() -> None:
    once = find_communities([("a", "b", 2.0), ("b", "c", 1.0)])
    assert find_communities([("a", "b", 1.0), ("b", "a", 1.0), ("c", "b", 1.0)]) == once


def test_of_a_large_community_the_best_connected_members_are_named() -> None:
    star = [("hub", f"n{place:03}", 1.0) for place in range(MOST_MEMBERS + 20)]
    (only,) = find_communities(star)
    assert only.entities[0] == "hub"
    assert len(only.entities) == MOST_MEMBERS


def test_another_process_finds_the_same() -> None:
    program = (
        "from remembrancer.actors.consolidator.communities import find_communities\n"
        "print(find_communities([(f'n{i % 17}', f'n{(i * 7) % 23}', 1.0 + i % 3) for i in range(120)]))"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "12"]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count("Topic(") > 1


names = st.sampled_from([f"n{place}" for place in range(12)])
graphs = st.lists(st.tuples(names, names, st.floats(0.1, 9.0)), max_size=60)


@given(graphs, st.randoms(use_true_random=False))
def test_neither_the_order_nor_the_direction_of_edges_matters(edges: list[Edge], random: Random) -> None:
    turned = [(two, one, weight) for one, two, weight in edges]
    random.shuffle(turned)
    assert find_communities(turned) == find_communities(edges)


@given(graphs)
def test_no_name_is_in_two_communities(edges: list[Edge]) -> None:
    found = find_communities(edges)
    named = [name for each in found for name in each.entities]
    assert len(named) == len(set(named))
    assert set(named) <= {name for one, two, _ in edges if one != two for name in (one, two)}
    assert all(each.label and len(each.entities) > 1 for each in found)
