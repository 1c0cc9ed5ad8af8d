"""The description of a session's work, from all spaces in which it left something, and the pages of what it said."""

from __future__ import annotations

from itertools import pairwise

import pytest

from remembrancer.actors.store.records.sessions import BEGINNING, EARLIER
from remembrancer.actors.store.records.sqlite_records import Reader
from remembrancer.actors.store.records.types import USER, Filters
from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.protocol.browsing import ReadTurns, TurnsRead
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.reads import SearchGraph
from remembrancer.protocol.runs import ApplyRun, Edit, LogPromotion, SaveTopics, Topic
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    ForgetMemory,
    ImportMemory,
    MemoryLink,
    PortableMemory,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.records_rig import RecordsRig
from tests.contracts.runs_rig import closing
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, change_operation, store_operation

AT = REQUESTED_AT


def close(rig: RecordsRig, session: str, promotions: int, run_id: str = "run") -> None:
    """Have the consolidator deal with the end of a session, and promote so many of its memories."""
    edits: list[Edit] = [
        LogPromotion(f"memory:{n}", "fact", "session", "project", "importance", session) for n in range(promotions)
    ]
    edits.append(closing(rig.records, session))
    rig.do(ApplyRun(run_id, "project", "session_end", "promote", tuple(edits)), session="")


def test_a_session_s_memories_changes_and_topics_are_its_own(rig: RecordsRig) -> None:
    rig.say("one", "Gateway", tags=("auth", "login"))
    rig.say("two", type="episodic", scope="session", tags=("auth",))
    rig.say("three", session_id=OTHER_SESSION, tags=("secret",))
    described = rig.records.describe_session(SESSION)
    assert (described.started_at, described.changes) == (AT, {})
    assert described.stored_by_type == {"semantic": 1, "episodic": 1}
    assert described.topics == ("auth", "Gateway", "login")


def test_a_session_stores_no_more_than_it_may(factory: SqliteFactory) -> None:
    records = factory.open(session_limit=2)
    forget = ForgetMemory("mem_a")
    operations = [
        *(store_operation(name, f"text {name}", memory_id=f"mem_{name}") for name in "abc"),
        store_operation("d", "text a"),  # what is known already is no more
        store_operation("e", "x", session_id=OTHER_SESSION),  # another session has its own number
        change_operation("f", forget),
        store_operation("g", "text g"),
    ]
    *replies, refused = (outcome.reply for outcome in records.apply([*operations[:2], *operations[3:], operations[2]]))
    assert all(isinstance(each, Applied) for each in replies)
    assert isinstance(refused, InvalidInput)
    assert "max_memories_per_session" in str(refused)


def test_what_a_session_did_in_two_spaces_is_one_and_topics_that_mean_the_same_are_one(rig: RecordsRig) -> None:
    user = rig.beside(USER)
    user.do(StartSession(SESSION), at=10.0)
    rig.do(StartSession(SESSION), at=20.0)
    for number in (1, 2):
        rig.say(f"text {number}", "AuthService", "grpc::uses")
    stored = user.say("a text", scope="user", tags=("auth-service", "tabs"))
    user.do(UpdateMemory(stored, content="another text"))
    both = Reader.of([rig.records, user.records])
    described = both.describe_session(SESSION)
    assert (described.started_at, described.stored_by_type) == (10.0, {"semantic": 3})
    assert (described.changes, described.topics) == ({"updated": 1}, ("AuthService", "grpc", "tabs"))
    assert both.session_start(SESSION) == (10.0, 3)


def test_entities_of_a_topic_that_the_session_names_are_told_as_the_topic(rig: RecordsRig) -> None:
    topic = Topic("light", ("Lamp", "Oil"))
    rig.say("the lamp burns oil", "Lamp", "Oil::burns")
    rig.do(ApplyRun("topics", "project", "maintenance", "promote", (SaveTopics((topic,)),)), session="")
    assert rig.records.describe_session(SESSION).topics == ("light",)
    assert search_graph(SearchGraph(PROJECT, SESSION), View([Source(rig.records)]), AT)[0].topics == (topic,)


