"""Changes of records beside those of `test_records_state`: bounds, links, the two times of a fact, imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.store.records.types import Filters, NearDuplicate
from remembrancer.memory.changes import changed_line
from remembrancer.memory.limits import MAX_ENTITIES, MAX_TAGS
from remembrancer.memory.replacement import PROBABLE
from remembrancer.memory.text import MAX_OBJECT_BYTES
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.writes import (
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    ImportedResult,
    ImportMemory,
    InvalidateMemory,
    LinkRef,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    TextEdit,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import pending
from tests.contracts.records_rig import RecordsRig
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, store_operation

NAMES = tuple(f"n{place}" for place in range(max(MAX_TAGS, MAX_ENTITIES) + 1))
HALF = "x" * (MAX_OBJECT_BYTES // 2)


@pytest.fixture
def lantern(rig: RecordsRig) -> str:
    return rig.say(
        "the first lantern", "Store:service", "launcher:service:starts", tags=("red", "blue"), importance=0.25
    )


# Texts and bounds


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
    assert (result.version, result.re_embedded) == (2, True)
    rig.do(UpdateMemory(lantern, content=TextEdit(" second", "")))
    assert rig.shown(lantern).content == "the lantern"
    for old, new, field, words in (
        ("ladder", "x", "old", "does not say"),
        ("n", "x", "old", "several times"),
        ("the lantern", " ", "new", "nothing of the memory would be left"),
    ):
        error = rig.refused(UpdateMemory(lantern, content=TextEdit(old, new)))
        assert (type(error), error.field, words in error.message) == (InvalidInput, field, True)
    rig.do(UpdateMemory(lantern, content="aaa"))
    rig.refused(UpdateMemory(lantern, content=TextEdit("aa", "b")))
    rig.do(RestoreMemory(lantern, 1))
    assert rig.shown(lantern).content == "the first lantern"


LAMPS = "Lamps:\n- the oil of the first lantern lasts until six in the morning, and then it is dark\n- wicks"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("six", "seven", "- the oil of the first lantern lasts until seven in the morning, and then it is dark"),
        ("first", "second", "- the oil of the second lantern lasts until six in the morning, and then it is dark"),
        ("wicks", "a " * 200, f"- {'a ' * 149}a"),
        ("Lamps", "x " * 40 + "Lamps", f"{'x ' * 40}Lamps:"),
    ],
)
def test_a_replaced_passage_is_shown_in_its_line(old: str, new: str, line: str) -> None:
    assert changed_line(LAMPS, TextEdit(old, new)) == line
    far = f"{'b' * 70}{old}{'c' * 70}"
    assert changed_line(far, TextEdit(old, "x")) == f"…{'b' * 60}x{'c' * 60}…"


# Imports


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
    for place, order in enumerate((exported, exported[::-1])):
        with RecordsRig(tmp_path / str(place) / "memory.db") as copy:
            for memory in order:
                assert copy.do(ImportMemory(memory)) == ImportedResult(memory.id, "imported")
                seen = copy.shown(memory.id, SESSION).links
                assert memory is order[1] or seen == (), "a link waits for its other end"
            for memory in exported:
                assert copy.shown(memory.id) == memory, "whichever came first"
            assert len(pending(copy.records)) == 2
            assert copy.records.counts(None) == rig.records.counts(None)
            assert copy.found("candle", Filters(SESSION, include_forgotten=True)) == [lantern]
            copy.do(RestoreMemory(lantern, 1))
            assert copy.shown(lantern).content == "the first lantern"


# Links


@pytest.fixture
def four(rig: RecordsRig) -> list[str]:
    """Two memories of the project, and two of a session's."""
    return [
        rig.say(f"the {name} light", scope=scope)
        for name, scope in (("red", "project"), ("blue", "project"), ("green", "session"), ("old", "session"))
    ]


def links_of(rig: RecordsRig, memory_id: str) -> list[tuple[str, str]]:
    return [(link.target, link.relation) for link in rig.shown(memory_id).links]


def test_links_are_made_and_removed_without_a_version_of_their_own(rig: RecordsRig, four: list[str]) -> None:
    one, two, three, _ = four
    links = (LinkRef("caused_by", two), LinkRef("supports", three), LinkRef("supports", three))
    weaker = (LinkRef("supports", three, 0.25),)
    for given, fields in ((links, ("links",)), (links, ()), (weaker, ("links",))):
        assert rig.do(UpdateMemory(one, add_links=given)) == UpdatedResult(one, fields, False, 1)
    assert sorted(links_of(rig, one)) == sorted([(three, "supports"), (two, "caused_by")])
    assert sorted(link.strength for link in rig.shown(one).links) == [0.25, 1.0]
    both = UpdateMemory(one, importance=0.75, remove_links=(LinkRef("supports", three), LinkRef("part_of", two)))
    assert rig.do(both) == UpdatedResult(one, ("importance", "links"), False, 2)
    assert links_of(rig, one) == [(two, "caused_by")]
    assert [(link.target, link.relation) for link in rig.records.surroundings(two, "", SESSION).incoming] == [
        (one, "caused_by")
    ]


