"""Answers the memory browser's requests with what the session may see: timeline, sessions, possible contradictions.
Every query uses an index, or reads a bounded number of rows."""

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.actors.sqlite_file import SqliteFile, decode_names
from remembrancer.actors.store.records.memory_rows import OF_RUN, of_import
from remembrancer.actors.store.records.rules import INVALIDATED, SUPERSEDED, next_undos
from remembrancer.actors.store.records.space import APART, Spaces, is_newer, shown_to
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.records.sqlite_records import Reader
from remembrancer.memory.changes import MOVE_UNDONE, RESTORED, UNDONE, undoing
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.open_ends import closes
from remembrancer.memory.replacement import LEAST_SERIES, PROBABLE, RIVAL, counted_among, frame_of
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.wording import normalised
from remembrancer.protocol.browsing import (
    ActivityRead,
    FindUndecided,
    ListSessions,
    MemoryChanged,
    Pair,
    ReadActivity,
    ReadGraph,
    ReadTurns,
    RunDone,
    TurnsRead,
    Undecided,
)
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import OPEN_END, SESSION_RECORD
from remembrancer.protocol.reads import (
    Filters,
    GraphEntity,
    GraphFound,
    GraphRelationship,
    ListedMemory,
    ListedSession,
)
from remembrancer.protocol.runs import IMPORT, IMPORT_UNDONE
from remembrancer.protocol.session_life import ToolCall, Turn
from remembrancer.protocol.writes import MENTIONED_WITH

Listed = TypeVar("Listed", bound=ListedMemory)
LAST: Final = 1e12
LINKS_PER_ENTITY: Final = 2
MOST_WAITING: Final = 1000
"""The maximum number of pairs examined, most probable first. Further pairs are neither shown nor marked."""
UNSEEN: Final = f"""SELECT a.number FROM {APART}
   WHERE a.space = @SPACE AND (a.forgotten_at IS NOT NULL OR a.scope = 'session')
    AND (a.forgotten_at IS NOT NULL OR NOT {shown_to("a", "?1")})"""  # noqa: S608 - fixed
