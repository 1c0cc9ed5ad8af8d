"""Questions to the store, and its answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from remembrancer.protocol.writes import MemoryType, ProjectRef, Scope, SourceRef

Strategy = Literal["vector", "keyword", "hybrid"]


class Notice(msgspec.Struct, frozen=True):
    """A caveat of an answer: what is missing from it, and why."""

    code: str
    message: str


class Recall(msgspec.Struct, frozen=True, tag=True):
    """Find memories. Empty `scopes` or `types` mean all. Times are seconds since the epoch.

    A session's memories are found by `session_id` alone, a project's by `project` alone. Answered by `Recalled`.
    """

    project: ProjectRef
    session_id: str
    query: str
    strategy: Strategy = "hybrid"
    limit: int = 10
    scopes: tuple[Scope, ...] = ()
    types: tuple[MemoryType, ...] = ()
    tags: tuple[str, ...] = ()
    min_importance: float = 0.0
    after: float | None = None
    before: float | None = None
    include_forgotten: bool = False


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a memory stands where it stands. All in [0, 1]; None where the signal was not used or had no say.

    `vector` is the cosine of the best passage, `keyword` the BM25 score over the best of the answer's candidates.
    """

    final: float
    relevance: float
    importance: float
    recency: float
    vector: float | None = None
    keyword: float | None = None


class RecalledMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory in an answer. Times are seconds since the epoch. `near_duplicates` are ids with cosine >= 0.95."""

    id: str
    content: str
    type: MemoryType
    scope: Scope
    importance: float
    scores: Scores
    tags: tuple[str, ...]
    created_at: float
    access_count: int
    source: SourceRef
    version: int = 1
    occurred_at: float | None = None
    forgotten: bool = False
    near_duplicates: tuple[str, ...] = ()


class Recalled(msgspec.Struct, frozen=True, tag=True):
    """The best memories first. `total_matched` counts the candidates that passed the filters and the threshold."""

    memories: tuple[RecalledMemory, ...]
    total_matched: int
    below_threshold: int
    strategy_used: Strategy
    query_time_ms: float
    notices: tuple[Notice, ...] = ()


class AwaitEmbedding(msgspec.Struct, frozen=True, tag=True):
    """Tell me when this memory has its vectors, or when my deadline comes. Answered by `EmbeddingState`."""

    project: ProjectRef
    session_id: str
    memory_id: str


class EmbeddingState(msgspec.Struct, frozen=True, tag=True):
    """Whether the memory has its vectors now, and which others are nearly the same (cosine >= 0.95)."""

    memory_id: str
    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    error: str | None = None


class DescribeStore(msgspec.Struct, frozen=True, tag=True):
    """What is in the memory, as one session of one project sees it? Answered by `StoreDescription`."""

    project: ProjectRef
    session_id: str


class Counts(msgspec.Struct, frozen=True):
    """How many there are. `total` counts memories that are not forgotten."""

    total: int = 0
    by_scope: dict[str, int] = {}
    by_type: dict[str, int] = {}
    forgotten: int = 0
    entities: int = 0
    relationships: int = 0


class EmbeddingSummary(msgspec.Struct, frozen=True):
    """Which engine makes the vectors and how far it has come. `error` says why there is none."""

    engine: str
    model: str
    dimensions: int
    pending: int
    workers: int
    vectors_ready: bool
    error: str | None = None


class StoreDescription(msgspec.Struct, frozen=True, tag=True):
    """The store's part of `get_memory_status`. `started_at` is seconds since the epoch, None for an unknown session."""

    counts: Counts
    embedding: EmbeddingSummary
    database_bytes: int
    database_path: str
    uptime_s: float
    schema_version: int
    memories_this_session: int
    session_started_at: float | None


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The request was understood and is not carried out (or not answered): the error, as in `errors.Failure`."""

    code: str
    message: str
    retry_possible: bool = False
    field: str | None = None
