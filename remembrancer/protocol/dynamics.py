"""How strong a memory still is. Pure; the clock is passed in. Times are seconds since the epoch.

docs/memory-model.md explains the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from remembrancer.protocol.kinds import Scope, Status

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Decay:
    """How fast memories fade. A half-life grows by its gain (a share of itself) with each access.

    Raises:
        ValueError: a half-life is not above 0, or a gain is below it.
    """

    project_half_life_s: float = 7 * DAY_S
    project_access_gain: float = 0.15
    user_half_life_s: float = 30 * DAY_S
    user_access_gain: float = 0.2
    stale_after_s: float = 30 * DAY_S
    stale_below_accesses: int = 3

    def __post_init__(self) -> None:
        if min(self.project_half_life_s, self.user_half_life_s) <= 0:
            raise ValueError("a half-life must be above 0")
        if min(self.project_access_gain, self.user_access_gain) < 0:
            raise ValueError("an access must not shorten a half-life")


DEFAULT_DECAY: Final = Decay()


def memory_strength(
    importance: float,
    confidence: float,
    access_count: int,
    last_accessed_at: float,
    scope: Scope,
    now: float,
    decay: Decay = DEFAULT_DECAY,
) -> float:
    """`importance * confidence * 0.5 ** (days since the last access / half-life in days)`, to three digits.

    In [0, 1] for importance and confidence in [0, 1] and an access count of 0 or more. A session's memories do not
    decay. A memory that nobody has accessed counts from its creation; a last access in the future counts as now. Days
    are real numbers, where the seed's `duration::days` drops their fraction: at whole days both are the same, and
    between them a memory fades steadily instead of in leaps that depend on the hour of its last use.
    """
    strength = importance * confidence
    if scope != "session":
        strength *= 0.5 ** (max(0.0, now - last_accessed_at) / _half_life_s(scope, access_count, decay))
    return math.floor(strength * 1000 + 0.5) / 1000


def falls_below_at(
    least: float,
    importance: float,
    confidence: float,
    access_count: int,
    last_accessed_at: float,
    scope: Scope,
    decay: Decay = DEFAULT_DECAY,
) -> float | None:
    """When `memory_strength` sinks to `least` if nobody accesses the memory again; None: never.

    The last access, where it is below it from the beginning.
    """
    at_first = importance * confidence
    if at_first <= least:
        return last_accessed_at
    if scope == "session" or least <= 0:
        return None
    return last_accessed_at + math.log2(at_first / least) * _half_life_s(scope, access_count, decay)


def is_stale(
    status: Status, last_accessed_at: float, access_count: int, now: float, decay: Decay = DEFAULT_DECAY
) -> bool:
    """Whether an active memory has not been accessed for more than 30 days, and fewer than three times in all."""
    return (
        status == "active"
        and last_accessed_at < now - decay.stale_after_s
        and access_count < decay.stale_below_accesses
    )


def _half_life_s(scope: Scope, access_count: int, decay: Decay) -> float:
    if scope == "user":
        return decay.user_half_life_s * (1.0 + access_count * decay.user_access_gain)
    return decay.project_half_life_s * (1.0 + access_count * decay.project_access_gain)
