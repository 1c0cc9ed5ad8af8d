"""Read requests to the store, and its answers."""

from __future__ import annotations

import math
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from remembrancer.protocol.kinds import FileSource, Kind, Origin, Status
from remembrancer.protocol.runs import LoggedPromotion, Topic
from remembrancer.protocol.session_life import SessionEntry, SessionStatus
from remembrancer.protocol.wire import Request, T_co
from remembrancer.protocol.work import ModelProgress
from remembrancer.protocol.writes import (
    MemoryLink,
    MemoryType,
    NearMemory,
    PortableMemory,
    ProjectRef,
    Scope,
    ShownFields,
)

Strategy = Literal["vector", "keyword", "hybrid", "graph"]
Ranking = Literal["fitted", "composite", "pagerank"]
"""The rankings of results: by probability, or by one of the two formulas in `memory/ranking.py`."""
Order = Literal["important", "latest", "valid", "due", "forgotten"]
"""`valid`: by the start of validity, latest first. `due`: only open ends that are not done, undated ones last.
`forgotten`: only forgotten memories (with `include_forgotten`), by the time of forgetting, latest first."""
Direction = Literal["outgoing", "incoming", "both"]
ProfileName = Literal["default", "codebase", "preferences", "debugging", "new_project", "architecture"]
M = TypeVar("M")
Section = Literal["preferences", "project_context", "session_history", "relevant_procedures", "open_ends"]
ALL_TOKENS, PART_TOKENS = 6000, 2000
"""The default token budgets of a context. A complete context makes recalls unnecessary, so it may cost more."""


class Filters(msgspec.Struct, frozen=True):
    """The conditions that a memory must meet. Empty tuples allow all; times are seconds since the epoch, inclusive. A
    memory of scope `session` matches only with its own `session_id`. Tags match regardless of case."""

    session_id: str
    scopes: tuple[Scope, ...] = ()
    types: tuple[MemoryType, ...] = ()
    tags: tuple[str, ...] = ()
    min_importance: float = 0.0
    after: float | None = None
    before: float | None = None
    include_forgotten: bool = False
    kinds: tuple[Kind, ...] = ()
    domains: tuple[str, ...] = ()
    valid_at: float | None = None
    """Only memories valid at this time."""

    @property
    def filters(self) -> Filters:
        return Filters(*(getattr(self, name) for name in Filters.__struct_fields__))


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    final: float
    """The score by which an answer is sorted: the sum of `shares`, if they are known."""
    relevance: float
    """The probability that it answers the query or, with a ranking by formula or in an outage, how well it matches."""
    shares: dict[str, float] = {}
    """What each feature of `memory/features.py` contributes to the score."""
    cosine: float | None = None
    """The cosine of the best passage with the task; None if no vectors were searched."""


class ListedMemory(ShownFields, frozen=True, kw_only=True):
    """A memory as read from the records for a list. `near_duplicates` are ids with cosine >= 0.95."""

    id: str
    created_at: float
    updated_at: float = 0.0
    version: int = 1
    access_count: int = 0
    last_accessed_at: float | None = None
    status: Status = "active"
    forgotten: bool = False
    forgotten_at: float | None = None
    forgotten_reason: str | None = None
    invalid_reason: str | None = None
    near_duplicates: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    """Ids of the memories that replace it, according to a link."""
    possibly_superseded_by: tuple[str, ...] = ()
    """Ids of newer memories that probably replace it, according to links made with the vectors: those of at least
    `REPLACED` or, in a recall, `PROBABLE` (`memory/replacement.py`)."""
    newer: str | None = None
    """The beginning of the memory that replaces it or most probably does, on one line."""
    origin: FileSource | None = None
    """The kind of file that this is a part of (`lines` of `source`); None for a memory."""
    lines: tuple[int, int] | None = None

    @property
    def happened_at(self) -> float:
        """The time that filters use: the time of the event or, failing that, of storing."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def urgency(self) -> tuple[float, float]:
        """A sort key: the more urgent the open end, the greater the key."""
        return -math.inf if self.due is None else -self.due, self.happened_at

    def listed(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ListedMemory.__struct_fields__}


class RecalledMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    scores: Scores
    strength: float | None = None
    """The memory's `strength_of` at the time of the answer, in [0, 1]."""
    found_in: tuple[Scope, ...] = ()
    """The scopes in which it was found, if more than one."""
    expired: bool = False
    stands_for: tuple[str, ...] = ()
    """Ids of memories that say the same thing and were left out."""
    code: str = ""
    """The file that it names and that is gone from the indexed code, if any."""


