"""What a session has done, gathered from the files that hold its memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from remembrancer.actors.store.records.contract import SessionStory
from remembrancer.actors.store.records.names import name_key
from remembrancer.protocol.reads import SessionDescription

TOPICS: Final = 10
CANDIDATES: Final = 50
"""Topics that one file contributes, before those that mean the same are put together."""

Read = Callable[[str, Sequence[object]], Sequence[Any]]
"""Runs a query with its arguments and returns its rows."""


def read_session_story(read: Read, session_id: str) -> SessionStory:
    """The story as one SQLite file knows it."""
    started = read("SELECT started_at FROM sessions WHERE session_id = ?", (session_id,))
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
    return SessionStory(
        started_at=started[0][0] if started else None,
        stored={(kind, scope): count for kind, scope, count in stored},
        changes=dict(changes),
        topics=dict(topics),
    )


def describe_session(stories: Sequence[SessionStory]) -> SessionDescription:
    """The stories of several files as one. Topics that mean the same count together, under their most used name."""
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
    ranked = sorted(names.values(), key=lambda alike: (-alike.total(), min(alike)))
    return SessionDescription(
        started_at=min((story.started_at for story in stories if story.started_at is not None), default=None),
        stored_by_type=dict(by_type),
        stored_by_scope=dict(by_scope),
        changes=dict(changes),
        topics=tuple(alike.most_common(1)[0][0] for alike in ranked[:TOPICS]),
    )
