"""Questions to the store, and its answers."""

from __future__ import annotations

import math
from typing import Any, Generic, Literal, get_args

import msgspec

from remembrancer.protocol.kinds import FileSource, Kind, Origin, Status
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.session_life import SessionStatus
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
"""The rankings of what was found: by its own signals, or also by PageRank over the graph of memories and entities."""
Order = Literal["important", "latest", "valid", "due"]
"""`valid`: what has begun to be valid last comes first. `due`: open ends that are not done, by due date; those
without one last."""
Direction = Literal["outgoing", "incoming", "both"]
ProfileName = Literal["default", "codebase", "preferences", "debugging", "new_project", "architecture"]
"""The names of the weights of scopes in a recall: six profiles."""
Section = Literal["preferences", "project_context", "session_history", "relevant_procedures", "open_ends"]


class Notice(msgspec.Struct, frozen=True):
    """A caveat of an answer: what is missing from it, and why."""

    code: str
    message: str


class Filters(msgspec.Struct, frozen=True):
    """The conditions for a memory to be found. Empty tuples allow all; times are seconds since the epoch, inclusive.

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
    kinds: tuple[Kind, ...] = ()
    domains: tuple[str, ...] = ()
    valid_at: float | None = None
    """Only memories valid then: from `valid_from` on, or else since they happened or were stored, until
    `valid_until`."""

    @property
    def filters(self) -> Filters:
        """The filters alone, of a request that has more to it."""
        return Filters(*(getattr(self, name) for name in Filters.__struct_fields__))


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a memory stands where it stands."""

    final: float
    """By which the memories of an answer are in order: the sum of `shares`, where these are known."""
    relevance: float
    """The probability in [0, 1] that it answers. With a ranking by name, and where no vectors are at hand in an outage,
    how well it matches."""
    importance: float
    recency: float
    shares: dict[str, float] = {}
    """The part of the score that each feature of `memory/features.py` adds, where there is one."""
    cosine: float | None = None
    """Of the best passage with a task; None where no vectors were searched."""


class ListedMemory(ShownFields, frozen=True, kw_only=True):
    """A memory as it is read from the records together with others. `near_duplicates` are ids with cosine >= 0.95."""

    id: str
    created_at: float
    updated_at: float = 0.0
    """The time of its last change; its creation's where it has not changed."""
    version: int = 1
    access_count: int = 0
    status: Status = "active"
    forgotten: bool = False
    forgotten_at: float | None = None
    forgotten_reason: str | None = None
    invalid_reason: str | None = None
    near_duplicates: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    """Ids of the memories that a link says replace it."""
    possibly_superseded_by: tuple[str, ...] = ()
    """Ids of newer memories that probably replace it (`PROBABLE` in `memory/replacement.py`), as links say that are
    made when vectors are: a context leaves it out where one of these is given, and judges nothing anew."""
    origin: FileSource | None = None
    """The sort of the file that it is a part of, in `source` with these `lines`. None: it is a memory."""
    lines: tuple[int, int] | None = None

    @property
    def happened_at(self) -> float:
        """The time that filters go by: when it happened, or else when it was stored."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def valid_since(self) -> float:
        """From when on it is valid; where nobody has said so, since it happened or was stored."""
        return min(self.created_at, self.happened_at) if self.valid_from is None else self.valid_from

    def place_in(self, order: Order) -> tuple[float, float]:
        """Its place in a list of that order: the greatest comes first."""
        match order:
            case "important":
                return self.importance, self.happened_at
            case "valid":
                return self.valid_since, 0.0
            case "due":
                return -math.inf if self.due is None else -self.due, self.happened_at
        return self.happened_at, 0.0

    def listed(self) -> dict[str, Any]:
        """The fields that every memory of a list has, by name."""
        return {name: getattr(self, name) for name in ListedMemory.__struct_fields__}


class RecalledMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory in an answer."""

    scores: Scores
    strength: float | None = None
    """`memory_strength` at the time of the answer, in [0, 1]."""
    found_in: tuple[Scope, ...] = ()
    """The scopes that had it, where that was more than one."""
    expired: bool = False
    """True if it says something that has ceased to be valid."""
    stands_for: tuple[str, ...] = ()
    """Ids of memories that say the same and were left out for it."""
    passages: tuple[tuple[int, int], ...] = ()
    """Character ranges of `content`, the best for the query first: where they were asked for."""
    code: str = ""
    """The present place and state of the code that it is about, if an index knows that."""


