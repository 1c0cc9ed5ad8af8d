"""The fate of each memory of the week, as the model predicts it.

The numbers follow from the story by the seed's formulas. Its promotion score (section 5c) is 0.4 of the importance, 0.3
of the confidence, `min(log10(accesses + 1) / 2, 0.2)`, 0.05 for being embedded, and a share of the kind: 0.1 for a
pattern, convention or procedure, 0.08 for a decision, error_fix or architecture, 0.06 for a preference or fact. A test
computes all of them anew from the story.
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
    "safari": 0.716,  # 0.26 + 0.195 + 0.06 + 0.05, and 0.151 for having been asked for once
    "two heads": 0.72,  # 0.32 + 0.27 + 0.08 + 0.05
    "release": 0.71,  # 0.32 + 0.24 + 0.1 + 0.05
    "query client": 0.69,  # 0.32 + 0.24 + 0.08 + 0.05
    "idempotency": 0.72,  # 0.32 + 0.27 + 0.08 + 0.05
    "half an hour": 0.63,  # 0.28 + 0.24 + 0.06 + 0.05
}
"""Promoted from the session to the project at the session's end, with their scores, of at least 0.6."""
AT_ONCE: Final[Mapping[str, float]] = {"translations": 0.85}  # 0.4 + 0.3 + 0.1 + 0.05
"""Promoted while the session was running: at least 0.85."""
MERGED: Final = ("postgres again", "postgres", 0.9, 0.95)
"""The memory that was merged at a session's end (cosine 0.94 to the other), and that one; importance and confidence
then: the larger of 0.8 and 0.9, and 0.9 + 0.05."""
TOO_LOW: Final[Mapping[str, float]] = {
    "coffee": 0.4,  # 0.2 + 0.15 + 0.05
    "bundle": 0.565,  # 0.26 + 0.195 + 0.06 + 0.05: as `safari`, but nobody asked for it
    "skeletons": 0.4,
    "contrast": 0.4,
}
"""Below 0.6: they stay with their session."""
SCRATCHPADS: Final = ("swapped modules", "guess", "tomorrow")
"""For their session alone, though the first two would have 0.75."""
TO_USER: Final[Mapping[str, float]] = {"one concern": 0.64}  # 0.32 + 0.21 + 0.06 + 0.05
"""A preference that both projects have said: it goes to the user from the one that said it later."""
MERGED_TO_USER: Final = ("small changes", "one concern", 0.8, 0.8)
"""The same in the other project: importance stays, and confidence is 0.7 + 0.1."""
STAY_IN_PROJECT: Final[Mapping[str, str]] = {
    "translations": "names a path of its project",
    "safari": "its importance 0.65 is below 0.7",
}
"""Asked for in three sessions and yet not of use everywhere."""
SUMMED_UP: Final = ("pool 1", "pool 2", "pool 3", "pool 4")
SUPERSEDED: Final = ("half an hour", "an hour")
ARCHIVED: Final = ("an hour", "slow staging")
"""0.7 * 0.8 * 0.5 ** (27 / 7) = 0.039 and 0.3 * 0.4 * 0.5 ** (27 / 7) = 0.008 after 27 days, below 0.05; all others are
stronger or were accessed twice. What is superseded hardly answers: to be one line of an answer is no access."""
