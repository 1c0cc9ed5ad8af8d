"""The promises of every `Records` about changes beside the model of `test_records_state`: bounds, errors, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from remembrancer.actors.store.records.contract import EmbeddedMemory, Filters, NearDuplicate, PassageFilter
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.memory.changes import changed_line, removed_words
from remembrancer.memory.limits import MAX_ENTITIES, MAX_TAGS
from remembrancer.memory.text import MAX_OBJECT_BYTES
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    ForgetMemory,
    ForgottenResult,
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    SourceRef,
    TaggedResult,
    TagMemory,
    TextEdit,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory, near_duplicates, pending
from tests.operations import (
    OTHER_SESSION,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)

MODEL = "small.int8.0123456789ab.4"
ALL = Filters(SESSION)
STORE, LAUNCHER, INDEX = (
    EntityRef("Store", "service", "about"),
    EntityRef("launcher", "service", "starts"),
    EntityRef("vector index", "service", "keeps"),
)
FIRST = store_operation(
    "first",
    "the first lantern",
    tags=("red", "blue"),
    importance=0.25,
    related_entities=(STORE, LAUNCHER),
    source=SourceRef("editor"),
)
ID = memory_id_of(FIRST)
ResultT = TypeVar("ResultT")


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    """With one memory in it."""
    opened = factory.open()
    opened.apply([FIRST])
    return opened


class Changes:
    """Names operations, so that each is one of its own."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self, change: Change, session_id: str = SESSION) -> Operation:
        self._made += 1
        return change_operation(f"change {self._made}", change, session_id=session_id)


operation_of = Changes()


def do(
    records: Records, change: Change, kind: type[ResultT], session_id: str = SESSION, *, at: float = REQUESTED_AT
) -> ResultT:
    """Apply a change; its result, which has to be of this kind."""
    operation = msgspec.structs.replace(operation_of(change, session_id), requested_at=at)
    reply = records.apply([operation])[0].reply
    assert isinstance(reply, Applied), reply
    assert isinstance(reply.result, kind)
    return reply.result


def refusal(records: Records, change: Change, session_id: str = SESSION) -> RemembrancerError:
    """Apply a change that is refused. Nothing may be different afterwards."""
    before = everything(records)
    reply = records.apply([operation_of(change, session_id)])[0].reply
    assert isinstance(reply, RemembrancerError)
    assert everything(records) == before
    return reply


def everything(records: Records) -> list[object]:
    return [shown(records), records.counts(None), pending(records), records.describe_session(SESSION)]


def shown(records: Records, memory_id: str = ID) -> PortableMemory:
    memory = records.portable(memory_id, None)
    assert memory is not None
    return memory


def hits(records: Records, query: str, filters: Filters = ALL) -> list[int]:
    return list(records.keyword_hits(phrases_of(query), filters, 50))


def number_of(records: Records, memory_id: str = ID) -> int:
    number = records.number_of(memory_id)
    assert number is not None
    return number


def embed(records: Records, number: int, text: str, *vectors: list[float]) -> list[int]:
    """Keep vectors that were made of `text`; the numbers of the passages."""
    matrix = np.array(vectors or [[1, 0, 0, 0]], dtype=np.float32)
    passages = tuple(Passage(n, n + 1) for n in range(len(matrix)))
    saved = records.save_embeddings(MODEL, [EmbeddedMemory(number, digest_of(text), passages, matrix)])
    return saved.kept


# Updating


