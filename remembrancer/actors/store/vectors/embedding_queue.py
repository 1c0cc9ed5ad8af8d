"""Who embeds what: credit, leases, queries before passages. A pure state machine; the actor does what it says.

A job is leased to one worker. When the worker dies or leaves, its jobs go back to the front of the queue; when it keeps
silent for too long, they may go to another, and whichever of the two answers first has done them. An answer to what was
queued anew meanwhile is recognised and dropped.

A text may be what its worker died of. What a dead worker had in hand is handed out again alone, so that it is known
which one it was; of which several workers have died alone, becomes a dead letter, and the others go on.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from remembrancer.protocol.work import ModelIdentity

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


@dataclass(frozen=True, slots=True)
class Lease(Generic[Key, Worker]):
    """A job in a worker's hands."""

    job_id: int
    key: Key
    worker: Worker


@dataclass(slots=True, eq=False)
class _Due:
    """A job that is to be done, from when it is queued: queued anew, its text may be another, and it is another due."""

    size_bytes: int | None = None
    """None until its text was read."""
    attempts: int = 0
    deaths: int = 0
    suspected: bool = False


@dataclass(slots=True)
class _Held(Generic[Key]):
    key: Key
    due: _Due
    size_bytes: int | None = None
    """None until it is sent."""


@dataclass(slots=True)
class _WorkerState(Generic[Key]):
    identity: ModelIdentity
    credit: int
    held: dict[int, _Held[Key]] = field(default_factory=dict)
    """By job id, so in the order in which they were handed out."""
    held_bytes: int = 0
    heard_at: float = float("-inf")
    silent: bool = False

    def can_take(self, due: _Due, hand_bytes: int) -> bool:
        """Whether it has credit and room. A suspected job is in nobody's hands but alone."""
        if not self.held:
            return self.credit > 0
        if self.silent or due.suspected or any(held.due.suspected for held in self.held.values()):
            return False
        return len(self.held) < self.credit and self.held_bytes + (due.size_bytes or 0) <= hand_bytes


