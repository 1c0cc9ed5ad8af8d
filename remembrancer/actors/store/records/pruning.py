"""What nobody needs any more of what grows with each session: removed for good, so many rows in a transaction.

Memories, their history and the logs of promotion and consolidation are none of it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.store.records.history import Query
from remembrancer.protocol.runs import Prune

_CLOSED: Final = "s.status != 'active' AND coalesce(s.ended_at, s.last_active_at) < ?"


@dataclass(frozen=True, slots=True)
class _Stale:
    """Rows of a table by their key: those that a query names for a time."""

    table: str
    key: str
    query: str


def _stale(edit: Prune) -> tuple[tuple[_Stale, float], ...]:
    """What goes, in this order: tool calls name turns, and a run goes with the last of its changes."""
    calls, turns = (
        _Stale(
            table,
            "number",
            f"SELECT t.number FROM sessions AS s JOIN {table} AS t ON t.session_id = s.session_id WHERE {_CLOSED}",  # noqa: S608
        )
        for table in ("tool_calls", "turns")
    )
    changes = _Stale(
        "run_changes",
        "sequence",
        "SELECT c.sequence FROM runs AS r JOIN run_changes AS c ON c.run_id = r.run_id WHERE r.began_at < ?",
    )
    runs = _Stale(
        "runs",
        "run_id",
        """SELECT run_id FROM runs AS r WHERE began_at < ?
           AND NOT EXISTS (SELECT 1 FROM run_changes WHERE run_id = r.run_id)""",
    )
    operations = _Stale(
        "applied_operations",
        "operation_id",
        """SELECT operation_id FROM applied_operations WHERE applied_at < ?
           AND operation_id NOT IN (SELECT operation_id FROM moves)""",
    )
    return (
        (calls, edit.sessions_before),
        (turns, edit.sessions_before),
        (changes, edit.runs_before),
        (runs, edit.runs_before),
        (operations, edit.operations_before),
    )


def prune(connection: sqlite3.Connection, edit: Prune) -> int:
    """Remove up to `edit.limit` rows; how many were removed. Fewer than that: there are no more."""
    removed = 0
    for stale, before in _stale(edit):
        left = edit.limit - removed
        if left <= 0:
            break
        removed += connection.execute(
            f"DELETE FROM {stale.table} WHERE {stale.key} IN ({stale.query} LIMIT ?)",  # noqa: S608 - our names
            (before, left),
        ).rowcount
    return removed


def count_prunable(query: Query, edit: Prune) -> int:
    """How many rows `prune` would remove, called until there are no more."""
    count = 0
    for stale, before in _stale(edit):
        if stale.table == "runs":  # also those that would go with the last of their changes
            ((rows,),) = query("SELECT count(*) FROM runs WHERE began_at < ?", (before,))
        else:
            ((rows,),) = query(f"SELECT count(*) FROM ({stale.query})", (before,))  # noqa: S608 - our names
        count += rows
    return count
