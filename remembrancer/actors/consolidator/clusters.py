"""Clusters of memories about one topic, and the memory that represents a cluster. The similarity of two memories is the
cosine of their vectors, minus the mean similarity of any two, plus a little for shared words and entities. Topics are
found by average-link agglomeration (UPGMA: Sokal and Michener, 1958)."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.stop_words import ENGLISH, language_of, stop_words_of
from remembrancer.memory.wording import stem
from remembrancer.protocol.consolidation import SMALLEST_CLUSTER, Material

TOPIC_COSINE: Final = 0.31
"""The minimum mean similarity within a topic, above the background, with the default model."""
WORDS_BONUS: Final = 0.4
"""The most that shared words add to a cosine. By vectors alone, all notes on slow software would be one topic."""
ENTITY_BONUS: Final = 0.1
MOST_MEMBERS: Final = 12
BACKGROUND: Final = 0.15
"""The cosine assumed for two unrelated memories before any memories have been compared."""
BACKGROUND_COUNT: Final = 50
"""The number of memories at which their own mean cosine has the same weight as the assumed one."""
MOST_BACKGROUND: Final = 0.8
LANGUAGE_CHARACTERS: Final = 300
"""The number of characters used to detect a memory's language. With the default model, any two texts in a
language other than English are similar, so they also need a word in common."""
BLOCK: Final = 1_500
"""The number of memories compared with one another at once. The tables take 100 MB."""
_NEVER: Final = -np.inf
STOP_WORDS: Final = frozenset(("use", "uses", "used", "need", "needs", "get", "make")).union(
    *word_lists("wording").values()
)
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’_/-][^\W_]+)*")
_LOOKED_AT: Final = 1_000

Vectors = NDArray[np.float32]
"""Shape (memories, dimensions): rows of unit length, or zeros for a memory without a vector."""
Similarities = NDArray[np.float32]


def cluster_memories(
    memories: Sequence[Material],
    threshold: float = TOPIC_COSINE,
    *,
    least: int = SMALLEST_CLUSTER,
    most: int = MOST_MEMBERS,
) -> list[list[Material]]:
    """Clusters of `least` to `most` memories, each ordered by time. A memory is in at most one cluster. More than
    `BLOCK` memories are divided by time, to limit the RAM needed."""
    ordered = sorted((memory for memory in memories if memory.vector), key=lambda each: (each.happened_at, each.id))
    clusters: list[list[Material]] = []
    for begin in range(0, len(ordered), BLOCK):
        span = ordered[begin : begin + BLOCK]
        rows = vectors_of(span)
        similarities = _above_background(rows @ rows.T) + np.float32(ENTITY_BONUS) * _shared_entities(span)
        texts = tf_idf([each.content for each in span])
        common = texts @ texts.T
        similarities += np.float32(WORDS_BONUS) * common
        foreign = np.array([language_of(each.content[:LANGUAGE_CHARACTERS]) not in (None, ENGLISH) for each in span])
        similarities[(common <= 0) & (foreign[:, None] | foreign[None, :])] = 0.0
        links = average_link(similarities, threshold, most)
        clusters += [[span[place] for place in members] for members in links if len(members) >= least]
    return clusters


def vectors_of(memories: Sequence[Material]) -> Vectors:
    """The memories' vectors; zeros for a memory without one. All existing vectors must come from one model."""
    width = max((len(memory.vector) for memory in memories), default=0) // 4
    rows = np.zeros((len(memories), width), dtype=np.float32)
    for row, memory in zip(rows, memories, strict=True):
        if len(memory.vector) == width * 4:
            row[:] = np.frombuffer(memory.vector, dtype="<f4")
    return rows


def central_memory(memories: Sequence[Material]) -> Material:
    """The memory nearest to all the others, weighted by importance; the first one in a tie."""
    rows = vectors_of(memories)
    weights = np.array([each.importance for each in memories], dtype=np.float32)
    return memories[int((rows @ (weights @ rows)).argmax())]


def average_link(similarities: Similarities, threshold: float, max_size: int) -> list[list[int]]:
    """Clusters of at least two items, each in ascending order, sorted by their first items. The two clusters with the
    highest mean similarity (in a tie, the first two) are merged until no pair reaches the threshold. The means after a
    merge are computed from the means before it (Lance and Williams, 1967). The diagonal is not read."""
    count = len(similarities)
    table = np.array(similarities, dtype=np.float64)
    np.fill_diagonal(table, _NEVER)
    members: list[list[int]] = [[place] for place in range(count)]
    sizes = np.ones(count)
    while count > 1:
        one, two = sorted(divmod(int(table.argmax()), count))
        if table[one, two] < threshold:
            break
        row = (sizes[one] * table[one] + sizes[two] * table[two]) / (sizes[one] + sizes[two])
        sizes[one] += sizes[two]
        members[one] += members[two]
        members[two] = []
        row[sizes + sizes[one] > max_size] = _NEVER  # final, since sizes only grow
        row[[one, two]] = _NEVER
        table[one], table[:, one] = row, row
        table[two], table[:, two] = _NEVER, _NEVER
    return sorted(sorted(member) for member in members if len(member) > 1)


def _above_background(cosines: Similarities) -> Similarities:
    """Rescale so that the mean is 0 and 1 stays 1. The mean of few memories counts less: they may share a topic."""
    count = len(cosines)
    if count < 2:
        return cosines
    mean = (float(cosines.sum()) - float(np.trace(cosines))) / (count * (count - 1))
    background = (max(0.0, mean) * count + BACKGROUND * BACKGROUND_COUNT) / (count + BACKGROUND_COUNT)
    background = min(background, MOST_BACKGROUND)
    rescaled: Similarities = (cosines - np.float32(background)) / np.float32(1.0 - background)
    return rescaled


def _shared_entities(memories: Sequence[Material]) -> Similarities:
    """Shared entities, in [0, 1]. Rare entities weigh more; an entity that all memories mention weighs nothing."""
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


def content_words(text: str) -> list[str]:
    """The words of a text in order and in lower case, without those that say nothing about its subject."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    ignored = stop_words_of(text[:_LOOKED_AT])
    return [word for word in _WORD.findall(folded) if word not in STOP_WORDS and word not in ignored]


def tf_idf(texts: Sequence[str]) -> NDArray[np.float32]:
    """The tf-idf of each text's stems: rows of unit length, or zeros. The weight of a stem is (1 + log tf) * log(1 + n
    / df), as in Salton and Buckley (1988). Only the beginning of a very long text is read."""
    counts = [Counter(stem(word) for word in content_words(text[:_LOOKED_AT])) for text in texts]
    frequency = Counter(term for each in counts for term in each)
    columns = {term: place for place, term in enumerate(sorted(frequency))}
    rows = np.zeros((len(texts), len(columns)), dtype=np.float32)
    for place, each in enumerate(counts):
        for term, count in each.items():
            rows[place, columns[term]] = (1 + math.log(count)) * math.log(1 + len(texts) / frequency[term])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit
