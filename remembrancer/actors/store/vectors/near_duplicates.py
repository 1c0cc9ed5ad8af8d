"""Finds near-duplicate memories, and memories near given vectors, for links and for the consolidator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from remembrancer.actors.store.records.contract import EVERY, NearDuplicate, PassageFilter, PassageVectors, Vectors
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.vectors.exact_vectors import SpaceVectors
from remembrancer.memory.ranking import NEAR_DUPLICATE_COSINE, on_the_scale
from remembrancer.protocol.consolidation import FindNear, Material
from remembrancer.protocol.reads import Filters

LOOKED_AT: Final = 16
"""The number of memories considered near one: itself, and others."""
EXACT_UP_TO: Final = 2000
"""The number of memories up to which all are compared: reading their vectors takes a few milliseconds."""
NEAR_PAGE: Final = 500
SLACK: Final = 0.1
"""The margin on the least cosine, since passages are searched but means count, which may be nearer than any passage."""
LEAST_HITS: Final = 32


def compared(vectors: SpaceVectors, passages: PassageVectors) -> tuple[list[NearDuplicate], list[NearDuplicate]]:
    """Return the near-duplicates of the memories whose first passages are given, and all memories near them, with the
    cosines of their nearest passages, on the default model's scale.

    Memories are compared by their first passages, so two that begin alike and differ later are near-duplicates as well.
    """
    own = [place for place, ordinal in enumerate(passages.ordinals) if ordinal == 0]
    if not own:
        return [], []
    rows = passages.vectors[own]
    nearest = vectors.nearest_each(rows, LOOKED_AT)
    alike = {memory for near in nearest for memory, cosine in near.items() if cosine >= NEAR_DUPLICATE_COSINE}
    others = vectors.of_memories(sorted(alike))
    openings = {
        memory: place
        for place, (memory, ordinal) in enumerate(zip(others.memories, others.ordinals, strict=True))
        if ordinal == 0
    }
    links, pairs = [], []
    for place, row, near in zip(own, rows, nearest, strict=True):
        memory, passage = passages.memories[place], passages.numbers[place]
        for other, cosine in near.items():
            if other == memory:
                continue
            later, earlier = max(memory, other), min(memory, other)
            pairs.append(NearDuplicate(later, earlier, on_the_scale(cosine, vectors.scale), (passage,)))
            if other in openings and (same := float(row @ others.vectors[openings[other]])) >= NEAR_DUPLICATE_COSINE:
                links.append(NearDuplicate(later, earlier, same, (passage, others.numbers[openings[other]])))
    return links, pairs


def find_near(
    records: Records, vectors: SpaceVectors | None, model: str, request: FindNear
) -> tuple[tuple[tuple[Material, float], ...], ...]:
    """Answer `request`. Blocks while the vectors are read or searched.

    All memories are compared if few are eligible, or there is no search (`vectors`); otherwise only those that a search
    finds. Cosines are between the normalised means of the memories' passages.
    """
    asked, queries = mean_vectors(records.passages(PassageFilter(model, request.numbers)))
    if not asked:
        return ((),) * len(request.numbers)
    filters = Filters("", scopes=("user" if request.project is None else "project",))
    numbers: Sequence[int] = records.matching(filters, EVERY) or ()
    if vectors is not None and len(numbers) > EXACT_UP_TO:
        near = vectors.nearest_each(queries, max(LEAST_HITS, 4 * request.limit), numbers)
        least = request.min_cosine - SLACK
        numbers = sorted({memory for found in near for memory, cosine in found.items() if cosine >= least})
    best = dict(zip(asked, _nearest(records, model, queries, numbers, request), strict=True))
    materials = records.materials_of(sorted({number for row in best.values() for number, _ in row}))
    active = {material.number: material for material in materials if material.status == "active"}
    return tuple(
        tuple([(active[other], cosine) for other, cosine in best.get(number, ()) if other in active][: request.limit])
        for number in request.numbers
    )


def _nearest(
    records: Records, model: str, queries: Vectors, numbers: Sequence[int], request: FindNear
) -> list[list[tuple[int, float]]]:
    """Return for each row the numbers of its nearest memories with their cosines. Reads one page of vectors at a
    time."""
    best: list[list[tuple[int, float]]] = [[] for _ in queries]
    for start in range(0, len(numbers), NEAR_PAGE):
        memories, means = mean_vectors(records.passages(PassageFilter(model, numbers[start : start + NEAR_PAGE])))
        if not memories:
            continue
        for row, cosines in enumerate(queries @ means.T):
            near = np.flatnonzero(cosines >= request.min_cosine)
            together = [*best[row], *((memories[place], float(cosines[place])) for place in near)]
            best[row] = sorted(together, key=lambda pair: (-pair[1], pair[0]))[: max(LEAST_HITS, 4 * request.limit)]
    return best
