"""Joins the graphs of memories and of code, and walks through the result.

A node is an entity in all spaces and spellings: the key of a name, and a type. An edge is stated by memories; it is
stale if all of them are forgotten. Stale edges are followed like others, and ranked last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from remembrancer.actors.store.records.contract import (
    EdgeRow,
    Edges,
    EntityFilter,
    EntityRow,
    Filters,
    GraphSummary,
    Phrase,
    RankingFacts,
)
from remembrancer.actors.store.records.sqlite_graph import SqliteGraph
from remembrancer.code.index import MOST_RELATED, RELATIONSHIPS, CodeEntity, CodeIndex
from remembrancer.memory.names import name_key
from remembrancer.memory.pagerank import Around
from remembrancer.protocol.reads import Direction, Fact

Ref = int
"""A memory of a view: its number in the database. Chunks of notes have negative numbers."""
STALE_WORTH: Final = 0.5
"""The fraction of an entity's nearness that remains if only forgotten memories connect it."""
LONE_WORTH: Final = 0.8
"""The worth of a memory with a single nearest entity, as a fraction of the worth with any number of them."""


class Node(NamedTuple):
    """An entity in all its spellings. `key` is its `name_key`, `type` is in lower case."""

    key: str
    type: str


class Edge(NamedTuple):
    """`subject` --`relationship`--> `target`. The relationship is a `name_key` too."""

    subject: Node
    relationship: str
    target: Node


class Sighting(NamedTuple):
    """A row of a graph that states an edge, with the number of memories. The same row may be seen from both ends."""

    row: Hashable
    edge: Edge
    live: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class Expansion:
    """The edges of some nodes. `cut`: not all of them were read."""

    sightings: Sequence[Sighting]
    cut: bool = False


class Reached(NamedTuple):
    """A node reached by a walk: its hops, the memories that connect it to nearer nodes, and whether all are
    forgotten."""

    distance: int
    weight: int = 0
    stale: bool = False


