"""Memories as the consolidator reads them: page by page, with vectors on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from remembrancer.actors.store.records.contract import PassageVectors, Vectors
from remembrancer.actors.store.records.sqlite_file import Query, encode_json
from remembrancer.protocol.consolidation import Material, MemoriesRead, ReadMemories
from remembrancer.protocol.writes import EntityRef

MOST_AT_ONCE: Final = 1000
"""The limit on memories in a page, whatever the request: a page with vectors is then a few megabytes."""
_COLUMNS: Final = """m.number, m.id, m.kind, m.type, m.scope, m.session_id, m.version, m.created_at,
    coalesce(m.occurred_at, m.created_at), m.updated_at, max(coalesce(m.last_accessed_at, 0), m.created_at),
    m.importance, m.confidence, m.access_count,
    (SELECT count(*) FROM memory_sessions WHERE memory = m.number), m.status, m.domain, m.tags,
    EXISTS (SELECT 1 FROM memory_links WHERE source = m.number AND relation = 'derived_from'),
    m.archived_at, m.valid_until, m.pinned OR (m.kind = 'open_end' AND NOT m.done),
    EXISTS (SELECT 1 FROM memory_links
            WHERE target = m.number AND relation = 'contradicts' AND strength >= 0.5)"""
_TEXTS: Final = ", m.content, m.summary"
_NO_TEXTS: Final = ", '', NULL"
_decode_tags: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def read_materials(query: Query, request: ReadMemories, model: str | None) -> MemoriesRead:
    """Return a page of memories that are not forgotten. Without content there are no summaries and entities either.

    Raises:
        ValueError: a row cannot be decoded.
    """
    limit = max(1, min(request.limit, MOST_AT_ONCE))
    clauses, arguments = _wanted(request, model)
    order = "ASC" if request.before is None else "DESC"
    rows = query(
        f"""SELECT {_COLUMNS} {_TEXTS if request.with_content else _NO_TEXTS} FROM memories AS m
            WHERE {" AND ".join(clauses)} ORDER BY m.number {order} LIMIT ?""",  # noqa: S608 - fixed clauses
        (*arguments, limit + 1),
    )
    page = rows[:limit]
    numbers = [row[0] for row in page]
    vectors = _read_means(query, model, numbers) if request.with_vectors and model is not None else {}
    entities = _read_entities(query, numbers) if request.with_content else {}
    sources = _read_sources(query, [row[0] for row in page if row[18]]) if request.with_content else {}
    undone = _read_undone(query, numbers)
    memories = tuple(
        _material(
            row,
            entities.get(row[0], ()),
            vectors.get(row[0], b""),
            sources.get(row[0], ()),
            undone.get(row[0], ""),
        )
        for row in page
    )
    return MemoriesRead(memories, len(rows) > limit)


def _wanted(request: ReadMemories, model: str | None) -> tuple[list[str], list[object]]:
    """Return the clauses that select a page's memories, and their arguments."""
    clauses = ["m.space = @SPACE AND m.forgotten_at IS NULL"]
    arguments: list[object] = []

    def want(clause: str, *values: object) -> None:
        clauses.append(clause)
        arguments.extend(values)

    if request.before is None:
        want("m.number > ?", request.after)
    else:
        want("m.number < ?", request.before)
    lists = (("scope", request.scopes), ("status", request.statuses), ("type", request.types), ("kind", request.kinds))
    for column, allowed in (*lists, ("id", request.memory_ids)):
        if allowed:
            want(f"m.{column} IN (SELECT value FROM json_each(?))", _listed(allowed))  # noqa: S608 - our names
    if request.session_id is not None:
        want("m.session_id = ?", request.session_id)
    if request.min_importance > 0:
        want("m.importance >= ?", request.min_importance)
    if request.min_sessions > 0:  # counted only for memories that pass the other clauses
        want("(SELECT count(*) FROM memory_sessions WHERE memory = m.number) >= ?", request.min_sessions)
    if request.made_by is not None:
        made = """SELECT memory_id FROM run_changes
                  WHERE space = @SPACE AND run_id = ? AND json_extract(details, '$.did') = 'Added'"""
        want(f"m.id IN ({made})", request.made_by)
    if request.proposed is not None:
        proposed = "(SELECT memory_id FROM proposals WHERE space = @SPACE"
        want(f"m.id IN {proposed} AND refused_at IS NULL)" if request.proposed else f"m.id NOT IN {proposed})")
    if request.waiting:
        want("NOT EXISTS (SELECT 1 FROM passages WHERE memory = m.number AND model = ?)", model or "")
    if request.closed_before is not None:
        want(
            """m.session_id IN (SELECT session_id FROM sessions
               WHERE space = @SPACE AND status != 'active' AND coalesce(ended_at, last_active_at) < ?)""",
            request.closed_before,
        )
    return clauses, arguments


