"""What the graph asks of one file of records: one narrow Protocol, which every database behind it has to satisfy.

Nothing here is stored twice: an edge between two entities is what the memories say that name both. A memory that the
asking session may not see says nothing. Methods block, and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from remembrancer.actors.store.records.contract import Filters, RankingFacts


class EntityRow(NamedTuple):
    """An entity as one file has it. `number` identifies it in there, `key` is its `name_key`."""

    number: int
    name: str
    key: str
    type: str


class EdgeRow(NamedTuple):
    """An edge between two entities of a file, in one spelling of its relationship, and how many memories say it."""

    subject: int
    relationship: str
    target: int
    live: int
    forgotten: int


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
    """The graph of a file at a glance. `connected` has the numbers of edges of the best connected entities."""

    entities: int = 0
    relationships: int = 0
    entity_types: dict[str, int] = field(default_factory=dict)
    relationship_types: dict[str, int] = field(default_factory=dict)
    connected: dict[int, int] = field(default_factory=dict)


class GraphRecords(Protocol):
    """The graph of one file, as one session sees it: `session_id` decides which session's memories count."""

    # Every method may raise what those of `Records` do.

    def entities_named(self, name: str, session_id: str) -> list[EntityRow]:
        """Entities with exactly this name, of every type."""

    def entities_keyed(self, keys: Sequence[str], session_id: str) -> list[EntityRow]:
        """Entities with one of these keys."""

    def entities_matching(self, match: str, session_id: str, limit: int) -> list[EntityRow]:
        """The best `limit` entities for a full-text expression over the words of names, best first."""

    def entities_beginning(self, key: str, session_id: str, limit: int) -> list[EntityRow]:
        """At most `limit` entities whose keys begin so."""

    def entities(self, numbers: Sequence[int]) -> list[EntityRow]:
        """These entities. Only for numbers that the session has been shown."""

    def edges(
        self, numbers: Sequence[int], session_id: str, *, outgoing: bool, relationships: Collection[str] | None
    ) -> Edges:
        """The edges that begin (`outgoing`) or end at these entities; of relationships with these keys, or of all.

        The best supported first, and not all of them where there are very many.
        """

    def memory_counts(self, groups: Sequence[Sequence[int]], session_id: str) -> list[int]:
        """For each group of entities how many unforgotten memories name at least one of them."""

    def memories(self, numbers: Sequence[int], filters: Filters, limit: int) -> dict[int, RankingFacts]:
        """Of the memories that pass the filters and name these entities the `limit` most important and the `limit`
        latest, with what ranks them. Of a hub's very many the newest are looked at.
        """

    def links_of(self, memories: Sequence[int]) -> list[Link]:
        """The entities that these memories name. Only for memories that the session has been shown."""

    def summary(self, session_id: str, relationships: Collection[str] | None, limit: int) -> GraphSummary:
        """The whole graph (of relationships with these keys, or of all) with its `limit` best connected entities."""

    def entity_uses(self, key: str, session_id: str) -> list[tuple[str, str, int]]:
        """Names whose keys begin so, their keys, and how many unforgotten memories name them (at least one)."""

    def tag_uses(self, beginning: str, session_id: str) -> dict[str, int]:
        """Tags that begin so in either case, and how many unforgotten memories have them (at least one)."""