def test_a_memory_has_bounds(records: Records) -> None:
    names = [f"n{place}" for place in range(MAX_TAGS + 1)]
    entities = tuple(EntityRef(f"n{place}", "service", "about") for place in range(MAX_ENTITIES + 1))
    too_much: list[tuple[Change, str]] = [
        (UpdateMemory(ID, metadata={"a": "x" * MAX_OBJECT_BYTES}), "metadata"),
        (UpdateMemory(ID, add_tags=tuple(names)), "tags"),
        (TagMemory(ID, tuple(names)), "add"),
        (UpdateMemory(ID, add_entities=entities), "related_entities"),
    ]
    for change, field in too_much:
        error = refusal(records, change)
        assert (type(error), error.field) == (InvalidInput, field)
    do(records, UpdateMemory(ID, metadata={"a": "x" * (MAX_OBJECT_BYTES // 2)}), UpdatedResult)
    refusal(records, UpdateMemory(ID, metadata={"b": "x" * (MAX_OBJECT_BYTES // 2)}))
    do(records, UpdateMemory(ID, metadata={"a": None, "b": "x" * (MAX_OBJECT_BYTES // 2)}), UpdatedResult)


def test_a_passage_is_replaced_where_the_text_has_it_once(records: Records) -> None:
    result = do(records, UpdateMemory(ID, content=TextEdit("first", "second")), UpdatedResult)
    assert (shown(records).content, result.line) == ("the second lantern", "the second lantern")
    assert (result.version, result.re_embedded) == (2, True)
    do(records, UpdateMemory(ID, content=TextEdit(" second", "")), UpdatedResult)
    assert shown(records).content == "the lantern"
    for old, new, field, words in (
        ("ladder", "x", "old", "does not say"),
        ("n", "x", "old", "several times"),
        ("the lantern", " ", "new", "nothing of the memory would be left"),
    ):
        error = refusal(records, UpdateMemory(ID, content=TextEdit(old, new)))
        assert (type(error), error.field) == (InvalidInput, field)
        assert words in error.message
    do(records, UpdateMemory(ID, content="aaa"), UpdatedResult)
    refusal(records, UpdateMemory(ID, content=TextEdit("aa", "b")))
    do(records, RestoreMemory(ID, 1), RestoredResult)
    assert shown(records).content == "the first lantern"


@pytest.mark.parametrize(
    ("before", "old", "new", "line"),
    [
        ("one\ntwo three\nfour", "three", "3", "two 3"),
        ("one\ntwo\nfour", "two\n", "2 + ", "2 + four"),
        (f"{'a' * 500} port 80 {'b' * 500}", "80", "443", f"…{'a' * 14} port 443 {'b' * 19}…"),
        ("x", "x", "y" * 1000, f"{'y' * 40} … {'y' * 40}"),
    ],
)
def test_of_a_replaced_passage_the_line_is_told_and_of_a_long_one_what_is_around(
    before: str, old: str, new: str, line: str
) -> None:
    assert changed_line(before, TextEdit(old, new)) == line


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("the visit is on Tuesday at 10, bring boots", "the visit is on Thursday, bring boots", "Tuesday at 10,"),
        ("one two", "one two three", ""),
        ("one two three", "one two", "three"),
        ("a a", "a", "a"),
        ("one two", "three", "one two"),
        ("in May we ship 3 of 5", "in June we ship 4 of 5", "May we ship 3"),
        ("in May we shall ship 3 of 5", "in June we shall ship 4 of 5", "May … 3"),
        (" ".join("x" * 50), "y", " ".join("x" * 50)),
        (" ".join("x" * 51), "y", ""),
        ("start " + "x " * 1000 + "end", "start end", ""),
    ],
)
def test_of_a_text_that_was_replaced_the_words_are_told_that_are_gone(before: str, after: str, words: str) -> None:
    assert removed_words(before, after) == words


def test_a_validity_does_not_end_before_it_begins_whichever_of_the_two_was_there(records: Records) -> None:
    do(records, UpdateMemory(ID, valid_until=20.0), UpdatedResult)
    error = refusal(records, UpdateMemory(ID, valid_from=20.0))
    assert (type(error), error.field) == (InvalidInput, "valid_from")
    do(records, UpdateMemory(ID, valid_from=30.0, valid_until=40.0), UpdatedResult)
    error = refusal(records, UpdateMemory(ID, valid_until=30.0))
    assert (type(error), error.field) == (InvalidInput, "valid_until")
    assert (shown(records).valid_from, shown(records).valid_until) == (30.0, 40.0)
    cleared = do(records, UpdateMemory(ID, valid_from=50.0, cleared=("valid_until",)), UpdatedResult)
    assert (cleared.updated_fields, shown(records).valid_from) == (("valid_from", "valid_until"), 50.0)
    assert shown(records).valid_until is None
    assert do(records, UpdateMemory(ID, cleared=("valid_until",)), UpdatedResult).updated_fields == ()
    do(records, RestoreMemory(ID, cleared.version - 1), RestoredResult)
    assert (shown(records).valid_from, shown(records).valid_until) == (30.0, 40.0)


def test_a_change_that_the_database_refuses_hurts_no_other(records: Records) -> None:
    good, bad = UpdateMemory(ID, add_tags=("good",)), UpdateMemory(ID, importance=7.0, add_tags=("bad",))
    surrogate = UpdateMemory(ID, content="\ud800")
    replies = [each.reply for each in records.apply([operation_of(each) for each in (bad, good, surrogate)])]
    assert [type(reply) for reply in replies] == [InvalidInput, Applied, InvalidInput]
    assert shown(records).tags == ("red", "blue", "good")


def test_a_new_content_has_none_of_the_old_ones_vectors_and_near_duplicates(records: Records) -> None:
    other = store_operation("other", "the other lantern")
    records.apply([other])
    one, two = number_of(records), number_of(records, memory_id_of(other))
    mine, theirs = embed(records, one, "the first lantern"), embed(records, two, "the other lantern")
    link = NearDuplicate(two, one, 0.97, (mine[0], theirs[0]))
    records.link_similar([link])
    assert near_duplicates(records, two, SESSION) == (ID,)
    outcome = records.apply([operation_of(UpdateMemory(ID, content="a candle"))])[0]
    assert outcome.to_embed == one
    assert records.passages(PassageFilter(MODEL, vectors=False)).numbers == theirs
    assert pending(records) == [one]
    assert near_duplicates(records, two, SESSION) == ()
    records.link_similar([link])
    assert near_duplicates(records, two, SESSION) == (), "what was compared is not there any more"


# Forgetting and restoring


def test_a_forgotten_memory_is_hidden_and_the_first_reason_stands(records: Records) -> None:
    forgotten = do(records, ForgetMemory(ID, "outdated"), ForgottenResult, at=REQUESTED_AT + 5)
    assert forgotten == ForgottenResult(ID, "outdated")
    again = do(records, ForgetMemory(ID, "another reason"), ForgottenResult, at=REQUESTED_AT + 10)
    assert again == ForgottenResult(ID, "outdated", already=True)
    memory = shown(records)
    assert (memory.forgotten_at, memory.forgotten_reason, memory.version) == (REQUESTED_AT + 5, "outdated", 2)
    assert hits(records, "lantern") == []
    assert hits(records, "lantern", Filters(SESSION, include_forgotten=True)) == [number_of(records)]
    assert (records.counts(None).total, records.counts(None).forgotten) == (0, 1)
    assert memory.related_entities == (STORE, LAUNCHER)


def test_what_cannot_be_restored_names_what_can(records: Records) -> None:
    do(records, TagMemory(ID, ("x",)), TaggedResult)
    error = refusal(records, RestoreMemory(ID))
    assert (type(error), error.field) == (InvalidInput, "version")
    for version in (0, 3, -1):
        error = refusal(records, RestoreMemory(ID, version))
        assert isinstance(error, InvalidInput)
        assert "1 to 2" in error.message


# Promoting inside the file


def test_a_promoted_memory_is_the_projects_and_its_session_is_still_known(records: Records) -> None:
    own = store_operation("own", "a secret candle", scope="session")
    records.apply([own])
    theirs = Filters(OTHER_SESSION)
    assert hits(records, "candle", theirs) == []
    result = do(records, PromoteMemory(memory_id_of(own), "project", "of use to all"), PromotedResult)
    assert result == PromotedResult(memory_id_of(own), "session", "project", 2, "of use to all")
    assert hits(records, "candle", theirs) == [number_of(records, memory_id_of(own))]
    memory = shown(records, memory_id_of(own))
    assert (memory.scope, memory.session_id) == ("project", SESSION)
    assert memory.history[-1].details == {"reason": "of use to all", "previous_scope": "session", "fields": ["scope"]}
    assert records.counts(None).by_scope == {"project": 2}


# Once, in order, and nobody else's

CHANGES: list[Change] = [
    UpdateMemory(ID, "a candle", add_tags=("x",)),
    TagMemory(ID, ("x",), ("red",)),
    ForgetMemory(ID, "outdated"),
    RestoreMemory(ID, 1),
    PromoteMemory(ID, "project"),
]


def names(change: object) -> str:
    return type(change).__name__


@pytest.mark.parametrize("change", CHANGES, ids=names)
def test_a_memory_of_another_session_is_as_unknown_as_one_that_is_not_there(records: Records, change: Change) -> None:
    theirs = store_operation("theirs", "a secret", scope="session", session_id=OTHER_SESSION)
    unknown = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
    records.apply([theirs])
    errors = [
        refusal(records, msgspec.structs.replace(change, memory_id=memory_id))
        for memory_id in (memory_id_of(theirs), unknown)
    ]
    assert [(type(error), error.field) for error in errors] == [(NotFound, "memory_id")] * 2
    assert errors[0].message.replace(memory_id_of(theirs), unknown) == errors[1].message
    assert records.portable(memory_id_of(theirs), SESSION) is None
    assert records.portable(memory_id_of(theirs), OTHER_SESSION) is not None
    assert shown(records, memory_id_of(theirs)).version == 1


def test_a_refused_change_has_not_used_up_its_id(records: Records) -> None:
    operation = operation_of(RestoreMemory(ID))
    assert isinstance(records.apply([operation])[0].reply, InvalidInput)
    assert records.outcome_of(operation.operation_id) is None
    do(records, ForgetMemory(ID), ForgottenResult)
    reply = records.apply([operation])[0].reply
    assert isinstance(reply, Applied)
    assert not reply.replayed
    assert records.outcome_of(operation.operation_id) == msgspec.structs.replace(reply, replayed=True)


def test_history_has_each_version_as_it_was_and_only_grows(records: Records) -> None:
    seen: list[tuple[HistoryEntry, ...]] = [shown(records).history]
    hidden_and_back = (3, 4)
    changes_asked: tuple[Change, ...] = (
        UpdateMemory(ID, "a candle", metadata={"a": 1}),
        TagMemory(ID, ("x",)),
        ForgetMemory(ID, "outdated"),
        RestoreMemory(ID),
        RestoreMemory(ID, 1),
    )
    for at, change in enumerate(changes_asked, start=int(REQUESTED_AT) + 1):
        records.apply([msgspec.structs.replace(operation_of(change, OTHER_SESSION), requested_at=at)])
        history = shown(records).history
        assert history[:-1] == seen[-1], "what was said stays said"
        now, last = shown(records), history[-1]
        assert (last.version, last.changed_at, last.session_id) == (now.version, at, OTHER_SESSION)
        assert now.updated_at == (at if at - REQUESTED_AT not in hidden_and_back else REQUESTED_AT + 2)
        assert (last.record.content, last.record.tags, last.record.metadata) == (now.content, now.tags, now.metadata)
        assert last.record.forgotten == (now.forgotten_at is not None)
        seen.append(history)
    changes = [entry.change for entry in seen[-1]]
    assert changes == ["stored", "updated", "tagged", "forgotten", "restored", "restored"]
    assert [entry.version for entry in seen[-1]] == [1, 2, 3, 4, 5, 6]
    assert seen[-1][3].details == {"reason": "outdated", "fields": ["status"]}
    assert seen[-1][5].details["restored_version"] == 1


# Whole memories


def portable(name: str, **fields: Any) -> PortableMemory:
    operation = store_operation(name, name)
    return PortableMemory(
        **{
            "id": memory_id_of(operation),
            "content": f"the {name} lantern",
            "type": "episodic",
            "scope": "project",
            "session_id": SESSION,
            "created_at": 5.5,
            "updated_at": 6.5,
            "kind": "observation",
            **fields,
        }
    )


def test_a_memory_comes_back_from_another_place_as_it_was(
    factory: SqliteFactory, records: Records, tmp_path: Path
) -> None:
    other = store_operation("other", "x")
    records.apply([other])
    a, b = embed(records, 1, "the first lantern"), embed(records, 2, "x")
    records.link_similar([NearDuplicate(2, 1, 0.97, (a[0], b[0]))])
    do(records, UpdateMemory(ID, "a candle", metadata={"a": [1, {"b": None}]}, add_entities=(INDEX,)), UpdatedResult)
    records.touch([1, 1], 77.5)
    do(records, ForgetMemory(ID, "outdated"), ForgottenResult)
    embed(records, 1, "a candle")
    a = records.passages(PassageFilter(MODEL, [1])).numbers
    records.link_similar([NearDuplicate(2, 1, 0.96, (a[0], b[0]))])
    exported = [shown(records), shown(records, memory_id_of(other))]
    assert exported[1].links == (MemoryLink(ID, "similar_to", 0.96, REQUESTED_AT),)
    for place, order in enumerate((exported, exported[::-1])):
        elsewhere = type(factory)(tmp_path / str(place))
        copy = elsewhere.open()
        for memory in order:
            assert do(copy, ImportMemory(memory), ImportedResult) == ImportedResult(memory.id, "imported")
        for memory in exported:
            assert copy.portable(memory.id, None) == memory, "whichever came first"
        assert len(pending(copy)) == 2
        assert copy.counts(None) == records.counts(None)
        assert hits(copy, "candle", Filters(SESSION, include_forgotten=True))
        do(copy, RestoreMemory(ID, 1), RestoredResult)
        assert shown(copy).content == "the first lantern"
        elsewhere.close()


def test_a_link_waits_for_its_other_end_and_is_not_lost_meanwhile(records: Records) -> None:
    late = portable("late")
    early = portable("early", links=(MemoryLink(late.id, "derived_from", 0.5, 9.0),))
    do(records, ImportMemory(early), ImportedResult)
    assert shown(records, early.id).links == early.links, "an export has it"
    mine = records.portable(early.id, SESSION)
    assert mine is not None
    assert mine.links == (), "an answer has not"
    do(records, ImportMemory(late), ImportedResult)
    mine = records.portable(early.id, SESSION)
    assert mine is not None
    assert mine.links == early.links


def test_links_are_shown_to_those_who_may_see_their_other_end(records: Records) -> None:
    theirs = portable("theirs", scope="session", session_id=OTHER_SESSION)
    mine = portable("mine", links=(MemoryLink(theirs.id, "derived_from", 1.0, 9.0),))
    records.apply([operation_of(ImportMemory(each)) for each in (theirs, mine)])
    seen = [records.portable(mine.id, session) for session in (SESSION, OTHER_SESSION)]
    assert [None if each is None else len(each.links) for each in seen] == [0, 1]


def test_a_memory_that_is_here_is_not_imported_over(records: Records) -> None:
    before = everything(records)
    result = do(records, ImportMemory(portable("other", id=ID, version=9)), ImportedResult)
    assert result == ImportedResult(ID, "present")
    assert everything(records) == before


def test_an_import_without_history_begins_one(records: Records) -> None:
    bare = portable("bare", version=3, tags=("t",), access_count=4, last_accessed_at=8.5)
    do(records, ImportMemory(bare), ImportedResult)
    memory = shown(records, bare.id)
    assert msgspec.structs.replace(memory, history=()) == bare
    assert [(entry.version, entry.change, entry.record.tags) for entry in memory.history] == [(3, "imported", ("t",))]
    do(records, TagMemory(bare.id, ("u",)), TaggedResult)
    assert shown(records, bare.id).version == 4
