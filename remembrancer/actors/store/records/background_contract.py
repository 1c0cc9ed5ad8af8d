"""What the work in the background asks of records: material to think about, sessions and requests to be dealt with.

A part of `Records`. Reading may be done from any thread, writing is done from the store's one writer thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from remembrancer.protocol.consolidation import (
    EntityEdges,
    FindNear,
    Material,
    MemoriesRead,
    ReadMemories,
    SessionRead,
)
from remembrancer.protocol.reads import Promotion
from remembrancer.protocol.runs import Prune, Topic
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import MemoryLink


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


class BackgroundRecords(Protocol):
    """What is asked of one file for the consolidator's sake, and to explain what it did. Errors are as in `Records`."""

    def materials(self, request: ReadMemories, model: str | None) -> MemoriesRead:
        """A page of memories. Vectors are of `model` (None: there are none); `request.project` is not looked at."""

    def eligible(self, request: FindNear, limit: int, among: Sequence[int] | None = None) -> list[int] | None:
        """Numbers of the memories that a search may find (of `among` alone); None when there are more than `limit`."""

    def materials_of(self, numbers: Sequence[int]) -> dict[int, Material]:
        """These memories, by number and without vectors; what is gone or forgotten is left out."""

    def entity_edges(self, after: int = 0) -> EntityEdges:
        """Which entities a page of the memories of the project or the user name together, the best supported first."""

    def orphans(self, before: float) -> int:
        """How many entities no memory names that were made before a time (seconds since the epoch)."""

    def prunable(self, edit: Prune) -> int:
        """How many rows there are to be pruned."""

    def session_read(self, session_id: str, turns: int) -> SessionRead:
        """What is known of a session, with its last so many turns."""

    def open_sessions(self) -> list[SessionEntry]:
        """The sessions that are active, or have ended and wait for that to be dealt with, the first one first."""

    def consolidation_requests(self) -> list[ConsolidationRequest]:
        """The requests that have not been dealt with, the first one first."""

    def wants_consolidation(self, threshold: int) -> bool:
        """Whether `request_consolidation` would write a request now."""

    def request_consolidation(self, threshold: int, now: float) -> bool:
        """Ask for consolidation when more than `threshold` active memories have come since it was asked for last.

        False, and nothing is written, when it is not so or a request waits already. Writes: from the writer thread.
        """

    def promotable_now(self, score: float, limit: int = 200) -> list[Promotable]:
        """Running sessions' memories that could have at least this score, the first one first.

        Those whose importance and confidence alone do not rule it out: the consolidator decides.
        """

    def maintenance_state(self, what: str) -> MaintenanceState:
        """How things stand with a sort of maintenance."""

    def note_maintenance(self, what: str, at: float) -> None:
        """A sort of maintenance has been done. Writes: from the writer thread."""

    def promotions_of(self, memory_id: str) -> tuple[Promotion, ...]:
        """What the promotion log says of a memory and of those that were merged into it, the first one first."""

    def incoming_links(self, memory_id: str, session_id: str | None) -> tuple[MemoryLink, ...]:
        """Links of other memories to this one, as far as the session (None: anybody) may see those others.

        Each has the other memory as its `target`; the strongest are first, and forgotten ones are left out.
        """

    def observed_in(self, memory_id: str) -> tuple[str, ...]:
        """Ids of the projects in which a memory of the user was observed, the one that it came from first."""

    def topics(self) -> tuple[Topic, ...]:
        """The communities of entities that were found last."""