class EmbeddingQueue(Generic[Key, Worker]):
    """The queue of memories without vectors, and the workers that make them. Times are monotonic seconds."""

    def __init__(self, first_job_id: int = 1) -> None:
        self._due: dict[Key, _Due] = {}
        self._queue: OrderedDict[Key, None] = OrderedDict()
        self._leased: dict[Key, int] = {}
        self._workers: dict[Worker, _WorkerState[Key]] = {}
        self._job_ids = itertools.count(first_job_id)

    @property
    def pending(self) -> int:
        """Jobs queued or leased."""
        return len(self._due)

    @property
    def has_queued(self) -> bool:
        """Whether a job could be handed out."""
        return bool(self._queue)

    @property
    def has_workers(self) -> bool:
        """Whether there is a worker with a model."""
        return bool(self._workers)

    @property
    def workers(self) -> list[Worker]:
        """Workers with a model, in the order of their arrival."""
        return list(self._workers)

    @property
    def identity(self) -> ModelIdentity | None:
        """The model of the workers; None without a worker."""
        return next((state.identity for state in self._workers.values()), None)

    def enqueue(self, keys: Iterable[Key]) -> None:
        """Add jobs at the end; one that is queued already keeps its place.

        A key that is leased is queued again: its text may have changed since it was handed out. The answer to that
        lease will be dropped; until it comes, it costs its worker's credit.
        """
        for key in keys:
            self._due[key] = _Due()
            self._leased.pop(key, None)
            self._queue.setdefault(key, None)

    def enqueue_missing(self, keys: Iterable[Key]) -> None:
        """Add jobs at the end, but those that are queued or in a worker's hands already."""
        self.enqueue(key for key in keys if key not in self._due)

    def discard(self, key: Key) -> None:
        """Forget a job: it is done or has become pointless."""
        self._due.pop(key, None)
        self._queue.pop(key, None)
        self._leased.pop(key, None)

    def worker_ready(self, worker: Worker, identity: ModelIdentity, credit: int) -> None:
        """A worker (again) has a model and takes up to `credit` jobs. What it held before is queued again."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(identity, credit)

    def worker_gone(self, worker: Worker) -> None:
        """A worker is leaving, or has lost its model or its line. Its jobs go back to the front."""
        state = self._workers.pop(worker, None)
        if state is not None:
            self._requeue(held.key for job_id, held in state.held.items() if self._leased.get(held.key) == job_id)

    def worker_died(self, worker: Worker) -> list[Key]:
        """A worker is dead, perhaps of what it had in hand. Its jobs go back to the front, less those that
        become dead letters: these are returned."""
        state = self._workers.get(worker)
        exposed = [] if state is None else [held for held in state.held.values() if self._is_sent(held)]
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
        """Whether the worker has announced itself."""
        return worker in self._workers

    def held_by(self, worker: Worker) -> list[int]:
        """The ids of the jobs that a worker has and has not answered, whatever has become of them here."""
        state = self._workers.get(worker)
        return [] if state is None else list(state.held)

    def hand_out(
        self, now: float, limit: int | None = None, hand_bytes: int = HAND_BYTES
    ) -> dict[Worker, list[Lease[Key, Worker]]]:
        """New leases, `limit` at the most, for workers that have credit, each getting its share of the queue.

        What is leased has to be weighed before it is sent (see `weigh`).
        """
        self._note_silence(now)
        handed: dict[Worker, list[Lease[Key, Worker]]] = {}
        count = 0
        while self._queue and (limit is None or count < limit):
            key = next(iter(self._queue))
            due = self._due[key]
            able = {worker: state for worker, state in self._workers.items() if state.can_take(due, hand_bytes)}
            if not able:
                break
            worker = max(able, key=lambda each: able[each].credit - len(able[each].held))
            lease = Lease(next(self._job_ids), key, worker)
            self._hold(able[worker], lease, due, now)
            handed.setdefault(worker, []).append(lease)
            count += 1
        return handed

    def weigh(self, worker: Worker, sizes_bytes: Mapping[int, int], hand_bytes: int = HAND_BYTES) -> list[int]:
        """Of the jobs that were just leased, given with the sizes of their texts in the order of their ids: those to be
        sent. The others go back to the front of the queue. A worker without anything takes a text of any size."""
        state = self._workers.get(worker)
        if state is None:
            return []
        has_something = any(held.size_bytes is not None for held in state.held.values())
        kept: list[int] = []
        back: list[Key] = []
        for job_id, size_bytes in sizes_bytes.items():
            held = state.held.get(job_id)
            if held is None:
                continue
            if self._leased.get(held.key) != job_id:  # queued anew while its text was read
                self._end(state, job_id)
                continue
            held.due.size_bytes = size_bytes
            if back or (has_something and state.held_bytes + size_bytes > hand_bytes):
                self._end(state, job_id)
                back.append(held.key)
            else:
                held.size_bytes = size_bytes
                state.held_bytes += size_bytes
                has_something = True
                kept.append(job_id)
        self._requeue(back)
        return kept

    def withdraw(self, worker: Worker, job_id: int) -> None:
        """A job that was leased and not sent, since there is no text: it is forgotten, if it was not queued anew."""
        state = self._workers.get(worker)
        held = None if state is None else state.held.get(job_id)
        if state is not None and held is not None:
            if self._leased.get(held.key) == job_id:
                self.discard(held.key)
            self._end(state, job_id)

    def finish(self, worker: Worker, job_id: int, now: float) -> Key | None:
        """The key of a finished job; None when it was queued anew or done meanwhile and the answer is to be dropped."""
        held = self._answered(worker, job_id, now)
        if held is None:
            return None
        self.discard(held.key)
        return held.key

    def fail(self, worker: Worker, job_id: int, now: float) -> tuple[Key, bool] | None:
        """A job that could not be done: its key, and whether that was its last attempt. It is queued again if not."""
        held = self._answered(worker, job_id, now)
        if held is None:
            return None
        held.due.attempts += 1
        held.due.suspected = False
        if held.due.attempts >= MAX_ATTEMPTS:
            self.discard(held.key)
            return held.key, True
        if held.key not in self._leased:
            self._queue.setdefault(held.key, None)
        return held.key, False

    def _is_due(self, held: _Held[Key]) -> bool:
        return self._due.get(held.key) is held.due

    def _is_sent(self, held: _Held[Key]) -> bool:
        return held.size_bytes is not None and self._is_due(held)

    def _hold(self, state: _WorkerState[Key], lease: Lease[Key, Worker], due: _Due, now: float) -> None:
        if not state.held:
            state.heard_at = now
        state.held[lease.job_id] = _Held(lease.key, due)
        del self._queue[lease.key]
        self._leased[lease.key] = lease.job_id

    def _answered(self, worker: Worker, job_id: int, now: float) -> _Held[Key] | None:
        """End a lease of a worker that shows by this that it works. None if the job is not due any more."""
        state = self._workers.get(worker)
        if state is None or job_id not in state.held:
            return None
        self._hear(state, now)
        held = self._end(state, job_id)
        if self._leased.get(held.key) == job_id:
            del self._leased[held.key]
        return held if self._is_due(held) else None

    def _end(self, state: _WorkerState[Key], job_id: int) -> _Held[Key]:
        """Give a lease's credit and room back."""
        held = state.held.pop(job_id)
        state.held_bytes -= held.size_bytes or 0
        return held

    def _note_silence(self, now: float) -> None:
        """Queue what silent workers hold, for others. They hold it still, and their answers are as good."""
        for state in self._workers.values():
            patience_s = SILENCE_S + state.held_bytes / SLOWEST_BYTES_PER_S
            if state.held and not state.silent and now - state.heard_at >= patience_s:
                state.silent = True
                self._requeue(held.key for job_id, held in state.held.items() if self._leased.get(held.key) == job_id)

    def _hear(self, state: _WorkerState[Key], now: float) -> None:
        """A worker shows that it works: if it had been silent, what it holds and nobody else was given is its own."""
        state.heard_at = now
        if state.silent:
            state.silent = False
            for job_id, held in state.held.items():
                if self._is_due(held) and held.key in self._queue:
                    del self._queue[held.key]
                    self._leased[held.key] = job_id

    def _requeue(self, keys: Iterable[Key]) -> None:
        """Back to the front, in this order."""
        for key in reversed(list(keys)):
            self._leased.pop(key, None)
            self._queue[key] = None
            self._queue.move_to_end(key, last=False)


