"""The answers of one file to the memory browser, so far as a session sees it. Every query reads along an index, or a
bounded number of rows."""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec

from remembrancer.actors.store.records.contract import BrowsedRows, GraphRows, PairRows, UsageRows
from remembrancer.actors.store.records.space import shown_to
from remembrancer.actors.store.records.sqlite_file import Query
from remembrancer.actors.store.records.sqlite_graph import APART
from remembrancer.protocol.browsing import (
    ActivityRead,
    BrowserRequest,
    FindPairs,
    GraphNode,
    ListedSession,
    ListSessions,
    MemoryChanged,
    ReadActivity,
    ReadGraph,
    ReadTurns,
    ReadUsage,
    RunDone,
    SessionsListed,
    TurnsRead,
)
from remembrancer.protocol.session_life import ToolCall, Turn
from remembrancer.protocol.writes import MENTIONED_WITH

LAST: Final = 1e12
LAST_NUMBER: Final = 2**62
DAY_S: Final = 86_400
USAGE_DAYS: Final = 90
NEVER_DAYS: Final = 7
LINKS: Final = 2
"""Relations for each entity that is asked for, on average."""
UNSEEN: Final = f"""SELECT a.number FROM {APART}
   WHERE a.space = @SPACE AND (a.forgotten_at IS NOT NULL OR a.scope = 'session')
    AND (a.forgotten_at IS NOT NULL OR NOT {shown_to("a", "?1")})"""  # noqa: S608 - fixed
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_json: Final = msgspec.json.Decoder(dict[str, Any]).decode


def browse(query: Query, request: BrowserRequest, now: float) -> BrowsedRows:
    """The part of an answer that one file has."""
    match request:
        case ReadActivity():
            return _activity(query, request)
        case ListSessions():
            return _sessions(query, request)
        case ReadTurns():
            return _turns(query, request)
        case FindPairs():
            return _pairs(query, request)
        case ReadUsage():
            return _usage(query, request, now)
        case ReadGraph():
            return _graph(query, request)
        case _:
            assert_never(request)


def _activity(query: Query, request: ReadActivity) -> ActivityRead:
    before, limit = LAST if request.before is None else request.before, request.limit
    changed = query(
        f"""SELECT h.memory_id, h.change, h.changed_at, h.session_id, h.version,
               substr(coalesce(json_extract(h.record, '$.content'), m.content), 1, 200), m.kind,
               coalesce(json_extract(h.details, '$.fields'), '[]'), coalesce(json_extract(h.record, '$.done'), 0),
               m.forgotten_at IS NOT NULL
           FROM history AS h JOIN memories AS m ON m.space = @SPACE AND m.id = h.memory_id
           WHERE h.space = @SPACE AND h.begins IS NOT NULL AND h.changed_at < ?1 AND h.changed_at >= ?4
           AND {shown_to("m", "?2")} AND (h.owner IS NULL OR h.owner = ?2)
           ORDER BY h.changed_at DESC LIMIT ?3""",  # noqa: S608 - fixed
        (before, request.session_id, limit + 1, request.after),
    )
    forgotten = query(
        f"""SELECT id, 'forgotten', forgotten_at,
               coalesce((SELECT h.session_id FROM history AS h
                         WHERE h.space = @SPACE AND h.memory_id = m.id AND h.change = 'forgotten'
                         ORDER BY h.version DESC LIMIT 1), ''),
               version, substr(content, 1, 200), kind, '[]', done, 1
           FROM memories AS m
           WHERE space = @SPACE AND forgotten_at IS NOT NULL AND forgotten_at < ? AND forgotten_at >= ?
           AND {shown_to()} ORDER BY forgotten_at DESC LIMIT ?""",  # noqa: S608 - fixed
        (before, request.after, request.session_id, limit + 1),
    )
    rows = sorted([*changed, *forgotten], key=lambda row: -row[2])
    changes = tuple(
        MemoryChanged(*(*row[:7], _decode_names(row[7]), bool(row[8]), bool(row[9]))) for row in rows[:limit]
    )
    since = changes[-1].at if len(rows) > limit else request.after
    runs = query(
        """SELECT run_id, kind, began_at, session_id,
           (SELECT count(DISTINCT memory_id) FROM run_changes AS c
            WHERE c.space = @SPACE AND c.run_id = r.run_id), undone_at
           FROM (SELECT * FROM runs WHERE space = @SPACE AND began_at < ? AND began_at >= ?
           ORDER BY began_at DESC LIMIT ?) AS r""",
        (before, since, limit),
    )
    return ActivityRead(changes, tuple(RunDone(*row) for row in runs), len(rows) > limit)


