"""The home's records as the week needs them, read from the files, even while a runtime is up."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from remembrancer.actors.store.records.schema import MEMORY, OWNED
from remembrancer.config.project import project_of
from remembrancer.protocol.kinds import Kind, Scope, Status
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.session_life import SessionStatus


@dataclass(frozen=True, slots=True)
class Held:
    """A memory that is not forgotten."""

    id: str
    content: str
    kind: Kind
    scope: Scope
    status: Status
    importance: float
    confidence: float
    access_count: int
    valid_until: float | None


@dataclass(frozen=True, slots=True)
class Promotion:
    """An entry of the promotion log. `by` is the kind of run that did it, None if somebody requested it."""

    memory_id: str
    to_scope: Scope
    score: float | None
    source_session: str
    merged_into: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A session of the registry. `turns` and `tool_calls` count the events that hooks reported."""

    status: SessionStatus
    ended: bool
    summary: str | None
    promoted: int
    turns: int
    tool_calls: int


@dataclass(frozen=True, slots=True)
class File:
    """The contents of one space. `patterns`: the projects in which a user's memory was observed."""

    memories: dict[str, Held] = field(default_factory=dict)
    links: frozenset[tuple[str, str, str]] = frozenset()
    """Source, target, relation."""
    promotions: tuple[Promotion, ...] = ()
    sessions: dict[str, SessionEnd] = field(default_factory=dict)
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)


def read_user(home: Path) -> File:
    """Read the user's space."""
    return _read(home, "user")


def read_project(home: Path, directory: Path) -> File:
    """Read the space of the project that a directory belongs to."""
    return _read(home, project_of(directory).id)


def session_status(home: Path, directory: Path, session_id: str) -> tuple[SessionStatus, int, int] | None:
    """Return a session's status, and the numbers of its recorded turns and tool calls; None if it is not registered
    yet."""
    with _rows(home, project_of(directory).id) as connection:
        if connection is None:
            return None
        found: tuple[SessionStatus, int, int] | None = connection.execute(
            """SELECT status, (SELECT count(*) FROM turns WHERE session_id = ?1),
               (SELECT count(*) FROM tool_calls WHERE session_id = ?1) FROM sessions WHERE session_id = ?1""",
            (session_id,),
        ).fetchone()
        return found


@contextmanager
def _rows(home: Path, space: str) -> Iterator[sqlite3.Connection | None]:
    """Provide a connection that reads the rows of one space; None if there is none yet."""
    path = RuntimePaths(home).database
    if not path.exists():
        yield None
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        is_made = connection.execute("PRAGMA user_version").fetchone() == (MEMORY.latest,)
        found = connection.execute("SELECT number FROM spaces WHERE name = ?", (space,)).fetchone() if is_made else None
        if found is None:
            yield None
            return
        for table in OWNED:
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE space = {found[0]}")
        yield connection


def _read(home: Path, space: str) -> File:
    with _rows(home, space) as connection:
        if connection is None:
            return File()
        return File(
            _memories(connection),
            frozenset(
                connection.execute(
                    """SELECT a.id, b.id, l.relation FROM memory_links AS l
                       JOIN memories AS a ON a.number = l.source JOIN memories AS b ON b.number = l.target"""
                )
            ),
            tuple(
                Promotion(*row)
                for row in connection.execute(
                    """SELECT p.memory_id, p.to_scope, p.score, p.source_session, p.merged_into, r.kind
                       FROM promotion_log AS p LEFT JOIN runs AS r ON r.run_id = p.run_id ORDER BY p.sequence"""
                )
            ),
            _sessions(connection),
            {
                memory_id: frozenset(json.loads(projects))
                for memory_id, projects in connection.execute(
                    "SELECT memory_id, source_projects FROM cross_project_patterns"
                )
            },
        )


def _memories(connection: sqlite3.Connection) -> dict[str, Held]:
    rows = connection.execute(
        """SELECT id, content, kind, scope, status, importance, confidence, access_count, valid_until
           FROM memories WHERE forgotten_at IS NULL ORDER BY number"""
    )
    return {row[0]: Held(*row) for row in rows}


def _sessions(connection: sqlite3.Connection) -> dict[str, SessionEnd]:
    rows = connection.execute(
        """SELECT session_id, status, ended_at IS NOT NULL, (
               SELECT content FROM memories AS m WHERE m.session_id = s.session_id AND m.kind = 'session_record'),
           memories_promoted,
           (SELECT count(*) FROM turns AS t WHERE t.session_id = s.session_id),
           (SELECT count(*) FROM tool_calls AS c WHERE c.session_id = s.session_id) FROM sessions AS s"""
    )
    return {row[0]: SessionEnd(row[1], bool(row[2]), *row[3:]) for row in rows}
