"""The graph of the memories that a session sees, as stored in the database, and its PageRank.

A node is an entity in all spaces and spellings: the key of a name, and a type. An edge is stated by memories; it is
stale if all of them are forgotten. In the database, edges are rows of `memory_entities`: `subject` --`edge`-->
`entity`, stated by `memory`. Queries have limits, so that hubs do not make them slow.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from remembrancer.actors.sqlite_file import AMONG, json_list
from remembrancer.actors.store.records.search import RANKING_COLUMNS, condition_of, expression_of
from remembrancer.actors.store.records.sessions import read_topics
from remembrancer.actors.store.records.space import APART, Spaces, shown_to, visible
from remembrancer.actors.store.records.types import Filters, Phrase, RankingFacts, is_memory
from remembrancer.memory.names import name_key
from remembrancer.memory.pagerank import DAMPING, Around, personal_pagerank
from remembrancer.protocol.reads import Direction, Fact
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import DESCRIBED_AS, MENTIONED_WITH

MAX_ROWS, MIN_ROWS = 1000, 50
"""The maximum number of rows of `memory_entities` read for all entities of a step, and the minimum for each entity."""
MAX_EDGES: Final = 200
"""The number of edges in one answer, best supported first."""
MAX_FACTS: Final = 1000
"""The maximum number of memories read to show where edges come from."""
PAGERANK_SEEDS: Final = 20
MAX_COUNTED: Final = 1000
"""For a memory at which a walk starts, each kind of edge is counted up to this number."""
MIN_SHARE: Final = 0.03
"""Smaller shares of the walk come from names that are in many memories, such as speakers' names."""
MIN_RECEIVED: Final = 1e-9
"""Smaller values are rounding errors."""
IS_APART: Final = "a.number = {}.memory AND (a.forgotten_at IS NOT NULL OR a.scope = 'session')"
"""Few memories are in the index used here: most are unforgotten and visible to all users of the space."""
IS_SHOWN: Final = f"""NOT EXISTS (SELECT 1 FROM {APART} WHERE {IS_APART.format("s")}
                      AND NOT {shown_to("a")})"""  # noqa: S608 - fixed clauses
IS_VISIBLE: Final = f"EXISTS (SELECT 1 FROM memory_entities AS s WHERE s.entity = e.number AND {IS_SHOWN})"  # noqa: S608 - fixed clauses
IS_OVER: Final = (
    "a.number = {}.memory AND (a.forgotten_at IS NOT NULL OR a.scope = 'session' OR a.valid_until IS NOT NULL)"
)
"""Like `IS_APART`, but also includes memories with an end of validity."""
IS_SEEN: Final = f"""NOT EXISTS (SELECT 1 FROM {APART} WHERE {IS_APART}
                   AND (a.forgotten_at IS NOT NULL OR NOT {shown_to("a")}))"""  # noqa: S608 - fixed clauses
ALIKE: Final = "('similar_to', 'derived_from', 'supersedes', 'contradicts')"
"""Links between memories about the same thing. They are not followed, since a search finds these memories anyway."""
_WAYS: Final = ("outgoing", "subject", "entity DESC, memory DESC"), ("incoming", "entity", "memory DESC")
"""The directions of edges, each with the column of the nodes, and the order in which rows are read."""
_ENTITIES: Final = "SELECT e.number, e.name, e.key, e.type FROM entities AS e"


class Node(NamedTuple):
    """An entity in all its spellings. `key` is a `name_key`, `type` is in lower case."""

    key: str
    type: str


class Edge(NamedTuple):
    """`subject` --`relationship`--> `target`. The relationship is a `name_key`."""

    subject: Node
    relationship: str
    target: Node


class Expansion(NamedTuple):
    """Edges, each with the number of valid memories that state it. If `cut`, not all edges were read."""

    edges: Mapping[Edge, int]
    cut: bool = False


def _counted(*edges: str) -> str:
    return " + ".join(f"(SELECT count(*) FROM (SELECT 1 FROM {each} LIMIT :most))" for each in edges)  # noqa: S608


