"""The daily copies of a file of records."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from remembrancer.actors.migrations import daily_copies
from remembrancer.actors.repair import is_damaged
from remembrancer.actors.store.daily_copies import DAY_S, STAMP, DailyCopies
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.errors import MemoryUnavailable, RecordsUnusable, RemembrancerError, StorageFull
from remembrancer.protocol.writes import EraseMemory
from tests.contracts.records_factories import SqliteFactory, scrub
from tests.operations import change_operation, memory_id_of, store_operation

KEPT = 3


class Rig(NamedTuple):
    """A file of records that is open, and who copies it."""

    path: Path
    records: Records
    copies: DailyCopies
    reported: list[RemembrancerError]

    def write(self, name: str) -> None:
        self.records.apply([store_operation(name, f"lantern {name}")])

    def copy(self) -> Path | None:
        return self.copies.copy_if_due()

    def days_pass(self, days: float) -> None:
        """The copies become older."""
        for copy in reversed(daily_copies(self.path)):
            at = datetime.strptime(copy.name[-16:], STAMP).replace(tzinfo=UTC).timestamp() - days * DAY_S
            copy.rename(copy.with_name(f"{copy.name[:-16]}{datetime.fromtimestamp(at, UTC).strftime(STAMP)}"))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    reported: list[RemembrancerError] = []
    copies = DailyCopies(factory.path, KEPT, reported.append)
    made = Rig(factory.path, records, copies, reported)
    made.write("first")
    yield made
    factory.close()


def contents(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {content for (content,) in connection.execute("SELECT content FROM memories")}


def test_a_copy_that_a_kill_left_unfinished_is_gone_after_the_next_one(rig: Rig) -> None:
    unfinished = rig.path.parent / "backups" / f"{rig.path.name}.20260101T000000Z.new"
    unfinished.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished.write_bytes(b"half")
    assert rig.copy() is not None
    assert not unfinished.exists()


def test_a_file_that_has_changed_is_copied_once_a_day_and_so_many_copies_are_kept(rig: Rig) -> None:
    first = rig.copy()
    assert first is not None
    assert contents(first) == {"lantern first"}
    assert not is_damaged(first)
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    rig.write("second")
    assert rig.copy() is None, "the last one is not a day old"
    for day in range(KEPT + 1):
        rig.days_pass(1)
        rig.write(f"day {day}")
        assert rig.copy() is not None
        assert len(daily_copies(rig.path)) == min(day + 2, KEPT)
    newest, *_, oldest = daily_copies(rig.path)
    assert contents(newest) - contents(oldest) == {f"lantern day {day}" for day in (2, 3)}
    rig.days_pass(300)
    later = time.time() - 2 * DAY_S
    for path in (rig.path, rig.path.with_name("memory.db-wal")):
        os.utime(path, (later - 300 * DAY_S,) * 2)
    assert rig.copy() is None, "nothing has changed since the last one"


def test_an_erased_memory_is_in_no_daily_copy(rig: Rig) -> None:
    assert rig.copy()
    rig.copy()
    erased = memory_id_of(store_operation("first", "lantern first"))
    rig.records.apply([change_operation("erase", EraseMemory(erased))])
    scrub(rig.records, erased)
    assert daily_copies(rig.path) == []
    copy = rig.copy()
    assert copy is not None, "there is a new one at once"
    assert b"lantern first" not in copy.read_bytes()


def test_a_copy_that_cannot_be_made_leaves_the_earlier_ones(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rig.copy()
    rig.days_pass(2)
    rig.write("second")
    before = daily_copies(rig.path)
    with monkeypatch.context() as patch:
        full = shutil.disk_usage(rig.path)._replace(free=1000)
        patch.setattr("remembrancer.actors.migrations.shutil.disk_usage", lambda _: full)
        with pytest.raises(StorageFull, match="daily copy"):
            rig.copy()
    rig.records.close()
    damage(rig.path)
    with pytest.raises(RecordsUnusable):
        rig.copy()
    rig.copies.close()
    with pytest.raises(MemoryUnavailable):
        rig.copy()
    assert sorted(rig.path.parent.glob("backups/*")) == before


def test_what_a_crash_has_left_is_checked(rig: Rig, tmp_path: Path) -> None:
    rig.copies.check()
    rig.records.close()
    damage(rig.path)
    with pytest.raises(RecordsUnusable, match="doctor --repair"):
        rig.copies.check()


def damage(path: Path) -> None:
    """Zero the leaf that holds the memories."""
    with closing(sqlite3.connect(path)) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'memories'").fetchall()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
