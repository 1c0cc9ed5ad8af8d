"""Sessions as rows: the registry, turns and tool calls, and a space's data about a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from remembrancer.actors.store.records.contract import SessionStart, SessionStory
from remembrancer.actors.store.records.memory_rows import MemoryRow, read_memory
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.sqlite_file import Query, encode_json
from remembrancer.memory.edits import SessionDeeds
from remembrancer.memory.names import name_key
from remembrancer.protocol.kinds import MEMORY_TYPES, SCOPES, SESSION_RECORD
from remembrancer.protocol.reads import EarlierSession, SessionDescription
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.session_life import RecordEvents, SessionEntry, ToolCall, Turn

_REGISTERED: Final = "session_id, started_at, last_active_at, status, ended_at, ending, memories_promoted"
_COLUMNS: Final = f"""{_REGISTERED}, (
    SELECT content FROM memories AS m
    WHERE m.space = @SPACE AND m.session_id = sessions.session_id AND m.scope = 'project'
    AND m.kind = '{SESSION_RECORD}' AND m.forgotten_at IS NULL
    ORDER BY m.number DESC LIMIT 1), client"""  # noqa: S608 - our names
"""The columns of a `SessionEntry`. Its summary is the text of its record."""
FILE_ARGUMENTS: Final = ("file_path", "notebook_path", "path")
"""The arguments that name a file in a client's own tools."""
MOST_FILES: Final = 50
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def session_record_of(query: Query, session_id: str) -> MemoryRow | None:
    """Return the memory that is a session's record, forgotten or not."""
    record_of = "SELECT id FROM memories WHERE space = @SPACE AND session_id = ? AND kind = ?"
    known = query(record_of, (session_id, SESSION_RECORD))
    return read_memory(query, known[0][0]) if known else None


def read_deeds(query: Query, session_id: str, root: str) -> SessionDeeds | None:
    """Return the work of a session that has ended; None if it is still open. `root` is the project's path."""
    its = "WHERE space = @SPACE AND session_id = ?"
    ended = query(f"SELECT ended_at FROM sessions {its} AND ended_at IS NOT NULL", (session_id,))  # noqa: S608 - fixed
    if not ended:
        return None
    ((prompts,),) = query(f"SELECT count(*) FROM turns {its} AND role = 'user'", (session_id,))  # noqa: S608 - fixed
    ((calls,),) = query(f"SELECT count(*) FROM tool_calls {its}", (session_id,))  # noqa: S608 - fixed
    used = query(
        """SELECT file, count(*) FROM (
               SELECT json_extract(arguments, '$.' || name.value) AS file
               FROM tool_calls, json_each(?) AS name WHERE space = @SPACE AND session_id = ?)
           WHERE typeof(file) = 'text' AND file != '' GROUP BY file ORDER BY 2 DESC, 1 LIMIT ?""",
        (encode_json(FILE_ARGUMENTS).decode(), session_id, MOST_FILES),
    )
    inside = root.removesuffix(".git").rstrip("/") + "/"
    files = tuple(dict.fromkeys(file.removeprefix(inside) for file, _ in used))
    return SessionDeeds(ended[0][0], prompts, calls, files)


def read_sessions(query: Query) -> list[SessionEntry]:
    """Return all sessions of a space, oldest first."""
    rows = query(f"SELECT {_COLUMNS} FROM sessions WHERE space = @SPACE ORDER BY started_at, session_id", ())  # noqa: S608 - our names
    return [SessionEntry(*row) for row in rows]


def read_events(query: Query, session_id: str) -> RecordEvents:
    """Return the turns and tool calls of a session, as recorded."""
    turns = query(
        """SELECT role, content, created_at, token_count, metadata FROM turns WHERE space = @SPACE AND session_id = ?
           ORDER BY turn_number""",
        (session_id,),
    )
    calls = query(
        """SELECT tool_name, created_at, arguments, result_summary, success, duration_ms FROM tool_calls
           WHERE space = @SPACE AND session_id = ? ORDER BY number""",
        (session_id,),
    )
    return RecordEvents(
        session_id,
        tuple(Turn(role, said, at, tokens, msgspec.json.decode(about)) for role, said, at, tokens, about in turns),
        tuple(
            ToolCall(name, at, msgspec.json.decode(given), said, bool(well), ms)
            for name, at, given, said, well, ms in calls
        ),
    )


