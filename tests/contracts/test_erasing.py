"""The promises about erasing: an erased memory is gone from answers, history and every byte of the file, and does not
come back."""

from __future__ import annotations

from pathlib import Path

import msgspec

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.memory.sentences import quotable
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import AddLink, AddMemory, ApplyRun, Edit, NewMemory, ReviseMemory
from remembrancer.protocol.session_life import EndSession, RecordEvents, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    LinkRef,
    Operation,
    PromoteMemory,
    TagMemory,
    TextEdit,
    UpdateMemory,
)
from tests.contracts.records_factories import Move, SqliteFactory, is_erased, scrub
from tests.operations import PROJECT, SESSION, change_operation, memory_id_of, store_operation

SECRET = "the vault opens with marigold"


def result_of(records: Records, name: str, change: EraseMemory) -> ErasedResult:
    (outcome,) = records.apply([change_operation(name, change)])
    assert isinstance(outcome.reply, Applied), outcome.reply
    assert isinstance(outcome.reply.result, ErasedResult)
    return outcome.reply.result


def test_an_erased_memory_leaves_no_word_of_it_in_the_file(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    stored = store_operation("secret", SECRET, related_entities=(EntityRef("marigold", "code", "about"),))
    memory_id = memory_id_of(stored)
    others = [store_operation(f"other {number}", f"harmless note number {number}") for number in range(50)]
    records.apply([*others, stored])
    number = records.number_of(memory_id)
    assert number is not None
    records.apply(
        [
            change_operation("u", UpdateMemory(memory_id, content=f"{SECRET} and lavender", summary="marigold")),
            change_operation("t", TagMemory(memory_id, add=("marigold",))),
            change_operation("p", UpdateMemory(memory_id, content=TextEdit("lavender", "heather"))),
        ]
    )
    assert result_of(records, "e", EraseMemory(memory_id)) == ErasedResult(memory_id)
    scrub(records, memory_id)
    assert records.number_of(memory_id) is None
    assert records.portable(memory_id, SESSION) is None
    assert records.keyword_hits([Phrase("marigold")], Filters(SESSION), 10) == {}
    assert len(records.keyword_hits([Phrase("harmless")], Filters(SESSION), 100)) == 50
    records.close()
    for file in factory.path.parent.iterdir():
        assert b"marigold" not in file.read_bytes(), file
        assert b"lavender" not in file.read_bytes(), file
        assert b"heather" not in file.read_bytes(), file
    factory.close()


def test_nothing_brings_it_back_and_a_second_call_says_that_it_was_erased(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    stored = store_operation("secret", SECRET)
    memory_id = memory_id_of(stored)
    records.apply([stored])
    portable = records.portable(memory_id, SESSION)
    assert portable is not None
    result_of(records, "e", EraseMemory(memory_id))
    assert result_of(records, "e", EraseMemory(memory_id)) == ErasedResult(memory_id), "a replay answers as before"
    assert result_of(records, "again", EraseMemory(memory_id)).already
    again = msgspec.structs.replace(stored, operation_id="another operation")
    (refused, taken) = records.apply([again, change_operation("import", ImportMemory(portable))])
    assert isinstance(refused.reply, InvalidInput)
    assert isinstance(taken.reply, InvalidInput)
    assert "erased" in refused.reply.message
    assert records.number_of(memory_id) is None
    unknown = memory_id_of(store_operation("never stored", "x"))
    (outcome,) = records.apply([change_operation("none", EraseMemory(unknown))])
    assert isinstance(outcome.reply, NotFound)
    assert not result_of(records, "queued", EraseMemory(unknown, was_queued=True)).already
    assert is_erased(records, unknown), "the write that was queued does not come back"
    factory.close()


def test_what_was_derived_from_it_is_named_and_its_passages_are_handed_back(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    stored, summary = store_operation("secret", SECRET), store_operation("summary", "a summary of it")
    records.apply([stored, summary])
    memory_id, summary_id = memory_id_of(stored), memory_id_of(summary)
    number = records.number_of(memory_id)
    assert number is not None
    records.apply([change_operation("l", UpdateMemory(summary_id, add_links=(LinkRef("derived_from", memory_id),)))])
    (outcome,) = records.apply([change_operation("e", EraseMemory(memory_id))])
    assert isinstance(outcome.reply, Applied)
    assert outcome.reply.result == ErasedResult(memory_id, said_by=(summary_id,))
    factory.close()


def test_what_quotes_it_goes_along_and_the_record_of_its_session_stays(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    records = factory.open()
    stored = store_operation("secret", f"Next: {SECRET}", type="episodic")
    other = store_operation("other", "Next: paint the cellar", type="episodic")
    said = RecordEvents(
        SESSION,
        turns=(Turn("user", f"Next: {SECRET}, please", 1.0), Turn("user", "and thanks", 1.0)),
        tool_calls=(
            ToolCall("store_memory", 1.0, {"content": f"Next: {SECRET}"}),
            ToolCall("Edit", 1.0, {"path": "cellar"}),
        ),
    )
    records.apply([stored, other, Operation("events", PROJECT, SESSION, 1.0, said)])
    records.apply([Operation("end", PROJECT, SESSION, 1.0, EndSession(SESSION))])
    made = NewMemory("mem_summary", f"Next: {SECRET}\nNext: paint the cellar", "fact", "project", SESSION)
    sources = (memory_id_of(stored), memory_id_of(other))
    edits: tuple[Edit, ...] = (
        AddMemory(made),
        *(ReviseMemory(each, "consolidated", status="consolidated") for each in sources),
        *(AddLink(made.id, each, "derived_from") for each in sources),
        AddLink(sources[1], sources[0], "similar_to"),
    )
    records.apply([Operation("run", PROJECT, "", 1.0, ApplyRun("run", "project", "consolidation", "promote", edits))])
    assert result_of(records, "e", EraseMemory(sources[0])) == ErasedResult(sources[0], also_erased=(made.id,))
    scrub(records, sources[0], quotes=quotable([f"Next: {SECRET}"]))
    assert "worked on cellar" in (records.describe_session(SESSION).summary or "")
    assert records.materials(ReadMemories(None, memory_ids=(sources[1],))).memories[0].status == "active"
    records.close()
    for file in factory.path.parent.iterdir():
        assert b"marigold" not in file.read_bytes(), file
    factory.close()


def test_nothing_is_left_of_an_erased_memory_that_had_come_from_a_project(tmp_path: Path) -> None:
    factory = SqliteFactory(tmp_path)
    source = factory.open()
    destination = Records(source._file.file, "user", factory.clock)
    stored = store_operation("secret", SECRET)
    memory_id = memory_id_of(stored)
    source.apply([stored])
    (moved,) = Move(source, destination).apply([change_operation("m", PromoteMemory(memory_id, "user"))])
    assert isinstance(moved.reply, Applied)
    result_of(destination, "e", EraseMemory(memory_id))
    scrub(destination, memory_id)
    source.close()
    for file in factory.path.parent.iterdir():
        assert b"marigold" not in file.read_bytes(), file
    factory.close()


def test_another_file_s_memory_of_the_same_id_stays_whole_when_one_is_erased(tmp_path: Path) -> None:
    here, there = SqliteFactory(tmp_path / "here"), SqliteFactory(tmp_path / "there")
    source, other = here.open(), there.open()
    stored = store_operation("secret", SECRET)
    memory_id = memory_id_of(stored)
    source.apply([stored, change_operation("t", TagMemory(memory_id, add=("vault",)))])
    portable = source.portable(memory_id, SESSION)
    assert portable is not None
    other.apply([change_operation("import", ImportMemory(portable))])
    before = other.portable(memory_id, SESSION)
    assert before is not None
    assert [entry.change for entry in before.history] == ["stored", "tagged"]
    result_of(source, "e", EraseMemory(memory_id))
    scrub(source, memory_id)
    scrub(other, memory_id)
    assert other.portable(memory_id, SESSION) == before
    assert not is_erased(other, memory_id)
    here.close()
    there.close()
