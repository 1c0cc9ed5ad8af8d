"""The promises of every `Records` about changes beside the model of `test_records_state`: bounds, errors, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import EmbeddedMemory, Filters, NearDuplicate, PassageFilter
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.memory.changes import removed_words
from remembrancer.memory.limits import MAX_ENTITIES, MAX_TAGS
from remembrancer.memory.text import MAX_OBJECT_BYTES
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    ForgetMemory,
    ForgottenResult,
    ImportedResult,
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    RestoredResult,
    RestoreMemory,
    SourceRef,
    TagMemory,
    TextEdit,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory, pending
from tests.operations import (
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


# Forgetting and restoring


# Promoting inside the file


# Once, in order, and nobody else's


def names(change: object) -> str:
    return type(change).__name__


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


def test_a_memory_that_is_here_is_not_imported_over(records: Records) -> None:
    before = everything(records)
    result = do(records, ImportMemory(portable("other", id=ID, version=9)), ImportedResult)
    assert result == ImportedResult(ID, "present")
    assert everything(records) == before