_decode_json: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _activity(records: Reader, request: ReadActivity) -> ActivityRead:
    # Only versions for which `is_version_visible` is true. The undo of a change to another memory is listed under that
    # memory. In an operation, the change to its own memory comes last, because undoing it undoes the others, too.
    spaces, before, limit = records.spaces, LAST if request.before is None else request.before, request.limit
    viewer = request.session_id
    changed = f"""
        SELECT * FROM (SELECT @SPACE, h.memory_id,
               iif(h.change = '{RESTORED}' AND json_extract(h.details, '$.imported') IS NOT NULL, 'imported', h.change),
               h.changed_at, h.session_id, h.version,
               substr(coalesce(iif(?7, json_extract(h.record, '$.summary'), NULL),
                   json_extract(h.record, '$.content'), m.content), 1, ?5),
               coalesce(json_extract(h.record, '$.kind'), m.kind),
               coalesce(json_extract(h.details, '$.fields'), '[]'), coalesce(json_extract(h.record, '$.done'), 0),
               m.forgotten_at IS NOT NULL,
               m.version > h.version AND m.content != json_extract(h.record, '$.content'),
               coalesce(json_extract(h.details, '$.member'), ''),
               coalesce(json_extract(h.details, '$.undid'),
                   CASE json_extract(h.details, '$.reason')
                       WHEN '{MOVE_UNDONE}' THEN iif(h.change = 'promoted', 'taken back', 'promoted')
                       WHEN '{IMPORT_UNDONE}' THEN 'imported' ELSE '' END),
               substr(h.operation_id, 1, instr(h.operation_id, ':')),
               coalesce((SELECT by.id FROM memories AS by WHERE h.change IN ('{SUPERSEDED}', '{INVALIDATED}')
                   AND by.space = @SPACE AND by.id = json_extract(h.details, '$.by') AND {shown_to("by", "?2")}), '')
           FROM history AS h JOIN memories AS m ON m.space = @SPACE AND m.id = h.memory_id
           WHERE h.space = @SPACE AND (json_extract(h.record, '$.forgotten') IS NULL OR h.change = 'forgotten')
           AND h.changed_at < ?1 AND h.changed_at >= ?4
           AND {shown_to("m", "?2")} AND (h.owner IS NULL OR h.owner = ?2)
           AND (m.scope != 'user' OR json_extract(h.record, '$.scope') = 'user' OR m.source_project = ?6)
           AND NOT (h.change = '{UNDONE}' AND json_extract(h.details, '$.other') IS NOT NULL)
           ORDER BY h.changed_at DESC, json_extract(h.details, '$.by') IS NULL DESC, m.number DESC, h.version DESC
           LIMIT ?3)"""  # noqa: S608 - fixed
    rows = spaces.read(
        spaces.for_each(changed),
        (before, viewer, limit + 1, request.after, request.characters, request.project.id, request.summarized),
    )
    rows.sort(key=lambda row: -row[3])
    changes = tuple(
        MemoryChanged(*(*row[1:8], decode_names(row[8]), *map(bool, row[9:12]), *row[12:])) for row in rows[:limit]
    )
    since = changes[-1].at if len(rows) > limit else request.after
    runs = spaces.read(
        spaces.for_each(
            f"""SELECT run_id, kind, began_at, session_id, iif(kind = '{IMPORT}',
               (SELECT count(DISTINCT memory_id) {of_import("r.run_id")}),
               (SELECT count(DISTINCT memory_id) {OF_RUN} r.run_id)), undone_at, @SPACE,
               EXISTS (SELECT 1 FROM memories AS m LEFT JOIN json_each(m.promotion_chain) AS step
               WHERE m.space = @SPACE AND m.id IN (SELECT memory_id {OF_RUN} r.run_id)
               AND (NOT {shown_to("m", "?5")} OR (json_extract(step.value, '$.run_id') = r.run_id
               AND json_extract(step.value, '$.source_project') != ?4)))
               FROM (SELECT * FROM runs WHERE space = @SPACE AND began_at < ?1 AND began_at >= ?2
               ORDER BY began_at DESC LIMIT ?3) AS r"""  # noqa: S608 - our names
        ),
        (before, since, limit, request.project.id, viewer),
    )
    runs.sort(key=lambda row: -row[2])
    if request.with_undo:
        of_spaces = tuple((row[0], change) for row, change in zip(rows, changes, strict=False))
        with spaces.file.reading() as connection:
            changes = _with_undo(connection, of_spaces)
    done = [(*row[:-2], row[-2] in records.users, bool(row[-1])) for row in runs if row[4]]
    happened = _happened(records, request, before)
    more = max(len(rows), len(happened)) > limit
    return ActivityRead(changes, tuple(RunDone(*row) for row in done), more, happened[-limit:])


def _happened(records: Reader, request: ReadActivity, before: float) -> tuple[MemoryChanged, ...]:
    """The last events of the requested days, in order. If there are more, one more than the limit."""
    of_request = request.session_id, before, request.after, request.limit, request.characters
    rows = request.days and records.spaces.read(
        f"""SELECT m.id, 'happened', m.occurred_at, m.session_id, 0,
           substr(coalesce(iif(?8, m.summary, NULL), m.content), 1, ?5), coalesce(m.kind, 'fact')
           FROM memories AS m INDEXED BY memories_scanned WHERE m.space = @SPACE AND m.forgotten_at IS NULL
           AND m.occurred_at >= iif(m.occurred_at % {DAY_S}, ?3, ?6)
           AND m.occurred_at < iif(m.occurred_at % {DAY_S}, ?2, ?7)
           AND m.kind IS NOT '{SESSION_RECORD}' AND m.status != 'promoted' AND {shown_to("m", "?1")} AND NOT EXISTS (
               SELECT 1 FROM memory_links AS l WHERE l.source = m.number AND l.relation = 'derived_from')
           ORDER BY m.occurred_at DESC, m.number DESC LIMIT ?4 + 1""",  # noqa: S608 - fixed
        (*of_request, *request.days, request.summarized),
    )
    return tuple(MemoryChanged(*row) for row in reversed(rows or ()))


