"""Who embeds what: credit, leases, queries before passages. A pure state machine; the actor does what it says.

A job is leased to one worker. When the worker dies or leaves, its jobs go back to the front of the queue; when it keeps
silent for too long, they may go to another, and whichever of the two answers first has done them. An answer to what was
queued anew meanwhile is recognised and dropped.

A text may be what its worker died of. What a dead worker had in hand is handed out again alone, so that it is known
which one it was; of which several workers have died alone, becomes a dead letter, and the others go on.

A worker on another host is believed less: what it cannot embed goes to one of this host, as long as there is any.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

SLOWEST_BYTES_PER_S: Final = 8_000.0
"""A worker on the slowest plausible machine: some 2,000 tokens a second, of about four bytes of UTF-8 each."""
HAND_BYTES: Final = 80_000
"""Text in a worker's hands at a time, beside one memory of any length: 10 s of the slowest worker's time, and about 1 s
of one on a laptop, which is far longer than the store takes to hand out more."""
SILENCE_S: Final = 120.0
"""A worker that holds jobs and has answered none for so long, and for what its slowest like would need for the text in
its hands, is given no more until it answers. A dead one is reported by the launcher long before."""
MAX_ATTEMPTS: Final = 3
MAX_DEATHS: Final = 4
"""After so many workers that died with this job alone in hand, it is what they died of. With the first death, which may
have been in company, fewer than the launcher's budget of restarts."""
SUSPECTS: Final = 32
"""Of what a dead worker had in hand, those handed out first: it works in their order, a batch at a time."""

Key = TypeVar("Key")
Worker = TypeVar("Worker")


@dataclass(slots=True, eq=False)
class _Due:
    """A job that is to be done, from when it is queued: queued anew, its text may be another, and it is another due."""

    size_bytes: int = 0
    """0 until its text was read."""
    attempts: int = 0
    deaths: int = 0
    suspected: bool = False
    stays: bool = False
    """Another host could not embed it: it is for the workers of this one, if there are any."""


class Ticket(NamedTuple, Generic[Key]):
    """A job whose text is to be read. It is void when the job is queued anew meanwhile."""

    key: Key
    due: _Due


class Lease(NamedTuple, Generic[Key]):
    """A job in a worker's hands."""

    job_id: int
    key: Key


class _Held(NamedTuple, Generic[Key]):
    key: Key
    due: _Due
    size_bytes: int


@dataclass(slots=True)
class _WorkerState(Generic[Key]):
    credit: int
    held: dict[int, _Held[Key]] = field(default_factory=dict)
    """By job id, so in the order in which they were handed out."""
    held_bytes: int = 0
    heard_at: float = float("-inf")
    silent: bool = False
    is_remote: bool = False

    def can_take(self, due: _Due, hand_bytes: int) -> bool:
        """True if it has credit, and its text fits: of any size, if it has nothing. A suspected job goes alone."""
        if not self.held:
            return self.credit > 0
        if self.silent or due.suspected or any(held.due.suspected for held in self.held.values()):
            return False
        return len(self.held) < self.credit and self.held_bytes + due.size_bytes <= hand_bytes


