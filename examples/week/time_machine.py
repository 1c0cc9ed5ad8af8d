"""Lets days pass while nothing runs: every time in a home's files is moved back, which makes all of it older.

The files are those of an ordinary home. The columns with times are listed here; a test compares the lists with the
schemas, so that every new column has to be listed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from remembrancer.protocol.errors import AlreadyRunning
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

Columns = Mapping[str, tuple[str, ...]]
"""Column names by table."""

RECORDS: Final[Columns] = {
    "memories": (
        "created_at",
        "updated_at",
        "occurred_at",
        "last_accessed_at",
        "forgotten_at",
        "archived_at",
        "valid_from",
        "valid_until",
        "due",
    ),
    "entities": ("created_at",),
    "memory_entities": ("created_at",),
    "memory_links": ("created_at",),
    "awaited_links": ("created_at",),
    "history": ("changed_at", "begins", "ends", "replaced_at"),
    "applied_operations": ("applied_at",),
    "erased": ("erased_at",),
    "moves": ("begun_at",),
    "sessions": ("started_at", "last_active_at", "ended_at"),
    "turns": ("created_at",),
    "tool_calls": ("created_at",),
    "promotion_log": ("promoted_at",),
    "proposals": ("proposed_at", "refused_at"),
    "runs": ("began_at", "undone_at"),
    "cross_project_patterns": ("first_observed", "last_observed"),
    "topics": ("found_at",),
    "maintenance": ("done_at",),
    "projects": ("created_at", "last_used_at"),
}
QUEUE: Final[Columns] = {"queued": ("queued_at",), "rejected": ("queued_at", "rejected_at")}
NO_TIMES: Final[Columns] = {
    "memories": ("importance", "confidence"),
    "memory_links": ("strength",),
    "awaited_links": ("strength",),
    "promotion_log": ("score",),
    "proposals": ("score",),
    "lane": ("applied_at",),
    "embedding_attempts": ("until",),
}
"""The other columns with real numbers, including times of lanes, since an aged home shares none."""
IN_JSON: Final[Columns] = {
    "memories": ("promotion_chain",),
    "history": ("record", "details"),
}
"""Columns with times in their JSON. Stored messages (an operation, its result) stay as they are."""
KEYS: Final = frozenset({"promoted_at", "occurred_at", "valid_from", "valid_until", "due"})
"""The keys of those times."""
NOT_OURS: Final = frozenset({"metadata", "structured"})
"""Keys whose content belongs to the client."""


def let_pass(home: Path, seconds: float) -> None:
    """Make everything in a home older by that many seconds.

    Raises:
        AlreadyRunning: a runtime is using the home.
        sqlite3.Error: a file cannot be read or written.
    """
    paths = RuntimePaths(home)
    with FileLock(paths.runtime_lock) as lock:
        if not lock.try_acquire():
            raise AlreadyRunning(f"a runtime has the home {home}: time passes while it is down")
        _set_back(paths.database, RECORDS, IN_JSON, seconds)
        _set_back(paths.write_queue, QUEUE, {}, seconds)


def set_back(value: Any, seconds: float) -> Any:
    """Return a JSON value with its times moved back."""
    match value:
        case dict():
            return {
                key: each - seconds if _is_time(key, each) else each if key in NOT_OURS else set_back(each, seconds)
                for key, each in value.items()
            }
        case list():
            return [set_back(each, seconds) for each in value]
        case _:
            return value


def _is_time(key: str, value: Any) -> bool:
    return key in KEYS and isinstance(value, (int, float))


def _set_back(path: Path, columns: Columns, in_json: Columns, seconds: float) -> None:
    """Move the times of a file back, in one transaction. A file that does not exist is skipped."""
    if not path.exists():
        return

    def text(json_text: str | None) -> str | None:
        return None if json_text is None else json.dumps(set_back(json.loads(json_text), seconds), ensure_ascii=False)

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("set_back", 1, text, deterministic=True)
        connection.execute("BEGIN IMMEDIATE")
        for table, names in columns.items():
            _update(connection, table, {name: f"{name} - {seconds!r}" for name in names})
        for table, names in in_json.items():
            _update(connection, table, {name: f"set_back({name})" for name in names})
        connection.execute("COMMIT")


def _update(connection: sqlite3.Connection, table: str, values: Mapping[str, str]) -> None:
    """Update columns with expressions; NULL minus a number stays NULL."""
    sets = _listed(f"{name} = {value}" for name, value in values.items())
    connection.execute(f"UPDATE {table} SET {sets}")


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
