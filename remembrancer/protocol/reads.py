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
"""`valid`: by the start of validity, latest first. `due`: open ends that are not done, by due date, undated ones last.
`forgotten`: only forgotten memories (with `include_forgotten`), by the time of forgetting, latest first."""
Direction = Literal["outgoing", "incoming", "both"]
ProfileName = Literal["default", "codebase", "preferences", "debugging", "new_project", "architecture"]
"""The six named profiles of scope weights in a recall."""
M = TypeVar("M")
Section = Literal["preferences", "project_context", "session_history", "relevant_procedures", "open_ends"]


class Filters(msgspec.Struct, frozen=True):
    """The conditions that a memory must meet. Empty tuples allow all; times are seconds since the epoch, inclusive.

    A memory of scope `session` matches only with its own `session_id`, whatever `scopes` says. Tags match regardless of
    case.
    """

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
    """Only memories valid at this time: from `valid_from` (default: the time of the event or of storing) to
    `valid_until`."""

    @property
    def filters(self) -> Filters:
        """The filters of a request, without its other fields."""
        return Filters(*(getattr(self, name) for name in Filters.__struct_fields__))


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scores behind a memory's rank."""

    final: float
    """The score by which an answer's memories are sorted: the sum of `shares`, if they are known."""
    relevance: float
    """The probability in [0, 1] that the memory answers the query. With a ranking by formula, or without vectors in an
    outage, the degree to which it matches."""
    shares: dict[str, float] = {}
    """The contribution of each feature of `memory/features.py` to the score, if there is one."""
    cosine: float | None = None
    """The cosine of the best passage with the task; None if no vectors were searched."""


class ListedMemory(ShownFields, frozen=True, kw_only=True):
    """A memory as read from the records for a list. `near_duplicates` are ids with cosine >= 0.95."""

    id: str
    created_at: float
    updated_at: float = 0.0
    """The time of its last change or, failing that, of its creation."""
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
    """Ids of newer memories that probably (in a recall: possibly) replace it, according to links made with the vectors;
    see `REPLACED` in `memory/replacement.py`. A context that includes them omits the memory (`replaced_among`)."""
    origin: FileSource | None = None
    """The kind of file that this is a part of (`lines` of `source`); None for a memory."""
    lines: tuple[int, int] | None = None

    @property
    def happened_at(self) -> float:
        """The time that filters use: the time of the event or, failing that, of storing."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def urgency(self) -> tuple[float, float]:
        """The sort key of an open end: the more urgent the open end, the greater the key."""
        return -math.inf if self.due is None else -self.due, self.happened_at

    def listed(self) -> dict[str, Any]:
        """The fields of every memory in a list, by name."""
        return {name: getattr(self, name) for name in ListedMemory.__struct_fields__}


class RecalledMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory in an answer."""

    scores: Scores
    strength: float | None = None
    """The memory's `strength_of` at the time of the answer, in [0, 1]."""
    found_in: tuple[Scope, ...] = ()
    """The scopes in which it was found, if more than one."""
    expired: bool = False
    """True if it is no longer valid."""
    stands_for: tuple[str, ...] = ()
    """Ids of memories with the same statement that were left out in its favour."""
    code: str = ""
    """The file that it names and that is gone from the indexed code, if any."""


class Recalled(msgspec.Struct, frozen=True, tag=True):
    """The best memories first. `total_matched` counts the candidates that passed the filters and the threshold."""

    memories: tuple[RecalledMemory, ...]
    total_matched: int
    below_threshold: int
    strategy_used: Strategy
    left_out: tuple[RecalledMemory, ...] = ()
    """The best of the matching memories that are not in the answer, if requested."""
    short_ids: dict[str, str] = {}
    """The short forms of the memories' ids; empty if only a part of the project's memories was read."""
    near_waits: bool = False
    """True if a pair can be requested with `TakeNear`."""


