"""What is applied to records: as it was said, once, within their limits, with vectors beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.types import EmbeddedMemory, Filters, NearDuplicate, PassageFilter
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.memory.fields import check_memory
from remembrancer.protocol.errors import InvalidInput, NotFound, StorageFull
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, EntityRef, ForgetMemory, Operation, SourceRef, UpdateMemory
from tests.contracts.records_factories import SqliteFactory, near_duplicates, pending, texts_of
from tests.contracts.records_rig import MODEL, RecordsRig
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, change_operation, memory_id_of, store_operation

OTHER_MODEL = "other.int8.ba9876543210.4"
STRANGE = "  Grüße 🦀\n\tto \u4e2d\u6587 'quotes' \"and\" \\ all\x00nul "


def test_everything_of_a_memory_comes_back(rig: RecordsRig) -> None:
    memory_id = rig.say(
        STRANGE,
        requested_at=REQUESTED_AT + 0.125,
        type="episodic",
        scope="session",
        importance=0.25,
        tags=("b", "a", "b", "ünï"),
        source=SourceRef("editor", "/a/b.py", 2**40),
        occurred_at=123.5,
    )
    found = rig.loaded(memory_id)
    assert (found.id, found.content, found.type, found.scope) == (memory_id, STRANGE, "episodic", "session")
    assert (found.importance, found.tags) == (0.25, ("b", "a", "b", "ünï"))
    assert found.source == SourceRef("editor", "/a/b.py", 2**40)
    assert (found.created_at, found.occurred_at) == (REQUESTED_AT + 0.125, 123.5)
    assert (found.version, found.access_count, found.forgotten, found.near_duplicates) == (1, 0, False, ())
    assert texts_of(rig.records, [rig.number(memory_id), 999]) == {rig.number(memory_id): STRANGE}
    assert rig.records.number_of("memory:unknown") is None


NEW = EntityRef("new", "service", "about")
BAD: dict[str, dict[str, Any]] = {
    "a memory id that is taken": {"memory_id": memory_id_of(store_operation("before", "x"))},
    "importance out of bounds": {"importance": 1.5},
    "importance that is no number": {"importance": float("nan")},
    "an unknown scope": {"scope": "galaxy"},
    "an unknown type": {"type": "vague", "kind": "fact"},
    "text that is no UTF-8": {"content": "\ud800"},
    "a tag that is no UTF-8": {"tags": ("fine", "\udfff")},
    "an entity that is no UTF-8": {"related_entities": (NEW, EntityRef("\ud800", "a", "b"))},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_operation_that_cannot_be_applied_changes_nothing_and_does_not_hurt_the_others(
    rig: RecordsRig, bad: dict[str, Any]
) -> None:
    given = {"content": "never kept", "tags": ("t",), "related_entities": (NEW,), "session_id": OTHER_SESSION}
    before, after = store_operation("before", "one"), store_operation("after", "two")
    outcomes = rig.records.apply([before, store_operation("bad", **{**given, **bad}), after])
    assert [type(outcome.reply) for outcome in outcomes] == [Applied, InvalidInput, Applied]
    assert outcomes[1].to_embed is None
    assert rig.records.counts(None) == Counts(2, {"project": 2}, {"semantic": 2}, 0, 0, 0)
    assert rig.records.session_start(OTHER_SESSION) == (None, 0)
    assert len(pending(rig.records)) == 2
    assert rig.found("never kept") == []
    (good,) = rig.records.apply([store_operation("bad", "kept now")])
    assert isinstance(good.reply, Applied)
    assert not good.reply.replayed, "its id has not been used up"


def test_a_file_at_its_limit_refuses_what_is_new_still_answers_what_it_has_and_forgets(factory: SqliteFactory) -> None:
    first = store_operation("first", "kept")
    records = factory.open()
    records.apply([first])
    records.close()
    full = factory.open(limit_bytes=1)
    forget = change_operation("forget", ForgetMemory(memory_id_of(first)))
    update = change_operation("update", UpdateMemory(memory_id_of(first), importance=0.1))
    unknown = change_operation("none", ForgetMemory("memory:none"))
    replies = [each.reply for each in full.apply([store_operation("second", "x"), first, update])]
    assert [type(each) for each in replies] == [StorageFull, Applied, StorageFull]
    assert isinstance(replies[0], StorageFull)
    assert "raise database_limit_bytes" in replies[0].message
    assert "forget" not in replies[0].message, "which makes no room"
    assert full.keyword_hits(phrases_of("kept"), Filters(SESSION), 5)
    replies = [each.reply for each in full.apply([forget, forget, unknown])]
    assert [type(each) for each in replies] == [Applied, Applied, NotFound]
    assert (full.counts(None).total, full.counts(None).forgotten) == (0, 1)
    full.close()
    (roomy,) = factory.open(limit_bytes=10_000_000).apply([store_operation("second", "x")])
    assert isinstance(roomy.reply, Applied)


def test_what_is_stored_again_grows_no_further_than_an_import_takes(rig: RecordsRig) -> None:
    def stored(name: str) -> Operation:
        notes = {f"{name} {number}": "x" * 1000 for number in range(40)}
        tags = tuple(f"{name} {number}" for number in range(60))
        return store_operation(name, "the very same", metadata=notes, structured=notes, tags=tags)

    rig.records.apply([stored("first"), stored("second")])
    memory = rig.shown(memory_id_of(stored("first")))
    assert (memory.version, memory.access_count) == (2, 1), "to say it again is a use of it"
    check_memory(memory, content_limit_bytes=1000)
    assert set(memory.metadata) == set(memory.structured) == {f"first {number}" for number in range(40)}


@pytest.mark.parametrize(
    ("before", "after", "is_one"),
    [
        ({}, {}, True),
        ({"scope": "session"}, {"scope": "session"}, True),
        ({"scope": "session"}, {"scope": "session", "session_id": OTHER_SESSION}, False),
        ({"scope": "session"}, {"scope": "project"}, False),
        ({"valid_until": REQUESTED_AT + 9}, {}, True),
        ({"valid_until": REQUESTED_AT - 9}, {}, False),
        ({}, {"valid_until": REQUESTED_AT + 9}, False),
        ({"type": "episodic"}, {"type": "episodic", "requested_at": REQUESTED_AT + 3600}, True),
        ({"type": "episodic"}, {"type": "episodic", "requested_at": REQUESTED_AT + 90_000}, False),
        ({}, {"requested_at": REQUESTED_AT + 90_000}, True),
        ({"occurred_at": REQUESTED_AT - 90_000}, {"occurred_at": REQUESTED_AT}, False),
    ],
)
def test_the_same_words_are_another_memory_where_they_say_something_else(
    rig: RecordsRig, before: dict[str, Any], after: dict[str, Any], is_one: bool
) -> None:
    rig.say("words", **before)
    rig.say("words", **after)
    assert (rig.records.counts(None).total == 1) is is_one


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_is_kept_exactly_and_its_own_words_are_a_question(rig: RecordsRig, text: str) -> None:
    (outcome,) = rig.records.apply([store_operation(f"op-{text.encode().hex()}", text)])
    assert isinstance(outcome.reply, Applied)
    number = rig.number(outcome.reply.result.memory_id)  # type: ignore[union-attr]
    assert texts_of(rig.records, [number])[number] == text
    if phrases := phrases_of(text):
        rig.records.keyword_hits(phrases, Filters(SESSION), 5)


def test_vectors_are_kept_beside_their_memory_which_does_not_wait_for_them_any_more(rig: RecordsRig) -> None:
    records = rig.records
    one, two = (rig.number(rig.say(text)) for text in ("x", "y"))
    assert pending(records) == [one, two]
    assert not records.is_embedded(MODEL, one)
    matrix = np.eye(4, dtype=np.float32)
    passages = Passage(0, 1), Passage(1, 2)
    saved = records.save_embeddings(
        MODEL,
        [
            EmbeddedMemory(one, digest_of("x"), passages, matrix[:2]),
            EmbeddedMemory(two, digest_of("y"), passages[:1], matrix[2:3]),
        ],
    )
    assert pending(records) == []
    assert (records.is_embedded(MODEL, one), records.is_embedded(OTHER_MODEL, one)) == (True, False)
    assert records.passages(PassageFilter(MODEL, vectors=False)).numbers == saved.kept == sorted(saved.kept)
    assert len(saved.kept) == 3
    assert records.passages(PassageFilter(OTHER_MODEL, vectors=False)).numbers == []
    again = records.passages(PassageFilter(numbers=[*saved.kept, 999]))
    assert (again.numbers, again.memories, again.ordinals) == (saved.kept, [one, one, two], [0, 1, 0])
    assert again.vectors.tolist() == matrix[:3].tolist()
    own = records.passages(PassageFilter(MODEL, [one]))
    assert sorted(own.ordinals) == [0, 1]
    assert own.vectors.dtype == np.float32
    assert records.passages(PassageFilter(OTHER_MODEL, [one])).numbers == []
    assert records.passages(PassageFilter(numbers=[])).numbers == []


def test_near_duplicates_are_named_on_both_sides_to_those_who_may_see_them(rig: RecordsRig) -> None:
    own: Sequence[dict[str, Any]] = ({}, {}, {"scope": "session"}, {"scope": "session", "session_id": OTHER_SESSION})
    ids = [rig.say(text, **fields) for text, fields in zip("xyzz", own, strict=True)]
    a, b, mine, theirs = map(rig.number, ids)
    pairs = [(b, a, 0.96), (mine, a, 0.99), (theirs, a, 0.98), (999, a, 0.99), (b, a, 0.97)]
    rig.records.link_similar([NearDuplicate(*pair) for pair in pairs])
    for number, session, near in (
        (a, SESSION, (ids[2], ids[1])),  # the nearest first
        (b, SESSION, (ids[0],)),
        (mine, SESSION, (ids[0],)),
        (a, OTHER_SESSION, (ids[3], ids[1])),
        (mine, OTHER_SESSION, ()),
        (999, SESSION, ()),
    ):
        assert near_duplicates(rig.records, number, session) == near


def test_readers_on_many_threads_see_whole_groups_while_one_thread_writes(rig: RecordsRig) -> None:
    groups, size = 40, 5
    done = False

    def read() -> int:
        seen = 0
        while not done:
            total = rig.records.counts(None).total
            assert total % size == 0, "a group is seen whole or not at all"
            assert total >= seen
            assert len(rig.records.keyword_hits(phrases_of("lantern"), Filters(SESSION), 1000)) >= total
            seen = total
        return seen

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read) for _ in range(3)]
        try:
            for group in range(groups):
                rig.records.apply([store_operation(f"{group}.{n}", f"lantern {group} {n}") for n in range(size)])
                rig.records._file.file.checkpoint()
        finally:
            done = True
        assert all(reader.result() <= groups * size for reader in readers)
    assert rig.records.counts(None).total == groups * size
