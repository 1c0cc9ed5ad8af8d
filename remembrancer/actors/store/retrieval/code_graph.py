"""The symbols of indexed code as a graph beside those of the records: a walk goes from a memory's entity to the code of
its name, and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from remembrancer.actors.store.records.contract import (
    EdgeRow,
    Edges,
    EntityFilter,
    EntityRow,
)
from remembrancer.actors.store.records.sqlite_graph import SqliteGraph
from remembrancer.code.index import MOST_RELATED, RELATIONSHIPS, CodeEntity, CodeIndex
from remembrancer.memory.names import name_key


class CodeGraph:
    """The entities of one tree and their edges, which no memory says. What memories name as well is of the type that it
    has in the graph `beside`, so that both are one node."""

    def __init__(self, index: CodeIndex, beside: SqliteGraph) -> None:
        self._index = index
        self._beside = beside
        self._met: dict[int, CodeEntity] = {}

    def entities(self, wanted: EntityFilter) -> list[EntityRow]:
        if wanted.numbers is not None:
            found = self._index.entities("number", wanted.numbers)
        elif wanted.name is not None:
            found = self._index.entities("name", [wanted.name])
        else:
            found = self._index.entities("key", wanted.keys)
        self._met |= {each.number: each for each in found}
        keys = sorted({each.key for each in found})
        named = EntityFilter(wanted.session_id, keys=keys)
        types = {row.key: row.type for row in self._beside.entities(named)} if keys else {}
        return [EntityRow(each.number, each.name, each.key, types.get(each.key, each.kind)) for each in found]

    def edges(
        self, numbers: Sequence[int], session_id: str, *, outgoing: bool, relationships: Collection[str] | None
    ) -> Edges:
        rows: list[EdgeRow] = []
        if relationships is not None and not any(name_key(each) in relationships for each in RELATIONSHIPS):
            return Edges(rows, cut=False)
        for number in numbers[:MOST_RELATED]:
            for relationship, other in self._index.relations(number, outgoing=outgoing):
                if relationships is None or name_key(relationship) in relationships:
                    ends = (number, relationship, other) if outgoing else (other, relationship, number)
                    rows.append(EdgeRow(*ends, live=1, forgotten=0))
        return Edges(rows[:MOST_RELATED], cut=len(rows) > MOST_RELATED)

    def descriptions(self, numbers: Sequence[int], session_id: str) -> dict[int, tuple[str, str]]:
        """The place of each, which is in no memory."""
        met = (self._met[number] for number in numbers if number in self._met)
        return {each.number: ("", f"{each.name} ({each.kind}): {each.path}:{each.line}") for each in met}
