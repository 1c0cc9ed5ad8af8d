"""Searches the memories of spaces: BM25 over full text, ordered lists, neighbours in a session, and counts."""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from remembrancer.actors.sqlite_file import AMONG, json_list, places_for, where
from remembrancer.actors.store.records.memory_rows import decode_columns, read_memory, read_related
from remembrancer.actors.store.records.schema import STANDING_KINDS
from remembrancer.actors.store.records.space import APART, DOUBTS, Spaces, is_newer, shown_to, visible
from remembrancer.actors.store.records.types import (
    NO_LIMIT,
    Filters,
    Hits,
    MemoryRecord,
    Neighbours,
    Phrase,
    RankingFacts,
    Survey,
)
from remembrancer.memory.changes import is_visible
from remembrancer.memory.replacement import REPLACED
from remembrancer.memory.short_ids import LEAST, short_forms
from remembrancer.protocol.kinds import OPEN_END, STANDING
from remembrancer.protocol.reads import Counts, LinkedMemory, Order

MAX_LINKED_IDS: Final = {"near_duplicates": 5, "derived_from": 20, "possibly_superseded_by": 5, "superseded_by": 5}
NO_COLUMNS: Final = frozenset({*MAX_LINKED_IDS, "newer", "number", "forgotten", "origin", "lines"})
"""The fields of a listed memory that are read from elsewhere, or that belong to files."""
LISTED_COLUMNS: Final = ("number", *(name for name in MemoryRecord.__struct_fields__ if name not in NO_COLUMNS))
_LISTED: Final = ", ".join(f"m.{name}" for name in LISTED_COLUMNS)
RANKING_COLUMNS: Final = (
    "m.importance, coalesce(m.occurred_at, m.created_at) AS happened_at, m.status, m.scope, m.valid_until, m.type, "
    "m.by_assistant, m.kind, m.space, m.type = 'episodic' OR m.occurred_at IS NOT NULL"
)


_decode_numbers: Final = msgspec.json.Decoder(list[int]).decode


class SqliteWords:
    _words = "words_@SPACE"
    _file: Any
    """The space, or the index of notes, that contains the full-text tables."""

    def frequencies(self, groups: Sequence[Sequence[Phrase]]) -> list[int]:
        return self._of_each("count(*)", groups)

    def postings(self, groups: Sequence[Sequence[Phrase]]) -> list[list[int]]:
        return [_decode_numbers(numbers) for numbers in self._of_each("json_group_array(rowid)", groups)]

    def _of_each(self, value: str, groups: Sequence[Sequence[Phrase]]) -> list[Any]:
        rows = self._file.read(
            f"""SELECT (SELECT {value} FROM {self._words} WHERE {self._words} MATCH asked.value)
                FROM json_each(?) AS asked ORDER BY asked.key""",  # noqa: S608 - our names
            (json_list(map(expression_of, groups)),),
        )
        return [each for (each,) in rows]


