"""The numbers by which memories are promoted, archived and let go, and the score of a promotion. Pure.

The consolidator decides by them, and the store explains by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from remembrancer.protocol.dynamics import DAY_S
from remembrancer.protocol.kinds import SESSION_KINDS, Kind

IMPORTANCE_SHARE: Final = 0.4
CONFIDENCE_SHARE: Final = 0.3
MOST_FOR_USE: Final = 0.2
FOR_VECTORS: Final = 0.05
FOR_KIND: Final[dict[Kind, float]] = {
    "pattern": 0.1,
    "convention": 0.1,
    "procedure": 0.1,
    "decision": 0.08,
    "error_fix": 0.08,
    "architecture": 0.08,
    "preference": 0.06,
    "fact": 0.06,
}
DIGITS: Final = 9
"""Sums are rounded to so many digits, so that 0.4 + 0.3 + 0.1 + 0.05 reaches a threshold of 0.85."""


@dataclass(frozen=True, slots=True)
class PromotionRules:
    """The thresholds of promotion."""

    session_end_score: float = 0.6
    at_once_score: float = 0.85
    user_score: float = 0.7
    user_min_sessions: int = 3
    user_min_importance: float = 0.7
    user_kinds: frozenset[Kind] = frozenset({"pattern", "convention", "preference", "procedure", "fact"})
    session_kinds: frozenset[Kind] = SESSION_KINDS
    """What belongs to its session alone."""
    session_end_limit: int = 50
    user_limit: int = 20
    merge_cosine: float = 0.85
    project_confidence_gain: float = 0.05
    user_confidence_gain: float = 0.1


@dataclass(frozen=True, slots=True)
class ArchiveRule:
    """A memory is archived when it is weaker, older and less used than this, all three."""

    strength_below: float
    older_than_s: float
    accessed_below: int


@dataclass(frozen=True, slots=True)
class MaintenanceRules:
    """The numbers of maintenance."""

    project: ArchiveRule = ArchiveRule(0.05, 14 * DAY_S, 2)
    user: ArchiveRule = ArchiveRule(0.02, 90 * DAY_S, 2)
    delete_after_s: float = 90 * DAY_S
    """A project's archived memory that has not changed for longer is deleted: softly, it can be restored."""
    orphan_after_s: float = 30 * DAY_S
    """An entity that no memory names is removed when it is older than this."""
    session_details_kept_s: float = 30 * DAY_S
    """Turns, tool calls, scratchpads and tool outcomes of a session go when it has been closed for longer."""
    runs_kept_s: float = 90 * DAY_S
    """What the consolidator did can be undone for so long."""
    operations_kept_s: float = 30 * DAY_S
    """An operation that is sent again after longer would be taken for a new one; queues are emptied much sooner."""


DEFAULT_PROMOTION: Final = PromotionRules()
MOST_BESIDE: Final = MOST_FOR_USE + max(FOR_KIND.values()) + FOR_VECTORS
"""What use, kind and vectors add to a score at the most."""
COUNTED_ACCESSES: Final = math.ceil(10 ** (2 * MOST_FOR_USE)) - 1
"""Accesses that count in a score: with more it is no higher."""
DEFAULT_MAINTENANCE: Final = MaintenanceRules()


def promotion_score(importance: float, confidence: float, access_count: int, kind: Kind, has_vectors: bool) -> float:
    """What a memory is worth to a broader scope, in [0, 1]."""
    base = importance * IMPORTANCE_SHARE + confidence * CONFIDENCE_SHARE
    for_use = min(math.log10(access_count + 1) / 2.0, MOST_FOR_USE)
    for_vectors = FOR_VECTORS if has_vectors else 0.0
    return min(round(base + for_use + FOR_KIND.get(kind, 0.0) + for_vectors, DIGITS), 1.0)
