"""Clusters of memories: topical, bounded, the same whatever the order, and apart by scope and type."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator.reflection.clusters import SPAN, Cluster, ClusterRules, cluster_memories
from remembrancer.actors.consolidator.reflection.facts import MemoryFacts
from remembrancer.actors.consolidator.reflection.linkage import average_link
from tests.pure.reflection_world import memory, rows


def members(clusters: list[Cluster]) -> list[tuple[int, ...]]:
    return [each.members for each in clusters]


def test_memories_of_one_topic_come_together_and_single_ones_stay_alone() -> None:
    topics = [0, 1, 0, 2, 1, 0, 1, 3]
    found = cluster_memories([memory(place) for place in range(8)], rows(topics))
    assert members(found) == [(0, 2, 5), (1, 4, 6)]
    assert all(each.cohesion == pytest.approx(0.8, abs=1e-5) for each in found)


@pytest.mark.parametrize("field", ["type", "scope"])
def test_memories_of_different_types_or_scopes_are_never_in_one_cluster(field: str) -> None:
    values = {"type": ("episodic", "semantic"), "scope": ("project", "session")}[field]
    memories = [memory(place, **{field: values[place % 2]}) for place in range(6)]
    assert members(cluster_memories(memories, rows([0] * 6))) == [(0, 2, 4), (1, 3, 5)]


@pytest.mark.parametrize(("min_size", "expected"), [(2, 2), (3, 1), (4, 0)])
def test_a_cluster_has_a_least_size(min_size: int, expected: int) -> None:
    found = cluster_memories(
        [memory(place) for place in range(5)], rows([0, 0, 1, 1, 1]), ClusterRules(min_size=min_size)
    )
    assert len(found) == expected


def test_a_topic_with_more_memories_than_a_cluster_holds_makes_several() -> None:
    found = cluster_memories([memory(place) for place in range(30)], rows([0] * 30), ClusterRules(max_size=12))
    assert sorted(len(each.members) for each in found) == [6, 12, 12]


def test_members_stand_in_the_order_of_what_they_tell() -> None:
    memories = [memory(0), memory(1), memory(2, occurred_at=-5.0)]
    assert members(cluster_memories(memories, rows([0, 0, 0]))) == [(2, 0, 1)]


def test_a_shared_entity_brings_together_what_is_nearly_related() -> None:
    rules = ClusterRules(threshold=0.42, entity_bonus=0.2)
    vectors = rows([0, 0, 0, 1, 2, 3], cosine=0.4)
    named = [memory(place, entities=("Redis",) if place < 3 else ()) for place in range(6)]
    assert members(cluster_memories(named, vectors, rules)) == [(0, 1, 2)]
    assert cluster_memories([memory(place) for place in range(6)], vectors, rules) == []


def test_an_entity_that_all_memories_name_says_nothing() -> None:
    rules = ClusterRules(threshold=0.42, entity_bonus=0.2)
    named = [memory(place, entities=("the project",)) for place in range(6)]
    assert cluster_memories(named, rows([0, 0, 0, 1, 2, 3], cosine=0.4), rules) == []


def test_a_memory_without_a_vector_is_in_no_cluster() -> None:
    found = cluster_memories([memory(place) for place in range(4)], rows([0, 0, 0, -1]))
    assert members(found) == [(0, 1, 2)]
    assert cluster_memories([memory(place) for place in range(4)], rows([-1, -1, -1, -1])) == []


def test_what_everything_has_in_common_is_no_topic() -> None:
    """In a conversation all turns are alike; only what is more alike than that belongs together."""
    count = 300
    alike = rows(list(range(count)), cosine=0.0)
    common = np.concatenate([np.sqrt(0.6) * alike, np.full((count, 1), np.sqrt(0.4))], axis=1).astype(np.float32)
    assert cluster_memories([memory(place) for place in range(count)], common) == []
    assert len(cluster_memories([memory(place) for place in range(3)], common[:3])) == 1


def test_nothing_and_one_memory_make_no_clusters() -> None:
    assert cluster_memories([], np.zeros((0, 4), dtype=np.float32)) == []
    assert cluster_memories([memory(0)], rows([0])) == []


def test_very_many_memories_are_taken_in_spans_of_time() -> None:
    """The third of a topic that begins in one span and ends in the next is not lost, but not with the others."""
    count = SPAN + 3
    vectors = np.zeros((count, 4), dtype=np.float32)
    vectors[[0, 1, 2], 0] = 1.0
    vectors[-3:, 1] = 1.0
    found = cluster_memories([memory(place) for place in range(count)], vectors)
    assert members(found) == [(0, 1, 2), (SPAN, SPAN + 1, SPAN + 2)]


def test_a_row_for_each_memory_is_needed() -> None:
    with pytest.raises(ValueError, match="rows of vectors"):
        cluster_memories([memory(0)], rows([0, 1]))


@pytest.mark.parametrize("wrong", [{"min_size": 1}, {"min_size": 5, "max_size": 4}, {"entity_bonus": -0.1}])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"cluster|entity"):
        ClusterRules(**wrong)


worlds = st.lists(
    st.tuples(st.integers(-1, 4), st.sampled_from(["episodic", "semantic"]), st.sampled_from([(), ("A",), ("A", "B")])),
    max_size=40,
)


def build(world: list[tuple[int, str, tuple[str, ...]]]) -> list[MemoryFacts]:
    return [memory(place, type=kind, entities=names) for place, (_, kind, names) in enumerate(world)]


@given(worlds, st.randoms(use_true_random=False), st.integers(2, 4), st.integers(4, 8))
def test_the_same_memories_make_the_same_clusters_in_whatever_order_they_come(
    world: list[tuple[int, str, tuple[str, ...]]], random: Random, min_size: int, max_size: int
) -> None:
    memories, vectors = build(world), rows([topic for topic, _, _ in world])
    rules = ClusterRules(min_size=min_size, max_size=max_size)
    found = cluster_memories(memories, vectors, rules)
    order = list(range(len(world)))
    random.shuffle(order)
    again = cluster_memories([memories[place] for place in order], vectors[order], rules)
    assert [tuple(order[each] for each in cluster.members) for cluster in again] == members(found)
    taken = [place for cluster in found for place in cluster.members]
    assert len(taken) == len(set(taken))
    for cluster in found:
        assert min_size <= len(cluster.members) <= max_size
        assert len({(memories[place].type, world[place][0]) for place in cluster.members}) == 1


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
