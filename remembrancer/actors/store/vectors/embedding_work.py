"""Who embeds what: credit, leases, queries before passages. A pure state machine; the actor does what it says.

A job is leased to one worker. When the worker dies or leaves, or the lease runs out, the job goes back to the front of
the queue. Answers to a lease that has ended are recognised and dropped.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from remembrancer.protocol.work import ModelIdentity

LEASE_S: Final = 120.0
"""Far longer than any batch takes; a dead worker is reported by the launcher long before."""
MAX_ATTEMPTS: Final = 3

Key = TypeVar("Key")
Worker = TypeVar("Worker")


@dataclass(frozen=True, slots=True)
class Lease(Generic[Key, Worker]):
    """A job in a worker's hands until `expires_at` (monotonic seconds)."""

    job_id: int
    key: Key
    worker: Worker
    expires_at: float


@dataclass(slots=True)
class _WorkerState:
    identity: ModelIdentity
    credit: int
    leased: set[int] = field(default_factory=set)


class EmbeddingWork(Generic[Key, Worker]):
    """The queue of memories without vectors, and the workers that make them."""

    def __init__(self, first_job_id: int = 1) -> None:
        self._queue: OrderedDict[Key, None] = OrderedDict()
        self._attempts: dict[Key, int] = {}
        self._leases: dict[int, Lease[Key, Worker]] = {}
        self._leased_keys: dict[Key, int] = {}
        self._workers: dict[Worker, _WorkerState] = {}
        self._job_ids = itertools.count(first_job_id)

    @property
    def pending(self) -> int:
        """Jobs queued or leased."""
        return len(self._queue) + len(self._leased_keys)

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
        """Workers with a model, the least busy first."""
        return sorted(self._workers, key=lambda worker: len(self._workers[worker].leased))

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
            if self._leased_keys.pop(key, None) is not None:
                self._attempts.pop(key, None)
            self._queue.setdefault(key, None)

    def enqueue_missing(self, keys: Iterable[Key]) -> None:
        """Add jobs at the end, but those that are queued or in a worker's hands already."""
        self.enqueue(key for key in keys if key not in self._leased_keys)

    def discard(self, key: Key) -> None:
        """Forget a job: it is done or has become pointless."""
        self._queue.pop(key, None)
        self._leased_keys.pop(key, None)
        self._attempts.pop(key, None)

    def worker_ready(self, worker: Worker, identity: ModelIdentity, credit: int) -> None:
        """A worker (again) has a model and takes up to `credit` jobs. What it held before is queued again."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(identity, credit)

    def worker_gone(self, worker: Worker) -> None:
        """A worker is dead, is leaving, or has lost its model. Its jobs go back to the front."""
        state = self._workers.pop(worker, None)
        if state is not None:
            self._requeue(sorted(state.leased))

    def knows(self, worker: Worker) -> bool:
        """Whether the worker has announced itself."""
        return worker in self._workers

    def hand_out(self, now: float, limit: int | None = None) -> dict[Worker, list[Lease[Key, Worker]]]:
        """New leases, `limit` at the most, for workers that have credit, each getting its share of the queue.

        `now` is monotonic seconds.
        """
        handed: dict[Worker, list[Lease[Key, Worker]]] = {}
        self._requeue(sorted(job for job, lease in self._leases.items() if lease.expires_at <= now))
        while self._queue and (limit is None or sum(map(len, handed.values())) < limit):
            free = {worker: state.credit - len(state.leased) for worker, state in self._workers.items()}
            worker = max(free, key=lambda each: free[each], default=None)
            if worker is None or free[worker] <= 0:
                break
            key, _ = self._queue.popitem(last=False)
            lease = Lease(next(self._job_ids), key, worker, now + LEASE_S)
            self._leases[lease.job_id] = lease
            self._leased_keys[key] = lease.job_id
            self._workers[worker].leased.add(lease.job_id)
            handed.setdefault(worker, []).append(lease)
        return handed

    def finish(self, worker: Worker, job_id: int) -> Key | None:
        """The key of a finished job; None when the lease had ended and the answer is to be dropped."""
        key = self.finish_attempt(worker, job_id)
        if key is not None:
            self._attempts.pop(key, None)
        return key

    def fail(self, worker: Worker, job_id: int) -> tuple[Key, bool] | None:
        """A job that could not be done: its key, and whether that was its last attempt. It is queued again if not."""
        key = self.finish_attempt(worker, job_id)
        if key is None:
            return None
        attempts = self._attempts.get(key, 0) + 1
        self._attempts[key] = attempts
        if attempts >= MAX_ATTEMPTS:
            self._attempts.pop(key)
            return key, True
        self._queue[key] = None
        return key, False

    def finish_attempt(self, worker: Worker, job_id: int) -> Key | None:
        """End a lease without forgetting how often its job was tried."""
        lease = self._leases.get(job_id)
        if lease is None or lease.worker != worker:
            return None
        return lease.key if self._end(job_id) else None

    def _end(self, job_id: int) -> bool:
        """End a lease and give its credit back. Whether it still stood: its key was not queued anew meanwhile."""
        lease = self._leases.pop(job_id)
        state = self._workers.get(lease.worker)
        if state is not None:
            state.leased.discard(job_id)
        if self._leased_keys.get(lease.key) != job_id:
            return False
        del self._leased_keys[lease.key]
        return True

    def _requeue(self, job_ids: list[int]) -> None:
        for job_id in reversed(job_ids):
            key = self._leases[job_id].key
            if self._end(job_id):
                self._queue[key] = None
                self._queue.move_to_end(key, last=False)
