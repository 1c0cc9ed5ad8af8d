"""Records in a directory of a test, and what tests ask of them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from remembrancer.actors.store.memory_files import scrub_spaces
from remembrancer.actors.store.memory_writer import Lanes, MemoryWriter
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.records.sqlite_file import SqliteFile, json_list
from remembrancer.actors.store.records.sqlite_records import NO_LIMITS, Limits, Records
from remembrancer.actors.store.records.types import Filters, WaitingWork
from tests.operations import PROJECT, REQUESTED_AT


class Clock:
    def __init__(self) -> None:
        self.now = REQUESTED_AT

    def __call__(self) -> float:
        return self.now


class SqliteFactory:
    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.path = directory / "records" / "memory.db"
        self._opened: list[Records] = []

    def open(self, limits: Limits = NO_LIMITS) -> Records:
        records = Records(SqliteFile(self.path), PROJECT.id, self.clock, limits)
        self._opened.append(records)
        return records

    def close(self) -> None:
        for records in self._opened:
            records.close()


def writer_of(project: Records, user: Records) -> MemoryWriter:
    """The writer of the memories of a project and the user, which are in one database."""
    lanes: Lanes = {"session": project, "project": project, "user": user}
    return MemoryWriter(lambda: project._file.file, lambda _: lanes, lambda _: None)


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
    with records._file.transaction() as connection:
        SqliteEdits(connection, records._clock()).drop_quotes(quotes)
    scrub_spaces(records._file.file, records._clock(), memory_ids, quotes)


def pending(texts: EmbeddedTexts, model: str | None = None) -> list[int]:
    """The numbers of the texts without vectors of a model (None: of any), oldest first."""
    of_model, arguments = ("", ()) if model is None else ("AND model = ?", (model,))
    rows = texts._file.read(
        f"""SELECT number FROM {texts._table} AS t WHERE {texts._own}
            AND NOT EXISTS (SELECT 1 FROM passages WHERE memory = t.number {of_model}) ORDER BY number""",
        arguments,
    )
    return [number for (number,) in rows]


def ids_of(records: Records) -> list[str]:
    return [memory_id for (memory_id,) in records._file.read("SELECT id FROM memories WHERE space = @SPACE")]


def is_erased(records: Records, memory_id: str) -> bool:
    return bool(records._file.read("SELECT 1 FROM erased WHERE space = @SPACE AND memory_id = ?", (memory_id,)))


def texts_of(texts: EmbeddedTexts, numbers: Iterable[int]) -> dict[int, str]:
    which = "number IN (SELECT value FROM json_each(?))"
    return dict(texts._file.read(f"SELECT number, content FROM {texts._table} WHERE {which}", (json_list(numbers),)))


def work_of(records: Records, *, score: float = 0.0, limit: int = 200) -> WaitingWork:
    return records.waiting_work(score, limit)


def near_duplicates(records: Records, number: int, session_id: str) -> tuple[str, ...]:
    found = records.load([number], Filters(session_id, include_forgotten=True)).get(number)
    return () if found is None else found.near_duplicates


def check_derived(path: Path) -> None:
    """Check that a database is whole, and that what is derived in it (words, tallies, tags) follows from its rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for (space,) in connection.execute("SELECT number FROM spaces").fetchall():
            for table, source in (("words", "memories"), ("names", "entities")):
                connection.execute(f"INSERT INTO {table}_{space} ({table}_{space}) VALUES ('integrity-check')")
                own = connection.execute(f"SELECT number FROM {source} WHERE space = ? ORDER BY 1", (space,)).fetchall()
                assert connection.execute(f"SELECT id FROM {table}_{space}_docsize ORDER BY 1").fetchall() == own
        counted = "SELECT space, scope, type, forgotten_at IS NOT NULL, count(*) FROM memories GROUP BY 1, 2, 3, 4"
        kept = "SELECT space, scope, type, forgotten, count FROM tallies WHERE count > 0"
        assert sorted(connection.execute(kept)) == sorted(connection.execute(counted))
        listed = "SELECT m.number, j.value FROM memories AS m, json_each(m.tags) AS j"
        assert sorted(connection.execute("SELECT memory, tag FROM memory_tags")) == sorted(connection.execute(listed))
        idle = "SELECT name FROM entities WHERE number NOT IN (SELECT entity FROM memory_entities)"
        assert connection.execute(idle).fetchall() == []
