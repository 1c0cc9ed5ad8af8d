"""The credit of embedders, and leases of texts. A pure state machine whose results the actor carries out.

A lease keeps a text from being handed out twice, from the time it goes to a worker until its result is stored. If the
worker leaves, its texts may go to others. A text may kill its worker. It is then handed out alone, which makes the
cause certain, and becomes a dead letter after it has killed several workers.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from remembrancer.actors.store.records.types import EmbeddedMemory, FailedText, TextToEmbed

HAND_BYTES: Final = 80_000
"""The maximum total size of the texts that a worker holds (a single one may be longer). This is 10 s of work on the
slowest plausible machine and about 1 s on a laptop: much longer than the store takes to hand out more."""
Worker = TypeVar("Worker", bound=Hashable)


class EmbeddingJob(NamedTuple):
    """A text that needs vectors of a model: the name of its file, and its number in that file."""

    model: str
    name: str
    number: int


@dataclass(slots=True)
class _WorkerState:
    model: str
    credit: int
    held: dict[EmbeddingJob, float] = field(default_factory=dict)
    """The sizes of the worker's texts in bytes, in the order of handing out. A suspected text has infinite size."""

    @property
    def room(self) -> int:
        return self.credit - len(self.held)

    def can_take(self, size_bytes: float) -> bool:
        return self.room > 0 and (not self.held or sum(self.held.values()) + size_bytes <= HAND_BYTES)


class Leases(Generic[Worker]):
    """The workers, with their models and texts, in order of arrival."""

    def __init__(self) -> None:
        self._workers: dict[Worker, _WorkerState] = {}
        self.finished: dict[EmbeddingJob, EmbeddedMemory | FailedText] = {}

    @property
    def workers(self) -> dict[Worker, str]:
        return {worker: state.model for worker, state in self._workers.items()}

    def workers_of(self, model: str | None) -> list[Worker]:
        return [worker for worker, state in self._workers.items() if state.model == model]

    def leased_of(self, model: str, name: str) -> list[int]:
        leased = chain(self.finished, *(state.held for state in self._workers.values()))
        return [job.number for job in leased if (job.model, job.name) == (model, name)]

    def worker_ready(self, worker: Worker, model: str, credit: int) -> None:
        """Register a worker that has loaded a model and takes up to `credit` texts. Others get its previous texts."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(model, credit)

    def worker_gone(self, worker: Worker) -> list[EmbeddingJob]:
        """Remove a worker and return its texts, oldest first."""
        state = self._workers.pop(worker, None)
        return [] if state is None else list(state.held)

    def count_held(self, worker: Worker) -> int:
        return len(self._workers[worker].held)

    def room(self, model: str) -> int:
        return sum(max(0, state.room) for state in self._workers.values() if state.model == model)

    def hand_out(self, model: str, name: str, texts: Iterable[TextToEmbed]) -> list[tuple[Worker, TextToEmbed]]:
        handed: list[tuple[Worker, TextToEmbed]] = []
        for text in texts:
            job = EmbeddingJob(model, name, text.number)
            size_bytes = math.inf if text.is_alone else text.size_bytes
            states = ((worker, state) for worker, state in self._workers.items() if state.model == model)
            able = [(worker, state) for worker, state in states if state.can_take(size_bytes)]
            if not able:
                break  # a suspected text, and those after it, wait until a worker holds no texts
            worker, state = max(able, key=lambda each: each[1].room)
            state.held[job] = size_bytes
            handed.append((worker, text))
        return handed

    def finish(self, worker: Worker, job: EmbeddingJob, result: EmbeddedMemory | FailedText) -> bool:
        """Returns False if the worker no longer holds the text, because it went to another."""
        if worker not in self._workers or self._workers[worker].held.pop(job, None) is None:
            return False
        self.finished[job] = result
        return True