def _with_undo(
    connection: sqlite3.Connection, changes: Sequence[tuple[int, MemoryChanged]]
) -> tuple[MemoryChanged, ...]:
    """Mark changes that have been undone (each change comes with its memory's space). The change that an undo would
    revert also gets its memory's current version, unless the undo would be refused."""
    undone = dict[tuple[int, str], set[int]]()
    undo = dict[tuple[int, str, int], int]()
    for space, memory_id in dict.fromkeys((space, each.memory_id) for space, each in changes):
        history = SqliteEdits(connection, space, 0.0).history(memory_id)
        standing, undone[space, memory_id] = undoing(history)
        imported = max((each.version for each in history if "imported" in each.details), default=0)
        for last in standing[-1:]:  # an import is only undone completely; memories never return to their session
            if last.version > imported and last.details.get("previous_scope") != "session":
                undo[space, memory_id, last.version] = history[-1].version
    return tuple(
        msgspec.structs.replace(
            each,
            is_undone=each.version in undone[space, each.memory_id],
            undo_at=undo.get((space, each.memory_id, each.version), 0),
        )
        for space, each in changes
    )


def undo_forgets(space: SqliteEdits, memory_id: str, session_id: str) -> bool:
    memory = space.memory(memory_id)
    with suppress(InvalidInput):  # raised if the undo would be refused
        if memory is not None and not memory.now.forgotten:
            first, *_ = next_undos(space, memory, space.history(memory_id), session_id)
            return first.after.forgotten and "previous_scope" not in first.changes[-1].details
    return False


def _sessions(records: Reader, request: ListSessions) -> tuple[ListedSession, ...]:
    rows = records.spaces.read(
        records.spaces.for_each(
            """SELECT @SPACE, (SELECT count(*) FROM memories AS m
                               WHERE m.space = @SPACE AND m.session_id = s.session_id),
               session_id, started_at, last_active_at, status, ended_at, ending, memories_promoted, NULL, client,
               0, (SELECT count(*) FROM turns AS t WHERE t.space = @SPACE AND t.session_id = s.session_id),
               (SELECT count(*) FROM tool_calls AS t WHERE t.space = @SPACE AND t.session_id = s.session_id)
               FROM (SELECT * FROM sessions WHERE space = @SPACE AND last_active_at < ?1
                     ORDER BY last_active_at DESC LIMIT ?2) AS s"""
        ),
        (LAST if request.before is None else request.before, request.limit),
    )
    stored = Counter[str]()
    for _, memories, session_id, *_ in rows:
        stored[session_id] += memories
    # The user's space also contains sessions of other projects that stored memories of the user.
    sessions = {row[0]: ListedSession(*row) for space, _, *row in reversed(rows) if space not in records.users}
    latest = sorted(sessions.values(), key=lambda each: -each.last_active_at)[: request.limit]
    return tuple(msgspec.structs.replace(each, memories=stored[each.session_id]) for each in latest)


def _turns(records: Reader, request: ReadTurns) -> TurnsRead:
    rows = records.spaces.read(  # with the row's number in its table
        """SELECT 'turn', created_at, turn_number, role, content, token_count, metadata, NULL FROM turns
           WHERE space = @SPACE AND session_id = ?1
           UNION ALL SELECT 'call', created_at, number, tool_name, arguments, result_summary, success, duration_ms
           FROM tool_calls WHERE space = @SPACE AND session_id = ?1
           ORDER BY 2 DESC, 3 DESC, 1 LIMIT ?2 OFFSET ?3""",
        (request.session_id, request.limit + 1, request.past),
    )
    turns, calls = [], []
    for sort, at, _, *row in reversed(rows[: request.limit]):
        if sort == "turn":
            role, text, count, about, _ = row
            turns.append(Turn(role, text, at, count, _decode_json(about)))
        else:
            name, given, came, well, took = row
            calls.append(ToolCall(name, at, _decode_json(given), came, bool(well), took))
    return TurnsRead(tuple(turns), tuple(calls), len(rows) > request.limit)


