"""Versions of the schema: a made-up second one stands for those to come."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records import schema
from remembrancer.actors.store.records.contract import Filters
from remembrancer.protocol.errors import StorageFull
from tests.contracts.records_factories import SqliteFactory
from tests.operations import SESSION, store_operation

SECOND = """
    ALTER TABLE memories ADD COLUMN colour TEXT;
    UPDATE memories SET colour = 'green';
"""


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = SqliteFactory(tmp_path)
    yield made
    made.close()


@pytest.fixture
def old(factory: SqliteFactory, monkeypatch: pytest.MonkeyPatch) -> SqliteFactory:
    """A factory with a file of the present schema, to which a later one has come."""
    records = factory.open()
    records.apply([store_operation(f"op{n}", f"lantern number {n}") for n in range(3)])
    records.close()
    with closing(sqlite3.connect(factory.path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, SECOND))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    return factory


def colours(factory: SqliteFactory) -> list[str]:
    with closing(sqlite3.connect(factory.path)) as connection:
        return [row[0] for row in connection.execute("SELECT colour FROM memories ORDER BY number")]


def test_an_older_file_is_brought_forward_and_keeps_what_it_has(old: SqliteFactory) -> None:
    records = old.open()
    assert records.counts(None).total == 3
    assert schema.version_of(old.path) == schema.SCHEMA_VERSION
    assert colours(old) == ["green"] * 3
    records.apply([store_operation("new", "a lantern without a colour")])
    assert records.counts(None).total == 4


def test_a_step_that_fails_changes_nothing(old: SqliteFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (schema.MIGRATIONS[0], SECOND + "SELECT * FROM nowhere;"))
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        before = connection.execute("SELECT sql FROM sqlite_schema").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            schema.migrate(connection)
        assert connection.execute("SELECT sql FROM sqlite_schema").fetchall() == before
    assert schema.version_of(old.path) == schema.SCHEMA_VERSION - 1


def test_of_two_openings_at_once_each_finds_the_present_schema(old: SqliteFactory) -> None:
    """The second one does it all between the first one's look at the version and its lock."""
    with (
        closing(sqlite3.connect(old.path, isolation_level=None)) as first,
        closing(sqlite3.connect(old.path, isolation_level=None)) as second,
    ):
        seen: list[str] = []

        def overtake(statement: str) -> None:
            seen.append(statement)
            if statement == "BEGIN IMMEDIATE" and schema.version_of(old.path) < schema.SCHEMA_VERSION:
                schema.migrate(second)

        first.set_trace_callback(overtake)
        schema.migrate(first)
        assert "BEGIN IMMEDIATE" in seen
        assert not any("ALTER TABLE" in statement for statement in seen)
        assert schema.version_of(old.path) == schema.SCHEMA_VERSION
    assert old.open().counts(None).total == 3


def test_without_room_on_the_disk_it_stays_as_it_was_until_there_is_some(old: SqliteFactory) -> None:
    """The kernel refuses to let any file of this process grow: as on a full disk, the write fails."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))
    try:
        with pytest.raises(StorageFull, match="no room"):
            old.open()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert schema.version_of(old.path) == schema.SCHEMA_VERSION - 1
    assert old.open().counts(None).total == 3


def test_a_source_that_cannot_be_read_is_left_as_it_is(factory: SqliteFactory) -> None:
    records = factory.open()
    records.apply([store_operation(f"op{n}", f"lantern number {n}") for n in range(2)])
    with closing(sqlite3.connect(factory.path)) as connection, connection:
        connection.execute("UPDATE memories SET source = 'src/app.py' WHERE number = 1")
        connection.execute("""UPDATE memories SET source = '{"file": "src/app.py"}' WHERE number = 2""")
    assert records.top(Filters(SESSION), "latest", 5, ["app.py"]) == [2]
    with closing(sqlite3.connect(factory.path)) as connection:
        assert connection.execute("SELECT source FROM memories WHERE number = 1").fetchone() == ("src/app.py",)
