"""The jobs that the consolidator has: one of each sort at a time, with pauses after failures. Pure.

Nothing is queued: the consolidator's question for a job comes with the wanted ones, and a crash loses only who has
which. Times are monotonic seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from remembrancer.actors.store.records.types import Promotable
from remembrancer.protocol.consolidation import Job, JobSort

RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pauses before a job is handed out again, by the number of returns; the last one repeats."""

Key = tuple[object, ...]
"""The identity of a job, unique in a home."""


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A job to be done; its `job_id` is assigned when it is handed out.

    `is_asked`: a client waits for it, so it does not pause. `promotable` are the memories to promote, in the state in
    which they were found.
    """

    key: Key
    job: Job
    promotable: tuple[Promotable, ...] = ()
    is_asked: bool = False


@dataclass(slots=True)
class _Pause:
    """A job that was handed out before: not again until `until`, after so many returns."""

    until: float
    returned: int


class JobAssignments:
    """The jobs that the consolidator has. `first_id` keeps the ids of different runs of the store apart."""

    def __init__(self, first_id: int = 1) -> None:
        self._ids = itertools.count(first_id)
        self._held: dict[JobSort, tuple[int, WantedJob]] = {}
        self._pauses: dict[Key, _Pause] = {}

    def take(self, wanted: Sequence[WantedJob], sort: JobSort, now: float, *, held: bool = False) -> Job | None:
        """Hand out the first of the wanted jobs of a sort. If the consolidator already has one, that was lost on its
        way, and is returned first. `held`: no jobs that nobody waits for."""
        if sort in self._held:
            self._give_back(sort, now)
        taken = {job.key for _, job in self._held.values()}
        keys = {each.key for each in wanted} | taken
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in keys}
        for each in wanted:
            pause = self._pauses.get(each.key)
            is_paused = held or (pause is not None and pause.until > now)
            if each.job.sort == sort and each.key not in taken and (each.is_asked or not is_paused):
                job = msgspec.structs.replace(each.job, job_id=next(self._ids))
                self._held[sort] = job.job_id, each
                return job
        return None

    def finish(self, job_id: int, now: float) -> WantedJob | None:
        """Return a job that the consolidator has completed or failed. If it is still wanted, it is handed out again
        after a pause.

        None: the consolidator no longer has it.
        """
        for sort, (held_id, _) in self._held.items():
            if held_id == job_id:
                return self._give_back(sort, now, least_pause=1)
        return None

    def release(self, now: float) -> None:
        """Return all jobs: the consolidator is gone."""
        for sort in tuple(self._held):
            self._give_back(sort, now)

    def is_assigned(self, key: Key) -> bool:
        """True if the consolidator has that job."""
        return any(job.key == key for _, job in self._held.values())

    def returned(self, key: Key) -> int:
        """Return the number of times that a job has been returned."""
        return self._pauses[key].returned if key in self._pauses else 0

    def _give_back(self, sort: JobSort, now: float, *, least_pause: int = 0) -> WantedJob:
        """The first time, the job is free at once, since the consolidator may have died of something else."""
        _, job = self._held.pop(sort)
        returned = self.returned(job.key) + 1
        pause_s = RETRY_S[min(max(returned - 1, least_pause), len(RETRY_S) - 1)]
        self._pauses[job.key] = _Pause(now + pause_s, returned)
        return job
