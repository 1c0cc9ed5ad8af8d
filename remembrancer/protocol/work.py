"""The work between the store and its workers: credit, jobs, leases, vectors.

A worker announces itself, then gives credit: how many passages it will take. The store hands out jobs while there is
credit; an answer gives its credit back. Queries need no credit and go first. Vectors travel as little-endian float32
bytes, row after row.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.wire import Request


class ModelIdentity(msgspec.Struct, frozen=True):
    """The model that made a vector. Vectors of two identities are never compared.

    `revision` is the start of the weights' SHA-256, `window_tokens` how many subword tokens the model reads at once.
    """

    engine: str
    model: str
    revision: str
    precision: str
    dimensions: int
    window_tokens: int

    @property
    def key(self) -> str:
        """A name that is safe in a file, a table and a Chroma collection."""
        name = "".join(character if character.isalnum() else "-" for character in self.model.lower())
        return f"{name}.{self.precision}.{self.revision[:12]}.{self.dimensions}"

    @property
    def is_default(self) -> bool:
        """True if it is the default model, in whatever precision."""
        return DEFAULT_MODEL in self.key


DEFAULT_MODEL: Final = "all-minilm-l6-v2."
"""As the default model's key names it, in whatever precision."""


class CosineScale(msgspec.Struct, frozen=True):
    """The scale of a model's cosines: the mean ones of questions with texts that answer them, and with other texts."""

    answering: float
    unrelated: float


CALIBRATED: Final = CosineScale(0.483, 0.043)
"""That of the default model, by whose cosines all thresholds of a search were chosen."""


class ModelChoice(msgspec.Struct, frozen=True):
    """A model as it is asked for: its engine, and its name (or the path of a directory) there."""

    engine: str
    model: str


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: the model of that choice is loaded; I take up to `credit` texts at a time."""

    identity: ModelIdentity
    credit: int
    choice: ModelChoice
    scale: CosineScale = CALIBRATED


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: the model cannot be used now, and why. The worker tries again by itself."""

    message: str
    choice: ModelChoice


class WorkerLeaving(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: give me no more; what I hold and have not answered may go to another."""


class PassageJob(msgspec.Struct, frozen=True):
    """Split this text into passages that fit the window, and embed each."""

    job_id: int
    text: str


class EmbedPassages(msgspec.Struct, frozen=True, tag=True):
    """Store to worker: jobs, each of which spends one credit."""

    jobs: tuple[PassageJob, ...]


class Passage(msgspec.Struct, frozen=True):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


class PassagesEmbedded(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: one finished job. `vectors` holds `len(passages) * dimensions` float32 values, unit length."""

    job_id: int
    passages: tuple[Passage, ...]
    vectors: bytes


class JobFailed(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: this job's text cannot be embedded by this worker."""

    job_id: int
    message: str


class EmbedQuery(msgspec.Struct, frozen=True, tag=True):
    """Store to worker: the vector of a question, before any passage. Answered by `QueryEmbedded`."""

    query_id: int
    text: str


class QueryEmbedded(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: one unit vector of `dimensions` float32 values, or none with the reason in `error`."""

    query_id: int
    vector: bytes
    error: str | None = None


class WorkerPing(msgspec.Struct, frozen=True, tag=True):
    """Store to a worker on another host, which no launcher here watches: are you there? Answered by `WorkerPong`."""


class WorkerPong(msgspec.Struct, frozen=True, tag=True):
    """Worker on another host to store: I am."""


class UseModel(msgspec.Struct, frozen=True, tag=True):
    """Store to a worker on another host: your model is not needed; load this one."""

    choice: ModelChoice


class ModelProgress(msgspec.Struct, frozen=True):
    """One model and what it is for: it answers questions (`active`), will do so when all has been embedded by it
    (`next`), or does while those cannot (`fallback`).

    `pending` of `total` texts wait for vectors; total is 0 where nobody counted. `answers`: it does at the moment.
    """

    choice: ModelChoice
    role: Literal["active", "next", "fallback"]
    dimensions: int
    workers: int
    pending: int
    total: int
    answers: bool
    error: str | None = None


class ChooseModel(Request[tuple[ModelProgress, ...]], frozen=True):
    """Command to store: embed everything by this model, and answer by it from then on. None: stay with the one that
    answers now."""

    choice: ModelChoice | None


class AskModels(Request[tuple[ModelProgress, ...]], frozen=True):
    """Command to store: which models are there, and how far are they? The one that answers (or is to) comes first."""


class WhoAreYou(msgspec.Struct, frozen=True, tag=True):
    """Store to worker: I do not know you (I have just started). Announce yourself again."""


WorkerMessage = WorkerReady | WorkerFailed | WorkerLeaving | PassagesEmbedded | JobFailed | QueryEmbedded
RemoteWorkerMessage = WorkerMessage | WorkerPong
"""All that a host may say that is not this one."""
ToWorker = EmbedPassages | EmbedQuery | WhoAreYou | WorkerPing | UseModel | Failure
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_remote_worker: Final = msgspec.msgpack.Decoder(RemoteWorkerMessage)
