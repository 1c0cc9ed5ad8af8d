"""Every kind of `Records` that there is. A new database passes the contract when it has joined the list."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from remembrancer.actors.store.records.contract import Records, WaitingWork
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.consolidation import ReadUpkeep
from remembrancer.protocol.runs import Prune
from tests.operations import PROJECT, REQUESTED_AT


class Clock:
    """Seconds since the epoch, as a test wants them."""

    def __init__(self) -> None:
        self.now = REQUESTED_AT

    def __call__(self) -> float:
        return self.now


class RecordsFactory(Protocol):
    """One place where records are kept, which may be opened again and again."""

    clock: Clock

    def open(self, *, limit_bytes: int | None = None, session_limit: int | None = None) -> Records:
        """Open what is there, or begin. Closed at the end of the test, if not before."""

    def close(self) -> None:
        """Close whatever was opened."""


class SqliteFactory:
    """A SQLite file in a directory."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.path = directory / "records" / "memory.db"
        self._opened: list[SqliteRecords] = []

    def open(self, *, limit_bytes: int | None = None, session_limit: int | None = None) -> SqliteRecords:
        records = SqliteRecords(self.path, PROJECT.id, self.clock, limit_bytes=limit_bytes, session_limit=session_limit)
        self._opened.append(records)
        return records

    def close(self) -> None:
        for records in self._opened:
            records.close()


def leave_half_made(path: Path) -> None:
    """Leave a database as `kill -9` does while it is made: a page or more, and the journal that takes them back."""
    begun = path.with_name("begun.db")
    with closing(sqlite3.connect(begun, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that pages reach the disk before the end
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE half (made)")
        connection.executemany("INSERT INTO half VALUES (?)", [("x" * 4000,)] * 20)
        shutil.copy(begun, path)
        shutil.copy(f"{begun}-journal", f"{path}-journal")
    begun.unlink()


FACTORIES: list[type[SqliteFactory]] = [SqliteFactory]


def texts_of(records: Records, numbers: Sequence[int]) -> dict[int, str]:
    """The contents of memories, by number."""
    return {number: memory.content for number, memory in records.load(numbers, None).items()}


def work_of(records: Records, threshold: int = 500, *, score: float = 0.0, limit: int = 200) -> WaitingWork:
    """What the records have for the consolidator."""
    return records.waiting_work(threshold, score, limit)


def upkeep_of(records: Records, orphans_before: float, edit: Prune | None) -> tuple[int, int]:
    """How many entities no memory names, and how many rows there are to be pruned."""
    found = records.materials(ReadUpkeep(None, orphans_before, edit))
    return found.orphans, found.prunable