def _around() -> str:
    links = [f"memory_links WHERE {end} = m.number AND relation NOT IN {ALIKE}" for end in ("source", "target")]
    ends = "memory_entities WHERE entity = e.number", "memory_entities WHERE subject = e.number"
    seen = IS_SEEN.replace("?", ":session")
    asked = "json_extract(j.value, '$[0]') AS {}, json_extract(j.value, '$[1]') AS most FROM json_each(:{}) AS j"
    of_entity = """k CROSS JOIN entities AS e ON e.space = @SPACE AND e.key = k.key
                   CROSS JOIN memory_entities AS s ON s.{} = e.number"""
    parts = [
        "SELECT number, NULL, degree FROM m",
        "SELECT key, NULL, degree FROM k",
        """SELECT m.number, e.key, 0 FROM m CROSS JOIN memory_entities AS s ON s.memory = m.number
           CROSS JOIN entities AS e ON e.number = s.entity WHERE m.degree <= m.most""",
        f"""SELECT e.key, s.memory, 0 FROM {of_entity.format("entity")}
            WHERE k.degree <= k.most AND {seen.format("s")}""",  # noqa: S608 - fixed clauses
    ]
    for here, there in (("source", "target"), ("target", "source")):
        visible = seen.format("l").replace("l.memory", f"l.{there}")
        parts.append(
            f"""SELECT m.number, l.{there}, 0 FROM m CROSS JOIN memory_links AS l ON l.{here} = m.number
                WHERE m.degree <= m.most AND l.relation NOT IN {ALIKE} AND {visible}"""  # noqa: S608 - fixed clauses
        )
    for here, there in (("entity", "subject"), ("subject", "entity")):
        parts.append(
            f"""SELECT e.key, o.key, 0 FROM {of_entity.format(here)} CROSS JOIN entities AS o ON o.number = s.{there}
                WHERE k.degree <= k.most AND s.subject IS NOT NULL AND s.edge != '{MENTIONED_WITH}'
                AND {seen.format("s")}"""  # noqa: S608 - fixed clauses
        )
    return f"""WITH
        m AS MATERIALIZED (
            SELECT m.number, m.most, {_counted("memory_entities WHERE memory = m.number", *links)} AS degree
            FROM (SELECT {asked.format("number", "memories")}) AS m),
        k AS MATERIALIZED (
            SELECT e.key, a.most, sum({_counted(*ends)}) AS degree
            FROM (SELECT {asked.format("key", "keys")}) AS a CROSS JOIN entities AS e
            ON e.space = @SPACE AND e.key = a.key GROUP BY e.key)
        {" UNION ALL ".join(parts)}"""  # noqa: S608 - fixed clauses


_AROUND: Final = _around()


class Summary(NamedTuple):
    """An overview of a graph. `degrees` are the numbers of edges of the best connected nodes."""

    entity_types: Counter[str]
    relationship_types: Counter[str]
    degrees: Counter[Node]
    topics: tuple[Topic, ...]