class Recalled(msgspec.Struct, frozen=True, tag=True):
    """The results, best first. `total_matched` counts the candidates that passed the filters and the threshold."""

    memories: tuple[RecalledMemory, ...]
    total_matched: int
    below_threshold: int
    strategy_used: Strategy
    left_out: tuple[RecalledMemory, ...] = ()
    """The best of the matching memories that are not in the answer, if requested."""
    short_ids: dict[str, str] = {}
    """The short forms of ids; empty if only some of the project's scopes were searched."""
    near_waits: bool = False
    """True if a pair can be requested with `TakeNear`."""


class Recall(Filters, Request[Recalled], frozen=True, kw_only=True):
    """`reference_time` is the present for "yesterday" in the query, in UTC (None: now, in this machine's zone)."""

    project: ProjectRef
    query: str
    strategy: Strategy = "hybrid"
    ranking: Ranking = "fitted"
    limit: int = 10
    profile: ProfileName | None = None
    reference_time: float | None = None
    is_task: bool = False
    """True to find memories related to a task, not only answers to a question."""
    replaced_from: float = 0.0
    """The minimum probability at which a memory is marked as possibly replaced, if above `PROBABLE`."""
    sources: tuple[Origin, ...] = ()
    """The sources to search; empty: memories, and notes if the project has any."""
    root: str = ""
    """The workspace whose notes are searched."""
    path: str = ""
    """The only file or directory of notes to search, relative to the workspace; empty: all."""
    valid_only: bool = False
    """True to leave out memories that are not valid at the `reference_time`."""
    left_out: int = 0
    """The number of matching memories to report beyond the answer, for a person who asks why they are missing."""
    about: str = ""
    """The id of a memory to report with those left out, whether it matches or not."""

    @property
    def searches_memories(self) -> bool:
        return not self.sources or "memory" in self.sources

    @property
    def searches_notes(self) -> bool:
        """True to search notes, which belong to the project and have no kind, type, domain, tags or importance."""
        if not self.root or self.strategy == "graph":
            return False
        if self.sources:
            return not {"notes", "sessions"}.isdisjoint(self.sources)
        is_narrowed = self.kinds or self.types or self.domains or self.tags or self.min_importance
        return not is_narrowed and (not self.scopes or "project" in self.scopes)


class Memories(msgspec.Struct, Generic[M], frozen=True, tag=True):
    """Memories in the requested order. `more` means that others are beyond the limit in number or bytes."""

    memories: tuple[M, ...]
    more: bool = False


class ListMemories(Filters, Request[Memories[ListedMemory]], frozen=True, kw_only=True):
    project: ProjectRef
    order: Order = "latest"
    limit: int = 50
    offset: int = 0


class SessionRequest(Request[T_co], Generic[T_co], frozen=True):
    project: ProjectRef
    session_id: str


class LinkedMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory with the ids of its related memories. `distance` is the number of links from the requested memory."""

    related: tuple[str, ...] = ()
    distance: int = 0


class FollowLinks(SessionRequest[Memories[LinkedMemory]], frozen=True):
    """Read these memories, in this order, and then related ones, up to `depth` links away, the nearest first. The
    answer has at most `limit` memories and about `characters` characters, but at least one. May raise `NotFound`."""

    memory_ids: tuple[str, ...]
    depth: int = 0
    limit: int = 100
    characters: int | None = None


class EmbeddingState(msgspec.Struct, frozen=True, tag=True):
    """`embedded` is True once the memory has its vectors. `near_duplicates` have a cosine >= 0.95."""

    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    error: str | None = None
    near: tuple[NearMemory, ...] = ()


class AwaitEmbedding(SessionRequest[EmbeddingState], frozen=True):
    """Answer when this memory has its vectors, or at the deadline."""

    memory_id: str


class NearFound(msgspec.Struct, frozen=True, tag=True):
    near: tuple[NearMemory, ...] = ()


class TakeNear(SessionRequest[NearFound], frozen=True):
    """Find a pair in Review whose later memory was stored by this session. Each pair is returned once."""


class Counts(msgspec.Struct, frozen=True):
    """`total` counts memories that are not forgotten."""

    total: int = 0
    by_scope: dict[str, int] = {}
    by_type: dict[str, int] = {}
    forgotten: int = 0
    entities: int = 0
    relationships: int = 0


class EmbeddingSummary(msgspec.Struct, frozen=True):
    """The engine that makes the vectors, and its progress. `is_starting` is True while the first worker is loading it.
    `error` says why there is no engine. `dead_letters` counts the memories that could not be embedded, and
    `dead_letter_error` is the reason for the last one."""

    engine: str
    model: str
    dimensions: int
    pending: int
    workers: int
    is_starting: bool = False
    error: str | None = None
    dead_letters: int = 0
    dead_letter_error: str | None = None
    models: tuple[ModelProgress, ...] = ()
    """All models; the fields above belong to the active one."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A project's memory that is proposed for promotion to the user. `refused_at` is the time of a refusal."""

    memory_id: str
    content: str
    kind: Kind
    reason: str
    score: float | None = None
    proposed_at: float = 0.0
    refused_at: float | None = None


class StoreDescription(msgspec.Struct, frozen=True, tag=True):
    """The store's part of `get_memory_status`. `started_at` is seconds since the epoch, None for an unknown session."""

    counts: Counts
    embedding: EmbeddingSummary
    database_bytes: int
    uptime_s: float
    memories_this_session: int
    session_started_at: float | None


class DescribeStore(SessionRequest[StoreDescription], frozen=True):
    """Describe the memory as one session of one project sees it."""


class Surroundings(msgspec.Struct, frozen=True):
    incoming: tuple[MemoryLink, ...] = ()
    """Links from memories that are not forgotten, each with the other memory as its `target`, strongest first."""
    promotions: tuple[LoggedPromotion, ...] = ()
    """The log entries of the memory and of memories merged into it, oldest first."""
    observed_in: tuple[str, ...] = ()
    """The ids of the projects in which a memory of the user was observed, its origin first."""
    found_entities: tuple[str, ...] = ()
    """Names of entities that were extracted from its text, not given by a caller."""
    copies: dict[str, Scope] = {}
    """The ids and scopes of other memories with identical content that are not forgotten."""
    proposal: Proposal | None = None
    """The proposal to promote it to the user, even if it was refused."""


class MemoryShown(Surroundings, frozen=True, tag=True, kw_only=True):
    """A complete memory. `near_duplicates` have a cosine >= 0.95. `strength` and `is_stale` follow the formulas of
    `memory/decay.py`. `reasons` say why it is in its scope. `undo_forgets` (on request): an undo would forget it."""

    memory: PortableMemory
    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    strength: float | None = None
    is_stale: bool = False
    reasons: tuple[str, ...] = ()
    undo_forgets: bool = False


class GetMemory(SessionRequest[MemoryShown], frozen=True):
    memory_id: str
    with_undo: bool = False


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    memory_id: str
    valid_from: float | None = None
    valid_until: float | None = None
    invalid_reason: str | None = None
    weight: float | None = None