class SqliteSearch(SqliteWords):
    _file: Spaces

    @property
    def spaces(self) -> Spaces:
        return self._file

    def keyword_hits(
        self,
        phrases: Sequence[Phrase],
        filters: Filters,
        limit: int,
        counted: Mapping[Phrase, int] | None = None,
        numbers: Sequence[int] = (),
    ) -> Hits:
        """Return the best `limit` memories with any of the phrases (at least one), best first. A repeated phrase counts
        each time. `counted` has the number of memories for some of the phrases, if scoring all of them would be slow.
        `numbers` are all memories that pass the filters, if there are few. For a single space only."""

        def hits(match: str, most: int = 2 * limit) -> Hits:
            """Filter only the best `most` hits, unless too few of them pass."""
            condition, arguments = condition_of(filters)
            among = (min(numbers), max(numbers), json_list(numbers)) if numbers else ()
            rows = self._file.read(
                f"""SELECT b.number, b.score, {condition} FROM (
                        SELECT rowid AS number, {BM25} AS score FROM words_@SPACE
                        WHERE words_@SPACE MATCH ? {f"AND rowid BETWEEN ? AND ? AND +rowid IN {AMONG}" if among else ""}
                        ORDER BY score DESC, rowid DESC LIMIT ?) AS b
                    LEFT JOIN memories AS m ON m.number = b.number ORDER BY b.score DESC, b.number DESC""",  # noqa: S608
                (*arguments, match, *among, most),
            )
            passing = [(number, score) for number, score, passes in rows if passes][:limit]
            return hits(match, NO_LIMIT) if len(passing) < limit and len(rows) == most else dict(passing)

        if counted is None or numbers:
            return hits(expression_of(phrases))
        return hits_of_rare(self, hits, phrases, limit, counted)

    def survey(self, groups: Sequence[Sequence[Phrase]], session_id: str, limit: int) -> Survey:
        """Return the spaces' sizes, the memories with each group of phrases, and up to `limit` session memories."""
        if not self._file.numbers:
            return Survey({}, {}, {})
        sizes = dict.fromkeys(self._file.numbers, 0)
        postings: dict[int, list[list[int]]] = {space: [[] for _ in groups] for space in sizes}
        own: defaultdict[int, list[int]] = defaultdict(list)
        words = """SELECT asked.key, @SPACE, (
            SELECT json_group_array(rowid) FROM words_@SPACE WHERE words_@SPACE MATCH asked.value)
            FROM json_each(?3) AS asked"""
        rows = self._file.read(
            " UNION ALL ".join(
                (
                    """SELECT 'size', space, sum(count) FROM tallies
                       WHERE space = @SPACE AND NOT forgotten GROUP BY space""",
                    """SELECT 'own', space, number FROM (
                           SELECT space, number FROM memories INDEXED BY memories_scanned
                           WHERE space = @SPACE AND session_id = ?1 AND scope = 'session' LIMIT ?2)""",
                    self._file.for_each(words),
                )
            ),
            (session_id, limit + 1, json_list(map(expression_of, groups))),
        )
        for sort, space, value in rows:
            if sort == "size":
                sizes[space] = value
            elif sort == "own":
                own[space].append(value)
            else:
                postings[space][sort] = _decode_numbers(value)
        return Survey(sizes, postings, own if sum(map(len, own.values())) <= limit else {})

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        """Return the numbers of all memories that pass the filters; None if there are more than `limit`."""
        condition, arguments = condition_of(filters)
        rows = self._file.read(
            f"SELECT m.number FROM {_scanned(filters)} AND {condition} LIMIT ?",  # noqa: S608 - fixed clauses
            (*arguments, limit + 1),
        )
        return None if len(rows) > limit else [number for (number,) in rows]

    def top(self, filters: Filters, order: Order, limit: int) -> list[int]:
        """Return the first `limit` memories that pass the filters. Ties go to later events, then to later memories."""
        condition, arguments = condition_of(filters)
        if order == "due":
            condition += " AND m.kind = 'open_end' AND m.done = 0 AND m.forgotten_at IS NULL"
            condition += f" AND (m.valid_until IS NULL OR m.valid_until > ?) AND NOT {_IS_REPLACED}"
            arguments.append(time.time())
        condition += " AND m.forgotten_at IS NOT NULL" if order == "forgotten" else ""
        rows = self._file.read(
            f"""SELECT m.number FROM {_scanned(filters, order)} AND {condition}
                ORDER BY {_ORDERS[order]}, m.number DESC LIMIT ?""",  # noqa: S608 - fixed clauses
            (*arguments, limit),
        )
        return [number for (number,) in rows]

    def from_files(self, names: Sequence[str], filters: Filters, limit: int) -> dict[int, str]:
        """Return the latest memories whose source path contains one of the names, with their contents."""
        if not names:
            return {}
        condition, arguments = condition_of(filters)
        named = " OR ".join(["instr(file, ?)"] * len(names))
        rows = self._file.read(
            f"""WITH files AS (SELECT DISTINCT {SOURCE_FILE} AS file FROM memories AS m INDEXED BY memories_from_files
                               WHERE m.space = @SPACE AND {SOURCE_FILE} IS NOT NULL),
                    named AS MATERIALIZED (SELECT file FROM files WHERE {named})
                SELECT m.number, m.content FROM named CROSS JOIN memories AS m INDEXED BY memories_from_files
                WHERE m.space = @SPACE AND {SOURCE_FILE} IS NOT NULL AND {SOURCE_FILE} = named.file AND {condition}
                ORDER BY {_HAPPENED} DESC, m.number DESC LIMIT ?""",  # noqa: S608 - fixed clauses
            (*names, *arguments, limit),
        )
        return dict(rows)

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        condition, arguments = condition_of(filters)
        rows = self._file.read(
            f"SELECT m.number, {RANKING_COLUMNS} FROM memories AS m WHERE m.number IN {AMONG} AND {condition}",  # noqa: S608
            (json_list(numbers), *arguments),
        )
        return {row[0]: RankingFacts(*row[1:]) for row in rows}

    def neighbours(self, numbers: Sequence[int], filters: Filters, *, and_theirs: bool = False) -> Neighbours:
        """Return the memories that pass the filters and come directly before or after these in the same session and
        scope. With `and_theirs`, also return their neighbours. Only episodic memories are considered."""
        (condition, arguments), times = condition_of(filters), 2 if and_theirs else 1
        rows = self._file.read(
            f"""SELECT DISTINCT m.session_id, m.number, {RANKING_COLUMNS}
                FROM memories AS its CROSS JOIN memories AS m ON m.number BETWEEN its.number - ? AND its.number + ?
                    AND m.session_id = its.session_id AND m.scope = its.scope
                    AND abs(coalesce(m.occurred_at, m.created_at) - coalesce(its.occurred_at, its.created_at)) <= ?
                WHERE its.number IN {AMONG} AND its.session_id != '' AND its.type = 'episodic'
                    AND m.type = 'episodic' AND {condition} ORDER BY m.number""",  # noqa: S608 - fixed clauses
            (times * INTERLEAVED, times * INTERLEAVED, times * TOGETHER_S, json_list(numbers), *arguments),
        )
        by_session: defaultdict[tuple[str, str], list[tuple[int, RankingFacts]]] = defaultdict(list)
        for session, number, *columns in rows:
            facts = RankingFacts(*columns)
            by_session[session, facts.scope].append((number, facts))
        wanted, found = set(numbers), Neighbours({}, {})
        for turns in by_session.values():
            near = {number: _neighbours_of(turns, place) for place, (number, _) in enumerate(turns) if number in wanted}
            if and_theirs:
                others = {other for steps in near.values() for other in steps}.difference(wanted)
                near |= {each: _neighbours_of(turns, place) for place, (each, _) in enumerate(turns) if each in others}
            found.steps.update((number, steps) for number, steps in near.items() if steps)
            shown = {other for steps in near.values() for other in steps}
            found.facts.update((number, facts) for number, facts in turns if number in shown)
        return found

    def load(self, numbers: Sequence[int], filters: Filters | None) -> dict[int, MemoryRecord]:
        """Return those of these memories that pass the filters; without filters, all of them, regardless of visibility
        and without links. `possibly_superseded_by` lists memories with a probability of at least `REPLACED`."""
        condition, arguments, links, session = "TRUE", list[object](), "", list[object]()
        if filters is not None:
            (condition, arguments), links = condition_of(filters), f", ({_LINKS})"
            session = [REPLACED, filters.session_id]
        found: dict[int, MemoryRecord] = {}
        with self._file.reading() as query:
            for row in query(
                f"SELECT {_LISTED}{links} FROM memories AS m WHERE m.number IN {AMONG} AND {condition}",  # noqa: S608
                (*session, json_list(numbers), *arguments),
            ):
                fields = decode_columns(dict(zip(LISTED_COLUMNS, row[: len(LISTED_COLUMNS)], strict=True)))
                fields["forgotten"] = fields["forgotten_at"] is not None
                linked: dict[str, dict[str, None]] = {}
                for field, other in _decode_links(row[-1]) if links else ():
                    ids = linked.setdefault(field, {})
                    if len(ids) < MAX_LINKED_IDS[field]:
                        ids[other] = None
                for other in linked.get("superseded_by", ()):  # which resolves the doubt
                    linked.get("possibly_superseded_by", {}).pop(other, None)
                found[row[0]] = MemoryRecord(**fields | {field: tuple(ids) for field, ids in linked.items()})
        return found

    def follow(self, memory_ids: Sequence[str], session_id: str, depth: int, limit: int) -> dict[int, LinkedMemory]:
        """Return these memories and related ones that the session may see, up to `depth` links away, nearest first."""
        with self._file.reading() as query:
            known = [memory for each in memory_ids if (memory := read_memory(query, each)) is not None]
            start = [
                memory.number for memory in known if not memory.now.forgotten and is_visible(memory.now, session_id)
            ]
            distances = dict.fromkeys(start[:limit], 0)
            related: defaultdict[int, dict[str, None]] = defaultdict(dict)
            reached = list(distances)
            for distance in range(1, depth + 2):  # the last round reads the relations of the farthest memories
                found: dict[int, None] = {}
                for _, other, number, other_id in read_related(query, reached, session_id):
                    related[number][other_id] = None
                    if other not in distances:
                        found[other] = None
                reached = list(found)[: limit - len(distances)] if distance <= depth else []
                distances |= dict.fromkeys(reached, distance)
                if not reached:
                    break
        listed = self.load(list(distances), Filters(session_id))
        return {
            number: LinkedMemory(**listed[number].listed(), related=tuple(related[number]), distance=distance)
            for number, distance in distances.items()
            if number in listed
        }

    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Map the ids of memories that were merged into another memory, in any space, to that memory's id."""
        rows = self._file.read(
            f"""SELECT memory_id, merged_into FROM promotion_log
                WHERE space = @SPACE AND memory_id IN {AMONG} AND merged_into IS NOT NULL
                ORDER BY sequence""",  # noqa: S608 - fixed
            (json_list(memory_ids),),
        )
        return dict(rows)

    def number_of(self, memory_id: str) -> int | None:
        found = self.numbers_of([memory_id])
        return max(found, key=lambda number: self._file.numbers.index(found[number][0])) if found else None

    def numbers_of(self, memory_ids: Collection[str]) -> dict[int, tuple[int, str]]:
        """Return the memories with these ids, keyed by number, each with its space and the id that was given."""
        rows = self._file.read(
            """SELECT m.number, m.space, j.value FROM json_each(?1) AS j CROSS JOIN memories AS m
               ON m.space = @SPACE AND m.id = j.value
               UNION ALL SELECT m.number, m.space, j.value FROM json_each(?1) AS j CROSS JOIN aliases AS a
               ON a.alias = j.value CROSS JOIN memories AS m ON m.number = a.memory WHERE m.space = @SPACE""",
            (json.dumps(list(memory_ids)),),
        )
        return {number: (space, memory_id) for number, space, memory_id in rows}

    def short_forms(self, ids: Collection[str]) -> dict[str, str]:
        return short_forms(ids, self.ids_with({each[-LEAST:] for each in ids})) if ids else {}

    def ids_with(self, keys: Collection[str]) -> list[str]:
        """Return the ids that begin (after `memory:`) or end with one of these keys of four characters."""
        rows = self._file.read(
            """SELECT memories.id FROM json_each(?1) AS key CROSS JOIN memories
               WHERE space = @SPACE AND substr(memories.id, -4) = key.value
               UNION SELECT memories.id FROM json_each(?1) AS key CROSS JOIN memories
               WHERE space = @SPACE AND memories.id >= 'memory:' || key.value
               AND memories.id < 'memory:' || key.value || '~'""",
            (json_list(keys),),
        )
        return [memory_id for (memory_id,) in rows]

    def uses(self, session_id: str, limit: int) -> list[tuple[str, int]]:
        tags = self._file.read(
            f"""SELECT t.tag, count(*) FROM {_EVERY} CROSS JOIN memory_tags AS t ON t.memory = m.number
                WHERE m.space = @SPACE AND m.forgotten_at IS NULL AND {shown_to()}
                GROUP BY t.tag ORDER BY 2 DESC, 1 LIMIT ?""",  # noqa: S608 - fixed clauses
            (session_id, limit),
        )
        entities = self._file.read(
            f"""SELECT e.name, (
                    SELECT count(DISTINCT s.memory) FROM memory_entities AS s
                    WHERE s.entity = e.number AND s.memory NOT IN (
                        SELECT a.number FROM {APART} WHERE a.forgotten_at IS NOT NULL
                        UNION ALL SELECT a.number FROM {APART} WHERE a.scope = 'session' AND a.session_id != ?1))
                FROM entities AS e WHERE e.space = @SPACE ORDER BY 2 DESC, 1 LIMIT ?2""",  # noqa: S608
            (session_id, limit),
        )
        return [*tags, *(each for each in entities if each[1])]  # omits names that only other sessions use

    def counts(self, session_id: str | None) -> Counts:
        """Count everything, but only the session memories of `session_id` (None: those of all sessions)."""
        hidden = f"SELECT a.number FROM {APART} WHERE a.space = @SPACE AND a.scope = 'session' AND a.session_id != ?1"  # noqa: S608 - fixed
        with self._file.reading() as query:
            sorts = query(
                """SELECT scope, type, forgotten, count FROM tallies
                   WHERE space = @SPACE AND count > 0 AND (?1 IS NULL OR scope != 'session')
                   UNION ALL SELECT scope, type, forgotten_at IS NOT NULL, count(*) FROM memories
                   WHERE space = @SPACE AND session_id = ?1 AND scope = 'session' GROUP BY 1, 2, 3""",
                (session_id,),
            )
            (graph,) = query(
                f"""SELECT (SELECT count(*) FROM entities AS e WHERE e.space = @SPACE AND EXISTS (SELECT 1
                        FROM memory_entities AS s WHERE s.entity = e.number AND s.memory NOT IN ({hidden}))),
                    (SELECT count(*) FROM entities AS e CROSS JOIN memory_entities AS s ON s.entity = e.number
                        WHERE e.space = @SPACE) - (SELECT count(*) FROM memory_entities WHERE memory IN ({hidden}))""",  # noqa: S608 - fixed
                (session_id,),
            )
        by_scope, by_type = Counter[str](), Counter[str]()
        for scope, kind, is_forgotten, count in sorts:
            if not is_forgotten:
                by_scope[scope] += count
                by_type[kind] += count
        forgotten = sum(count for *_, is_forgotten, count in sorts if is_forgotten)
        return Counts(by_scope.total(), dict(by_scope), dict(by_type), forgotten, *graph)


