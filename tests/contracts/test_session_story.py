import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from remembrancer.actors.store.records.sqlite_records import Limits, Reader
from remembrancer.actors.store.records.types import USER, Filters
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.actors.store.vectors.near_duplicates import find_near
from remembrancer.protocol.browsing import ReadTurns
from remembrancer.protocol.consolidation import FindNear, ReadMemories
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.runs import AddLink, NoteMaintenance, ReviseMemory
from remembrancer.protocol.session_life import SHELL_SESSION, EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    ImportMemory,
    MemoryLink,
    UpdateMemory,
)
from tests.cases import cases
from tests.contracts.records_rig import MODEL, RecordsRig, apply, work_of
from tests.contracts.runs_rig import CONTENTS, FOUR, ONE, THREE, TWO, RunsRig
from tests.operations import OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, change_operation, store_operation

AT = REQUESTED_AT


def test_a_session_stores_no_more_than_it_may(path: Path) -> None:
    forget = ForgetMemory("mem_a")
    operations = [
        *(store_operation(name, f"text {name}", memory_id=f"mem_{name}") for name in "abc"),
        store_operation("d", "text a"),  # what is known already is no more
        store_operation("e", "x", session_id=OTHER_SESSION),  # another session has its own number
        change_operation("f", forget),
        store_operation("g", "text g"),
    ]
    with RecordsRig(path, limits=Limits(session=2)) as rig:
        outcomes = apply(rig.records, [*operations[:2], *operations[3:], operations[2]])
    *replies, refused = outcomes
    assert all(isinstance(each, Applied) for each in replies)
    assert isinstance(refused, InvalidInput)
    assert "max_memories_per_session" in str(refused)


def test_what_a_session_did_is_its_own_and_one_in_two_spaces(rig: RecordsRig) -> None:
    user = rig.beside(USER)
    user.do(StartSession(SESSION), at=10.0)
    rig.do(StartSession(SESSION), at=20.0)
    for n in (1, 2):
        rig.say(f"text {n}", "AuthService", "grpc::uses")
    rig.say("a draft", type="episodic", scope="session")
    rig.say("theirs", session_id=OTHER_SESSION, tags=("secret",))
    alone = rig.records.describe_session(SESSION)
    assert alone.started_at == 20.0
    user.say("a text", scope="user", tags=("AuthService", "tabs"))
    both = Reader.of([rig.records, user.records])
    described = both.describe_session(SESSION)
    assert (described.started_at, described.stored_by_type) == (10.0, {"semantic": 3, "episodic": 1})
    assert described.topics == ("AuthService", "grpc", "tabs")


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
def test_a_record_of_0_2_0_goes_with_what_it_quotes(rig: RecordsRig, change: type[ForgetMemory | EraseMemory]) -> None:
    quoted = rig.say("Next: measure the export of ACME")
    other = rig.shown(rig.say("Where the session stopped. Open: Next: measure the export of ACME.", type="episodic"))
    links = (MemoryLink(quoted, "derived_from", 1.0, AT),)
    rig.do(EraseMemory(other.id))
    rig.do(ImportMemory(msgspec.structs.replace(other, id="mem_record", kind=SESSION_RECORD, links=links, history=())))
    rig.do(change(quoted))
    assert rig.records.top(Filters(SESSION), "latest", 9) == []