class GraphRelationship(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge as seen from one of its ends. `stale` means that every memory that states it is forgotten or no longer
    valid. `facts` are memories that state it, valid ones first; a mere mention has no facts."""

    type: str
    target: str
    direction: Literal["outgoing", "incoming"]
    memories: int = 1
    stale: bool = False
    target_type: str = ""
    facts: tuple[Fact, ...] = ()


class GraphEntity(msgspec.Struct, frozen=True, omit_defaults=True):
    """`distance` is the number of hops from the start. `memory_count` leaves out forgotten memories. `stale` means that
    all memories that name the entity are forgotten. `described_in` is the memory with the `description`, if any."""

    name: str
    type: str
    relationships: tuple[GraphRelationship, ...] = ()
    memory_count: int = 0
    distance: int = 0
    stale: bool = False
    described_in: str = ""
    description: str = ""


class GraphFound(msgspec.Struct, frozen=True, tag=True):
    """The result of a walk, nearest first, or an overview with the best connected entities, and totals of edges and
    entities by type. In a walk, `relationship_types` counts only the edges found. `suggestions` are known names that
    share words with an unknown one."""

    entities: tuple[GraphEntity, ...]
    memories: tuple[RecalledMemory, ...] = ()
    entities_traversed: int = 0
    relationships_found: int = 0
    depth_reached: int = 0
    relationship_types: dict[str, int] = {}
    total_entities: int = 0
    total_relationships: int = 0
    suggestions: tuple[str, ...] = ()
    entity_types: dict[str, int] = {}
    topics: tuple[Topic, ...] = ()


class SearchGraph(SessionRequest[GraphFound], frozen=True):
    """Walk the graph from an entity for `depth` hops (0 to 3), or get an overview without one. `limit` is the maximum
    number of entities, and of memories, in the answer."""

    entity: str | None = None
    relationship_type: str | None = None
    direction: Direction = "both"
    depth: int = 1
    include_memories: bool = True
    limit: int = 20
    entity_type: str | None = None
    """Restricts the name to the entity of this type."""


class ContextGathered(msgspec.Struct, frozen=True, tag=True):
    """The memories of the requested sections, the most useful first in each section."""

    memories: tuple[RecalledMemory, ...]
    is_all: bool = False
    """True if the answer has all valid memories."""
    subjects: tuple[tuple[str, int], ...] = ()
    """The subjects with the most memories, with their counts; empty if the answer has all memories."""
    replaced: tuple[RecalledMemory, ...] = ()
    """The memories left out because a newer one in the answer probably replaces them."""
    closed: tuple[RecalledMemory, ...] = ()
    """The open ends left out because they were closed recently, if the answer has everything else."""
    notes: int = 0
    """The number of the project's note files, which the answer does not contain."""
    former_place: str = ""
    """The directory from which a project without memories was probably moved."""
    short_ids: dict[str, str] = {}
    edited: dict[str, float] = {}
    """The times at which the current texts of edited memories were written, by id."""
    near_waits: bool = False
    """As in `Recalled`."""


class GatherContext(SessionRequest[ContextGathered], frozen=True):
    """Gather the memories that a session needs for its task: everything that is valid, if it fits into `tokens`, or a
    selection of `part_tokens` and, with `with_subjects`, the subjects of the rest. Does not count as an access."""

    task: str = ""
    files: tuple[str, ...] = ()
    sections: tuple[Section, ...] = get_args(Section)
    tokens: int = ALL_TOKENS
    part_tokens: int = PART_TOKENS
    with_subjects: bool = True
    root: str = ""
    """The workspace whose notes are counted; empty: notes are not counted."""


class NoteAccess(SessionRequest[bool], frozen=True):
    """Count these memories as shown, and those in `used` as useful, too."""

    memory_ids: tuple[str, ...]
    used: tuple[str, ...] = ()


class IdsFound(msgspec.Struct, frozen=True, tag=True):
    """For each part, the matching ids with their memories' first words; and the short forms of known ids."""

    candidates: dict[str, list[tuple[str, str]]]
    short: dict[str, str]


class FindIds(SessionRequest[IdsFound], frozen=True):
    """Find memories, even forgotten ones, whose ids begin or end with each part, and the short forms of `ids`."""

    parts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


class ListedSession(SessionEntry, frozen=True, omit_defaults=True):
    memories: int = 0
    turns: int = 0
    tool_calls: int = 0


class SessionDescription(msgspec.Struct, frozen=True, tag=True):
    """`topics` are the entities and tags of the memories that the session stored, the most common first."""

    started_at: float | None
    stored_by_type: dict[str, int]
    topics: tuple[str, ...]
    status: SessionStatus = "active"
    summary: str | None = None
    turns: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    memories_promoted: int = 0
    memories_consolidated: int = 0


class DescribeSession(SessionRequest[SessionDescription], frozen=True):
    """Describe the work of a session."""
