"""Clusters of related memories: by scope and type first, and then by topic.

Two memories are as similar as the cosine of their vectors, less what any two of the group have in common, and a little
more when they name the same entities: an entity adds the more, the fewer memories name it. Topics are found by
average-link agglomeration (see `linkage`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from remembrancer.actors.consolidator.reflection.facts import MemoryFacts, Vectors, chronological, require_rows
from remembrancer.actors.consolidator.reflection.linkage import Similarities, average_link

TOPIC_COSINE: Final = 0.3
"""How far above the background the mean cosine of a topic is, with the default model.

Of 52 notes on eight tasks and twelve single matters it made seven clusters: 97 in 100 of their members, 92 in 100 of
their pairs were of one task, and 74 in 100 of all pairs of one task were found. With 0.25 these are 92, 89 and 78, with
0.4 they are 96, 93 and 49.
"""
BACKGROUND_COUNT: Final = 50
"""With so many memories, half of their mean cosine counts as what any two have in common."""
MOST_BACKGROUND: Final = 0.8
SPAN: Final = 2_000
"""Memories that are compared with one another at once: the tables of so many are 50 megabytes."""


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """When memories are related. `entity_bonus` is the most that shared entities add to a cosine."""

    threshold: float = TOPIC_COSINE
    entity_bonus: float = 0.1
    min_size: int = 3
    max_size: int = 12

    def __post_init__(self) -> None:
        if not 2 <= self.min_size <= self.max_size:
            raise ValueError("a cluster has two members at least, and no more than its largest size")
        if self.entity_bonus < 0:
            raise ValueError("a shared entity takes nothing away")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Related memories, by their positions in the list that was given, in the order of their times.

    `cohesion` is the mean cosine of its pairs.
    """

    members: tuple[int, ...]
    cohesion: float


DEFAULT_RULES: Final = ClusterRules()


def cluster_memories(
    memories: Sequence[MemoryFacts], vectors: Vectors, rules: ClusterRules = DEFAULT_RULES
) -> list[Cluster]:
    """Clusters in the order of their first members. No memory is in two, and some are in none.

    The members of a cluster have one scope and one type, and the same memories give the same clusters in whatever order
    they come. More than `SPAN` of one scope and type are taken in spans of time, so that the memory needed is bounded.

    Raises:
        ValueError: there is not one row of vectors for each memory.
    """
    require_rows(memories, vectors)
    groups: dict[Hashable, list[int]] = {}
    for place in chronological(memories):
        groups.setdefault((memories[place].scope, memories[place].type), []).append(place)
    found = [cluster for group in groups.values() for cluster in topics(group, memories, vectors, rules)]
    return sorted(found, key=lambda each: _moment(memories, each))


def topics(
    group: Sequence[int], memories: Sequence[MemoryFacts], vectors: Vectors, rules: ClusterRules
) -> Iterator[Cluster]:
    """The clusters among the memories at the positions of `group`, whatever their scopes and types are."""
    for begin in range(0, len(group), SPAN):
        places = [place for place in group[begin : begin + SPAN] if vectors[place].any()]
        rows = vectors[places]
        cosines = rows @ rows.T
        shared = _shared_entities([memories[place] for place in places])
        similarities = _above_background(cosines) + rules.entity_bonus * shared
        for members in average_link(similarities, rules.threshold, rules.max_size):
            if len(members) >= rules.min_size:
                yield _cluster([places[each] for each in members], cosines[np.ix_(members, members)])


def _cluster(members: list[int], cosines: Similarities) -> Cluster:
    count = len(members)
    cohesion = (float(cosines.sum()) - float(np.trace(cosines))) / (count * (count - 1))
    return Cluster(tuple(members), cohesion)


def _above_background(cosines: Similarities) -> Similarities:
    """The cosines so rescaled that 0 is what two of many memories have in common anyway, and 1 stays 1.

    In a conversation of two people nearly all that is said is alike (0.42 on average, with their names before it), in
    notes of a project it is not (0.08). Of few memories the mean says little, as they may well be about one thing.
    """
    count = len(cosines)
    if count < 2:
        return cosines
    mean = (float(cosines.sum()) - float(np.trace(cosines))) / (count * (count - 1))
    background = min(max(0.0, mean) * count / (count + BACKGROUND_COUNT), MOST_BACKGROUND)
    rescaled: Similarities = (cosines - np.float32(background)) / np.float32(1.0 - background)
    return rescaled


def _shared_entities(memories: Sequence[MemoryFacts]) -> Similarities:
    """What entities say of each pair, in [0, 1]: one that all of the memories name says nothing."""
    count = len(memories)
    naming: dict[str, list[int]] = {}
    for place, memory in enumerate(memories):
        for name in {entity.casefold() for entity in memory.entities}:
            naming.setdefault(name, []).append(place)
    shared = np.zeros((count, count), dtype=np.float32)
    for _, places in sorted(naming.items()):
        if 1 < len(places) < count:
            shared[np.ix_(places, places)] += 1.0 - len(places) / count
    clipped: Similarities = np.minimum(shared, np.float32(1.0))
    return clipped


def _moment(memories: Sequence[MemoryFacts], cluster: Cluster) -> tuple[float, str]:
    first = memories[cluster.members[0]]
    return first.when, first.id
