"""The credit of embedders, and leases of texts. A pure state machine whose results the actor carries out.

The records know which texts have no vectors of a model. A lease keeps a text from being handed out twice, from the time
it goes to a worker until its vectors are stored. If the worker leaves, its texts may go to others. The launcher, or a
ping from the store, notices one that hangs.

A text may kill its worker. The records count that: such a text is then handed out alone, so that the cause is certain,
and one that killed several workers becomes a dead letter.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from remembrancer.actors.store.records.types import TextToEmbed

HAND_BYTES: Final = 80_000
"""The limit on text given to a worker at a time, besides one memory of any length: 10 s of work on the slowest
plausible machine, and about 1 s on a laptop, much longer than the store takes to hand out more."""
SUSPECTS: Final = 32
"""The number of texts that may have killed a worker: the first ones, as it works in order, batch by batch."""

Worker = TypeVar("Worker", bound=Hashable)


class EmbeddingJob(NamedTuple):
    """A text that needs vectors of a model, given by its key: the name of its file, and its number there."""

    model: str
    name: str
    number: int


@dataclass(slots=True)
class _WorkerState:
    model: str
    credit: int
    held: dict[EmbeddingJob, float] = field(default_factory=dict)
    """The sizes of its texts in bytes, in the order in which they were handed out. A suspected text fills a hand."""

    @property
    def room(self) -> int:
        return self.credit - len(self.held)

    def can_take(self, size_bytes: float) -> bool:
        """True if it has credit, and the text fits; with nothing in hand it takes any size."""
        return self.room > 0 and (not self.held or sum(self.held.values()) + size_bytes <= HAND_BYTES)


class Leases(Generic[Worker]):
    """The workers with their models and texts."""

    def __init__(self) -> None:
        self._leased: set[EmbeddingJob] = set()
        self._workers: dict[Worker, _WorkerState] = {}

    @property
    def workers(self) -> dict[Worker, str]:
        """The workers with their models, in order of arrival."""
        return {worker: state.model for worker, state in self._workers.items()}

    def workers_of(self, model: str | None) -> list[Worker]:
        """Return the workers of a model, in order of arrival."""
        return [worker for worker, state in self._workers.items() if state.model == model]

    def leased_of(self, model: str, name: str) -> list[int]:
        """Return the leased memories of a file."""
        return [job.number for job in self._leased if (job.model, job.name) == (model, name)]

    def worker_ready(self, worker: Worker, model: str, credit: int) -> None:
        """Register a worker that has loaded a model (again) and takes up to `credit` texts. Its former texts may go to
        others."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(model, credit)

    def worker_gone(self, worker: Worker) -> list[EmbeddingJob]:
        """Remove a worker that is leaving, or has lost its model or its connection, and return its texts, which may go
        to others."""
        state = self._workers.pop(worker, None)
        held = [] if state is None else list(state.held)
        self._leased.difference_update(held)
        return held

    def worker_died(self, worker: Worker) -> list[EmbeddingJob]:
        """Remove a dead worker, which one of its texts may have killed: they stay leased until released."""
        suspects = self.worker_gone(worker)[:SUSPECTS]
        self._leased.update(suspects)
        return suspects

    def count_held(self, worker: Worker) -> int:
        """Return the number of a worker's unanswered texts."""
        return len(self._workers[worker].held)

    def room(self, model: str) -> int:
        """Return the number of texts that the workers of a model could take at most."""
        return sum(max(0, state.room) for state in self._workers.values() if state.model == model)

    def hand_out(self, model: str, name: str, texts: Iterable[TextToEmbed]) -> list[tuple[Worker, TextToEmbed]]:
        """Lease texts of a file to workers of a model, in order, as far as they can take them, each getting its
        share."""
        handed: list[tuple[Worker, TextToEmbed]] = []
        for text in texts:
            job = EmbeddingJob(model, name, text.number)
            if job in self._leased:
                continue
            size_bytes = math.inf if text.is_alone else text.size_bytes
            states = ((worker, state) for worker, state in self._workers.items() if state.model == model)
            able = [(worker, state) for worker, state in states if state.can_take(size_bytes)]
            if not able:
                break  # a suspected text, and those after it, wait until a worker has nothing else in hand
            worker, state = max(able, key=lambda each: each[1].room)
            state.held[job] = size_bytes
            self._leased.add(job)
            handed.append((worker, text))
        return handed

    def finish(self, worker: Worker, job: EmbeddingJob) -> bool:
        """Note that a worker has answered a text, which stays leased until released. Returns False if the worker does
        not hold it: it may have gone to another."""
        return worker in self._workers and self._workers[worker].held.pop(job, None) is not None

    def release(self, job: EmbeddingJob) -> None:
        """Release a text that has its vectors, or that may be handed out again."""
        self._leased.discard(job)