_LINKS: Final = f"""SELECT json_group_array(json_array(field, id)) FROM (
    SELECT l.field, o.id FROM (
        SELECT target AS other, strength, iif(relation = 'similar_to', 'near_duplicates', 'derived_from') AS field
        FROM memory_links WHERE source = m.number AND relation IN ('similar_to', 'derived_from')
        UNION ALL SELECT source, strength, iif(relation = 'similar_to', 'near_duplicates', 'superseded_by')
        FROM memory_links WHERE target = m.number AND relation IN ('similar_to', 'supersedes')
        UNION ALL SELECT other, strength, 'possibly_superseded_by' FROM {DOUBTS}) AS l
    JOIN memories AS o ON o.number = l.other
    WHERE (l.field != 'possibly_superseded_by'
        OR (l.strength >= ? AND o.valid_until IS NULL AND NOT m.done AND {is_newer("o", "m")}))
    AND o.forgotten_at IS NULL AND {shown_to("o")}
    ORDER BY l.strength DESC, o.number)"""  # noqa: S608 - fixed clauses
"""The memories linked to `m`, with the field that lists them, strongest links first. A memory that is no longer valid
does not put others in doubt, and a completed open end is never in doubt."""
_decode_links: Final = msgspec.json.Decoder(list[tuple[str, str]]).decode


