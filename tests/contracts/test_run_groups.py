"""The groups of a run: what it makes does not outlive its sources, and what was undone is known for it."""

from __future__ import annotations

import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.runs import AddLink, AddMemory, Edit, NewMemory, ReviseMemory
from remembrancer.protocol.writes import ForgetMemory, UpdateMemory
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.runs_rig import CONTENTS, ONE, SUMMARY, THREE, TWO, carry_out, shown, stored, undo
from tests.operations import change_operation


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    made = factory.open()
    made.apply(stored())
    return made


def summing_up(*sources: str, version: int = 1) -> list[Edit]:
    """A summary of memories, as the consolidator plans it."""
    memory = NewMemory(SUMMARY, "several lights", "fact", "project", "session:s")
    return [
        AddMemory(memory, tuple((source, version) for source in sources)),
        *(
            ReviseMemory(source, "consolidated", version, status="consolidated", only_with=SUMMARY)
            for source in sources
        ),
        *(AddLink(SUMMARY, source, "derived_from") for source in sources),
    ]


@pytest.mark.parametrize("change", [ForgetMemory(TWO, "private"), UpdateMemory(TWO, content="something else")])
def test_a_summary_is_not_made_of_what_is_gone_or_changed_and_its_other_sources_stay_as_they_are(
    records: Records, change: ForgetMemory | UpdateMemory
) -> None:
    records.apply([change_operation("meanwhile", change)])
    result = carry_out(records, *summing_up(ONE, TWO, THREE))
    assert result.edits == 0
    assert {skipped.memory_id for skipped in result.skipped} == {SUMMARY, ONE, TWO, THREE}
    assert records.portable(SUMMARY, None) is None
    assert [shown(records, each).status for each in CONTENTS] == ["active"] * 4


def test_a_summary_that_is_there_or_was_forgotten_marks_nothing_again(records: Records) -> None:
    carry_out(records, *summing_up(ONE))
    records.apply([change_operation("forget", ForgetMemory(SUMMARY))])
    assert carry_out(records, *summing_up(TWO), run_id="other").edits == 0
    assert shown(records, TWO).status == "active"


def read(records: Records) -> dict[str, Material]:
    return {each.id: each for each in records.materials(ReadMemories(None), None).memories}


def test_what_was_undone_is_known_until_the_memory_changes_again(records: Records) -> None:
    carry_out(records, *summing_up(ONE, TWO))
    carry_out(records, ReviseMemory(THREE, "archived", status="archived"), run_id="other")
    assert {each.undone for each in read(records).values()} == {""}
    undo(records)
    undo(records, "other", name="undo other")
    assert {memory_id: each.undone for memory_id, each in read(records).items() if each.undone} == {
        ONE: "consolidated",
        TWO: "consolidated",
        THREE: "archived",
    }
    records.apply([change_operation("update", UpdateMemory(ONE, importance=0.75))])
    assert {memory_id for memory_id, each in read(records).items() if each.undone} == {TWO, THREE}
