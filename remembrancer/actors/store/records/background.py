"""What the work in the background asks of a SQLite file of records, and what pruning removes from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from remembrancer.actors.store.records.contract import ConsolidationRequest, MaintenanceState, Promotable
from remembrancer.actors.store.records.history import Query, encode_json
from remembrancer.actors.store.records.materials import read_eligible, read_materials, read_materials_of
from remembrancer.actors.store.records.promotion_rows import observed_in, promotions_of
from remembrancer.actors.store.records.sessions import (
    open_sessions,
    read_session,
    read_tool_use,
    read_topics,
    read_turns,
)
from remembrancer.actors.store.records.sqlite_file import SqliteFile, unusable
from remembrancer.memory.promotion import CONFIDENCE_SHARE, COUNTED_ACCESSES, DIGITS, IMPORTANCE_SHARE, MOST_BESIDE
from remembrancer.protocol.consolidation import EntityEdges, FindNear, Material, MemoriesRead, ReadMemories, SessionRead
from remembrancer.protocol.reads import Promotion
from remembrancer.protocol.runs import Prune, Topic
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import MemoryLink

MOST_EDGES: Final = 20_000
"""Edges in an answer: some hundred kilobytes, and more than there is to be seen in communities."""
EDGES_OF: Final = 5000
"""Memories whose entities one answer connects: a tenth of a second."""
NAMED_TOGETHER: Final = 16
"""Of a memory that names more entities than this, the others are connected with the first one alone."""
INCOMING: Final = 50
"""Links that are shown of those that lead to one memory."""


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


_CLOSED: Final = "s.status != 'active' AND coalesce(s.ended_at, s.last_active_at) < ?"


@dataclass(frozen=True, slots=True)
class _Stale:
    """Rows of a table by their key: those that a query names for a time."""

    table: str
    key: str
    query: str


def _stale(edit: Prune) -> tuple[tuple[_Stale, float], ...]:
    """What goes, in this order: tool calls name turns, and a run goes with the last of its changes."""
    calls, turns = (
        _Stale(
            table,
            "number",
            f"SELECT t.number FROM sessions AS s JOIN {table} AS t ON t.session_id = s.session_id WHERE {_CLOSED}",  # noqa: S608
        )
        for table in ("tool_calls", "turns")
    )
    changes = _Stale(
        "run_changes",
        "sequence",
        "SELECT c.sequence FROM runs AS r JOIN run_changes AS c ON c.run_id = r.run_id WHERE r.began_at < ?",
    )
    runs = _Stale(
        "runs",
        "run_id",
        """SELECT run_id FROM runs AS r WHERE began_at < ?
           AND NOT EXISTS (SELECT 1 FROM run_changes WHERE run_id = r.run_id)""",
    )
    operations = _Stale(
        "applied_operations",
        "operation_id",
        """SELECT operation_id FROM applied_operations WHERE applied_at < ?
           AND operation_id NOT IN (SELECT operation_id FROM moves)""",
    )
    return (
        (calls, edit.sessions_before),
        (turns, edit.sessions_before),
        (changes, edit.runs_before),
        (runs, edit.runs_before),
        (operations, edit.operations_before),
    )


def prune(connection: sqlite3.Connection, edit: Prune) -> int:
    """Remove up to `edit.limit` rows; how many were removed. Fewer than that: there are no more."""
    removed = 0
    for stale, before in _stale(edit):
        left = edit.limit - removed
        if left <= 0:
            break
        removed += connection.execute(
            f"DELETE FROM {stale.table} WHERE {stale.key} IN ({stale.query} LIMIT ?)",  # noqa: S608 - our names
            (before, left),
        ).rowcount
    return removed


def count_prunable(query: Query, edit: Prune) -> int:
    """How many rows `prune` would remove, called until there are no more."""
    count = 0
    for stale, before in _stale(edit):
        if stale.table == "runs":  # also those that would go with the last of their changes
            ((rows,),) = query("SELECT count(*) FROM runs WHERE began_at < ?", (before,))
        else:
            ((rows,),) = query(f"SELECT count(*) FROM ({stale.query})", (before,))  # noqa: S608 - our names
        count += rows
    return count


T = TypeVar("T")


class SqliteBackground:
    """The part of `Records` that the work in the background needs."""

    _file: SqliteFile

    def materials(self, request: ReadMemories, model: str | None) -> MemoriesRead:
        return self._read(lambda query: read_materials(query, request, model))

    def eligible(self, request: FindNear, limit: int, among: Sequence[int] | None = None) -> list[int] | None:
        return self._read(lambda query: read_eligible(query, request, limit, among))

    def materials_of(self, numbers: Sequence[int]) -> dict[int, Material]:
        return self._read(lambda query: read_materials_of(query, numbers))

    def entity_edges(self, after: int = 0) -> EntityEdges:
        return self._read(lambda query: read_entity_edges(query, after))

    def orphans(self, before: float) -> int:
        return self._read(lambda query: count_orphans(query, before))

    def prunable(self, edit: Prune) -> int:
        return self._read(lambda query: count_prunable(query, edit))

    def session_read(self, session_id: str, turns: int) -> SessionRead:
        return self._read(lambda query: read_session_whole(query, session_id, turns))

    def open_sessions(self) -> list[SessionEntry]:
        return self._read(open_sessions)

    def consolidation_requests(self) -> list[ConsolidationRequest]:
        return self._read(read_requests)

    def wants_consolidation(self, threshold: int) -> bool:
        return self._read(lambda query: wants_consolidation(query, threshold)) is not None

    def request_consolidation(self, threshold: int, now: float) -> bool:
        up_to = self._read(lambda query: wants_consolidation(query, threshold))
        if up_to is None:
            return False
        with self._file.transaction() as connection:
            insert_request(connection, threshold, up_to, now)
        return True

    def promotable_now(self, score: float, limit: int = 200) -> list[Promotable]:
        return self._read(lambda query: read_promotable(query, score, limit))

    def maintenance_state(self, what: str) -> MaintenanceState:
        return self._read(lambda query: read_maintenance(query, what))

    def note_maintenance(self, what: str, at: float) -> None:
        with self._file.transaction() as connection:
            note_maintenance(connection, what, at)

    def promotions_of(self, memory_id: str) -> tuple[Promotion, ...]:
        return self._read(lambda query: promotions_of(query, memory_id))

    def incoming_links(self, memory_id: str, session_id: str | None) -> tuple[MemoryLink, ...]:
        return self._read(lambda query: read_incoming(query, memory_id, session_id))

    def observed_in(self, memory_id: str) -> tuple[str, ...]:
        return self._read(lambda query: observed_in(query, memory_id))

    def topics(self) -> tuple[Topic, ...]:
        return self._read(read_topics)

    def _read(self, work: Callable[[Query], T]) -> T:
        """What `work` makes of several queries as of one commit. What cannot be decoded is a damaged file."""
        try:
            return self._file.read_together(work)
        except ValueError as error:
            raise unusable(self._file.path, error) from error
