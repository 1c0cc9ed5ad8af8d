"""What the store asks of its records: one Protocol, which every database behind it has to satisfy.

The records are the truth. One `Records` is one file: a project's (with its sessions' memories), or the user's. Methods
block, and may be called from any thread; the store calls the writing ones from its one writer thread only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.consolidation import (
    EntityEdges,
    FindNear,
    MemoriesRead,
    ReadEntityEdges,
    ReadMemories,
    ReadSession,
    ReadUpkeep,
    SessionRead,
    Upkeep,
)
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.kinds import Status
from remembrancer.protocol.reads import (
    Counts,
    EarlierSession,
    Fact,
    LinkedMemory,
    ListedMemory,
    MemoryCopy,
    Order,
    Promotion,
)
from remembrancer.protocol.reads import Filters as Filters
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    MemoryLink,
    MemoryType,
    NoteWritten,
    Operation,
    PortableMemory,
    Scope,
)


@dataclass(frozen=True, slots=True)
class ConsolidationRequest:
    """A file has more memories than it should. `requested_at` is seconds since the epoch."""

    number: int
    requested_at: float
    reason: str
    up_to: int
    """The number of the last memory that there was then."""


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """When maintenance was done last (None: never), and how many sessions have been closed since then."""

    done_at: float | None
    sessions_since: int


class Promotable(NamedTuple):
    """A running session's memory as it is looked at for promotion. Its score is another one when any of these is."""

    memory_id: str
    version: int
    accesses: int
    """As far as they count in the score."""


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """What a file has for the consolidator.

    `sessions` are active, or have ended and wait for that to be dealt with; `requests` have not been dealt with;
    `promotable` are memories of running sessions whose importance and confidence alone do not rule out that they have
    the score: the consolidator decides. The first ones come first. `is_crowded`: a request would be written now.
    """

    sessions: tuple[SessionEntry, ...]
    requests: tuple[ConsolidationRequest, ...]
    promotable: tuple[Promotable, ...]
    maintenance: MaintenanceState
    is_crowded: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a memory beside itself.

    `incoming` are links of other memories that are not forgotten, each with the other memory as its `target`, the
    strongest first; `promotions` is what the promotion log says of it and of those that were merged into it, the first
    one first; `observed_in` are the projects in which a memory of the user was observed, the one it came from first;
    `summed_up_in` are summaries that say what it says.
    """

    incoming: tuple[MemoryLink, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    observed_in: tuple[str, ...] = ()
    copies: tuple[MemoryCopy, ...] = ()
    summed_up_in: tuple[str, ...] = ()


class BackgroundRecords(Protocol):
    """What is asked of one file for the consolidator's sake, and to explain what it did. Errors are as in `Records`."""

    @overload
    def materials(self, request: ReadMemories, model: str | None = None) -> MemoriesRead: ...
    @overload
    def materials(self, request: list[int], model: str | None = None) -> MemoriesRead: ...
    @overload
    def materials(self, request: ReadEntityEdges, model: str | None = None) -> EntityEdges: ...
    @overload
    def materials(self, request: ReadUpkeep, model: str | None = None) -> Upkeep: ...
    @overload
    def materials(self, request: ReadSession, model: str | None = None) -> SessionRead: ...
    def materials(self, request: Any, model: str | None = None) -> Any:
        """What the consolidator works on: a page of memories (with vectors of `model`), the memories of these numbers
        (without), a page of pairs of entities that the memories of the project or the user name together, the best
        supported first, and so on. `request.project` is not looked at."""

    def surroundings(self, memory_id: str, content: str, session_id: str | None) -> Surroundings:
        """What is around a memory, so far as the session (None: anybody) may see it. Of a memory of another file its
        copies here alone."""

    def waiting_work(self, threshold: int, score: float, limit: int) -> WaitingWork:
        """What there is to be done in the background. `threshold` is that of `request_consolidation`; `score` and
        `limit` say which of running sessions' memories are looked at for promotion, and how many."""

    def request_consolidation(self, threshold: int, now: float) -> bool:
        """Ask for consolidation when more than `threshold` active memories have come since it was asked for last.

        False, and nothing is written, when it is not so or a request waits already. Writes: from the writer thread.
        """

    def note_maintenance(self, at: float) -> None:
        """Maintenance has been done. Writes: from the writer thread."""


