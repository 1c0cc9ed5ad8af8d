"""When sessions were active: read for an export, and taken in again. Writing runs inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from remembrancer.actors.store.records.history import Query
from remembrancer.protocol.writes import SessionSpan


def read_sessions(query: Query) -> list[SessionSpan]:
    """All sessions of a file, the first one first."""
    rows = query("SELECT session_id, started_at, last_active_at FROM sessions ORDER BY started_at, session_id", ())
    return [SessionSpan(*row) for row in rows]


def import_sessions(connection: sqlite3.Connection, sessions: Sequence[SessionSpan]) -> None:
    """Register sessions. One that is known here has been active from the earlier beginning to the later end."""
    connection.executemany(
        """INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET
           started_at = min(started_at, excluded.started_at),
           last_active_at = max(last_active_at, excluded.last_active_at)""",
        [(each.session_id, each.started_at, each.last_active_at) for each in sessions],
    )
