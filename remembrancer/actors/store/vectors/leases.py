"""The credit of embedders, and leases of texts. A pure state machine whose results the actor carries out.

The records know which texts have no vectors of a model. A lease keeps a text from being handed out twice, from the time
it goes to a worker until its vectors are stored. If the worker leaves, its texts may go to others. The launcher, or a
ping from the store, notices one that hangs.

A text may kill its worker. The records count that: such a text is then handed out alone, so that the cause is certain,
and one that killed several workers becomes a dead letter.
"""

from __future__ import annotations

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
Model = TypeVar("Model", bound=Hashable)


class EmbeddingJob(NamedTuple, Generic[Model]):
    """A text that needs vectors of a model: the name of its file, and its number there."""

    model: Model
    name: str
    number: int


@dataclass(slots=True)
class _WorkerState(Generic[Model]):
    model: Model
    credit: int
    held: dict[EmbeddingJob[Model], TextToEmbed] = field(default_factory=dict)
    """Its texts, in the order in which they were handed out."""

    @property
    def room(self) -> int:
        return self.credit - len(self.held)

    def can_take(self, text: TextToEmbed, hand_bytes: int) -> bool:
        """True if it has credit, and the text fits; with nothing in hand it takes any size. A suspected text goes
        alone."""
        if not self.held:
            return self.credit > 0
        if text.is_alone or any(held.is_alone for held in self.held.values()):
            return False
        held_bytes = sum(held.size_bytes for held in self.held.values())
        return self.room > 0 and held_bytes + text.size_bytes <= hand_bytes


class Leases(Generic[Worker, Model]):
    """The workers with their models and texts."""

    def __init__(self) -> None:
        self._leased: set[EmbeddingJob[Model]] = set()
        self._workers: dict[Worker, _WorkerState[Model]] = {}

    @property
    def workers(self) -> dict[Worker, Model]:
        """The workers with their models, in order of arrival."""
        return {worker: state.model for worker, state in self._workers.items()}

    def workers_of(self, model: Model) -> list[Worker]:
        """Return the workers of a model, in order of arrival."""
        return [worker for worker, state in self._workers.items() if state.model == model]

    def leased_of(self, model: Model, name: str) -> list[int]:
        """Return the leased memories of a file."""
        return [job.number for job in self._leased if (job.model, job.name) == (model, name)]

    def worker_ready(self, worker: Worker, model: Model, credit: int) -> None:
        """Register a worker that has loaded a model (again) and takes up to `credit` texts. Its former texts may go to
        others."""
        self.worker_gone(worker)
        self._workers[worker] = _WorkerState(model, credit)

    def worker_gone(self, worker: Worker) -> list[EmbeddingJob[Model]]:
        """Remove a worker that is leaving, or has lost its model or its connection, and return its texts, which may go
        to others."""
        state = self._workers.pop(worker, None)
        held = [] if state is None else list(state.held)
        self._leased.difference_update(held)
        return held

    def worker_died(self, worker: Worker) -> list[EmbeddingJob[Model]]:
        """Remove a dead worker, which one of its texts may have killed: they stay leased until released."""
        suspects = self.worker_gone(worker)[:SUSPECTS]
        self._leased.update(suspects)
        return suspects

    def holds(self, worker: Worker, job: EmbeddingJob[Model]) -> bool:
        """True if the worker was given that text and has not answered it."""
        return worker in self._workers and job in self._workers[worker].held

    def count_held(self, worker: Worker) -> int:
        """Return the number of a worker's unanswered texts."""
        return len(self._workers[worker].held)

    def room(self, model: Model) -> int:
        """Return the number of texts that the workers of a model could take at most."""
        return sum(max(0, state.room) for state in self._workers.values() if state.model == model)

    def hand_out(
        self, model: Model, name: str, texts: Iterable[TextToEmbed], hand_bytes: int = HAND_BYTES
    ) -> dict[Worker, list[TextToEmbed]]:
        """Lease texts of a file to workers of a model, in order, as far as they can take them, each getting its
        share."""
        handed: dict[Worker, list[TextToEmbed]] = {}
        for text in texts:
            job = EmbeddingJob(model, name, text.number)
            if job in self._leased:
                continue
            able = [
                worker
                for worker, state in self._workers.items()
                if state.model == model and state.can_take(text, hand_bytes)
            ]
            if not able:
                break  # a suspected text, and those after it, wait until a worker has nothing else in hand
            worker = max(able, key=lambda each: self._workers[each].room)
            self._workers[worker].held[job] = text
            self._leased.add(job)
            handed.setdefault(worker, []).append(text)
        return handed

    def finish(self, worker: Worker, job: EmbeddingJob[Model]) -> None:
        """Note that a worker has answered a text that it held, or could not embed it. The text stays leased until
        released."""
        del self._workers[worker].held[job]

    def release(self, job: EmbeddingJob[Model]) -> None:
        """Release a text that has its vectors, or that may be handed out again."""
        self._leased.discard(job)