def condition_of(filters: Filters) -> tuple[str, list[object]]:
    """Return the WHERE clause of filters over `memories AS m`, and its arguments. The clauses are fixed strings."""
    lists = (("scope", filters.scopes), ("type", filters.types), ("kind", filters.kinds), ("domain", filters.domains))
    tagged = f"m.number IN (SELECT memory FROM memory_tags WHERE tag COLLATE NOCASE IN {places_for(filters.tags)})"  # noqa: S608
    # An event's day begins at midnight UTC, so it is the same day in every time zone.
    edge = "CASE WHEN m.occurred_at % 86400 = 0 THEN ? ELSE ? END"
    return where(
        (visible(), filters.session_id),
        ("" if filters.include_forgotten else "m.forgotten_at IS NULL",),
        *((f"m.{column} IN {places_for(allowed)}", *allowed) for column, allowed in lists if allowed),
        ("m.importance >= ?", filters.min_importance or None),
        *(
            (f"coalesce(m.occurred_at, m.created_at) {sign} {edge}", at + time.localtime(at).tm_gmtoff, at)
            for sign, at in ((">=", filters.after), ("<=", filters.before))
            if at is not None and math.isfinite(at)
        ),
        (f"{_BEGINS} <= ? AND (m.valid_until IS NULL OR m.valid_until > ?)", filters.valid_at, filters.valid_at),
        (tagged if filters.tags else "", *filters.tags),
    )