class Recalled(msgspec.Struct, frozen=True, tag=True):
    """The best memories first. `total_matched` counts the candidates that passed the filters and the threshold."""

    memories: tuple[RecalledMemory, ...]
    total_matched: int
    below_threshold: int
    strategy_used: Strategy
    query_time_ms: float
    notices: tuple[Notice, ...] = ()
    profile: ProfileName | None = None
    """The weight profile that was used; None where one scope alone was searched."""
    left_out: tuple[RecalledMemory, ...] = ()
    """The best of the memories that were found and not given, if these were asked for."""


class Recall(Filters, Request[Recalled], frozen=True, kw_only=True):
    """Find memories of `project`, of the user, and of the session. Times are seconds since the epoch.

    `reference_time` is when "yesterday" in the query was the day before
    (None: now), and `utc_offset_s` of which zone's days (None: UTC's with a `reference_time`, else those of this
    machine's zone). With `with_passages` each memory names its best passages.
    """

    project: ProjectRef
    query: str
    strategy: Strategy = "hybrid"
    ranking: Ranking = "fitted"
    limit: int = 10
    profile: ProfileName | None = None
    reference_time: float | None = None
    utc_offset_s: float | None = None
    with_passages: bool = False
    counts_accesses: bool = True
    """True if the answer is what is shown. Who shows a part of it says so with `NoteAccess`."""
    is_task: bool = False
    """True if the query is a task: memories that have to do with it are wanted, not only those that answer it."""
    sources: tuple[Origin, ...] = ()
    """The places to look; empty: memories, and notes where the project has them."""
    root: str = ""
    """The workspace whose notes are meant."""
    valid_only: bool = False
    """True if memories that are not valid (at the `reference_time`) are left out."""
    left_out: int = 0
    """Of what was found and is not in the answer, so many are told as well: for a person who asks why."""
    about: str = ""
    """The id of a memory that is to be weighed as well, whether it was found or not: among what is left out."""

    @property
    def searches_notes(self) -> bool:
        """True if notes are looked into: they are the project's, and have no kind, type, domain, tags or importance."""
        if not self.root or self.strategy == "graph":
            return False
        if self.sources:
            return not {"notes", "sessions"}.isdisjoint(self.sources)
        is_narrowed = self.kinds or self.types or self.domains or self.tags or self.min_importance
        return not is_narrowed and (not self.scopes or "project" in self.scopes)


class Listed(msgspec.Struct, frozen=True, tag=True):
    """The first memories of that order. `cut`: fewer than were asked for, because more would be too many bytes."""

    memories: tuple[ListedMemory, ...]
    notices: tuple[Notice, ...] = ()
    cut: bool = False


class ListMemories(Filters, Request[Listed], frozen=True, kw_only=True):
    """The memories of `project`, of the user and of the session that pass the filters."""

    project: ProjectRef
    order: Order = "latest"
    limit: int = 50
    offset: int = 0
    as_of: float | None = None
    """With `valid_at`: by what was known then, whatever was recorded later. The other filters have no say."""


class SessionRequest(Request[T_co], Generic[T_co], frozen=True):
    """A question of a session of a project."""

    project: ProjectRef
    session_id: str


class LinkedMemory(ListedMemory, frozen=True, kw_only=True, omit_defaults=True):
    """A memory with the ids of those that it is related to, and how many links it is away from the start."""

    related: tuple[str, ...] = ()
    distance: int = 0
    last_accessed_at: float | None = None


class LinksFound(msgspec.Struct, frozen=True, tag=True):
    """The memories found, in the order asked for and then by distance. `more`: there is more within the depth."""

    memories: tuple[LinkedMemory, ...]
    more: bool = False
    notices: tuple[Notice, ...] = ()


class FollowLinks(SessionRequest[LinksFound], frozen=True):
    """These memories, and those related to them, up to `depth` links away, the nearest first.

    No more than `limit`, and after the first no more than have about so many `characters`. Raises `NotFound` if none of
    them is there.
    """

    memory_ids: tuple[str, ...]
    depth: int = 0
    limit: int = 100
    counts_accesses: bool = True
    characters: int | None = None


class EmbeddingState(msgspec.Struct, frozen=True, tag=True):
    """The state of a memory's embedding: if it has its vectors now, which others are nearly the same (cosine >= 0.95),
    and which are near."""

    memory_id: str
    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    error: str | None = None
    near: tuple[NearMemory, ...] = ()