class Graph:
    """The graph of some spaces as one session sees it at the time `now`, for one request."""

    def __init__(self, spaces: Spaces, session_id: str, now: float = 0.0) -> None:
        self._spaces = spaces
        self._read = spaces.read
        self._session_id = session_id
        self._now = now
        self._nodes: dict[int, Node] = {}
        self._numbers: defaultdict[Node, list[int]] = defaultdict(list)
        self._looked_up: set[str] = set()
        """The keys for which all spellings are known."""
        self.names: dict[Node, str] = {}
        """The names of the nodes, each in one of its spellings."""
        self.relationships: dict[str, str] = {}
        """The relationships of edges by key, each in one of its spellings."""

    def nodes_with(self, keys: Collection[str], spelled: str = "") -> list[Node]:
        """Return the nodes with these keys that the session may see. A node with an entity that is `spelled` this way
        gets this name."""
        self._looked_up.update(keys)
        rows = self._read(
            f"""{_ENTITIES} WHERE e.space = @SPACE AND e.key IN {AMONG} AND {IS_VISIBLE}
                ORDER BY e.key, e.name != ?, e.number""",
            (json_list(keys), self._session_id, spelled),
        )
        return self._add_rows(rows)

    def matching(self, phrases: Sequence[Phrase], limit: int) -> list[Node]:
        """Return the best `limit` nodes of each space whose names contain any of the phrases."""
        if not phrases:
            return []
        match = expression_of(phrases)
        rows: list[Any] = []
        for names in (f"names_{space}" for space in self._spaces.numbers):
            rows += self._read(
                f"""SELECT e.number, e.name, e.key, e.type FROM {names} CROSS JOIN entities AS e
                    ON e.number = {names}.rowid WHERE {names} MATCH ? AND {IS_VISIBLE}
                    ORDER BY {names}.rank, e.number LIMIT ?""",  # noqa: S608 - fixed clauses
                (match, self._session_id, limit),
            )
        return self._add_rows(rows)

    def _add_rows(self, rows: Iterable[Any]) -> list[Node]:
        found: dict[Node, None] = {}
        for number, name, key, kind in rows:
            node = self._nodes.get(number)
            if node is None:
                node = self._nodes[number] = Node(key, kind.lower())
                self._numbers[node].append(number)
                self.names.setdefault(node, name)
            found[node] = None
        return list(found)

    def _add_entities(self, numbers: Iterable[int]) -> None:
        """The session must be allowed to see a memory that names these entities."""
        if new := set(numbers) - self._nodes.keys():
            in_order = "ORDER BY e.space, e.key, e.number"
            self._add_rows(self._read(f"{_ENTITIES} WHERE e.number IN {AMONG} {in_order}", (json_list(new),)))

    def _numbers_of(self, nodes: Collection[Node]) -> list[int]:
        if missing := {node.key for node in nodes} - self._looked_up:
            self.nodes_with(sorted(missing))
        return [number for node in nodes for number in self._numbers.get(node, ())]

    def edges(
        self, nodes: Sequence[Node], *, direction: Direction = "both", relationship: str | None = None
    ) -> Expansion:
        """Return the best supported edges of these nodes in each direction. `relationship` is a `name_key`."""
        numbers = self._numbers_of(nodes)
        most, cut = _share(len(numbers)), False
        live: dict[tuple[int, str, int], int] = {}  # by subject, relationship in one spelling, and target
        for way, end, order in _WAYS:
            rows: list[Any] = []
            for number in numbers if direction in ("both", way) else ():
                of_one = self._read(
                    f"""SELECT r.subject, r.edge, r.entity,
                            sum(a.forgotten_at IS NULL AND (a.valid_until IS NULL OR a.valid_until > ?)), count(*)
                        FROM (SELECT subject, edge, entity, memory FROM memory_entities AS s
                            WHERE {end} = ? AND subject IS NOT NULL
                            AND (?3 IS NULL OR name_key(edge) = ?3) AND {IS_SHOWN}
                            ORDER BY {order} LIMIT ?) AS r
                        LEFT JOIN {APART} ON {IS_OVER.format("r")} GROUP BY r.subject, r.entity, r.edge""",  # noqa: S608 - fixed clauses
                    (self._now, number, relationship, self._session_id, most),
                )
                cut = cut or sum(stated for *_, stated in of_one) >= most
                rows += of_one
            rows.sort(key=lambda row: (-row[3], row[:3]))
            cut = cut or len(rows) > MAX_EDGES
            for row in rows[:MAX_EDGES]:  # both ends may read the same edge
                live[row[:3]] = max(row[3], live.get(row[:3], 0))
        self._add_entities(end for subject, _, target in live for end in (subject, target))
        edges: Counter[Edge] = Counter()
        for (subject, spelling, target), count in live.items():
            edges[self._edge(subject, spelling, target)] += count
        return Expansion(edges, cut)

    def _edge(self, subject: int, relationship: str, target: int) -> Edge:
        key = name_key(relationship)
        self.relationships.setdefault(key, relationship)
        return Edge(self._nodes[subject], key, self._nodes[target])

    def facts(self, edges: Collection[Edge]) -> dict[Edge, list[Fact]]:
        """Return up to `MAX_FACTS` unforgotten memories that state these edges: valid ones first, then newest first."""
        pairs = {
            (subject, target)
            for edge in edges
            for subject in self._numbers.get(edge.subject, ())
            for target in self._numbers.get(edge.target, ())
        }
        weight = "CASE WHEN json_valid(m.metadata) THEN json_extract(m.metadata, '$.weight') END"
        rows = self._read(
            f"""SELECT s.subject, s.edge, s.entity, m.id, m.valid_from, m.valid_until, m.invalid_reason, {weight}
                FROM json_each(?) AS p CROSS JOIN memory_entities AS s
                    ON s.subject = json_extract(p.value, '$[0]') AND s.entity = json_extract(p.value, '$[1]')
                CROSS JOIN memories AS m ON m.number = s.memory
                WHERE s.edge != ? AND m.forgotten_at IS NULL AND {visible()}
                ORDER BY m.valid_until IS NOT NULL AND m.valid_until <= ?, m.number DESC LIMIT ?""",  # noqa: S608
            (json_list(sorted(pairs)), MENTIONED_WITH, self._session_id, self._now, MAX_FACTS),
        )
        found: defaultdict[Edge, list[Fact]] = defaultdict(list)
        for subject, relationship, target, memory_id, start, end, reason, weight in rows:
            if (edge := self._edge(subject, relationship, target)) in edges:
                known_weight = weight if isinstance(weight, int | float) else None
                found[edge].append(Fact(memory_id, start, end, reason, known_weight))
        return found

    def descriptions(self, nodes: Collection[Node]) -> dict[Node, tuple[str, str]]:
        """Return the id and content of the newest valid memory that describes each node."""
        rows = self._read(
            f"""SELECT s.entity, m.id, m.content
                FROM memory_entities AS s CROSS JOIN memories AS m ON m.number = s.memory
                WHERE s.entity IN {AMONG} AND s.relationship = ? AND m.forgotten_at IS NULL AND {visible()}
                AND (m.valid_until IS NULL OR m.valid_until > ?) ORDER BY m.number""",  # noqa: S608 - fixed clauses
            (json_list(self._numbers_of(nodes)), DESCRIBED_AS, self._session_id, self._now),
        )
        return {self._nodes[entity]: (memory_id, content) for entity, memory_id, content in rows}

    def memory_counts(self, nodes: Sequence[Node]) -> dict[Node, int]:
        """Return the number of unforgotten memories that name each node."""
        self._numbers_of(nodes)
        asked = [self._numbers.get(node, ()) for node in nodes]
        rows = self._read(
            f"""SELECT j.key, (SELECT count(DISTINCT s.memory) FROM json_each(j.value) AS n
                    CROSS JOIN memory_entities AS s ON s.entity = n.value WHERE {IS_SEEN.format("s")})
                FROM json_each(?) AS j""",  # noqa: S608 - fixed clauses
            (self._session_id, json_list(asked)),
        )
        return {nodes[place]: count for place, count in rows}

    def memories(
        self, nodes: Collection[Node], filters: Filters, limit: int, relationship: str | None = None
    ) -> dict[int, RankingFacts]:
        """Return the `limit` most important and the `limit` latest memories that name these nodes, with this
        `relationship` (a `name_key`) if it is given. Only the newest memories of a hub are read."""
        numbers = self._numbers_of(nodes)
        condition, allowed = condition_of(filters)
        facts: dict[int, RankingFacts] = {}
        for number in numbers:
            rows = self._read(
                f"""SELECT DISTINCT m.number, {RANKING_COLUMNS}
                    FROM (SELECT memory FROM memory_entities AS s WHERE entity = ?1
                        AND (?2 IS NULL OR name_key(relationship) = ?2) AND {IS_SHOWN}
                        ORDER BY memory DESC LIMIT ?4) AS r
                    CROSS JOIN memories AS m ON m.number = r.memory WHERE {condition}""",  # noqa: S608 - fixed clauses
                (number, relationship, self._session_id, _share(len(numbers)), *allowed),
            )
            facts |= {row[0]: RankingFacts(*row[1:]) for row in rows}
        latest = sorted(facts, key=lambda ref: (facts[ref].happened_at, ref), reverse=True)
        important = sorted(latest, key=lambda ref: facts[ref].importance, reverse=True)
        return {ref: facts[ref] for ref in (*important[:limit], *latest[:limit])}

    def nodes_named_by(self, memories: Iterable[int], among: Container[Node]) -> dict[int, set[Node]]:
        """Return the nodes that each memory names. The session must be allowed to see all of the memories."""
        links = self._read(
            f"SELECT DISTINCT memory, entity FROM memory_entities WHERE memory IN {AMONG}",  # noqa: S608 - fixed
            (json_list(memory for memory in memories if is_memory(memory)),),
        )
        self._add_entities(entity for _, entity in links)
        named: defaultdict[int, set[Node]] = defaultdict(set)
        for memory, entity in links:
            node = self._nodes.get(entity)  # an entity may be erased between the two reads
            if node is not None and node in among:
                named[memory].add(node)
        return named

    def neighbourhood(self, nodes: Mapping[int | str, int]) -> Around[int | str]:
        """Return the degrees of memories (by number) and entities (by key), and the neighbours of those whose degree is
        within their limit. A memory is adjacent to the entities that it names and to linked memories (but see `ALIKE`);
        an entity also to the entities that a memory relates it to. Hidden and forgotten neighbours are omitted, but
        hidden edges count. Each kind of edge is counted up to the largest limit plus one."""
        degrees: dict[int | str, int] = {}
        near: defaultdict[int | str, dict[int | str, None]] = defaultdict(dict)
        keys = {node: most for node, most in nodes.items() if isinstance(node, str)}
        memories = {node: most for node, most in nodes.items() if not isinstance(node, str)}
        if not memories and not keys:
            return Around({}, {})
        asked = {"memories": json_list(memories.items()), "keys": json_list(keys.items())}
        rows = self._read(_AROUND, {"most": max(nodes.values()) + 1, "session": self._session_id, **asked})
        for here, there, degree in rows:
            if there is None:
                degrees[here] = degrees.get(here, 0) + degree
            elif here != there:
                near[here][there] = None
        return Around(degrees, {node: list(near[node]) for node, degree in degrees.items() if degree <= nodes[node]})

    def page_ranks(self, relevance: Mapping[int, float]) -> dict[int, float]:
        """Return the PageRank of the memories around the best candidates, in [0, 1]; empty if no candidate has an edge.
        A memory's rank is the share that it receives from others, divided by the largest share of any except the best
        seed: its own seed only repeats its relevance, and the flow between the best seed and its entities adds no
        information."""
        first = sorted(filter(is_memory, relevance), key=lambda key: (-relevance[key], key))[:PAGERANK_SEEDS]
        around = self.neighbourhood(dict.fromkeys(first, MAX_COUNTED))
        # A memory that names everything says little about each entity.
        seeds: dict[int | str, float] = {
            key: relevance[key] ** 2 / math.sqrt(degree)
            for key in first
            if relevance[key] > 0.0 and (degree := around.degrees.get(key, 0))
        }
        if not seeds:
            return {}
        best = next(iter(seeds))
        own = (1.0 - DAMPING) / sum(seeds.values())
        ranks = personal_pagerank(seeds, self.neighbourhood, known=around)
        received = {
            node: got
            for node, rank in ranks.items()
            if not isinstance(node, str) and (got := rank - own * seeds.get(node, 0.0)) > MIN_RECEIVED
        }
        most = max((got for node, got in received.items() if node != best), default=0.0)
        trust = max(relevance[key] for key in first if key in seeds) / max(relevance.values())
        return {node: trust * min(1.0, got / max(most, MIN_SHARE)) for node, got in received.items()} if most else {}

    def summary(self, spaces: Sequence[int], relationship: str | None, limit: int) -> Summary:
        """Summarise the graph, with its `limit` best connected entities. `relationship` is a `name_key`."""
        read = Spaces(self._spaces.file, spaces).read
        rows = read(
            f"""WITH seen AS MATERIALIZED (
                    SELECT s.* FROM memories AS m CROSS JOIN memory_entities AS s ON s.memory = m.number
                    WHERE m.space = @SPACE AND {shown_to()}),
                edges AS MATERIALIZED (
                    SELECT DISTINCT subject, edge, entity FROM seen
                    WHERE subject IS NOT NULL AND (?2 IS NULL OR name_key(edge) = ?2)),
                ends AS (SELECT subject AS entity, 1 AS edges FROM edges UNION ALL SELECT entity, 1 FROM edges
                    UNION ALL SELECT DISTINCT entity, 0 FROM seen WHERE ?2 IS NULL)
                SELECT 'relationship', edge, count(*) FROM edges GROUP BY edge
                UNION ALL SELECT 'entity', e.type, count(*) FROM (SELECT DISTINCT entity FROM seen) AS v
                    JOIN entities AS e ON e.number = v.entity GROUP BY e.type
                UNION ALL SELECT * FROM (SELECT 'connected', entity, sum(edges) AS edges FROM ends
                    GROUP BY entity ORDER BY edges DESC, entity LIMIT ?3)""",  # noqa: S608 - fixed clauses
            (self._session_id, relationship, limit),
        )
        self._add_entities(name for sort, name, _ in rows if sort == "connected")
        found = Summary(Counter(), Counter(), Counter(), read_topics(read))
        for sort, name, count in rows:
            if sort == "relationship":
                found.relationship_types[self.relationships.setdefault(name_key(name), name)] += count
            elif sort == "entity":
                found.entity_types[name.lower()] += count
            else:
                found.degrees[self._nodes[name]] += count
        return found


def _share(entities: int) -> int:
    return max(MIN_ROWS, MAX_ROWS // max(1, entities))
