"""Messages between the store and its workers. A worker announces its credit: the number of texts that it will take. The
store hands out texts while there is credit; each answer returns its credit. Queries need no credit and go first.
Vectors travel as little-endian float32 bytes, row after row."""

from typing import Final, Literal

import msgspec

from remembrancer.protocol.errors import Failure
from remembrancer.protocol.wire import Request


class ModelIdentity(msgspec.Struct, frozen=True):
    """The model that made a vector. Vectors of different identities are never compared. `revision` is the start of the
    weights' SHA-256, `window_tokens` the number of subword tokens in the model's window."""

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


DEFAULT_MODEL: Final = "all-minilm-l6-v2."
"""The default model's name as it appears in the model's key, for any precision."""


class CosineScale(msgspec.Struct, frozen=True):
    """A model's mean cosines between questions and texts that answer them, and between questions and other texts."""

    answering: float
    unrelated: float


CALIBRATED: Final = CosineScale(0.483, 0.043)
"""The scale of the default model, for which all search thresholds were chosen."""


class ModelChoice(msgspec.Struct, frozen=True):
    """A model: its engine, and its name in that engine (or the path of a directory)."""

    engine: str
    model: str


class WorkerState(msgspec.Struct, frozen=True, tag=True):
    """Worker to store, at each change. `identity` is None until the model is loaded. `error` says why the model cannot
    be used, and the worker retries. `credit` is the number of texts that the worker takes at a time. If it
    `is_leaving`, send no more texts; unanswered ones may go to another worker."""

    choice: ModelChoice
    identity: ModelIdentity | None = None
    credit: int = 0
    scale: CosineScale = CALIBRATED
    error: str | None = None
    is_leaving: bool = False


class AskWorker(Request[WorkerState], frozen=True):
    """Store to a worker on another host: a health check."""


class Passage(msgspec.Struct, frozen=True):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


class EmbeddedText(msgspec.Struct, frozen=True, tag=True):
    """The passages of a text; `vectors` holds `len(passages) * dimensions` float32 values, of unit length."""

    passages: tuple[Passage, ...]
    vectors: bytes


class EmbedText(Request[EmbeddedText], frozen=True):
    """Store to worker: embed a text's passages, for one credit. A worker without a model does not answer."""

    text: str


class EmbedQuery(Request[bytes], frozen=True):
    """Store to worker: embed a query, before any passages. The answer is one unit vector of float32 values."""

    text: str


class ModelProgress(msgspec.Struct, frozen=True):
    """A model that answers queries (`active`), will do so when everything has been embedded with it (`next`), or does
    so while no other model can (`fallback`). `pending` of `total` texts wait for vectors; `total` is 0 if they were not
    counted. `answers` is True if it answers queries now."""

    choice: ModelChoice
    role: Literal["active", "next", "fallback"]
    dimensions: int
    workers: int
    pending: int
    total: int
    answers: bool
    error: str | None = None


class ChooseModel(Request[tuple[ModelProgress, ...]], frozen=True):
    """Command to store: embed everything with this model, and then use it for queries (None: stay with the current one;
    UNSET: no change). The answer lists the models, the active one (or the next one) first."""

    choice: ModelChoice | msgspec.UnsetType | None = msgspec.UNSET


ToWorker = EmbedText | EmbedQuery | AskWorker | Failure
to_worker: Final = msgspec.msgpack.Decoder(ToWorker)
from_worker: Final = msgspec.msgpack.Decoder(WorkerState)
