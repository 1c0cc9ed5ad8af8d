"""The work between the store and its workers: credit, jobs, leases, vectors.

A worker announces itself, then gives credit: the number of passages that it will take. The store hands out jobs while
there is credit; an answer gives its credit back. Queries need no credit and go first. Vectors travel as little-endian
float32 bytes, row after row.
"""

from __future__ import annotations

from functools import cache
from typing import Final, Literal

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.wire import Request


class ModelIdentity(msgspec.Struct, frozen=True):
    """The model that made a vector. Vectors of two identities are never compared.

    `revision` is the start of the weights' SHA-256, `window_tokens` the number of subword tokens in the model's window.
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
        return _key_of(self)

    @property
    def is_default(self) -> bool:
        """True for the default model in any precision."""
        return DEFAULT_MODEL in self.key


@cache
def _key_of(identity: ModelIdentity) -> str:
    name = "".join(character if character.isalnum() else "-" for character in identity.model.lower())
    return f"{name}.{identity.precision}.{identity.revision[:12]}.{identity.dimensions}"


DEFAULT_MODEL: Final = "all-minilm-l6-v2."
"""The name of the default model in its key, for any precision."""


class CosineScale(msgspec.Struct, frozen=True):
    """The scale of a model's cosines: their means for questions with texts that answer them, and with other texts."""

    answering: float
    unrelated: float


CALIBRATED: Final = CosineScale(0.483, 0.043)
"""The scale of the default model, for which all search thresholds were chosen."""


class ModelChoice(msgspec.Struct, frozen=True):
    """A requested model: its engine, and its name there (or the path of a directory)."""

    engine: str
    model: str


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: this model is loaded; the worker takes up to `credit` texts at a time."""

    identity: ModelIdentity
    credit: int
    choice: ModelChoice
    scale: CosineScale = CALIBRATED


class WorkerFailed(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: the model cannot be used now, with the reason. The worker retries by itself."""

    message: str
    choice: ModelChoice


class WorkerLeaving(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: send no more jobs. Unanswered jobs may go to another worker."""


class PassageJob(msgspec.Struct, frozen=True):
    """Split this text into passages that fit the window, and embed each of them."""

    job_id: int
    text: str


class EmbedPassages(msgspec.Struct, frozen=True, tag=True):
    """Store to worker: jobs, each of which uses one credit."""

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
    """Store to worker: embed a query, before any passage. Answered by `QueryEmbedded`."""

    query_id: int
    text: str


class QueryEmbedded(msgspec.Struct, frozen=True, tag=True):
    """Worker to store: one unit vector of `dimensions` float32 values, or the reason in `error`."""

    query_id: int
    vector: bytes
    error: str | None = None


class WorkerPing(msgspec.Struct, frozen=True, tag=True):
    """Store to a worker on another host, which no launcher here watches: a health check. Answered by `WorkerPong`."""


class WorkerPong(msgspec.Struct, frozen=True, tag=True):
    """Worker on another host to store: the answer to `WorkerPing`."""


class UseModel(msgspec.Struct, frozen=True, tag=True):
    """Store to a worker on another host: its model is not needed; load this one."""

    choice: ModelChoice


class ModelProgress(msgspec.Struct, frozen=True):
    """A model and its use: it answers queries (`active`), will do so when everything is embedded with it (`next`), or
    does while the others cannot (`fallback`).

    `pending` of `total` texts wait for vectors; total is 0 if nobody counted. `answers`: it answers queries now.
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
    """Command to store: embed everything with this model, and use it for queries from then on. None: stay with the
    current one."""

    choice: ModelChoice | None


class AskModels(Request[tuple[ModelProgress, ...]], frozen=True):
    """Command to store: list the models and their progress. The active one (or the future one) comes first."""


class WhoAreYou(msgspec.Struct, frozen=True, tag=True):
    """Store to worker: the store has just started and does not know this worker. Announce yourself again."""


WorkerMessage = WorkerReady | WorkerFailed | WorkerLeaving | PassagesEmbedded | JobFailed | QueryEmbedded
RemoteWorkerMessage = WorkerMessage | WorkerPong
"""The messages that a worker on another host may send."""
ToWorker = EmbedPassages | EmbedQuery | WhoAreYou | WorkerPing | UseModel | Failure
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_remote_worker: Final = msgspec.msgpack.Decoder(RemoteWorkerMessage)
