"""Sessions as rows: the registry, their turns and tool calls, and what one file knows of a session."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from remembrancer.actors.store.records.contract import SessionStory
from remembrancer.actors.store.records.memory_rows import Done, register_session
from remembrancer.actors.store.records.sqlite_file import Query, encode_json
from remembrancer.memory.names import name_key
from remembrancer.protocol.consolidation import ToolUse
from remembrancer.protocol.reads import EarlierSession, SessionDescription
from remembrancer.protocol.runs import CloseSession, Topic
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionEntry, SessionResult, StartSession

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


_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode

TOPICS: Final = 10
CANDIDATES: Final = 50
"""Topics that one file contributes, before those that mean the same are put together."""
EARLIER: Final = 3
"""Other sessions that are told of."""
LEFT: Final = 3
"""Memories that are named of each of these."""
BEGINNING: Final = 400
"""Characters of a memory without a summary."""
LEAST_OF_A_COMMUNITY: Final = 2
"""Entities of a community that a session has to name for the community to be its topic."""


def read_session_story(read: Query, session_id: str) -> SessionStory:
    """The story as one SQLite file knows it."""
    entry = read_session(read, session_id)
    stored = read("SELECT type, scope, count(*) FROM memories WHERE session_id = ? GROUP BY type, scope", (session_id,))
    changes = read(
        "SELECT change, count(*) FROM history WHERE session_id = ? AND change != 'stored' GROUP BY change",
        (session_id,),
    )
    topics = read(
        """SELECT topic, count(DISTINCT number) AS memories FROM (
               SELECT m.number, e.name AS topic FROM memories AS m
               JOIN memory_entities AS link ON link.memory = m.number JOIN entities AS e ON e.number = link.entity
               WHERE m.session_id = ? AND m.forgotten_at IS NULL
               UNION ALL SELECT m.number, t.value FROM memories AS m JOIN json_each(m.tags) AS t
               WHERE m.session_id = ? AND m.forgotten_at IS NULL)
           GROUP BY topic ORDER BY memories DESC, topic LIMIT ?""",
        (session_id, session_id, CANDIDATES),
    )
    ((remembered, consolidated, importance),) = read(
        """SELECT count(*), coalesce(sum(status = 'consolidated'), 0), total(importance) FROM memories
           WHERE session_id = ? AND forgotten_at IS NULL""",
        (session_id,),
    )
    turns, _ = read_turns(read, session_id, 0)
    tools = read_tool_use(read, session_id)
    return SessionStory(
        started_at=entry.started_at if entry is not None else None,
        stored={(kind, scope): count for kind, scope, count in stored},
        changes=dict(changes),
        topics=dict(topics),
        communities=read_topics(read) if topics else (),
        entry=entry,
        turns=turns,
        tool_calls=sum(tool.count for tool in tools),
        tool_failures=sum(tool.count - tool.successes for tool in tools),
        earlier=_earlier(read, session_id),
        remembered=remembered,
        consolidated=consolidated,
        importance=importance,
    )


def _earlier(read: Query, session_id: str) -> tuple[EarlierSession, ...]:
    """The last sessions that are over, the latest first. Their summaries are not told: they are made of what those
    sessions kept to themselves."""
    rows = read(
        """SELECT session_id, started_at, last_active_at, status, memories_promoted FROM sessions
           WHERE session_id != ? AND status != 'active' ORDER BY last_active_at DESC, session_id LIMIT ?""",
        (session_id, EARLIER),
    )
    return tuple(
        EarlierSession(name, started_at, last_active_at, status, promoted, _left(read, name))
        for name, started_at, last_active_at, status, promoted in rows
    )


def _left(read: Query, session_id: str) -> tuple[str, ...]:
    rows = read(
        """SELECT coalesce(summary, substr(content, 1, ?)) FROM memories
           WHERE session_id = ? AND scope = 'project' AND status = 'active' AND forgotten_at IS NULL
           ORDER BY importance DESC, number DESC LIMIT ?""",
        (BEGINNING, session_id, LEFT),
    )
    return tuple(row[0] for row in rows)


def describe_session(stories: Sequence[SessionStory]) -> SessionDescription:
    """The stories of several files as one: of the user's, and then of the project's, which has the registry.

    Topics that mean the same count together, under their most used name; so do those of one community of the graph,
    under its label, where the session names two or more of its entities. The sessions before it are the project's: the
    user's file has those of all projects.
    """
    by_type: Counter[str] = Counter()
    by_scope: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    names: dict[str, Counter[str]] = {}
    for story in stories:
        for (kind, scope), count in story.stored.items():
            by_type[kind] += count
            by_scope[scope] += count
        changes.update(story.changes)
        for name, count in story.topics.items():
            names.setdefault(name_key(name), Counter())[name] += count
    for story in stories:
        for community in story.communities:
            members = [key for key in dict.fromkeys(map(name_key, community.entities)) if key in names]
            if len(members) >= LEAST_OF_A_COMMUNITY:
                uses = sum(names.pop(key).total() for key in members)
                names.setdefault(f"\0{community.label}", Counter())[community.label] += uses
    ranked = sorted(names.values(), key=lambda alike: (-alike.total(), min(alike)))
    remembered = sum(story.remembered for story in stories)
    entries = [story.entry for story in stories if story.entry is not None]
    entry = entries[-1] if entries else None
    return SessionDescription(
        started_at=min((story.started_at for story in stories if story.started_at is not None), default=None),
        stored_by_type=dict(by_type),
        stored_by_scope=dict(by_scope),
        changes=dict(changes),
        topics=tuple(alike.most_common(1)[0][0] for alike in ranked[:TOPICS]),
        status="active" if entry is None else entry.status,
        summary=None if entry is None else entry.summary,
        turns=sum(story.turns for story in stories),
        tool_calls=sum(story.tool_calls for story in stories),
        tool_failures=sum(story.tool_failures for story in stories),
        memories_promoted=sum(each.memories_promoted for each in entries),
        memories_consolidated=sum(story.consolidated for story in stories),
        average_importance=sum(story.importance for story in stories) / remembered if remembered else None,
        earlier=tuple(earlier for story in stories[1:] for earlier in story.earlier),
    )


def read_topics(query: Query) -> tuple[Topic, ...]:
    """The communities that were found last. Raises `ValueError` for a row that cannot be decoded."""
    rows = query("SELECT label, entities FROM topics ORDER BY number", ())
    return tuple(Topic(label, _decode_names(entities)) for label, entities in rows)
