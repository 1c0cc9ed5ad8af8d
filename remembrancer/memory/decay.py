"""Computes a memory's strength, and when to archive and forget it (docs/memory-model.md). Times are epoch seconds."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ListedMemory
from remembrancer.protocol.writes import PortableMemory

DAY_S: Final = 86_400.0
STALE_AFTER_S: Final = 30 * DAY_S
STALE_BELOW_ACCESSES: Final = 3


class Fading(NamedTuple):
    """Each access lengthens the half-life by the fraction `access_gain`. A memory is archived if its strength, age and
    number of accesses are all beyond the limits in the last three fields."""

    half_life_s: float
    access_gain: float
    strength_below: float
    older_than_s: float
    accessed_below: int


FADING: Final[Mapping[Scope, Fading]] = {
    "project": Fading(7 * DAY_S, 0.15, 0.05, 14 * DAY_S, 2),
    "user": Fading(30 * DAY_S, 0.2, 0.02, 90 * DAY_S, 2),
}
DELETE_AFTER_S: Final = 90 * DAY_S
"""A project's archived memory that has not changed for this long is forgotten. It can be restored."""


def accessed_at(memory: ListedMemory | PortableMemory) -> float:
    return max(memory.created_at, memory.last_accessed_at or 0.0)


def strength_of(memory: ListedMemory | PortableMemory, now: float) -> float:
    """`importance * confidence * 0.5 ** (time since the last access / half-life)`, rounded to three digits, in [0, 1].
    Session memories and unfinished open ends do not decay. A last access in the future counts as now."""
    strength = memory.importance * memory.confidence
    if (fading := FADING.get(memory.scope)) and not memory.is_open:
        half_life_s = fading.half_life_s * (1.0 + memory.access_count * fading.access_gain)
        strength *= 0.5 ** (max(0.0, now - accessed_at(memory)) / half_life_s)
    return math.floor(strength * 1000 + 0.5) / 1000


def is_stale(memory: ListedMemory | PortableMemory, now: float) -> bool:
    is_unused = accessed_at(memory) < now - STALE_AFTER_S and memory.access_count < STALE_BELOW_ACCESSES
    return memory.status == "active" and not memory.is_open and is_unused


def is_event(memory: Material) -> bool:
    """Only events fade. Lasting facts do not, and neither do error fixes, since the error may recur."""
    return memory.type == "episodic" and memory.kind != "error_fix"


def should_archive(memory: Material, now: float) -> bool:
    rule = FADING.get(memory.scope)
    if rule is None or memory.status != "active" or not (is_event(memory) or memory.is_summary):
        return False
    return (
        strength_of(memory, now) < rule.strength_below
        and memory.created_at < now - rule.older_than_s
        and memory.access_count < rule.accessed_below
    )


def should_delete(memory: Material, now: float) -> bool:
    """The user's memories are never forgotten automatically."""
    if memory.scope != "project" or memory.status != "archived" or not is_event(memory):
        return False
    return max(memory.archived_at or 0.0, memory.updated_at) < now - DELETE_AFTER_S


def has_ended(valid_until: float | None, now: float) -> bool:
    return valid_until is not None and valid_until <= now


RECENCY_HALF_LIFE_S: Final = 30 * DAY_S
"""Equal to the user scope's half-life. The shorter one for projects affects archiving, but not ranking."""


def recency(happened_at: float, now: float) -> float:
    """Exponential decay from 1; a time in the future counts as now."""
    return float(0.5 ** (max(0.0, now - happened_at) / RECENCY_HALF_LIFE_S))
