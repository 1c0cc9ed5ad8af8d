"""Links between memories: asked for, shown from both ends, and what superseding does."""

from __future__ import annotations

import msgspec
import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, MemoryRecord, NearDuplicate
from remembrancer.memory.replacement import PROBABLE
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import (
    Applied,
    ForgetMemory,
    LinkRef,
    Operation,
    PromoteMemory,
    RestoreMemory,
    Scope,
    StoreMemory,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.runs_rig import FOUR, ONE, THREE, TWO, shown, stored
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, change_operation, store_operation


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    made = factory.open()
    made.apply(stored())
    return made


def update(
    records: Records, name: str, change: UpdateMemory, session_id: str = SESSION, *, at: float = REQUESTED_AT
) -> UpdatedResult | str | None:
    """The result of an update; of one that was refused the field."""
    reply = records.apply([change_operation(name, change, session_id=session_id, requested_at=at)])[0].reply
    if isinstance(reply, Applied):
        assert isinstance(reply.result, UpdatedResult)
        return reply.result
    assert isinstance(reply, InvalidInput)
    return reply.to_failure().field


def loaded(records: Records, memory_id: str, session_id: str = SESSION) -> MemoryRecord:
    number = records.number_of(memory_id)
    assert number is not None
    return records.load([number], Filters(session_id))[number]


def test_links_are_made_and_removed_without_a_version_of_their_own(records: Records) -> None:
    links = (LinkRef("caused_by", TWO), LinkRef("supports", THREE), LinkRef("supports", THREE))
    assert update(records, "add", UpdateMemory(ONE, add_links=links)) == UpdatedResult(ONE, ("links",), False, 1)
    assert [(link.target, link.relation) for link in shown(records, ONE).links] == [
        (THREE, "supports"),
        (TWO, "caused_by"),
    ]
    assert update(records, "again", UpdateMemory(ONE, add_links=links)) == UpdatedResult(ONE, (), False, 1)
    weaker = UpdateMemory(ONE, add_links=(LinkRef("supports", THREE, 0.25),))
    assert update(records, "weaker", weaker) == UpdatedResult(ONE, ("links",), False, 1)
    assert sorted(link.strength for link in shown(records, ONE).links) == [0.25, 1.0]
    both = UpdateMemory(ONE, importance=0.75, remove_links=(LinkRef("supports", THREE), LinkRef("part_of", TWO)))
    assert update(records, "both", both) == UpdatedResult(ONE, ("importance", "links"), False, 2)
    assert [link.relation for link in shown(records, ONE).links] == ["caused_by"]
    assert [(link.target, link.relation) for link in records.surroundings(TWO, "", SESSION).incoming] == [
        (ONE, "caused_by")
    ]


def test_the_links_of_a_session_are_seen_by_it_alone(records: Records) -> None:
    update(records, "three", UpdateMemory(THREE, add_links=(LinkRef("contradicts", ONE),)))
    update(records, "one", UpdateMemory(ONE, add_links=(LinkRef("derived_from", FOUR),)))
    assert loaded(records, ONE).possibly_superseded_by == (THREE,)
    assert loaded(records, ONE).derived_from == (FOUR,)
    other = loaded(records, ONE, OTHER_SESSION)
    assert (other.possibly_superseded_by, other.derived_from, other.near_duplicates) == ((), (), ())
    assert [link.target for link in records.surroundings(ONE, "", SESSION).incoming] == [THREE]
    assert records.surroundings(ONE, "", OTHER_SESSION).incoming == ()
    assert [link.target for link in records.surroundings(ONE, "", None).incoming] == [THREE]


def test_what_is_probably_replaced_is_marked_until_somebody_says_how_the_two_stand(records: Records) -> None:
    one, two = records.number_of(ONE), records.number_of(TWO)
    assert one is not None
    assert two is not None
    for chance, marked in ((PROBABLE - 0.01, ()), (PROBABLE, (TWO,))):
        records.link_similar([NearDuplicate(two, one, chance, relation="contradicts")])
        assert loaded(records, ONE).possibly_superseded_by == marked
        assert [link.relation for link in shown(records, TWO).links] == ["contradicts"]
    update(records, "both hold", UpdateMemory(TWO, add_links=(LinkRef("related_to", ONE),)))
    records.link_similar([NearDuplicate(two, one, 0.9, relation="contradicts")])
    assert loaded(records, ONE).possibly_superseded_by == ()
    assert [link.relation for link in shown(records, TWO).links] == ["related_to"]


def test_superseding_ends_the_validity_of_the_older_and_taking_it_back_restores_it(
    records: Records,
) -> None:
    link, at = LinkRef("supersedes", ONE), REQUESTED_AT + 5
    update(records, "supersede", UpdateMemory(TWO, add_links=(link,)), at=at)
    one = shown(records, ONE)
    assert (one.valid_until, one.version, one.history[-1].change) == (at, 2, "superseded")
    assert one.history[-1].details == {"by": TWO, "fields": ["valid_until"]}
    assert loaded(records, ONE).superseded_by == (TWO,)
    assert loaded(records, ONE).valid_until == at
    update(records, "take back", UpdateMemory(TWO, remove_links=(link,)))
    assert (shown(records, ONE).valid_until, shown(records, ONE).version) == (None, 3)
    assert loaded(records, ONE).superseded_by == ()


def test_a_memory_in_the_place_of_one_that_is_unknown_or_of_others_is_not_stored(records: Records) -> None:
    refused = [
        store_operation("six", "It is Valkey", memory_id="mem_6", supersedes="mem_none"),
        store_operation("seven", "It is Valkey", memory_id="mem_7", supersedes=ONE, scope="session"),
        store_operation("eight", "It is Valkey", memory_id="mem_8", supersedes=THREE, session_id=OTHER_SESSION),
    ]
    for outcome in records.apply(refused):
        assert isinstance(outcome.reply, InvalidInput)
        assert outcome.reply.field == "supersedes"
    assert [records.number_of(f"mem_{number}") for number in (6, 7, 8)] == [None] * 3
    assert shown(records, ONE).valid_until is None


def test_what_a_sessions_own_memory_superseded_does_not_name_that_to_others(records: Records) -> None:
    update(records, "supersede", UpdateMemory(THREE, add_links=(LinkRef("supersedes", FOUR),)))
    records.apply([change_operation("promote", PromoteMemory(FOUR, "project"))])
    seen = {session: records.portable(FOUR, session) for session in (SESSION, OTHER_SESSION, None)}
    known = [
        [entry.details["by"] for entry in each.history if "by" in entry.details] if each else None
        for each in seen.values()
    ]
    assert known == [[THREE], [], [THREE]]


def related(records: Records, memory_id: str, session_id: str = SESSION, depth: int = 0) -> dict[str, tuple[str, ...]]:
    found = records.follow([memory_id], session_id, depth, 10)
    return {each.id: each.related for each in found.values()}


def test_a_relation_is_one_of_both_memories_and_replaced_as_a_whole(records: Records) -> None:
    made = update(records, "relate", UpdateMemory(ONE, related=(TWO, FOUR, ONE, "mem_none", TWO)))
    assert made == UpdatedResult(ONE, ("links",), False, 1, missing=("mem_none",))
    assert related(records, ONE) == {ONE: (TWO, FOUR)}
    assert related(records, TWO) == {TWO: (ONE,)}
    assert update(records, "again", UpdateMemory(TWO, related=(ONE,))) == UpdatedResult(TWO, (), False, 1)
    assert update(records, "other", UpdateMemory(TWO, related=(FOUR,))) == UpdatedResult(TWO, ("links",), False, 1)
    assert related(records, ONE) == {ONE: (FOUR,)}
    assert related(records, FOUR) == {FOUR: (ONE, TWO)}
    records.apply([change_operation("forget", ForgetMemory(ONE))])
    assert related(records, FOUR) == {FOUR: (TWO,)}
    assert related(records, ONE) == {}
    update(records, "none", UpdateMemory(FOUR, related=()))
    records.apply([change_operation("restore", RestoreMemory(ONE))])
    assert related(records, FOUR) == {FOUR: (ONE,)}, "what was hidden then was not taken away"


def test_links_are_followed_breadth_first_and_never_through_what_a_session_may_not_see(records: Records) -> None:
    ids = [f"memory:{number:026d}" for number in range(60, 66)]
    for place, memory_id in enumerate(ids):
        scope: Scope = "session" if place == 2 else "project"
        before = (ids[place - 1],) if place else ()
        operation = store_operation(f"chain {place}", f"link {place}", scope=scope)
        records.apply([replace_memory(operation, memory_id, before)])
    records.apply([change_operation("short cut", UpdateMemory(ids[0], related=(ids[1], ids[3])))])
    found = records.follow([ids[0]], SESSION, 2, 10)
    assert {each.id: each.distance for each in found.values()} == {
        ids[0]: 0,
        ids[1]: 1,
        ids[3]: 1,
        ids[2]: 2,
        ids[4]: 2,
    }
    assert [each.distance for each in found.values()] == [0, 1, 1, 2, 2]
    assert related(records, ids[1], OTHER_SESSION, depth=1) == {ids[1]: (ids[0],), ids[0]: (ids[1], ids[3])}
    assert related(records, ids[2], OTHER_SESSION) == {}
    assert len(records.follow([ids[0]], SESSION, 5, 4)) == 4
    assert len(records.follow(ids, SESSION, 0, 10)) == 6


def replace_memory(operation: Operation, memory_id: str, before: tuple[str, ...]) -> Operation:
    assert isinstance(operation.change, StoreMemory)
    change = msgspec.structs.replace(operation.change, memory_id=memory_id, related=before, pinned=True)
    return msgspec.structs.replace(operation, change=change)
