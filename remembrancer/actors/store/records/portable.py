"""A memory whole: read as it is shown and exported, and taken in again (inside the caller's transaction)."""

from __future__ import annotations

import sqlite3

import msgspec

from remembrancer.actors.store.records.entity_rows import link_entities
from remembrancer.actors.store.records.history import Query, add_entry, encode_json, note_version, read_history
from remembrancer.actors.store.records.memory_rows import (
    SAVED_FIELDS,
    Done,
    add_tags,
    columns_of,
    insert_row,
    read_memory,
    want_embedding,
)
from remembrancer.actors.store.records.reviving import archived_since
from remembrancer.actors.store.records.snapshots import is_version_visible, is_visible
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.writes import (
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    Snapshot,
)


def read_portable(
    query: Query, memory_id: str, session_id: str | None, project_id: str | None = None
) -> PortableMemory | None:
    """A memory with its history and its links, forgotten or not; None when there is none that the session may see.

    For a session only versions and links to memories that it may see; for None all, also links whose other end is not
    here yet.
    """
    found = read_memory(query, memory_id)
    if found is None or not is_visible(found.now.scope, found.now.session_id, session_id):
        return None
    now = found.now
    return PortableMemory(
        id=found.id,
        content=now.content,
        type=now.type,
        scope=now.scope,
        session_id=now.session_id,
        created_at=found.created_at,
        updated_at=found.updated_at,
        importance=now.importance,
        tags=now.tags,
        source=now.source,
        related_entities=now.related_entities,
        metadata=now.metadata,
        version=found.version,
        occurred_at=now.occurred_at,
        access_count=found.access_count,
        last_accessed_at=found.last_accessed_at,
        forgotten_at=found.forgotten_at,
        forgotten_reason=now.forgotten_reason,
        history=tuple(
            _told(query, entry, session_id)
            for entry in read_history(query, memory_id)
            if is_version_visible(entry.record, now.scope, found.source_project, session_id, project_id)
        ),
        links=_read_links(query, found.number, session_id),
        kind=now.kind,
        summary=now.summary,
        structured=now.structured,
        confidence=now.confidence,
        domain=now.domain,
        valid_from=now.valid_from,
        valid_until=now.valid_until,
        status=now.status,
        promotion_chain=found.promotion_chain,
        source_project=found.source_project,
        accessed_in=tuple(
            row[0]
            for row in query("SELECT session_id FROM memory_sessions WHERE memory = ? ORDER BY 1", (found.number,))
        ),
    )


def _told(query: Query, entry: HistoryEntry, session_id: str | None) -> HistoryEntry:
    """An entry of the history without the id of what superseded the memory, if the session may not see that."""
    by = entry.details.get("by")
    newer = read_memory(query, by) if session_id is not None and isinstance(by, str) else None
    if newer is None or is_visible(newer.now.scope, newer.now.session_id, session_id):
        return entry
    known = {name: value for name, value in entry.details.items() if name != "by"}
    return msgspec.structs.replace(entry, details=known)


def import_memory(connection: sqlite3.Connection, operation: Operation, change: ImportMemory, now: float) -> Done:
    """Take a memory in as it is. One whose id is here already stays as it is here."""
    memory = change.memory
    if connection.execute("SELECT 1 FROM memories WHERE id = ?", (memory.id,)).fetchone():
        return Done(ImportedResult(memory.id, "present"))
    number = insert_portable(connection, memory, now)
    if all(entry.version != memory.version for entry in memory.history):
        note_version(connection, operation, memory.id, memory.version, "imported", snapshot_of_portable(memory), now)
    return Done(ImportedResult(memory.id, "imported"), to_embed=number)


def insert_portable(connection: sqlite3.Connection, memory: PortableMemory, now: float) -> int:
    """Insert a memory with its history, and its links so far as their other ends are here; its number.

    A link whose other end is not here waits for it: memories may come in any order.
    """
    number = insert_row(
        connection,
        columns_of(snapshot_of_portable(memory), SAVED_FIELDS)
        | {
            "id": memory.id,
            "session_id": memory.session_id,
            "version": memory.version,
            "created_at": memory.created_at,
            "updated_at": memory.updated_at,
            "occurred_at": memory.occurred_at,
            "access_count": memory.access_count,
            "last_accessed_at": memory.last_accessed_at,
            "forgotten_at": memory.forgotten_at,
            "forgotten_reason": memory.forgotten_reason,
            "archived_at": archived_since(memory),
            "promotion_chain": encode_json(memory.promotion_chain).decode(),
            "source_project": memory.source_project,
        },
    )
    connection.executemany(
        "INSERT OR IGNORE INTO memory_sessions VALUES (?, ?)", [(number, each) for each in memory.accessed_in]
    )
    add_tags(connection, number, memory.tags)
    link_entities(connection, number, memory.related_entities, now)
    want_embedding(connection, number)
    for entry in memory.history:
        add_entry(connection, memory.id, entry)
    connection.executemany(
        "INSERT OR IGNORE INTO awaited_links VALUES (?, ?, ?, ?, ?)",
        [(number, link.target, link.relation, link.strength, link.created_at) for link in memory.links],
    )
    _make_awaited_links(connection, number, memory.id)
    return number


def snapshot_of_portable(memory: PortableMemory) -> Snapshot:
    """The part of a memory that its versions differ in."""
    return Snapshot(
        content=memory.content,
        type=memory.type,
        scope=memory.scope,
        session_id=memory.session_id,
        importance=memory.importance,
        tags=memory.tags,
        source=memory.source,
        related_entities=memory.related_entities,
        metadata=memory.metadata,
        occurred_at=memory.occurred_at,
        forgotten=memory.forgotten_at is not None,
        forgotten_reason=memory.forgotten_reason,
        kind=memory.kind or kind_of_type(memory.type),
        summary=memory.summary,
        structured=memory.structured,
        confidence=memory.confidence,
        domain=memory.domain,
        valid_from=memory.valid_from,
        valid_until=memory.valid_until,
        status=memory.status,
    )


def _read_links(query: Query, number: int, session_id: str | None) -> tuple[MemoryLink, ...]:
    rows = query(
        """SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
           JOIN memories AS o ON o.number = l.target
           WHERE l.source = ? AND (? IS NULL OR o.scope != 'session' OR o.session_id = ?)""",
        (number, session_id, session_id),
    )
    if session_id is None:
        rows += query("SELECT target, relation, strength, created_at FROM awaited_links WHERE source = ?", (number,))
    return tuple(MemoryLink(*row) for row in sorted(rows))


def _make_awaited_links(connection: sqlite3.Connection, number: int, memory_id: str) -> None:
    """Make the links of which both ends are here now: those from this memory, and those to it."""
    connection.execute(
        """INSERT OR IGNORE INTO memory_links
           SELECT a.source, o.number, a.relation, a.strength, a.created_at
           FROM awaited_links AS a JOIN memories AS o ON o.id = a.target WHERE a.source = ?
           UNION ALL SELECT source, ?, relation, strength, created_at FROM awaited_links WHERE target = ?""",
        (number, number, memory_id),
    )
    connection.execute(
        """DELETE FROM awaited_links WHERE target = ?
           OR (source = ? AND EXISTS (SELECT 1 FROM memories WHERE id = target))""",
        (memory_id, number),
    )
