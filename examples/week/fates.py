"""The fate of each memory of the week, as the model predicts it.

The numbers follow from the story by these formulas. The promotion score is 0.4 of the importance, 0.3 of the
confidence, `min(log10(accesses + 1) / 2, 0.2)`, 0.05 for being embedded, and a share of the kind: 0.1 for a pattern,
convention or procedure, 0.08 for a decision, error_fix or architecture, 0.06 for a preference or fact. A test
recomputes all of them from the story.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AT_THE_END: Final[Mapping[str, float]] = {
    "layers": 0.69,  # 0.32 + 0.24 + 0.08 + 0.05
    "postgres": 0.76,  # 0.36 + 0.27 + 0.08 + 0.05
    "small changes": 0.64,  # 0.32 + 0.21 + 0.06 + 0.05
    "an hour": 0.63,  # 0.28 + 0.24 + 0.06 + 0.05
    "grid": 0.74,  # 0.34 + 0.27 + 0.08 + 0.05
    "one concern": 0.64,  # 0.32 + 0.21 + 0.06 + 0.05
    "safari": 0.716,  # 0.26 + 0.195 + 0.06 + 0.05, and 0.151 for one recall
    "two heads": 0.72,  # 0.32 + 0.27 + 0.08 + 0.05
    "release": 0.71,  # 0.32 + 0.24 + 0.1 + 0.05
    "query client": 0.69,  # 0.32 + 0.24 + 0.08 + 0.05
    "idempotency": 0.72,  # 0.32 + 0.27 + 0.08 + 0.05
    "half an hour": 0.63,  # 0.28 + 0.24 + 0.06 + 0.05
}
"""Promoted from the session to the project at the session's end, with scores of at least 0.6."""
AT_ONCE: Final[Mapping[str, float]] = {"translations": 0.85}  # 0.4 + 0.3 + 0.1 + 0.05
"""Promoted while the session was running, with a score of at least 0.85."""
MERGED: Final = ("postgres again", "postgres", 0.9, 0.95)
"""The memory that was merged at a session's end (cosine 0.94), and the one it was merged into, with its new importance
and confidence: the larger of 0.8 and 0.9, and 0.9 + 0.05."""
TOO_LOW: Final[Mapping[str, float]] = {
    "coffee": 0.4,  # 0.2 + 0.15 + 0.05
    "bundle": 0.565,  # 0.26 + 0.195 + 0.06 + 0.05: like `safari`, but never recalled
    "skeletons": 0.4,
    "contrast": 0.4,
}
"""Below 0.6: these stay with their session."""
SCRATCHPADS: Final = ("swapped modules", "guess", "tomorrow")
"""Only for their session, though the first two would score 0.75."""
TO_USER: Final[Mapping[str, float]] = {"one concern": 0.64}  # 0.32 + 0.21 + 0.06 + 0.05
"""A preference stated in both projects: it is promoted to the user from the project that stated it later."""
MERGED_TO_USER: Final = ("small changes", "one concern", 0.8, 0.8)
"""The same preference in the other project: importance stays, and confidence is 0.7 + 0.1."""
STAY_IN_PROJECT: Final[Mapping[str, str]] = {
    "translations": "names a path of its project",
    "safari": "its importance 0.65 is below 0.7",
}
"""Recalled in three sessions, but only useful in their project."""
SUMMED_UP: Final = ("pool 1", "pool 2", "pool 3", "pool 4")
SUPERSEDED: Final = ("half an hour", "an hour")
ARCHIVED: Final = ("an hour", "slow staging")
"""0.7 * 0.8 * 0.5 ** (27 / 7) = 0.039 and 0.3 * 0.4 * 0.5 ** (27 / 7) = 0.008 after 27 days, below 0.05; all others are
stronger or were accessed twice. A superseded memory hardly answers, and a one-line mention in an answer is no access.
"""