ROWS: Final = 4_000
"""The number of rows worth scoring. Words are added, rarest first, as long as their rows do not exceed it."""
WIDE_ROWS: Final = 10_000
"""The number of rows worth scoring for a second word besides the rarest one."""
ENOUGH: Final = 20
"""If a narrowed search has this many hits, it is not repeated in full."""
TIMES: Final = 2
"""The factor between the scores of a narrowed expression and those of the full expression."""


def expression_of(phrases: Iterable[Phrase]) -> str:
    """Return the FTS5 expression that matches any of the phrases."""
    return " OR ".join(f'"{phrase.words}"{"*" if phrase.begins else ""}' for phrase in phrases)


def narrowed(phrases: Mapping[Phrase, int], rows: Mapping[Phrase, int]) -> str | None:
    """Return an expression that scores fewer rows; None if this gains nothing. `rows` is the number of rows with each
    phrase. FTS5 scores each occurrence of a phrase in the expression. Since `rare AND all` counts the rare phrases once
    more, all others are doubled, which doubles the whole score."""
    known = sorted((phrase for phrase in phrases if rows[phrase]), key=lambda phrase: rows[phrase])
    taken = total = 0
    for phrase in known:
        total += rows[phrase]
        if taken and total > (WIDE_ROWS if taken == 1 else ROWS):
            break
        taken += 1
    if taken == len(known):
        return None
    rare, common = known[:taken], known[taken:]
    again = [phrase for phrase in rare for _ in range(TIMES * phrases[phrase] - 1)]
    twice = [phrase for phrase in common for _ in range(TIMES * phrases[phrase])]
    return f"({expression_of(rare)}) AND ({expression_of(again + twice)})"


