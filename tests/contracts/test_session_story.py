"""The description of a session's work, from all spaces in which it left something."""

from __future__ import annotations

import pytest

from remembrancer.actors.store.records.sessions import BEGINNING, EARLIER
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.records.types import USER, Filters
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.runs import ApplyRun, CloseSession, LogPromotion
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory, work_of
from tests.operations import (
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)


def entity(name: str) -> EntityRef:
    return EntityRef(name, "component", "uses")


def test_a_session_s_memories_changes_and_topics_are_its_own(records: Records) -> None:
    mine = store_operation("a", "one", tags=("auth", "login"), related_entities=(entity("Gateway"),))
    records.apply(
        [
            mine,
            store_operation("b", "two", type="episodic", scope="session", tags=("auth",)),
            store_operation("c", "three", session_id=OTHER_SESSION, tags=("secret",)),
        ]
    )
    described = records.describe_session(SESSION)
    assert described.started_at == REQUESTED_AT
    assert described.stored_by_type == {"semantic": 1, "episodic": 1}
    assert described.changes == {}
    assert described.topics == ("auth", "Gateway", "login")


def test_a_session_stores_no_more_than_it_may(factory: SqliteFactory) -> None:
    records = factory.open(session_limit=2)
    operations = [store_operation(name, f"text {name}") for name in "abc"]
    *stored, refused = [each.reply for each in records.apply(operations)]
    assert all(isinstance(each, Applied) for each in stored)
    assert isinstance(refused, InvalidInput)
    assert "max_memories_per_session" in str(refused)
    (again, other) = records.apply(
        [store_operation("d", "text a"), store_operation("e", "x", session_id=OTHER_SESSION)]
    )
    assert isinstance(again.reply, Applied), "what is known already is no more"
    assert isinstance(other.reply, Applied), "another session has its own number"
    records.apply([Operation("f", PROJECT, SESSION, REQUESTED_AT, ForgetMemory(memory_id_of(operations[0])))])
    assert isinstance(records.apply([store_operation("g", "text g")])[0].reply, Applied)


def test_what_a_session_did_in_two_spaces_is_one_and_topics_that_mean_the_same_are_one(records: Records) -> None:
    user = Records(records.spaces.file, USER, lambda: REQUESTED_AT)
    started = StartSession(SESSION)
    user.apply([Operation("start", PROJECT, SESSION, 10.0, started)])
    records.apply([Operation("start", PROJECT, SESSION, 20.0, started)])
    for number in (1, 2):
        named = (entity("AuthService"), entity("grpc"))
        records.apply([store_operation(f"p{number}", f"text {number}", related_entities=named)])
    stored = store_operation("u", "a text", scope="user", tags=("auth-service", "tabs"))
    change = UpdateMemory(memory_id_of(stored), content="another text")
    user.apply([stored, change_operation("update", change)])
    described = Reader.of([records, user]).describe_session(SESSION)
    assert described.started_at == 10.0
    assert described.stored_by_type == {"semantic": 3}
    assert described.changes == {"updated": 1}
    assert described.topics == ("AuthService", "grpc", "tabs")
    assert Reader.of([records, user]).session_start(SESSION) == (10.0, 3)


def test_the_registry_the_turns_and_the_tool_calls_of_a_session_are_told(records: Records) -> None:
    events = RecordEvents(
        SESSION,
        turns=(Turn("user", "hello", REQUESTED_AT), Turn("assistant", "hi", REQUESTED_AT)),
        tool_calls=(ToolCall("Bash", REQUESTED_AT), ToolCall("Bash", REQUESTED_AT, success=False)),
    )
    changes: list[Change] = [
        StartSession(SESSION),
        events,
        EndSession(SESSION),
    ]
    for place, change in enumerate(changes):
        records.apply([Operation(f"o{place}", PROJECT, SESSION, REQUESTED_AT, change)])
    ended_at = work_of(records).sessions[0].ended_at
    assert ended_at is not None
    edits = (_promoted(0, SESSION), _promoted(1, SESSION), CloseSession(SESSION, "completed", ended_at))
    run = ApplyRun("run", "project", "session_end", "promote", edits)
    records.apply([Operation("o9", PROJECT, SESSION, REQUESTED_AT, run)])
    told = records.describe_session(SESSION)
    assert (told.status, told.memories_promoted) == ("completed", 2)
    assert told.summary is None, "it worked on no file"
    assert (told.turns, told.tool_calls, told.tool_failures) == (2, 2, 1)


