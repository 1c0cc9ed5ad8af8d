"""`GraphRecords` in one SQLite file: each query is a few index scans, bounded so that hubs do not make them long.

The edges are rows of `memory_entities`: `subject` --`edge`--> `entity`, stated by `memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from remembrancer.actors.store.records.contract import (
    EdgeRow,
    Edges,
    EntityFilter,
    EntityRow,
    Filters,
    GraphSummary,
    Link,
    RankingFacts,
    SaidRow,
)
from remembrancer.actors.store.records.search import RANKING, condition_of, expression_of
from remembrancer.actors.store.records.sessions import read_topics
from remembrancer.actors.store.records.space import Spaces, shown_to, visible
from remembrancer.actors.store.records.sqlite_file import AMONG, encode_json, json_list, places_for
from remembrancer.memory.names import name_key
from remembrancer.protocol.reads import Fact
from remembrancer.protocol.writes import DESCRIBED_AS, MENTIONED_WITH

MOST_ROWS: Final = 1000
"""The number of rows of `memory_entities` that one query reads; those of hubs are then read only in part."""
MOST_EDGES: Final = 200
"""The number of edges in one answer, best supported first."""
AFTER_ALL: Final = "\U0010ffff"
"""Sorts after every letter: keys with a given beginning end before `beginning` + this."""
APART: Final = "memories AS a INDEXED BY memories_apart"
IS_APART: Final = "a.number = {}.memory AND (a.forgotten_at IS NOT NULL OR a.scope = 'session')"
"""A memory that is not in this index is unforgotten and visible to all users of the file, so a short lookup suffices
for most."""
IS_VISIBLE: Final = f"""EXISTS (SELECT 1 FROM memory_entities AS s WHERE s.entity = e.number AND NOT EXISTS (
                        SELECT 1 FROM {APART} WHERE {IS_APART.format("s")}
                        AND NOT {shown_to("a")}))"""  # noqa: S608 - fixed clauses
IS_OVER: Final = (
    "a.number = {}.memory AND (a.forgotten_at IS NOT NULL OR a.scope = 'session' OR a.valid_until IS NOT NULL)"
)
"""Like `IS_APART`, but also includes memories with an end of validity."""
MOST_FACTS: Final = 1000
"""The number of memories in one answer about the sources of edges."""
IS_SEEN: Final = f"""NOT EXISTS (SELECT 1 FROM {APART} WHERE {IS_APART}
                   AND (a.forgotten_at IS NOT NULL OR NOT {shown_to("a")}))"""  # noqa: S608 - fixed clauses
COLUMNS: Final = "subject, edge, entity, memory"
ALIKE: Final = "('similar_to', 'derived_from', 'supersedes', 'contradicts')"
"""Links between memories about the same thing. Queries find those by their words, so the links are not followed."""


def _counted(*edges: str) -> str:
    return " + ".join(f"(SELECT count(*) FROM (SELECT 1 FROM {each} LIMIT :most))" for each in edges)  # noqa: S608


def _around() -> str:
    """Build the statement of `around`."""
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


class SqliteGraph:
    """The graph of the file. Keeps nothing in memory."""

    def __init__(self, file: Spaces, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def entities(self, wanted: EntityFilter) -> list[EntityRow]:
        """Return the entities that pass the filter."""
        found = "e.number, e.name, e.key, e.type FROM entities AS e WHERE e.space = @SPACE AND"
        seen, order = f"AND {IS_VISIBLE}", "ORDER BY e.key, e.number LIMIT ?"
        asked: list[tuple[str, Sequence[object]]] = []
        last = wanted.session_id, wanted.limit
        if wanted.numbers is not None:
            asked = [(f"{found} e.number IN {AMONG}", [json_list(wanted.numbers)])]
        elif wanted.phrases:
            match = expression_of(wanted.phrases, "AND" if wanted.every else "OR")
            for names in (f"names_{space}" for space in self._file.numbers):
                best = found.replace("FROM", f"FROM {names} CROSS JOIN").replace("e.space", "+e.space")
                statement = f"""{best} e.number = {names}.rowid AND {names} MATCH ? {seen}
                                ORDER BY {names}.rank, e.number LIMIT ?"""
                asked.append((statement, (match, *last)))
        elif wanted.name is not None:
            asked = [(f"{found} e.name = ? {seen} {order}", (wanted.name, *last))]
        elif wanted.beginning is not None:
            span = (wanted.beginning, wanted.beginning + AFTER_ALL)
            asked = [(f"{found} e.key >= ? AND e.key < ? {seen} {order}", (*span, *last))]
        else:
            asked = [(f"{found} e.key IN {AMONG} {seen} {order}", (json_list(wanted.keys), *last))]
        rows = [row for statement, arguments in asked for row in self._file.read(f"SELECT {statement}", arguments)]
        return [EntityRow._make(row) for row in rows]

    def edges(
        self, numbers: Sequence[int], session_id: str, *, outgoing: bool, relationships: Collection[str] | None
    ) -> Edges:
        """Return the edges that begin (`outgoing`) or end at these entities; of relationships with these keys, or of
        all.

        Best supported first, and incomplete if there are very many.
        """
        found = [self._edges(each, session_id, relationships, outgoing=outgoing) for each in self._by_space(numbers)]
        return Edges([row for each in found for row in each.rows], any(each.cut for each in found))

    def _by_space(self, numbers: Sequence[int]) -> Iterable[Sequence[int]]:
        """Group entities by space: rows of a hub are bounded within each space, so that small spaces are not crowded
        out."""
        if len(self._file.numbers) == 1:
            return [numbers]
        asked = f"SELECT number, space FROM entities WHERE number IN {AMONG}"  # noqa: S608 - fixed
        spaces = dict(self._file.read(asked, (json_list(numbers),)))
        of_each = ([number for number in numbers if spaces.get(number) == space] for space in self._file.numbers)
        return filter(None, of_each)

    def _edges(
        self, numbers: Sequence[int], session_id: str, relationships: Collection[str] | None, *, outgoing: bool
    ) -> Edges:
        here = "subject" if outgoing else "entity"
        wanted: list[object] = []
        condition = "subject IS NOT NULL"
        if relationships is not None:
            wanted.append(json_list(self._spellings(here, "edge", numbers, relationships)))
            if wanted == ["[]"]:
                return Edges([], cut=False)
            condition += f" AND edge IN {AMONG}"
        order = "entity DESC, memory DESC" if outgoing else "memory DESC"
        source, arguments, cut = self._bounded(here, numbers, condition, wanted, order)
        if not source:
            return Edges([], cut=False)
        rows = self._file.read(
            f"""SELECT r.subject, r.edge, r.entity, count(*) AS said,
                    sum(a.forgotten_at IS NULL AND (a.valid_until IS NULL OR a.valid_until > ?)) AS live
                FROM ({source}) AS r LEFT JOIN {APART} ON {IS_OVER.format("r")}
                WHERE a.number IS NULL OR {shown_to("a")}
                GROUP BY r.subject, r.entity, r.edge
                ORDER BY live DESC, said DESC, r.subject, r.entity, r.edge LIMIT ?""",  # noqa: S608
            (self._clock(), *arguments, session_id, MOST_EDGES + 1),
        )
        edges = [EdgeRow(subject, kind, target, live, said - live) for subject, kind, target, said, live in rows]
        return Edges(edges[:MOST_EDGES], cut or len(edges) > MOST_EDGES)

    def said_by(self, pairs: Sequence[tuple[int, int]], session_id: str) -> list[SaidRow]:
        """Return the unforgotten memories that state more about these pairs (subject, target) than that both are
        mentioned: valid ones first, then newest first. Incomplete if there are very many."""
        weight = "CASE WHEN json_valid(m.metadata) THEN json_extract(m.metadata, '$.weight') END"
        rows = self._file.read(
            f"""SELECT s.subject, s.edge, s.entity, m.id, m.valid_from, m.valid_until, m.invalid_reason, {weight}
                FROM json_each(?) AS p CROSS JOIN memory_entities AS s
                    ON s.subject = json_extract(p.value, '$[0]') AND s.entity = json_extract(p.value, '$[1]')
                CROSS JOIN memories AS m ON m.number = s.memory
                WHERE s.edge != ? AND m.forgotten_at IS NULL AND {visible()}
                ORDER BY m.valid_until IS NOT NULL AND m.valid_until <= ?, m.number DESC LIMIT ?""",  # noqa: S608
            (json_list(pairs), MENTIONED_WITH, session_id, self._clock(), MOST_FACTS),
        )
        found: list[SaidRow] = []
        for subject, relationship, target, memory_id, start, end, reason, weight in rows:
            fact = Fact(memory_id, start, end, reason, weight if isinstance(weight, int | float) else None)
            found.append(SaidRow(subject, relationship, target, fact))
        return found

    def descriptions(self, numbers: Sequence[int], session_id: str) -> dict[int, tuple[str, str]]:
        """Return, for each entity described by an unforgotten memory, the id and content of the newest one."""
        rows = self._file.read(
            f"""SELECT s.entity, m.id, m.content
                FROM memory_entities AS s CROSS JOIN memories AS m ON m.number = s.memory
                WHERE s.entity IN {AMONG} AND s.relationship = ? AND m.forgotten_at IS NULL AND {visible()}
                AND (m.valid_until IS NULL OR m.valid_until > ?) ORDER BY m.number""",  # noqa: S608 - fixed clauses
            (json_list(numbers), DESCRIBED_AS, session_id, self._clock()),
        )
        return {entity: (memory_id, content) for entity, memory_id, content in rows}

    def _bounded(
        self, here: str, numbers: Sequence[int], condition: str, wanted: Sequence[object], order: str
    ) -> tuple[str, list[object], bool]:
        """Return a query for the rows of some entities, at most `MOST_ROWS`, its arguments, and whether there are more.

        If an entity has more than its fair share, the first rows in `order` are taken. The number of rows comes from an
        index alone. The query is empty if there are no rows.
        """
        sizes: dict[int, int] = dict(
            self._file.read(
                f"SELECT {here}, count(*) FROM memory_entities WHERE {here} IN {AMONG} GROUP BY {here}",  # noqa: S608
                (json_list(numbers),),
            )
        )
        share = fair_share(list(sizes.values()), MOST_ROWS)
        light = [number for number, size in sizes.items() if size <= share]
        heavy = [number for number, size in sizes.items() if size > share]
        rows = f"SELECT {COLUMNS} FROM memory_entities WHERE"  # noqa: S608 - fixed names
        parts: list[str] = []
        arguments: list[object] = []
        if light:
            parts.append(f"{rows} {here} IN {AMONG} AND {condition}")
            arguments += [json_list(light), *wanted]
        for number in heavy:
            parts.append(f"SELECT * FROM ({rows} {here} = ? AND {condition} ORDER BY {order} LIMIT ?)")  # noqa: S608
            arguments += [number, *wanted, share]
        return " UNION ALL ".join(parts), arguments, bool(heavy)

    def _spellings(self, here: str, what: str, numbers: Sequence[int], relationships: Collection[str]) -> list[str]:
        rows = self._file.read(
            f"SELECT DISTINCT {what} FROM memory_entities WHERE {here} IN {AMONG}",  # noqa: S608 - fixed
            (json_list(numbers),),
        )
        return [spelling for (spelling,) in rows if name_key(spelling) in relationships]

    def memory_counts(self, groups: Sequence[Sequence[int]], session_id: str) -> list[int]:
        """Return, for each group of entities, the number of unforgotten memories that name at least one of them."""
        counting = f"""SELECT s.entity, count(DISTINCT s.memory) FROM memory_entities AS s
            WHERE {IS_SEEN.format("s")} AND s.entity IN {AMONG}"""  # noqa: S608 - fixed clauses
        counts: dict[int, int] = {}
        if single := [group[0] for group in groups if len(group) == 1]:
            counts = dict(self._file.read(f"{counting} GROUP BY s.entity", (session_id, json_list(single))))
        return [
            counts.get(group[0], 0)
            if len(group) == 1
            else self._file.read(counting, (session_id, json_list(group)))[0][1]
            for group in groups
        ]

    def memories(
        self, numbers: Sequence[int], filters: Filters, limit: int, relationships: Collection[str] | None = None
    ) -> dict[int, RankingFacts]:
        """Return, of the memories that pass the filters and name these entities, the `limit` most important and the
        `limit` latest, with their ranking facts; with `relationships` (as `name_key`s) only those that name them so. Of
        a hub's memories only the newest are read."""
        return {
            number: facts
            for each in self._by_space(numbers)
            for number, facts in self._memories(each, filters, limit, relationships).items()
        }

    def _memories(
        self, numbers: Sequence[int], filters: Filters, limit: int, relationships: Collection[str] | None
    ) -> dict[int, RankingFacts]:
        said, wanted = "TRUE", list[object]()
        if relationships is not None:
            wanted.append(json_list(self._spellings("entity", "relationship", numbers, relationships)))
            said = f"relationship IN {AMONG}"
        source, arguments, _ = self._bounded("entity", numbers, said, wanted, "memory DESC")
        if not source:
            return {}
        condition, allowed = condition_of(filters)
        rows = self._file.read(
            f"""WITH named AS MATERIALIZED (
                    SELECT DISTINCT m.number, {RANKING}
                    FROM ({source}) AS r CROSS JOIN memories AS m ON m.number = r.memory WHERE {condition})
                SELECT * FROM (SELECT * FROM named ORDER BY importance DESC, happened_at DESC, number DESC LIMIT ?)
                UNION SELECT * FROM (SELECT * FROM named ORDER BY happened_at DESC, number DESC LIMIT ?)""",  # noqa: S608
            (*arguments, *allowed, limit, limit),
        )
        return {row[0]: RankingFacts(*row[1:]) for row in rows}

    def links_of(self, memories: Sequence[int]) -> list[Link]:
        """Return the entities that these memories name. Only for memories that the session has been shown."""
        rows = self._file.read(
            f"SELECT DISTINCT memory, entity FROM memory_entities WHERE memory IN {AMONG}",  # noqa: S608 - fixed
            (json_list(memories),),
        )
        return [Link._make(row) for row in rows]

    def around(
        self, memories: Mapping[int, int], keys: Mapping[str, int], session_id: str
    ) -> list[tuple[int | str, int | str | None, int]]:
        """Return the surroundings of these memories, and of the entities with these keys. Each gets a row with its
        number of edges; if that does not exceed the number given for it, it also gets a row for each adjacent node.

        A memory (its number) is adjacent to the entities that it names (their `name_key`s) and to linked memories; an
        entity also to those that a memory relates it to. Only what the session may see and is not forgotten is
        returned, without links between memories about the same thing (`similar_to`, `derived_from`, `supersedes`,
        `contradicts`); but hidden edges count. Each kind of edge is counted up to the largest number given, plus one.
        """
        most = max((*memories.values(), *keys.values()), default=0) + 1
        asked = [encode_json(list(each.items())).decode() for each in (memories, keys)]
        return self._file.read(_AROUND, {"most": most, "session": session_id, "memories": asked[0], "keys": asked[1]})

    def summary(self, session_id: str, relationships: Collection[str] | None, limit: int) -> GraphSummary:
        """Summarise the whole graph (of relationships with these keys, or of all), with its `limit` best connected
        entities."""
        condition = "s.subject IS NOT NULL"
        alone = " UNION ALL SELECT DISTINCT entity, 0 FROM seen" if relationships is None else ""
        wanted: tuple[str, ...] = ()
        if relationships is not None:
            spellings = self._file.read(
                """SELECT DISTINCT s.edge FROM entities AS e CROSS JOIN memory_entities AS s ON s.entity = e.number
                   WHERE e.space = @SPACE"""
            )
            wanted = tuple(spelling for (spelling,) in spellings if name_key(spelling) in relationships)
            condition += f" AND s.edge IN {places_for(wanted)}"
        rows = self._file.read(
            f"""WITH seen AS MATERIALIZED (
                    SELECT s.* FROM memories AS m CROSS JOIN memory_entities AS s ON s.memory = m.number
                    WHERE m.space = @SPACE AND {shown_to()}),
                edges AS MATERIALIZED (
                    SELECT DISTINCT s.subject, s.edge, s.entity FROM seen AS s WHERE {condition}),
                ends AS (SELECT subject AS entity, 1 AS edges FROM edges UNION ALL SELECT entity, 1 FROM edges{alone})
                SELECT 'relationship', edge, count(*) FROM edges GROUP BY edge
                UNION ALL SELECT 'entity', e.type, count(*) FROM (SELECT DISTINCT entity FROM seen) AS v
                    JOIN entities AS e ON e.number = v.entity GROUP BY e.type
                UNION ALL SELECT * FROM (SELECT 'connected', entity, sum(edges) AS edges FROM ends
                    GROUP BY entity ORDER BY edges DESC, entity LIMIT ?)""",  # noqa: S608 - fixed clauses
            (session_id, *wanted, limit),
        )
        figures: dict[str, dict[Any, int]] = {"relationship": {}, "entity": {}, "connected": {}}
        for sort, name, count in rows:
            figures[sort][name] = count
        return GraphSummary(
            entities=sum(figures["entity"].values()),
            relationships=sum(figures["relationship"].values()),
            entity_types=figures["entity"],
            relationship_types=figures["relationship"],
            connected=figures["connected"],
            topics=self._file.read_together(read_topics),
        )

    def uses(self, of: Literal["entity", "tag"], beginning: str, session_id: str) -> list[tuple[str, int]]:
        """Return entity names that start with `beginning`, compared by `name_key`, or tags, ignoring case, each with
        its number of unforgotten memories (at least one)."""
        if of == "entity":
            key = name_key(beginning) if beginning else ""
            return self._file.read(
                f"""SELECT e.name, count(DISTINCT m.number) FROM entities AS e
                    CROSS JOIN memory_entities AS s ON s.entity = e.number
                    CROSS JOIN memories AS m ON m.number = s.memory
                    WHERE e.space = @SPACE AND e.key >= ? AND e.key < ? AND m.forgotten_at IS NULL AND {visible()}
                    GROUP BY e.number""",  # noqa: S608 - fixed clauses
                (key, key + AFTER_ALL, session_id),
            )
        # Skips from tag to tag through the index: there are far fewer tags than tagged memories.
        known = self._file.read(
            """WITH RECURSIVE known (tag) AS (SELECT min(tag) FROM memory_tags UNION ALL
               SELECT (SELECT min(tag) FROM memory_tags WHERE tag > known.tag) FROM known WHERE known.tag IS NOT NULL)
               SELECT tag FROM known WHERE tag IS NOT NULL"""
        )
        folded = beginning.casefold()
        return self._file.read(
            f"""SELECT t.tag, count(*) FROM memory_tags AS t CROSS JOIN memories AS m ON m.number = t.memory
                WHERE t.tag IN {AMONG} AND m.forgotten_at IS NULL AND {visible()} GROUP BY t.tag""",  # noqa: S608
            (json_list(tag for (tag,) in known if tag.casefold().startswith(folded)), session_id),
        )


def fair_share(sizes: Sequence[int], budget: int) -> int:
    """Return the largest share for each such that the total stays within `budget`; at least 1."""
    left = budget
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return max(1, share)
        left -= size
    return max(1, *sizes, 1)
