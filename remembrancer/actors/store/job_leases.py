"""The leases of the consolidator's jobs: the holder of each job, and the pauses of returned jobs. Pure.

Nothing is queued: a consolidator's request for a job lists the wanted ones, and a crash loses only these leases. Times
are monotonic seconds; a holder is the incarnation of a consolidator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import msgspec

from remembrancer.actors.store.records.types import Promotable
from remembrancer.protocol.consolidation import JobSort, Work, sort_of

LEASE_S: Final = 60.0
"""The time without a message from its holder after which a job is handed out again."""
RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pauses before a job is handed out again, by the number of returns; the last one repeats."""

Key = tuple[object, ...]
"""The identity of a job, unique in a home."""


class Rank(IntEnum):
    """The order of jobs: lower ranks first, and the oldest first within a rank."""

    REQUEST = 0
    SESSION_END = 1
    PROMOTION = 2
    CONSOLIDATION = 3
    MAINTENANCE = 4


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A job to be done; its `job_id` is assigned with the lease.

    `since` orders the jobs of a rank. `place` is the space that wants it, and `promotable` are the memories to promote,
    in the state in which they were found.
    """

    key: Key
    rank: Rank
    job: Work
    place: str
    since: float = 0.0
    promotable: tuple[Promotable, ...] = ()

    def is_of(self, sort: JobSort | None) -> bool:
        """True if the job is of that sort (None: any)."""
        return sort is None or sort_of(self.job) == sort


@dataclass(slots=True)
class _Turn:
    """A job that was handed out: until `until` it is leased to its holder or, if nobody holds it, paused."""

    job: WantedJob
    holder: str | None = None
    job_id: int = 0
    until: float = float("-inf")
    returned: int = 0
    """The number of times that the job has been returned."""

    def give_back(self, now: float, *, least_pause: int = 0) -> None:
        """End the lease. The first time, the job is free at once, since the consolidator may have died of something
        else."""
        self.holder, self.returned = None, self.returned + 1
        self.until = now + RETRY_S[min(max(self.returned - 1, least_pause), len(RETRY_S) - 1)]


class JobLeases:
    """The leases. `first_id` keeps the ids of different runs of the store apart."""

    def __init__(self, first_id: int = 1) -> None:
        self._ids = itertools.count(first_id)
        self._turns: dict[Key, _Turn] = {}

    def take(
        self, wanted: Sequence[WantedJob], holder: str, now: float, sort: JobSort | None = None, *, held: bool = False
    ) -> Work | None:
        """Lease the next of the wanted jobs (of a sort) to a consolidator. If it already holds one, that job was lost
        on its way and is returned first. `held`: no long jobs, unless a client waits for them."""
        for turn in self._turns.values():
            if turn.holder and (turn.until <= now or (turn.holder == holder and turn.job.is_of(sort))):
                turn.give_back(now)
        keys = {each.key for each in wanted}
        self._turns = {key: turn for key, turn in self._turns.items() if turn.holder or key in keys}
        free = [each for each in wanted if each.is_of(sort) and self._is_free(each, now, held=held)]
        if not free:
            return None
        job = min(free, key=lambda each: (each.rank, each.since))
        turn = self._turns.setdefault(job.key, _Turn(job))
        turn.job, turn.holder, turn.job_id, turn.until = job, holder, next(self._ids), now + LEASE_S
        return msgspec.structs.replace(job.job, job_id=turn.job_id)

    def heard(self, holder: str, now: float) -> None:
        """Extend the leases of a consolidator that sent a message."""
        for turn in self._held_by(holder):
            turn.until = now + LEASE_S

    def finish(self, holder: str, job_id: int, now: float) -> WantedJob | None:
        """Return a job that a consolidator has completed or failed. If it is still wanted, it is handed out again after
        a pause.

        None: the consolidator no longer holds it.
        """
        turn = next((each for each in self._held_by(holder) if each.job_id == job_id), None)
        if turn is None:
            return None
        turn.give_back(now, least_pause=1)
        return turn.job

    def release(self, holder: str, now: float) -> None:
        """Release the jobs of a consolidator that is gone."""
        for turn in self._held_by(holder):
            turn.give_back(now)

    def is_leased(self, key: Key) -> bool:
        """True if a consolidator holds that job."""
        return key in self._turns and self._turns[key].holder is not None

    def returned(self, key: Key) -> int:
        """Return the number of times that a job has been returned."""
        return self._turns[key].returned if key in self._turns else 0

    def _held_by(self, holder: str) -> list[_Turn]:
        return [turn for turn in self._turns.values() if turn.holder == holder]

    def _is_free(self, job: WantedJob, now: float, *, held: bool) -> bool:
        if self.is_leased(job.key):
            return False
        turn = self._turns.get(job.key)
        is_paused = (turn is not None and turn.until > now) or (held and job.is_of("long"))
        return job.rank == Rank.REQUEST or not is_paused
