"""Reads complete memories."""

from __future__ import annotations

import msgspec

from remembrancer.actors.store.records.memory_rows import read_history, read_memory
from remembrancer.actors.store.records.space import shown_to
from remembrancer.actors.store.records.sqlite_file import Query
from remembrancer.memory.changes import is_version_visible, is_visible
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, PortableMemory


def read_portable(
    query: Query, memory_id: str, session_id: str | None, project_id: str | None = None
) -> PortableMemory | None:
    """Return a memory with its history and links, forgotten or not; None if there is none that the session may see.

    For a session, only versions and links to memories that it may see; for None all, also links whose other end is not
    here yet.
    """
    found = read_memory(query, memory_id)
    if found is None or not is_visible(found.now.scope, found.now.session_id, session_id):
        return None
    now = found.now
    return PortableMemory(
        **now.recorded(),
        id=found.id,
        created_at=found.created_at,
        updated_at=found.updated_at,
        version=found.version,
        access_count=found.access_count,
        last_accessed_at=found.last_accessed_at,
        forgotten_at=found.forgotten_at,
        history=tuple(
            _told(query, entry, session_id)
            for entry in read_history(query, found.id)
            if is_version_visible(entry.record, now.scope, found.source_project, session_id, project_id)
        ),
        links=_read_links(query, found.number, session_id),
        promotion_chain=found.promotion_chain,
        source_project=found.source_project,
        accessed_in=tuple(
            row[0]
            for row in query("SELECT session_id FROM memory_sessions WHERE memory = ? ORDER BY 1", (found.number,))
        ),
    )


def _told(query: Query, entry: HistoryEntry, session_id: str | None) -> HistoryEntry:
    """Return a history entry without the id of the superseding memory, if the session may not see that memory."""
    by = entry.details.get("by")
    newer = read_memory(query, by) if session_id is not None and isinstance(by, str) else None
    if newer is None or is_visible(newer.now.scope, newer.now.session_id, session_id):
        return entry
    known = {name: value for name, value in entry.details.items() if name != "by"}
    return msgspec.structs.replace(entry, details=known)


def _read_links(query: Query, number: int, session_id: str | None) -> tuple[MemoryLink, ...]:
    rows = query(
        f"""SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
           JOIN memories AS o ON o.number = l.target
           WHERE l.source = ? AND {shown_to("o", "ifnull(?, o.session_id)")}""",  # noqa: S608 - fixed
        (number, session_id),
    )
    if session_id is None:
        rows += query("SELECT target, relation, strength, created_at FROM awaited_links WHERE source = ?", (number,))
    return tuple(MemoryLink(*row) for row in sorted(rows))