def read_session(query: Query, session_id: str) -> SessionEntry | None:
    """Return a session's entry; None if it is unknown."""
    its = "WHERE space = @SPACE AND session_id = ?"
    rows = query(f"SELECT {_COLUMNS} FROM sessions {its}", (session_id,))  # noqa: S608 - our names
    return SessionEntry(*rows[0]) if rows else None


def open_sessions(query: Query) -> list[SessionEntry]:
    """Return the sessions that are active, or have ended and await processing, oldest first."""
    rows = query(
        f"""SELECT {_COLUMNS} FROM sessions WHERE space = @SPACE AND status = 'active'
            ORDER BY started_at, session_id""",  # noqa: S608 - our names
        (),
    )
    return [SessionEntry(*row) for row in rows]


def import_sessions(connection: SpaceConnection, sessions: Sequence[SessionEntry]) -> None:
    """Register sessions. A known session keeps the earlier start and the later end."""
    connection.executemany(
        f"""INSERT INTO sessions (space, {_REGISTERED}, client) VALUES (@SPACE, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET
           started_at = min(started_at, excluded.started_at),
           last_active_at = max(last_active_at, excluded.last_active_at)""",  # noqa: S608 - our names
        [_imported(session) for session in sessions],
    )


def _imported(entry: SessionEntry) -> tuple[Any, ...]:
    """Return the row of an imported session. One that was active at its origin counts as abandoned here."""
    is_open = entry.status == "active"
    return (
        entry.session_id,
        entry.started_at,
        entry.last_active_at,
        "abandoned" if is_open else entry.status,
        entry.last_active_at if entry.ended_at is None else entry.ended_at,
        entry.ending or "abandoned",
        entry.memories_promoted,
        entry.client,
    )


def count_turns(query: Query, session_id: str) -> int:
    """Return the number of turns of a session."""
    ((count,),) = query("SELECT count(*) FROM turns WHERE space = @SPACE AND session_id = ?", (session_id,))
    return int(count)


TOPICS: Final = 10
TOPICS_OF: Final = 1000
"""The number of a session's last memories from which its topics are taken."""
CANDIDATES: Final = 50
"""The number of topics from one space before topics of the same name are merged."""
EARLIER: Final = 3
"""The number of earlier sessions that are described."""
LEFT: Final = 3
"""The number of memories named for each of them."""
BEGINNING: Final = 400
"""The number of characters shown of a memory without a summary."""
LEAST_OF_A_COMMUNITY: Final = 2
"""The number of a community's entities that a session must name for the community to be its topic."""


_OF_EACH_TYPE: Final = ", ".join(f"total(type = '{kind}')" for kind in MEMORY_TYPES)
_LATEST: Final = " UNION ALL ".join(
    f"""SELECT * FROM (SELECT number FROM memories
        WHERE space = @SPACE AND session_id = ?1 AND scope = '{scope}' AND forgotten_at IS NULL
        ORDER BY number DESC LIMIT ?2)"""  # noqa: S608 - our names
    for scope in SCOPES
)
"""The last memories of a session in each scope, read along an index in that order."""


def read_session_story(read: Query, session_id: str) -> SessionStory:
    """Return one space's story of a session. Its memories are counted along an index; topics come from the last of
    them."""
    entry = read_session(read, session_id)
    scopes = read(
        f"""SELECT scope, {_OF_EACH_TYPE}, count(*) - count(forgotten_at),
               total(forgotten_at IS NULL AND status = 'consolidated'), total(iif(forgotten_at IS NULL, importance, 0))
           FROM memories WHERE space = @SPACE AND session_id = ? AND kind != ? GROUP BY scope""",  # noqa: S608 - our names
        (session_id, SESSION_RECORD),
    )
    changes = read(
        """SELECT change, count(*) FROM history
           WHERE space = @SPACE AND session_id = ? AND change != 'stored' GROUP BY change""",
        (session_id,),
    )
    topics = read(
        f"""WITH latest AS MATERIALIZED (
               SELECT number FROM ({_LATEST}) ORDER BY number DESC LIMIT ?2)
           SELECT topic, count(DISTINCT number) AS memories FROM (
               SELECT m.number, e.name AS topic FROM latest AS m
               JOIN memory_entities AS link ON link.memory = m.number JOIN entities AS e ON e.number = link.entity
               WHERE NOT link.found
               UNION ALL SELECT m.number, t.value FROM latest
               JOIN memories AS m ON m.number = latest.number JOIN json_each(m.tags) AS t)
           GROUP BY topic ORDER BY memories DESC, topic LIMIT ?3""",  # noqa: S608 - our names
        (session_id, TOPICS_OF, CANDIDATES),
    )
    ((calls, successes),) = read(
        "SELECT count(*), total(success) FROM tool_calls WHERE space = @SPACE AND session_id = ?", (session_id,)
    )
    return SessionStory(
        started_at=entry.started_at if entry is not None else None,
        stored={
            (kind, scope): int(count)
            for scope, *counts in scopes
            for kind, count in zip(MEMORY_TYPES, counts, strict=False)
            if count
        },
        changes=dict(changes),
        topics=dict(topics),
        communities=read_topics(read) if topics else (),
        entry=entry,
        turns=count_turns(read, session_id),
        tool_calls=calls,
        tool_failures=calls - int(successes),
        earlier=_earlier(read, session_id),
        remembered=sum(row[-3] for row in scopes),
        consolidated=int(sum(row[-2] for row in scopes)),
        importance=sum(row[-1] for row in scopes),
    )


