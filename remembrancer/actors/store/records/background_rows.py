"""What is to be dealt with in the background, as rows: requests, candidates, maintenance, topics, edges, links."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from remembrancer.actors.store.records.background_contract import ConsolidationRequest, MaintenanceState, Promotable
from remembrancer.actors.store.records.history import Query, encode_json
from remembrancer.actors.store.records.session_events import read_tool_use, read_turns
from remembrancer.actors.store.records.session_registry import read_session
from remembrancer.protocol.consolidation import EntityEdges, SessionRead
from remembrancer.protocol.rules import CONFIDENCE_SHARE, COUNTED_ACCESSES, DIGITS, IMPORTANCE_SHARE, MOST_BESIDE
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import MemoryLink

MOST_EDGES: Final = 20_000
"""Edges in an answer: some hundred kilobytes, and more than there is to be seen in communities."""
EDGES_OF: Final = 5000
"""Memories whose entities one answer connects: a tenth of a second."""
NAMED_TOGETHER: Final = 16
"""Of a memory that names more entities than this, the others are connected with the first one alone."""
INCOMING: Final = 50
"""Links that are shown of those that lead to one memory."""

_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def read_entity_edges(query: Query, after: int = 0) -> EntityEdges:
    """Pairs of entities with how many memories of a page name both: the page after that memory's number.

    A session's memories do not count, nor do forgotten ones. Names that mean the same are one, called as the first of
    them. The subject of a memory is among those it names.
    """
    page = query(
        """SELECT number FROM memories AS m WHERE number > ? AND scope != 'session' AND forgotten_at IS NULL
           AND EXISTS (SELECT 1 FROM memory_entities WHERE memory = m.number) ORDER BY number LIMIT ?""",
        (after, EDGES_OF + 1),
    )
    numbers = [number for (number,) in page[:EDGES_OF]]
    rows = query(
        """WITH named AS MATERIALIZED (
               SELECT DISTINCT me.memory, e.key, me.ordinal < ? AS early, me.ordinal = 0 AS first
               FROM json_each(?) AS page CROSS JOIN memory_entities AS me ON me.memory = page.value
               CROSS JOIN entities AS e ON e.number = me.entity),
           pairs AS MATERIALIZED (
               SELECT a.key AS one, b.key AS other, count(DISTINCT a.memory) AS said
               FROM named AS a JOIN named AS b ON b.memory = a.memory AND b.key > a.key
               WHERE a.early AND b.early OR a.first OR b.first
               GROUP BY one, other ORDER BY said DESC, one, other LIMIT ?)
           SELECT (SELECT name FROM entities WHERE key = one ORDER BY number LIMIT 1),
               (SELECT name FROM entities WHERE key = other ORDER BY number LIMIT 1), said
           FROM pairs ORDER BY said DESC, one, other""",
        (NAMED_TOGETHER, encode_json(numbers).decode(), MOST_EDGES),
    )
    ((topics_at,),) = query("SELECT max(found_at) FROM topics", ())
    edges = tuple((one, other, float(said)) for one, other, said in rows)
    return EntityEdges(edges, numbers[-1] if len(page) > EDGES_OF else None, topics_at)


def count_orphans(query: Query, before: float) -> int:
    """Entities that no memory names and that were made before a time."""
    ((count,),) = query(
        """SELECT count(*) FROM entities WHERE created_at < ?
           AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number)""",
        (before,),
    )
    return int(count)


def read_session_whole(query: Query, session_id: str, turns: int) -> SessionRead:
    """A session's entry, its last turns, its tools, and the memories that it stored (not the forgotten ones)."""
    count, last = read_turns(query, session_id, turns)
    by_kind = query(
        """SELECT kind, count(*) FROM memories WHERE session_id = ? AND forgotten_at IS NULL
           GROUP BY kind ORDER BY 2 DESC, 1""",
        (session_id,),
    )
    ((promoted,),) = query(
        "SELECT count(*) FROM promotion_log WHERE source_session = ? AND from_scope = 'session'", (session_id,)
    )
    entry, tools = read_session(query, session_id), read_tool_use(query, session_id)
    return SessionRead(entry, count, last, tools, dict(by_kind), promoted)