def test_the_links_of_a_session_are_seen_by_it_alone(rig: RecordsRig, four: list[str]) -> None:
    one, _, three, own = four
    rig.do(UpdateMemory(three, add_links=(LinkRef("contradicts", one),)))
    rig.do(UpdateMemory(one, add_links=(LinkRef("derived_from", own),)))
    mine, theirs = rig.loaded(one), rig.loaded(one, OTHER_SESSION)
    assert (mine.possibly_superseded_by, mine.derived_from) == ((three,), (own,))
    assert (theirs.possibly_superseded_by, theirs.derived_from, theirs.near_duplicates) == ((), (), ())
    for session, seen in ((SESSION, [three]), (OTHER_SESSION, []), (None, [three])):
        assert [link.target for link in rig.records.surroundings(one, "", session).incoming] == seen


def test_what_is_probably_replaced_is_marked_until_somebody_says_how_the_two_stand(
    rig: RecordsRig, four: list[str]
) -> None:
    one, two, *_ = four
    for chance, marked in ((PROBABLE - 0.01, ()), (PROBABLE, (two,))):
        rig.records.link_similar([NearDuplicate(rig.number(two), rig.number(one), chance, relation="contradicts")])
        assert rig.loaded(one).possibly_superseded_by == marked
        assert links_of(rig, two) == [(one, "contradicts")]
    rig.do(UpdateMemory(two, add_links=(LinkRef("related_to", one),)))
    rig.records.link_similar([NearDuplicate(rig.number(two), rig.number(one), 0.9, relation="contradicts")])
    assert rig.loaded(one).possibly_superseded_by == ()
    assert links_of(rig, two) == [(one, "related_to")]


def test_superseding_ends_the_validity_of_the_older_and_taking_it_back_restores_it(
    rig: RecordsRig, four: list[str]
) -> None:
    one, two, *_ = four
    link, at = LinkRef("supersedes", one), REQUESTED_AT + 5
    rig.do(UpdateMemory(two, add_links=(link,)), at=at)
    old = rig.shown(one)
    assert (old.valid_until, old.version, old.history[-1].change) == (at, 2, "superseded")
    assert old.history[-1].details == {"by": two, "fields": ["valid_until"]}
    assert (rig.loaded(one).superseded_by, rig.loaded(one).valid_until) == ((two,), at)
    rig.do(UpdateMemory(two, remove_links=(link,)))
    assert (rig.shown(one).valid_until, rig.shown(one).version, rig.loaded(one).superseded_by) == (None, 3, ())


def test_a_memory_in_the_place_of_one_that_is_unknown_or_of_others_is_not_stored(
    rig: RecordsRig, four: list[str]
) -> None:
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
    rig.do(UpdateMemory(three, add_links=(LinkRef("supersedes", own),)))
    rig.do(PromoteMemory(own, "project"))
    for session, known in ((SESSION, [three]), (OTHER_SESSION, []), (None, [three])):
        history = rig.shown(own, session).history
        assert [entry.details["by"] for entry in history if "by" in entry.details] == known


def test_a_text_and_an_earlier_version_that_are_a_sessions_own_are_nothing_to_another_one(rig: RecordsRig) -> None:
    own, other = (rig.say("a draft", scope="session", session_id=session) for session in (SESSION, OTHER_SESSION))
    assert rig.shown(other).id == other
    for session, seen in ((SESSION, own), (OTHER_SESSION, other)):
        again = store_operation(session, "a draft", session_id=session)
        assert rig.do(again.change, session=session).duplicates == (seen,)
    rig.do(UpdateMemory(own, content="another draft"))
    rig.do(PromoteMemory(own, "project"))
    assert rig.refused(RestoreMemory(own, 1), session=OTHER_SESSION).field == "version"
    assert rig.do(RestoreMemory(own, 1)).restored_fields == ("content",)


def related(rig: RecordsRig, memory_id: str, session: str = SESSION, depth: int = 0) -> dict[str, tuple[str, ...]]:
    return {each.id: each.related for each in rig.records.follow([memory_id], session, depth, 10).values()}


def test_a_relation_is_one_of_both_memories_and_replaced_as_a_whole(rig: RecordsRig, four: list[str]) -> None:
    one, two, _, own = four
    made = rig.do(UpdateMemory(one, related=(two, own, one, "mem_none", two)))
    assert made == UpdatedResult(one, ("links",), False, 1, missing=("mem_none",))
    assert related(rig, one) == {one: (two, own)}
    assert related(rig, two) == {two: (one,)}
    assert rig.do(UpdateMemory(two, related=(one,))) == UpdatedResult(two, (), False, 1)
    assert rig.do(UpdateMemory(two, related=(own,))) == UpdatedResult(two, ("links",), False, 1)
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

START, MOVED, LATER = REQUESTED_AT, REQUESTED_AT + 1000, REQUESTED_AT + 2000
OLD, NEW, ALWAYS, OWN = "mem_old", "mem_new", "mem_always", "mem_own"


