"""Reads a space for background work, and prunes it."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from remembrancer.actors.sqlite_file import AMONG, Query, decode_names, json_list, where
from remembrancer.actors.store.records.memory_rows import SAYS_IT, decode_columns, read_copies
from remembrancer.actors.store.records.passage_rows import mean_vectors, passage_vectors
from remembrancer.actors.store.records.search import NO_COLUMNS
from remembrancer.actors.store.records.sessions import open_sessions
from remembrancer.actors.store.records.space import DOUBTS, Spaces, is_newer, shown_to
from remembrancer.actors.store.records.types import WaitingWork
from remembrancer.memory.promotion import CONFIDENCE_SHARE, DIGITS, IMPORTANCE_SHARE, MAX_BONUS
from remembrancer.memory.replacement import REPLACED
from remembrancer.protocol.consolidation import Material, Promotable, ReadMemories
from remembrancer.protocol.reads import Memories, Proposal, Surroundings
from remembrancer.protocol.runs import LoggedPromotion, Prune
from remembrancer.protocol.writes import EntityRef, MemoryLink

MAX_EDGES: Final = 20_000
"""The maximum number of edges in an answer: a few hundred kilobytes, more than community detection needs."""
NAMED_TOGETHER: Final = 16
"""If a memory names more entities than this, the others are connected only to the first one."""
_CLOSED: Final = "s.status != 'active' AND coalesce(s.ended_at, s.last_active_at)"
"""SQL: the session is closed, and the time of its end; a comparison must follow."""
MAX_INCOMING_LINKS: Final = 50


class SqliteBackground:
    _file: Spaces

    def materials(self, request: ReadMemories, model: str | None = None) -> Memories[Material]:
        """Return a page of unforgotten memories, with vectors of `model`. `request.project` is ignored."""
        limit = max(1, min(request.limit, MAX_PAGE))
        wanted, arguments = _page_condition(request)
        with self._file.reading() as query:
            rows = query(
                f"""SELECT {", ".join(_COLUMNS.values())} FROM memories AS m WHERE {wanted}
                    ORDER BY m.number {"DESC" if request.newest_first else "ASC"} LIMIT ?""",  # noqa: S608 - our columns
                (*arguments, limit + 1),
            )
            page = [decode_columns(dict(zip(_COLUMNS, row, strict=True))) for row in rows[:limit]]
            for each in page:
                each |= {name: decode(each[name]) for name, decode in _DECODERS.items()}
            numbers = [each["number"] for each in page]
            vectors = _read_means(query, model, numbers) if request.with_vectors and model is not None else {}
        memories = tuple(Material(**each, vector=vectors.get(each["number"], b"")) for each in page)
        return Memories(memories, len(rows) > limit)

    def entity_edges(self) -> tuple[tuple[str, str, int], ...]:
        """Return pairs of entities with the number of memories that name both, best supported first. Session memories
        and forgotten memories do not count. Names with the same key are one entity, in the spelling found first."""
        rows = self._file.read(
            """WITH named AS MATERIALIZED (
                   SELECT DISTINCT me.memory, e.key, me.ordinal < ? AS early, me.ordinal = 0 AS first
                   FROM memories AS m CROSS JOIN memory_entities AS me ON me.memory = m.number AND NOT me.found
                   CROSS JOIN entities AS e ON e.number = me.entity
                   WHERE m.space = @SPACE AND m.scope != 'session' AND m.forgotten_at IS NULL),
               pairs AS MATERIALIZED (
                   SELECT a.key AS one, b.key AS other, count(DISTINCT a.memory) AS said
                   FROM named AS a JOIN named AS b ON b.memory = a.memory AND b.key > a.key
                   WHERE a.early AND b.early OR a.first OR b.first
                   GROUP BY one, other ORDER BY said DESC, one, other LIMIT ?)
               SELECT (SELECT name FROM entities WHERE space = @SPACE AND key = one ORDER BY number LIMIT 1),
                   (SELECT name FROM entities WHERE space = @SPACE AND key = other ORDER BY number LIMIT 1), said
               FROM pairs ORDER BY said DESC, one, other""",
            (NAMED_TOGETHER, MAX_EDGES),
        )
        return tuple(rows)

    def proposals(self) -> tuple[Proposal, ...]:
        """Return the proposals to the user that await an answer: preferences first, then the most certain ones."""
        with self._file.reading() as query:
            return _read_proposals(query)

    def waiting_work(self, score: float, limit: int) -> WaitingWork:
        """`promotable` has the newest `limit` memories of running sessions with at least this promotion score."""
        with self._file.reading() as query:
            promotable = query(
                """SELECT m.id, m.version
                   FROM sessions AS s CROSS JOIN memories AS m
                   ON m.space = @SPACE AND m.session_id = s.session_id AND m.scope = 'session'
                   WHERE s.space = @SPACE AND s.status = 'active' AND s.ended_at IS NULL AND m.status = 'active'
                   AND m.forgotten_at IS NULL
                   AND m.kind NOT IN ('scratchpad', 'tool_outcome')
                   AND round(m.importance * ? + m.confidence * ?, ?) >= ? ORDER BY m.number DESC LIMIT ?""",
                (IMPORTANCE_SHARE, CONFIDENCE_SHARE, DIGITS, round(score - MAX_BONUS, DIGITS), limit),
            )
            oldest = query(
                """SELECT created_at FROM memories WHERE space = @SPACE AND forgotten_at IS NULL
                   ORDER BY number LIMIT 1""",
                (),
            )
            maintained = "SELECT max(done_at) FROM maintenance WHERE space = @SPACE AND what = 'maintenance'"
            ((maintained_at,),) = query(maintained, ())
            closed = f"SELECT count(*) FROM sessions AS s WHERE s.space = @SPACE AND {_CLOSED} > ?"  # noqa: S608 - fixed
            ((sessions_since,),) = query(closed, (maintained_at or 0.0,))
            sessions, found = tuple(open_sessions(query)), tuple(Promotable(*row) for row in promotable)
            return WaitingWork(sessions, found, maintained_at, sessions_since, oldest[0][0] if oldest else None)

    def summaries_of(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        """Return the summaries that cover some of these memories, by number, each with the memories that it covers."""
        rows = self._file.read(
            f"""SELECT o.number, m.number FROM memories AS m JOIN memory_links AS l ON l.target = m.number
                JOIN memories AS o ON o.number = l.source
                WHERE m.number IN {AMONG} AND l.relation = 'derived_from'
                AND o.type = 'semantic' AND {SAYS_IT} ORDER BY o.number, m.number""",  # noqa: S608 - fixed clauses
            (json_list(numbers),),
        )
        found: dict[int, list[int]] = {}
        for summary, number in rows:
            found.setdefault(summary, []).append(number)
        return found

    def derived_among(self, numbers: Sequence[int]) -> set[int]:
        rows = self._file.read(
            f"SELECT source FROM memory_links WHERE relation = 'derived_from' AND source IN {AMONG}",  # noqa: S608 - fixed
            (json_list(numbers),),
        )
        return {number for (number,) in rows}

    def settled_among(self, numbers: Sequence[int]) -> set[frozenset[int]]:
        """The pairs of these memories and others whose link resolves a doubt."""
        rows = self._file.read(
            f"""SELECT source, target FROM memory_links
                WHERE relation NOT IN ('similar_to', 'contradicts') AND source IN {AMONG}""",  # noqa: S608 - fixed
            (json_list(numbers),),
        )
        return set(map(frozenset, rows))

    def edited_among(self, numbers: Sequence[int]) -> dict[int, float]:
        """Return the time (seconds since the epoch) of the edit that wrote each current text, if it was edited."""
        rows = self._file.read(
            f"""SELECT m.number, max(h.changed_at) FROM memories AS m
                JOIN history AS h ON h.space = m.space AND h.memory_id = m.id
                WHERE m.number IN {AMONG} AND h.change IN ('updated', 'closed') AND h.details LIKE '%"content"%'
                AND json_extract(h.record, '$.content') = m.content GROUP BY 1""",  # noqa: S608 - fixed
            (json_list(numbers),),
        )
        return dict(rows)

    def surroundings(self, memory_id: str, content: str, session_id: str | None) -> Surroundings:
        """A `session_id` of None means anybody. For a memory in another space, returns only its copies here."""
        with self._file.reading() as query:
            incoming = query(
                f"""SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
                   JOIN memories AS o ON o.number = l.source
                   WHERE l.target = (SELECT number FROM memories WHERE space = @SPACE AND id = ?)
                   AND o.forgotten_at IS NULL
                   AND {shown_to("o", "ifnull(?, o.session_id)")}
                   ORDER BY l.strength DESC, o.number, l.relation LIMIT ?""",  # noqa: S608 - fixed
                (memory_id, session_id, MAX_INCOMING_LINKS),
            )
            promotions = query(
                """SELECT memory_id, kind, from_scope, to_scope, reason, source_session, score, merged_into, run_id,
                       promoted_at FROM promotion_log
                   WHERE space = @SPACE AND (memory_id = ?1 OR merged_into = ?1) ORDER BY sequence""",
                (memory_id,),
            )
            origin = """SELECT source_project FROM memories
                        WHERE space = @SPACE AND id = ? AND source_project IS NOT NULL"""
            patterns = "SELECT source_projects FROM cross_project_patterns WHERE space = @SPACE AND memory_id = ?"
            projects = [project for (project,) in query(origin, (memory_id,))]
            projects += (each for (listed,) in query(patterns, (memory_id,)) for each in decode_names(listed))
            found = query(
                """SELECT DISTINCT e.name FROM memories AS m JOIN memory_entities AS s ON s.memory = m.number
                   JOIN entities AS e ON e.number = s.entity
                   WHERE m.space = @SPACE AND m.id = ? AND s.found ORDER BY e.number""",
                (memory_id,),
            )
            return Surroundings(
                tuple(MemoryLink(*row) for row in incoming),
                tuple(LoggedPromotion(*row[:8], run_id=row[8], promoted_at=row[9]) for row in promotions),
                tuple(dict.fromkeys(projects)),
                tuple(row[0] for row in found),
                read_copies(query, memory_id, content, session_id),
                next(iter(_read_proposals(query, memory_id)), None),
            )


MAX_PROPOSALS: Final = 50


def _read_proposals(query: Query, memory_id: str | None = None) -> tuple[Proposal, ...]:
    which = (
        "p.refused_at IS NULL AND m.forgotten_at IS NULL AND m.valid_until IS NULL AND m.status = 'active'"
        if memory_id is None
        else "m.id = ?"
    )
    rows = query(
        f"""SELECT m.id, m.content, m.kind, p.reason, p.score, p.proposed_at, p.refused_at
            FROM proposals AS p CROSS JOIN memories AS m ON m.space = @SPACE AND m.id = p.memory_id
            WHERE p.space = @SPACE AND {which}
            ORDER BY m.kind = 'preference' DESC, p.score DESC, m.number LIMIT ?""",  # noqa: S608 - fixed clauses
        (*(() if memory_id is None else (memory_id,)), MAX_PROPOSALS),
    )
    return tuple(Proposal(*row) for row in rows)


KEPT_VERSIONS: Final = 100
"""The number of the newest versions of a memory that are kept regardless of their age, besides the first version."""
_SESSION_EVENTS: Final = f"""SELECT t.number FROM sessions AS s JOIN TABLE AS t
    ON t.space = @SPACE AND t.session_id = s.session_id WHERE s.space = @SPACE AND {_CLOSED} < ?"""  # noqa: S608 - our names
_NO_TRACE: Final = "".join(
    f" AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.space = @SPACE AND t.session_id = s.session_id)"  # noqa: S608
    for table in ("memories", "turns", "tool_calls")
)
_STALE: Final = (
    ("tool_calls", "number", "sessions_before", _SESSION_EVENTS.replace("TABLE", "tool_calls")),
    ("turns", "number", "sessions_before", _SESSION_EVENTS.replace("TABLE", "turns")),
    ("runs", "run_id", "runs_before", "SELECT run_id FROM runs WHERE space = @SPACE AND began_at < ?"),
    (
        "applied_operations",
        "operation_id",
        "operations_before",
        "SELECT operation_id FROM applied_operations WHERE space = @SPACE AND applied_at < ?",
    ),
    (
        "history",
        "(memory_id, version, operation_id)",
        "runs_before",
        f"""SELECT h.memory_id, h.version, h.operation_id
            FROM history AS h LEFT JOIN memories AS m ON m.space = @SPACE AND m.id = h.memory_id
            WHERE h.space = @SPACE AND h.changed_at < ?
            AND (m.id IS NULL OR h.version BETWEEN 2 AND m.version - {KEPT_VERSIONS})""",  # noqa: S608 - a number
    ),
    (
        "promotion_log",
        "sequence",
        "runs_before",
        """SELECT sequence FROM promotion_log AS l WHERE space = @SPACE AND promoted_at < ?
           AND NOT EXISTS (SELECT 1 FROM memories WHERE space = @SPACE AND id = l.memory_id)""",
    ),
    (
        "sessions",
        "session_id",
        "runs_before",
        # Includes active sessions, since those of the user's space and of other machines are closed elsewhere.
        f"""SELECT session_id FROM sessions AS s
            WHERE s.space = @SPACE AND coalesce(s.ended_at, s.last_active_at) < ?{_NO_TRACE}""",  # noqa: S608 - our names
    ),
)
"""The tables to prune, in order: the key, the `Prune` time before which rows are stale, and a query for their keys."""


def prune(execute: Callable[[str, Sequence[object]], sqlite3.Cursor], edit: Prune) -> int:
    """Delete up to `edit.limit` rows and return their number. If it is below the limit, no stale rows are left."""
    removed = 0
    for table, key, before, stale in _STALE:
        removed += execute(
            f"DELETE FROM {table} WHERE space = @SPACE AND {key} IN ({stale} LIMIT ?)",  # noqa: S608 - our names
            (getattr(edit, before), max(0, edit.limit - removed)),
        ).rowcount
    return removed


MAX_PAGE: Final = 1000
"""The maximum number of memories on a page, so that a page with vectors takes a few megabytes."""
_COLUMNS: Final = {name: f"m.{name}" for name in Material.__struct_fields__ if name not in {*NO_COLUMNS, "vector"}} | {
    "number": "m.number",
    "sessions_used": "(SELECT count(*) FROM memory_sessions WHERE memory = m.number)",
    "pinned": "m.pinned OR (m.kind = 'open_end' AND NOT m.done)",
    "is_replaced": f"""EXISTS (SELECT 1 FROM {DOUBTS} JOIN memories AS o ON o.number = other
        WHERE strength >= {REPLACED} AND o.valid_until IS NULL AND o.forgotten_at IS NULL
        AND {is_newer("o", "m")})""",  # noqa: S608 - fixed
    "derived_from": """(SELECT json_group_array(id) FROM (SELECT s.id FROM memory_links AS l
        JOIN memories AS s ON s.number = l.target
        WHERE l.source = m.number AND l.relation = 'derived_from' ORDER BY l.target))""",
    "superseded_by": """(SELECT json_group_array(s.id) FROM memory_links AS l JOIN memories AS s ON s.number = l.source
        WHERE l.target = m.number AND l.relation = 'supersedes')""",
    "entities": """(SELECT json_group_array(json_object('name', name, 'type', type, 'relationship', relationship))
        FROM (SELECT e.name, e.type, me.relationship FROM memory_entities AS me
              JOIN entities AS e ON e.number = me.entity WHERE me.memory = m.number AND NOT me.found
              ORDER BY me.ordinal, me.entity, me.relationship))""",
    "undone": """coalesce((SELECT coalesce(json_extract(h.details, '$.undid'), was.change) FROM history AS h
        JOIN history AS was ON was.space = h.space AND was.memory_id = h.memory_id AND was.version = h.version - 1
        WHERE h.space = m.space AND h.memory_id = m.id AND h.version = m.version AND h.change = 'undone'), '')""",
}
_DECODERS: Final[dict[str, Callable[[Any], object]]] = {
    "derived_from": decode_names,
    "superseded_by": decode_names,
    "entities": msgspec.json.Decoder(tuple[EntityRef, ...]).decode,
    "is_replaced": bool,
}


def _page_condition(request: ReadMemories) -> tuple[str, list[Any]]:
    lists = (("scope", request.scopes), ("status", request.statuses), ("type", request.types), ("kind", request.kinds))
    proposed = "(SELECT memory_id FROM proposals WHERE space = @SPACE"
    return where(
        ("m.space = @SPACE AND m.forgotten_at IS NULL",),
        (f"m.number {'<' if request.newest_first else '>'} ?", request.after or None),
        *(
            (f"m.{column} IN {AMONG}", json_list(allowed) if allowed else None)
            for column, allowed in (*lists, ("id", request.memory_ids), ("number", request.numbers))
        ),
        ("m.session_id = ?", request.session_id),
        ("m.importance >= ?", request.min_importance or None),
        (f"m.id IN {proposed} AND refused_at IS NULL)" if request.proposed else "",),
        (f"m.id NOT IN {proposed})" if request.proposed is False else "",),
        (
            """m.session_id IN (SELECT session_id FROM sessions
               WHERE space = @SPACE AND status != 'active' AND coalesce(ended_at, last_active_at) < ?)""",
            request.closed_before,
        ),
        # Last, so that sessions are counted only for memories that pass the other conditions.
        ("(SELECT count(*) FROM memory_sessions WHERE memory = m.number) >= ?", request.min_sessions or None),
    )


def _read_means(query: Query, model: str, numbers: Sequence[int]) -> dict[int, bytes]:
    rows = query(
        """SELECT number, memory, ordinal, vector FROM passages
           WHERE memory IN (SELECT value FROM json_each(?)) AND model = ?""",
        (json_list(numbers), model),
    )
    memories, means = mean_vectors(passage_vectors(rows))
    return {memory: mean.tobytes() for memory, mean in zip(memories, means.astype("<f4"), strict=True)}