def read_materials_of(query: Query, numbers: Sequence[int]) -> MemoriesRead:
    """Return memories by number, complete apart from vectors. Raises `ValueError` if a row cannot be decoded."""
    rows = query(
        f"""SELECT {_COLUMNS} {_TEXTS} FROM memories AS m
            WHERE m.number IN (SELECT value FROM json_each(?)) AND m.forgotten_at IS NULL""",  # noqa: S608
        (_listed(numbers),),
    )
    entities = _read_entities(query, [row[0] for row in rows])
    sources = _read_sources(query, [row[0] for row in rows if row[18]])
    found = (_material(row, entities.get(row[0], ()), b"", sources.get(row[0], ())) for row in rows)
    return MemoriesRead(tuple(found), more=False)


def mean_vectors(passages: PassageVectors) -> tuple[list[int], Vectors]:
    """Return the memories of the passages, ascending, and the normalised mean of each one's vectors.

    (len(memories), dimensions), float32. Pure.
    """
    if not passages.numbers:
        return [], np.zeros((0, 0), dtype=np.float32)
    if len(set(passages.memories)) == len(passages.memories):  # one passage each
        order = np.argsort(passages.memories)
        return [passages.memories[place] for place in order.tolist()], passages.vectors[order]
    owners = np.asarray(passages.memories)
    order = np.argsort(owners, kind="stable")
    memories, starts = np.unique(owners[order], return_index=True)
    sums = np.add.reduceat(passages.vectors[order], starts, axis=0)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return memories.tolist(), np.asarray(sums / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _material(
    row: Any, entities: Iterable[EntityRef], vector: bytes, sources: Iterable[str] = (), undone: str = ""
) -> Material:
    return Material(
        number=row[0],
        id=row[1],
        content=row[23],
        kind=row[2],
        type=row[3],
        scope=row[4],
        session_id=row[5],
        version=row[6],
        created_at=row[7],
        happened_at=row[8],
        updated_at=row[9],
        last_accessed_at=row[10],
        importance=row[11],
        confidence=row[12],
        access_count=row[13],
        sessions_used=row[14],
        status=row[15],
        summary=row[24],
        domain=row[16],
        tags=_decode_tags(row[17]),
        entities=tuple(entities),
        is_derived=bool(row[18]),
        derived_from=tuple(sources),
        archived_at=row[19],
        valid_until=row[20],
        pinned=bool(row[21]),
        is_replaced=bool(row[22]),
        vector=vector,
        undone=undone,
    )


def _read_means(query: Query, model: str, numbers: Sequence[int]) -> dict[int, bytes]:
    rows = query(
        """SELECT number, memory, ordinal, vector FROM passages
           WHERE memory IN (SELECT value FROM json_each(?)) AND model = ?""",
        (_listed(numbers), model),
    )
    memories, means = mean_vectors(passage_vectors(rows))
    return {memory: mean.tobytes() for memory, mean in zip(memories, means.astype("<f4"), strict=True)}


def _read_entities(query: Query, numbers: Sequence[int]) -> dict[int, list[EntityRef]]:
    rows = query(
        """SELECT me.memory, e.name, e.type, me.relationship FROM memory_entities AS me
           JOIN entities AS e ON e.number = me.entity
           WHERE me.memory IN (SELECT value FROM json_each(?)) AND NOT me.found
           ORDER BY me.memory, me.ordinal, me.entity, me.relationship""",
        (_listed(numbers),),
    )
    entities: dict[int, list[EntityRef]] = {}
    for memory, *named in rows:
        entities.setdefault(memory, []).append(EntityRef(*named))
    return entities


def _read_sources(query: Query, numbers: Sequence[int]) -> dict[int, list[str]]:
    rows = query(
        """SELECT l.source, s.id FROM memory_links AS l JOIN memories AS s ON s.number = l.target
           WHERE l.source IN (SELECT value FROM json_each(?)) AND l.relation = 'derived_from'
           ORDER BY l.source, l.target""",
        (_listed(numbers),),
    )
    sources: dict[int, list[str]] = {}
    for memory, source in rows:
        sources.setdefault(memory, []).append(source)
    return sources


def _read_undone(query: Query, numbers: Sequence[int]) -> dict[int, str]:
    """Return, for memories whose last change was an undo, the change that was undone. Usually no run was ever
    undone."""
    if not query("SELECT 1 FROM runs WHERE space = @SPACE AND undone_at IS NOT NULL LIMIT 1", ()):
        return {}
    rows = query(
        """SELECT m.number, coalesce(json_extract(h.details, '$.undid'), was.change) FROM memories AS m
           JOIN history AS h ON h.space = m.space AND h.memory_id = m.id AND h.version = m.version
           AND h.change = 'undone'
           JOIN history AS was ON was.space = m.space AND was.memory_id = m.id AND was.version = m.version - 1
           WHERE m.number IN (SELECT value FROM json_each(?))""",
        (_listed(numbers),),
    )
    return dict(rows)


def passage_vectors(rows: Sequence[Any], *, vectors: bool = True) -> PassageVectors:
    """Decode rows of passages (number, memory, ordinal, optional vector, optional range)."""
    return PassageVectors(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        np.frombuffer(b"".join(row[3] for row in rows), dtype="<f4").reshape(len(rows), -1)
        if rows and vectors
        else np.zeros((0, 0), dtype=np.float32),
        [row[-2:] for row in rows] if rows and len(rows[0]) > 4 else (),
    )


def _listed(values: Sequence[object]) -> str:
    return encode_json(values).decode()