class Support(NamedTuple):
    """The number of memories that state an edge."""

    live: int
    forgotten: int

    @property
    def stale(self) -> bool:
        return self.live == 0


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of a walk. `reached` is ordered by distance, then current before stale, then by connections.

    `edges` are those of every node nearer than the walk's depth. `cut`: the walk was incomplete.
    """

    reached: dict[Node, Reached]
    edges: dict[Edge, Support]
    depth_reached: int
    cut: bool


def walk(starts: Iterable[Node], expand: Callable[[Sequence[Node]], Expansion], depth: int, widest: int) -> Walk:
    """Walk breadth first from `starts` for `depth` hops; the `widest` best connected nodes of each level lead on."""
    reached = {start: Reached(0) for start in starts}
    rows: dict[Hashable, Sighting] = {}
    frontier = list(reached)
    depth_reached, cut = 0, False
    for distance in range(1, depth + 1):
        if not frontier:
            break
        leading = frontier[:widest]
        expansion = expand(leading)
        cut = cut or expansion.cut or len(leading) < len(frontier)
        for sighting in expansion.sightings:
            known = rows.get(sighting.row)
            if known is None or known.live + known.forgotten < sighting.live + sighting.forgotten:
                rows[sighting.row] = sighting
        found = _next_level(expansion.sightings, set(leading), reached, distance)
        if found:
            depth_reached = distance
        reached.update(found)
        frontier = list(found)
    return Walk(reached, _supports(rows.values()), depth_reached, cut)


def _next_level(
    sightings: Iterable[Sighting], leading: set[Node], reached: dict[Node, Reached], distance: int
) -> dict[Node, Reached]:
    """Return the nodes that edges from `leading` reach for the first time, best connected first."""
    weights: dict[Node, int] = {}
    fresh: set[Node] = set()
    for sighting in sightings:
        subject, _, target = sighting.edge
        for here, there in ((subject, target), (target, subject)):
            if here in leading and there not in reached:
                weights[there] = weights.get(there, 0) + sighting.live
                if sighting.live and not reached[here].stale:
                    fresh.add(there)
    found = [(node, Reached(distance, weight, node not in fresh)) for node, weight in weights.items()]
    found.sort(key=lambda each: (each[1].stale, -each[1].weight, each[0]))
    return dict(found)


def _supports(sightings: Iterable[Sighting]) -> dict[Edge, Support]:
    """Return the edges that the rows state, best supported first. Edges between spellings of one name are dropped."""
    live: dict[Edge, int] = {}
    forgotten: dict[Edge, int] = {}
    for sighting in sightings:
        edge = sighting.edge
        if edge.subject != edge.target:
            live[edge] = live.get(edge, 0) + sighting.live
            forgotten[edge] = forgotten.get(edge, 0) + sighting.forgotten
    order = sorted(live, key=lambda edge: (-live[edge], -forgotten[edge], edge))
    return {edge: Support(live[edge], forgotten[edge]) for edge in order}


def connection(entities: Iterable[Reached]) -> float:
    """Return the worth of a memory by its entities, in [0, 1]: the nearest one counts, and the number of equally near
    ones.

    A requested entity is worth 1, and others less with each hop. Up to three hops, a memory with a nearer entity is
    never worth less than one with farther ones.
    """
    worths = [(STALE_WORTH if each.stale else 1.0) / (1 + each.distance) for each in entities]
    if not worths:
        return 0.0
    best = max(worths)
    return best * (1.0 - (1.0 - LONE_WORTH) / worths.count(best))


class CodeGraph:
    """The entities of a code tree and their edges, which no memory states. An entity that memories also name gets its
    type from the graph `beside`, so that both are one node."""

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
        """Return the location of each entity; no memory describes it."""
        met = (self._met[number] for number in numbers if number in self._met)
        return {each.number: ("", f"{each.name} ({each.kind}): {each.path}:{each.line}") for each in met}


class JoinedGraph:
    """The graph of `memories` as one session sees it, and the graphs of code. It caches, for one request, which
    entities form which node. `own` is the graph of the project's own space."""

    def __init__(
        self, memories: SqliteGraph, session_id: str, own: SqliteGraph | None = None, code: Iterable[CodeIndex] = ()
    ) -> None:
        self._memories = memories
        self._own = own
        self._session_id = session_id
        self._graphs: list[SqliteGraph | CodeGraph] = [memories, *(CodeGraph(index, memories) for index in code)]
        self._nodes: list[dict[int, Node]] = [{} for _ in self._graphs]
        self._numbers: list[dict[Node, list[int]]] = [{} for _ in self._graphs]
        self._complete: set[Node] = set()
        self._absent: set[str] = set()
        """The keys that were looked up and that memories do not have."""
        self._names: dict[Node, str] = {}
        self._relationships: dict[str, str] = {}
        self._relationship_keys: dict[str, str] = {}

    def name(self, node: Node) -> str:
        """Return a node's name, in the first spelling seen."""
        return self._names[node]

    def relationship(self, key: str) -> str:
        """Return a relationship in a spelling of its edges."""
        return self._relationships[key]

    def named(self, name: str) -> list[Node]:
        """Return the nodes with exactly this name, of any type."""
        return self._found(EntityFilter(self._session_id, name=name))

    def keyed(self, keys: Sequence[str]) -> list[Node]:
        """Return the nodes with these keys."""
        return self._found(EntityFilter(self._session_id, keys=keys))

    def matching(self, phrases: Sequence[Phrase], limit: int, *, every: bool = False) -> list[Node]:
        """Return the best `limit` nodes of each space whose names have any (or `every` one) of the phrases."""
        if not phrases:
            return []
        return self._found(EntityFilter(self._session_id, phrases=phrases, every=every, limit=limit))

    def beginning(self, key: str, limit: int) -> list[Node]:
        """Return at most `limit` nodes of each graph whose keys have that beginning."""
        return self._found(EntityFilter(self._session_id, beginning=key, limit=limit))

    def edges(
        self, nodes: Sequence[Node], *, direction: Direction = "both", relationships: Collection[str] | None = None
    ) -> Expansion:
        """Return the edges of these nodes in all graphs; of relationships with these keys, or of all."""
        self._find_spellings(nodes)
        sightings: list[Sighting] = []
        cut = False
        for place, graph in enumerate(self._graphs):
            numbers = self._numbers_of(place, nodes)
            for outgoing in (True, False):
                if not numbers or direction == ("incoming" if outgoing else "outgoing"):
                    continue
                found = graph.edges(numbers, self._session_id, outgoing=outgoing, relationships=relationships)
                cut = cut or found.cut
                self._meet(place, list({row.target if outgoing else row.subject for row in found.rows}))
                known = self._nodes[place]
                for subject, relationship, target, live, forgotten in found.rows:
                    edge = Edge(known[subject], self._relationship_key(relationship), known[target])
                    sightings.append(Sighting((place, subject, relationship, target), edge, live, forgotten))
        return Expansion(sightings, cut)

    def facts(self, edges: Collection[Edge]) -> dict[Edge, list[Fact]]:
        """Return the memories that state each of these edges, valid ones first."""
        found: dict[Edge, list[Fact]] = {}
        numbers, known = self._numbers[0], self._nodes[0]
        pairs = {
            (subject, target)
            for edge in edges
            for subject in numbers.get(edge.subject, ())
            for target in numbers.get(edge.target, ())
        }
        for subject, relationship, target, fact in (
            self._memories.said_by(sorted(pairs), self._session_id) if pairs else ()
        ):
            edge = Edge(known[subject], self._relationship_key(relationship), known[target])
            if edge in edges:
                found.setdefault(edge, []).append(fact)
        return found

    def descriptions(self, nodes: Sequence[Node]) -> dict[Node, tuple[str, str]]:
        """Return the id and content of the memory that describes each of these nodes, if there is one."""
        found: dict[Node, tuple[str, str]] = {}
        for place, graph in enumerate(self._graphs):
            numbers = self._numbers_of(place, nodes)
            if numbers:
                described = graph.descriptions(numbers, self._session_id)
                found = {self._nodes[place][number]: each for number, each in described.items()} | found
        return found

    def memory_counts(self, nodes: Sequence[Node]) -> dict[Node, int]:
        """Return the number of unforgotten memories that name each node."""
        self._find_spellings(nodes)
        counts = dict.fromkeys(nodes, 0)
        there = [node for node in nodes if node in self._numbers[0]]
        if there:
            groups = [self._numbers[0][node] for node in there]
            counts.update(zip(there, self._memories.memory_counts(groups, self._session_id), strict=True))
        return counts

    def memories(
        self, nodes: Sequence[Node], filters: Filters, limit: int, relationships: Collection[str] | None = None
    ) -> dict[Ref, RankingFacts]:
        """Return the `limit` most important and latest memories that pass the filters and name these nodes."""
        self._find_spellings(nodes)
        numbers = self._numbers_of(0, nodes)
        return self._memories.memories(numbers, filters, limit, relationships) if numbers else {}

    def nodes_named_by(self, memories: Iterable[Ref], among: Collection[Node] | None = None) -> dict[Ref, set[Node]]:
        """Return the nodes (of some, or of all) that memories name. Only for memories that the session was shown."""
        named: dict[Ref, set[Node]] = {}
        asked = [memory for memory in memories if memory > 0]
        links = self._memories.links_of(asked) if asked else ()
        if links and among is None:
            self._meet(0, list({entity for _, entity in links}))
        elif links and among is not None:
            self._find_spellings(among)
        for memory, entity in links:
            node = self._nodes[0].get(entity)
            if node is not None and (among is None or node in among):
                named.setdefault(memory, set()).add(node)
        return named

    def overview(
        self, relationships: Collection[str] | None, limit: int
    ) -> tuple[GraphSummary, dict[Node, int]] | None:
        """Return an overview of the project's graph, and its best connected nodes with their edge counts. None: it is
        empty."""
        if self._own is None:
            return None
        summary = self._own.summary(self._session_id, relationships, limit)
        self._meet(0, list(summary.connected))
        degrees: Counter[Node] = Counter()
        for number, degree in summary.connected.items():
            if (node := self._nodes[0].get(number)) is not None:
                degrees[node] += degree
        return summary, degrees

    def uses(self, of: Literal["entity", "tag"], beginning: str) -> Iterable[tuple[str, int]]:
        """Return entity names, or tags, with that beginning, each with its number of unforgotten memories."""
        return self._memories.uses(of, beginning, self._session_id)

    def look(self, nodes: Mapping[Ref | str, int]) -> Around[Ref | str]:
        """Return the neighbourhood of memories, and of entities by key, for `personal_pagerank`: for each the number of
        its edges, and its neighbours if the number does not exceed the limit given for it."""
        degrees: dict[Ref | str, int] = {}
        near: defaultdict[Ref | str, dict[Ref | str, None]] = defaultdict(dict)
        keys = {node: most for node, most in nodes.items() if isinstance(node, str) and node not in self._absent}
        memories = {node: most for node, most in nodes.items() if not isinstance(node, str)}
        found = self._memories.around(memories, keys, self._session_id) if memories or keys else ()
        self._absent.update(keys.keys() - {here for here, _, _ in found})
        for here, there, degree in found:
            if there is None:
                degrees[here] = degrees.get(here, 0) + degree
            elif here != there:
                near[here][there] = None
        whole = {node: list(near[node]) for node, degree in degrees.items() if degree <= nodes[node]}
        return Around(degrees, whole)

    def _find_spellings(self, nodes: Iterable[Node]) -> None:
        """Look up all spellings of these nodes in all graphs; so far only some may be known."""
        missing = [node for node in nodes if node not in self._complete]
        if missing:
            self.keyed(sorted({node.key for node in missing}))
            self._complete.update(missing)

    def _found(self, wanted: EntityFilter) -> list[Node]:
        rows = [graph.entities(wanted) for graph in self._graphs]
        return list(dict.fromkeys(node for place, its in enumerate(rows) for node in self._adopt(place, its)))

    def _meet(self, place: int, numbers: Sequence[int]) -> None:
        """Load the nodes of a graph's entities."""
        new = [number for number in numbers if number not in self._nodes[place]]
        if new:
            self._adopt(place, self._graphs[place].entities(EntityFilter(self._session_id, numbers=new)))

    def _adopt(self, place: int, rows: Iterable[EntityRow]) -> list[Node]:
        found: list[Node] = []
        nodes, numbers = self._nodes[place], self._numbers[place]
        for number, name, key, kind in rows:
            node = nodes.get(number)
            if node is None:
                node = nodes[number] = Node(key, kind.lower())
                numbers.setdefault(node, []).append(number)
                self._names.setdefault(node, name)
            found.append(node)
        return found

    def _numbers_of(self, place: int, nodes: Sequence[Node]) -> list[int]:
        numbers = self._numbers[place]
        return [number for node in nodes for number in numbers.get(node, ())]

    def _relationship_key(self, relationship: str) -> str:
        key = self._relationship_keys.get(relationship)
        if key is None:
            key = self._relationship_keys[relationship] = name_key(relationship)
            self._relationships.setdefault(key, relationship)
        return key
