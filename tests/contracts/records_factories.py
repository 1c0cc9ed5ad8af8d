"""Records in a directory of a test, and what tests ask of them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from remembrancer.actors.store.memory_files import scrub_spaces
from remembrancer.actors.store.records.contract import Filters, WaitingWork
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.consolidation import ReadUpkeep
from remembrancer.protocol.runs import Prune
from tests.operations import PROJECT, REQUESTED_AT


class Clock:
    """Seconds since the epoch, as a test wants them."""

    def __init__(self) -> None:
        self.now = REQUESTED_AT

    def __call__(self) -> float:
        return self.now


class SqliteFactory:
    """A SQLite file in a directory."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.path = directory / "records" / "memory.db"
        self._opened: list[Records] = []

    def open(self, *, limit_bytes: int | None = None, session_limit: int | None = None) -> Records:
        records = Records(
            SqliteFile(self.path), PROJECT.id, self.clock, limit_bytes=limit_bytes, session_limit=session_limit
        )
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


def scrub(records: Records, *memory_ids: str, quotes: Sequence[str] = ()) -> None:
    """Leave nothing of erased memories in the database of these records, nor of turns that quote them."""
    scrub_spaces(records._file.file, records._clock(), memory_ids, quotes, records.name)


def texts_of(records: Records, numbers: Sequence[int]) -> dict[int, str]:
    """The contents of memories, by number."""
    return {number: memory.content for number, memory in records.load(numbers, None).items()}


def work_of(records: Records, threshold: int = 500, *, score: float = 0.0, limit: int = 200) -> WaitingWork:
    """The records' work for the consolidator."""
    return records.waiting_work(threshold, score, limit)


def upkeep_of(records: Records, orphans_before: float, edit: Prune | None) -> tuple[int, int]:
    """The number of entities that no memory names, and of rows to be pruned."""
    found = records.materials(ReadUpkeep(None, orphans_before, edit))
    return found.orphans, found.prunable


def near_duplicates(records: Records, number: int, session_id: str) -> tuple[str, ...]:
    """Ids of the near-duplicates of a memory that a session may see."""
    found = records.load([number], Filters(session_id, include_forgotten=True)).get(number)
    return () if found is None else found.near_duplicates
