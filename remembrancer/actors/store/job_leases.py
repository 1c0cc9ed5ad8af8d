"""The leases of the consolidator's jobs: which consolidator has which job, and when a job that came back rests. Pure.

Nothing is queued: whoever takes a job says which ones are wanted now, and a crash loses no more than these leases.
Times are seconds of a clock that only goes forward; a holder is the incarnation of a consolidator.
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
"""A job whose holder was not heard of for so long is handed out again."""
RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pause before a job is handed out again, by how often it has come back; the last one stays."""

Key = tuple[object, ...]
"""The subject of a job: unique in a home."""


class Rank(IntEnum):
    """The order of jobs: a lower rank goes first; within a rank, the oldest does."""

    REQUEST = 0
    SESSION_END = 1
    PROMOTION = 2
    CONSOLIDATION = 3
    MAINTENANCE = 4


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A job that is to be done; its `job_id` is given with the lease.

    `since` orders the jobs of a rank. `place` is the space that wants it, and `promotable` the memories that a
    promotion is about, as they were when it was found.
    """

    key: Key
    rank: Rank
    job: Work
    place: str
    since: float = 0.0
    promotable: tuple[Promotable, ...] = ()

    def is_of(self, sort: JobSort | None) -> bool:
        """True if it is of that sort (None: of any)."""
        return sort is None or sort_of(self.job) == sort


@dataclass(slots=True)
class _Lease:
    job: WantedJob
    holder: str
    until: float


class _Rest(NamedTuple):
    """The number of times that a job has come back, and the time until which it is not handed out again."""

    returned: int
    until: float


class JobLeases:
    """The leases. `first_id` keeps the ids of one life of the store apart from those of the one before."""

    def __init__(self, first_id: int = 1) -> None:
        self._ids = itertools.count(first_id)
        self._leases: dict[int, _Lease] = {}
        self._rests: dict[Key, _Rest] = {}

    def take(
        self, wanted: Sequence[WantedJob], holder: str, now: float, sort: JobSort | None = None, *, held: bool = False
    ) -> Work | None:
        """The next of the jobs that are wanted (of a sort), for a consolidator that is at work on none: the one that it
        was handed before was lost on its way. `held`: nothing that takes long, unless somebody waits for it."""
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
        """A consolidator has given a sign of life: its leases go on."""
        for lease in self._leases.values():
            if lease.holder == holder:
                lease.until = now + LEASE_S

    def finish(self, holder: str, job_id: int, now: float) -> WantedJob | None:
        """A consolidator has done a job, or has failed in it. If it is still wanted, it comes again after a pause.

        None: the consolidator does not have it any more.
        """
        lease = self._leases.get(job_id)
        if lease is None or lease.holder != holder:
            return None
        self._give_back(job_id, now, least_pause=1)
        return lease.job

    def release(self, holder: str, now: float) -> None:
        """A consolidator is gone: its jobs are free."""
        for job_id in [job_id for job_id, lease in self._leases.items() if lease.holder == holder]:
            self._give_back(job_id, now)

    def is_leased(self, key: Key) -> bool:
        """True if a consolidator has that job."""
        return any(lease.job.key == key for lease in self._leases.values())

    def returned(self, key: Key) -> int:
        """The number of times that a job has come back."""
        return self._rest_of(key).returned

    def _rests_at(self, job: WantedJob, now: float, *, held: bool) -> bool:
        return self._rest_of(job.key).until > now or (held and job.is_of("long"))

    def _rest_of(self, key: Key) -> _Rest:
        return self._rests.get(key, _Rest(0, float("-inf")))

    def _give_back(self, job_id: int, now: float, *, least_pause: int = 0) -> None:
        """End a lease. The first time the job is free at once: a consolidator may have died of anything."""
        key = self._leases.pop(job_id).job.key
        returned = self.returned(key) + 1
        pause_s = RETRY_S[min(max(returned - 1, least_pause), len(RETRY_S) - 1)]
        self._rests[key] = _Rest(returned, now + pause_s)
