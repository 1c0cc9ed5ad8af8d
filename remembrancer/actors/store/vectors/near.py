"""The memories nearest to some vectors: what the consolidator asks before it merges or links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from remembrancer.actors.store.records.contract import Records, Vectors
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.vectors.passage_index import IndexLost, PassageIndex
from remembrancer.protocol.consolidation import FindNear, NearFound
from remembrancer.protocol.errors import InvalidInput

EXACT_UP_TO: Final = 2000
"""Memories that are all compared: to read so many vectors takes some milliseconds."""
PAGE: Final = 500
SLACK: Final = 0.1
"""The index knows passages, and what counts is their mean: it may be nearer than each of them."""
FIRST_LOOK: Final = 32
MOST_HITS: Final = 512
"""Passages of one row that are looked at: others stand nearer than any memory that could be found beyond these."""


def find_near(records: Records, index: PassageIndex | None, model: str, request: FindNear) -> NearFound:
    """The answer to `request`. Blocks for as long as it takes to read the vectors, or to search the index.

    Where few memories are eligible, or the index (None: there is none now) fails, all of them are compared; else those
    that the index finds. Cosines are between the rows and the normalised means of the memories' passages.

    Raises:
        InvalidInput: the vectors are no rows of the same length as the model's.
    """
    if not request.rows:
        return NearFound(())
    queries = _rows_of(request)
    numbers = records.eligible(request, EXACT_UP_TO)
    if numbers is None:
        numbers = None if index is None else _through(index, queries, records, request)
    if numbers is None:
        numbers = records.eligible(request, 2**31)
    best = _nearest(records, model, queries, numbers or (), request)
    materials = records.materials_of(sorted({number for row in best for number, _ in row}))
    return NearFound(
        tuple(tuple((materials[number], cosine) for number, cosine in row if number in materials) for row in best)
    )


def _rows_of(request: FindNear) -> Vectors:
    if len(request.vectors) % (4 * request.rows):
        raise InvalidInput(f"{len(request.vectors)} bytes are not {request.rows} vectors", field="vectors")
    rows = np.frombuffer(request.vectors, dtype="<f4").reshape(request.rows, -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _through(index: PassageIndex, queries: Vectors, records: Records, request: FindNear) -> list[int] | None:
    """Eligible memories that the index finds near any row; None when it cannot be searched.

    The index knows nothing of scopes, sessions and statuses: where it gives others, more is asked for.
    """
    found: set[int] = set()
    open_rows = np.arange(len(queries))
    limit = FIRST_LOOK
    least = request.min_cosine - SLACK
    while len(open_rows) and limit <= MOST_HITS:
        try:
            hits_of_each = index.search_each(queries[open_rows], limit)
        except IndexLost:
            return None
        seen = sorted({hit.memory for hits in hits_of_each for hit in hits if hit.cosine >= least})
        eligible = set(records.eligible(request, len(seen), seen) or ())
        found |= eligible
        unfinished = [
            len(hits) == limit
            and hits[-1].cosine >= least
            and len({hit.memory for hit in hits if hit.memory in eligible}) < request.limit
            for hits in hits_of_each
        ]
        open_rows = open_rows[unfinished]
        limit *= 4
    return sorted(found)


def _nearest(
    records: Records, model: str, queries: Vectors, numbers: Sequence[int], request: FindNear
) -> list[list[tuple[int, float]]]:
    """For each row the numbers of its nearest memories with their cosines. A page of vectors at a time."""
    best: list[list[tuple[int, float]]] = [[] for _ in queries]
    for start in range(0, len(numbers), PAGE):
        memories, means = mean_vectors(records.memory_vectors(model, numbers[start : start + PAGE]))
        if not memories:
            continue
        if means.shape[1] != queries.shape[1]:
            raise InvalidInput(
                f"the vectors have {queries.shape[1]} dimensions, and the model's {means.shape[1]}", field="vectors"
            )
        for row, cosines in enumerate(queries @ means.T):
            near = np.flatnonzero(cosines >= request.min_cosine)
            together = [*best[row], *((memories[place], float(cosines[place])) for place in near)]
            best[row] = sorted(together, key=lambda pair: (-pair[1], pair[0]))[: request.limit]
    return best
