"""The time machine of the demonstration knows every time in a home: that it moves them all, the week itself shows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.week.time_machine import IN_JSON, NO_TIMES, QUEUE, RECORDS, Columns, let_pass
from remembrancer.actors.gateway.write_queue import QueueFile
from remembrancer.actors.store.records import schema
from remembrancer.protocol.errors import AlreadyRunning
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def real_columns(path: Path) -> set[tuple[str, str]]:
    """Every column of real numbers, with its table."""
    with opened(path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            (table, name)
            for table in tables
            for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")
            if kind.upper() == "REAL"
        }


def pairs(*columns: Columns) -> set[tuple[str, str]]:
    return {(table, name) for each in columns for table, names in each.items() for name in names}


def json_columns(path: Path) -> set[tuple[str, str]]:
    """Columns of text whose default is an empty JSON value, or that are called as those are."""
    with opened(path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            (table, name)
            for table in tables
            for _, name, kind, _, default, _ in connection.execute(f"PRAGMA table_info({table})")
            if kind == "TEXT" and (default in ("'{}'", "'[]'") or name == "record")
        }


def test_every_column_of_real_numbers_is_known_as_a_time_or_as_none(tmp_path: Path) -> None:
    with opened(tmp_path / "records.db") as connection:
        schema.MEMORY.migrate(connection, None)
    QueueFile(tmp_path / "queue.db").close()
    assert real_columns(tmp_path / "records.db") == pairs(RECORDS, NO_TIMES)
    assert real_columns(tmp_path / "queue.db") == pairs(QUEUE)
    assert not pairs(RECORDS) & pairs(NO_TIMES)


def test_every_column_of_json_is_known_to_have_times_in_it_or_none(tmp_path: Path) -> None:
    with opened(tmp_path / "records.db") as connection:
        schema.MEMORY.migrate(connection, None)
    without = {("memories", "metadata"), ("memories", "structured"), ("turns", "metadata"), ("tool_calls", "arguments")}
    assert json_columns(tmp_path / "records.db") == pairs(IN_JSON) | without


def test_no_time_passes_while_a_runtime_is_up(tmp_path: Path) -> None:
    with FileLock(RuntimePaths(tmp_path).runtime_lock) as lock:
        assert lock.try_acquire()
        with pytest.raises(AlreadyRunning):
            let_pass(tmp_path, 86_400.0)