Vectors = NDArray[np.float32]


class MemoryRecord(ListedMemory, frozen=True, kw_only=True):
    """A memory as it stands in the records. `number` identifies it inside its file."""

    number: int
    updated_at: float = 0.0
    last_accessed_at: float | None = None


class Phrase(NamedTuple):
    """Words that are looked for one after the other, in small letters with spaces between them.

    With `begins` the last of them may be the beginning of a word.
    """

    words: str
    begins: bool = False


class KeywordHit(msgspec.Struct, frozen=True, gc=False):
    """A memory that contains words of the query; `bm25` is larger for a better match.

    This and what else a recall makes by the hundred are structs: each is made in a thirtieth of a dataclass's time.
    """

    number: int
    bm25: float


@dataclass(frozen=True, slots=True)
class EmbeddedMemory:
    """The passages of a memory with their vectors, (len(passages), dimensions), unit length.

    `digest` is the SHA-256 of the text that was embedded.
    """

    number: int
    digest: bytes
    passages: tuple[Passage, ...] = ()
    vectors: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """Passages: their numbers, the memories they belong to, ordinals, vectors (n, dimensions), and which characters of
    its memory each one is. Vectors and ranges are there if they were asked for."""

    numbers: list[int]
    memories: list[int]
    ordinals: list[int]
    vectors: Vectors
    ranges: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class PassageFilter:
    """Which passages are wanted: those with these `numbers`, or those of a `model` (and of these `memories`). With
    `heads` the first passages of those memories that have several. `ranges`, `vectors`: whether these are read."""

    model: str | None = None
    memories: Sequence[int] | None = None
    numbers: Sequence[int] | None = None
    heads: bool = False
    ranges: bool = False
    vectors: bool = True
    limit: int = -1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many memories each scope has (if any), whosever they are, forgotten ones not counted; at least as many
    passages as there are; bytes on disk."""

    scopes: dict[Scope, int]
    passages: int
    bytes: int

    @property
    def memories(self) -> int:
        return sum(self.scopes.values())


@dataclass(frozen=True, slots=True)
class SavedEmbeddings:
    """What was kept of the vectors that came.

    `outdated` are the memories whose content has been changed since it was embedded: nothing was kept of theirs.
    """

    kept: PassageVectors
    outdated: list[int] = field(default_factory=list)


class NearDuplicate(NamedTuple):
    """Two memories that are nearly the same. `seen` are the passages whose vectors were compared."""

    later: int
    earlier: int
    cosine: float
    seen: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one operation, the memory that needs vectors because of it, and the passages that are gone.

    `also_to_embed` are the memories that a run made: those can be several.
    """

    reply: Applied | RemembrancerError
    to_embed: int | None = None
    removed_passages: tuple[int, ...] = ()
    also_to_embed: tuple[int, ...] = ()

    @property
    def all_to_embed(self) -> tuple[int, ...]:
        """Every memory that needs vectors."""
        return self.also_to_embed if self.to_embed is None else (self.to_embed, *self.also_to_embed)


