"""Counts of several files added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from remembrancer.protocol.reads import Counts


def total_counts(all_counts: Sequence[Counts]) -> Counts:
    """The sum of `all_counts`, sort by sort."""
    by_scope: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    for counts in all_counts:
        by_scope.update(counts.by_scope)
        by_type.update(counts.by_type)
    return Counts(
        total=sum(counts.total for counts in all_counts),
        by_scope=dict(by_scope),
        by_type=dict(by_type),
        forgotten=sum(counts.forgotten for counts in all_counts),
        entities=sum(counts.entities for counts in all_counts),
        relationships=sum(counts.relationships for counts in all_counts),
    )
