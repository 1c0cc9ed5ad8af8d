"""The consolidator's jobs: which there are, who has which on a lease, and which one is next. Pure.

Most jobs follow from the records: whoever looks there says what was found, and a job that is not found any more is
gone: a crash loses none, and nothing is written when one is handed out. What somebody waits for is here alone.
Times are seconds of a clock that only goes forward; a holder is the incarnation of a consolidator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Promotable
from remembrancer.protocol.consolidation import JobSort, MaintainJob, ReflectJob, Work, sort_of

LEASE_S: Final = 60.0
"""A job whose holder was not heard of for so long is handed out again."""
RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pause before a job is handed out again, by how often it has come back; the last one stays."""
REQUEST_ATTEMPTS: Final = 3
"""After so many consolidators have died of it, somebody's request fails."""
BACKLOG: Final = 200
"""Memories that wait for vectors: a worker has so many done within seconds."""
STANDSTILL_S: Final = 60.0
"""After so long without a change in their number, nobody is at work on them, and to wait for them is of no use."""
LONGEST_HOLD_S: Final = 3600.0
"""A backlog that never ends, because more is written all the time, holds nothing for longer."""
LOOK_AGAIN_S: Final = 2.0

Key = tuple[str, ...]
"""The subject of a job that follows from the records: unique in all files."""


class Rank(IntEnum):
    """The order of jobs: a lower rank goes first; within a rank, the oldest does."""

    REQUEST = 0
    SESSION_END = 1
    PROMOTION = 2
    CONSOLIDATION = 3
    MAINTENANCE = 4


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as the records want it; its `job_id` is given by the queue.

    `promotable` are the memories that a promotion is about, as they were found.
    """

    key: Key
    rank: Rank
    job: Work
    promotable: tuple[Promotable, ...] = ()


@dataclass(slots=True)
class _Entry:
    found: FoundJob
    place: str | None
    """The file that wants it; None: somebody's request."""
    holder: str | None = None
    leased_until: float = 0.0
    not_before: float = float("-inf")
    returned: int = 0
    """The number of times that it came back undone."""
    unwanted: bool = False
    """Held, and not found in the records any more."""
    done_at: float | None = None
    """The time at which it was done: a look that was begun before may still find it."""

    def is_open(self, sort: JobSort | None) -> bool:
        return self.done_at is None and (sort is None or sort_of(self.found.job) == sort)