def _sessions(query: Query, request: ListSessions) -> SessionsListed:
    rows = query(
        """SELECT session_id, started_at, last_active_at, status, ended_at, ending, memories_promoted, client,
           (SELECT count(*) FROM memories AS m WHERE m.space = @SPACE AND m.session_id = s.session_id),
           (SELECT count(*) FROM turns AS t WHERE t.space = @SPACE AND t.session_id = s.session_id),
           (SELECT count(*) FROM tool_calls AS t WHERE t.space = @SPACE AND t.session_id = s.session_id)
           FROM (SELECT * FROM sessions WHERE space = @SPACE AND last_active_at < ?
                 ORDER BY last_active_at DESC LIMIT ?) AS s""",
        (LAST if request.before is None else request.before, request.limit),
    )
    names = (
        *("session_id", "started_at", "last_active_at", "status", "ended_at", "ending", "memories_promoted"),
        *("client", "memories", "turns", "tool_calls"),
    )
    return SessionsListed(tuple(ListedSession(**dict(zip(names, row, strict=True))) for row in rows))


def _turns(query: Query, request: ReadTurns) -> TurnsRead:
    turn, call = request.before or (LAST_NUMBER, LAST_NUMBER)
    turns = query(
        """SELECT turn_number, role, content, created_at, token_count, metadata FROM turns
           WHERE space = @SPACE AND session_id = ? AND turn_number < ? ORDER BY turn_number DESC LIMIT ?""",
        (request.session_id, turn, request.limit + 1),
    )
    calls = query(
        """SELECT number, tool_name, created_at, arguments, result_summary, success, duration_ms FROM tool_calls
           WHERE space = @SPACE AND session_id = ? AND number < ? ORDER BY number DESC LIMIT ?""",
        (request.session_id, call, request.limit + 1),
    )
    said = done = 0  # the later of the next two, until there are enough: each table goes on where it was left
    while said + done < request.limit and (said < len(turns) or done < len(calls)):
        if done == len(calls) or (said < len(turns) and turns[said][3] >= calls[done][2]):
            said += 1
        else:
            done += 1
    more = said < len(turns) or done < len(calls)
    earlier = (turns[said - 1][0] if said else turn, calls[done - 1][0] if done else call)
    return TurnsRead(
        tuple(
            Turn(role, text, at, count, _decode_json(about)) for _, role, text, at, count, about in turns[:said][::-1]
        ),
        tuple(
            ToolCall(name, at, _decode_json(given), came, bool(well), took)
            for _, name, at, given, came, well, took in calls[:done][::-1]
        ),
        earlier if more else None,
    )


def _pairs(query: Query, request: FindPairs) -> PairRows:
    rows = query(
        f"""SELECT min(a.number, b.number), max(a.number, b.number), l.relation, max(l.strength) FROM memory_links AS l
           JOIN memories AS a ON a.number = l.source JOIN memories AS b ON b.number = l.target
           WHERE a.space = @SPACE AND l.relation IN ('contradicts', 'similar_to')
           AND a.forgotten_at IS NULL AND b.forgotten_at IS NULL AND a.status != 'archived' AND b.status != 'archived'
           AND a.valid_until IS NULL AND b.valid_until IS NULL
           AND NOT EXISTS (SELECT 1 FROM memory_links AS s WHERE s.relation NOT IN ('contradicts', 'similar_to')
               AND (s.source, s.target) IN ((l.source, l.target), (l.target, l.source)))
           AND {shown_to("a", "?1")} AND {shown_to("b", "?1")}
           GROUP BY 1, 2, 3 ORDER BY l.relation, max(l.strength) DESC, 2 DESC LIMIT ?2""",  # noqa: S608 - fixed
        (request.session_id, request.limit),
    )
    return PairRows(tuple(tuple(row) for row in rows))


