"""A file that the third schema's release wrote: what is in it is found by the parts of its words.

`released/version_3.db.gz` was written by that release's own code: five memories of two sessions, of which one is
tagged, one summarized and one forgotten.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records.contract import Filters
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.keywords import match_expression
from tests.contracts.records_factories import SqliteFactory
from tests.operations import OTHER_SESSION, SESSION


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = SqliteFactory(tmp_path)
    made.path.parent.mkdir()
    packed = Path(__file__).with_name("released") / "version_3.db.gz"
    made.path.write_bytes(gzip.decompress(packed.read_bytes()))
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