def test_the_last_sessions_are_told_of_with_what_the_project_may_see_of_them(records: Records) -> None:
    for number in range(EARLIER + 2):
        name, at = f"session:{number}", REQUESTED_AT + number
        kept = store_operation(f"kept {number}", "kept to itself", scope="session", session_id=name, importance=1.0)
        left = store_operation(f"left {number}", f"left by {number} {'x' * 500}", session_id=name)
        best = store_operation(f"best {number}", f"long {number}", session_id=name, importance=0.9, summary="best")
        start = Operation(f"start {number}", PROJECT, name, at, StartSession(name))
        records.apply([start, kept, left, best, Operation(f"end {number}", PROJECT, name, at, EndSession(name))])
        (entry,) = list(work_of(records).sessions)
        assert entry.ended_at is not None
        promoted = (_promoted(each, name) for each in range(number))
        close = CloseSession(name, "completed", entry.ended_at)
        run = ApplyRun(f"run {number}", "project", "session_end", "promote", (*promoted, close))
        records.apply([Operation(f"close {number}", PROJECT, "", at, run)])
    records.apply([Operation("now", PROJECT, SESSION, REQUESTED_AT, StartSession(SESSION))])
    user = Records(records.spaces.file, USER, lambda: REQUESTED_AT)
    told = Reader.of([records, user]).describe_session(SESSION).earlier
    assert len(told) == EARLIER
    assert {each.status for each in told} == {"completed"}
    for each in told:
        number = int(each.session_id.removeprefix("session:"))
        assert each.left == ("best", f"left by {number} {'x' * 500}"[:BEGINNING])
        assert each.memories_promoted == number
    others = records.describe_session(told[0].session_id).earlier
    assert told[0].session_id not in {each.session_id for each in others}
    assert user.describe_session(SESSION).earlier == (), "the user's space has those of all projects"


def _promoted(number: int, session_id: str) -> LogPromotion:
    return LogPromotion(f"memory:{number}", "fact", "session", "project", "importance", session_id)


def end(records: Records, session_id: str = SESSION, at: float = REQUESTED_AT) -> None:
    records.apply([Operation(f"end {session_id} {at}", PROJECT, session_id, at, EndSession(session_id))])


def record_of(records: Records, session_id: str = SESSION) -> str | None:
    return records.describe_session(session_id).summary


def edited(*paths: str) -> Operation:
    """What a session edited, which is told after a turn of its user."""
    turns = (Turn("user", "thanks, looks good. Next: write a haiku about autumn", REQUESTED_AT),)
    calls = (ToolCall("Edit", REQUESTED_AT, {"file_path": path, "old": "marigold"}) for path in paths)
    return Operation(f"events {paths}", PROJECT, SESSION, REQUESTED_AT, RecordEvents(SESSION, turns, tuple(calls)))


def test_the_record_of_a_session_says_what_no_memory_says(records: Records) -> None:
    records.apply(
        [
            store_operation("own", "Next: tell nobody about marigold", scope="session"),
            store_operation("told", "The cache is warm. Next: measure it with 1 GB", scope="project"),
            edited("/etc/hosts", f"{PROJECT.path}/src/app.py", f"{PROJECT.path}/src/app.py"),
        ]
    )
    end(records)
    assert record_of(records) == "The session of 2023-11-14 22:13 UTC worked on src/app.py, /etc/hosts."


@pytest.mark.parametrize("change", [ForgetMemory, EraseMemory])
def test_a_record_of_release_0_2_0_goes_with_the_memory_that_it_quotes(
    records: Records, change: type[ForgetMemory | EraseMemory]
) -> None:
    quoted = store_operation("quoted", "Next: measure the export of ACME")
    link = MemoryLink(memory_id_of(quoted), "derived_from", 1.0, REQUESTED_AT)
    record = PortableMemory(
        id=memory_id_of(store_operation("record", "record")),
        content="Where the session stopped. Open: Next: measure the export of ACME.",
        type="episodic",
        kind=SESSION_RECORD,
        scope="project",
        session_id=SESSION,
        created_at=REQUESTED_AT,
        updated_at=REQUESTED_AT,
        links=(link,),
    )
    records.apply([quoted, change_operation("import", ImportMemory(record))])
    records.apply([change_operation("change", change(memory_id_of(quoted)))])
    assert records.top(Filters(SESSION), "latest", 9) == []