Job = tuple[str, int]
"""A memory that needs vectors: the name of its file, its number there."""
REMEMBERED: Final = 1000
"""Of more, the oldest are forgotten: they are tried again with the next worker's arrival."""
DEADLY_S: Final = 3600.0
"""So long a text of which workers have died is kept from those that come after them."""


class _Entry(NamedTuple):
    reason: str
    again_at: float


class DeadLetters:
    """The memories that could not be embedded, and why.

    Each has another chance when its text is another, and at another worker's arrival (if workers have died of it: at
    one that is not too soon).
    """

    def __init__(self) -> None:
        self._entries: dict[Job, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: Job) -> bool:
        return job in self._entries

    @property
    def last_reason(self) -> str | None:
        """Why the last of them has no vectors."""
        last = next(reversed(self._entries.values()), None)
        return None if last is None else last.reason

    def reason_of(self, job: Job) -> str | None:
        """Why a memory has no vectors; None: it is not among these."""
        entry = self._entries.get(job)
        return None if entry is None else entry.reason

    def add(self, job: Job, reason: str, *, now: float, deadly: bool = False) -> None:
        """Add a memory at `now`; `deadly`: workers have died of it."""
        self._entries.pop(job, None)
        self._entries[job] = _Entry(reason, now + DEADLY_S if deadly else now)
        if len(self._entries) > REMEMBERED:
            del self._entries[next(iter(self._entries))]

    def remove(self, job: Job) -> None:
        """Its text is another, or it has its vectors."""
        self._entries.pop(job, None)

    def try_again(self, job: Job, now: float) -> bool:
        """Another worker has come: whether the memory (in here or not) is to be handed out. If so, it is taken out."""
        entry = self._entries.get(job)
        if entry is not None and entry.again_at > now:
            return False
        self._entries.pop(job, None)
        return True