WAITING: Final = """NOT EXISTS (SELECT 1 FROM memory_links AS s WHERE s.source = l.source AND s.target = l.target
       AND s.relation NOT IN ('contradicts', 'similar_to'))
   AND NOT EXISTS (SELECT 1 FROM memory_links AS s WHERE s.source = l.target AND s.target = l.source
       AND s.relation NOT IN ('contradicts', 'similar_to'))
   AND NOT (a.status = 'consolidated' AND b.status = 'consolidated' AND EXISTS (
       SELECT 1 FROM memory_links AS s JOIN memory_links AS t USING (source, relation)
       WHERE s.target = a.number AND t.target = b.number AND relation = 'derived_from'))
   AND (l.relation = 'contradicts' OR NOT EXISTS (SELECT 1 FROM memory_links AS s
       WHERE s.source IN (a.number, b.number) AND s.relation = 'derived_from'))"""
"""No link resolves the pair, and no summary covers both. A summary that resembles another memory needs no decision."""


def find_undecided(records: Reader, request: FindUndecided) -> Undecided:
    pairs = pairs_in_review(records, request.session_id, alike=request.alike, with_hidden=request.with_hidden)
    doubted = {each.older.id for each in pairs if each.relation == "contradicts"}
    pairs = sorted(pairs, key=lambda pair: pair.is_weak)
    proposals = tuple(each for each in records.proposals() if each.memory_id not in doubted)
    weak = sum(pair.is_weak for pair in pairs)
    return Undecided(proposals, tuple(pairs[: request.limit]), len(pairs[request.limit :]), weak)


def pairs_in_review(
    records: Reader, session_id: str, *, alike: bool = False, with_hidden: bool = False
) -> Sequence[Pair]:
    """Most probable first. `alike` adds pairs that say nearly the same thing, `with_hidden` those that Review omits."""
    file, numbers = records.spaces.file, records.spaces.numbers
    return _pairs_at(file, numbers, session_id, alike, with_hidden, file.writes)


@lru_cache(maxsize=4)
def _pairs_at(
    file: SqliteFile, numbers: Sequence[int], session_id: str, alike: bool, with_hidden: bool, _writes: int
) -> Sequence[Pair]:
    """Cached until the next write, since every recall needs the pairs; until then, expired memories remain."""
    waiting = _waiting(Reader(Spaces(file, numbers), frozenset()), session_id, alike=alike)
    return waiting if with_hidden else _without_rivals(_without_series(waiting))


