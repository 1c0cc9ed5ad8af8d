"""Which jobs there are, who has which, and which one is next. Pure: the time is passed in, and nothing is sent.

Standing jobs follow from the records: whoever looks there says what was found, and a job that is not found any more
is gone. Awaited jobs are somebody's request: they are on the board alone. Times are seconds of a clock that only
goes forward; a holder is the incarnation of a consolidator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Promotable
from remembrancer.protocol.consolidation import (
    ConsolidateJob,
    JobSort,
    MaintainJob,
    PromoteJob,
    ReflectJob,
    SessionEndJob,
    sort_of,
)

LEASE_S: Final = 60.0
"""A job whose holder was not heard of for so long is handed out again."""
RETRY_S: Final = (0.0, 5.0, 15.0, 60.0, 300.0, 900.0)
"""The pause before a job is handed out again, by how often it has come back; the last one stays."""
AWAITED_ATTEMPTS: Final = 3
"""After so many consolidators have died of it, somebody's request is given up."""

Work = SessionEndJob | PromoteJob | ConsolidateJob | MaintainJob | ReflectJob
Key = tuple[str, ...]
"""What a standing job is about: unique in all files."""


class Rank(IntEnum):
    """What goes before what; within a rank, the oldest goes first."""

    AWAITED = 0
    SESSION_END = 1
    PROMOTION = 2
    CONSOLIDATION = 3
    MAINTENANCE = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """A standing job as the records want it; its `job_id` is given by the board.

    `promotable` are the memories that a promotion is about, as they were found.
    """

    key: Key
    rank: Rank
    job: Work
    promotable: tuple[Promotable, ...] = ()


@dataclass(slots=True)
class _Entry:
    wanted: Wanted
    place: str | None
    """The file that wants it; None: it is awaited."""
    sequence: int
    holder: str | None = None
    leased_until: float = 0.0
    not_before: float = float("-inf")
    returned: int = 0
    """How often it came back undone."""
    unwanted: bool = False
    """Held, and not found in the records any more."""


@dataclass(frozen=True, slots=True)
class _Ended:
    wanted: Wanted
    at: float
    returned: int


