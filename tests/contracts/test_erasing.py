"""An erased memory is gone from answers, history and every byte of the file, and does not come back."""

from __future__ import annotations

from remembrancer.memory.sentences import quotable
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import AddLink, AddMemory, ApplyRun, Edit, NewMemory, ReviseMemory
from remembrancer.protocol.session_life import EndSession, RecordEvents, ToolCall, Turn
from remembrancer.protocol.writes import (
    ErasedResult,
    EraseMemory,
    ImportMemory,
    LinkRef,
    TagMemory,
    TextEdit,
    UpdateMemory,
)
from tests.contracts.records_factories import is_erased, scrub
from tests.contracts.records_rig import RecordsRig
from tests.operations import SESSION, change_operation, memory_id_of, store_operation

SECRET = "the vault opens with marigold"


def test_an_erased_memory_leaves_no_word_of_it_in_the_file(rig: RecordsRig) -> None:
    for number in range(50):
        rig.say(f"harmless note number {number}")
    secret = rig.say(SECRET, "marigold:code")
    rig.do(UpdateMemory(secret, content=f"{SECRET} in vault/marigold_drawer.txt and lavender", summary="marigold"))
    rig.tidy()
    assert rig.records.surroundings(secret, "", None).found_entities == ("vault/marigold_drawer.txt",)
    rig.do(TagMemory(secret, add=("marigold",)))
    rig.do(UpdateMemory(secret, content=TextEdit("lavender", "heather")))
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret)
    scrub(rig.records, secret)
    assert rig.records.number_of(secret) is None
    assert rig.records.portable(secret, SESSION) is None
    assert rig.found("marigold") == []
    assert len(rig.found("harmless")) == rig.records.counts(None).total == 50
    assert [rig.files_with(word) for word in ("marigold", "lavender", "heather")] == [[]] * 3


def test_nothing_brings_it_back_and_a_second_call_says_that_it_was_erased(rig: RecordsRig) -> None:
    secret = rig.say(SECRET, memory_id="mem_secret")
    portable = rig.shown(secret)
    erase = change_operation("erase", EraseMemory(secret))
    first, replay = (outcome.reply for outcome in rig.records.apply([erase, erase]))
    assert (first.result, replay.result, replay.replayed) == (ErasedResult(secret),) * 2 + (True,)  # type: ignore[union-attr]
    assert rig.do(EraseMemory(secret)).already
    again = store_operation("another operation", SECRET, memory_id=secret)
    for change in (again.change, ImportMemory(portable)):
        error = rig.refused(change)
        assert (type(error), "erased" in error.message) == (InvalidInput, True)
    assert rig.records.number_of(secret) is None
    unknown = memory_id_of(store_operation("never stored", "x"))
    assert isinstance(rig.refused(EraseMemory(unknown)), NotFound)
    assert not rig.do(EraseMemory(unknown, was_queued=True)).already
    assert is_erased(rig.records, unknown), "the write that was queued does not come back"


def test_what_was_derived_from_it_is_named(rig: RecordsRig) -> None:
    secret, summary = rig.say(SECRET), rig.say("a summary of it")
    rig.do(UpdateMemory(summary, add_links=(LinkRef("derived_from", secret),)))
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret, said_by=(summary,))


def test_what_quotes_it_goes_along_and_the_record_of_its_session_stays(rig: RecordsRig) -> None:
    secret, other = rig.say(f"Next: {SECRET}", type="episodic"), rig.say("Next: paint the cellar", type="episodic")
    turns = (Turn("user", f"Next: {SECRET}, please", 1.0), Turn("user", "and thanks", 1.0))
    calls = (ToolCall("store_memory", 1.0, {"content": f"Next: {SECRET}"}), ToolCall("Edit", 1.0, {"path": "cellar"}))
    rig.do(RecordEvents(SESSION, turns, calls))
    rig.do(EndSession(SESSION))
    made = NewMemory("mem_summary", f"Next: {SECRET}\nNext: paint the cellar", "fact", "project", SESSION)
    edits: tuple[Edit, ...] = (
        AddMemory(made),
        *(ReviseMemory(each, "consolidated", status="consolidated") for each in (secret, other)),
        *(AddLink(made.id, each, "derived_from") for each in (secret, other)),
        AddLink(other, secret, "similar_to"),
    )
    rig.do(ApplyRun("run", "project", "consolidation", "promote", edits), session="")
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret, also_erased=(made.id,))
    scrub(rig.records, secret, quotes=quotable([f"Next: {SECRET}"]))
    told = rig.records.describe_session(SESSION)
    assert "worked on cellar" in (told.summary or "")
    assert (told.turns, told.tool_calls) == (1, 1), "what does not quote it stays"
    assert rig.records.materials(ReadMemories(None, memory_ids=(other,))).memories[0].status == "active"
    assert rig.files_with("marigold") == []