@dataclass(slots=True)
class JobQueue:
    """The queue. `first_id` keeps the ids of one life of the store apart from those of the one before."""

    first_id: int = 1
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _by_key: dict[Key, int] = field(default_factory=dict)
    _failed_requests: list[int] = field(default_factory=list)
    _held_until: float = float("-inf")
    _numbers: itertools.count[int] = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(self.first_id)

    def __len__(self) -> int:
        """The number of jobs to be done."""
        return sum(entry.done_at is None for entry in self._entries.values())

    def observe(self, place: str, found: Sequence[FoundJob], looked_at: float) -> None:
        """A look into a file that was begun at `looked_at` has found these jobs, and no other.

        What was done after that moment may be among them, and is passed over. What was done before and is still there
        was not really done: it comes again after a pause.
        """
        keys = {each.key for each in found}
        for job_id, entry in list(self._entries.items()):
            if entry.place != place or entry.found.key in keys:
                continue
            if entry.holder is not None:
                entry.unwanted = True
            elif entry.done_at is None or entry.done_at < looked_at:
                self._remove(job_id)
        for each in found:
            known = self._by_key.get(each.key)
            if known is None:
                self._add(each, place)
                continue
            entry = self._entries[known]
            if entry.done_at is None:
                entry.unwanted = False
                if entry.holder is None:
                    entry.found = each
            elif entry.done_at < looked_at:
                self._remove(known)
                again = self._entries[self._add(each, place)]
                if entry.found == each:
                    again.returned = entry.returned + 1
                    again.not_before = entry.done_at + _pause_s(again.returned)

    def add_request(self, job: MaintainJob | ReflectJob) -> int:
        """Somebody asks for this and waits. Its id."""
        return self._add(FoundJob((), Rank.REQUEST, job), None)

    def withdraw(self, job_id: int) -> None:
        """Nobody waits for this request any more. If a consolidator has begun it, it goes on."""
        entry = self._entries.get(job_id)
        if entry is not None and entry.holder is not None:
            entry.unwanted = True
        else:
            self._remove(job_id)

    def hold_long(self, until: float) -> None:
        """Hand out none of the work on a whole file before `until`, but what somebody waits for."""
        self._held_until = until

    def take(self, holder: str, now: float, sort: JobSort | None = None) -> Work | None:
        """The next job (of a sort), for a consolidator that is at work on none: what it was handed before was lost on
        its way."""
        for job_id, entry in list(self._entries.items()):
            lapsed = entry.holder is not None and entry.leased_until <= now
            if lapsed or (entry.holder == holder and entry.is_open(sort)):
                self._return(job_id, now)
        free = [
            (entry.found.rank, job_id)
            for job_id, entry in self._entries.items()
            if entry.holder is None and entry.is_open(sort) and self._free_at(entry) <= now
        ]
        if not free:
            return None
        job_id = min(free)[1]
        entry = self._entries[job_id]
        entry.holder, entry.leased_until = holder, now + LEASE_S
        return msgspec.structs.replace(entry.found.job, job_id=job_id)

    def heard(self, holder: str, now: float) -> None:
        """A consolidator has given a sign of life: its leases go on."""
        for entry in self._entries.values():
            if entry.holder == holder:
                entry.leased_until = now + LEASE_S

    def finish(self, holder: str, job_id: int, now: float) -> FoundJob | None:
        """A consolidator has done a job. None: it is not his any more, or gone."""
        entry = self._entries.get(job_id)
        if entry is None or entry.done_at is not None or entry.holder not in (None, holder):
            return None
        entry.holder, entry.done_at = None, now
        if entry.place is None:
            self._remove(job_id)
        return entry.found

    def fail(self, holder: str, job_id: int, now: float) -> FoundJob | None:
        """A consolidator could not do a job. It comes again after a pause, but a request does not."""
        entry = self._entries.get(job_id)
        if entry is None or entry.place is None or entry.unwanted:
            return self.finish(holder, job_id, now)
        if entry.done_at is not None or entry.holder not in (None, holder):
            return None
        self._return(job_id, now, least_pause=1)
        return entry.found

    def release(self, holder: str, now: float) -> None:
        """A consolidator is gone: what it held is free."""
        for job_id in [job_id for job_id, entry in self._entries.items() if entry.holder == holder]:
            self._return(job_id, now)

    def take_failed_requests(self) -> list[int]:
        """The requests of which too many consolidators died since the last call: whoever waits has to be told."""
        failed, self._failed_requests = self._failed_requests, []
        return failed

    def next_at(self, sort: JobSort | None = None) -> float | None:
        """The time at which a job (of a sort) that nobody has becomes free, or a lease ends, if nothing else happens
        (None: never)."""
        moments: Iterable[float] = (
            self._free_at(entry) if entry.holder is None else entry.leased_until
            for entry in self._entries.values()
            if entry.is_open(sort)
        )
        return min(moments, default=None)

    def has_begun(self, job_id: int) -> bool:
        """True if somebody has that job."""
        entry = self._entries.get(job_id)
        return entry is not None and entry.holder is not None

    def _add(self, found: FoundJob, place: str | None) -> int:
        job_id = next(self._numbers)
        self._entries[job_id] = _Entry(found, place)
        if place is not None:
            self._by_key[found.key] = job_id
        return job_id

    def _return(self, job_id: int, now: float, *, least_pause: int = 0) -> None:
        """Take a job back from its holder."""
        entry = self._entries[job_id]
        entry.holder = None
        entry.returned += 1
        if entry.place is None and entry.returned >= REQUEST_ATTEMPTS:
            self._failed_requests.append(job_id)
            self._remove(job_id)
        elif entry.unwanted:
            self._remove(job_id)
        elif entry.place is not None:
            # The first time at once: a consolidator may have died of anything.
            entry.not_before = now + _pause_s(max(entry.returned - 1, least_pause))

    def _free_at(self, entry: _Entry) -> float:
        is_long = entry.place is not None and sort_of(entry.found.job) == "long"
        return max(entry.not_before, self._held_until) if is_long else entry.not_before

    def _remove(self, job_id: int) -> None:
        entry = self._entries.pop(job_id, None)
        if entry is not None and self._by_key.get(entry.found.key) == job_id:
            del self._by_key[entry.found.key]


def _pause_s(returned: int) -> float:
    return RETRY_S[min(returned, len(RETRY_S) - 1)]


class Backlog:
    """Consolidation reads vectors, and it takes the processor from those who make them: it waits for a large backlog,
    as long as that is being worked on."""

    def __init__(self) -> None:
        self._pending = 0
        self._changed_at = float("-inf")
        self._began_at: float | None = None

    def held_until(self, pending: int, now: float) -> float:
        """Until when nothing long is to be begun, with so many memories waiting: ask again then. `now`: begin."""
        if pending != self._pending:
            self._pending, self._changed_at = pending, now
        if pending <= BACKLOG:
            self._began_at = None
            return now
        if self._began_at is None:
            self._began_at = now
        end = min(self._changed_at + STANDSTILL_S, self._began_at + LONGEST_HOLD_S)
        return max(now, min(end, now + LOOK_AGAIN_S))