class RankingFacts(msgspec.Struct, frozen=True, gc=False):
    """What the ranking needs to know of a memory. `happened_at` is `occurred_at`, or else `created_at`; `characters`
    are those of its content, and `language` is what this seems to be in (None: not known). `by_assistant`: it is an
    assistant's turn."""

    importance: float
    happened_at: float
    status: Status = "active"
    scope: Scope = "project"
    valid_until: float | None = None
    type: MemoryType = "semantic"
    characters: int = 0
    language: str | None = None
    by_assistant: bool = False


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What was stored around some memories: for each its neighbours by how many steps they are away (from 1), and what
    ranks these."""

    steps: dict[int, dict[int, int]]
    facts: dict[int, RankingFacts]


@dataclass(frozen=True, slots=True)
class SessionStory:
    """What one file knows of a session. `topics` counts the memories that name an entity or carry a tag.

    `changes` counts what the session did to memories apart from storing them, by the names that the history has.
    `communities` are the file's, whoever made them, and `earlier` are others of its sessions. Of the memories that are
    not forgotten, `consolidated` stand behind another, and `importance` is that of all together.
    """

    started_at: float | None
    stored: dict[tuple[MemoryType, Scope], int]
    changes: dict[str, int]
    topics: dict[str, int]
    communities: tuple[Topic, ...] = ()
    entry: SessionEntry | None = None
    turns: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    earlier: tuple[EarlierSession, ...] = ()
    remembered: int = 0
    consolidated: int = 0
    importance: float = 0.0


class EmbeddedTexts(Protocol):
    """Texts that have vectors: the memories of a file of records, or what was read from a project's files.

    What is said of memories below is said of either. Errors are as in `Records`.
    """

    @property
    def name(self) -> str:
        """What tells it from all others: `user`, a project's id, or that and `.files`."""

    @property
    def links_duplicates(self) -> bool:
        """Whether near-duplicates are worth looking for: it keeps links between them."""

    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        """What is to be embedded of each of the memories that are there."""

    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
        """Keep passages and vectors of `model`.

        A memory that is gone, or that has vectors of that model, is passed over, and so is one whose content is not
        what was embedded any more.
        """

    def prune_models(self, kept: Sequence[str], limit: int) -> int:
        """Delete passages of all models but these, `limit` at the most. How many they were."""

    def pending(self, model: str | None = None) -> list[int]:
        """Numbers of the memories that have no vectors of `model` (None: of any), oldest first."""

    def link_similar(self, links: Sequence[NearDuplicate]) -> None:
        """Note near-duplicates. Where a memory or a passage is gone, nothing is noted."""

    def compared(self, model: str) -> int:
        """Near-duplicates have been looked for, and noted, of every passage of `model` up to this number."""

    def note_compared(self, model: str, number: int) -> None:
        """Keep that number."""

    def passages(self, wanted: PassageFilter) -> PassageVectors:
        """The passages that pass the filter, the oldest first unless memories are named; what is gone is left out."""

    def is_embedded(self, model: str, number: int) -> bool:
        """Whether a memory has its vectors."""