def read_requests(query: Query) -> list[ConsolidationRequest]:
    """The requests that wait."""
    rows = query(
        """SELECT number, requested_at, reason, up_to FROM consolidation_requests
           WHERE status IN ('pending', 'in_progress') ORDER BY number""",
        (),
    )
    return [ConsolidationRequest(*row) for row in rows]


def wants_consolidation(query: Query, threshold: int) -> int | None:
    """The number of the last memory, if more than `threshold` have come since the last request; else None.

    The active ones of the project or the user count, by an index of their own: the cost is that of the new ones. None
    as well while a request waits.
    """
    if read_requests(query):
        return None
    ((up_to,),) = query("SELECT coalesce(max(up_to), 0) FROM consolidation_requests", ())
    ((added, last),) = query(
        """SELECT count(*), (SELECT max(number) FROM memories) FROM (
               SELECT 1 FROM memories WHERE number > ? AND status = 'active' AND forgotten_at IS NULL
               AND scope != 'session' LIMIT ?)""",
        (up_to, threshold + 1),
    )
    return int(last) if added > threshold else None


def insert_request(connection: sqlite3.Connection, threshold: int, up_to: int, now: float) -> None:
    """Ask for consolidation."""
    connection.execute(
        "INSERT INTO consolidation_requests (requested_at, reason, up_to) VALUES (?, ?, ?)",
        (now, f"more than {threshold} active memories have been added", up_to),
    )


def read_promotable(query: Query, score: float, limit: int) -> list[Promotable]:
    """Memories of running sessions that reach a score with the most that use, kind and vectors can add."""
    rows = query(
        """SELECT m.id, m.version, min(m.access_count, ?) FROM sessions AS s
           CROSS JOIN memories AS m ON m.session_id = s.session_id AND m.scope = 'session'
           WHERE s.status = 'active' AND s.ended_at IS NULL AND m.status = 'active' AND m.forgotten_at IS NULL
           AND m.kind NOT IN ('scratchpad', 'tool_outcome')
           AND round(m.importance * ? + m.confidence * ?, ?) >= ? ORDER BY m.number LIMIT ?""",
        (COUNTED_ACCESSES, IMPORTANCE_SHARE, CONFIDENCE_SHARE, DIGITS, round(score - MOST_BESIDE, DIGITS), limit),
    )
    return [Promotable(*row) for row in rows]


def read_maintenance(query: Query, what: str) -> MaintenanceState:
    """When maintenance was done last, and the sessions closed since."""
    ((closed,),) = query("SELECT count(*) FROM sessions WHERE status != 'active'", ())
    rows = query("SELECT done_at, sessions FROM maintenance WHERE what = ?", (what,))
    done_at, sessions = rows[0] if rows else (None, 0)
    return MaintenanceState(done_at, max(0, closed - sessions))


def note_maintenance(connection: sqlite3.Connection, what: str, at: float) -> None:
    """Maintenance has been done."""
    connection.execute(
        """INSERT INTO maintenance VALUES (?, ?, (SELECT count(*) FROM sessions WHERE status != 'active'))
           ON CONFLICT DO UPDATE SET done_at = excluded.done_at, sessions = excluded.sessions""",
        (what, at),
    )


def read_incoming(query: Query, memory_id: str, session_id: str | None) -> tuple[MemoryLink, ...]:
    """Links that lead to a memory from others that the session may see and that are not forgotten."""
    rows = query(
        """SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
           JOIN memories AS o ON o.number = l.source
           WHERE l.target = (SELECT number FROM memories WHERE id = ?) AND o.forgotten_at IS NULL
           AND (? IS NULL OR o.scope != 'session' OR o.session_id = ?)
           ORDER BY l.strength DESC, o.number, l.relation LIMIT ?""",
        (memory_id, session_id, session_id, INCOMING),
    )
    return tuple(MemoryLink(*row) for row in rows)


def read_topics(query: Query) -> tuple[Topic, ...]:
    """The communities that were found last. Raises `ValueError` for a row that cannot be decoded."""
    rows = query("SELECT label, entities FROM topics ORDER BY number", ())
    return tuple(Topic(label, _decode_names(entities)) for label, entities in rows)
