"""The leases of the consolidator's jobs: the holder of each job, and the pauses of returned jobs. Pure.

Nothing is queued: a consolidator's request for a job lists the wanted ones, and a crash loses only these leases. Times
are monotonic seconds; a holder is the incarnation of a consolidator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.store.records.contract import Promotable
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
class _Lease:
    job: WantedJob
    holder: str
    until: float


class _Rest(NamedTuple):
    """The number of times that a job has been returned, and the time until which it is paused."""

    returned: int
    until: float


class JobLeases:
    """The leases. `first_id` keeps the ids of different runs of the store apart."""

    def __init__(self, first_id: int = 1) -> None:
        self._ids = itertools.count(first_id)
        self._leases: dict[int, _Lease] = {}
        self._rests: dict[Key, _Rest] = {}

    def take(
        self, wanted: Sequence[WantedJob], holder: str, now: float, sort: JobSort | None = None, *, held: bool = False
    ) -> Work | None:
        """Lease the next of the wanted jobs (of a sort) to a consolidator. If it already holds one, that job was lost
        on its way and is returned first. `held`: no long jobs, unless a client waits for them."""
        for job_id, lease in list(self._leases.items()):
            if lease.until <= now or (lease.holder == holder and lease.job.is_of(sort)):
                self._give_back(job_id, now)
        keys = {each.key for each in wanted}
        self._rests = {key: rest for key, rest in self._rests.items() if key in keys}
        leased = {lease.job.key for lease in self._leases.values()}
        free = [
            each
            for each in wanted
            if each.is_of(sort)
            and each.key not in leased
            and (each.rank == Rank.REQUEST or not self._rests_at(each, now, held=held))
        ]
        if not free:
            return None
        job, job_id = min(free, key=lambda each: (each.rank, each.since)), next(self._ids)
        self._leases[job_id] = _Lease(job, holder, now + LEASE_S)
        return msgspec.structs.replace(job.job, job_id=job_id)

    def heard(self, holder: str, now: float) -> None:
        """Extend the leases of a consolidator that sent a message."""
        for lease in self._leases.values():
            if lease.holder == holder:
                lease.until = now + LEASE_S

    def finish(self, holder: str, job_id: int, now: float) -> WantedJob | None:
        """Return a job that a consolidator has completed or failed. If it is still wanted, it is handed out again after
        a pause.

        None: the consolidator no longer holds it.
        """
        lease = self._leases.get(job_id)
        if lease is None or lease.holder != holder:
            return None
        self._give_back(job_id, now, least_pause=1)
        return lease.job

    def release(self, holder: str, now: float) -> None:
        """Release the jobs of a consolidator that is gone."""
        for job_id in [job_id for job_id, lease in self._leases.items() if lease.holder == holder]:
            self._give_back(job_id, now)

    def is_leased(self, key: Key) -> bool:
        """True if a consolidator holds that job."""
        return any(lease.job.key == key for lease in self._leases.values())

    def returned(self, key: Key) -> int:
        """Return the number of times that a job has been returned."""
        return self._rest_of(key).returned

    def _rests_at(self, job: WantedJob, now: float, *, held: bool) -> bool:
        return self._rest_of(job.key).until > now or (held and job.is_of("long"))

    def _rest_of(self, key: Key) -> _Rest:
        return self._rests.get(key, _Rest(0, float("-inf")))

    def _give_back(self, job_id: int, now: float, *, least_pause: int = 0) -> None:
        """End a lease. The first time, the job is free at once, since the consolidator may have died of something
        else."""
        key = self._leases.pop(job_id).job.key
        returned = self.returned(key) + 1
        pause_s = RETRY_S[min(max(returned - 1, least_pause), len(RETRY_S) - 1)]
        self._rests[key] = _Rest(returned, now + pause_s)
