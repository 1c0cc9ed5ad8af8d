"""The promises of every `Records`, whatever database is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import (
    EmbeddedMemory,
    Filters,
    NearDuplicate,
    Outcome,
    PassageFilter,
    Phrase,
    SavedEmbeddings,
)
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.memory.fields import check_memory
from remembrancer.protocol.errors import InvalidInput, NotFound, StorageFull
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ForgetMemory,
    ForgottenResult,
    Operation,
    PortableMemory,
    SourceRef,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory, near_duplicates, pending, texts_of
from tests.operations import (
    OTHER_SESSION,
    REQUESTED_AT,
    SESSION,
    change_of,
    change_operation,
    memory_id_of,
    result_of,
    store_operation,
)

MODEL, OTHER_MODEL = "small.int8.0123456789ab.4", "other.int8.ba9876543210.4"
ALL = Filters(SESSION)


def applied(outcome: Outcome) -> Applied:
    assert isinstance(outcome.reply, Applied), outcome.reply
    return outcome.reply


def store(records: Records, *operations: Operation) -> list[int]:
    """Apply operations that are all right; the numbers of their memories."""
    numbers = []
    for outcome in records.apply(operations):
        applied(outcome)
        assert outcome.to_embed is not None
        numbers.append(outcome.to_embed)
    return numbers


def shown(records: Records, operation: Operation) -> PortableMemory:
    found = records.portable(memory_id_of(operation), None)
    assert found is not None
    return found


def hits(records: Records, query: str, filters: Filters = ALL, limit: int = 50) -> list[int]:
    return list(records.keyword_hits(phrases_of(query), filters, limit))


# Applying


def test_an_operation_is_applied_once_and_answered_alike_ever_after(factory: SqliteFactory, records: Records) -> None:
    entity = EntityRef("store", "service", "about")
    operation = store_operation("op", "kept once", related_entities=(entity,))
    first = records.apply([operation])[0]
    factory.clock.now += 1000
    again = records.apply([operation, operation])
    records.close()
    reopened = factory.open()
    again += reopened.apply([operation])
    assert not applied(first).replayed
    assert first.to_embed is not None
    for outcome in again:
        assert applied(outcome).replayed
        assert applied(outcome).result == applied(first).result
        assert outcome.to_embed is None
    assert reopened.counts(SESSION) == Counts(1, {"project": 1}, {"semantic": 1}, 0, 1, 1)
    assert pending(reopened) == [first.to_embed]


def test_everything_of_a_memory_comes_back(records: Records) -> None:
    operation = store_operation(
        "op",
        "  Grüße 🦀\n\tto \u4e2d\u6587 'quotes' \"and\" \\ all\x00nul ",
        requested_at=REQUESTED_AT + 0.125,
        type="episodic",
        scope="session",
        importance=0.25,
        tags=("b", "a", "b", "ünï"),
        source=SourceRef("editor", "/a/b.py", 2**40),
        occurred_at=123.5,
    )
    (number,) = store(records, operation)
    found = records.load([number], ALL)[number]
    change = change_of(operation)
    assert (found.id, found.content, found.type, found.scope) == (
        change.memory_id,
        change.content,
        "episodic",
        "session",
    )
    assert (found.importance, found.tags, found.source) == (0.25, change.tags, change.source)
    assert (found.created_at, found.occurred_at) == (REQUESTED_AT + 0.125, 123.5)
    assert (found.version, found.access_count, found.forgotten, found.near_duplicates) == (1, 0, False, ())
    assert records.number_of(found.id) == number
    assert texts_of(records, [number, 999]) == {number: change.content}
    assert records.number_of("memory:unknown") is None


def bad_operations() -> list[tuple[str, Operation]]:
    entities = (EntityRef("new", "service", "about"),)
    good = store_operation("bad", "never kept", tags=("t",), related_entities=entities, session_id=OTHER_SESSION)
    return [
        ("a memory id that is taken", _with(good, memory_id=memory_id_of(store_operation("before", "x")))),
        ("importance out of bounds", _with(good, importance=1.5)),
        ("importance that is no number", _with(good, importance=float("nan"))),
        ("an unknown scope", _with(good, scope="galaxy")),
        ("an unknown type", _with(good, type="vague", kind="fact")),
        ("text that is no UTF-8", _with(good, content="\ud800")),
        ("a tag that is no UTF-8", _with(good, tags=("fine", "\udfff"))),
        ("an entity that is no UTF-8", _with(good, related_entities=(*entities, EntityRef("\ud800", "a", "b")))),
    ]


def _with(operation: Operation, **fields: object) -> Operation:
    return msgspec.structs.replace(operation, change=msgspec.structs.replace(operation.change, **fields))


@pytest.mark.parametrize("bad", [bad for _, bad in bad_operations()], ids=[title for title, _ in bad_operations()])
def test_an_operation_that_cannot_be_applied_changes_nothing_and_does_not_hurt_the_others(
    records: Records, bad: Operation
) -> None:
    before, after = store_operation("before", "one"), store_operation("after", "two")
    outcomes = records.apply([before, bad, after])
    assert [type(outcome.reply) for outcome in outcomes] == [Applied, InvalidInput, Applied]
    assert outcomes[1].to_embed is None
    assert records.counts(None) == Counts(2, {"project": 2}, {"semantic": 2}, 0, 0, 0)
    assert records.session_start(OTHER_SESSION) == (None, 0)
    assert len(pending(records)) == 2
    assert hits(records, "never kept") == []
    good = _with(store_operation("bad", "kept now"), content="kept now")
    assert not applied(records.apply([good])[0]).replayed, "its id has not been used up"


def test_a_file_at_its_limit_still_forgets(factory: SqliteFactory) -> None:
    records = factory.open()
    stored = store_operation("first", "kept")
    store(records, stored)
    records.close()
    full = factory.open(limit_bytes=1)
    forget = change_operation("forget", ForgetMemory(memory_id_of(stored)))
    update = change_operation("update", UpdateMemory(memory_id_of(stored), importance=0.1))
    outcomes = full.apply([update, forget, forget, change_operation("none", ForgetMemory("memory:none"))])
    assert [type(each.reply) for each in outcomes] == [StorageFull, Applied, Applied, NotFound]
    assert applied(outcomes[2]).replayed
    assert full.counts(None).forgotten == 1


def test_a_file_at_its_limit_refuses_what_is_new_and_still_answers_what_it_has(factory: SqliteFactory) -> None:
    records = factory.open()
    first = store_operation("first", "kept")
    store(records, first)
    records.close()
    full = factory.open(limit_bytes=1)
    outcomes = full.apply([store_operation("second", "x"), first, store_operation("third", "y")])
    assert [type(each.reply) for each in outcomes] == [StorageFull, Applied, StorageFull]
    assert applied(outcomes[1]).replayed
    assert isinstance(outcomes[0].reply, StorageFull)
    assert "raise database_limit_bytes" in outcomes[0].reply.message
    assert "forget" not in outcomes[0].reply.message, "which makes no room"
    assert full.counts(None).total == 1
    assert hits(full, "kept")
    full.close()
    roomy = factory.open(limit_bytes=10_000_000)
    assert not applied(roomy.apply([store_operation("second", "x")])[0]).replayed


def test_the_same_text_in_the_same_scope_is_one_memory(records: Records) -> None:
    about = EntityRef("store", "service", "about")
    first = store_operation("first", "the very same", importance=0.5, tags=("a",))
    again = store_operation(
        "again", "the very same", importance=0.8, tags=("b", "a"), related_entities=(about,), session_id=OTHER_SESSION
    )
    lower = store_operation("lower", "the very same", importance=0.1, summary="short")
    other = store_operation("other", "another text")
    outcomes = records.apply([first, again, lower, other])
    results = [result_of(applied(outcome)) for outcome in outcomes]
    known = memory_id_of(first)
    assert [each.memory_id for each in results] == [known, known, known, memory_id_of(other)]
    assert [each.already_known for each in results] == [False, True, True, False]
    assert [outcome.to_embed for outcome in outcomes[1:3]] == [None, None]
    memory = shown(records, first)
    assert (memory.importance, memory.tags, memory.related_entities) == (0.8, ("a", "b"), (about,))
    assert (memory.summary, memory.version, memory.access_count) == ("short", 3, 2)
    assert memory.accessed_in == (SESSION, OTHER_SESSION)
    assert [entry.change for entry in memory.history] == ["stored", "stored again", "stored again"]
    assert records.counts(None).total == 2
    assert applied(records.apply([again])[0]).replayed
    # An id that was given out before it was known that the text is there still finds it.
    assert shown(records, again) == shown(records, first)
    forget = change_operation("forget", ForgetMemory(memory_id_of(again)))
    assert applied(records.apply([forget])[0]).result == ForgottenResult(known)
    anew = result_of(applied(records.apply([store_operation("anew", "the very same")])[0]))
    assert (anew.memory_id == known, anew.already_known) == (False, False), "what is forgotten stays so"


def test_what_is_stored_again_grows_no_further_than_an_import_takes(records: Records) -> None:
    def stored(name: str) -> Operation:
        notes = {f"{name} {number}": "x" * 1000 for number in range(40)}
        tags = tuple(f"{name} {number}" for number in range(60))
        return store_operation(name, "the very same", metadata=notes, structured=notes, tags=tags)

    records.apply([stored("first"), stored("second")])
    memory = records.portable(memory_id_of(stored("first")), None)
    assert memory is not None
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
    records: Records, before: dict[str, Any], after: dict[str, Any], is_one: bool
) -> None:
    operations = [store_operation("first", "words", **before), store_operation("second", "words", **after)]
    results = [result_of(applied(outcome)) for outcome in records.apply(operations)]
    assert results[1].already_known is is_one


def test_a_session_is_not_told_of_the_same_content_in_another_ones_memories(records: Records) -> None:
    mine = store_operation("mine", "a secret", scope="session", session_id=SESSION)
    theirs = store_operation("theirs", "a secret", scope="session", session_id=OTHER_SESSION)
    shared = store_operation("shared", "a secret", scope="project", session_id=OTHER_SESSION)
    mine_again = store_operation("mine again", "a secret", scope="project", session_id=SESSION)
    results = [result_of(applied(outcome)) for outcome in records.apply([mine, theirs, shared, mine_again])]
    assert results[1].duplicates == ()
    assert results[2].duplicates == (memory_id_of(theirs),)
    assert (results[3].memory_id, results[3].duplicates) == (memory_id_of(shared), (memory_id_of(mine),))


# Finding


@dataclass(frozen=True)
class Stored:
    number: int
    operation: Operation


def build_library(records: Records) -> list[Stored]:
    """A memory of each sort, and two sessions in them."""
    operations = [
        store_operation(
            f"op{place}",
            f"lantern number {place}",
            scope=("session", "project")[place % 2],
            session_id=(SESSION, OTHER_SESSION)[place // 2 % 2],
            type=("episodic", "semantic", "procedural")[place % 3],
            importance=(0.0, 0.25, 0.5, 1.0)[place // 3 % 4],
            tags=((), ("red",), ("red", "blue"), ("green",))[place // 5 % 4],
            requested_at=REQUESTED_AT + place,
            occurred_at=None if place % 4 else REQUESTED_AT - 10 * place,
            domain=(None, "auth", "build")[place % 3 if place < 30 else 0],
        )
        for place in range(72)
    ]
    return [Stored(*each) for each in zip(store(records, *operations), operations, strict=True)]


def passes(stored: Stored, filters: Filters) -> bool:
    """The contract of `Filters`, said once more in other words."""
    change = change_of(stored.operation)
    happened_at = stored.operation.requested_at if change.occurred_at is None else change.occurred_at
    return (
        (change.scope != "session" or change.session_id == filters.session_id)
        and (not filters.scopes or change.scope in filters.scopes)
        and (not filters.types or change.type in filters.types)
        and (not filters.domains or change.domain in filters.domains)
        and (not filters.kinds or (change.kind or kind_of_type(change.type)) in filters.kinds)
        and (not filters.tags or bool(set(filters.tags) & set(change.tags)))
        and change.importance >= filters.min_importance
        and (filters.after is None or happened_at >= filters.after)
        and (filters.before is None or happened_at <= filters.before)
    )


moments = st.none() | st.floats(REQUESTED_AT - 720, REQUESTED_AT + 80) | st.just(REQUESTED_AT + 5)
some_filters = st.builds(
    Filters,
    session_id=st.sampled_from([SESSION, OTHER_SESSION, "session:nobody", ""]),
    scopes=st.sampled_from([(), ("session",), ("project",), ("user",), ("session", "project", "user")]),
    types=st.sampled_from([(), ("episodic",), ("semantic", "procedural")]),
    kinds=st.sampled_from([(), ("fact",), ("procedure", "observation"), ("goal",)]),
    domains=st.sampled_from([(), (), ("auth",), ("testing", "build")]),
    tags=st.sampled_from([(), ("red",), ("blue", "green"), ("none",), ("red' OR 1=1 --",)]),
    min_importance=st.sampled_from([0.0, 0.25, 0.3, 1.0]),
    after=moments,
    before=moments,
    include_forgotten=st.booleans(),
)


def test_every_search_lets_through_exactly_what_the_filters_allow(records: Records) -> None:
    library = build_library(records)
    numbers = [stored.number for stored in library]

    @given(some_filters)
    def agrees(filters: Filters) -> None:
        expected = {stored.number for stored in library if passes(stored, filters)}
        matching = records.matching(filters, 1000)
        assert matching is not None
        assert len(matching) == len(set(matching))
        assert set(matching) == expected
        assert set(hits(records, "lantern", filters, 1000)) == expected
        if own := sorted(expected & {each.number for each in library if change_of(each.operation).scope == "session"}):
            narrower = msgspec.structs.replace(filters, scopes=("session",))
            assert sorted(records.keyword_hits([Phrase("lantern")], narrower, 1000, numbers=own)) == own
        assert records.ranking_facts(numbers, filters).keys() == expected
        assert records.load(numbers, filters).keys() == expected
        assert records.ranking_facts([], filters) == {}
        assert records.load([], filters) == {}

    agrees()


def test_full_text_finds_words_in_any_form_in_content_and_tags_best_first(records: Records) -> None:
    many, one, tagged, _ = store(
        records,
        store_operation("many", "Deploying deploys what was deployed."),
        store_operation("one", "We talked for an hour about the weather, lunch and, once, deploying the thing."),
        store_operation("tagged", "Nothing in here.", tags=("deploys",)),
        store_operation("none", "Something else entirely."),
    )
    assert hits(records, "deployed")[0] == many
    assert set(hits(records, "deployed")) == {many, one, tagged}
    assert hits(records, "deployed", limit=1) == [many]
    found = records.keyword_hits([Phrase("deploy")], ALL, 10)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(bm25 > 0 for bm25 in found.values())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_is_kept_exactly_and_found_by_its_own_words(records: Records, text: str) -> None:
    operation = store_operation(f"op-{text.encode().hex()}", text)
    outcome = records.apply([operation])[0]
    number = records.number_of(result_of(applied(outcome)).memory_id)
    assert number is not None
    assert texts_of(records, [number])[number] == text
    phrases = phrases_of(text)
    if phrases:
        records.keyword_hits(phrases, ALL, 5)


# Vectors


def embedded(records: Records, number: int, *vectors: Sequence[float]) -> EmbeddedMemory:
    """Vectors of what the memory is now."""
    matrix = np.array(vectors, dtype=np.float32)
    digest = digest_of(texts_of(records, [number]).get(number, ""))
    return EmbeddedMemory(number, digest, tuple(Passage(n, n + 1) for n in range(len(vectors))), matrix)


def save(records: Records, number: int, *vectors: Sequence[float], model: str = MODEL) -> SavedEmbeddings:
    return records.save_embeddings(model, [embedded(records, number, *vectors)])


def test_vectors_are_kept_beside_their_memory_which_does_not_wait_for_them_any_more(records: Records) -> None:
    one, two = store(records, store_operation("a", "x"), store_operation("b", "y"))
    assert pending(records) == [one, two]
    assert not records.is_embedded(MODEL, one)
    saved = records.save_embeddings(
        MODEL, [embedded(records, one, [1, 0, 0, 0], [0, 1, 0, 0]), embedded(records, two, [0, 0, 1, 0])]
    )
    assert pending(records) == []
    assert records.is_embedded(MODEL, one)
    assert not records.is_embedded(OTHER_MODEL, one)
    assert records.passages(PassageFilter(MODEL, vectors=False)).numbers == saved.kept == sorted(saved.kept)
    assert (
        len(records.passages(PassageFilter(MODEL, vectors=False)).numbers),
        len(records.passages(PassageFilter(OTHER_MODEL, vectors=False)).numbers),
    ) == (3, 0)
    assert records.passages(PassageFilter(OTHER_MODEL, vectors=False)).numbers == []
    again = records.passages(PassageFilter(numbers=[*saved.kept, 999]))
    assert (again.numbers, again.memories, again.ordinals) == (saved.kept, [one, one, two], [0, 1, 0])
    assert again.vectors.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    own = records.passages(PassageFilter(MODEL, [one]))
    assert sorted(own.ordinals) == [0, 1]
    assert own.vectors.dtype == np.float32
    assert records.passages(PassageFilter(OTHER_MODEL, [one])).numbers == []
    assert records.passages(PassageFilter(numbers=[])).numbers == []


def test_a_memory_has_vectors_of_several_models_side_by_side(records: Records) -> None:
    one, two = store(records, store_operation("a", "x"), store_operation("b", "y"))
    first = save(records, one, [1, 0, 0, 0], [0, 1, 0, 0])
    assert (pending(records), pending(records, MODEL), pending(records, OTHER_MODEL)) == ([two], [two], [one, two])
    other = save(records, one, [0, 0, 0, 1], model=OTHER_MODEL)
    assert pending(records, OTHER_MODEL) == [two]
    assert records.passages(PassageFilter(MODEL, vectors=False)).numbers == first.kept
    assert records.passages(PassageFilter(OTHER_MODEL, vectors=False)).numbers == other.kept
    update = UpdateMemory(memory_id_of(store_operation("a", "x")), content="anew")
    (outcome,) = records.apply([change_operation("update", update)])
    assert outcome.to_embed == one
    assert records.passages(PassageFilter(numbers=[*first.kept, *other.kept])).numbers == []
    assert pending(records, MODEL) == pending(records, OTHER_MODEL) == [one, two]


def test_near_duplicates_are_named_on_both_sides_to_those_who_may_see_them(records: Records) -> None:
    ops = [
        store_operation("a", "x"),
        store_operation("b", "y"),
        store_operation("mine", "z", scope="session"),
        store_operation("theirs", "z", scope="session", session_id=OTHER_SESSION),
    ]
    a, b, mine, theirs = store(records, *ops)
    ids = dict(zip((a, b, mine, theirs), map(memory_id_of, ops), strict=True))
    pairs = [(b, a, 0.96), (mine, a, 0.99), (theirs, a, 0.98), (999, a, 0.99), (b, a, 0.97)]
    records.link_similar([NearDuplicate(*pair) for pair in pairs])
    assert near_duplicates(records, a, SESSION) == (ids[mine], ids[b]), "the nearest first"
    assert near_duplicates(records, b, SESSION) == (ids[a],)
    assert near_duplicates(records, a, OTHER_SESSION) == (ids[theirs], ids[b])
    assert near_duplicates(records, mine, OTHER_SESSION) == ()
    assert near_duplicates(records, 999, SESSION) == ()
    loaded = records.load([a, b, mine], ALL)
    assert {number: found.near_duplicates for number, found in loaded.items()} == {
        a: (ids[mine], ids[b]),
        b: (ids[a],),
        mine: (ids[a],),
    }


# Counting


# Lasting


def test_readers_on_many_threads_see_whole_groups_while_one_thread_writes(records: Records) -> None:
    groups, size = 40, 5
    done = False

    def read() -> int:
        seen = 0
        while not done:
            total = records.counts(None).total
            assert total % size == 0, "a group is seen whole or not at all"
            assert total >= seen
            assert len(hits(records, "lantern", limit=1000)) >= total
            seen = total
        return seen

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read) for _ in range(3)]
        try:
            for group in range(groups):
                store(records, *(store_operation(f"{group}.{n}", f"lantern {group} {n}") for n in range(size)))
                records._file.file.checkpoint()
        finally:
            done = True
        assert all(reader.result() <= groups * size for reader in readers)
    assert records.counts(None).total == groups * size
