"""Clusters of memories: topical, bounded, the same whatever the order, and apart by scope and type."""

from __future__ import annotations

import itertools
import subprocess
import sys
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.clusters import SPAN, Vectors, average_link, central_memory, cluster_memories
from remembrancer.actors.consolidator.communities import Edge, find_communities
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import Topic
from tests.pure.reflection_world import memory, rows, with_vectors


def clusters(memories: list[Material], vectors: Vectors, **rules: Any) -> list[tuple[int, ...]]:
    """The places of the members of each cluster, as the ids say them."""
    found = cluster_memories(with_vectors(memories, vectors), **rules)
    return [tuple(int(each.id.partition(":")[2]) for each in cluster) for cluster in found]


def test_a_shared_entity_that_not_all_memories_name_brings_together_what_is_nearly_related() -> None:
    vectors = rows([0, 0, 0, 1, 2, 3], cosine=0.4)
    for named, expected in ((range(3), [(0, 1, 2)]), ((), []), (range(6), [])):
        memories = [memory(place, entities=("Redis",) if place in named else ()) for place in range(6)]
        assert clusters(memories, vectors, threshold=0.42) == expected


def test_what_everything_has_in_common_is_no_topic_and_very_many_are_taken_in_spans() -> None:
    count = 300
    alike = rows(list(range(count)), cosine=0.0)
    common = np.concatenate([np.sqrt(0.6) * alike, np.full((count, 1), np.sqrt(0.4))], axis=1).astype(np.float32)
    assert clusters([memory(place) for place in range(count)], common) == []
    assert len(clusters([memory(place) for place in range(3)], common[:3])) == 1
    count = SPAN + 3
    vectors = np.zeros((count, 4), dtype=np.float32)
    vectors[[0, 1, 2], 0] = 1.0
    vectors[-3:, 1] = 1.0
    found = clusters([memory(place) for place in range(count)], vectors)
    assert found == [(0, 1, 2), (SPAN, SPAN + 1, SPAN + 2)]


worlds = st.lists(st.tuples(st.integers(-1, 4), st.sampled_from([(), ("A",), ("A", "B")])), max_size=40)


@given(worlds, st.randoms(use_true_random=False), st.integers(2, 4), st.integers(4, 8))
def test_the_same_memories_make_the_same_clusters_in_whatever_order_they_come(
    world: list[tuple[int, tuple[str, ...]]], random: Random, least: int, most: int
) -> None:
    memories = [memory(place, entities=names) for place, (_, names) in enumerate(world)]
    vectors = rows([topic for topic, _ in world])
    found = clusters(memories, vectors, least=least, most=most)
    order = list(range(len(world)))
    random.shuffle(order)
    assert clusters([memories[place] for place in order], vectors[order], least=least, most=most) == found
    taken = [place for cluster in found for place in cluster]
    assert len(taken) == len(set(taken))
    for cluster in found:
        assert least <= len(cluster) <= most
        assert len({world[place][0] for place in cluster}) == 1


@given(st.integers(2, 24), st.integers(2, 9), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_the_quick_agglomeration_does_what_the_plain_one_does(
    count: int, size: int, threshold: float, seed: int
) -> None:
    """Against the definition: at each step the means of all pairs of clusters are worked out anew."""
    drawn = np.random.default_rng(seed).random((count, count))
    table = ((drawn + drawn.T) / 2).astype(np.float32)
    plain = [[place] for place in range(count)]
    while True:
        pairs = [
            (float(table[np.ix_(one, two)].astype(np.float64).mean()), one, two)
            for place, one in enumerate(plain)
            for two in plain[place + 1 :]
            if len(one) + len(two) <= size
        ]
        best = max(pairs, key=lambda each: each[0], default=(-1.0, [], []))
        if best[0] < threshold:
            break
        plain = [each for each in plain if each not in best[1:]] + [sorted(best[1] + best[2])]
    assert average_link(table, threshold, size) == sorted(each for each in plain if len(each) > 1)


def test_what_is_in_another_language_than_english_has_to_share_a_word() -> None:
    apart = [
        "Le mémoire est rédigé en français.",
        "J'ai renommé la clé dans Zotero.",
        "J'ai fait trois cafés et le résumé.",
    ]
    assert clusters([memory(place, text) for place, text in enumerate(apart)], rows([0, 0, 0])) == []
    about = [f"Le mémoire est à rendre le {day} avril." for day in (3, 17, 30)]
    assert clusters([memory(place, text) for place, text in enumerate(about)], rows([0, 0, 0])) == [(0, 1, 2)]


def test_what_is_nearest_to_all_stands_for_a_cluster_and_what_is_important_counts_more() -> None:
    vectors = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0]], dtype=np.float32)
    for importances, expected in (((0.5, 0.5, 0.5), 1), ((1.0, 0.1, 0.1), 0), ((0.1, 0.1, 1.0), 2), ((0, 0, 0), 0)):
        members = [memory(place, importance=float(each)) for place, each in enumerate(importances)]
        assert central_memory(with_vectors(members, vectors)).id == f"memory:{expected:04}"


# --- Communities of a graph of entities: found, named, bounded, and the same every time.


def clique(prefix: str, size: int, weight: int = 1) -> list[Edge]:
    names = [f"{prefix}{place}" for place in range(size)]
    return [(one, two, weight) for one, two in itertools.combinations(names, 2)]


def test_two_groups_with_a_bridge_or_without_are_two_communities_named_by_the_best_connected() -> None:
    found = find_communities([*clique("a", 5), *clique("b", 4), ("a0", "b0", 1)])
    assert [len(each.entities) for each in found] == [5, 4]
    assert [set(each.entities) for each in found] == [{f"a{place}" for place in range(5)}, {f"b{n}" for n in range(4)}]
    edges = [("API", name, 2) for name in ("Postgres", "Redis", "JWT")] + [("Postgres", "Redis", 1)]
    (only,) = find_communities(edges)
    assert only == Topic("API, Postgres, Redis", ("API", "Postgres", "Redis", "JWT"))
    assert [each.entities for each in find_communities([("c", "d", 1), ("a", "b", 1)])] == [("a", "b"), ("c", "d")]
    assert find_communities([]) == ()


def test_another_process_finds_the_same() -> None:
    program = (
        "from remembrancer.actors.consolidator.communities import find_communities\n"
        "print(find_communities([(f'n{i % 17}', f'm{(i * 7) % 23}', 1 + i % 3) for i in range(120)]))"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "12"]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count("Topic(") > 1


names = st.sampled_from([f"n{place}" for place in range(12)])
graphs = st.dictionaries(
    st.tuples(names, names).filter(lambda pair: pair[0] < pair[1]), st.integers(1, 9), max_size=60
).map(lambda weights: [(*pair, weight) for pair, weight in weights.items()])


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
    assert set(named) <= {name for one, two, _ in edges for name in (one, two)}
    assert all(each.label and len(each.entities) > 1 for each in found)
