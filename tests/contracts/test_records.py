"""What is applied to records and changes them: as it was said, once, within limits, with its links and times."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.store import replaced_memories
from remembrancer.actors.store.records.browsing import doubts_in_review
from remembrancer.actors.store.records.memory_rows import read_copies
from remembrancer.actors.store.records.sqlite_records import Limits
from remembrancer.actors.store.records.types import Filters, NearDuplicate
from remembrancer.actors.store.replaced_memories import MAX_REMEMBERED, ReplacedMemories, _keep
from remembrancer.actors.store.retrieval.question import phrases_of
from remembrancer.actors.store.write_handlers import MAX_COPIES
from remembrancer.memory.changes import changed_line, standing
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.fields import check_memory
from remembrancer.memory.limits import MAX_ENTITIES, MAX_TAGS
from remembrancer.memory.replacement import PROBABLE, REPLACED
from remembrancer.memory.text import MAX_OBJECT_BYTES
from remembrancer.protocol.browsing import FindUndecided, ReadActivity
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError, StorageFull
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import Counts, SessionDescription, TakeNear
from remembrancer.protocol.runs import AddLink, AddMemory, Edit, NewMemory, ReviseMemory, UndoRun
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ForgetMemory,
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    InvalidateMemory,
    LinkRef,
    MemoryVersion,
    Operation,
    PortableMemory,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    StoreMemory,
    TagMemory,
    TextEdit,
    UndoChange,
    UpdatedResult,
    UpdateMemory,
)
from tests.cases import cases
from tests.contracts.records_rig import MODEL, RecordsRig, apply, embedded, near_duplicates, pending, texts_of
from tests.operations import (
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.spaces import write_rows

OTHER_MODEL = "other.int8.ba9876543210.4"


NEW = EntityRef("new", "service", "about")
BAD: dict[str, dict[str, Any]] = {
    "a memory id that is taken": {"memory_id": memory_id_of(store_operation("before", "x"))},
    "importance out of bounds": {"importance": 1.5},
    "importance that is no number": {"importance": float("nan")},
    "an unknown type": {"type": "vague", "kind": "fact"},
    "text that is no UTF-8": {"content": "\ud800"},
    "a tag that is no UTF-8": {"tags": ("fine", "\udfff")},
    "an entity that is no UTF-8": {"related_entities": (NEW, EntityRef("\ud800", "a", "b"))},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_cannot_be_applied_changes_nothing_and_hurts_no_other(rig: RecordsRig, bad: dict[str, Any]) -> None:
    given = {"content": "never kept", "tags": ("t",), "related_entities": (NEW,), "session_id": OTHER_SESSION}
    before, after = store_operation("before", "one"), store_operation("after", "two")
    outcomes = rig.apply(before, store_operation("bad", **{**given, **bad}), after)
    assert [type(outcome) for outcome in outcomes] == [Applied, InvalidInput, Applied]
    assert rig.records.counts(None) == Counts(2, {"project": 2}, {"semantic": 2}, 0, 0, 0)
    assert rig.records.describe_session(OTHER_SESSION) == SessionDescription(None, {}, ())
    assert len(pending(rig.records)) == 2
    assert rig.found("never kept") == []
    (good,) = rig.apply(store_operation("bad", "kept now"))
    assert not good.replayed, "its id has not been used up"


def test_a_file_at_its_limit_refuses_what_is_new_still_answers_what_it_has_and_forgets(path: Path) -> None:
    first = store_operation("first", "kept")
    with RecordsRig(path) as rig:
        apply(rig.records, [first])
    forget = change_operation("forget", ForgetMemory(memory_id_of(first)))
    update = change_operation("update", UpdateMemory(memory_id_of(first), importance=0.1))
    unknown = change_operation("none", ForgetMemory("memory:none"))
    with RecordsRig(path, limits=Limits(1)) as full:
        replies = full.apply(store_operation("second", "x"), first, update)
        assert [type(each) for each in replies] == [StorageFull, Applied, StorageFull]
        assert "raise database_limit_bytes" in replies[0].message
        assert "forget" not in replies[0].message, "which makes no room"
        assert full.found("kept")
        assert [type(each) for each in full.apply(forget, forget, unknown)] == [Applied, Applied, NotFound]
        assert (full.records.counts(None).total, full.records.counts(None).forgotten) == (0, 1)
    with RecordsRig(path, limits=Limits(10_000_000)) as roomy:
        roomy.say("x")


def test_what_is_stored_again_grows_no_further_than_an_import_takes(rig: RecordsRig) -> None:
    def stored(name: str) -> Operation:
        notes = {f"{name} {number}": "x" * 1000 for number in range(40)}
        tags = tuple(f"{name} {number}" for number in range(60))
        return store_operation(name, "the very same", metadata=notes, structured=notes, tags=tags)

    apply(rig.records, [stored("first"), stored("second")])
    memory = rig.shown(memory_id_of(stored("first")))
    assert (memory.version, memory.access_count) == (2, 1), "to say it again is a use of it"
    check_memory(memory, content_limit_bytes=len("the very same"))
    assert set(memory.metadata) == set(memory.structured) == {f"first {number}" for number in range(40)}


@pytest.mark.parametrize(("before", "after", "is_one"), cases("records", "same_words"))
def test_the_same_words_are_another_memory_where_they_say_something_else(
    rig: RecordsRig, before: dict[str, Any], after: dict[str, Any], is_one: bool
) -> None:
    rig.say("words", **before)
    rig.say("words", **after)
    assert (rig.records.counts(None).total == 1) is is_one


@example("0")
@example("0\r")
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_is_kept_exactly_and_its_own_words_are_a_question(rig: RecordsRig, text: str) -> None:
    name = f"op-{text.encode().hex()}"  # as metadata it keeps texts apart that say the same, such as "0" and "0\\r"
    (outcome,) = rig.apply(store_operation(name, text, metadata={"name": name}))
    number = rig.number(outcome.result.memory_id)
    assert texts_of(rig.records, [number])[number] == text
    if phrases := phrases_of(text):
        rig.records.keyword_hits(phrases, Filters(SESSION), 5)


def test_vectors_are_kept_beside_their_memory_which_does_not_wait_for_them_any_more(rig: RecordsRig) -> None:
    records = rig.records
    one, two = (rig.number(rig.say(text)) for text in ("x", "y"))
    assert (pending(records), records.is_embedded(MODEL, one)) == ([one, two], False)
    matrix = np.eye(4, dtype=np.float32)
    saved = records.save_embeddings(MODEL, [embedded(one, "x", *matrix[:2]), embedded(two, "y", matrix[2])])
    assert (pending(records), len(saved)) == ([], 3)
    assert (records.is_embedded(MODEL, one), records.is_embedded(OTHER_MODEL, one)) == (True, False)
    assert records.passages(MODEL).numbers == saved == sorted(saved)
    again = records.passages(numbers=[*saved, 999])
    assert (again.numbers, again.memories, again.ordinals) == (saved, [one, one, two], [0, 1, 0])
    assert again.vectors.tolist() == matrix[:3].tolist()
    own = records.passages(MODEL, [one])
    assert (sorted(own.ordinals), own.vectors.dtype.name) == ([0, 1], "float32")
    for none in (records.passages(OTHER_MODEL), records.passages(OTHER_MODEL, [one]), records.passages(numbers=[])):
        assert none.numbers == []


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
                apply(rig.records, [store_operation(f"{group}.{n}", f"lantern {group} {n}") for n in range(size)])
        finally:
            done = True
        assert all(reader.result() <= groups * size for reader in readers)
    assert rig.records.counts(None).total == groups * size


# --- Changes of records beside those of `test_records_state`: bounds, links, the two times of a fact, imports.
NAMES = tuple(f"n{place}" for place in range(max(MAX_TAGS, MAX_ENTITIES) + 1))
HALF = "x" * (MAX_OBJECT_BYTES // 2)


@pytest.fixture
def lantern(rig: RecordsRig) -> str:
    return rig.say(
        "the first lantern", "Store:service", "launcher:service:starts", tags=("red", "blue"), importance=0.25
    )


def test_a_memory_has_bounds(rig: RecordsRig, lantern: str) -> None:
    entities = tuple(EntityRef(name, "service", "about") for name in NAMES)
    for change, field in (
        (UpdateMemory(lantern, metadata={"a": "x" * MAX_OBJECT_BYTES}), "metadata"),
        (UpdateMemory(lantern, add_tags=NAMES), "tags"),
        (TagMemory(lantern, NAMES), "add"),
        (UpdateMemory(lantern, add_entities=entities), "related_entities"),
    ):
        error = rig.refused(change)
        assert (type(error), error.field) == (InvalidInput, field)
    rig.do(UpdateMemory(lantern, metadata={"a": HALF}))
    rig.refused(UpdateMemory(lantern, metadata={"b": HALF}))
    rig.do(UpdateMemory(lantern, metadata={"a": None, "b": HALF}))


def test_a_passage_is_replaced_where_the_text_has_it_once(rig: RecordsRig, lantern: str) -> None:
    result = rig.do(UpdateMemory(lantern, content=TextEdit("first", "second")))
    assert (rig.shown(lantern).content, result.line) == ("the second lantern", "the second lantern")
    assert (result.version, result.updated_fields) == (2, ("content",))
    rig.do(UpdateMemory(lantern, content=TextEdit(" second", "")))
    assert rig.shown(lantern).content == "the lantern"
    for old, new, field, words in (
        ("ladder", "x", "old", "does not contain"),
        ("n", "x", "old", "several times"),
        ("the lantern", " ", "new", "the memory would be empty"),
    ):
        error = rig.refused(UpdateMemory(lantern, content=TextEdit(old, new)))
        assert (type(error), error.field, words in error.message) == (InvalidInput, field, True)
    rig.do(UpdateMemory(lantern, content="aaa"))
    rig.refused(UpdateMemory(lantern, content=TextEdit("aa", "b")))
    rig.do(RestoreMemory(lantern, 1))
    assert rig.shown(lantern).content == "the first lantern"


LAMPS = "Lamps:\n- the oil of the first lantern lasts until six in the morning, and then it is dark\n- wicks"


@pytest.mark.parametrize(("old", "new", "line"), cases("records", "replaced"))
def test_a_replaced_passage_is_shown_in_its_line(old: str, new: str, line: str) -> None:
    assert changed_line(LAMPS, TextEdit(old, new)) == line
    far = f"{'b' * 70}{old}{'c' * 70}"
    assert changed_line(far, TextEdit(old, "x")) == f"…{'b' * 40}x{'c' * 40}…"


def test_a_memory_comes_back_from_another_place_as_it_was(rig: RecordsRig, lantern: str, tmp_path: Path) -> None:
    other = rig.say("x")
    numbers = rig.number(other), rig.number(lantern)
    metadata: dict[str, Any] = {"a": [1, {"b": None}]}
    rig.do(UpdateMemory(lantern, "a candle", metadata=metadata, add_entities=(EntityRef("index", "service", "keeps"),)))
    rig.do(InvalidateMemory(lantern, "we moved", other))
    rig.records.touch([numbers[1]] * 2, 77.5)
    rig.do(ForgetMemory(lantern, "outdated"))
    for each in (lantern, other):
        rig.embed(each)
    rig.records.link_similar([NearDuplicate(*numbers, 0.96, (rig.passages(lantern)[0], rig.passages(other)[0]))])
    exported = [rig.shown(lantern), rig.shown(other)]
    assert {link.relation for link in exported[1].links} == {"similar_to", "supersedes"}
    assert exported[1].accessed_in == (SESSION,), "what replaces another is used"
    for place, order in enumerate((exported, exported[::-1])):
        with RecordsRig(tmp_path / str(place) / "memory.db") as copy:
            for memory in order:
                assert copy.do(ImportMemory(memory)) == ImportedResult(memory.id)
                seen = copy.shown(memory.id, SESSION).links
                assert memory is order[1] or seen == (), "a link waits for its other end"
            for memory in exported:
                assert copy.shown(memory.id) == memory, "whichever came first"
            assert len(pending(copy.records)) == 2
            assert copy.records.counts(None) == rig.records.counts(None)
            assert copy.found("candle", Filters(SESSION, include_forgotten=True)) == [lantern]
            copy.do(RestoreMemory(lantern, 1))
            assert copy.shown(lantern).content == "the first lantern"


@pytest.fixture
def four(rig: RecordsRig) -> list[str]:
    return [
        rig.say(f"the {name} light", scope=scope)
        for name, scope in (("red", "project"), ("blue", "project"), ("green", "session"), ("old", "session"))
    ]


def links_of(rig: RecordsRig, memory_id: str) -> list[tuple[str, str]]:
    return [(link.target, link.relation) for link in rig.shown(memory_id).links]


def test_links_are_made_and_removed_and_both_can_be_undone(rig: RecordsRig, four: list[str]) -> None:
    one, two, three, _ = four
    links = (LinkRef("caused_by", two), LinkRef("supports", three), LinkRef("supports", three))
    weaker = (LinkRef("supports", three, 0.25),)
    for added, fields, version in ((links, ("links",), 2), (links, (), 2), (weaker, ("links",), 3)):
        assert rig.do(UpdateMemory(one, add_links=added)) == UpdatedResult(one, fields, version)
    assert sorted(links_of(rig, one)) == sorted([(three, "supports"), (two, "caused_by")])
    assert sorted(link.strength for link in rig.shown(one).links) == [0.25, 1.0]
    both = UpdateMemory(one, importance=0.75, remove_links=(LinkRef("supports", three), LinkRef("part_of", two)))
    assert rig.do(both) == UpdatedResult(one, ("importance", "links"), 5)
    assert links_of(rig, one) == [(two, "caused_by")]
    (incoming,) = rig.records.surroundings(two, "", SESSION).incoming
    assert (incoming.target, incoming.relation) == (one, "caused_by")
    for strengths in ([0.25, 1.0], [1.0, 1.0], []):
        rig.do(UndoChange(one))
        assert sorted(link.strength for link in rig.shown(one).links) == strengths
    assert rig.shown(one).importance != 0.75
    rig.do(UpdateMemory(one, related=(two,)))
    rig.do(UpdateMemory(two, related=()))
    assert [rig.do(UndoChange(each)).undone for each in (one, two)] == ["linked", "linked"]
    assert links_of(rig, one) == []
    rig.do(UpdateMemory(one, add_links=links[:1]))
    stronger = UpdateMemory(one, add_links=(LinkRef("caused_by", two, 0.25),), remove_links=links[:1])
    rig.do(stronger)
    rig.do(UndoChange(one))
    assert [link.strength for link in rig.shown(one).links] == [1.0], "the last change of a link is taken back first"
    rig.at(REQUESTED_AT + 10).do(UpdateMemory(two, importance=0.75))
    rig.at(REQUESTED_AT + 20).do(UpdateMemory(three, related=(two,)))
    rig.do(TagMemory(three, ("dim",)))
    assert rig.do(UndoChange(two)).undone == "updated", "a link from a memory that has changed since stays"


def test_the_links_of_a_session_are_seen_by_it_alone(rig: RecordsRig, four: list[str]) -> None:
    one, _, three, own = four
    rig.do(UpdateMemory(three, add_links=(LinkRef("contradicts", one),)))
    rig.do(UpdateMemory(one, add_links=(LinkRef("derived_from", own),)))
    mine, theirs = rig.loaded(one), rig.loaded(one, OTHER_SESSION)
    assert (mine.possibly_superseded_by, mine.derived_from) == ((three,), (own,))
    assert (theirs.possibly_superseded_by, theirs.derived_from, theirs.near_duplicates) == ((), (), ())
    for session, seen in ((SESSION, [three]), (OTHER_SESSION, []), (None, [three])):
        assert [link.target for link in rig.records.surroundings(one, "", session).incoming] == seen


def test_what_only_a_replaced_memory_doubts_is_known_when_it_is_said_again(rig: RecordsRig, four: list[str]) -> None:
    one, two, *_ = four
    rig.contradict(two, one, REPLACED)
    rig.do(UpdateMemory(rig.say("the last word"), add_links=(LinkRef("supersedes", two),)))
    (reply,) = rig.apply(store_operation("again", rig.shown(one).content))
    assert reply.result.already_known


def test_what_is_probably_replaced_is_marked_until_it_is_settled(rig: RecordsRig, four: list[str]) -> None:
    one, two, *_ = four
    for chance, marked in ((REPLACED - 0.01, ()), (REPLACED, (two,))):
        rig.contradict(two, one, chance)
        assert rig.loaded(one).possibly_superseded_by == marked
        assert doubts_in_review(rig.records, SESSION) == {one: {two: chance}}
        assert links_of(rig, two) == [(one, "contradicts")]
    # What is said again holds again, with what is known of it.
    rig.do(UpdateMemory(one, importance=0.9, add_tags=("green",)))
    said_again = store_operation("again", rig.shown(one).content)
    once_more = store_operation("once more", rig.shown(one).content)
    assert [each.result.already_known for each in rig.apply(said_again, once_more)] == [False, True]
    assert rig.loaded(one).superseded_by == (memory_id_of(said_again),)
    again = rig.shown(memory_id_of(said_again))
    assert (again.importance, "green" in again.tags) == (0.9, True)
    # It is now the newer one of the pair, which still waits in Review.
    (pair,) = rig.browse(FindUndecided(PROJECT, SESSION)).pairs
    assert (pair.older.id, pair.newer.id, pair.strength) == (two, again.id, REPLACED)
    assert rig.loaded(two).possibly_superseded_by == (again.id,)
    rig.do(RestoreMemory(one))
    rig.do(UpdateMemory(two, add_links=(LinkRef("related_to", one),)))
    rig.contradict(two, one)
    assert rig.loaded(one).possibly_superseded_by == ()
    assert links_of(rig, two) == [(one, "related_to")]


def test_what_another_thread_takes_while_room_is_made_is_no_failure() -> None:
    class TakenMeanwhile(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            return iter(["taken"])

    kept = TakenMeanwhile({str(number): number for number in range(MAX_REMEMBERED)})
    _keep(kept, "new", 1)
    assert kept["new"] == 1


def test_review_asks_about_what_holds_until_a_coming_day_but_not_whether_it_replaces_anything(rig: RecordsRig) -> None:
    older, newer = rig.say("The rate is 4 percent"), rig.say("The rate is 5 percent")
    rig.contradict(newer, older)
    coming = time.time() + 9e6
    for ending, expected in ((None, True), (coming, True), (1.0, False)):
        rig.do(UpdateMemory(older, valid_until=ending))
        assert bool(rig.undecided()) is expected, ending
    rig.do(UpdateMemory(older, valid_until=coming))
    rig.do(UpdateMemory(newer, valid_until=coming))
    assert not rig.undecided()


def test_what_is_done_or_replaced_by_what_no_longer_holds_itself_is_in_no_doubt(rig: RecordsRig) -> None:
    """Review, recalls and summaries agree."""
    older, newer, last = (rig.say(text, kind="open_end", type="episodic") for text in ("call", "write", "see"))
    rig.contradict(newer, older)

    def is_in_doubt() -> bool:
        marked = rig.loaded(older).possibly_superseded_by
        assert marked == ((newer,) if rig.undecided() else ())
        return bool(marked)

    for done in (False, True, False):
        rig.do(UpdateMemory(older, done=done))
        assert is_in_doubt() is not done
    for done in (True, False):
        rig.do(UpdateMemory(newer, done=done))
        assert is_in_doubt(), "it still replaces the older one"
    rig.replace(last, newer)
    assert (rig.undecided(), rig.loaded(older).possibly_superseded_by) == ([(older, last)], (last,)), "in its place"
    assert [each.is_replaced for each in rig.records.materials(ReadMemories(PROJECT)).memories] == [True, False, False]
    rig.do(UndoChange(newer))
    for ending in (InvalidateMemory(newer, "it broke"), ForgetMemory(newer)):
        rig.do(ending)
        assert not is_in_doubt()
        assert not any(each.is_replaced for each in rig.records.materials(ReadMemories(PROJECT)).memories)
        rig.do(RestoreMemory(newer))
        assert is_in_doubt()


def test_the_two_likeliest_of_those_that_a_memory_may_replace_are_kept_for_review(
    rig: RecordsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_memories, "probability", lambda pair: pair.cosine)
    earlier = (
        "the tide feed comes from Orca by mail",
        "the tide feed comes daily from Orca",
        "the feed of tides is from Orca",
    )
    olds = [rig.say(text, occurred_at=REQUESTED_AT - 3 * DAY_S) for text in earlier]
    new = rig.say("the tide feed comes from Lynx")
    pairs = [rig.pair(new, old, cosine) for old, cosine in zip(olds, (0.34, 0.33, 0.32), strict=True)]
    nearest = {one.earlier: {other.earlier: 0.55 for other in pairs} for one in pairs}
    nearest[pairs[0].later] = {each.earlier: each.cosine for each in pairs}
    links = ReplacedMemories().judge(rig.records, pairs, lambda memories: nearest)
    assert [each[:2] for each in links] == [each[:2] for each in pairs[:2]]
    assert max(each.cosine for each in links) < PROBABLE
    likely = pairs[0]._replace(cosine=1.0)
    nearest[likely.later][likely.earlier] = likely.cosine
    [link] = ReplacedMemories().judge(rig.records, [likely, pairs[1]], lambda memories: nearest)
    assert link.earlier == likely.earlier, "the other is not a third as probable"
    alike = [each._replace(cosine=0.35) for each in pairs]
    nearest[likely.later] = {each.earlier: each.cosine for each in alike}
    rig.do(UpdateMemory(new, add_links=(LinkRef("related_to", olds[0]),)))
    links = ReplacedMemories().judge(rig.records, alike, lambda memories: nearest)
    assert {each.earlier for each in links} == {each.earlier for each in pairs[1:]}, "a settled pair takes no place"


def test_a_pair_is_as_probable_whichever_of_its_memories_is_embedded_last(rig: RecordsRig) -> None:
    old, other = (
        rig.say(f"the {name} comes from Orca", occurred_at=REQUESTED_AT - 3 * DAY_S) for name in ("feed", "log")
    )
    new = rig.say("the feed comes from Lynx")
    pairs = [rig.pair(new, each, 0.7) for each in (old, other)]
    nearest = {pairs[0].later: {each.earlier: each.cosine for each in pairs}}
    found = (ReplacedMemories().judge(rig.records, some, lambda memories: nearest) for some in (pairs, pairs[:1]))
    together, alone = ({link.earlier: link.cosine for link in links} for links in found)
    assert together[pairs[0].earlier] == alone[pairs[0].earlier]


def test_a_memory_that_was_edited_in_view_of_a_later_one_is_not_put_in_doubt_by_that_again(rig: RecordsRig) -> None:
    old = rig.at(REQUESTED_AT - 3 * DAY_S).say("deploys run on Tuesdays, and Ana signs them off")
    new = rig.at(REQUESTED_AT).say("Ben signs off the deploys now instead of Ana")
    pairs = [rig.pair(new, old, 0.7)]
    assert ReplacedMemories().judge(rig.records, pairs)
    rig.at(REQUESTED_AT + 1).do(UpdateMemory(old, content="deploys run on Tuesdays, and Ben signs them off"))
    assert not ReplacedMemories().judge(rig.records, pairs)
    rig.at(REQUESTED_AT + 2).do(RestoreMemory(old, version=1))
    assert ReplacedMemories().judge(rig.records, pairs), "the old text is there again"
    rig.at(REQUESTED_AT + 3).do(UndoChange(old))
    assert not ReplacedMemories().judge(rig.records, pairs), "and so is the new one"
    rig.at(REQUESTED_AT + 4).do(UndoChange(old))
    assert ReplacedMemories().judge(rig.records, pairs)


def test_a_memory_that_holds_again_is_compared_with_those_that_changed_meanwhile(rig: RecordsRig) -> None:
    old, new = rig.say("the tide feed comes from Orca"), rig.say("the tide feed comes from Lynx")
    for undo in (UndoChange(new), RestoreMemory(old)):
        rig.embed(old, [1.0, 0.0])
        rig.replace(new, old)
        assert rig.passages(old), "it is found as before"
        rig.do(undo)
        assert not rig.passages(old)


def stored_and_judged(rig: RecordsRig, cosine: float, *stores: Operation) -> ReplacedMemories:
    """Who tells sessions of pairs, after the second of these memories was found to be as near to the first."""
    replaced = ReplacedMemories()
    for operation in stores:
        (outcome,) = rig.apply(operation)
        replaced.note_stored(operation, msgspec.structs.replace(outcome, replayed=False))
        if operation is stores[1]:
            pair = rig.pair(memory_id_of(operation), memory_id_of(stores[0]), cosine)
            links = replaced.judge(rig.records, [pair])
            assert rig.undecided() or not replaced.take(rig.records, operation), "it is told once it is linked"
            rig.records.link_similar(links)
    return replaced


@pytest.mark.parametrize("chance", [PROBABLE - 0.05, PROBABLE])
def test_a_session_is_told_of_a_probable_pair_once(
    rig: RecordsRig, monkeypatch: pytest.MonkeyPatch, chance: float
) -> None:
    monkeypatch.setattr(replaced_memories, "probability", lambda pair: chance)
    old = store_operation("old", "the tide feed comes from Orca", occurred_at=REQUESTED_AT - 3 * DAY_S)
    new = store_operation("new", "the tide feed comes from Lynx")
    replaced = stored_and_judged(rig, 0.9, old, new)
    told = [(each.memory_id, each.replaced_by) for each in replaced.take(rig.records, TakeNear(PROJECT, SESSION))]
    assert told == [(memory_id_of(old), memory_id_of(new))] * (chance == PROBABLE)
    assert replaced.take(rig.records, TakeNear(PROJECT, SESSION)) == (), "it is told once"


@pytest.mark.parametrize("kind", ["fact", "open_end"])
def test_a_completion_in_the_words_of_its_open_end_probably_closes_it_and_is_no_near_duplicate(
    rig: RecordsRig, kind: Kind
) -> None:
    old = store_operation("old", "upload the slides", kind="open_end")
    new = store_operation("new", "the slides are uploaded", kind=kind)
    replaced = stored_and_judged(rig, 0.99, old, new)
    (near,) = replaced.take(rig.records, TakeNear(PROJECT, SESSION))
    assert (near.memory_id, near.may_be_done) == (memory_id_of(old), True)
    rig.records.link_similar([rig.pair(memory_id_of(new), memory_id_of(old))])
    named = (memory_id_of(new),) if kind == "open_end" else ()
    assert near_duplicates(rig.records, rig.number(memory_id_of(old)), SESSION) == named


BOT = "the bot runs on Heroku", "the bot has moved from Heroku to Render"


def test_a_pair_is_told_as_long_as_review_asks_about_it(rig: RecordsRig) -> None:
    stores = [store_operation(f"bot {at}", text, requested_at=REQUESTED_AT + at) for at, text in enumerate(BOT)]
    old, new = map(memory_id_of, stores)
    for change in (None, UpdateMemory(old, importance=0.9), UpdateMemory(new, occurred_at=REQUESTED_AT - 15 * DAY_S)):
        replaced = stored_and_judged(rig, 0.8, *stores)
        if change is not None:
            rig.apply(change_operation(f"change {change.memory_id}", change))
        is_later = change is None or change.occurred_at is None
        assert bool(replaced.take(rig.records, stores[1])) is is_later


def test_the_dates_say_which_of_a_pair_is_the_newer_one_whichever_way_it_is_linked(rig: RecordsRig) -> None:
    new = rig.say("the build may take 45 minutes")
    old = rig.say("the build may take 10 minutes", occurred_at=REQUESTED_AT - 15 * DAY_S)  # as an import stores it

    def marks() -> dict[str, tuple[str, ...]]:
        return {each: rig.loaded(each).possibly_superseded_by for each in (old, new)}

    for pair in ((old, new), (new, old)):
        rig.contradict(*pair)
        assert (rig.undecided(), marks()) == ([(old, new)], {old: (new,), new: ()})
        materials = rig.records.materials(ReadMemories(PROJECT)).memories
        assert [each.id for each in materials if each.is_replaced] == [old]
        assert "is neither forgotten" in rig.refused(RestoreMemory(new)).message
        rig.do(RestoreMemory(old))
        assert (rig.undecided(), marks(), links_of(rig, new)) == ([], {old: (), new: ()}, [(old, "related_to")])
        rig.do(UndoChange(new))
        assert (rig.undecided(), marks()) == ([(old, new)], {old: (new,), new: ()})
        rig.replace(old, new)
        assert (marks(), rig.loaded(new).superseded_by) == ({old: (), new: ()}, (old,))
        rig.do(UndoChange(new))
        assert (rig.undecided(), marks()) == ([(old, new)], {old: (new,), new: ()})


def newer_than_each(rig: RecordsRig, *ids: str) -> list[set[str]]:
    """Of each memory those that may replace it, whichever of two is linked to the other, and by their ages."""
    for pair in itertools.permutations(ids, 2):
        rig.contradict(*pair)
    numbers = [rig.number(each) for each in ids]
    loaded = rig.records.load(numbers, None)
    assert sorted(loaded, key=lambda each: loaded[each].age_key) == numbers, "as in SQL"
    return [set(rig.loaded(each).possibly_superseded_by) for each in ids]


def test_of_one_day_the_memory_stored_last_is_the_newer_one_also_if_only_its_day_is_given(rig: RecordsRig) -> None:
    day = REQUESTED_AT // DAY_S * DAY_S
    morning = rig.at(day + 3600).say("the gate opens at seven")
    noon = rig.at(day + 12 * 3600).say("the gate opens at eight now", occurred_at=day)
    before = rig.at(day + 13 * 3600).say("the gate opens at six", occurred_at=day - 15 * DAY_S)
    assert newer_than_each(rig, before, morning, noon) == [{morning, noon}, {noon}, set()]


def test_a_change_of_the_last_days_is_newer_than_a_memory_without_a_day_if_it_is_stored_later(rig: RecordsRig) -> None:
    had = rig.at(REQUESTED_AT).say("the archive runs Debian 11")
    changed = rig.at(REQUESTED_AT + DAY_S).say("the archive got Debian 12", occurred_at=REQUESTED_AT - 13 * DAY_S)
    has = rig.at(REQUESTED_AT + 2 * DAY_S).say("the archive runs Debian 13")
    noted = rig.at(REQUESTED_AT + 3 * DAY_S).say("the archive runs Debian 10", occurred_at=REQUESTED_AT - 15 * DAY_S)
    newer = newer_than_each(rig, noted, had, changed, has)
    assert newer == [{had, changed, has}, {changed, has}, {has}, set()]


def test_superseding_ends_the_validity_of_the_older_until_taken_back(rig: RecordsRig, four: list[str]) -> None:
    one, two, *_ = four
    link, at = LinkRef("supersedes", one), REQUESTED_AT + 5
    rig.contradict(two, one)
    rig.replace(two, one, at=at)
    old = rig.shown(one)
    assert (old.valid_until, old.version, old.history[-1].change) == (at, 2, "superseded")
    assert old.history[-1].details == {"by": two, "fields": ["valid_until"]}
    assert (rig.loaded(one).superseded_by, rig.loaded(one).valid_until) == ((two,), at)
    assert rig.loaded(one).possibly_superseded_by == (), "the same id is not given twice"
    rig.do(UpdateMemory(two, remove_links=(link,)))
    assert (rig.shown(one).valid_until, rig.shown(one).version, rig.loaded(one).superseded_by) == (None, 3, ())
    rig.replace(two, one, at=at)
    rig.do(UpdateMemory(one, valid_until=at - 1))
    rig.do(UpdateMemory(two, remove_links=(link,)))
    assert rig.shown(one).valid_until == at - 1, "which somebody has set since"
    rig.replace(one, two)
    assert rig.loaded(two).superseded_by == (one,)
    rig.replace(two, one)
    assert (rig.loaded(one).superseded_by, rig.loaded(two).superseded_by) == ((two,), ()), "it is turned"
    assert rig.shown(two).valid_until is None
    rig.at(REQUESTED_AT + 9).do(InvalidateMemory(one, "it broke"))
    rig.do(RestoreMemory(one))
    assert rig.loaded(one).superseded_by == (two,), "only that it broke is taken back"
    rig.do(InvalidateMemory(one, "it broke"))
    rig.do(UpdateMemory(two, remove_links=(link,)))
    assert rig.shown(one).invalid_reason == "it broke"


def test_what_moves_an_open_end_to_another_day_is_the_open_end_as_soon_as_it_replaces_it(rig: RecordsRig) -> None:
    talk, rent = (rig.say(text, kind="open_end", due=REQUESTED_AT) for text in ("give the talk", "pay the rent"))
    fair, seal = rig.say("hold the fair", kind="open_end", due=REQUESTED_AT), rig.say("order it", kind="open_end")
    moved = rig.at(REQUESTED_AT + 5).say("the talk was put off to 16 December 2023")
    paid = rig.say("the rent was paid on 14 November 2023")
    given = rig.say("they gave us 20 December 2023 for the fair")
    ordered = rig.say("ordered it, delivery on 9 January 2024")
    inn = rig.say("book the inn", kind="open_end", due=REQUESTED_AT)
    booked = rig.say("booked the inn for 9 January 2024", kind="open_end")
    lease, wanted = (
        rig.say(f"{text} by 12 December 2023", kind="open_end") for text in ("sign it", "Bo wants it signed")
    )
    visit, called = (
        rig.say("the dentist on Monday", kind="open_end"),
        rig.say("the dentist called, a week later at nine"),
    )
    pairs = (moved, talk), (paid, rent), (given, fair), (ordered, seal), (booked, inn), (wanted, lease), (called, visit)
    for newer, older in pairs:
        rig.contradict(newer, older)
    asked = {each.newer.id: each.may_be_done for each in rig.browse(FindUndecided(PROJECT, SESSION)).pairs}
    assert {each for each, may_be_done in asked.items() if may_be_done} == {paid, ordered, booked}
    assert len(asked) == len(pairs)
    for newer, older in ((moved, talk), (paid, rent)):
        rig.replace(newer, older)
    at_once = rig.say("the talk is on 18 December 2023", supersedes=moved)
    day = datetime(2023, 12, 16, tzinfo=UTC).timestamp()
    assert [(rig.shown(each).kind, rig.shown(each).due) for each in (moved, paid)] == [
        ("open_end", day),
        ("fact", None),
    ]
    assert (rig.shown(at_once).due, rig.shown(at_once).version) == (day + 2 * DAY_S, 1)
    rig.do(UndoChange(at_once))
    rig.do(UndoChange(talk))
    assert (rig.shown(talk).valid_until, rig.shown(moved).kind, rig.shown(moved).due) == (None, "fact", None)
    rig.replace(moved, talk)
    rig.do(RestoreMemory(talk))
    kept = [(rig.shown(each).valid_until, rig.shown(each).due) for each in (talk, moved)]
    assert kept == [(None, REQUESTED_AT), (None, day)], "after a wrong move, both are to be done, each on its own day"


def test_a_value_that_is_returned_to_after_two_changes_is_valid_again(rig: RecordsRig) -> None:
    one = rig.say("it samples at 1 Hz")
    two = rig.at(REQUESTED_AT + 5).say("it samples at 5 Hz", supersedes=one)
    three = rig.at(REQUESTED_AT + 6).say("it samples at 10 Hz", supersedes=two)

    def valid() -> list[str]:
        return [each for each in (one, two, three) if rig.shown(each).valid_until is None]

    rig.at(REQUESTED_AT + 7).replace(one, three)
    assert (valid(), rig.loaded(three).superseded_by) == ([one], (one,))
    rig.do(UndoChange(one))
    assert (valid(), rig.loaded(one).superseded_by) == ([three], (two,))
    rig.replace(one, rig.say("it samples by hand", valid_until=REQUESTED_AT))
    assert valid() == [three], "what is said about the past changes nothing that holds"


def test_restoring_a_memory_takes_back_that_another_replaces_it(rig: RecordsRig, four: list[str]) -> None:
    one, two, three, last = four
    rig.replace(two, one)
    rig.do(TagMemory(one, ("green",)))
    restored = rig.do(RestoreMemory(one))
    assert (restored.version, restored.restored_fields) == (4, ("valid_until",))
    now = rig.shown(one)
    assert (now.valid_until, now.tags[-1], rig.loaded(one).superseded_by) == (None, "green", ())
    assert links_of(rig, two) == []
    rig.do(UndoChange(one))
    assert rig.loaded(one).superseded_by == (two,)
    assert rig.shown(one).valid_until is not None
    for valid_again in (RestoreMemory(one, 1), UpdateMemory(one, cleared=("valid_until",))):
        rig.do(valid_again)
        assert rig.loaded(one).superseded_by == ()
        rig.do(UndoChange(one))
        assert rig.loaded(one).superseded_by == (two,)
    assert rig.do(RestoreMemory(one)).version == 10
    # One that is probably replaced holds as well, and the question is settled.
    rig.contradict(three, one)
    assert rig.loaded(one).possibly_superseded_by == (three,)
    assert rig.do(RestoreMemory(one)).version == 10
    assert rig.loaded(one).possibly_superseded_by == ()
    assert links_of(rig, three) == [(one, "related_to")]
    assert "is neither forgotten" in rig.refused(RestoreMemory(one)).message
    # Nobody has decided about another pair, which still waits.
    rig.contradict(last, one)
    rig.replace(two, one)
    rig.do(RestoreMemory(one))
    assert (rig.loaded(one).superseded_by, rig.loaded(one).possibly_superseded_by) == ((), (last,))
    # Nor is the older one replaced if it is what holds.
    rig.contradict(three, two)
    rig.replace(two, three)
    assert (rig.loaded(two).possibly_superseded_by, rig.loaded(three).superseded_by) == ((), (two,))


def test_a_change_is_undone_once_and_not_if_another_came_after_it_or_what_was_before_is_gone(
    rig: RecordsRig, lantern: str
) -> None:
    rig.do(TagMemory(lantern, ("green",)))
    assert "has been changed since" in rig.refused(UndoChange(lantern, 1)).message
    undo = change_operation("undo", UndoChange(lantern, 2))
    first, again = rig.apply(undo, undo)
    assert (again.result, again.replayed) == (first.result, True)
    assert (rig.shown(lantern).tags, rig.shown(lantern).version) == (("red", "blue"), 3)
    assert "has been changed since" in rig.refused(UndoChange(lantern, 2)).message, "as by a second click"
    own = rig.say("a private light", scope="session")
    assert isinstance(rig.refused(UndoChange(own), session=OTHER_SESSION), NotFound)
    rig.do(PromoteMemory(own, "project"))
    assert "moved from a session" in rig.refused(UndoChange(own)).message
    for tag in ("green", "dim"):
        rig.do(TagMemory(own, (tag,)))
    write_rows(rig.path, f"DELETE FROM history WHERE memory_id = '{own}' AND version = 3")
    assert f"version 3 of {own} is no longer kept" in rig.refused(UndoChange(own)).message


def test_to_undo_a_memory_that_replaced_another_first_makes_that_valid_again(rig: RecordsRig, four: list[str]) -> None:
    old, older, *_ = four
    new = rig.at(REQUESTED_AT + 5).say("the new light")
    rig.at(REQUESTED_AT + 6).replace(new, old)
    undone = rig.do(UndoChange(new, 1))
    assert (undone.memory_id, undone.undone, undone.restored_fields) == (old, "superseded", ("valid_until",))
    assert links_of(rig, new) == []
    assert "has been changed since" in rig.refused(UndoChange(new, 1)).message, "as by a second click"
    assert rig.do(UndoChange(new, 2)).undone == "stored"
    assert rig.shown(new).forgotten_at is not None
    newer = rig.at(REQUESTED_AT + 9).say("the newer light", supersedes=(old, older))
    rig.do(TagMemory(old, ("dim",)))
    assert f"it replaced {old}, which has been changed since" in rig.refused(UndoChange(newer)).message
    rig.do(UndoChange(old))
    rig.at(REQUESTED_AT + 10).do(UpdateMemory(old, related=(newer,)))
    assert rig.do(UndoChange(newer)).undone == "linked"
    undone = rig.do(UndoChange(newer))  # what a memory replaced when it was stored is one change with that
    assert (undone.memory_id, undone.undone, sorted(undone.valid_again)) == (newer, "stored", sorted([old, older]))
    assert rig.shown(newer).forgotten_at is not None
    assert [rig.shown(each).valid_until for each in (old, older)] == [None, None]
    assert links_of(rig, newer) == []
    assert "nothing more to undo" in rig.refused(UndoChange(newer)).message


@pytest.mark.parametrize("by_edit", [False, True])
def test_to_undo_a_memory_that_no_longer_replaces_another_first_lets_it_replace_that_again(
    rig: RecordsRig, four: list[str], *, by_edit: bool
) -> None:
    old, *_ = four
    new = rig.at(REQUESTED_AT + 5).say("the new light", supersedes=None if by_edit else old)
    if by_edit:
        rig.at(REQUESTED_AT + 6).replace(new, old)
    rig.at(REQUESTED_AT + 7).do(RestoreMemory(old))
    undone = rig.at(REQUESTED_AT + 8).do(UndoChange(new))
    assert (undone.memory_id, undone.undone, undone.valid_again) == (old, "superseding_undone", ())
    log = rig.browse(ReadActivity(PROJECT, SESSION, with_undo=True)).changes
    said = [(each.memory_id, each.undid) for each in log if each.at == log[0].at]
    assert said == [(old, "superseding_undone")], "the log has a line for what was undone"
    assert any(each.undo_at for each in log)
    assert (links_of(rig, new), rig.shown(old).valid_until is None) == ([(old, "supersedes")], False)
    undone = rig.at(REQUESTED_AT + 9).do(UndoChange(new))
    assert undone.undone == ("superseded" if by_edit else "stored")
    assert (links_of(rig, new), rig.shown(old).valid_until) == ([], None)


def test_an_undo_leaves_alone_what_its_session_cannot_see(rig: RecordsRig) -> None:
    own = rig.say("a private light", scope="session")
    new = rig.at(REQUESTED_AT + 5).say("the light of all", scope="project", supersedes=own)
    rig.do(TagMemory(new, ("dim",)), session=OTHER_SESSION)
    named = [rig.do(UndoChange(new), session=OTHER_SESSION) for _ in range(2)]
    assert [(each.memory_id, each.undone) for each in named] == [(new, "tagged"), (new, "stored")]
    assert rig.shown(own).valid_until is not None


LIGHTS = ("mem_one", "mem_two", "mem_three")
LIGHT = st.sampled_from(LIGHTS)
SOME = st.lists(LIGHT, max_size=2, unique=True).map(tuple)
SUPERSEDING = SOME.map(lambda older: tuple(LinkRef("supersedes", each) for each in older))
LINK = st.builds(LinkRef, st.sampled_from(["supersedes", "supersedes", "related_to"]), LIGHT).map(lambda link: (link,))


def light(memory_id: str, supersedes: tuple[str, ...] = ()) -> StoreMemory:
    fields: dict[str, Any] = {"type": "semantic", "scope": "project", "session_id": SESSION}
    return StoreMemory(memory_id=memory_id, content="a light", supersedes=supersedes, **fields)


UNDO_IMPORT = UndoRun("run:import-1", "project")
FIRST = HistoryEntry(1, "stored", 0.0, "", "", MemoryVersion(**light("mem_three").fields()))
WHOLE = PortableMemory(**FIRST.record.recorded(), id="mem_three", created_at=0.0, updated_at=0.0, history=(FIRST,))
IMPORT = ImportMemory(WHOLE, run_id=UNDO_IMPORT.run_id)


STEPS = st.one_of(
    st.builds(light, LIGHT, SOME),
    st.builds(UpdateMemory, LIGHT, content=st.just("another light"), add_links=SUPERSEDING),
    st.builds(UpdateMemory, LIGHT, add_links=LINK),
    st.builds(UpdateMemory, LIGHT, remove_links=LINK),
    st.builds(UpdateMemory, LIGHT, cleared=st.just(("valid_until",))),
    st.builds(UpdateMemory, LIGHT, kind=st.just("open_end"), done=st.booleans(), metadata=st.just({"lit": True})),
    st.builds(TagMemory, LIGHT, st.just(("dim",))),
    st.builds(ForgetMemory, LIGHT),
    st.builds(RestoreMemory, LIGHT),
    st.builds(InvalidateMemory, LIGHT, st.just("it broke"), st.none() | LIGHT),
    st.builds(UndoChange, LIGHT),
    st.permutations(LIGHTS).map(tuple),
    st.sampled_from([IMPORT, UNDO_IMPORT]),
)
"""Changes, an import, and pairs (the first two ids) of which the first is found to replace the second probably."""


ONE, TWO, THREE = ((LinkRef("supersedes", each),) for each in LIGHTS)
REPLACING, NOT_REPLACING = UpdateMemory("mem_two", add_links=ONE), UpdateMemory("mem_two", remove_links=ONE)
ALSO_TWO = UpdateMemory("mem_three", add_links=TWO)


def undoable(rig: RecordsRig) -> tuple[dict[str, Any], list[Any]]:
    """All that an undo takes back: the memories, and their links. A memory is replaced while another replaces it, and
    only then."""
    fields = "id, valid_until, invalid_reason, content, tags, kind, done, metadata, forgotten_at IS NOT NULL"
    memories = {each[0]: each[1:] for each in rig.rows(f"SELECT {fields} FROM memories WHERE space = @SPACE")}
    links = rig.rows(
        """SELECT s.id, relation, t.id FROM memory_links AS l JOIN memories AS s ON s.number = l.source
           JOIN memories AS t ON t.number = l.target ORDER BY 1, 2, 3"""
    )
    replaced = {target for _, relation, target in links if relation == "supersedes"}
    ended = {memory_id: reason for memory_id, (until, reason, *_) in memories.items() if until is not None}
    assert {each for each, reason in ended.items() if reason is None} <= replaced <= ended.keys()
    return memories, links


def in_effect(rig: RecordsRig) -> Counter[str]:
    return Counter({each: len(standing(rig.shown(each).history)) for each in undoable(rig)[0]})


@example([LIGHTS[1::-1], RestoreMemory("mem_one"), NOT_REPLACING])
@example([IMPORT, UpdateMemory("mem_three", add_links=ONE), UNDO_IMPORT])
@example([REPLACING, light("mem_three", LIGHTS[:1]), NOT_REPLACING, UndoChange("mem_three")])
@example([REPLACING, InvalidateMemory("mem_one", "it broke"), NOT_REPLACING, RestoreMemory("mem_one")])
@example([REPLACING, InvalidateMemory("mem_one", "it broke", "mem_two")])
@example([light("mem_three", LIGHTS[:1]), InvalidateMemory("mem_one", "it broke", "mem_two")])
@example([light("mem_three", LIGHTS[:1]), UpdateMemory("mem_one", "another light"), ALSO_TWO])
@example([IMPORT, UNDO_IMPORT, UpdateMemory("mem_one", add_links=THREE), IMPORT, UNDO_IMPORT])
@example([IMPORT, UNDO_IMPORT, UpdateMemory("mem_one", add_links=THREE), IMPORT])
@example([UpdateMemory("mem_one", kind="open_end", done=True, metadata={"a": 1}), TagMemory("mem_one", ("dim",))])
@given(st.lists(STEPS, min_size=3, max_size=16))
def test_changes_that_are_undone_from_the_last_on_leave_all_as_it_was(steps: list[Any]) -> None:
    """What is found in the background, which a new text drops, cannot be undone: what came before it is not undone
    here."""
    with TemporaryDirectory() as directory, RecordsRig(Path(directory) / "memory.db") as rig:
        made: list[tuple[Any, Any, Counter[str]]] = []
        for at, step in enumerate([*map(light, LIGHTS[:2]), *steps]):
            before, counts = undoable(rig), in_effect(rig)
            rig.at(REQUESTED_AT + at)
            if isinstance(step, tuple):
                if step[0] in before[0] and step[1] in before[0]:
                    rig.contradict(*step[:2])
                made = []
                continue
            if isinstance(step, StoreMemory) and step.memory_id in before[0]:
                continue
            drops_pair = False
            if content := getattr(step, "content", None):
                step = msgspec.structs.replace(step, content=f"{content} {at}")
                drops_pair = any("contradicts" in link and step.memory_id in link for link in before[1])
            outcome = rig.try_to(step, session=SHELL_SESSION)
            if isinstance(outcome, RemembrancerError):
                assert isinstance(outcome, (InvalidInput, NotFound))
                assert undoable(rig) == before
            elif isinstance(step, UndoRun):
                links = undoable(rig)[1]
                assert not any(link[:2] == (each, "supersedes") for each in outcome.memories for link in links)
                made = []
            elif isinstance(step, UndoChange) or in_effect(rig) == counts or drops_pair:
                made = made if (undoable(rig), in_effect(rig)) == (before, counts) else []
            else:
                made.append((step, before, counts))
        for step, before, counts in reversed(made):
            if isinstance(step, ImportMemory):
                rig.do(UNDO_IMPORT, session=SHELL_SESSION)
            asked = [step.memory_id] if isinstance(step, (RestoreMemory, UpdateMemory)) else []
            while (now := in_effect(rig)) != counts:  # a change may concern several memories
                rig.do(UndoChange((asked or [each for each in LIGHTS if now[each] > counts[each]])[0]))
                asked = []
            memories, links = undoable(rig)
            assert (memories | before[0], links) == (memories, before[1])
            assert all(memories[each][-1] for each in memories.keys() - before[0].keys()), "they are forgotten"


def test_a_memory_that_was_used_again_is_not_archived_by_an_undo(rig: RecordsRig, lantern: str) -> None:
    rig.do(TagMemory(lantern, ("green",)))
    rig.carry_out(ReviseMemory(lantern, "archived", status="archived"))
    rig.records.touch([rig.number(lantern)], REQUESTED_AT)
    assert [rig.do(UndoChange(lantern)).undone for _ in range(2)] == ["archived", "tagged"]
    assert (rig.shown(lantern).status, rig.shown(lantern).tags) == ("active", ("red", "blue"))


def test_what_an_import_says_of_its_past_leaves_an_undo_as_it_is(rig: RecordsRig, lantern: str) -> None:
    rig.do(TagMemory(lantern, ("green",)))
    whole = rig.shown(lantern)
    first, last = whole.history

    def undone(name: str, *history: HistoryEntry) -> Any:
        memory_id = rig.do(
            ImportMemory(msgspec.structs.replace(whole, id=name, content=name, history=history))
        ).memory_id
        return rig.try_to(UndoChange(memory_id))

    for number, details in enumerate(({"as_of": -1}, {"as_of": 7}, {"previous_scope": 3})):
        outcome = undone(f"mem_{number}", first, msgspec.structs.replace(last, details=details))
        assert isinstance(outcome, (RestoredResult, InvalidInput)), outcome
    draft = msgspec.structs.replace(first.record, scope="session", session_id=OTHER_SESSION)
    moved = msgspec.structs.replace(first, version=2, change="promoted")
    outcome = undone("mem_moved", msgspec.structs.replace(first, record=draft), moved)
    assert "moved from a session" in outcome.message, "it does not return there"


def test_a_memory_in_place_of_one_unknown_or_of_others_is_refused(rig: RecordsRig, four: list[str]) -> None:
    one, _, three, _ = four
    refused: list[dict[str, Any]] = [
        {"supersedes": "mem_none"},
        {"supersedes": one, "scope": "session"},
        {"supersedes": three, "session_id": OTHER_SESSION},
    ]
    for fields in refused:
        operation = store_operation("six", "It is Valkey", memory_id="mem_6", **fields)
        error = rig.refused(operation.change, session=operation.session_id)
        assert (type(error), error.field) == (InvalidInput, "supersedes")


def test_what_a_sessions_own_memory_superseded_does_not_name_that_to_others(rig: RecordsRig, four: list[str]) -> None:
    *_, three, own = four
    rig.replace(three, own)
    rig.do(PromoteMemory(own, "project"))
    for session, known in ((SESSION, [three]), (OTHER_SESSION, []), (None, [three])):
        history = rig.shown(own, session).history
        assert [entry.details["by"] for entry in history if "by" in entry.details] == known


def test_a_text_and_an_earlier_version_that_are_a_sessions_own_are_nothing_to_another_one(rig: RecordsRig) -> None:
    own, other = (rig.say("a draft", scope="session", session_id=session) for session in (SESSION, OTHER_SESSION))
    assert rig.shown(other).id == other
    known = rig.say("a draft")
    for session, seen in ((SESSION, own), (OTHER_SESSION, other)):
        assert list(read_copies(rig.records._file.read, known, "a draft", session)) == [seen]
    rig.do(UpdateMemory(own, content="another draft"))
    rig.do(PromoteMemory(own, "project"))
    assert rig.refused(RestoreMemory(own, 1), session=OTHER_SESSION).field == "version"
    assert "it has no earlier version" in rig.refused(RestoreMemory(own), session=OTHER_SESSION).message
    assert "name the version to return to (1 to 2)" in rig.refused(RestoreMemory(own)).message
    assert rig.do(RestoreMemory(own, 1)).restored_fields == ("content",)


def test_of_an_event_that_was_stored_often_the_five_oldest_copies_are_named(rig: RecordsRig) -> None:
    *stored, last = [rig.say("the tests pass", type="episodic", occurred_at=day * 86_400.0) for day in range(1, 9)]
    copies = read_copies(rig.records._file.read, last, "the tests pass", SESSION, MAX_COPIES)
    assert list(copies) == stored[:5]


def related(rig: RecordsRig, memory_id: str, session: str = SESSION, depth: int = 0) -> dict[str, tuple[str, ...]]:
    return {each.id: each.related for each in rig.records.follow([memory_id], session, depth, 10).values()}


def test_a_relation_is_one_of_both_memories_and_replaced_as_a_whole(rig: RecordsRig, four: list[str]) -> None:
    one, two, _, own = four
    theirs = rig.say("another session's", scope="session", session_id=OTHER_SESSION)
    made = rig.do(UpdateMemory(one, related=(two, own, one, "mem_none", theirs, two)))
    assert made == UpdatedResult(one, ("links",), 2, missing=("mem_none", theirs))
    assert related(rig, one) == {one: (two, own)}
    assert related(rig, two) == {two: (one,)}
    assert rig.do(UpdateMemory(two, related=(one,))) == UpdatedResult(two, (), 1)
    assert rig.do(UpdateMemory(two, related=(own,))) == UpdatedResult(two, ("links",), 2)
    assert related(rig, one) == {one: (own,)}
    assert related(rig, own) == {own: (one, two)}
    rig.do(ForgetMemory(one))
    assert (related(rig, own), related(rig, one)) == ({own: (two,)}, {})
    rig.do(UpdateMemory(own, related=()))
    rig.do(RestoreMemory(one))
    assert related(rig, own) == {own: (one,)}, "what was hidden then was not taken away"


def test_links_are_followed_breadth_first_and_never_through_what_a_session_may_not_see(rig: RecordsRig) -> None:
    ids: list[str] = []
    for place in range(6):
        scope = "session" if place == 2 else "project"
        ids.append(rig.say(f"link {place}", scope=scope, related=tuple(ids[-1:]), pinned=True))
    rig.do(UpdateMemory(ids[0], related=(ids[1], ids[3])))
    found = [(each.id, each.distance) for each in rig.records.follow([ids[0]], SESSION, 2, 10).values()]
    assert dict(found) == {ids[0]: 0, ids[1]: 1, ids[3]: 1, ids[2]: 2, ids[4]: 2}
    assert [distance for _, distance in found] == [0, 1, 1, 2, 2]
    assert related(rig, ids[1], OTHER_SESSION, depth=1) == {ids[1]: (ids[0],), ids[0]: (ids[1], ids[3])}
    assert related(rig, ids[2], OTHER_SESSION) == {}
    assert len(rig.records.follow([ids[0]], SESSION, 5, 4)) == 4
    assert len(rig.records.follow(ids, SESSION, 0, 10)) == 6


# The two times of a fact: when it is true, and when that was recorded
START, MOVED = REQUESTED_AT, REQUESTED_AT + 1000
OLD, NEWER, ALWAYS, OWN = "mem_old", "mem_new", "mem_always", "mem_own"


@pytest.fixture
def facts(rig: RecordsRig) -> RecordsRig:
    rig.say("the cache is Redis", memory_id=OLD, valid_from=START - 500)
    rig.say("the cache has a port", memory_id=ALWAYS)
    rig.at(MOVED).say("the cache is Valkey", memory_id=NEWER)
    return rig


def valid(rig: RecordsRig, at: float) -> list[str]:
    """Ids of what is valid at a time by what is known now, the last to become so first."""
    return rig.ids(rig.records.top(Filters(SESSION, valid_at=at), "valid", 10))


def test_a_fact_is_valid_between_its_times_or_since_it_happened_or_was_stored(facts: RecordsRig) -> None:
    for at, expected in (
        (START - 501, []),
        (START - 500, [OLD]),
        (START, [ALWAYS, OLD]),
        (MOVED, [NEWER, ALWAYS, OLD]),
    ):
        assert valid(facts, at) == expected
    facts.say("it fell", memory_id="mem_event", type="episodic", occurred_at=START - 90)
    assert valid(facts, START - 90) == ["mem_event", OLD]
    assert facts.records.matching(Filters(SESSION, valid_at=START - 90), 10) is not None


def test_a_validity_does_not_end_before_it_begins_whichever_of_the_two_was_there(rig: RecordsRig, lantern: str) -> None:
    rig.do(UpdateMemory(lantern, valid_until=20.0))
    assert rig.refused(UpdateMemory(lantern, valid_from=20.0)).field == "valid_from"
    rig.do(UpdateMemory(lantern, valid_from=30.0, valid_until=40.0))
    assert rig.refused(UpdateMemory(lantern, valid_until=30.0)).field == "valid_until"
    cleared = rig.do(UpdateMemory(lantern, valid_from=50.0, cleared=("valid_until",)))
    assert (cleared.updated_fields, rig.shown(lantern).valid_from) == (("valid_from", "valid_until"), 50.0)
    assert rig.shown(lantern).valid_until is None
    assert rig.do(UpdateMemory(lantern, cleared=("valid_until",))).updated_fields == ()
    rig.do(RestoreMemory(lantern, cleared.version - 1))
    assert (rig.shown(lantern).valid_from, rig.shown(lantern).valid_until) == (30.0, 40.0)


def test_to_invalidate_is_undone_by_restoring_and_by_taking_the_end_away(facts: RecordsRig) -> None:
    for undo in (RestoreMemory(OLD), RestoreMemory(OLD, version=1), UpdateMemory(OLD, cleared=("valid_until",))):
        facts.do(InvalidateMemory(OLD, "we moved", NEWER))
        facts.do(undo)
        assert (facts.shown(OLD).valid_until, facts.shown(OLD).invalid_reason) == (None, None)
        assert facts.shown(NEWER).links == ()


def test_what_is_not_seen_is_neither_invalidated_nor_named_as_what_replaced_a_fact(facts: RecordsRig) -> None:
    facts.say("my cache is Redis", memory_id=OWN, scope="session")
    assert isinstance(facts.refused(InvalidateMemory(OWN), session=OTHER_SESSION), NotFound)
    for session, newer in ((OTHER_SESSION, OWN), (SESSION, "mem_none"), (SESSION, OLD), (SESSION, OWN)):
        error = facts.refused(InvalidateMemory(OLD, "no", newer), session=session)
        assert (type(error), error.field) == (InvalidInput, "replaced_by"), newer
    facts.do(ForgetMemory(NEWER))
    assert isinstance(facts.refused(InvalidateMemory(NEWER)), InvalidInput)


def test_the_events_of_a_day_are_read_by_their_date_or_their_time_beside_many_other_memories(rig: RecordsRig) -> None:
    day = 20_000 * DAY_S
    begins = day + 5 * 3600  # where the day begins five hours after that in UTC
    for content, occurred_at in (
        ("The eve", day - DAY_S),
        ("The day", day),
        ("The evening before", begins - 1),
        ("The evening", begins + DAY_S - 1),
        ("The morrow", day + DAY_S),
    ):
        rig.say(content, occurred_at=occurred_at)
    rig.say("The report", occurred_at=begins + 1, kind="session_record", scope="session")
    for number in range(110):
        rig.at(begins + number).say(f"Memory {number} of that day")
    read = rig.browse(ReadActivity(PROJECT, SESSION, begins + DAY_S, after=begins, days=(day, day + DAY_S)))
    assert [(each.begins, each.at) for each in read.happened] == [("The day", day), ("The evening", begins + DAY_S - 1)]


def test_the_events_of_a_day_are_those_that_were_stored_whatever_was_made_of_them(rig: RecordsRig) -> None:
    sources = [rig.say(f"Event {number}", occurred_at=DAY_S + number, kind="observation") for number in range(4)]
    made = NewMemory("mem_made", "All of them", "fact", "project", SESSION, occurred_at=DAY_S + 2)
    edits: tuple[Edit, ...] = (
        AddMemory(made),
        *(ReviseMemory(each, "consolidated", status="consolidated") for each in sources[:3]),
        *(AddLink(made.id, each, "derived_from") for each in sources[:3]),
        ReviseMemory(sources[3], "promoted", status="promoted"),
    )
    rig.carry_out(*edits)
    for limit, events, more in ((3, sources[:3], False), (2, sources[1:3], True)):
        read = rig.browse(ReadActivity(PROJECT, SESSION, 2 * DAY_S, limit, DAY_S, days=(DAY_S, 2 * DAY_S)))
        assert ([each.memory_id for each in read.happened], read.more) == (events, more)
