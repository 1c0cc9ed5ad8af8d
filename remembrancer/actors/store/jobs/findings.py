"""What a look into a file finds that is to be done there, and the jobs that follow. The look only reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.store.jobs.job_board import Rank, Wanted
from remembrancer.actors.store.records.contract import ConsolidationRequest, MaintenanceState, Promotable, Records
from remembrancer.protocol.consolidation import (
    ConsolidateJob,
    Maintain,
    MaintainJob,
    PromoteJob,
    ReadMemories,
    ReadUpkeep,
    SessionEndJob,
    Upkeep,
)
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import ProjectRef

MAINTENANCE: Final = "maintenance"
"""The sort of maintenance, as the records name it."""
MAINTENANCE_SESSIONS: Final = 10
"""A project's maintenance is due after so many sessions."""
MAINTENANCE_S: Final = 7 * 86_400.0
"""And after so long in any case."""
NEVER: Final = MaintenanceState(None, 0)
PROMOTED_TOGETHER: Final = 100
"""Memories in one job."""


@dataclass(frozen=True, slots=True)
class Findings:
    """How a file stands. `oldest_at` is when its first memory was made, None for a file without any."""

    sessions: tuple[SessionEntry, ...] = ()
    """The open ones, and those whose end is to be dealt with."""
    requests: tuple[ConsolidationRequest, ...] = ()
    promotable: tuple[Promotable, ...] = ()
    maintenance: MaintenanceState = NEVER
    oldest_at: float | None = None
    wants_consolidation: bool = False
    """Whether a request is to be made."""

    @property
    def maintenance_at(self) -> float | None:
        """When maintenance is due because of the time (seconds since the epoch); None: not for that reason."""
        since = self.oldest_at if self.maintenance.done_at is None else self.maintenance.done_at
        return None if since is None or self.oldest_at is None else since + MAINTENANCE_S


def look_into(records: Records, *, of_project: bool, at_once_score: float, declined: int, threshold: int) -> Findings:
    """Look. Some short queries; sessions belong to a project's file. `declined` candidates are known already."""
    oldest = records.materials(ReadMemories(None, limit=1, with_content=False), None).memories
    return Findings(
        sessions=tuple(records.open_sessions()) if of_project else (),
        requests=tuple(records.consolidation_requests()),
        promotable=tuple(records.promotable_now(at_once_score, declined + PROMOTED_TOGETHER)) if of_project else (),
        maintenance=records.maintenance_state(MAINTENANCE),
        oldest_at=oldest[0].created_at if oldest else None,
        wants_consolidation=records.wants_consolidation(threshold),
    )


def upkeep_of(records: Records, request: ReadUpkeep) -> Upkeep:
    """What the maintenance of a file has to know."""
    return Upkeep(
        records.maintenance_state(MAINTENANCE).done_at, *records.upkeep(request.orphans_before, request.prune)
    )


def jobs_of(
    name: str, project: ProjectRef | None, findings: Findings, declined: Collection[Promotable], wall_now: float
) -> list[Wanted]:
    """The jobs that follow. `declined` are memories that were looked at for promotion, as they were then."""
    wanted = []
    if project is not None:
        for session in findings.sessions:
            if session.ended_at is not None:
                key = ("session", name, session.session_id, repr(session.ended_at))
                wanted.append(Wanted(key, Rank.SESSION_END, SessionEndJob(0, project, session)))
        new = tuple(each for each in findings.promotable if each not in declined)[:PROMOTED_TOGETHER]
        if new:
            job = PromoteJob(0, project, tuple(each.memory_id for each in new))
            wanted.append(Wanted(("promote", name), Rank.PROMOTION, job, new))
    for request in findings.requests:
        consolidate = ConsolidateJob(0, project, request.number, request.reason)
        wanted.append(Wanted(("consolidate", name, str(request.number)), Rank.CONSOLIDATION, consolidate))
    if _maintenance_is_due(findings, wall_now):
        maintain = MaintainJob(0, Maintain(project))
        wanted.append(Wanted(("maintain", name), Rank.MAINTENANCE, maintain))
    return wanted


def _maintenance_is_due(findings: Findings, wall_now: float) -> bool:
    """A last time that lies ahead, because the clock was set back, is waited for no longer than a week."""
    if findings.maintenance_at is None:
        return False
    if findings.maintenance.sessions_since >= MAINTENANCE_SESSIONS:
        return True
    return wall_now >= findings.maintenance_at or wall_now < findings.maintenance_at - 2 * MAINTENANCE_S