def test_what_was_said_and_done_is_read_page_by_page_from_the_last_to_the_first(rig: RecordsRig) -> None:
    """Also if the clock was set back meanwhile."""
    turns = tuple(Turn("user", f"turn {n}", AT + n) for n in (3, 4, 5, 0, 1, 2, 6))
    calls = tuple(ToolCall(f"tool {n}", AT + n // 2, {"n": n}, success=n > 2) for n in range(16))
    rig.do(RecordEvents(SESSION, turns, calls))
    told = rig.records.describe_session(SESSION)
    assert (told.turns, told.tool_calls, told.tool_failures) == (7, 16, 3)
    pages = [rig.browse(ReadTurns(PROJECT, SESSION, past, 5)) for past in range(0, 23, 5)]
    assert [len(page.turns) + len(page.tool_calls) for page in pages] == [5, 5, 5, 5, 3]
    assert [page.more for page in pages] == [True, True, True, True, False]
    read = [turn for page in reversed(pages) for turn in page.turns]
    assert read == sorted(turns, key=lambda turn: turn.at)
    assert tuple(call for page in reversed(pages) for call in page.tool_calls) == calls
    times = [[turn.at for turn in page.turns] + [call.at for call in page.tool_calls] for page in pages]
    assert all(min(later) >= max(earlier) for later, earlier in itertools.pairwise(times))


# --- The consolidator's reads: pages of memories with vectors, edges of entities, sessions, and what is to be done.
EVERYTHING = ReadMemories(None)


def ids(runs: RunsRig, **fields: Any) -> list[str]:
    return [each.id for each in runs.records.materials(ReadMemories(None, **fields), MODEL).memories]


def test_a_memory_is_read_with_all_that_counts(runs: RunsRig) -> None:
    entity = EntityRef("store", "service", "about")
    change = UpdateMemory(ONE, summary="short", add_tags=("t",), add_entities=(entity,), kind="convention", domain="d")
    runs.do(change)
    links = AddLink(ONE, TWO, "derived_from"), AddLink(THREE, TWO, "supersedes")
    runs.carry_out(*links, ReviseMemory(TWO, "archived", status="archived"))
    runs.records.touch([1, 1], REQUESTED_AT + 50, SESSION, [ONE])
    runs.records.touch([1], REQUESTED_AT + 40, OTHER_SESSION, [ONE])
    runs.records.touch([], REQUESTED_AT + 40, SHELL_SESSION, [ONE])  # a person is not a session
    one, two = runs.records.materials(EVERYTHING, None).memories[:2]
    assert (one.content, one.summary, one.tags, one.entities) == (CONTENTS[ONE], "short", ("t",), (entity,))
    assert (one.kind, one.type, one.domain, one.version, one.derived_from) == ("convention", "semantic", "d", 2, (TWO,))
    assert (one.access_count, one.sessions_used, one.last_accessed_at) == (3, 2, REQUESTED_AT + 40)
    assert (one.created_at, one.happened_at) == (REQUESTED_AT, REQUESTED_AT)
    assert (two.status, two.archived_at, two.last_accessed_at) == ("archived", runs.clock.now, None)
    assert two.superseded_by == (THREE,)
    assert not two.is_derived
    assert not two.pinned


def test_what_is_asked_for_is_all_that_comes(runs: RunsRig) -> None:
    runs.do(UpdateMemory(TWO, importance=0.9, kind="convention"))
    runs.carry_out(ReviseMemory(TWO, "consolidated", status="consolidated"))
    runs.do(ForgetMemory(FOUR))
    other = store_operation("other", "of another", memory_id="mem_other", session_id=OTHER_SESSION, type="procedural")
    apply(runs.records, [other])
    assert ids(runs) == [ONE, TWO, THREE, "mem_other"]
    assert ids(runs, scopes=("session", "user")) == [THREE]
    assert ids(runs, statuses=("active",)) == [ONE, THREE, "mem_other"]
    assert ids(runs, types=("procedural", "episodic")) == ["mem_other"]
    assert ids(runs, session_id=SESSION) == [ONE, TWO, THREE]
    assert ids(runs, memory_ids=(TWO, FOUR, "mem_none")) == [TWO]
    assert ids(runs, kinds=("convention",)) == ids(runs, min_importance=0.9) == [TWO]
    assert ids(runs, after=runs.number(ONE), limit=2) == [TWO, THREE]
    assert ids(runs, newest_first=True, limit=2) == ["mem_other", THREE]
    assert ids(runs, newest_first=True, after=runs.number(THREE)) == [TWO, ONE]


def test_a_vector_is_the_normalised_mean_of_the_passages_of_the_model(runs: RunsRig) -> None:
    runs.embed(ONE, [1, 0, 0, 0], [0, 1, 0, 0])
    runs.embed(THREE, [0, 0, 1, 0])
    read = runs.records.materials(ReadMemories(None, with_vectors=True), MODEL)
    one, two, three, _ = (np.frombuffer(each.vector, dtype="<f4") for each in read.memories)
    assert one == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    assert list(two) == []
    assert list(three) == [0, 0, 1, 0]
    for model in ("another", None):
        assert not any(
            each.vector for each in runs.records.materials(ReadMemories(None, with_vectors=True), model).memories
        )


def near(runs: RunsRig, *memory_ids: str, **fields: Any) -> list[list[tuple[str, float]]]:
    numbers = tuple(runs.records.number_of(each) or 0 for each in memory_ids)
    found = find_near(runs.records, ExactVectors(runs.records, MODEL), FindNear(PROJECT, numbers, 0.9, **fields))
    for material, _ in itertools.chain(*found):
        assert (material.content, material.vector) == (CONTENTS[material.id], b"")
    return [[(material.id, round(cosine, 3)) for material, cosine in row] for row in found]


def test_the_nearest_memories_are_found_for_each_memory(runs: RunsRig) -> None:
    vectors = [1.0, 0, 0, 0], [0.96, 0.28, 0, 0], [0.936, 0, 0.352, 0], [0.0, 1, 0, 0]
    for memory_id, vector in zip(CONTENTS, vectors, strict=True):
        runs.embed(memory_id, vector)
    assert near(runs, ONE, "mem_none") == [[(ONE, 1.0), (TWO, 0.96)], []]
    assert near(runs, ONE, limit=1) == [[(ONE, 1.0)]]
    assert near(runs) == []
    assert near(runs, THREE) == [[(ONE, 0.936)]], "no session's own"


def test_a_page_can_be_of_sessions_that_were_closed_before_a_time(runs: RunsRig) -> None:
    assert ids(runs, closed_before=1e12) == []
    runs.do(StartSession(SESSION))
    runs.do(EndSession(SESSION))
    closed = runs.closing()
    runs.carry_out(closed)
    assert ids(runs, closed_before=closed.ended_at) == []
    assert ids(runs, closed_before=closed.ended_at + 1, scopes=("session",)) == [THREE, FOUR]


def test_memories_of_running_sessions_that_may_be_worth_it_are_offered_for_promotion(runs: RunsRig) -> None:
    def offered(score: float = 0.85) -> list[tuple[str, int]]:
        return list(work_of(runs.records, score=score).promotable)

    assert offered() == []
    runs.do(UpdateMemory(THREE, importance=1.0, confidence=1.0))
    scratch: Any = {"scope": "session", "type": "episodic", "kind": "scratchpad", "importance": 1.0, "confidence": 1.0}
    runs.say("a scratch", **scratch)
    assert offered() == [(THREE, 2)]
    (three,) = runs.records.materials(ReadMemories(None, memory_ids=(THREE,)), None).memories
    assert three.sessions_used == 0, "its own session has changed it"
    for score, importance, confidence, is_offered in cases("session_story", "promotable"):
        runs.do(UpdateMemory(FOUR, importance=importance, confidence=confidence))
        assert (FOUR in dict(offered(score))) is is_offered
    runs.do(EndSession(SESSION))
    assert offered() == []


def test_maintenance_knows_when_it_was_done_and_how_many_sessions_ended_since(runs: RunsRig) -> None:
    work = work_of(runs.records)
    assert (work.maintained_at, work.sessions_since) == (None, 0)
    for place in range(3):
        name = f"session {place}"
        runs.do(StartSession(name))
        runs.do(EndSession(name), at=REQUESTED_AT + place)
        runs.carry_out(runs.closing(name), part=place)
    runs.carry_out(NoteMaintenance(), run_id="closing")
    work = work_of(runs.records)
    assert (work.maintained_at, work.sessions_since) == (REQUESTED_AT, 2)
