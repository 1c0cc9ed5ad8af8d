"""What happened in a session: its turns and tool calls. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Final

from remembrancer.actors.store.records.history import Query, encode_json
from remembrancer.actors.store.records.memory_rows import Done, register_session
from remembrancer.protocol.consolidation import ToolUse
from remembrancer.protocol.session_life import RecordEvents, SessionResult

MAX_TURNS: Final = 5000
"""Turns of one session that are kept: a session that never ends must not grow for ever. The oldest go first."""
MAX_TOOL_CALLS: Final = 10_000


def record_events(connection: sqlite3.Connection, change: RecordEvents, now: float) -> Done:
    """Add turns and tool calls; a tool call belongs to the last turn before it."""
    register_session(connection, change.session_id, now)
    session = change.session_id
    ((last,),) = connection.execute(
        "SELECT coalesce(max(turn_number), 0) FROM turns WHERE session_id = ?", (session,)
    ).fetchall()
    connection.executemany(
        """INSERT INTO turns (session_id, turn_number, role, content, token_count, metadata, created_at)
           VALUES (?, ?, ?, ?, ?, ?, ?)""",
        [
            (session, last + place, turn.role, turn.content, turn.token_count, _json(turn.metadata), turn.at)
            for place, turn in enumerate(change.turns, start=1)
        ],
    )
    connection.executemany(
        """INSERT INTO tool_calls
               (session_id, turn, tool_name, arguments, result_summary, success, duration_ms, created_at)
           VALUES (?, (SELECT number FROM turns WHERE session_id = ? AND created_at <= ?
                       ORDER BY turn_number DESC LIMIT 1), ?, ?, ?, ?, ?, ?)""",
        [
            (
                session,
                session,
                call.at,
                call.tool_name,
                _json(call.arguments),
                call.result_summary,
                call.success,
                call.duration_ms,
                call.at,
            )
            for call in change.tool_calls
        ],
    )
    turns = last + len(change.turns)
    connection.execute("DELETE FROM turns WHERE session_id = ? AND turn_number <= ?", (session, turns - MAX_TURNS))
    connection.execute(
        """DELETE FROM tool_calls WHERE session_id = ? AND number <= (
               SELECT number FROM tool_calls WHERE session_id = ? ORDER BY number DESC LIMIT 1 OFFSET ?)""",
        (session, session, MAX_TOOL_CALLS),
    )
    return Done(SessionResult(session, "active", turns))


def read_turns(query: Query, session_id: str, limit: int) -> tuple[int, tuple[tuple[str, str], ...]]:
    """How many turns of a session there are, and the last `limit` of them: role and content, in their order."""
    ((count,),) = query("SELECT count(*) FROM turns WHERE session_id = ?", (session_id,))
    rows = query(
        "SELECT role, content FROM turns WHERE session_id = ? ORDER BY turn_number DESC LIMIT ?", (session_id, limit)
    )
    return count, tuple((role, content) for role, content in reversed(rows))


def read_tool_use(query: Query, session_id: str) -> tuple[ToolUse, ...]:
    """The tools that a session called, the most used first."""
    rows = query(
        """SELECT tool_name, count(*) AS calls, sum(success) FROM tool_calls WHERE session_id = ?
           GROUP BY tool_name ORDER BY calls DESC, tool_name""",
        (session_id,),
    )
    return tuple(ToolUse(*row) for row in rows)


def _json(value: object) -> str:
    return encode_json(value).decode()