def test_the_last_sessions_are_told_of_with_what_the_project_may_see_of_them(rig: RecordsRig) -> None:
    def left(number: int) -> str:
        return f"left by {number} {'x' * 500}"

    for number in range(EARLIER + 2):
        name = f"session:{number}"
        rig.do(StartSession(name), session=name, at=AT + number)
        rig.say(f"kept to itself {number}", scope="session", session_id=name, importance=1.0)
        rig.say(left(number), session_id=name)
        rig.say(f"long {number}", session_id=name, importance=0.9, summary="best")
        rig.do(EndSession(name), session=name, at=AT + number)
        close(rig, name, promotions=number, run_id=f"run {number}")
    rig.do(StartSession(SESSION))
    user = rig.beside(USER).records
    told = Reader.of([rig.records, user]).describe_session(SESSION).earlier
    assert len(told) == EARLIER
    assert {each.status for each in told} == {"completed"}
    for each in told:
        number = int(each.session_id.removeprefix("session:"))
        assert (each.left, each.memories_promoted) == (("best", left(number)[:BEGINNING]), number)
    others = rig.records.describe_session(told[0].session_id).earlier
    assert told[0].session_id not in {each.session_id for each in others}
    assert user.describe_session(SESSION).earlier == (), "the user's space has those of all projects"


def test_the_record_of_a_session_says_what_no_memory_says(rig: RecordsRig) -> None:
    """What it edited, and nothing of what its user said."""
    rig.say("Next: tell nobody about marigold", scope="session")
    rig.say("The cache is warm. Next: measure it with 1 GB", scope="project")
    turns = (Turn("user", "thanks, looks good. Next: write a haiku about autumn", AT),)
    paths = ("/etc/hosts", f"{PROJECT.path}/src/app.py", f"{PROJECT.path}/src/app.py")
    calls = tuple(ToolCall("Edit", AT, {"file_path": path, "old": "marigold"}) for path in paths)
    rig.do(RecordEvents(SESSION, turns, calls))
    rig.do(EndSession(SESSION))
    told = rig.records.describe_session(SESSION).summary
    assert told == "The session of 2023-11-14 22:13 UTC worked on src/app.py, /etc/hosts."


@pytest.mark.parametrize("change", [ForgetMemory, EraseMemory])
def test_a_record_of_release_0_2_0_goes_with_the_memory_that_it_quotes(
    rig: RecordsRig, change: type[ForgetMemory | EraseMemory]
) -> None:
    quoted = rig.say("Next: measure the export of ACME")
    record = PortableMemory(
        id="mem_record",
        content="Where the session stopped. Open: Next: measure the export of ACME.",
        type="episodic",
        kind=SESSION_RECORD,
        scope="project",
        session_id=SESSION,
        created_at=AT,
        updated_at=AT,
        links=(MemoryLink(quoted, "derived_from", 1.0, AT),),
    )
    rig.do(ImportMemory(record))
    rig.do(change(quoted))
    assert rig.records.top(Filters(SESSION), "latest", 9) == []


def test_what_was_said_and_done_is_read_page_by_page_from_the_last_to_the_first(rig: RecordsRig) -> None:
    turns = tuple(Turn("user", f"turn {n}", AT + n) for n in range(7))
    calls = tuple(ToolCall(f"tool {n}", AT + n // 2, {"n": n}, success=n > 2) for n in range(16))
    rig.do(RecordEvents(SESSION, turns, calls))
    told = rig.records.describe_session(SESSION)
    assert (told.turns, told.tool_calls, told.tool_failures) == (7, 16, 3)
    before: tuple[int, int] | None = None
    pages: list[TurnsRead] = []
    while not pages or before is not None:
        page = rig.records.browse(ReadTurns(PROJECT, SESSION, before, 5))
        assert isinstance(page, TurnsRead)
        pages.append(page)
        before = page.earlier
    assert [len(page.turns) + len(page.tool_calls) for page in pages] == [5, 5, 5, 5, 3]
    assert tuple(turn for page in reversed(pages) for turn in page.turns) == turns
    assert tuple(call for page in reversed(pages) for call in page.tool_calls) == calls
    times = [[turn.at for turn in page.turns] + [call.at for call in page.tool_calls] for page in pages]
    assert all(min(later) >= max(earlier) for later, earlier in pairwise(times))
