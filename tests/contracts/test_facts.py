"""The two times of a fact: when it is true, and when that was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EraseMemory,
    ForgetMemory,
    ImportMemory,
    InvalidateMemory,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.runs_rig import shown
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, change_operation, store_operation

OLD, NEW, ALWAYS = "mem_old", "mem_new", "mem_always"
START, MOVED, LATER = REQUESTED_AT, REQUESTED_AT + 1000, REQUESTED_AT + 2000


def do(factory: SqliteFactory, records: Records, at: float, change: Change, session_id: str = SESSION) -> Any:
    """The result of a change that is asked for and recorded at a time, or its refusal."""
    factory.clock.now = at
    name = f"{type(change).__name__} {at} {session_id}"
    (outcome,) = records.apply([change_operation(name, change, requested_at=at, session_id=session_id)])
    return outcome.reply.result if isinstance(outcome.reply, Applied) else outcome.reply


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    made = factory.open()
    factory.clock.now = START
    made.apply(
        [
            store_operation("old", "the cache is Redis", memory_id=OLD, valid_from=START - 500),
            store_operation("always", "the cache has a port", memory_id=ALWAYS),
        ]
    )
    factory.clock.now = MOVED
    made.apply([store_operation("new", "the cache is Valkey", memory_id=NEW, requested_at=MOVED)])
    return made


def valid(records: Records, at: float, session_id: str = SESSION) -> list[str]:
    """Ids of what is valid at a time by what is known now, the last to become so first."""
    filters = Filters(session_id, valid_at=at)
    numbers = records.top(filters, "valid", 10)
    loaded = records.load(numbers, filters)
    return [loaded[number].id for number in numbers]


def known(records: Records, at: float, as_of: float, session_id: str = SESSION, project: str = PROJECT.id) -> list[str]:
    return [each.id for each in records.known_as_of(session_id, project, at, as_of, 10)]


def test_a_fact_is_valid_between_its_times_and_where_none_are_given_since_it_happened_or_was_stored(
    records: Records,
) -> None:
    assert valid(records, START - 501) == []
    assert valid(records, START - 500) == [OLD]
    assert valid(records, START) == [ALWAYS, OLD]
    assert valid(records, MOVED) == [NEW, ALWAYS, OLD]
    records.apply([store_operation("event", "it fell", memory_id="mem_event", type="episodic", occurred_at=START - 90)])
    assert valid(records, START - 90) == ["mem_event", OLD]
    assert records.matching(Filters(SESSION, valid_at=START - 90), 10) is not None


@pytest.mark.parametrize(
    "undo",
    [RestoreMemory(OLD), RestoreMemory(OLD, version=1), UpdateMemory(OLD, cleared=("valid_until",))],
)
def test_to_invalidate_is_undone_by_restoring_and_by_taking_the_end_away(
    factory: SqliteFactory, records: Records, undo: Change
) -> None:
    do(factory, records, LATER, InvalidateMemory(OLD, "we moved", NEW))
    do(factory, records, LATER + 1, undo)
    old = shown(records, OLD)
    assert (old.valid_until, old.invalid_reason, old.version) == (None, None, 3)
    assert shown(records, NEW).links == ()
    assert valid(records, LATER + 1) == [NEW, ALWAYS, OLD]


def test_what_is_not_seen_is_neither_invalidated_nor_named_as_what_replaced_a_fact(
    factory: SqliteFactory, records: Records
) -> None:
    own = store_operation("own", "my cache is Redis", memory_id="mem_own", scope="session")
    records.apply([own])
    refused = do(factory, records, LATER, InvalidateMemory("mem_own"), OTHER_SESSION)
    assert isinstance(refused, NotFound)
    for session, newer in ((OTHER_SESSION, "mem_own"), (SESSION, "mem_none"), (SESSION, OLD), (SESSION, "mem_own")):
        refused = do(factory, records, LATER, InvalidateMemory(OLD, "no", newer), session)
        assert isinstance(refused, InvalidInput), "a session's own replaces nothing that others see"
        assert refused.to_failure().field == "replaced_by"
    do(factory, records, LATER, ForgetMemory(NEW))
    assert isinstance(do(factory, records, LATER, InvalidateMemory(NEW)), InvalidInput)
    assert shown(records, OLD).valid_until is None


def test_what_was_known_at_a_time_is_without_later_records_and_with_what_was_forgotten_later(
    factory: SqliteFactory, records: Records
) -> None:
    do(factory, records, MOVED + 10, UpdateMemory(ALWAYS, content="the cache has two ports", valid_from=START - 800))
    do(factory, records, LATER, InvalidateMemory(OLD, "we moved", NEW))
    do(factory, records, LATER + 10, ForgetMemory(ALWAYS))
    assert known(records, LATER + 20, START) == [ALWAYS, OLD]
    assert known(records, LATER + 20, MOVED) == [NEW, ALWAYS, OLD]
    assert known(records, LATER + 20, LATER - 1) == [NEW, OLD, ALWAYS], "what became valid last comes first"
    assert known(records, LATER + 20, LATER) == [NEW, ALWAYS], "its end is known from then on"
    assert known(records, LATER + 20, LATER + 10) == [NEW]
    assert known(records, START - 700, LATER) == [ALWAYS]
    assert known(records, START - 700, MOVED) == [], "that it was true so early was not known yet"
    first, *_ = records.known_as_of(SESSION, PROJECT.id, START, MOVED, 10)
    assert (first.id, first.content, first.version) == (ALWAYS, "the cache has a port", 1)
    do(factory, records, LATER + 30, RestoreMemory(ALWAYS))
    assert known(records, LATER + 40, LATER + 20) == [NEW]
    assert known(records, LATER + 40, LATER + 30) == [NEW, ALWAYS]
    do(factory, records, LATER + 50, EraseMemory(OLD))
    assert known(records, LATER + 40, MOVED) == [NEW, ALWAYS], "what was erased was never there"


def test_what_was_a_sessions_own_then_is_shown_to_it_alone(factory: SqliteFactory, records: Records) -> None:
    factory.clock.now = MOVED
    records.apply([store_operation("own", "a draft", memory_id="mem_own", scope="session", requested_at=MOVED)])
    do(factory, records, LATER, PromoteMemory("mem_own", "project"))
    for at, session, seen in ((MOVED, SESSION, True), (MOVED, OTHER_SESSION, False), (LATER, OTHER_SESSION, True)):
        assert ("mem_own" in known(records, LATER, at, session)) == seen
    taken = PortableMemory(
        **{name: getattr(shown(records, OLD), name) for name in PortableMemory.__struct_fields__}
        | {"id": "mem_users", "scope": "user", "source_project": "p_1"}
    )
    assert do(factory, records, LATER + 1, ImportMemory(taken)).outcome == "imported"
    for project, seen in (("p_1", True), (PROJECT.id, False)):
        assert ("mem_users" in known(records, LATER, START, project=project)) == seen, "a draft is its project's"


def test_an_export_carries_both_times_metadata_and_reason(
    factory: SqliteFactory, records: Records, tmp_path: Path
) -> None:
    elsewhere = type(factory)(tmp_path / "elsewhere")
    do(factory, records, MOVED, UpdateMemory(OLD, metadata={"source": {"page": 3}}))
    do(factory, records, LATER, InvalidateMemory(OLD, "we moved", NEW))
    before, other = shown(records, OLD), elsewhere.open()
    assert do(elsewhere, other, LATER + 1, ImportMemory(before)).outcome == "imported"
    after = other.portable(OLD, None)
    assert after == before
    for at, as_of in ((START, START), (LATER, LATER - 1), (LATER, LATER)):
        assert known(other, at, as_of) == [each for each in known(records, at, as_of) if each == OLD]
    elsewhere.close()
