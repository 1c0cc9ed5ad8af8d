"""An archived memory that is used again is active again."""

from __future__ import annotations

import pytest

from remembrancer.actors.store.records.memory_rows import archived_since
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.runs import ReviseMemory
from remembrancer.protocol.writes import TagMemory
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.runs_rig import ONE, TWO, carry_out, number, shown, stored
from tests.operations import OTHER_SESSION, REQUESTED_AT, change_operation


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    """Two memories that are archived, and two others."""
    made = factory.open()
    made.apply(stored())
    carry_out(made, *(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    return made


def test_an_access_makes_an_archived_memory_active_and_its_history_says_so(records: Records) -> None:
    records.touch([number(records, ONE)] * 2, 5e9, OTHER_SESSION)
    one = shown(records, ONE)
    assert (one.status, one.version, one.updated_at, one.access_count) == ("active", 3, 5e9, 2)
    last = one.history[-1]
    assert (last.change, last.session_id, last.details["fields"]) == ("revived", "", ["status"])
    assert last.record.status == "active"
    (material,) = records.materials(ReadMemories(None, memory_ids=(ONE,)), None).memories
    assert material.archived_at is None
    assert shown(records, TWO).status == "archived", "only what was used"


def test_the_time_of_archiving_is_known_in_spite_of_later_changes(factory: SqliteFactory, records: Records) -> None:
    archived_at = archived_since(shown(records, ONE))
    assert archived_at == factory.clock.now
    later = change_operation("tag", TagMemory(ONE, add=("later",)), requested_at=REQUESTED_AT + 1000)
    records.apply([later])
    assert archived_since(shown(records, ONE)) == archived_at
    assert archived_since(shown(records, "mem_three")) is None
