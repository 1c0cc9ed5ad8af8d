"""A file that the third schema's release wrote: what is in it is found by the parts of its words.

`released/version_3.db.gz` was written by that release's own code: five memories of two sessions, of which one is
tagged, one summarized and one forgotten.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records.contract import Filters
from remembrancer.actors.store.records.schema import SCHEMA_VERSION, migrate, version_of
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.keywords import match_expression
from remembrancer.protocol.errors import StorageFull
from tests.contracts.records_factories import SqliteFactory, released
from tests.operations import OTHER_SESSION, SESSION


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = released(tmp_path, 3)
    yield made
    made.close()


@pytest.fixture
def records(factory: SqliteFactory) -> SqliteRecords:
    return factory.open()


def found(records: SqliteRecords, query: str, filters: Filters) -> list[int]:
    expression = match_expression(query)
    assert expression is not None
    return [hit.number for hit in records.keyword_hits(expression, filters, 5)]


def test_it_is_brought_to_the_present_schema(factory: SqliteFactory, records: SqliteRecords) -> None:
    assert (records.counts(None).total, records.counts(None).forgotten) == (4, 1)
    with closing(sqlite3.connect(factory.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO memories_text (memories_text, rank) VALUES ('integrity-check', 1)")


@pytest.mark.parametrize(
    ("query", "filters", "numbers"),
    [
        ("connection pool size", Filters(SESSION), [1]),
        ("retry-policy.py", Filters(SESSION), [1]),
        ("settings", Filters(SESSION), [1]),
        ("数据库", Filters(SESSION), [2]),
        ("worker thread", Filters(OTHER_SESSION), [3]),
        ("store process", Filters(SESSION), [4]),
        ("cache", Filters(SESSION), []),
        ("cache", Filters(SESSION, include_forgotten=True), [5]),
    ],
)
def test_its_memories_are_found_by_the_parts_of_their_words(
    records: SqliteRecords, query: str, filters: Filters, numbers: list[int]
) -> None:
    assert found(records, query, filters) == numbers


def test_its_memories_are_in_the_lists(records: SqliteRecords) -> None:
    assert records.top(Filters(SESSION, include_forgotten=True), "latest", 5) == [5, 4, 2, 1]
    assert records.matching(Filters(OTHER_SESSION, ("session",)), 5) == [3]
    assert records.matching(Filters(SESSION, tags=("dbSettings",)), 5) == [1]
    records.require_embeddings("model")
    assert records.pending() == [1, 2, 3, 4, 5]


def test_a_source_that_cannot_be_read_is_left_as_it_is(factory: SqliteFactory) -> None:
    with closing(sqlite3.connect(factory.path)) as connection, connection:
        connection.execute("UPDATE memories SET source = 'src/app.py' WHERE number = 1")
        connection.execute("""UPDATE memories SET source = '{"file": "src/app.py"}' WHERE number = 4""")
    assert factory.open().from_files(["app.py"], Filters(SESSION), 5) == [4]
    with closing(sqlite3.connect(factory.path)) as connection:
        assert connection.execute("SELECT source FROM memories WHERE number = 1").fetchone() == ("src/app.py",)


def test_a_memory_that_is_no_text_keeps_nobody_from_the_others(factory: SqliteFactory) -> None:
    with closing(sqlite3.connect(factory.path)) as connection, connection:
        connection.execute("UPDATE memories SET content = x'00ff41' WHERE number = 2")
        connection.execute("UPDATE memories SET content = cast(x'ff61' AS TEXT), tags = x'ff' WHERE number = 3")
        before = connection.execute("SELECT number, hex(content), hex(tags) FROM memories").fetchall()
    assert found(factory.open(), "connection pool size", Filters(SESSION)) == [1]
    with closing(sqlite3.connect(factory.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT number, hex(content), hex(tags) FROM memories").fetchall() == before


def test_of_two_openings_at_once_each_finds_the_present_schema(factory: SqliteFactory) -> None:
    """The second one does it all between the first one's look at the version and its lock."""
    with (
        closing(sqlite3.connect(factory.path, isolation_level=None)) as first,
        closing(sqlite3.connect(factory.path, isolation_level=None)) as second,
    ):
        seen: list[str] = []

        def overtake(statement: str) -> None:
            seen.append(statement)
            if statement == "BEGIN IMMEDIATE" and version_of(factory.path) == 3:
                migrate(second)

        first.set_trace_callback(overtake)
        migrate(first)
        assert "BEGIN IMMEDIATE" in seen
        assert not any("ALTER TABLE" in statement for statement in seen)
        assert version_of(factory.path) == SCHEMA_VERSION
    assert factory.open().counts(None).total == 4


def test_without_room_on_the_disk_it_stays_as_it_was_until_there_is_some(factory: SqliteFactory) -> None:
    """The kernel refuses to let any file of this process grow: as on a full disk, the write fails."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))
    try:
        with pytest.raises(StorageFull, match="no room"):
            factory.open()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert version_of(factory.path) == 3
    assert factory.open().counts(None).total == 4