BM25: Final = "-bm25(words_@SPACE, 3.0, 1.5, 0.9, 1.5)"
"""The weights of content, tags, summary and parts. FTS5 multiplies a term's frequency by the weight before saturation,
so a triple weight equals a k1 of 0.4 instead of 1.2: a word's presence counts more, its frequency and length less."""


def hits_of_rare(
    words: SqliteWords,
    hits: Callable[[str], Hits],
    phrases: Sequence[Phrase],
    limit: int,
    counted: Mapping[Phrase, int],
) -> Hits:
    """Return the hits among texts with the rarer phrases or, if these are too few, among all texts. `hits` searches for
    an expression; `counted` has the number of texts for some of the phrases."""
    times = Counter(phrases)
    others = [phrase for phrase in times if phrase not in counted]
    counts = words.frequencies([[phrase] for phrase in others])
    narrow = narrowed(times, {**counted, **dict(zip(others, counts, strict=True))})
    if narrow is not None and len(found := hits(narrow)) >= min(limit, ENOUGH):
        return {number: bm25 / TIMES for number, bm25 in found.items()}
    return hits(expression_of(phrases))


SOURCE_FILE: Final = "CASE WHEN json_valid(m.source) THEN json_extract(m.source, '$.file') END"
"""The expression of the index `memories_from_files`."""
_HAPPENED: Final = "coalesce(m.occurred_at, m.created_at)"
_BEGINS: Final = f"coalesce(m.valid_from, min(m.created_at, {_HAPPENED}))"
_IS_REPLACED: Final = "EXISTS (SELECT 1 FROM memory_links AS l WHERE l.target = m.number AND l.relation = 'supersedes')"
"""True immediately, even if the memory was valid until a future day, or another machine's clock is ahead."""
_ORDERS: Final[dict[Order, str]] = {
    "important": f"m.importance DESC, {_HAPPENED} DESC",
    "latest": f"{_HAPPENED} DESC",
    "valid": f"{_BEGINS} DESC",
    "due": f"ifnull(m.due, 1e999), {_HAPPENED} DESC",
    "forgotten": "m.forgotten_at DESC",
}
_EVERY: Final = "memories AS m INDEXED BY memories_scanned"
"""All memories, through an index with the columns for filters and orders, since the rows themselves are long."""


