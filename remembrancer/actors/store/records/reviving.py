"""What is archived and used again comes back into sight. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.actors.store.records.history import add_entry, encode_json
from remembrancer.actors.store.records.memory_rows import read_memory
from remembrancer.protocol.writes import HistoryEntry, PortableMemory

REVIVED: Final = "revived"
"""What the history calls it."""


def revive(connection: sqlite3.Connection, numbers: Sequence[int], at: float) -> list[str]:
    """Make those of the memories active that are archived and not forgotten; their ids.

    Each retrieval makes a memory more durable (the third seed, section 1): what is shown is in use. The version that
    this makes belongs to no operation and to no session.
    """
    rows = connection.execute(
        """SELECT id FROM memories WHERE status = 'archived' AND forgotten_at IS NULL
           AND number IN (SELECT value FROM json_each(?))""",
        (encode_json(sorted(set(numbers))).decode(),),
    ).fetchall()
    for (memory_id,) in rows:
        memory = read_memory(lambda query, values: connection.execute(query, values).fetchall(), memory_id)
        assert memory is not None, "it was there in this transaction"
        version = memory.version + 1
        connection.execute(
            """UPDATE memories SET status = 'active', archived_at = NULL, version = ?, updated_at = ?
               WHERE number = ?""",
            (version, at, memory.number),
        )
        after = msgspec.structs.replace(memory.now, status="active")
        details = {"reason": "it was used again", "fields": ("status",)}
        add_entry(connection, memory_id, HistoryEntry(version, REVIVED, at, "", "", after, details))
    return [memory_id for (memory_id,) in rows]


def archived_since(memory: PortableMemory) -> float | None:
    """When an archived memory was archived, by its history; None for one that is not archived. Pure."""
    if memory.status != "archived":
        return None
    since = memory.updated_at
    for entry in reversed(memory.history):
        if entry.record.status != "archived":
            break
        since = entry.changed_at
    return since
