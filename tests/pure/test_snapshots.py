"""A database is read as of one moment, also where nothing can be written beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.snapshots import take_snapshot
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.protocol.errors import RecordsUnusable
from tests.contracts.records_factories import leave_half_made


def make_database(path: Path) -> None:
    """One in WAL mode that nobody has open, and beside which no log can be made."""
    with closing(sqlite3.connect(path)) as made:
        made.executescript("PRAGMA journal_mode = WAL; CREATE TABLE memories (id TEXT);")
        made.execute(f"PRAGMA user_version = {MEMORY.latest}")
        made.execute("INSERT INTO memories VALUES ('one')")
        made.commit()
    nowhere = path.parent / "no such directory"
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).symlink_to(nowhere / "file")


def test_a_database_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    make_database(tmp_path / "memory.db")
    file = take_snapshot(tmp_path / "memory.db", MEMORY)
    with closing(file.connection) as connection:
        assert connection.execute("SELECT id FROM memories").fetchall() == [("one",)]
    assert file.version == MEMORY.latest


def test_a_database_whose_log_has_more_is_not_read_without_it_and_one_half_made_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    make_database(path)
    log = path.with_name("memory.db-wal")
    log.unlink()
    log.write_bytes(b"what was committed last")
    with pytest.raises(RecordsUnusable):
        take_snapshot(path, MEMORY)
    leave_half_made(tmp_path / "memory.db")
    file = take_snapshot(tmp_path / "memory.db", MEMORY)
    with closing(file.connection):
        assert file.version == 0
