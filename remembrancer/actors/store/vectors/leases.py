"""The credit of a model's embedders, and leases of texts. A pure state machine; the actor does what it says.

What has no vectors is asked of the records. A lease keeps a text from being handed out twice, from when it goes to a
worker until its vectors are kept. When the worker leaves, its texts may go to others; when it keeps silent for too
long, they may too, and whichever of the two answers first has done them.

A text may be what its worker died of. The records count that; such a text is handed out alone, so that it is known
which one it was, and of which several workers have died becomes a dead letter.

A worker on another host is believed less: what it cannot embed goes to one of this host, as long as there is any.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from remembrancer.actors.store.records.contract import TextToEmbed

SLOWEST_BYTES_PER_S: Final = 8_000.0
"""A worker on the slowest plausible machine: some 2,000 tokens a second, of about four bytes of UTF-8 each."""
HAND_BYTES: Final = 80_000
"""Text in a worker's hands at a time, beside one memory of any length: 10 s of the slowest worker's time, and about 1 s
of one on a laptop, which is far longer than the store takes to hand out more."""
SILENCE_S: Final = 120.0
"""A worker that holds jobs and has answered none for so long, and for what its slowest like would need for the text in
its hands, is given no more until it answers. A dead one is reported by the launcher long before."""
SUSPECTS: Final = 32
"""The texts that a worker may have died of: those that it got first, as it works in their order, batch by batch."""

EmbeddingJob = tuple[str, int]
"""A memory that needs vectors: the name of its file, its number there."""
Worker = TypeVar("Worker")


class Held(NamedTuple):
    """A text in a worker's hands. `digest` tells which text its vectors will be made of; `length` is in characters."""

    job: EmbeddingJob
    digest: bytes
    size_bytes: int
    length: int
    is_alone: bool


class Lease(NamedTuple):
    """A text that goes to a worker, under a number that the answer has too."""

    job_id: int
    text: TextToEmbed


@dataclass(slots=True)
class _WorkerState:
    credit: int
    held: dict[int, Held] = field(default_factory=dict)
    """The texts by job id, in the order in which they were handed out."""
    held_bytes: int = 0
    heard_at: float = float("-inf")
    silent: bool = False
    is_remote: bool = False

    def can_take(self, text: TextToEmbed, hand_bytes: int) -> bool:
        """True if it has credit, and the text fits: of any size, if it has nothing. A suspected one goes alone."""
        if not self.held:
            return self.credit > 0
        if self.silent or text.is_alone or any(held.is_alone for held in self.held.values()):
            return False
        return len(self.held) < self.credit and self.held_bytes + text.size_bytes <= hand_bytes


