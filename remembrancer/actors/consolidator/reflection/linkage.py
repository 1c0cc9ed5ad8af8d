"""Average-link agglomeration (UPGMA: Sokal and Michener, 1958) with a threshold and a bound on the size.

Begun with each item alone, the two clusters whose items are the most similar on average become one, until no pair is
similar enough. The average after a merge follows from those before it (Lance and Williams, 1967), so that a merge costs
a few operations on rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Similarities = NDArray[np.float32]
_NEVER: Final = -np.inf


def average_link(similarities: Similarities, threshold: float, max_size: int) -> list[list[int]]:
    """Clusters of at least two items, each ascending, in the order of their first items.

    `similarities` is symmetric, of shape (n, n); its diagonal is not read. Of equal similarities the pair with the
    lowest positions is joined first, so that the same matrix always gives the same clusters.
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
    return sorted(sorted(each) for each in members if len(each) > 1)
