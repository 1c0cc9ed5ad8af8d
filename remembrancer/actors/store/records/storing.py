"""How a memory comes to be. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3

from remembrancer.actors.store.records.entity_rows import link_entities
from remembrancer.actors.store.records.history import note_version
from remembrancer.actors.store.records.memory_rows import (
    SAVED_FIELDS,
    Done,
    add_tags,
    columns_of,
    digest_of,
    insert_row,
    register_session,
    want_embedding,
)
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.writes import Operation, Snapshot, StoredResult, StoreMemory


def store_memory(connection: sqlite3.Connection, operation: Operation, change: StoreMemory, now: float) -> Done:
    """Insert a memory with its tags, its entities and its first version."""
    first = Snapshot(
        content=change.content,
        type=change.type,
        scope=change.scope,
        session_id=change.session_id,
        importance=change.importance,
        tags=change.tags,
        source=change.source,
        related_entities=tuple(dict.fromkeys(change.related_entities)),
        occurred_at=change.occurred_at,
        kind=change.kind or kind_of_type(change.type),
        summary=change.summary,
        structured=change.structured,
        confidence=change.confidence,
        domain=change.domain,
        valid_from=change.valid_from,
        valid_until=change.valid_until,
    )
    duplicates = _same_content(connection, change, operation.session_id)
    number, edges = insert_memory(connection, operation, change.memory_id, first, now)
    register_session(connection, operation.session_id, now)  # it may come from another one, which is not at work
    result = StoredResult(change.memory_id, change.type, change.scope, edges, duplicates)
    return Done(result, to_embed=number)


def insert_memory(
    connection: sqlite3.Connection,
    operation: Operation,
    memory_id: str,
    first: Snapshot,
    now: float,
    details: dict[str, object] | None = None,
) -> tuple[int, int]:
    """Insert a memory in its first version. Its number, and how many edges to entities it has made."""
    number = insert_row(
        connection,
        columns_of(first, SAVED_FIELDS)
        | {
            "id": memory_id,
            "session_id": first.session_id,
            "created_at": operation.requested_at,
            "updated_at": now,
            "occurred_at": first.occurred_at,
        },
    )
    add_tags(connection, number, first.tags)
    edges = link_entities(connection, number, first.related_entities, now)
    want_embedding(connection, number)
    note_version(connection, operation, memory_id, 1, "stored", first, now, details)
    return number, edges


def _same_content(connection: sqlite3.Connection, change: StoreMemory, session_id: str) -> tuple[str, ...]:
    """Memories with this very content that the session may see, oldest first, five at the most."""
    rows = connection.execute(
        """SELECT id FROM memories WHERE content_digest = ? AND forgotten_at IS NULL
           AND (scope != 'session' OR session_id = ?) ORDER BY number LIMIT 5""",
        (digest_of(change.content), session_id),
    )
    return tuple(row[0] for row in rows)