class Leases(Generic[Worker]):
    """The workers of a model and what they have in hand. Times are monotonic seconds."""

    def __init__(self, first_job_id: int = 1) -> None:
        self._leased: set[EmbeddingJob] = set()
        self._workers: dict[Worker, _WorkerState] = {}
        self._job_ids = itertools.count(first_job_id)
        self._local: set[EmbeddingJob] = set()
        """Another host could not embed them: they are for the workers of this one, if there are any."""

    def __len__(self) -> int:
        """The number of texts that are leased."""
        return len(self._leased)

    @property
    def has_workers(self) -> bool:
        """True if there is a worker with a model."""
        return bool(self._workers)

    @property
    def workers(self) -> list[Worker]:
        """Workers with a model, in the order of their arrival."""
        return list(self._workers)

    def leased_of(self, name: str) -> list[int]:
        """The memories of a file that are leased."""
        return [number for file, number in self._leased if file == name]

    def worker_ready(self, worker: Worker, credit: int, *, is_remote: bool = False) -> None:
        """A worker (again) has a model and takes up to `credit` texts. What it held before may go to others."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(credit, is_remote=is_remote)

    def worker_gone(self, worker: Worker) -> None:
        """A worker is leaving, or has lost its model or its line. Its texts may go to others."""
        state = self._workers.pop(worker, None)
        if state is not None and not state.silent:  # what a silent one held may be in other hands
            self._leased.difference_update(held.job for held in state.held.values())

    def worker_died(self, worker: Worker) -> list[EmbeddingJob]:
        """A worker is dead, perhaps of one of these texts: they stay leased until they are released."""
        state = self._workers.get(worker)
        suspects = [] if state is None else [held.job for held in state.held.values()][:SUSPECTS]
        self.worker_gone(worker)
        self._leased.update(suspects)
        return suspects

    def knows(self, worker: Worker) -> bool:
        """True if the worker has announced itself."""
        return worker in self._workers

    def held(self, worker: Worker, job_id: int) -> Held | None:
        """The text that a worker was given under that number and has not answered."""
        state = self._workers.get(worker)
        return None if state is None else state.held.get(job_id)

    def count_held(self, worker: Worker) -> int:
        """The number of texts that a worker has and has not answered."""
        return len(self._workers[worker].held)

    def room(self, now: float) -> int:
        """The number of texts that workers could take at the most."""
        self._note_silence(now)
        return sum(max(0, state.credit - len(state.held)) for state in self._workers.values() if not state.silent)

    def hand_out(
        self, name: str, texts: Iterable[TextToEmbed], now: float, hand_bytes: int = HAND_BYTES
    ) -> dict[Worker, list[Lease]]:
        """New leases for texts of a file, in their order, as far as workers can take them: each gets its share."""
        handed: dict[Worker, list[Lease]] = {}
        for text in texts:
            job = (name, text.number)
            if job in self._leased:
                continue
            able = [worker for worker in self._eligible(job) if self._workers[worker].can_take(text, hand_bytes)]
            if not able:
                if job in self._local:
                    continue
                break  # a suspected one waits until somebody has nothing else in hand, and so do those behind it
            worker = max(able, key=self._room_of)
            state, job_id = self._workers[worker], next(self._job_ids)
            if not state.held:
                state.heard_at = now
            state.held[job_id] = Held(job, text.digest, text.size_bytes, len(text.content), text.is_alone)
            state.held_bytes += text.size_bytes
            self._leased.add(job)
            handed.setdefault(worker, []).append(Lease(job_id, text))
        return handed

    def finish(self, worker: Worker, job_id: int, now: float) -> Held | None:
        """A worker has answered: the text, which stays leased until it is released. None: it did not have that one."""
        state = self._workers.get(worker)
        if state is None or job_id not in state.held:
            return None
        state.heard_at = now
        state.silent = False
        held = state.held.pop(job_id)
        state.held_bytes -= held.size_bytes
        self._leased.add(held.job)
        self._local.discard(held.job)
        return held

    def fail(self, worker: Worker, job_id: int, now: float) -> tuple[Held, bool] | None:
        """A text that could not be embedded, which stays leased until it is released; whether that counts.

        Of a worker on another host it does not while there is one of this host, which gets the text.
        """
        held = self.finish(worker, job_id, now)
        if held is None:
            return None
        counts = True
        if self._workers[worker].is_remote:
            self._local.add(held.job)
            counts = not self._has_local
        return held, counts

    def release(self, job: EmbeddingJob) -> None:
        """A text has its vectors, or may be handed out again."""
        self._leased.discard(job)

    def _room_of(self, worker: Worker) -> int:
        state = self._workers[worker]
        return state.credit - len(state.held)

    @property
    def _has_local(self) -> bool:
        return any(not state.is_remote for state in self._workers.values())

    def _eligible(self, job: EmbeddingJob) -> list[Worker]:
        """The workers that a text may go to."""
        is_for_local = job in self._local and self._has_local
        return [worker for worker, state in self._workers.items() if not (is_for_local and state.is_remote)]

    def _note_silence(self, now: float) -> None:
        """Release what silent workers hold, for others. They hold it still, and their answers are as good."""
        for state in self._workers.values():
            patience_s = SILENCE_S + state.held_bytes / SLOWEST_BYTES_PER_S
            if state.held and not state.silent and now - state.heard_at >= patience_s:
                state.silent = True
                self._leased.difference_update(held.job for held in state.held.values())
