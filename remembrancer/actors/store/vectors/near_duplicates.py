"""Finds near-duplicate memories, and memories near given vectors, for links and for the consolidator."""

from collections.abc import Sequence
from typing import Final

from remembrancer.actors.store.records.passage_rows import mean_vectors
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import NO_LIMIT, NearDuplicate, PassageVectors
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.memory.ranking import NEAR_DUPLICATE_COSINE, on_the_scale
from remembrancer.protocol.consolidation import FindNear, Material, ReadMemories
from remembrancer.protocol.reads import Filters

NEAREST: Final = 16
"""The number of nearest memories compared with each memory, including the memory itself."""
SLACK: Final = 0.1
"""The margin on the minimum cosine: the search compares passages, but their means, which decide, may be nearer."""
MIN_HITS: Final = 32


def nearest_to(vectors: ExactVectors, memories: Sequence[int]) -> dict[int, dict[int, float]]:
    """Return for each memory the cosines of those nearest to its first passage, on the default model's scale."""
    own = vectors.of_memories(memories)
    places = [place for place, ordinal in enumerate(own.ordinals) if ordinal == 0]
    nearest = vectors.nearest_each(own.vectors[places], NEAREST) if places else []
    return {
        own.memories[place]: {other: on_the_scale(cosine, vectors.scale) for other, cosine in near.items()}
        for place, near in zip(places, nearest, strict=True)
    }


def compared(vectors: ExactVectors, passages: PassageVectors) -> tuple[list[NearDuplicate], list[NearDuplicate]]:
    """Return the near-duplicates of the memories whose first passages are given, and all memories near them, with
    cosines on the default model's scale. Only first passages are compared."""
    own = [place for place, ordinal in enumerate(passages.ordinals) if ordinal == 0]
    if not own:
        return [], []
    rows = passages.vectors[own]
    nearest = vectors.nearest_each(rows, NEAREST)
    alike = {memory for near in nearest for memory, cosine in near.items() if cosine >= NEAR_DUPLICATE_COSINE}
    others = vectors.of_memories(sorted(alike))
    places = enumerate(zip(others.memories, others.ordinals, strict=True))
    openings = {memory: place for place, (memory, ordinal) in places if ordinal == 0}
    links, pairs = [], []
    for place, row, near in zip(own, rows, nearest, strict=True):
        memory, passage = passages.memories[place], passages.numbers[place]
        near.pop(memory, None)
        for other, cosine in near.items():
            pair = max(memory, other), min(memory, other)
            pairs.append(NearDuplicate(*pair, on_the_scale(cosine, vectors.scale), (passage,)))
            if other in openings and (same := float(row @ others.vectors[openings[other]])) >= NEAR_DUPLICATE_COSINE:
                links.append(NearDuplicate(*pair, same, (passage, others.numbers[openings[other]])))
    return links, pairs


def find_near(
    records: Records, vectors: ExactVectors, request: FindNear
) -> tuple[tuple[tuple[Material, float], ...], ...]:
    """The cosines are those between the normalised means of the memories' passages."""
    asked, queries = mean_vectors(records.passages(vectors.model, request.numbers))
    if not asked:
        return ((),) * len(request.numbers)
    filters = Filters("", scopes=("user" if request.project is None else "project",))
    nearest = vectors.nearest_each(queries, max(MIN_HITS, 4 * request.limit), records.matching(filters, NO_LIMIT) or ())
    least = request.min_cosine - SLACK
    found = {memory for near in nearest for memory, cosine in near.items() if cosine >= least}
    memories, means = mean_vectors(vectors.of_memories(sorted(found)))
    if not memories:
        return ((),) * len(request.numbers)
    of_these = ReadMemories(request.project, statuses=("active",), numbers=tuple(memories), limit=len(memories))
    active = {each.number: each for each in records.materials(of_these).memories}
    best: dict[int, list[tuple[Material, float]]] = {}
    for number, cosines in zip(asked, queries @ means.T, strict=True):
        pairs = zip(memories, cosines.tolist(), strict=True)
        near = [(active[other], cosine) for other, cosine in pairs if cosine >= request.min_cosine and other in active]
        best[number] = sorted(near, key=lambda pair: (-pair[1], pair[0].number))
    return tuple(tuple(best.get(number, ())[: request.limit]) for number in request.numbers)