def _waiting(records: Reader, session_id: str, *, alike: bool) -> list[Pair]:
    # A memory that is valid until a future day may be replaced, but replaces no other. One that is done may replace an
    # open end, but is not replaced.
    def may_wait(one: str, other: str) -> str:
        ends = f"l.relation = 'contradicts' AND {one}.valid_until > ?4 AND {is_newer(other, one)}"
        replaces = f"l.relation = 'contradicts' AND {other}.kind = '{OPEN_END}' AND {is_newer(one, other)}"
        return f"({one}.valid_until IS NULL OR ({ends})) AND (NOT {one}.done OR ({replaces}))"

    rows = records.spaces.read(
        f"""WITH RECURSIVE pairs AS (
               SELECT l.* FROM memories AS m JOIN memory_links AS l ON l.source = m.number
               WHERE m.space = @SPACE AND l.relation IN ('contradicts', 'similar_to')
               UNION SELECT s.source, l.target, l.relation, l.strength, l.created_at FROM pairs AS l
               JOIN memory_links AS s ON s.target = l.source AND s.relation = 'supersedes' AND s.source != l.target
               WHERE l.relation = 'contradicts')
           SELECT min(a.number, b.number), max(a.number, b.number), min(l.relation) AS relation, l.strength
           FROM pairs AS l JOIN memories AS a ON a.number = l.source JOIN memories AS b ON b.number = l.target
           WHERE a.space = @SPACE AND {WAITING} AND (?3 OR l.relation = 'contradicts')
           AND a.forgotten_at IS NULL AND b.forgotten_at IS NULL AND a.status != 'archived' AND b.status != 'archived'
           AND {may_wait("a", "b")} AND {may_wait("b", "a")}
           AND {shown_to("a", "?1")} AND {shown_to("b", "?1")}
           GROUP BY 1, 2 ORDER BY relation, l.strength DESC, 2 DESC LIMIT ?2""",  # noqa: S608 - fixed
        (session_id, MOST_WAITING, alike, time.time()),
    )
    found = records.load(list({number for row in rows for number in row[:2]}), Filters(session_id))
    return [
        Pair(older, newer, relation, strength, may_be_done, relation == "contradicts" and strength < PROBABLE)
        for *pair, relation, strength in rows
        if found.keys() >= {*pair}
        for older, newer in [sorted((found[each] for each in pair), key=lambda each: each.age_key)]
        for is_asked, is_fact in [(relation == "contradicts" and older.is_open, newer.kind != OPEN_END)]
        for may_be_done in [is_asked and closes(newer.content, newer.created_at, is_fact, older.content, older.due)]
    ]


def _without_series(waiting: Sequence[Pair]) -> list[Pair]:
    """The pairs that do not belong to a series. Texts that differ only in numbers or names do not say nearly the same,
    and three such texts probably do not replace each other ("sample 1 was dry", "sample 2 was dry"), nor do four with
    consecutive numbers."""
    frames = {each.content: frame_of(each.content) for pair in waiting for each in (pair.older, pair.newer)}
    counts = Counter(frames.values())
    counted = counted_among(frames)

    def is_of_series(pair: Pair) -> bool:
        one, other = pair.older.content, pair.newer.content
        if frames[one] != frames[other] or normalised(one) == normalised(other):
            return False
        is_sure = pair.relation == "contradicts" and (pair.strength >= PROBABLE or counts[frames[one]] < LEAST_SERIES)
        return not is_sure or counted >= {one, other}

    return [each for each in waiting if not is_of_series(each)]


def _without_rivals(waiting: Sequence[Pair]) -> list[Pair]:
    """The pairs that can be decided now. If a memory may replace several others, Review asks about the most probable
    pair first. In a chain of values, it asks about the steps before it asks about the first and the last."""
    strongest: dict[tuple[str, str], float] = {}
    doubts = defaultdict[str, dict[str, float]](dict)
    for each in waiting:
        if each.relation == "contradicts":
            doubts[each.older.id][each.newer.id] = each.strength

    pairs = list[Pair]()
    for pair in waiting:
        least = min(pair.strength, PROBABLE)
        steps = [step for step, strength in doubts[pair.older.id].items() if strength >= least]
        has_steps = any(doubts[step].get(pair.newer.id, 0.0) >= least for step in steps)
        places = ("older", pair.older.id), ("newer", pair.newer.id)
        older, newer = (strongest.get(place, 0.0) for place in places)
        is_next = pair.relation == "contradicts" and pair.strength < min(newer, PROBABLE)
        if not (has_steps or is_next or pair.strength < RIVAL * max(older, newer)):
            pairs.append(pair)
            for place in places:  # a pair hides others only if it is shown
                strongest.setdefault(place, pair.strength)
    return pairs


