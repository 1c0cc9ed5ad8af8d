"""The error of a full disk: its sizes are true, also of a small file."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from remembrancer.actors.snapshots import take_snapshot
from remembrancer.actors.store.home_reader import examine_file
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.commands.doctor import finding_of
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.errors import RecordsUnusable, StorageFull
from remembrancer.protocol.problems import find_problems


def test_sizes_are_told_in_units_that_fit_and_a_status_without_room_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    details = StorageFull.at_limit("full", current_bytes=24 * 2**10, limit_bytes=3 * 2**20).details
    assert (details["current_size"], details["limit"]) == ("24.0 KiB", "3.0 MiB")
    status = RuntimeStatus(str(tmp_path), (), None, None)
    before = find_problems(status)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    first, *others = find_problems(status)
    assert "0.0 MiB free" in first.what
    assert tuple(others) == before


def test_a_healthy_file_on_a_full_disk_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory.db"
    SqliteFile(path).close()

    def refuse(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(RecordsUnusable, match="backup"):
        SqliteFile(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(StorageFull, match="make room"):
        SqliteFile(path)
    with pytest.raises(StorageFull, match="make room"):
        take_snapshot(path, MEMORY)
    assert "free disk space" in finding_of(examine_file(path, MEMORY)).advice
