"""The time machine of the demonstration: everything in a home becomes older, and nothing else changes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.week.time_machine import CATALOG, IN_JSON, NO_TIMES, QUEUE, RECORDS, Columns, let_pass
from remembrancer.actors.gateway.write_queue import QueueFile
from remembrancer.actors.store.records import schema
from remembrancer.actors.store.records.catalog import Catalog
from remembrancer.protocol.errors import AlreadyRunning
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths

DAY_S = 86_400.0


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


@pytest.fixture
def a_home(tmp_path: Path) -> Path:
    """A home with a memory in it, and nothing that runs."""
    paths = RuntimePaths(tmp_path)
    with opened(paths.database) as connection:
        schema.MEMORY.migrate(connection, None)
        schema.make_space(connection, "p_1")
        connection.execute(
            """INSERT INTO memories (space, id, content, characters, content_digest, type, scope, session_id,
               importance, tags,
               source, created_at, updated_at, promotion_chain)
               VALUES (1, 'm', 'a word', 6, x'00', 'semantic', 'project', 's', 0.5, '[]', '{}', 1000000, 1000001, ?)""",
            (json.dumps([{"scope": "session", "promoted_at": 1000001.5, "content": "é"}]),),
        )
        connection.execute(
            """INSERT INTO history
                   (space, memory_id, version, change, operation_id, session_id, record, changed_at, details)
               VALUES (1, 'm', 1, 'stored', 'o', 's', ?, 1000000, ?)""",
            (json.dumps({"valid_until": 2000000, "metadata": {"valid_until": 7}}), "{}"),
        )
        connection.execute("INSERT INTO maintenance VALUES (1, 'maintenance', 1000002, 3)")
    Catalog(paths.catalog, lambda: 1_000_000.0).close()
    with opened(paths.catalog) as connection:
        connection.execute("INSERT INTO projects VALUES ('p_1', '/p', 1000000, 1000003, NULL, NULL)")
    return tmp_path


def test_every_column_of_real_numbers_is_known_as_a_time_or_as_none(tmp_path: Path) -> None:
    with opened(tmp_path / "records.db") as connection:
        schema.MEMORY.migrate(connection, None)
    Catalog(tmp_path / "catalog.db", lambda: 0.0).close()
    QueueFile(tmp_path / "queue.db").close()
    assert real_columns(tmp_path / "records.db") == pairs(RECORDS, NO_TIMES)
    assert real_columns(tmp_path / "catalog.db") == pairs(CATALOG)
    assert real_columns(tmp_path / "queue.db") == pairs(QUEUE)
    assert not pairs(RECORDS) & pairs(NO_TIMES)


def test_every_column_of_json_is_known_to_have_times_in_it_or_none(tmp_path: Path) -> None:
    with opened(tmp_path / "records.db") as connection:
        schema.MEMORY.migrate(connection, None)
    without = {
        ("memories", "metadata"),
        ("memories", "structured"),
        ("turns", "metadata"),
        ("tool_calls", "arguments"),
    }
    assert json_columns(tmp_path / "records.db") == pairs(IN_JSON) | without


def test_a_day_passes_for_everything(a_home: Path) -> None:
    let_pass(a_home, DAY_S)
    paths = RuntimePaths(a_home)
    with opened(paths.database) as connection:
        times = "created_at, updated_at, occurred_at, importance, promotion_chain"
        *reals, chain = connection.execute(f"SELECT {times} FROM memories").fetchone()
        assert reals == [1000000 - DAY_S, 1000001 - DAY_S, None, 0.5]
        assert json.loads(chain) == [{"scope": "session", "promoted_at": 1000001.5 - DAY_S, "content": "é"}]
        changed_at, record = connection.execute("SELECT changed_at, record FROM history").fetchone()
        assert changed_at == 1000000 - DAY_S
        assert json.loads(record) == {"valid_until": 2000000 - DAY_S, "metadata": {"valid_until": 7}}
        assert connection.execute("SELECT done_at, sessions FROM maintenance").fetchone() == (1000002 - DAY_S, 3)
    with opened(paths.catalog) as connection:
        row = connection.execute("SELECT created_at, last_used_at FROM projects").fetchone()
        assert row == (1000000 - DAY_S, 1000003 - DAY_S)


def test_no_time_passes_while_a_runtime_is_up(a_home: Path) -> None:
    with FileLock(RuntimePaths(a_home).runtime_lock) as lock:
        assert lock.try_acquire()
        with pytest.raises(AlreadyRunning):
            let_pass(a_home, DAY_S)
    let_pass(a_home, DAY_S)
