"""Lets days pass while nothing runs: every time in a home's files is moved back, which makes all of it older."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from remembrancer.protocol.errors import AlreadyRunning
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

NO_TIMES: Final = frozenset({"importance", "confidence", "strength", "score", "until"})
"""The columns of real numbers that are no times of the home."""
NOT_SET_BACK: Final = frozenset({"lane"})
"""Tables whose times are a lane's: a home that is aged shares none."""
IN_JSON: Final[Mapping[str, tuple[str, ...]]] = {
    "memories": ("promotion_chain",),
    "history": ("record", "details"),
}
"""Columns with times in their JSON, by table. Stored messages (an operation, its result) stay as they are."""
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
        for path in (paths.database, paths.write_queue):
            if path.exists():
                _set_back(path, seconds)


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


def _set_back(path: Path, seconds: float) -> None:
    """Move the times of a file back, in one transaction."""

    def text(json_text: str | None) -> str | None:
        return None if json_text is None else json.dumps(set_back(json.loads(json_text), seconds), ensure_ascii=False)

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("set_back", 1, text, deterministic=True)
        connection.execute("BEGIN IMMEDIATE")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            columns = connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
            times = [name for name, kind in columns if kind == "REAL" and name not in NO_TIMES]
            sets = [] if table in NOT_SET_BACK else [f"{name} = {name} - {seconds!r}" for name in times]
            sets += [f"{name} = set_back({name})" for name, _ in columns if name in IN_JSON.get(table, ())]
            if sets:
                connection.execute(f"UPDATE {table} SET {', '.join(sets)}")
        connection.execute("COMMIT")
