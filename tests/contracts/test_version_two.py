"""A file that the second schema's release wrote: it is brought to the present schema with all that is in it.

`released/version_2.db.gz` was written by that release's own code: five memories of two sessions, of which one was
changed, one tagged, one forgotten and one promoted; vectors of two, a near-duplicate, and a move to the user's file
that was begun and not ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records.contract import Filters
from remembrancer.actors.store.records.move import Move
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.runs import ReviseMemory
from remembrancer.protocol.writes import Applied, RestoredResult, RestoreMemory
from tests.contracts.records_factories import SqliteFactory, released
from tests.contracts.runs_rig import carry_out, shown, undo
from tests.operations import OTHER_SESSION, PROJECT, SESSION, change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"
ONE, TWO, THREE, FOUR, FIVE = (memory_id_of(store_operation(n, "")) for n in ("one", "two", "three", "four", "five"))


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = released(tmp_path, 2)
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
    one = shown(records, ONE)
    assert (one.content, one.importance, one.tags) == ("The launcher starts the store.", 0.5, ("b", "a"))
    assert (one.metadata, one.version, one.access_count) == ({"k": [1]}, 2, 2)
    assert (shown(records, FOUR).forgotten_reason, shown(records, THREE).tags) == ("said twice", ("howto",))
    assert records.portable(TWO, SESSION) is None
    by_type = {"episodic": 1, "procedural": 1, "semantic": 2}
    assert records.counts(None) == Counts(4, {"project": 3, "session": 1}, by_type, 1, 2, 3)
    assert len(records.passage_numbers(MODEL)) == 2
    assert records.pending() == [2, 3, 5]
    assert records.similar_ids(4, SESSION) == (ONE,)


def test_its_memories_have_the_kinds_that_their_types_say_and_are_active(records: SqliteRecords) -> None:
    memories = [shown(records, memory_id) for memory_id in (ONE, TWO, THREE, FOUR, FIVE)]
    assert [each.kind for each in memories] == ["fact", "observation", "procedure", "fact", "fact"]
    assert {(each.status, each.confidence, each.summary, each.promotion_chain) for each in memories} == {
        ("active", 0.5, None, ())
    }
    read = records.materials(ReadMemories(None, with_vectors=True), MODEL)
    assert [each.id for each in read.memories] == [ONE, TWO, THREE, FIVE]
    assert read.dimensions == 4


def test_its_words_are_found_and_summaries_are_found_from_now_on(records: SqliteRecords) -> None:
    assert [hit.number for hit in records.keyword_hits('"secret"', Filters(OTHER_SESSION), 5)] == [2]
    assert [hit.number for hit in records.keyword_hits('"howto"', Filters(SESSION), 5)] == [3]
    carry_out(records, ReviseMemory(ONE, "summarized", summary="who begins"))
    assert [hit.number for hit in records.keyword_hits('"begins"', Filters(SESSION), 5)] == [1]


def test_its_sessions_are_over_and_dealt_with(records: SqliteRecords) -> None:
    assert records.open_sessions() == []
    entry = records.session_read(SESSION, 0).entry
    assert entry is not None
    assert (entry.status, entry.ended_at, entry.ending) == ("abandoned", entry.last_active_at, "abandoned")


def test_its_history_can_be_returned_to_and_runs_over_it_undone(records: SqliteRecords) -> None:
    before = shown(records, THREE)
    carry_out(records, ReviseMemory(THREE, "archived", status="archived", tags=("old",)))
    undo(records)
    after = shown(records, THREE)
    assert (after.status, after.tags, after.kind, after.type) == ("active", before.tags, "procedure", "procedural")
    restored = records.apply([change_operation("restore", RestoreMemory(ONE, 1))])[0].reply
    assert isinstance(restored, Applied)
    assert restored.result == RestoredResult(ONE, 3, ("importance", "metadata"))


def test_the_move_that_was_under_way_is_ended(records: SqliteRecords, tmp_path: Path) -> None:
    user = SqliteRecords(tmp_path / "user" / "memory.db", "user", lambda: 5.0)
    assert Move(records, user).finish()
    five = user.portable(FIVE, None)
    assert five is not None
    assert (five.scope, five.source_project, five.kind) == ("user", PROJECT.id, "fact")
    assert records.portable(FIVE, None) is None
    user.close()