class SearchedTexts(EmbeddedTexts, Protocol):
    """Texts that a recall looks into. Errors are as in `Records`."""

    def number_of(self, memory_id: str) -> int | None:
        """The number of a memory."""

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        *,
        apart: bool = False,
        counted: Mapping[Phrase, int] = MappingProxyType({}),
    ) -> list[list[KeywordHit]]:
        """The best `limit` memories that have any of the phrases (at least one), best first; in two lists, if the
        session's own are wanted `apart` from all others. A phrase that is there several times counts as often.
        `counted`: in how many memories some of the phrases are, if that is known.
        """

    def frequencies(self, groups: Sequence[Sequence[Phrase]]) -> list[int]:
        """How many memories have a phrase of each of these groups."""

    def words_in(
        self, groups: Sequence[Sequence[Phrase]], frequencies: Sequence[int], numbers: Sequence[int]
    ) -> dict[int, set[int]]:
        """The places of the groups of which each of these memories has a phrase. They are in so many memories."""

    def matching(self, filters: Filters | FindNear, limit: int, among: Sequence[int] | None = None) -> list[int] | None:
        """Numbers of all memories that pass the filters (of `among` alone); None when there are more than `limit`."""

    def top(self, filters: Filters, order: Order, limit: int, files: Sequence[str] | None = None) -> list[int]:
        """The first `limit` of the memories that pass the filters: the most important, the latest, or what has become
        valid last (what happened later goes first among the equally important, what was stored later among the
        simultaneous). With `files`, the latest of those in whose source a file's path holds one of them."""

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        """What ranks those of the memories that pass the filters."""

    def neighbours(self, numbers: Sequence[int], filters: Filters) -> Neighbours:
        """What passes the filters and was told just before or after these memories, in their session and scope.

        Of episodic memories alone."""

    def load(self, numbers: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        """Those of the memories that pass the filters; with None all, whosever they are."""

    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """For those of the memories that were merged into another one that one's id, in this file or another."""

    def sizes(self, *, on_disk: bool = False) -> Sizes:
        """How large the file is: known at once. Its bytes only if `on_disk`."""

    def summaries_of(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        """By number the summaries that say what some of these memories say, and which of them."""


class Records(SearchedTexts, BackgroundRecords, Protocol):
    """One file of records."""

    @property
    def graph(self) -> GraphRecords:
        """The entities that its memories name, and their edges."""

    # Every method may raise `RecordsUnusable` (the file is damaged), `StorageFull` (from those that write) or
    # `InternalError` (anything else that the database says); `apply` answers with them.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply each in order, all in one durable transaction, and answer each. An id seen before answers as before.

        An operation that cannot be applied changes nothing and does not hurt the others.
        """

    def touch(self, numbers: Sequence[int], at: float, session_id: str = "") -> None:
        """Count an access to each memory (twice in the list counts twice), and the session that it was shown to.

        What is archived becomes active by it: a version of its own, which belongs to no operation.
        """

    def import_sessions(self, sessions: Sequence[SessionEntry]) -> None:
        """Register sessions that were active at another time or place."""

    def begin_move(self, operation: Operation) -> Outcome | PortableMemory:
        """The first step of a promotion to another file: note it, and give the memory whole.

        What comes of the operation when it is refused, or was ended before. Repeating it is harmless.
        """

    def receive_move(self, operation: Operation, memory: PortableMemory) -> Outcome:
        """The second step, in the other file: take the memory in under the promotion's scope. Done once."""

    def end_move(self, operation: Operation, reply: Applied | None) -> tuple[int, ...]:
        """The third step: let the memory go, but for its history. Returns its passages, which are gone.

        Without a reply the first step is undone.
        """

    def moves(self) -> list[Operation]:
        """The moves that were begun and neither ended nor cancelled, oldest first. From the writer thread."""

    def begin_note(self, operation: Operation, result: NoteWritten) -> None:
        """Note that a note is about to be written, and what will have come of that. Durable when it returns."""

    def end_note(self, operation: Operation, result: NoteWritten) -> Outcome:
        """The note is written, and so the operation applied."""

    def forget_note(self, operation: Operation) -> None:
        """The note has not been written, and the operation not applied."""

    def notes_begun(self) -> list[tuple[Operation, NoteWritten]]:
        """The notes that were begun and not ended: a process died meanwhile. From the writer thread."""

    def scrub(self, memory_id: str) -> bool:
        """Take out what is left of an erased memory, also from the file's own log; whether anything was."""

    def is_erased(self, memory_id: str) -> bool:
        """Whether a memory of that id was erased here."""

    def outcome_of(self, operation_id: str) -> Applied | None:
        """What came of an operation when it was applied here; None when it was not."""

    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        """A memory whole, forgotten or not; None when there is none that the session (None: anybody) may see.

        Its links are those that begin at it, and whose other end the session may see; its versions those that a session
        of this project may.
        """

    def follow(self, memory_ids: Sequence[str], session_id: str, depth: int, limit: int) -> dict[int, LinkedMemory]:
        """By number the memories of these ids and those related to them, up to `depth` links away and `limit` of them:
        the nearest first. Only what the session sees, and is not forgotten."""

    def known_as_of(
        self, session_id: str, project_id: str, valid_at: float, as_of: float, limit: int, offset: int = 0
    ) -> list[tuple[float, ListedMemory]]:
        """What was valid at a time, by what the records said at another, each with the time that orders it: the last to
        become valid first, or, if `as_of` is the earlier, the last to be recorded.

        Each memory in the version that was current then, if the session may see it: without what was recorded later,
        with what was forgotten later.
        """

    def counts(self, session_id: str | None) -> Counts:
        """How much there is; of session memories only those of `session_id` (None: all of them)."""

    def session_story(self, session_id: str) -> SessionStory:
        """What a session has stored and changed here, forgotten memories included (but not in its topics)."""

    def merge_words(self) -> bool:
        """Merge some of what the index of words has taken in since: a search looks into each piece. Whether more is
        left. From the store's one writer thread."""

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database as far as readers allow. Never waits."""

    def close(self) -> None:
        """Close. May be called twice."""


class EntityRow(NamedTuple):
    """An entity as one file has it. `number` identifies it in there, `key` is its `name_key`."""

    number: int
    name: str
    key: str
    type: str


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Which entities are wanted, of those that a session may see: with exactly this `name`, of every type; with one of
    these `keys`; with keys that are `beginning` so; whose names have any (or `every` one) of the `phrases`, best first;
    or with these `numbers`, which the session has been shown. One of the five is given."""

    session_id: str
    name: str | None = None
    keys: Sequence[str] = ()
    beginning: str | None = None
    phrases: Sequence[Phrase] = ()
    every: bool = False
    numbers: Sequence[int] | None = None
    limit: int = -1


class EdgeRow(NamedTuple):
    """An edge between two entities of a file, in one spelling of its relationship, and how many memories say it.

    What is not valid any more counts as `forgotten`.
    """

    subject: int
    relationship: str
    target: int
    live: int
    forgotten: int


class SaidRow(NamedTuple):
    """An edge between two entities of a file, in one spelling of its relationship, and a memory that says it."""

    subject: int
    relationship: str
    target: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of some entities. `cut`: not all memories that name them were looked at, or not all edges are here."""

    rows: list[EdgeRow]
    cut: bool


class Link(NamedTuple):
    """A memory names an entity."""

    memory: int
    entity: int


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """The graph of a file at a glance. `connected` has the numbers of edges of the best connected entities, and
    `topics` are the communities of entities that were found last."""

    entities: int = 0
    relationships: int = 0
    entity_types: dict[str, int] = field(default_factory=dict)
    relationship_types: dict[str, int] = field(default_factory=dict)
    connected: dict[int, int] = field(default_factory=dict)
    topics: tuple[Topic, ...] = ()


class GraphRecords(Protocol):
    """The graph of one file, as one session sees it: `session_id` decides which session's memories count.

    Nothing here is stored twice: an edge between two entities is what the memories say that name both.
    """

    # Every method may raise what those of `Records` do.

    def entities(self, wanted: EntityFilter) -> list[EntityRow]:
        """The entities that pass the filter."""

    def edges(
        self, numbers: Sequence[int], session_id: str, *, outgoing: bool, relationships: Collection[str] | None
    ) -> Edges:
        """The edges that begin (`outgoing`) or end at these entities; of relationships with these keys, or of all.

        The best supported first, and not all of them where there are very many.
        """

    def said_by(self, pairs: Sequence[tuple[int, int]], session_id: str) -> list[SaidRow]:
        """Which unforgotten memories say more of these pairs (subject, target) than that both are mentioned: what is
        valid first, then the newest. Not all of them where there are very many."""

    def descriptions(self, numbers: Sequence[int], session_id: str) -> dict[int, tuple[str, str]]:
        """Of those of the entities that an unforgotten memory describes, the id and the content of the newest such."""

    def memory_counts(self, groups: Sequence[Sequence[int]], session_id: str) -> list[int]:
        """For each group of entities how many unforgotten memories name at least one of them."""

    def memories(
        self, numbers: Sequence[int], filters: Filters, limit: int, relationships: Collection[str] | None = None
    ) -> dict[int, RankingFacts]:
        """Of the memories that pass the filters and name these entities the `limit` most important and the `limit`
        latest, with what ranks them; with `relationships` (their `name_key`s) those that name them so. Of a hub's very
        many the newest are looked at.
        """

    def links_of(self, memories: Sequence[int]) -> list[Link]:
        """The entities that these memories name. Only for memories that the session has been shown."""

    def degrees(self, memories: Sequence[int], keys: Sequence[str], most: int) -> dict[int | str, int]:
        """How many edges these memories have of those that `adjacent` names, and the entities with each of these keys.

        At the most: those are counted, too, that a session does not see. Each sort of edge is counted up to `most`.
        """

    def adjacent(
        self, memories: Sequence[int], keys: Sequence[str], session_id: str
    ) -> list[tuple[int | str, int | str]]:
        """The edges of these memories, and of the entities with these keys, each named first.

        A memory (its number) is joined to the entities that it names (their `name_key`s) and to the memories that it is
        linked with, an entity also to those that a memory says to be related. Only what the session sees, and is not
        forgotten, and no links between memories of one and the same thing (`similar_to`, `derived_from`, `supersedes`,
        `contradicts`).
        """

    def summary(self, session_id: str, relationships: Collection[str] | None, limit: int) -> GraphSummary:
        """The whole graph (of relationships with these keys, or of all) with its `limit` best connected entities."""

    def uses(self, of: Literal["entity", "tag"], beginning: str, session_id: str) -> list[tuple[str, int]]:
        """Names of entities that begin so, as `name_key` compares them, or tags, in either case; and how many
        unforgotten memories have each (at least one)."""
