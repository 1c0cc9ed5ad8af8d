"""The values that are given to the records (`Records` of `sqlite_records.py`) and returned by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.kinds import Kind, Relation, Status
from remembrancer.protocol.reads import (
    EarlierSession,
    Fact,
    ListedMemory,
    MemoryCopy,
    Promotion,
    Proposal,
)
from remembrancer.protocol.reads import Filters as Filters
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.session_life import RecordEvents, SessionEntry
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    MemoryLink,
    MemoryType,
    PortableMemory,
    Scope,
)

EVERY: Final = 2**31
"""More memories than any file has."""
USER: Final = "user"
RECORDS: Final = "records"
"""The name of all memories of a database together, and of the thread that writes them."""
"""The name of the user's file."""


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
    """The time of the last maintenance (None: never), and the number of sessions that have been closed since."""

    done_at: float | None
    sessions_since: int


class Promotable(NamedTuple):
    """A running session's memory as it is looked at for promotion. Its score is another one when any of these is."""

    memory_id: str
    version: int
    uses: int
    """As far as they count in the score."""


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """The work for the consolidator in one space.

    `sessions` are active, or have ended and wait for that to be dealt with; `requests` have not been dealt with;
    `promotable` are memories of running sessions whose importance and confidence alone do not rule out that they have
    the score: the consolidator decides. The first ones come first. `is_crowded`: a request would be written now.
    `oldest_at` is when the first memory was made, None where there is none.
    """

    sessions: tuple[SessionEntry, ...] = ()
    requests: tuple[ConsolidationRequest, ...] = ()
    promotable: tuple[Promotable, ...] = ()
    maintenance: MaintenanceState = MaintenanceState(None, 0)
    is_crowded: bool = False
    oldest_at: float | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The knowledge of a memory that is not in it.

    `incoming` are links of other memories that are not forgotten, each with the other memory as its `target`, the
    strongest first; `promotions` is what the promotion log says of it and of those that were merged into it, the first
    one first; `observed_in` are the projects in which a memory of the user was observed, the one it came from first;
    `summed_up_in` are summaries that say what it says; `proposal` is that it goes to the user; `found_entities` are
    names that were found in it.
    """

    incoming: tuple[MemoryLink, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    observed_in: tuple[str, ...] = ()
    copies: tuple[MemoryCopy, ...] = ()
    summed_up_in: tuple[str, ...] = ()
    proposal: Proposal | None = None
    found_entities: tuple[str, ...] = ()


Vectors = NDArray[np.float32]


class MemoryRecord(ListedMemory, frozen=True, kw_only=True):
    """A memory as it stands in the records. `number` identifies it inside its file."""

    number: int
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
    """Which passages are wanted: those with these `numbers`, or those of a `model` (and of these `memories`, or with
    higher numbers than `after`). With `heads` the first passages of those memories that have several. `ranges`,
    `vectors`: whether these are read."""

    model: str | None = None
    memories: Sequence[int] | None = None
    numbers: Sequence[int] | None = None
    after: int | None = None
    heads: bool = False
    ranges: bool = False
    vectors: bool = True
    limit: int = -1


@dataclass(frozen=True, slots=True)
class Survey:
    """Spaces at the beginning of a recall, by their numbers: how many memories of each scope they have, whosever these
    are, forgotten ones not counted; in how many of them each group of phrases is; and the session's own memories (None:
    they are many)."""

    sizes: dict[int, dict[Scope, int]]
    frequencies: dict[int, list[int]]
    own: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class SavedEmbeddings:
    """The outcome of keeping vectors that came: the numbers of the passages that were `kept`.

    `outdated` are the memories whose content has been changed since it was embedded: nothing was kept of theirs.
    `spaces` are those that have got vectors, with how many memories they have got some of at the most.
    """

    kept: list[int]
    outdated: list[int] = field(default_factory=list)
    spaces: dict[str, int] = field(default_factory=dict)


class NearDuplicate(NamedTuple):
    """Two memories that are near each other, and the link between them that is to be noted, with `cosine` (of
    `contradicts`: the probability) as its strength. `seen` are the passages whose vectors were compared, and
    `begins_alike` says that these are the first ones of both."""

    later: int
    earlier: int
    cosine: float
    seen: tuple[int, ...] = ()
    begins_alike: bool = True
    relation: Relation = "similar_to"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one operation, and the first memory that needs vectors because of it."""

    reply: Applied | RemembrancerError
    to_embed: int | None = None


class RankingFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts by which a memory is ranked. `happened_at` is `occurred_at`, or else `created_at`. `by_assistant`: it
    is an assistant's turn."""

    importance: float
    happened_at: float
    status: Status = "active"
    scope: Scope = "project"
    valid_until: float | None = None
    type: MemoryType = "semantic"
    by_assistant: bool = False
    kind: Kind | None = None
    space: int = 0
    """The number of the space that it lies in."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The memories that were stored around some others: for each its neighbours by how many steps they are away (from
    1), and what ranks these."""

    steps: dict[int, dict[int, int]]
    facts: dict[int, RankingFacts]


@dataclass(frozen=True, slots=True)
class SessionStory:
    """The knowledge of one file about a session. `topics` counts those of its last thousand memories that name an
    entity or carry a tag.

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


class SessionStart(NamedTuple):
    """The time at which a session began (None: it is unknown here), and how many memories it stored, forgotten or
    not."""

    started_at: float | None
    stored: int


class TextToEmbed(msgspec.Struct, frozen=True, gc=False):
    """A memory's text that has no vectors, and its SHA-256. `is_alone`: workers have died that had it in hand."""

    number: int
    content: str
    digest: bytes
    is_alone: bool = False

    @property
    def size_bytes(self) -> int:
        return len(self.content.encode())


MAX_ATTEMPTS: Final = 3
"""After so many attempts, or workers that died with it in hand, a text is a dead letter."""


class Belongings(NamedTuple):
    """The contents that a file gives to another that takes its place: memories, sessions that are over, and turns and
    tool calls of those that go on (the others' have been counted)."""

    memories: tuple[PortableMemory, ...]
    sessions: tuple[SessionEntry, ...]
    events: tuple[RecordEvents, ...]


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