class Recall(Filters, Request[Recalled], frozen=True, kw_only=True):
    """Find memories of `project`, of the user, and of the session. Times are seconds since the epoch.

    `reference_time` is the time that "yesterday" in the query refers to, in UTC (None: now, in this machine's zone).
    """

    project: ProjectRef
    query: str
    strategy: Strategy = "hybrid"
    ranking: Ranking = "fitted"
    limit: int = 10
    profile: ProfileName | None = None
    reference_time: float | None = None
    is_task: bool = False
    """True if the query is a task: memories related to the task are wanted, not only answers."""
    replaced_from: float = 0.0
    """The minimum probability at which a memory in Review is marked as possibly replaced."""
    sources: tuple[Origin, ...] = ()
    """The sources to search; empty: memories, and notes if the project has any."""
    root: str = ""
    """The workspace whose notes are searched."""
    path: str = ""
    """The file or directory that notes are searched in, relative to the workspace; empty: all."""
    valid_only: bool = False
    """True to leave out memories that are not valid (at the `reference_time`)."""
    left_out: int = 0
    """The number of matching memories to report beyond the answer, for a person who asks why they are missing."""
    about: str = ""
    """The id of a memory to score as well, whether it matches or not; it is reported with the memories left out."""

    @property
    def searches_memories(self) -> bool:
        return not self.sources or "memory" in self.sources

    @property
    def searches_notes(self) -> bool:
        """True if notes are searched: they belong to the project, and have no kind, type, domain, tags or
        importance."""
        if not self.root or self.strategy == "graph":
            return False
        if self.sources:
            return not {"notes", "sessions"}.isdisjoint(self.sources)
        is_narrowed = self.kinds or self.types or self.domains or self.tags or self.min_importance
        return not is_narrowed and (not self.scopes or "project" in self.scopes)


class Memories(msgspec.Struct, Generic[M], frozen=True, tag=True):
    """Memories in the requested order. `more`: there are more memories, beyond the limit in number or bytes."""

    memories: tuple[M, ...]
    more: bool = False


class ListMemories(Filters, Request[Memories[ListedMemory]], frozen=True, kw_only=True):
    """List the memories of `project`, of the user and of the session that pass the filters."""

    project: ProjectRef
    order: Order = "latest"
    limit: int = 50
    offset: int = 0


class SessionRequest(Request[T_co], Generic[T_co], frozen=True):
    """A request by a session of a project."""

    project: ProjectRef
    session_id: str


class LinkedMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory with the ids of its related memories, and its distance from the starting memory in links."""

    related: tuple[str, ...] = ()
    distance: int = 0


class FollowLinks(SessionRequest[Memories[LinkedMemory]], frozen=True):
    """Read these memories, in this order, and then related ones, up to `depth` links away, the nearest first.

    The answer has at most `limit` memories, and after the first, at most about `characters` characters. Raises
    `NotFound` if none of the ids exists.
    """

    memory_ids: tuple[str, ...]
    depth: int = 0
    limit: int = 100
    characters: int | None = None


class EmbeddingState(msgspec.Struct, frozen=True, tag=True):
    """The state of a memory's embedding: whether it has its vectors now, its near duplicates (cosine >= 0.95), and its
    neighbours."""

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
    """The numbers of memories and other records. `total` counts memories that are not forgotten."""

    total: int = 0
    by_scope: dict[str, int] = {}
    by_type: dict[str, int] = {}
    forgotten: int = 0
    entities: int = 0
    relationships: int = 0


class EmbeddingSummary(msgspec.Struct, frozen=True):
    """The engine that makes the vectors, and its progress. `error` says why there is no engine.

    `dead_letters` counts the memories that could not be embedded, and `dead_letter_error` is the reason for the last
    one.
    """

    engine: str
    model: str
    dimensions: int
    pending: int
    workers: int
    error: str | None = None
    dead_letters: int = 0
    dead_letter_error: str | None = None
    models: tuple[ModelProgress, ...] = ()
    """All models; the fields above belong to the active one."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A project's memory that is proposed for promotion to the user, with the reason. `refused_at`: the time at which a
    person refused the proposal."""

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
    """The facts about a memory that are stored elsewhere."""

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
    """The proposal to promote it to the user, answered or not."""


class MemoryShown(Surroundings, frozen=True, tag=True, kw_only=True):
    """A complete memory, with the state of its vectors, and its near duplicates (cosine >= 0.95).

    `strength` and `is_stale` follow the formulas of `memory/decay.py`. `reasons` say, in sentences, why the memory is
    in its scope. `undo_forgets` (only on request): an undo would forget it.
    """

    memory: PortableMemory
    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    strength: float | None = None
    is_stale: bool = False
    reasons: tuple[str, ...] = ()
    undo_forgets: bool = False


class GetMemory(SessionRequest[MemoryShown], frozen=True):
    """Read one complete memory. Refused with `not_found` if it does not exist."""

    memory_id: str
    with_undo: bool = False


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory that states an edge between two entities, and the time for which it is true."""

    memory_id: str
    valid_from: float | None = None
    valid_until: float | None = None
    invalid_reason: str | None = None
    weight: float | None = None


