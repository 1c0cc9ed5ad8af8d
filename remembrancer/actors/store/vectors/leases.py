"""The credit of a model's embedders, and leases of texts. A pure state machine whose results the actor carries out.

The records know which texts have no vectors. A lease keeps a text from being handed out twice, from the time it goes to
a worker until its vectors are stored. If the worker leaves, its texts may go to others. The launcher, or a ping from
the store, notices one that hangs.

A text may kill its worker. The records count that: such a text is then handed out alone, so that the cause is certain,
and one that killed several workers becomes a dead letter.

A worker on another host is trusted less: texts that it cannot embed go to a local worker, if there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from remembrancer.actors.store.records.contract import TextToEmbed

HAND_BYTES: Final = 80_000
"""The limit on text given to a worker at a time, besides one memory of any length: 10 s of work on the slowest
plausible machine, and about 1 s on a laptop, much longer than the store takes to hand out more."""
SUSPECTS: Final = 32
"""The number of texts that may have killed a worker: the first ones, as it works in order, batch by batch."""

EmbeddingJob = tuple[str, int]
"""A memory that needs vectors: the name of its file, and its number there."""
Worker = TypeVar("Worker")


class Held(NamedTuple):
    """A text given to a worker."""

    job: EmbeddingJob
    text: TextToEmbed


class Lease(NamedTuple):
    """A text that goes to a worker, with a number that the answer repeats."""

    job_id: int
    text: TextToEmbed


@dataclass(slots=True)
class _WorkerState:
    credit: int
    held: dict[int, Held] = field(default_factory=dict)
    """The texts by job id, in the order in which they were handed out."""
    is_remote: bool = False

    def can_take(self, text: TextToEmbed, hand_bytes: int) -> bool:
        """True if it has credit, and the text fits; with nothing in hand it takes any size. A suspected text goes
        alone."""
        if not self.held:
            return self.credit > 0
        if text.is_alone or any(held.text.is_alone for held in self.held.values()):
            return False
        held_bytes = sum(held.text.size_bytes for held in self.held.values())
        return len(self.held) < self.credit and held_bytes + text.size_bytes <= hand_bytes


class Leases(Generic[Worker]):
    """The workers of a model and their texts."""

    def __init__(self, first_job_id: int = 1) -> None:
        self._leased: set[EmbeddingJob] = set()
        self._workers: dict[Worker, _WorkerState] = {}
        self._job_ids = itertools.count(first_job_id)
        self._local: set[EmbeddingJob] = set()
        """Texts that another host could not embed, reserved for local workers, if there are any."""

    def __len__(self) -> int:
        """The number of texts that are leased."""
        return len(self._leased)

    @property
    def has_workers(self) -> bool:
        """True if there is a worker with a model."""
        return bool(self._workers)

    @property
    def workers(self) -> list[Worker]:
        """Workers with a model, in order of arrival."""
        return list(self._workers)

    def leased_of(self, name: str) -> list[int]:
        """Return the leased memories of a file."""
        return [number for file, number in self._leased if file == name]

    def worker_ready(self, worker: Worker, credit: int, *, is_remote: bool = False) -> None:
        """Register a worker that has loaded a model (again) and takes up to `credit` texts. Its former texts may go to
        others."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(credit, is_remote=is_remote)

    def worker_gone(self, worker: Worker) -> None:
        """Remove a worker that is leaving, or has lost its model or its connection. Its texts may go to others."""
        state = self._workers.pop(worker, None)
        if state is not None:
            self._leased.difference_update(held.job for held in state.held.values())

    def worker_died(self, worker: Worker) -> list[EmbeddingJob]:
        """Remove a dead worker, which one of its texts may have killed: they stay leased until released."""
        state = self._workers.get(worker)
        suspects = [] if state is None else [held.job for held in state.held.values()][:SUSPECTS]
        self.worker_gone(worker)
        self._leased.update(suspects)
        return suspects

    def knows(self, worker: Worker) -> bool:
        """True if the worker has announced itself."""
        return worker in self._workers

    def held(self, worker: Worker, job_id: int) -> Held | None:
        """Return the unanswered text that a worker was given under that number."""
        state = self._workers.get(worker)
        return None if state is None else state.held.get(job_id)

    def count_held(self, worker: Worker) -> int:
        """Return the number of a worker's unanswered texts."""
        return len(self._workers[worker].held)

    def room(self) -> int:
        """Return the number of texts that workers could take at most."""
        return sum(max(0, self._room_of(worker)) for worker in self._workers)

    def hand_out(
        self, name: str, texts: Iterable[TextToEmbed], hand_bytes: int = HAND_BYTES
    ) -> dict[Worker, list[Lease]]:
        """Lease texts of a file, in order, as far as workers can take them, each getting its share."""
        handed: dict[Worker, list[Lease]] = {}
        for text in texts:
            job = (name, text.number)
            if job in self._leased:
                continue
            able = [worker for worker in self._eligible(job) if self._workers[worker].can_take(text, hand_bytes)]
            if not able:
                if job in self._local:
                    continue
                break  # a suspected text, and those after it, wait until a worker has nothing else in hand
            worker = max(able, key=self._room_of)
            state, job_id = self._workers[worker], next(self._job_ids)
            state.held[job_id] = Held(job, text)
            self._leased.add(job)
            handed.setdefault(worker, []).append(Lease(job_id, text))
        return handed

    def finish(self, worker: Worker, job_id: int) -> Held | None:
        """Return the text that a worker has answered, which stays leased until released; None if it did not have it."""
        state = self._workers.get(worker)
        if state is None or job_id not in state.held:
            return None
        held = state.held.pop(job_id)
        self._leased.add(held.job)
        self._local.discard(held.job)
        return held

    def fail(self, worker: Worker, job_id: int) -> tuple[Held, bool] | None:
        """Return a text that could not be embedded, which stays leased until released, and whether the failure counts.

        The failure of a worker on another host does not count while there is a local one, which gets the text.
        """
        held = self.finish(worker, job_id)
        if held is None:
            return None
        counts = True
        if self._workers[worker].is_remote:
            self._local.add(held.job)
            counts = not self._has_local
        return held, counts

    def release(self, job: EmbeddingJob) -> None:
        """Release a text that has its vectors, or that may be handed out again."""
        self._leased.discard(job)

    def _room_of(self, worker: Worker) -> int:
        state = self._workers[worker]
        return state.credit - len(state.held)

    @property
    def _has_local(self) -> bool:
        return any(not state.is_remote for state in self._workers.values())

    def _eligible(self, job: EmbeddingJob) -> list[Worker]:
        """Return the workers that a text may go to."""
        is_for_local = job in self._local and self._has_local
        return [worker for worker, state in self._workers.items() if not (is_for_local and state.is_remote)]
