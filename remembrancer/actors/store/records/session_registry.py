"""The sessions of a project: begun, ended, dealt with. Writing runs inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from remembrancer.actors.store.records.history import Query
from remembrancer.actors.store.records.memory_rows import Done
from remembrancer.protocol.runs import CloseSession
from remembrancer.protocol.session_life import EndSession, SessionEntry, SessionResult, StartSession

_COLUMNS: Final = (
    """session_id, started_at, last_active_at, status, ended_at, ending, memories_promoted, summary, client"""
)


def start_session(connection: sqlite3.Connection, change: StartSession, now: float) -> Done:
    """Register a session, or open it again: it has no end then."""
    connection.execute(
        """INSERT INTO sessions (session_id, started_at, last_active_at, client) VALUES (?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET last_active_at = max(last_active_at, excluded.last_active_at),
           status = 'active', ended_at = NULL, ending = NULL, client = coalesce(excluded.client, client)""",
        (change.session_id, now, now, change.client),
    )
    return Done(_result(connection, change.session_id))


def end_session(connection: sqlite3.Connection, change: EndSession, now: float) -> Done:
    """Note a session's end, which is dealt with later. One that is unknown or has ended stays as it is.

    What a session did after its end does not make it an abandoned one when nobody hears of it any more.
    """
    connection.execute(
        """UPDATE sessions SET ended_at = ?, ending = CASE ? WHEN 'abandoned' THEN coalesce(ending, 'abandoned')
                                                    ELSE 'completed' END
           WHERE session_id = ? AND status = 'active' AND ended_at IS NULL""",
        (now, change.how, change.session_id),
    )
    return Done(_result(connection, change.session_id))


def close_session(connection: sqlite3.Connection, edit: CloseSession) -> bool:
    """Make a session's entry final, if its end is the one that was dealt with. False: it has begun again since."""
    done = connection.execute(
        """UPDATE sessions SET status = ?, summary = coalesce(?, summary), memories_promoted = memories_promoted + ?
           WHERE session_id = ? AND status = 'active' AND ended_at = ?""",
        (edit.status, edit.summary, edit.memories_promoted, edit.session_id, edit.ended_at),
    )
    return done.rowcount > 0


def read_sessions(query: Query) -> list[SessionEntry]:
    """All sessions of a file, the first one first."""
    rows = query(f"SELECT {_COLUMNS} FROM sessions ORDER BY started_at, session_id", ())  # noqa: S608 - our names
    return [SessionEntry(*row) for row in rows]


def read_session(query: Query, session_id: str) -> SessionEntry | None:
    """A session's entry; None for one that is unknown."""
    rows = query(f"SELECT {_COLUMNS} FROM sessions WHERE session_id = ?", (session_id,))  # noqa: S608 - our names
    return SessionEntry(*rows[0]) if rows else None


def open_sessions(query: Query) -> list[SessionEntry]:
    """The sessions that are active, or have ended and wait for that to be dealt with, the first one first."""
    rows = query(
        f"SELECT {_COLUMNS} FROM sessions WHERE status = 'active' ORDER BY started_at, session_id",  # noqa: S608
        (),
    )
    return [SessionEntry(*row) for row in rows]


def import_sessions(connection: sqlite3.Connection, sessions: Sequence[SessionEntry]) -> None:
    """Register sessions. One that is known here has been active from the earlier beginning to the later end."""
    connection.executemany(
        f"""INSERT INTO sessions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
           started_at = min(started_at, excluded.started_at),
           last_active_at = max(last_active_at, excluded.last_active_at),
           summary = coalesce(summary, excluded.summary)""",  # noqa: S608 - our names
        [_imported(each) for each in sessions],
    )


def _imported(entry: SessionEntry) -> tuple[Any, ...]:
    """A session that was active where it comes from is over here."""
    is_open = entry.status == "active"
    return (
        entry.session_id,
        entry.started_at,
        entry.last_active_at,
        "abandoned" if is_open else entry.status,
        entry.last_active_at if entry.ended_at is None else entry.ended_at,
        entry.ending or "abandoned",
        entry.memories_promoted,
        entry.summary,
        entry.client,
    )


def _result(connection: sqlite3.Connection, session_id: str) -> SessionResult:
    row = connection.execute("SELECT status FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    ((turns,),) = connection.execute("SELECT count(*) FROM turns WHERE session_id = ?", (session_id,)).fetchall()
    return SessionResult(session_id, "abandoned" if row is None else row[0], turns)