class GraphRelationship(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge as seen from one of its ends. `stale`: every memory that states it is forgotten, or no longer valid.

    `facts` are memories that state it, valid ones first; a mere mention has no facts.
    """

    type: str
    target: str
    direction: Literal["outgoing", "incoming"]
    memories: int = 1
    stale: bool = False
    target_type: str = ""
    facts: tuple[Fact, ...] = ()


class GraphEntity(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entity in an answer. `distance` is in hops from the start; `memory_count` leaves out forgotten memories.

    `stale`: all memories that name it are forgotten. `described_in` is the memory that describes it, if there is one,
    and `description` its content.
    """

    name: str
    type: str
    relationships: tuple[GraphRelationship, ...] = ()
    memory_count: int = 0
    distance: int = 0
    stale: bool = False
    described_in: str = ""
    description: str = ""


class GraphFound(msgspec.Struct, frozen=True, tag=True):
    """The result of a walk, nearest first. `suggestions` are known names that share words with a requested name that
    does not exist.

    `relationship_types` counts the edges of each type: all edges in the overview, otherwise the edges found. An
    overview has the best connected entities and the totals, and no memories. Only an overview has `entity_types`, the
    number of entities of each type that the session may see.
    """

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
    """In the overview: communities of entities, as last detected."""


class SearchGraph(SessionRequest[GraphFound], frozen=True):
    """Walk the graph from an entity, or get an overview without one.

    `depth` is 0 to 3 hops, `limit` the maximum number of entities, and of memories, in the answer. An empty
    `relationship_type` means all.
    """

    entity: str | None = None
    relationship_type: str | None = None
    direction: Direction = "both"
    depth: int = 1
    include_memories: bool = True
    limit: int = 20
    entity_type: str | None = None
    """Restricts the name to the one entity of this type, in any spelling."""


class ContextGathered(msgspec.Struct, frozen=True, tag=True):
    """The memories of the requested sections, section by section, the most useful first in each."""

    memories: tuple[RecalledMemory, ...]
    is_all: bool = False
    """True if these are all the valid memories."""
    subjects: tuple[tuple[str, int], ...] = ()
    """The subjects with the most memories, each with its count; empty if the answer has all memories."""
    replaced: tuple[RecalledMemory, ...] = ()
    """The memories left out because a newer one in the answer probably replaces them."""
    closed: tuple[RecalledMemory, ...] = ()
    """The open ends left out because they were closed recently, if the answer has everything else."""
    notes: int = 0
    """The number of the project's note files, which the answer does not contain."""
    former_place: str = ""
    """The directory from which a project that is new or has no memories was probably moved."""
    short_ids: dict[str, str] = {}
    """The short forms of the memories' ids."""
    near_waits: bool = False
    """As in `Recalled`."""


ALL_TOKENS, PART_TOKENS = 6000, 2000
"""The default token budgets of a context. A complete context makes recalls unnecessary, so it may cost more than a
selection."""


class GatherContext(SessionRequest[ContextGathered], frozen=True):
    """Gather the memories that a session needs for its task: everything that is valid, if it fits in about `tokens`,
    otherwise a selection of `part_tokens`; `with_subjects` adds the subjects of the rest. Nothing is counted as
    accessed."""

    task: str = ""
    files: tuple[str, ...] = ()
    sections: tuple[Section, ...] = get_args(Section)
    tokens: int = ALL_TOKENS
    part_tokens: int = PART_TOKENS
    with_subjects: bool = True
    root: str = ""
    """The workspace whose notes are counted; empty: notes are not counted."""


class NoteAccess(SessionRequest[bool], frozen=True):
    """Count these memories as shown. `used`: the memories that were also useful."""

    memory_ids: tuple[str, ...]
    used: tuple[str, ...] = ()


class IdsFound(msgspec.Struct, frozen=True, tag=True):
    """For each part, the ids that match it, with each memory's first words; and short forms by full id. Unknown ids
    have no short form."""

    candidates: dict[str, list[tuple[str, str]]]
    short: dict[str, str]


class FindIds(SessionRequest[IdsFound], frozen=True):
    """Find the memories whose ids begin or end with each of these `parts`, forgotten ones included, and the short forms
    of `ids`."""

    parts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


class ListedSession(SessionEntry, frozen=True, omit_defaults=True):
    """A session, and how many of its records are still kept."""

    memories: int = 0
    turns: int = 0
    tool_calls: int = 0


class SessionDescription(msgspec.Struct, frozen=True, tag=True):
    """The memories that a session stored. `topics` are the entities and tags of its memories, the most
    common first."""

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