class EmbeddingQueue(Generic[Key, Worker]):
    """The queue of memories without vectors, and the workers that make them. Times are monotonic seconds.

    The backlog is what there is much of: it is handed out when nothing else is queued.
    """

    def __init__(self, first_job_id: int = 1) -> None:
        self._due: dict[Key, _Due] = {}
        self._queue: OrderedDict[Key, None] = OrderedDict()
        self._backlog: OrderedDict[Key, None] = OrderedDict()
        self._leased: dict[Key, int] = {}
        self._workers: dict[Worker, _WorkerState[Key]] = {}
        self._job_ids = itertools.count(first_job_id)

    @property
    def pending(self) -> int:
        """Jobs queued or leased."""
        return len(self._due)

    @property
    def has_queued(self) -> bool:
        """True if a job could be handed out."""
        return bool(self._queue or self._backlog)

    @property
    def has_workers(self) -> bool:
        """True if there is a worker with a model."""
        return bool(self._workers)

    @property
    def workers(self) -> list[Worker]:
        """Workers with a model, in the order of their arrival."""
        return list(self._workers)

    def enqueue(self, keys: Iterable[Key], *, backlog: bool = False) -> None:
        """Add jobs at the end, or to the backlog; one that is queued already keeps its place.

        A key that is leased is queued again: its text may have changed since it was handed out. The answer to that
        lease will be dropped; until it comes, it costs its worker's credit.
        """
        for key in keys:
            self._due[key] = _Due()
            self._leased.pop(key, None)
            if not backlog:
                self._backlog.pop(key, None)
                self._queue.setdefault(key, None)
            elif key not in self._queue:
                self._backlog.setdefault(key, None)

    def enqueue_missing(self, keys: Iterable[Key]) -> None:
        """Add jobs to the backlog, but those that are queued or in a worker's hands already."""
        self.enqueue((key for key in keys if key not in self._due), backlog=True)

    def discard(self, key: Key) -> None:
        """Forget a job: it is done or has become pointless."""
        self._due.pop(key, None)
        self._leased.pop(key, None)
        self._take(key)

    def worker_ready(self, worker: Worker, credit: int, *, is_remote: bool = False) -> None:
        """A worker (again) has a model and takes up to `credit` jobs. What it held before is queued again."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(credit, is_remote=is_remote)

    def worker_gone(self, worker: Worker) -> None:
        """A worker is leaving, or has lost its model or its line. Its jobs go back to the front."""
        state = self._workers.pop(worker, None)
        if state is not None:
            self._requeue(state)

    def worker_died(self, worker: Worker) -> list[Key]:
        """A worker is dead, perhaps of what it had in hand. Its jobs go back to the front, less those that
        become dead letters: these are returned."""
        state = self._workers.get(worker)
        exposed = [] if state is None else [held for held in state.held.values() if self._is_due(held)]
        self.worker_gone(worker)
        for held in exposed[:SUSPECTS]:
            held.due.suspected = True
        if len(exposed) != 1:
            return []
        (alone,) = exposed
        alone.due.deaths += 1
        if alone.due.deaths < MAX_DEATHS:
            return []
        self.discard(alone.key)
        return [alone.key]

    def knows(self, worker: Worker) -> bool:
        """True if the worker has announced itself."""
        return worker in self._workers

    def holds(self, worker: Worker, job_id: int) -> bool:
        """True if that worker was given this job and has not answered it."""
        state = self._workers.get(worker)
        return state is not None and job_id in state.held

    def held_by(self, worker: Worker) -> list[int]:
        """The ids of the jobs that a worker has and has not answered, whatever has become of them here."""
        state = self._workers.get(worker)
        return [] if state is None else list(state.held)

    def next_up(self, now: float, limit: int | None = None, hand_bytes: int = HAND_BYTES) -> list[Ticket[Key]]:
        """The jobs whose texts are to be read now, `limit` at the most: there are workers that could take them."""
        self._note_silence(now)
        free = sum(max(0, state.credit - len(state.held)) for state in self._workers.values())
        tickets: list[Ticket[Key]] = []
        for key in itertools.islice(
            itertools.chain(self._queue, self._backlog), free if limit is None else min(free, limit)
        ):
            due = self._due[key]
            if any(state.can_take(due, hand_bytes) for state in self._eligible(due).values()):
                tickets.append(Ticket(key, due))
            elif not due.stays:
                break
        return tickets

    def hand_out(
        self, sizes_bytes: Iterable[tuple[Ticket[Key], int | None]], now: float, hand_bytes: int = HAND_BYTES
    ) -> dict[Worker, list[Lease[Key]]]:
        """New leases for jobs whose texts were read, in their order, as far as workers can take them: each gets its
        share. A job without a text (None) is forgotten."""
        handed: dict[Worker, list[Lease[Key]]] = {}
        for (key, due), size_bytes in sizes_bytes:
            if self._due.get(key) is not due or not self._is_queued(key):
                continue
            if size_bytes is None:
                self.discard(key)
                continue
            due.size_bytes = size_bytes
            able = {worker: state for worker, state in self._eligible(due).items() if state.can_take(due, hand_bytes)}
            if not able:
                if due.stays:
                    continue
                break
            worker = max(able, key=lambda each: able[each].credit - len(able[each].held))
            state, job_id = able[worker], next(self._job_ids)
            if not state.held:
                state.heard_at = now
            state.held[job_id] = _Held(key, due, size_bytes)
            state.held_bytes += size_bytes
            self._take(key)
            self._leased[key] = job_id
            handed.setdefault(worker, []).append(Lease(job_id, key))
        return handed

    def finish(self, worker: Worker, job_id: int, now: float) -> Key | None:
        """The key of a finished job; None when it was queued anew or done meanwhile and the answer is to be dropped."""
        held = self._answered(worker, job_id, now)
        if held is None:
            return None
        self.discard(held.key)
        return held.key

    def fail(self, worker: Worker, job_id: int, now: float) -> tuple[Key, bool] | None:
        """A job that could not be done: its key, and whether that was its last attempt. It is queued again if not.

        Of a worker on another host no attempt counts while there is one of this host, which gets the job.
        """
        held = self._answered(worker, job_id, now)
        if held is None:
            return None
        held.due.stays = self._workers[worker].is_remote
        held.due.attempts += not (held.due.stays and self._has_local)
        held.due.suspected = False
        if held.due.attempts >= MAX_ATTEMPTS:
            self.discard(held.key)
            return held.key, True
        if held.key not in self._leased and not self._is_queued(held.key):
            self._queue[held.key] = None
        return held.key, False

    @property
    def _has_local(self) -> bool:
        return any(not state.is_remote for state in self._workers.values())

    def _eligible(self, due: _Due) -> dict[Worker, _WorkerState[Key]]:
        """The workers that a job may go to."""
        if not (due.stays and self._has_local):
            return self._workers
        return {worker: state for worker, state in self._workers.items() if not state.is_remote}

    def _is_queued(self, key: Key) -> bool:
        return key in self._queue or key in self._backlog

    def _take(self, key: Key) -> None:
        for waiting in (self._queue, self._backlog):
            waiting.pop(key, None)

    def _is_due(self, held: _Held[Key]) -> bool:
        return self._due.get(held.key) is held.due

    def _answered(self, worker: Worker, job_id: int, now: float) -> _Held[Key] | None:
        """End a lease of a worker that shows by this that it works. None if the job is not due any more.

        If the worker had been silent, what it holds and nobody else was given is its own again.
        """
        state = self._workers.get(worker)
        if state is None or job_id not in state.held:
            return None
        state.heard_at = now
        if state.silent:
            state.silent = False
            for held_id, held in state.held.items():
                if self._is_due(held) and self._is_queued(held.key):
                    self._take(held.key)
                    self._leased[held.key] = held_id
        held = state.held.pop(job_id)
        state.held_bytes -= held.size_bytes
        if self._leased.get(held.key) == job_id:
            del self._leased[held.key]
        return held if self._is_due(held) else None

    def _note_silence(self, now: float) -> None:
        """Queue what silent workers hold, for others. They hold it still, and their answers are as good."""
        for state in self._workers.values():
            patience_s = SILENCE_S + state.held_bytes / SLOWEST_BYTES_PER_S
            if state.held and not state.silent and now - state.heard_at >= patience_s:
                state.silent = True
                self._requeue(state)

    def _requeue(self, state: _WorkerState[Key]) -> None:
        """Put the jobs that a worker holds and nobody else was given back to the front in their order."""
        for job_id, held in reversed(state.held.items()):
            if self._leased.get(held.key) == job_id:
                del self._leased[held.key]
                self._queue[held.key] = None
                self._queue.move_to_end(held.key, last=False)


Job = tuple[str, int]
"""A memory that needs vectors: the name of its file, its number there."""
REMEMBERED: Final = 100_000
"""Of more, the oldest are forgotten, and tried again as soon as somebody looks for what has no vectors."""
DEADLY_S: Final = 3600.0
"""So long a text of which workers have died is kept from those that come after them."""


class DeadLetters:
    """The memories that could not be embedded, and why.

    Each has another chance when its text is another, and when another worker comes (if workers have died of it, one
    that comes not too soon). `arrivals` is how many workers have come so far.
    """

    def __init__(self) -> None:
        self._entries: dict[Job, tuple[str, float, int]] = {}
        """By memory the reason, from when it may be tried again, and the arrivals that have had their chance."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: Job) -> bool:
        return job in self._entries

    @property
    def last_reason(self) -> str | None:
        """Why the last of them has no vectors."""
        return next((reason for reason, *_ in reversed(self._entries.values())), None)

    def reason_of(self, job: Job) -> str | None:
        """Why a memory has no vectors; None: it is not among these."""
        return self._entries.get(job, (None,))[0]

    def add(self, job: Job, reason: str, arrivals: int, *, now: float, deadly: bool = False) -> None:
        """Add a memory at `now`; `deadly`: workers have died of it."""
        self._entries.pop(job, None)
        self._entries[job] = (reason, now + DEADLY_S if deadly else now, arrivals)
        if len(self._entries) > REMEMBERED:
            del self._entries[next(iter(self._entries))]

    def remove(self, job: Job) -> None:
        """Its text is another, or it has its vectors."""
        self._entries.pop(job, None)

    def try_again(self, job: Job, arrivals: int, now: float) -> bool:
        """True if a memory (in here or not) is to be handed out. If so, it is taken out."""
        _, due, tried = self._entries.get(job, ("", now, -1))
        if due > now or tried >= arrivals:
            return False
        self._entries.pop(job, None)
        return True
