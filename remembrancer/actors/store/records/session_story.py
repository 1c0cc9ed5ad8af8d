"""What a session has done, gathered from the files that hold its memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from remembrancer.actors.store.records.background_rows import read_topics
from remembrancer.actors.store.records.contract import SessionStory
from remembrancer.actors.store.records.history import Query
from remembrancer.actors.store.records.names import name_key
from remembrancer.actors.store.records.session_events import read_tool_use, read_turns
from remembrancer.actors.store.records.session_registry import read_session
from remembrancer.protocol.reads import EarlierSession, SessionDescription

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
               UNION ALL SELECT m.number, t.tag FROM memories AS m JOIN memory_tags AS t ON t.memory = m.number
               WHERE m.session_id = ? AND m.forgotten_at IS NULL)
           GROUP BY topic ORDER BY memories DESC, topic LIMIT ?""",
        (session_id, session_id, CANDIDATES),
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
        earlier=tuple(earlier for story in stories[1:] for earlier in story.earlier),
    )
