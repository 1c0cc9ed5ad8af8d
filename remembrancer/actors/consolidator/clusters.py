"""Clusters of memories about one topic. Pure.

Two memories are as similar as the cosine of their vectors, less what any two of them have in common, and a little more
when they have words in common or name the same entities. Topics are found by average-link agglomeration (UPGMA: Sokal
and Michener, 1958).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.consolidator.central_sentences import tf_idf
from remembrancer.memory.stop_words import ENGLISH, language_of
from remembrancer.protocol.consolidation import Material

TOPIC_COSINE: Final = 0.31
"""The height of a topic's mean similarity above the background, with the default model."""
WORDS_BONUS: Final = 0.4
"""The most that common words add to a cosine: vectors alone take four notes on slow software for one topic."""
ENTITY_BONUS: Final = 0.1
"""The most that shared entities add to a cosine."""
LEAST_MEMBERS: Final = 3
MOST_MEMBERS: Final = 12
BACKGROUND: Final = 0.15
"""The likeness that any two memories have, before more is known of these."""
BACKGROUND_COUNT: Final = 50
"""With so many memories, their mean cosine counts for as much as that."""
MOST_BACKGROUND: Final = 0.8
BEGINNING: Final = 300
"""Characters of a memory by which its language is known: the default model takes any two texts of another one than
English for related, and so these have to share a word."""
SPAN: Final = 1_500
"""Memories that are compared with one another at once: the tables of so many are 100 megabytes."""
_NEVER: Final = -np.inf

Vectors = NDArray[np.float32]
"""Shape (memories, dimensions), rows of length 1, or of zeros for a memory without a vector."""
Similarities = NDArray[np.float32]


def cluster_memories(
    memories: Sequence[Material],
    threshold: float = TOPIC_COSINE,
    *,
    least: int = LEAST_MEMBERS,
    most: int = MOST_MEMBERS,
) -> list[list[Material]]:
    """Clusters of `least` to `most` memories, each in the order of its times. No memory is in two, some are in none.

    The same memories give the same clusters in whatever order they come. More than `SPAN` are taken in spans of time,
    so that the memory needed is bounded.
    """
    ordered = sorted((memory for memory in memories if memory.vector), key=lambda each: (each.happened_at, each.id))
    clusters: list[list[Material]] = []
    for begin in range(0, len(ordered), SPAN):
        span = ordered[begin : begin + SPAN]
        rows = vectors_of(span)
        similarities = _above_background(rows @ rows.T) + np.float32(ENTITY_BONUS) * _shared_entities(span)
        texts = tf_idf([each.content for each in span])
        common = texts @ texts.T
        similarities += np.float32(WORDS_BONUS) * common
        foreign = np.array([language_of(each.content[:BEGINNING]) not in (None, ENGLISH) for each in span])
        similarities[(common <= 0) & (foreign[:, None] | foreign[None, :])] = 0.0
        links = average_link(similarities, threshold, most)
        clusters += [[span[place] for place in members] for members in links if len(members) >= least]
    return clusters


def vectors_of(memories: Sequence[Material]) -> Vectors:
    """A row for each memory. The vectors that are there are of one model."""
    width = max((len(memory.vector) for memory in memories), default=0) // 4
    rows = np.zeros((len(memories), width), dtype=np.float32)
    for row, memory in zip(rows, memories, strict=True):
        if len(memory.vector) == width * 4:
            row[:] = np.frombuffer(memory.vector, dtype="<f4")
    return rows


def average_link(similarities: Similarities, threshold: float, max_size: int) -> list[list[int]]:
    """Clusters of at least two items, each ascending, in the order of their first items.

    Begun with each item alone, the two clusters whose items are the most similar on average become one, until no pair
    is similar enough. `similarities` is symmetric; its diagonal is not read. Of equal similarities the pair with the
    lowest positions is joined first, so that the same matrix always gives the same clusters. The average after a merge
    follows from those before it (Lance and Williams, 1967).
    """
    count = len(similarities)
    if count < 2 or max_size < 2:
        return []
    table = np.array(similarities, dtype=np.float64)
    np.fill_diagonal(table, _NEVER)
    members: list[list[int]] = [[place] for place in range(count)]
    sizes = np.ones(count)
    nearest = table.argmax(axis=1)
    best = table[np.arange(count), nearest]
    while True:
        first = int(best.argmax())
        if best[first] < threshold:
            break
        one, two = sorted((first, int(nearest[first])))
        row = (sizes[one] * table[one] + sizes[two] * table[two]) / (sizes[one] + sizes[two])
        sizes[one] += sizes[two]
        members[one] += members[two]
        members[two] = []
        row[sizes + sizes[one] > max_size] = _NEVER  # sizes only grow: what is too much now will always be
        row[[one, two]] = _NEVER
        table[one], table[:, one] = row, row
        table[two], table[:, two] = _NEVER, _NEVER
        best[two] = _NEVER
        closer = (row > best) | ((row == best) & (one < nearest) & (row > _NEVER))
        nearest[closer], best[closer] = one, row[closer]
        lost = np.flatnonzero(((nearest == one) & ~closer & (best > _NEVER)) | (nearest == two))
        lost = np.union1d(lost, [one])
        nearest[lost] = table[lost].argmax(axis=1)
        best[lost] = table[lost, nearest[lost]]
    return sorted(sorted(member) for member in members if len(member) > 1)


def _above_background(cosines: Similarities) -> Similarities:
    """The cosines so rescaled that 0 is what two of many memories have in common anyway, and 1 stays 1.

    In a conversation of two people nearly all that is said is alike, in notes of a project it is not. Of few memories
    the mean says little, as they may well be about one thing.
    """
    count = len(cosines)
    if count < 2:
        return cosines
    mean = (float(cosines.sum()) - float(np.trace(cosines))) / (count * (count - 1))
    background = (max(0.0, mean) * count + BACKGROUND * BACKGROUND_COUNT) / (count + BACKGROUND_COUNT)
    background = min(background, MOST_BACKGROUND)
    rescaled: Similarities = (cosines - np.float32(background)) / np.float32(1.0 - background)
    return rescaled


def _shared_entities(memories: Sequence[Material]) -> Similarities:
    """The likeness of each pair by its entities, in [0, 1]: one that few memories name says more, one that all name
    nothing."""
    count = len(memories)
    naming: dict[str, list[int]] = {}
    for place, memory in enumerate(memories):
        for name in {entity.name.casefold() for entity in memory.entities}:
            naming.setdefault(name, []).append(place)
    shared = np.zeros((count, count), dtype=np.float32)
    for _, places in sorted(naming.items()):
        if 1 < len(places) < count:
            shared[np.ix_(places, places)] += 1.0 - len(places) / count
    clipped: Similarities = np.minimum(shared, np.float32(1.0))
    return clipped