def _usage(query: Query, request: ReadUsage, now: float) -> UsageRows:
    seen = "space = @SPACE AND scope != 'session' AND forgotten_at IS NULL"
    today, week = int(now // DAY_S), now - NEVER_DAYS * DAY_S
    days = query(
        f"""WITH RECURSIVE days (day) AS (SELECT ?1 UNION ALL SELECT day - 1 FROM days WHERE day > ?1 - ?2)
            SELECT date(day * {DAY_S}, 'unixepoch'), (SELECT count(*) FROM memories WHERE {seen}
                AND created_at >= day * {DAY_S} AND created_at < (day + 1) * {DAY_S}) FROM days""",  # noqa: S608 - fixed
        (today, USAGE_DAYS),
    )
    most = query(
        f"""SELECT number FROM memories WHERE {seen} AND created_at > 0 AND access_count > 0
            ORDER BY access_count DESC LIMIT ?""",  # noqa: S608 - fixed: by the index that has all of it
        (request.limit,),
    )
    never = f"{seen} AND access_count = 0 AND created_at < ?"
    unused = query(
        f"SELECT number FROM memories WHERE {never} ORDER BY created_at LIMIT ?",  # noqa: S608 - fixed
        (week, request.limit),
    )
    ((unused_count,),) = query(f"SELECT count(*) FROM memories WHERE {never}", (week,))  # noqa: S608 - fixed
    ((total,),) = query(
        "SELECT coalesce(sum(count), 0) FROM tallies WHERE space = @SPACE AND NOT forgotten AND scope != 'session'", ()
    )
    return UsageRows(
        {day: count for day, count in days if count},
        tuple(number for (number,) in most),
        tuple(number for (number,) in unused),
        unused_count,
        total,
    )


def _graph(query: Query, request: ReadGraph) -> GraphRows:
    # Who is not seen is looked up once, and not for each row of an index that is read to its end.
    nodes = query(
        f"""WITH best AS MATERIALIZED (
                SELECT s.entity, count(*) AS memories FROM entities AS o CROSS JOIN memory_entities AS s
                ON s.entity = o.number WHERE o.space = @SPACE AND s.memory NOT IN ({UNSEEN})
                GROUP BY entity ORDER BY memories DESC, entity LIMIT ?2)
            SELECT e.key, e.name, e.type, n.memories FROM best AS n CROSS JOIN entities AS e
            ON e.number = n.entity""",  # noqa: S608 - fixed
        (request.session_id, request.limit),
    )
    links = query(
        f"""WITH best AS MATERIALIZED (
                SELECT s.subject, s.entity, count(*) AS memories FROM entities AS o CROSS JOIN memory_entities AS s
                ON s.entity = o.number WHERE o.space = @SPACE AND s.subject IS NOT NULL AND s.memory NOT IN ({UNSEEN})
                GROUP BY s.subject, s.entity ORDER BY memories DESC LIMIT ?2)
            SELECT b.key, e.key, l.memories, coalesce((SELECT edge FROM memory_entities AS m
                WHERE m.subject = l.subject AND m.entity = l.entity AND m.edge != '{MENTIONED_WITH}'
                AND m.memory NOT IN ({UNSEEN})), '')
            FROM best AS l CROSS JOIN entities AS b ON b.number = l.subject
            CROSS JOIN entities AS e ON e.number = l.entity""",  # noqa: S608 - fixed
        (request.session_id, LINKS * request.limit),
    )
    return GraphRows(tuple((key, GraphNode(name, kind, memories)) for key, name, kind, memories in nodes), tuple(links))