@pytest.fixture
def facts(rig: RecordsRig) -> RecordsRig:
    rig.say("the cache is Redis", memory_id=OLD, valid_from=START - 500)
    rig.say("the cache has a port", memory_id=ALWAYS)
    rig.at(MOVED).say("the cache is Valkey", memory_id=NEW)
    return rig


def valid(rig: RecordsRig, at: float) -> list[str]:
    """Ids of what is valid at a time by what is known now, the last to become so first."""
    return rig.ids(rig.records.top(Filters(SESSION, valid_at=at), "valid", 10))


def known(rig: RecordsRig, at: float, as_of: float, session: str = SESSION, project: str = PROJECT.id) -> list[str]:
    return [each.id for each in rig.records.known_as_of(session, project, at, as_of, 10)]


def test_a_fact_is_valid_between_its_times_and_where_none_are_given_since_it_happened_or_was_stored(
    facts: RecordsRig,
) -> None:
    for at, expected in (
        (START - 501, []),
        (START - 500, [OLD]),
        (START, [ALWAYS, OLD]),
        (MOVED, [NEW, ALWAYS, OLD]),
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


@pytest.mark.parametrize(
    "undo", [RestoreMemory(OLD), RestoreMemory(OLD, version=1), UpdateMemory(OLD, cleared=("valid_until",))]
)
def test_to_invalidate_is_undone_by_restoring_and_by_taking_the_end_away(facts: RecordsRig, undo: Change) -> None:
    facts.at(LATER).do(InvalidateMemory(OLD, "we moved", NEW))
    facts.at(LATER + 1).do(undo)
    old = facts.shown(OLD)
    assert (old.valid_until, old.invalid_reason, old.version) == (None, None, 3)
    assert facts.shown(NEW).links == ()
    assert valid(facts, LATER + 1) == [NEW, ALWAYS, OLD]


def test_what_is_not_seen_is_neither_invalidated_nor_named_as_what_replaced_a_fact(facts: RecordsRig) -> None:
    facts.say("my cache is Redis", memory_id=OWN, scope="session")
    assert isinstance(facts.refused(InvalidateMemory(OWN), session=OTHER_SESSION), NotFound)
    for session, newer in ((OTHER_SESSION, OWN), (SESSION, "mem_none"), (SESSION, OLD), (SESSION, OWN)):
        error = facts.refused(InvalidateMemory(OLD, "no", newer), session=session)
        assert (type(error), error.field) == (InvalidInput, "replaced_by"), (
            "a session's own replaces nothing for others"
        )
    facts.do(ForgetMemory(NEW))
    assert isinstance(facts.refused(InvalidateMemory(NEW)), InvalidInput)


def test_what_was_known_at_a_time_is_without_later_records_and_with_what_was_forgotten_later(facts: RecordsRig) -> None:
    changed = UpdateMemory(ALWAYS, content="the cache has two ports", valid_from=START - 800)
    facts.at(MOVED + 10).do(changed)
    facts.at(LATER).do(InvalidateMemory(OLD, "we moved", NEW))
    facts.at(LATER + 10).do(ForgetMemory(ALWAYS))
    for at, as_of, expected in (
        (LATER + 20, START, [ALWAYS, OLD]),
        (LATER + 20, MOVED, [NEW, ALWAYS, OLD]),
        (LATER + 20, LATER - 1, [NEW, OLD, ALWAYS]),  # what became valid last comes first
        (LATER + 20, LATER, [NEW, ALWAYS]),  # its end is known from then on
        (LATER + 20, LATER + 10, [NEW]),
        (START - 700, LATER, [ALWAYS]),
        (START - 700, MOVED, []),  # that it was true so early was not known yet
    ):
        assert known(facts, at, as_of) == expected
    first, *_ = facts.records.known_as_of(SESSION, PROJECT.id, START, MOVED, 10)
    assert (first.id, first.content, first.version) == (ALWAYS, "the cache has a port", 1)
    facts.at(LATER + 30).do(RestoreMemory(ALWAYS))
    assert known(facts, LATER + 40, LATER + 20) == [NEW]
    assert known(facts, LATER + 40, LATER + 30) == [NEW, ALWAYS]
    facts.at(LATER + 50).do(EraseMemory(OLD))
    assert known(facts, LATER + 40, MOVED) == [NEW, ALWAYS], "what was erased was never there"


def test_what_was_a_sessions_own_then_is_shown_to_it_alone(facts: RecordsRig) -> None:
    facts.say("a draft", memory_id=OWN, scope="session")
    facts.at(LATER).do(PromoteMemory(OWN, "project"))
    for at, session, seen in ((MOVED, SESSION, True), (MOVED, OTHER_SESSION, False), (LATER, OTHER_SESSION, True)):
        assert (OWN in known(facts, LATER, at, session)) == seen
    taken = msgspec.structs.replace(facts.shown(OLD), id="mem_users", scope="user", source_project="p_1")
    facts.at(LATER + 1).do(ImportMemory(taken))
    for project, seen in (("p_1", True), (PROJECT.id, False)):
        assert ("mem_users" in known(facts, LATER, START, project=project)) == seen, "a draft is its project's"