def read_session_start(read: Query, session_id: str) -> SessionStart:
    """Return the beginning of a session, and the number of memories that it stored."""
    ((began,),) = read("SELECT min(started_at) FROM sessions WHERE space = @SPACE AND session_id = ?", (session_id,))
    ((stored,),) = read(
        "SELECT count(*) FROM memories WHERE space = @SPACE AND session_id = ? AND kind != ?",
        (session_id, SESSION_RECORD),
    )
    return SessionStart(began, stored)


def _earlier(read: Query, session_id: str) -> tuple[EarlierSession, ...]:
    """Return the last closed sessions, latest first, with the memories that they left to their project."""
    rows = read(
        """SELECT session_id, started_at, last_active_at, status, memories_promoted FROM sessions
           WHERE space = @SPACE AND session_id != ? AND status != 'active'
           ORDER BY last_active_at DESC, session_id LIMIT ?""",
        (session_id, EARLIER),
    )
    return tuple(
        EarlierSession(name, started_at, last_active_at, status, promoted, _left(read, name))
        for name, started_at, last_active_at, status, promoted in rows
    )


def _left(read: Query, session_id: str) -> tuple[str, ...]:
    rows = read(
        """SELECT coalesce(summary, substr(content, 1, ?)) FROM memories
           WHERE space = @SPACE AND session_id = ? AND scope = 'project' AND status = 'active'
           AND forgotten_at IS NULL AND kind != ?
           ORDER BY importance DESC, number DESC LIMIT ?""",
        (BEGINNING, session_id, SESSION_RECORD, LEFT),
    )
    return tuple(row[0] for row in rows)


def describe_session(stories: Sequence[SessionStory]) -> SessionDescription:
    """Combine the stories of several spaces: the user's, and then the project's, which has the registry.

    Topics of the same name count together, under the most used spelling; so do entities of one community of the graph,
    under its label, if the session names two or more. Earlier sessions are the project's only, since the user's space
    has those of all projects.
    """
    by_type: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    names: dict[str, Counter[str]] = {}
    for story in stories:
        for (kind, _), count in story.stored.items():
            by_type[kind] += count
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
        changes=dict(changes),
        topics=tuple(alike.most_common(1)[0][0] for alike in ranked[:TOPICS]),
        status="active" if entry is None else entry.status,
        summary=None if entry is None else entry.summary,
        turns=sum(story.turns for story in stories),
        tool_calls=sum(story.tool_calls for story in stories),
        tool_failures=sum(story.tool_failures for story in stories),
        memories_promoted=sum(entry.memories_promoted for entry in entries),
        memories_consolidated=sum(story.consolidated for story in stories),
        average_importance=sum(story.importance for story in stories) / remembered if remembered else None,
        earlier=tuple(earlier for story in stories[1:] for earlier in story.earlier),
    )


def read_topics(query: Query) -> tuple[Topic, ...]:
    """Return the latest communities. Raises `ValueError` if a row cannot be decoded."""
    rows = query("SELECT label, entities FROM topics WHERE space = @SPACE ORDER BY number", ())
    return tuple(Topic(label, _decode_names(entities)) for label, entities in rows)
