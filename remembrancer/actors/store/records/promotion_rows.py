"""The promotion log, and the projects in which a memory of the user was observed. Writing is inside the caller's
transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.actors.store.records.sqlite_file import Query, encode_json, query_of
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.reads import Promotion
from remembrancer.protocol.runs import ChainLink, LogPromotion, NotePattern
from remembrancer.protocol.writes import PromoteMemory, Snapshot

_decode_projects: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def step_of(memory_id: str, before: Snapshot, change: PromoteMemory, now: float, project: str | None) -> ChainLink:
    """The step in a memory's promotion chain that a promotion makes. `project`: the one that it leaves."""
    return ChainLink(
        scope=before.scope,
        memory_id=memory_id,
        promoted_at=now,
        session_id=before.session_id or None,
        source_project=project,
        score=change.score,
        reason=change.reason,
    )


def log_entry(memory_id: str, before: Snapshot, change: PromoteMemory) -> LogPromotion:
    """What the log says of a promotion."""
    return LogPromotion(
        memory_id=memory_id,
        kind=before.kind or kind_of_type(before.type),
        from_scope=before.scope,
        to_scope=change.target_scope,
        reason=change.why,
        source_session=before.session_id,
        score=change.score,
    )


def log_promotion(connection: sqlite3.Connection, entry: LogPromotion, run_id: str | None, now: float) -> None:
    """Add an entry to the log."""
    connection.execute(
        """INSERT INTO promotion_log
               (memory_id, kind, from_scope, to_scope, reason, score, source_session, merged_into, run_id, promoted_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            entry.memory_id,
            entry.kind,
            entry.from_scope,
            entry.to_scope,
            entry.reason,
            entry.score,
            entry.source_session,
            entry.merged_into,
            run_id,
            now,
        ),
    )


def unlog_promotions(connection: sqlite3.Connection, run_id: str) -> None:
    """Take the entries of a run out of the log."""
    connection.execute("DELETE FROM promotion_log WHERE run_id = ?", (run_id,))


def note_pattern(connection: sqlite3.Connection, edit: NotePattern, now: float) -> bool:
    """Count an observation of a pattern. Whether it is the first one in that project."""
    projects = _projects(query_of(connection), edit.memory_id)
    is_new = edit.project_id not in projects
    if is_new:
        projects = (*projects, edit.project_id)
    connection.execute(
        """INSERT INTO cross_project_patterns VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET
           source_projects = excluded.source_projects, observation_count = observation_count + 1,
           last_observed = max(last_observed, excluded.last_observed)""",
        (edit.memory_id, encode_json(projects).decode(), now, now),
    )
    return is_new


def unnote_pattern(connection: sqlite3.Connection, edit: NotePattern, *, was_new: bool) -> None:
    """Take back an observation, and with it the project when it was the first one there."""
    projects = _projects(query_of(connection), edit.memory_id)
    left = tuple(each for each in projects if not was_new or each != edit.project_id)
    connection.execute(
        """UPDATE cross_project_patterns SET source_projects = ?, observation_count = observation_count - 1
           WHERE memory_id = ?""",
        (encode_json(left).decode(), edit.memory_id),
    )
    connection.execute(
        "DELETE FROM cross_project_patterns WHERE memory_id = ? AND observation_count <= 0", (edit.memory_id,)
    )


def promotions_of(query: Query, memory_id: str) -> tuple[Promotion, ...]:
    """The log's entries of a memory and of those that were merged into it, the first one first."""
    rows = query(
        """SELECT memory_id, from_scope, to_scope, promoted_at, reason, source_session, score, merged_into
           FROM promotion_log WHERE memory_id = ? OR merged_into = ? ORDER BY sequence""",
        (memory_id, memory_id),
    )
    return tuple(Promotion(*row) for row in rows)


def observed_in(query: Query, memory_id: str) -> tuple[str, ...]:
    """The project that a memory came from, and those in which it was observed. Raises `ValueError` for bad rows."""
    rows = query("SELECT source_project FROM memories WHERE id = ? AND source_project IS NOT NULL", (memory_id,))
    return tuple(dict.fromkeys((*(row[0] for row in rows), *_projects(query, memory_id))))


def without_steps(chain: tuple[ChainLink, ...], steps: Sequence[ChainLink]) -> tuple[ChainLink, ...]:
    """A promotion chain from which each of the steps is taken off once, from its end. Pure."""
    left = list(reversed(chain))
    for step in steps:
        if step in left:
            left.remove(step)
    return tuple(reversed(left))


def _projects(query: Query, memory_id: str) -> tuple[str, ...]:
    rows = query("SELECT source_projects FROM cross_project_patterns WHERE memory_id = ?", (memory_id,))
    return _decode_projects(rows[0][0]) if rows else ()
