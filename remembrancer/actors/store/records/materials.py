"""Memories as the consolidator reads them: page by page, with vectors on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from remembrancer.actors.store.records.sqlite_file import Query, encode_json
from remembrancer.actors.store.records.types import PassageVectors, Vectors
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.reads import Memories
from remembrancer.protocol.writes import EntityRef

MOST_AT_ONCE: Final = 1000
"""The limit on memories in a page, whatever the request: a page with vectors is then a few megabytes."""
_OWN: Final = (
    *("number", "id", "content", "kind", "type", "scope", "session_id", "version", "created_at", "updated_at"),
    *("importance", "confidence", "access_count", "status", "summary", "domain", "tags", "archived_at", "valid_until"),
)
_COLUMNS: Final = {name: f"m.{name}" for name in _OWN} | {
    "happened_at": "coalesce(m.occurred_at, m.created_at)",
    "last_accessed_at": "max(coalesce(m.last_accessed_at, 0), m.created_at)",
    "sessions_used": "(SELECT count(*) FROM memory_sessions WHERE memory = m.number)",
    "pinned": "m.pinned OR (m.kind = 'open_end' AND NOT m.done)",
    "is_replaced": """EXISTS (SELECT 1 FROM memory_links
        WHERE target = m.number AND relation = 'contradicts' AND strength >= 0.5)""",
    "derived_from": """(SELECT json_group_array(id) FROM (SELECT s.id FROM memory_links AS l
        JOIN memories AS s ON s.number = l.target
        WHERE l.source = m.number AND l.relation = 'derived_from' ORDER BY l.target))""",
    "entities": """(SELECT json_group_array(json_object('name', name, 'type', type, 'relationship', relationship))
        FROM (SELECT e.name, e.type, me.relationship FROM memory_entities AS me
              JOIN entities AS e ON e.number = me.entity WHERE me.memory = m.number AND NOT me.found
              ORDER BY me.ordinal, me.entity, me.relationship))""",
    "undone": """coalesce((SELECT coalesce(json_extract(h.details, '$.undid'), was.change) FROM history AS h
        JOIN history AS was ON was.space = h.space AND was.memory_id = h.memory_id AND was.version = h.version - 1
        WHERE h.space = m.space AND h.memory_id = m.id AND h.version = m.version AND h.change = 'undone'), '')""",
}
"""The columns of a `Material`, with their SQL."""
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_DECODERS: Final[dict[str, Callable[[Any], object]]] = {
    "tags": _decode_names,
    "derived_from": _decode_names,
    "entities": msgspec.json.Decoder(tuple[EntityRef, ...]).decode,
    "pinned": bool,
    "is_replaced": bool,
}


def read_materials(query: Query, request: ReadMemories, model: str | None) -> Memories[Material]:
    """Return a page of memories that are not forgotten. Raises `ValueError` if a row cannot be decoded."""
    limit = max(1, min(request.limit, MOST_AT_ONCE))
    clauses, arguments = _wanted(request)
    rows = query(
        f"""SELECT {", ".join(_COLUMNS.values())} FROM memories AS m WHERE {" AND ".join(clauses)}
            ORDER BY m.number {"ASC" if request.before is None else "DESC"} LIMIT ?""",  # noqa: S608 - our columns
        (*arguments, limit + 1),
    )
    page = [dict(zip(_COLUMNS, row, strict=True)) for row in rows[:limit]]
    for each in page:
        each |= {name: decode(each[name]) for name, decode in _DECODERS.items()}
    numbers = [each["number"] for each in page]
    vectors = _read_means(query, model, numbers) if request.with_vectors and model is not None else {}
    memories = tuple(Material(**each, vector=vectors.get(each["number"], b"")) for each in page)
    return Memories(memories, len(rows) > limit)


def _wanted(request: ReadMemories) -> tuple[list[str], list[object]]:
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
    for column, allowed in (*lists, ("id", request.memory_ids), ("number", request.numbers)):
        if allowed:
            want(f"m.{column} IN (SELECT value FROM json_each(?))", _listed(allowed))  # noqa: S608 - our names
    if request.session_id is not None:
        want("m.session_id = ?", request.session_id)
    if request.min_importance > 0:
        want("m.importance >= ?", request.min_importance)
    if request.min_sessions > 0:  # counted only for memories that pass the other clauses
        want("(SELECT count(*) FROM memory_sessions WHERE memory = m.number) >= ?", request.min_sessions)
    if request.proposed is not None:
        proposed = "(SELECT memory_id FROM proposals WHERE space = @SPACE"
        want(f"m.id IN {proposed} AND refused_at IS NULL)" if request.proposed else f"m.id NOT IN {proposed})")
    if request.closed_before is not None:
        want(
            """m.session_id IN (SELECT session_id FROM sessions
               WHERE space = @SPACE AND status != 'active' AND coalesce(ended_at, last_active_at) < ?)""",
            request.closed_before,
        )
    return clauses, arguments


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


def _read_means(query: Query, model: str, numbers: Sequence[int]) -> dict[int, bytes]:
    rows = query(
        """SELECT number, memory, ordinal, vector FROM passages
           WHERE memory IN (SELECT value FROM json_each(?)) AND model = ?""",
        (_listed(numbers), model),
    )
    memories, means = mean_vectors(passage_vectors(rows))
    return {memory: mean.tobytes() for memory, mean in zip(memories, means.astype("<f4"), strict=True)}


def passage_vectors(rows: Sequence[Any], *, vectors: bool = True) -> PassageVectors:
    """Decode rows of passages (number, memory, ordinal, optional vector)."""
    return PassageVectors(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        np.frombuffer(b"".join(row[3] for row in rows), dtype="<f4").reshape(len(rows), -1)
        if rows and vectors
        else np.zeros((0, 0), dtype=np.float32),
    )


def _listed(values: Sequence[object]) -> str:
    return encode_json(values).decode()
