"""Which memories are archived and let go. Pure; the clock is passed in. Times are seconds since the epoch.

A session's memories are none of maintenance's
business, and what the user is to remember is archived at most, never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from remembrancer.protocol.kinds import Scope, Status
from remembrancer.protocol.rules import DEFAULT_MAINTENANCE
from remembrancer.protocol.rules import ArchiveRule as ArchiveRule
from remembrancer.protocol.rules import MaintenanceRules as MaintenanceRules

DEFAULT_RULES: Final = DEFAULT_MAINTENANCE


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """What maintenance looks at. `strength` is `memory_strength` at the time of the decision."""

    scope: Scope
    status: Status
    strength: float
    created_at: float
    updated_at: float
    access_count: int
    archived_at: float | None = None
    """None: it is not known when, and its last change counts."""


def should_archive(memory: MemoryFacts, now: float, rules: MaintenanceRules = DEFAULT_RULES) -> bool:
    """Whether an active memory of a project or of the user is too weak to be kept in sight."""
    if memory.scope == "session" or memory.status != "active":
        return False
    rule = rules.user if memory.scope == "user" else rules.project
    return (
        memory.strength < rule.strength_below
        and memory.created_at < now - rule.older_than_s
        and memory.access_count < rule.accessed_below
    )


def should_delete(memory: MemoryFacts, now: float, rules: MaintenanceRules = DEFAULT_RULES) -> bool:
    """Whether a project's memory has been archived for so long that it is forgotten (softly).

    One that is used in the meantime is active again (`records/reviving.py`).
    """
    if memory.scope != "project" or memory.status != "archived":
        return False
    archived_at = memory.updated_at if memory.archived_at is None else memory.archived_at
    return archived_at < now - rules.delete_after_s
