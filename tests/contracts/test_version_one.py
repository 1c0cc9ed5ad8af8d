"""A file that the first release wrote: it is brought to the present schema with all that is in it.

`released/version_1.db.gz` was written by that release's own code: four memories of two sessions, seven edges, vectors
of two memories, a near-duplicate, and accesses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records.contract import Filters
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    RestoredResult,
    RestoreMemory,
    Snapshot,
    SourceRef,
    StoredResult,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory, released
from tests.operations import OTHER_SESSION, SESSION, change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"
ONE, TWO, THREE, FOUR = (memory_id_of(store_operation(name, "")) for name in ("one", "two", "three", "four"))


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = released(tmp_path, 1)
    yield made
    made.close()


@pytest.fixture
def records(factory: SqliteFactory) -> SqliteRecords:
    return factory.open()


def query(factory: SqliteFactory, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(factory.path)) as connection:
        return connection.execute(statement).fetchall()


def test_all_that_it_held_is_there(factory: SqliteFactory, records: SqliteRecords) -> None:
    assert query(factory, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert query(factory, "PRAGMA integrity_check") == [("ok",)]
    assert query(factory, "PRAGMA foreign_key_check") == []
    one = records.portable(ONE, SESSION)
    assert one is not None
    assert (one.content, one.importance, one.tags) == ("The launcher starts the store.", 0.75, ("b", "a"))
    assert (one.source, one.access_count, one.version) == (SourceRef("editor", "/a.py", 3), 2, 1)
    assert records.portable(TWO, SESSION) is None
    assert records.counts(None) == Counts(4, {"project": 2, "session": 2}, {"semantic": 3, "episodic": 1}, 0, 5, 6)
    assert [hit.number for hit in records.keyword_hits('"secret"', Filters(OTHER_SESSION), 5)] == [2]
    assert len(records.passage_numbers(MODEL)) == 3
    assert records.pending() == [2, 3]
    assert records.similar_ids(1, SESSION) == (FOUR,)


def test_its_entities_are_in_the_order_in_which_they_were_named(factory: SqliteFactory, records: SqliteRecords) -> None:
    one = records.portable(ONE, None)
    assert one is not None
    named = (
        EntityRef("launcher", "service", "about"),
        EntityRef("AuthService", "service", "starts"),
        EntityRef("auth service", "module", "is"),
    )
    assert one.related_entities == named
    edges = query(
        factory,
        """SELECT m.number, s.name, me.relationship, e.name FROM memory_entities AS me
           JOIN memories AS m ON m.number = me.memory JOIN entities AS e ON e.number = me.entity
           LEFT JOIN entities AS s ON s.number = me.subject ORDER BY m.number, me.ordinal""",
    )
    assert edges == [
        (1, None, "about", "launcher"),
        (1, "launcher", "starts", "AuthService"),
        (1, "launcher", "is", "auth service"),
        (2, None, "in", "Zürich"),
        (2, "Zürich", "about", "AuthService"),
        (4, None, "about", "???"),
    ]
    keys = set(query(factory, "SELECT name, key FROM entities"))
    assert keys >= {("AuthService", "authservice"), ("auth service", "authservice"), ("???", "???")}
    words = query(
        factory,
        "SELECT e.name FROM entities_text AS t JOIN entities AS e ON e.number = t.rowid "
        "WHERE entities_text MATCH 'auth' ORDER BY 1",
    )
    assert words == [("AuthService",), ("auth service",)]


def test_its_history_reads_as_that_of_any_memory_and_can_be_returned_to(records: SqliteRecords) -> None:
    three = records.portable(THREE, None)
    assert three is not None
    (first,) = three.history
    assert (first.version, first.change, first.operation_id, first.details) == (1, "stored", "three", {})
    assert first.record == Snapshot("A secret of session one.", "episodic", "session", SESSION, occurred_at=123.5)
    changes: list[Change] = [UpdateMemory(ONE, "Another text.", remove_entities=("launcher",)), RestoreMemory(ONE, 1)]
    outcomes = records.apply([change_operation(f"change {n}", change) for n, change in enumerate(changes)])
    results = [outcome.reply.result for outcome in outcomes if isinstance(outcome.reply, Applied)]
    assert [type(result) for result in results] == [UpdatedResult, RestoredResult]
    one = records.portable(ONE, None)
    assert one is not None
    assert (one.content, one.version, one.related_entities[0].name) == (
        "The launcher starts the store.",
        3,
        "launcher",
    )
    assert "launcher" not in [entity.name for entity in one.history[1].record.related_entities]


def test_what_was_applied_then_is_answered_as_it_was_then(records: SqliteRecords) -> None:
    four = records.apply([store_operation("four", "sent again")])[0]
    assert four.reply == Applied("four", StoredResult(FOUR, "semantic", "project", 1, (ONE,)), replayed=True)
    assert records.outcome_of("four") == four.reply
    assert records.counts(None).total == 4