def _scanned(filters: Filters, order: Order | None = None) -> str:
    """Return the FROM clause for filters and an order, with the smallest index that fits, and the first conditions."""
    if order == "due" or (filters.kinds and {*STANDING, OPEN_END}.issuperset(filters.kinds)):
        return f"memories AS m INDEXED BY memories_standing WHERE m.space = @SPACE AND m.{STANDING_KINDS}"
    return f"{_EVERY} WHERE m.space = @SPACE"


TOGETHER_S: Final = 600.0
"""Events within ten minutes of each other in one session belong to one conversation."""
NEIGHBOURS_PER_SIDE: Final = 2
INTERLEAVED: Final = 4
"""The number of rows checked on each side, since other sessions may have stored memories in between."""


def _neighbours_of(turns: Sequence[tuple[int, RankingFacts]], place: int) -> dict[int, int]:
    """Return the neighbours of a turn, each with its distance in steps. The turns must be in order."""
    number, facts = turns[place]
    before = turns[max(0, place - INTERLEAVED) : place][::-1]
    sides = (before, turns[place + 1 : place + 1 + INTERLEAVED])

    def is_near(turn: tuple[int, RankingFacts]) -> bool:
        return abs(turn[0] - number) <= INTERLEAVED and abs(turn[1].happened_at - facts.happened_at) <= TOGETHER_S

    near = (list(filter(is_near, side))[:NEIGHBOURS_PER_SIDE] for side in sides)
    return {other: step for side in near for step, (other, _) in enumerate(side, 1)}