@dataclass(slots=True)
class JobBoard:
    """The board. `first_id` keeps the ids of one life of the store apart from those of the one before."""

    first_id: int = 1
    lease_s: float = LEASE_S
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _by_key: dict[Key, int] = field(default_factory=dict)
    _ended: dict[str, dict[Key, _Ended]] = field(default_factory=dict)
    _given_up: list[int] = field(default_factory=list)
    _held_until: float = float("-inf")
    _numbers: itertools.count[int] = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(self.first_id)

    def __len__(self) -> int:
        """How many jobs there are."""
        return len(self._entries)

    def observe(self, place: str, wanted: Sequence[Wanted], looked_at: float) -> None:
        """A look into a file that was begun at `looked_at` has found these, and no other, standing jobs.

        What ended after that moment may be among them, and is passed over. What ended before and is still there was
        not really done: it comes again after a pause.
        """
        found = {each.key for each in wanted}
        for job_id, entry in list(self._entries.items()):
            if entry.place == place and entry.wanted.key not in found:
                if entry.holder is None:
                    self._remove(job_id)
                else:
                    entry.unwanted = True
        ended = self._ended.setdefault(place, {})
        for each in wanted:
            self._want(place, each, ended.get(each.key), looked_at)
        self._ended[place] = {key: each for key, each in ended.items() if key in found or each.at >= looked_at}

    def ask(self, job: MaintainJob | ReflectJob) -> int:
        """Somebody asks for this and waits. Its id."""
        return self._add(Wanted((), Rank.AWAITED, job), None)

    def withdraw(self, job_id: int) -> bool:
        """Nobody waits for this any more. Whether a consolidator had begun it (then it goes on)."""
        entry = self._entries.get(job_id)
        if entry is None or entry.holder is None:
            self._remove(job_id)
            return False
        entry.unwanted = True
        return True

    def hold_long(self, until: float) -> None:
        """Hand out none of the work on a whole file before `until`, but what somebody waits for."""
        self._held_until = until

    def take(self, holder: str, now: float, sort: JobSort | None = None) -> Work | None:
        """The next job (of a sort), for a consolidator that is at work on none: what it was handed before was lost on
        its way."""
        before = (each for each, entry in self._entries.items() if entry.holder == holder and _is_of(entry, sort))
        self._return_all(before, now)
        self._return_all((each for each, entry in self._entries.items() if self._has_lapsed(entry, now)), now)
        free = [
            (entry.wanted.rank, entry.sequence, job_id)
            for job_id, entry in self._entries.items()
            if entry.holder is None and self._free_at(entry) <= now and _is_of(entry, sort)
        ]
        if not free:
            return None
        job_id = min(free)[2]
        entry = self._entries[job_id]
        entry.holder, entry.leased_until = holder, now + self.lease_s
        return msgspec.structs.replace(entry.wanted.job, job_id=job_id)

    def heard(self, holder: str, now: float) -> None:
        """A consolidator has given a sign of life: its leases go on."""
        for entry in self._entries.values():
            if entry.holder == holder:
                entry.leased_until = now + self.lease_s

    def finish(self, holder: str, job_id: int, now: float) -> Wanted | None:
        """A consolidator has done a job. None: it is not his any more, or gone."""
        return self._end(holder, job_id, now, failed=False)

    def fail(self, holder: str, job_id: int, now: float) -> Wanted | None:
        """A consolidator gives a job up. A standing one comes again after a pause, an awaited one does not."""
        return self._end(holder, job_id, now, failed=True)

    def release(self, holder: str, now: float) -> None:
        """A consolidator is gone: what it held is free."""
        self._return_all((each for each, entry in self._entries.items() if entry.holder == holder), now)

    def take_given_up(self) -> list[int]:
        """The awaited jobs that were given up since the last call: whoever waits has to be told."""
        given_up, self._given_up = self._given_up, []
        return given_up

    def next_at(self, sort: JobSort | None = None) -> float | None:
        """When one (of a sort) that nobody has becomes free, or a lease ends, if nothing else happens (None: never)."""
        moments = [
            self._free_at(entry) if entry.holder is None else entry.leased_until
            for entry in self._entries.values()
            if _is_of(entry, sort)
        ]
        return min(moments, default=None)

    def has_begun(self, job_id: int) -> bool:
        """Whether somebody has that job."""
        entry = self._entries.get(job_id)
        return entry is not None and entry.holder is not None

    def _want(self, place: str, wanted: Wanted, ended: _Ended | None, looked_at: float) -> None:
        known = self._by_key.get(wanted.key)
        if known is not None:
            entry = self._entries[known]
            entry.unwanted = False
            if entry.holder is None:
                entry.wanted = wanted
            return
        if ended is not None and ended.at >= looked_at:
            return
        job_id = self._add(wanted, place)
        if ended is not None and ended.wanted == wanted:
            entry = self._entries[job_id]
            entry.returned = ended.returned + 1
            entry.not_before = ended.at + _pause_s(entry.returned)

    def _add(self, wanted: Wanted, place: str | None) -> int:
        job_id = next(self._numbers)
        self._entries[job_id] = _Entry(wanted, place, job_id)
        if place is not None:
            self._by_key[wanted.key] = job_id
        return job_id

    def _end(self, holder: str, job_id: int, now: float, *, failed: bool) -> Wanted | None:
        entry = self._entries.get(job_id)
        if entry is None or entry.holder not in (None, holder):
            return None
        if failed and entry.place is not None and not entry.unwanted:
            self._return(job_id, now, least_pause=1)
        else:
            self._remove(job_id)
            if entry.place is not None:
                ended = _Ended(entry.wanted, now, entry.returned)
                self._ended.setdefault(entry.place, {})[entry.wanted.key] = ended
        return entry.wanted

    def _return_all(self, job_ids: Iterable[int], now: float) -> None:
        for job_id in list(job_ids):
            self._return(job_id, now)

    def _return(self, job_id: int, now: float, *, least_pause: int = 0) -> None:
        """Take a job back from its holder."""
        entry = self._entries[job_id]
        entry.holder = None
        entry.returned += 1
        given_up = entry.place is None and entry.returned >= AWAITED_ATTEMPTS
        if entry.unwanted or given_up:
            self._remove(job_id)
            if given_up:
                self._given_up.append(job_id)
            return
        # The first time at once: a consolidator may have died of anything. Of what it dies again, others should not.
        entry.not_before = now + _pause_s(max(entry.returned - 1, least_pause) if entry.place is not None else 0)

    def _free_at(self, entry: _Entry) -> float:
        is_held = entry.place is not None and sort_of(entry.wanted.job) == "long"
        return max(entry.not_before, self._held_until) if is_held else entry.not_before

    def _has_lapsed(self, entry: _Entry, now: float) -> bool:
        return entry.holder is not None and entry.leased_until <= now

    def _remove(self, job_id: int) -> None:
        entry = self._entries.pop(job_id, None)
        if entry is not None and self._by_key.get(entry.wanted.key) == job_id:
            del self._by_key[entry.wanted.key]


def _is_of(entry: _Entry, sort: JobSort | None) -> bool:
    return sort is None or sort_of(entry.wanted.job) == sort


def _pause_s(returned: int) -> float:
    return RETRY_S[min(returned, len(RETRY_S) - 1)]
