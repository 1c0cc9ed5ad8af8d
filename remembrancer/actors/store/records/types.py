"""Arguments and results of the records, and the form in which rules read and change memories."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.index_file import FIRST_CHUNK
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.consolidation import Promotable
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.kinds import Kind, Relation, Status
from remembrancer.protocol.reads import Filters as Filters
from remembrancer.protocol.reads import ListedMemory
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, MemoryType, MemoryVersion, Scope

Clock = Callable[[], float]
"""Seconds since the epoch."""
NO_LIMIT: Final = 2**31
USER: Final = "user"
RECORDS: Final = "records"
"""The name for all memories of a database together, and for the thread that writes them."""


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """The consolidator's work in one space. `sessions` are active, or ended but not yet processed; `promotable` are
    memories of running sessions that might be promoted, newest first. `maintained_at` is the time of the last
    maintenance, `sessions_since` the number of sessions closed since, `oldest_at` the time of the first memory."""

    sessions: tuple[SessionEntry, ...] = ()
    promotable: tuple[Promotable, ...] = ()
    maintained_at: float | None = None
    sessions_since: int = 0
    oldest_at: float | None = None


Vectors = NDArray[np.float32]

SOON_TOLD_S: Final = 14 * DAY_S


def is_memory(number: int) -> bool:
    return number < FIRST_CHUNK


@dataclass(frozen=True, slots=True)
class AgeKey:
    """The newer of two memories has the greater key: the day shown in lists, then the time when it was stored. Only
    this key decides which may replace the other, however they are linked: an import may store the older one last."""

    occurred_at: float | None
    created_at: float
    number: int

    def __lt__(self, other: Self) -> bool:
        return (self._time_beside(other), self.number) < (other._time_beside(self), other.number)

    def _time_beside(self, other: Self) -> float:
        """The time of the event, or else of storing. An event's time is moved towards the time of storing: by up to a
        day if only its day is given (in UTC), or by up to `SOON_TOLD_S` if the other memory has no event."""
        if (at := self.occurred_at) is None:
            return self.created_at
        told_within = SOON_TOLD_S if other.occurred_at is None else DAY_S * (at % DAY_S == 0)
        return max(at, min(self.created_at, at + told_within))


class MemoryRecord(ListedMemory, frozen=True, kw_only=True):
    """A memory as stored. `number` identifies it in the space with the number `space` (0: it is a chunk of notes)."""

    number: int
    space: int = 0

    @property
    def age_key(self) -> AgeKey:
        return AgeKey(self.occurred_at, self.created_at, self.number)


class Phrase(NamedTuple):
    """Consecutive words in lower case, separated by spaces. With `begins`, the last one may be the start of a word."""

    words: str
    begins: bool = False


Hits = dict[int, float]
"""The BM25 scores of memories that contain words of a query, best first. Larger is better."""


@dataclass(frozen=True, slots=True)
class EmbeddedMemory:
    """A memory's passages with their unit vectors, (passages, dimensions). `digest` is the SHA-256 of its text."""

    number: int
    digest: bytes
    passages: tuple[Passage, ...] = ()
    vectors: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """Passages: numbers, memories, ordinals, and vectors (n, dimensions)."""

    numbers: list[int]
    memories: list[int]
    ordinals: list[int]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Survey:
    """Statistics of spaces at the start of a recall, by space number: the number of unforgotten memories, visible or
    not; the memories with each group of phrases; and the session's own memories, unless there are too many."""

    sizes: dict[int, int]
    postings: dict[int, list[list[int]]]
    own: Mapping[int, Sequence[int]]


class NearDuplicate(NamedTuple):
    """A pair of similar memories, and the link to store between them, with `cosine` as its strength (for `contradicts`,
    the probability). `seen` are the passages that were compared."""

    later: int
    earlier: int
    cosine: float
    seen: tuple[int, ...] = ()
    relation: Relation = "similar_to"


NearestTo = Callable[[Sequence[int]], Mapping[int, Mapping[int, float]]]
Outcome = Applied | RemembrancerError


class RankingFacts(msgspec.Struct, frozen=True, gc=False):
    """`happened_at` is `occurred_at`, or else `created_at`. `by_assistant` is true for an assistant's turn, `is_event`
    for a memory that says what happened, or on which day."""

    importance: float
    happened_at: float
    status: Status = "active"
    scope: Scope = "project"
    valid_until: float | None = None
    type: MemoryType = "semantic"
    by_assistant: bool = False
    kind: Kind | None = None
    space: int = 0
    is_event: bool = False


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The memories around some others: each one's neighbours, with their distance in steps (from 1), and facts."""

    steps: dict[int, dict[int, int]]
    facts: dict[int, RankingFacts]


class TextToEmbed(msgspec.Struct, frozen=True, gc=False):
    """A text to embed, and its SHA-256. If `is_alone`, it is embedded alone, since it may have killed workers."""

    number: int
    content: str
    digest: bytes
    is_alone: bool = False

    @property
    def size_bytes(self) -> int:
        return len(self.content.encode())


class FailedText(NamedTuple):
    """A text that could not be embedded, with the reason. `died` is true if its worker died. A dead letter is not tried
    again before `until` (seconds since the epoch)."""

    number: int
    reason: str
    died: bool = False
    until: float = 0.0


MAX_ATTEMPTS: Final = 3
"""The number of failed attempts, or dead workers, that make a text a dead letter."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as it is in a space, without its history and links. `number` is its row number."""

    number: int
    id: str
    version: int
    now: MemoryVersion
    created_at: float
    updated_at: float
    access_count: int
    last_accessed_at: float | None
    forgotten_at: float | None
    promotion_chain: tuple[ChainLink, ...]
    source_project: str | None

    @property
    def age_key(self) -> AgeKey:
        return AgeKey(self.now.occurred_at, self.created_at, self.number)


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    target: str
    relation: str
    strength: float
    created_at: float