class AwaitEmbedding(SessionRequest[EmbeddingState], frozen=True):
    """Tell me when this memory has its vectors, or when my deadline comes."""

    memory_id: str


class Counts(msgspec.Struct, frozen=True):
    """The number of memories and other things. `total` counts memories that are not forgotten."""

    total: int = 0
    by_scope: dict[str, int] = {}
    by_type: dict[str, int] = {}
    forgotten: int = 0
    entities: int = 0
    relationships: int = 0


class EmbeddingSummary(msgspec.Struct, frozen=True):
    """Which engine makes the vectors and how far it has come. `error` says why there is none.

    `dead_letters` counts the memories that could not be embedded, and `dead_letter_error` says why (of the last).
    """

    engine: str
    model: str
    dimensions: int
    pending: int
    workers: int
    vectors_ready: bool
    error: str | None = None
    dead_letters: int = 0
    dead_letter_error: str | None = None
    models: tuple[ModelProgress, ...] = ()
    """All that there are; the fields above are those of the one that answers."""


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A project's memory that is proposed to go to the user, and why. `refused_at`: somebody has refused that."""

    memory_id: str
    content: str
    kind: Kind
    reason: str
    score: float | None = None
    proposed_at: float = 0.0
    refused_at: float | None = None


class Doubt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two memories of which the newer probably replaces the older, until somebody decides."""

    older_id: str
    older: str
    newer_id: str
    newer: str


class StoreDescription(msgspec.Struct, frozen=True, tag=True):
    """The store's part of `get_memory_status`. `started_at` is seconds since the epoch, None for an unknown session."""

    counts: Counts
    embedding: EmbeddingSummary
    database_bytes: int
    database_path: str
    uptime_s: float
    memories_this_session: int
    session_started_at: float | None
    notices: tuple[Notice, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """The project's memories that are proposed to go to the user."""
    doubts: tuple[Doubt, ...] = ()
    """The most probable ones."""


class DescribeStore(SessionRequest[StoreDescription], frozen=True):
    """Asks for what is in the memory, as one session of one project sees it."""


class Promotion(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the promotion log."""

    memory_id: str
    from_scope: Scope
    to_scope: Scope
    promoted_at: float
    reason: str
    source_session: str
    score: float | None = None
    merged_into: str | None = None


class MemoryCopy(msgspec.Struct, frozen=True):
    """Another memory with the very same content."""

    memory_id: str
    scope: Scope


class MemoryShown(msgspec.Struct, frozen=True, tag=True):
    """A memory whole, whether it has its vectors, and which others are nearly the same (cosine >= 0.95).

    `strength` and `is_stale` are by the formulas of `dynamics`. `incoming` are links from other memories, with these as
    their targets. `reasons` say, in sentences, why the memory is where it is and what would move it.
    """

    memory: PortableMemory
    embedded: bool
    near_duplicates: tuple[str, ...] = ()
    strength: float | None = None
    is_stale: bool = False
    incoming: tuple[MemoryLink, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    observed_in: tuple[str, ...] = ()
    """Ids of the projects in which a pattern of the user was observed."""
    found_entities: tuple[str, ...] = ()
    """Names of entities that were found in its text, and that nobody gave."""
    reasons: tuple[str, ...] = ()
    copies: tuple[MemoryCopy, ...] = ()
    """In all files; those that are forgotten do not count."""


class GetMemory(SessionRequest[MemoryShown], frozen=True):
    """Show one memory whole. Refused with `not_found` if it is not there."""

    memory_id: str


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory that says an edge between two entities, and when that is true."""

    memory_id: str
    valid_from: float | None = None
    valid_until: float | None = None
    invalid_reason: str | None = None
    weight: float | None = None


class GraphRelationship(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge as one of its ends has it. `stale`: every memory that says so is forgotten, or not valid any more.

    `facts` are memories that say so, what is valid first; of a mere mention there are none.
    """

    type: str
    target: str
    direction: Literal["outgoing", "incoming"]
    memories: int = 1
    stale: bool = False
    target_type: str = ""
    facts: tuple[Fact, ...] = ()


class GraphEntity(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entity in an answer. `distance` is hops from where the walk began; `memory_count` counts the unforgotten.

    `stale`: all memories that name it are forgotten. `described_in` is the memory that describes it, if one does, and
    `description` its content.
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
    """The findings of a walk, nearest first. `suggestions` are known names like one that was asked for and is not
    there.

    `relationship_types` counts the edges of each type: in the overview of all, else of those that were found.
    An overview has the best connected entities and the totals, and no memories.
    `entity_types` counts all entities of each type that the session may see, in the overview alone.
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
    """In the overview: communities of entities, as they were found last."""
    notices: tuple[Notice, ...] = ()


class SearchGraph(SessionRequest[GraphFound], frozen=True):
    """Walk the graph from an entity; without one, an overview.

    `depth` is 1 to 3 hops, `limit` the most entities in the answer. An empty `relationship_type` means all.
    """

    entity: str | None = None
    relationship_type: str | None = None
    direction: Direction = "both"
    depth: int = 1
    include_memories: bool = True
    limit: int = 20
    entity_type: str | None = None
    """With it, the one entity of this name and this type is meant, in any spelling."""


class ContextSection(msgspec.Struct, frozen=True):
    """A section's memories, the most useful first."""

    name: Section
    memories: tuple[RecalledMemory, ...]


class ContextGathered(msgspec.Struct, frozen=True, tag=True):
    """The sections that were asked for, in the order of `Section`. A memory is in one section only."""

    sections: tuple[ContextSection, ...]
    notices: tuple[Notice, ...] = ()
    is_all: bool = False
    """True if nothing else holds here in these sections."""
    subjects: tuple[tuple[str, int], ...] = ()
    """The subjects of which most memories are, each with its number; none if these are all."""
    replaced: int = 0
    """Memories that are not given because another one here probably says the same anew."""


ALL_TOKENS, PART_TOKENS = 6000, 3000
"""The tokens of a context where nobody names a number. All that is remembered spares every recall and may cost more
than a part of it."""


class GatherContext(SessionRequest[ContextGathered], frozen=True):
    """Gather what a session should know for its task: all that holds, for about so many `tokens`, or else a part of it,
    for `part_tokens`; `with_subjects`, then also what the rest is about. Nothing is counted as accessed."""

    task: str = ""
    files: tuple[str, ...] = ()
    sections: tuple[Section, ...] = get_args(Section)
    tokens: int = ALL_TOKENS
    part_tokens: int = PART_TOKENS
    with_subjects: bool = True


class NoteAccess(SessionRequest[bool], frozen=True):
    """These memories were shown to somebody: count it. `used`: these have been of use, too."""

    memory_ids: tuple[str, ...]
    used: tuple[str, ...] = ()


class IdsFound(msgspec.Struct, frozen=True, tag=True):
    """For each part the ids that it may stand for, each with the memory's first words; short forms by whole ids. Ids
    that are not known have no short form."""

    candidates: dict[str, list[tuple[str, str]]]
    short: dict[str, str]


class FindIds(SessionRequest[IdsFound], frozen=True):
    """Asks for the memories whose ids begin or end with each of these `parts`, forgotten ones included, and for the
    short forms of `ids`."""

    parts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


class Suggestions(msgspec.Struct, frozen=True, tag=True):
    """The most used names first, and how many there are in all."""

    values: tuple[str, ...]
    total: int


class Suggest(SessionRequest[Suggestions], frozen=True):
    """Complete the beginning of a name of what the session may see."""

    kind: Literal["entity", "tag"]
    prefix: str
    limit: int = 20


class EarlierSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another session of the project, which is over. `left` are its most important memories of those that the whole
    project may see, by their summary or else by how they begin."""

    session_id: str
    started_at: float
    last_active_at: float
    status: SessionStatus
    memories_promoted: int = 0
    left: tuple[str, ...] = ()


class SessionDescription(msgspec.Struct, frozen=True, tag=True):
    """The memories that a session stored and changed. `topics` are the entities and tags of its last thousand
    memories, the commonest first."""

    started_at: float | None
    stored_by_type: dict[str, int]
    changes: dict[str, int]
    topics: tuple[str, ...]
    status: SessionStatus = "active"
    summary: str | None = None
    turns: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    memories_promoted: int = 0
    memories_consolidated: int = 0
    average_importance: float | None = None
    earlier: tuple[EarlierSession, ...] = ()
    """The project's last sessions that are over, the latest first."""
    notices: tuple[Notice, ...] = ()


class DescribeSession(SessionRequest[SessionDescription], frozen=True):
    """Asks for what a session has done."""
