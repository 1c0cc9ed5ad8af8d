"""What the store asks of its records: one narrow Protocol, which every database behind it has to satisfy.

The records are the truth. One `Records` is one file: a project's (with its sessions' memories), or the user's. Methods
block, and may be called from any thread; the store calls the writing ones from its one writer thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, MemoryType, Operation, Scope, SourceRef

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a memory must be to be found. Empty tuples allow all; times are seconds since the epoch, inclusive.

    A memory of scope `session` is found by its own `session_id` alone, whatever `scopes` says.
    """

    session_id: str
    scopes: tuple[Scope, ...] = ()
    types: tuple[MemoryType, ...] = ()
    tags: tuple[str, ...] = ()
    min_importance: float = 0.0
    after: float | None = None
    before: float | None = None
    include_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A memory as it stands in the records. `number` identifies it inside its file."""

    number: int
    id: str
    content: str
    type: MemoryType
    scope: Scope
    importance: float
    tags: tuple[str, ...]
    source: SourceRef
    version: int
    created_at: float
    occurred_at: float | None
    access_count: int
    forgotten: bool
    near_duplicates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A memory that contains words of the query; `bm25` is larger for a better match."""

    number: int
    bm25: float


@dataclass(frozen=True, slots=True)
class EmbeddedMemory:
    """The passages of a memory with their vectors, (len(passages), dimensions), unit length."""

    number: int
    passages: tuple[Passage, ...]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """Vectors as the index wants them: passage numbers, the memories they belong to, ordinals, (n, dimensions)."""

    numbers: list[int]
    memories: list[int]
    ordinals: list[int]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class SavedEmbeddings:
    """What was kept of the vectors that came, and the numbers of the older passages that it replaced."""

    kept: PassageVectors
    replaced: list[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one operation, and the memory that needs vectors because of it."""

    reply: Applied | RemembrancerError
    to_embed: int | None = None


@dataclass(frozen=True, slots=True)
class RankingFacts:
    """What the ranking needs to know of a memory. `happened_at` is `occurred_at`, or else `created_at`."""

    importance: float
    happened_at: float


class Records(Protocol):
    """One file of records."""

    @property
    def name(self) -> str:
        """`user`, or the project's id."""

    # Every method may raise `RecordsUnusable` (the file is damaged), `StorageFull` (from those that write) or
    # `InternalError` (anything else that the database says); `apply` answers with them.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply each in order, all in one durable transaction, and answer each. An id seen before answers as before.

        An operation that cannot be applied changes nothing and does not hurt the others.
        """

    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
        """Keep passages and vectors in place of older ones of `model`, and take the memories off the pending list.

        A memory that is gone, or that has no pending entry any more, is passed over.
        """

    def fail_embedding(self, number: int, error: str, *, final: bool) -> None:
        """Note that a memory could not be embedded; `final` takes it off the list of those to try."""

    def require_embeddings(self, model: str) -> None:
        """Put every memory that has no passages of `model` on the pending list."""

    def pending(self) -> list[int]:
        """Numbers of the memories that wait for vectors, oldest first."""

    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        """The contents of memories."""

    def link_similar(self, links: Sequence[tuple[int, int, float]]) -> None:
        """Note near-duplicates: the later memory, the earlier one, their cosine."""

    def touch(self, numbers: Sequence[int], at: float) -> None:
        """Count an access to each memory (twice in the list counts twice)."""

    def touch_session(self, session_id: str, at: float) -> None:
        """Note that a session is active, and register it when it is new."""

    def number_of(self, memory_id: str) -> int | None:
        """The number of a memory."""

    def keyword_hits(self, match: str, filters: Filters, limit: int) -> list[KeywordHit]:
        """The best `limit` memories for a full-text expression, best first."""

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        """Numbers of all memories that pass the filters; None when there are more than `limit`."""

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        """What ranks those of the memories that pass the filters."""

    def load(self, numbers: Sequence[int], filters: Filters) -> dict[int, MemoryRecord]:
        """Those of the memories that pass the filters."""

    def memory_vectors(self, model: str, numbers: Sequence[int]) -> PassageVectors:
        """All passages of these memories."""

    def passages(self, numbers: Sequence[int]) -> PassageVectors:
        """These passages; one that is gone is left out."""

    def passage_owners(self, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The memory that each passage belongs to, and its ordinal there; one that is gone is left out."""

    def has_passages(self, model: str) -> bool:
        """Whether there is any passage of this model."""

    def passage_numbers(self, model: str) -> list[int]:
        """Every passage's number, ascending."""

    def is_embedded(self, model: str, number: int) -> bool:
        """Whether a memory has its vectors."""

    def similar_ids(self, number: int, session_id: str) -> tuple[str, ...]:
        """Ids of the nearest near-duplicates of a memory that a session may see, in either direction."""

    def counts(self, session_id: str | None) -> Counts:
        """How much there is; of session memories only those of `session_id` (None: all of them)."""

    def session(self, session_id: str) -> tuple[float | None, int]:
        """When a session began (None: unknown), and how many memories it has stored."""

    def size_bytes(self) -> int:
        """Bytes on disk."""

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database as far as readers allow. Never waits."""

    def close(self) -> None:
        """Close. May be called twice."""