def doubts_in_review(records: Reader, session_id: str) -> dict[str, dict[str, float]]:
    """Return, for each memory that another one may replace according to Review, the ids of these and their
    probabilities, the most probable ones first."""
    doubts: dict[str, dict[str, float]] = {}
    for pair in pairs_in_review(records, session_id):
        doubts.setdefault(pair.older.id, {})[pair.newer.id] = pair.strength
    return doubts


def doubted_in_review(records: Reader, session_id: str, memories: Sequence[Listed]) -> tuple[Listed, ...]:
    """Clear the doubtful flag on memories that Review does not list as doubtful, and quote what may replace others."""
    if not any(each.superseded_by or each.possibly_superseded_by for each in memories):
        return tuple(memories)
    every = doubts_in_review(records, session_id)
    doubts = [tuple(by for by in each.possibly_superseded_by if by in every.get(each.id, ())) for each in memories]
    first = ["".join((*each.superseded_by, *by)[:1]) for each, by in zip(memories, doubts, strict=True)]
    texts = {each.id: excerpt(each.content) for each in records.load([*records.numbers_of(first)], None).values()}
    return tuple(
        msgspec.structs.replace(each, possibly_superseded_by=by, newer=texts.get(newer))
        for each, by, newer in zip(memories, doubts, first, strict=True)
    )


def _graph(records: Reader, request: ReadGraph) -> GraphFound:
    # Hidden memories are looked up once, instead of once for each row of a full index scan.
    nodes = records.spaces.read(
        f"""SELECT o.key, o.name, o.type, count(*) AS memories, min(o.number) FROM entities AS o
            CROSS JOIN memory_entities AS s ON s.entity = o.number
            WHERE o.space = @SPACE AND s.memory NOT IN ({UNSEEN})
            GROUP BY o.key ORDER BY memories DESC, o.key LIMIT ?2""",  # noqa: S608 - fixed
        (request.session_id, request.limit),
    )
    links = records.spaces.read(
        f"""WITH best AS MATERIALIZED (
                SELECT s.subject, s.entity, count(*) AS memories FROM entities AS o CROSS JOIN memory_entities AS s
                ON s.entity = o.number WHERE o.space = @SPACE AND s.subject IS NOT NULL AND s.memory NOT IN ({UNSEEN})
                GROUP BY s.subject, s.entity ORDER BY memories DESC LIMIT ?2)
            SELECT b.key, e.key, l.memories, coalesce((SELECT edge FROM memory_entities AS m
                WHERE m.subject = l.subject AND m.entity = l.entity AND m.edge != '{MENTIONED_WITH}'
                AND m.memory NOT IN ({UNSEEN})), '')
            FROM best AS l CROSS JOIN entities AS b ON b.number = l.subject
            CROSS JOIN entities AS e ON e.number = l.entity""",  # noqa: S608 - fixed
        (request.session_id, LINKS_PER_ENTITY * request.limit),
    )
    relations: dict[tuple[str, str], tuple[int, str]] = {}
    for source, target, memories, relation in links:
        count, known = relations.get((source, target), (0, ""))
        relations[source, target] = count + memories, known or relation
    names = {key: name for key, name, *_ in nodes}
    related: dict[str, list[GraphRelationship]] = {key: [] for key in names}
    for (source, target), (_, relation) in sorted(relations.items(), key=itemgetter(1), reverse=True):
        if source in names and target in names:
            kind = relation or MENTIONED_WITH
            related[source].append(GraphRelationship(kind, names[target], "outgoing"))
            related[target].append(GraphRelationship(kind, names[source], "incoming"))
    entities = (GraphEntity(name, kind, tuple(related[key]), memories) for key, name, kind, memories, _ in nodes)
    return GraphFound(tuple(entities))


BROWSER_READS: Final[dict[type, Callable[[Reader, Any], Any]]] = {
    ReadActivity: _activity,
    ListSessions: _sessions,
    ReadTurns: _turns,
    FindUndecided: find_undecided,
    ReadGraph: _graph,
}
