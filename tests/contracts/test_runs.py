"""The promises of a run: applied whole or not at all, nothing lost by it, undone as one, and pruned in the end."""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.background import KEPT_VERSIONS
from remembrancer.actors.store.records.memory_rows import archived_since
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER, Filters, NearDuplicate, Phrase
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.protocol.browsing import FindPairs
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    ChainLink,
    DropOrphans,
    Edit,
    LogPromotion,
    NewMemory,
    NotePattern,
    Prune,
    ReviseMemory,
    RunResult,
    SaveTopics,
    Skipped,
    Topic,
    UndoneResult,
    UndoRun,
)
from remembrancer.protocol.session_life import SHELL_SESSION, EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ForgetMemory,
    ImportMemory,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)
from tests.contracts.dying_process import APPLIED, carry_out_and_die
from tests.contracts.records_factories import SqliteFactory, pending, work_of, writer_of
from tests.contracts.runs_rig import (
    CONTENTS,
    FOUR,
    ONE,
    STEP,
    SUMMARY,
    THREE,
    TWO,
    carry_out,
    closing,
    consolidating,
    number,
    run_operation,
    shown,
    stored,
    undo,
    undo_operation,
)
from tests.forked import run_forked
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, REQUESTED_AT, SESSION, change_operation

EVERYTHING = Filters(SESSION)


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    made = factory.open()
    made.apply(stored())
    return made


def reachable(records: Records) -> set[str]:
    found = {number for word in WORDS for number in records.keyword_hits([Phrase(word)], EVERYTHING, 100)}
    return {record.content for record in records.load(sorted(found), EVERYTHING).values()}


WORDS = ("lantern", "candle", "torch", "bottle", "lights")


def whole(records: Records) -> list[PortableMemory]:
    """Everything that a session can be shown of the memories, but for what any new version differs in, and accesses."""
    memories = [records.portable(memory_id, None) for memory_id in CONTENTS]
    same: Any = {"version": 0, "updated_at": 0, "history": (), "access_count": 0, "last_accessed_at": None}
    return [msgspec.structs.replace(each, **same) for each in memories if each is not None]


# Carrying out
def test_a_run_does_all_that_it_says(records: Records) -> None:
    assert carry_out(records, *consolidating()) == RunResult("run", 9)
    summary = shown(records, SUMMARY)
    assert (summary.content, summary.kind, summary.type) == ("lights of several colours", "fact", "semantic")
    assert (summary.scope, summary.history[0].change, summary.history[0].details) == (
        *("project", "stored"),
        {"run": "run"},
    )
    assert [(link.target, link.relation) for link in summary.links] == [(ONE, "derived_from"), (TWO, "derived_from")]
    assert records.number_of(SUMMARY) in pending(records)
    one, two, three, four = (shown(records, memory_id) for memory_id in CONTENTS)
    step = msgspec.structs.replace(STEP, run_id="run")
    assert (one.status, one.tags, one.version) == ("consolidated", ("light",), 2)
    assert (two.importance, two.confidence, two.access_count, two.promotion_chain) == (0.75, 0.55, 1, (step,))
    assert (three.status, three.scope) == ("promoted", "session")
    assert (four.scope, four.promotion_chain[0].session_id, four.history[-1].change) == ("project", SESSION, "promoted")
    assert records.portable(FOUR, OTHER_SESSION) is not None
    assert two.history[-1].details == {"run": "run", "score": 0.75, "fields": ["importance", "confidence"]}
    logs = [records.surroundings(each, "", None).promotions for each in (TWO, FOUR)]
    assert [[(entry.score, entry.merged_into) for entry in log] for log in logs] == [[(0.75, TWO)], [(0.875, None)]]


def test_what_changed_since_it_was_looked_at_is_passed_over_with_all_that_hangs_on_it(records: Records) -> None:
    records.apply([change_operation("update", UpdateMemory(TWO, importance=0.25))])
    records.apply([change_operation("forget", ForgetMemory(ONE))])
    promoted = LogPromotion(THREE, "observation", "session", "project", "importance", SESSION, merged_into=TWO)
    edits: list[tuple[Edit, str]] = [
        (ReviseMemory(TWO, "merged", 1, importance=1.0), "it has been changed since: its version is 2, not 1"),
        (ReviseMemory(THREE, "promoted", status="promoted", only_with=TWO), f"{TWO} was passed over"),
        (promoted, f"{THREE} was passed over"),
        (AddLink(THREE, TWO, "supports"), f"{THREE} was passed over"),
        (NotePattern(TWO, PROJECT.id), f"{TWO} was passed over"),
        (ReviseMemory(ONE, "archived", status="archived"), "it is forgotten"),
        (ReviseMemory("mem_gone", "archived", status="archived"), "it is not here any more"),
        (ReviseMemory(FOUR, "promoted", scope="project"), ""),
        (ReviseMemory(FOUR, "promoted", scope="project"), "its scope is project already"),
    ]
    result = carry_out(records, *(edit for edit, _ in edits))
    assert result.edits == 1
    assert [(each.reason, each.edit) for each in result.skipped] == [
        (why, type(edit).__name__) for edit, why in edits if why
    ]
    assert [each.memory_id for each in result.skipped] == [TWO, *[THREE] * 3, TWO, ONE, "mem_gone", FOUR]
    assert (shown(records, TWO).importance, shown(records, THREE).status) == (0.25, "active")
    around = records.surroundings(TWO, "", None)
    assert (around.promotions, around.observed_in) == ((), ())


def test_a_memory_that_a_run_makes_has_its_entities_and_is_found_by_its_summary(records: Records) -> None:
    named = (("store", "service", "about"), ("launcher", "service", "starts"))
    fields: dict[str, Any] = {"tags": ("a", "a"), "entities": named, "metadata": {"sources": 2}, "occurred_at": 5.0}
    new = NewMemory("mem_new", "what they say", "procedure", "session", SESSION, "in short: lights", **fields)
    carry_out(records, AddMemory(new))
    made = shown(records, "mem_new")
    assert (made.type, made.tags, made.metadata, made.occurred_at) == ("procedural", ("a",), {"sources": 2}, 5.0)
    assert made.related_entities[1] == EntityRef("launcher", "service", "starts")
    assert "what they say" in reachable(records)
    assert records.portable("mem_new", OTHER_SESSION) is None


def test_orphans_go_when_they_are_old_and_topics_are_replaced(factory: SqliteFactory, records: Records) -> None:
    named = UpdateMemory(ONE, add_entities=(EntityRef("kept", "service", "about"),))
    records.apply([change_operation("name", named)])
    assert isinstance(factory, SqliteFactory)
    records_file = factory.open()
    with records_file._file.transaction() as connection:  # no way of ours leaves orphans: earlier releases might have
        connection.executemany(
            "INSERT INTO entities (space, name, type, created_at, key) VALUES (@SPACE, ?, 'service', ?, ?)",
            [("old", 1.0, "old"), ("new", 100.0, "new")],
        )
    topics = SaveTopics((Topic("stores", ("a", "b")), Topic("lights", ("c",))))
    assert carry_out(records, DropOrphans(50.0), topics) == RunResult("run", 2, orphans=1)
    assert Graph(records.spaces, "").summary([records.space], None, 1).topics == topics.topics
    carry_out(records, SaveTopics(topics.topics[1:]), part=1)
    assert Graph(records.spaces, "").summary([records.space], None, 1).topics == topics.topics[1:]


def test_a_session_is_closed_if_its_end_is_the_one_dealt_with(factory: SqliteFactory, records: Records) -> None:
    records.apply([change_operation("start", StartSession(SESSION)), change_operation("end", EndSession(SESSION))])
    closed = closing(records)
    assert closed.ended_at == factory.clock.now
    promoted = LogPromotion(ONE, "fact", "session", "project", "importance", SESSION)
    carry_out(records, promoted, msgspec.structs.replace(promoted, memory_id=TWO), run_id="promotion")
    assert carry_out(records, msgspec.structs.replace(closed, ended_at=1.0)).edits == 0
    assert carry_out(records, closed, part=1).edits == 1
    assert list(work_of(records).sessions) == []
    told = records.describe_session(SESSION)
    assert (told.status, told.memories_promoted) == ("completed", 2)


def test_only_what_the_session_itself_writes_has_its_end_dealt_with_again(records: Records) -> None:
    records.apply([change_operation("end", EndSession(SESSION))])
    closed = closing(records)
    carry_out(records, closed)
    records.touch([number(records, ONE)], 5.0, SESSION)
    carry_out(records, *consolidating(), session_id=SESSION, part=1)
    undo(records, session_id="")
    undo(records, session_id=SESSION, name="undo again")
    records.apply([change_operation("promote", PromoteMemory(FOUR, "project"), session_id="")])
    assert list(work_of(records).sessions) == []
    records.apply([change_operation("late", TagMemory(ONE, ("late",)))])
    assert [session.ended_at for session in work_of(records).sessions] == [None], "it goes on"
    carry_out(records, closed, run_id="another")
    assert [session.status for session in work_of(records).sessions] == ["active"]
    records.apply([change_operation("end again", EndSession(SESSION))])
    carry_out(records, closing(records), run_id="once more")
    assert list(work_of(records).sessions) == []


@pytest.mark.parametrize("before", ["completed", "abandoned"])
@pytest.mark.parametrize("after", ["completed", "abandoned"])
def test_a_session_at_work_after_its_end_is_not_abandoned_for_it(records: Records, before: Any, after: Any) -> None:
    records.apply([change_operation("end", EndSession(SESSION, before))])
    records.apply([change_operation("late", RecordEvents(SESSION, turns=(Turn("user", "One more thing", 5.0),)))])
    assert [session.ended_at for session in work_of(records).sessions] == [None]
    again = change_operation("end again", EndSession(SESSION, after), requested_at=REQUESTED_AT + 2)
    records.apply([again])
    ending = "abandoned" if before == after == "abandoned" else "completed"
    assert [(each.ended_at, each.ending) for each in work_of(records).sessions] == [(REQUESTED_AT + 2, ending)]


def test_a_summary_is_found_by_what_it_says_and_not_by_what_it_was_only_made_of(records: Records) -> None:
    summary = NewMemory(SUMMARY, f"{CONTENTS[ONE]}\nlights of several colours", "fact", "project", SESSION, "lights")
    carry_out(records, AddMemory(summary), AddLink(SUMMARY, ONE, "derived_from"), AddLink(SUMMARY, TWO, "derived_from"))
    one, two, made = (number(records, each) for each in (ONE, TWO, SUMMARY))
    assert records.summaries_of([one, two]) == {made: [one]}
    carry_out(records, AddLink(TWO, ONE, "supports"), run_id="same")
    assert records.summaries_of([one, two]) == {made: [one, two]}, "or by another that says the same"
    records.apply([change_operation("forget", ForgetMemory(SUMMARY))])
    assert records.summaries_of([one, two]) == {}


def test_no_pair_of_one_summary_waits_for_a_decision_and_no_summary_replaces_another_memory(records: Records) -> None:
    def judge(later: str, earlier: str) -> None:
        pair = number(records, later), number(records, earlier)
        records.link_similar([NearDuplicate(*pair, 0.9, relation="contradicts")])

    def waiting() -> set[tuple[str, str]]:
        pairs: Any = records.browse(FindPairs(PROJECT, SESSION))
        return {(each.newer.id, each.older.id) for each in pairs}

    judge(TWO, ONE)
    judge(THREE, ONE)
    assert waiting() == {(TWO, ONE), (THREE, ONE)}
    summary = NewMemory(SUMMARY, f"{CONTENTS[ONE]}\n{CONTENTS[TWO]}", "fact", "project", SESSION, "lights")
    marks = [ReviseMemory(each, "consolidated", status="consolidated", only_with=SUMMARY) for each in (ONE, TWO)]
    links = [AddLink(SUMMARY, each, "derived_from") for each in (ONE, TWO)]
    carry_out(records, AddMemory(summary), *marks, *links, at=REQUESTED_AT + 1)
    judge(SUMMARY, THREE)
    assert waiting() == {(THREE, ONE)}
    undo(records)
    assert waiting() == {(TWO, ONE), (THREE, ONE)}


# Undoing
def test_undoing_leaves_everything_as_it_was_and_is_done_once(records: Records) -> None:
    before = whole(records)
    carry_out(records, *consolidating())
    carry_out(records, NotePattern(ONE, PROJECT.id), AddLink(ONE, TWO, "supports"), part=1)
    undone = undo(records)
    assert set(undone.memories) == {SUMMARY, *CONTENTS}
    assert undone.skipped == ()
    assert whole(records) == before
    summary = shown(records, SUMMARY)
    assert (summary.forgotten_reason, summary.links) == ("undone: run", ())
    assert summary.forgotten_at is not None
    assert [entry.change for entry in shown(records, FOUR).history] == ["stored", "promoted", "undone"]
    assert records.portable(FOUR, OTHER_SESSION) is None
    assert records.surroundings(FOUR, "", None).promotions == records.surroundings(TWO, "", None).promotions == ()
    again = undo(records, name="undo again")
    assert again.already
    assert [shown(records, memory_id).version for memory_id in CONTENTS] == [3, 3, 3, 3]


def test_what_was_changed_since_stays_and_is_named(records: Records) -> None:
    carry_out(records, *consolidating())
    changes = [UpdateMemory(ONE, importance=1.0), UpdateMemory(SUMMARY, content="lights, said better")]
    records.apply([change_operation(f"change {n}", change) for n, change in enumerate(changes)])
    undone = undo(records)
    assert {skipped.memory_id for skipped in undone.skipped} == {ONE, SUMMARY}
    assert shown(records, SUMMARY).forgotten_at is None
    assert (shown(records, ONE).status, shown(records, ONE).importance) == ("active", 1.0), "nothing stands for it"
    assert shown(records, THREE).status == "active"


def test_runs_that_are_undone_in_the_other_order_leave_nothing_behind(records: Records) -> None:
    before = whole(records)
    carry_out(records, *consolidating())
    carry_out(records, ReviseMemory(FOUR, "merged", importance=0.75), ReviseMemory(TWO, "merged"), run_id="second")
    carry_out(records, ReviseMemory(SUMMARY, "archived", status="archived"), run_id="third")
    for run_id in ("third", "second", "run"):
        assert undo(records, run_id, name=f"undo {run_id}").skipped == ()
    assert whole(records) == before
    assert shown(records, SUMMARY).forgotten_reason == "undone: run"
    four = {each.id: each for each in records.materials(ReadMemories(None), None).memories}[FOUR]
    assert four.undone == "promoted"


def test_what_stood_behind_a_near_duplicate_is_active_again_when_that_says_something_else(records: Records) -> None:
    records.link_similar([NearDuplicate(number(records, TWO), number(records, ONE), 0.97)])
    carry_out(records, ReviseMemory(TWO, "consolidated", status="consolidated"))
    records.apply([change_operation("tag", TagMemory(ONE, ("red",)))])
    assert shown(records, TWO).status == "consolidated"
    records.apply([change_operation("reword", UpdateMemory(ONE, content="a red ship"))])
    assert (shown(records, TWO).status, shown(records, TWO).history[-1].change) == ("active", "released")


def test_the_last_part_of_a_run_that_was_undone_meanwhile_only_closes_its_session(records: Records) -> None:
    records.apply([change_operation("end", EndSession(SESSION))])
    closed = closing(records)
    carry_out(records, ReviseMemory(ONE, "consolidated", status="consolidated"))
    undo(records, session_id="")
    last = carry_out(records, ReviseMemory(TWO, "consolidated", status="consolidated"), closed, part=1)
    assert (last.edits, last.skipped) == (1, (Skipped(TWO, "the run was undone", "ReviseMemory"),))
    assert list(work_of(records).sessions) == []


def test_a_run_that_is_unknown_or_about_another_sessions_memories_cannot_be_undone(records: Records) -> None:
    carry_out(records, ReviseMemory(THREE, "consolidated", status="consolidated"))
    for operation in (undo_operation("one", "none"), undo_operation("two", session_id=OTHER_SESSION)):
        assert isinstance(records.apply([operation])[0].reply, NotFound)
    assert shown(records, THREE).status == "consolidated"
    assert undo(records, session_id=SESSION).memories == (THREE,)


def test_an_import_is_undone_by_a_persons_shell_alone(records: Records) -> None:
    memory = msgspec.structs.replace(shown(records, THREE), id="mem_imported")
    records.apply([change_operation("import", ImportMemory(memory, run_id="run:import-1"))])
    assert isinstance(records.apply([undo_operation("one", "run:import-1")])[0].reply, NotFound)
    assert undo(records, "run:import-1", name="two", session_id=SHELL_SESSION).memories == ("mem_imported",)
    assert shown(records, "mem_imported").forgotten_at is not None


def test_what_a_run_did_to_the_users_memories_is_undone_by_its_project_alone(records: Records) -> None:
    step = ChainLink("project", TWO, 5.0, "merged", source_project=PROJECT.id)
    carry_out(records, ReviseMemory(ONE, "merged", importance=0.75, chain=step), place="user")
    undoing = UndoRun("run", "user", if_there=True)
    for name, project, change in (
        ("theirs", OTHER_PROJECT, undoing),
        ("none", PROJECT, UndoRun("unknown", "user", if_there=True)),
        ("mine", PROJECT, undoing),
    ):
        reply = records.apply([change_operation(name, change, project=project)])[0].reply
        assert isinstance(reply, Applied)
        assert isinstance(reply.result, UndoneResult)
        assert (reply.result.found, reply.result.memories) == ((True, (ONE,)) if name == "mine" else (False, ()))
    assert shown(records, ONE).importance == 0.5


# Whatever runs there are
memory_ids = st.sampled_from([*CONTENTS, SUMMARY])
statuses = st.none() | st.sampled_from(["active", "consolidated", "archived", "promoted"])
levels = st.none() | st.sampled_from([0.25, 0.5, 1.0])
edits = st.one_of(
    st.builds(
        ReviseMemory,
        memory_id=memory_ids,
        change=st.just("merged"),
        expected_version=st.none() | st.integers(1, 3),
        status=statuses,
        scope=st.none() | st.just("project"),
        kind=st.none() | st.sampled_from(["fact", "procedure"]),
        summary=st.none() | st.sampled_from(["short", "shorter"]),
        importance=levels,
        confidence=levels,
        valid_until=st.none() | st.just(9.0),
        tags=st.lists(st.sampled_from(["red", "blue"]), max_size=2).map(tuple),
        accessed=st.booleans(),
        chain=st.none() | st.just(STEP),
        only_with=st.none() | memory_ids,
    ),
    st.builds(
        AddMemory,
        st.builds(NewMemory, memory_ids, st.just("more lights"), st.just("fact"), st.just("project"), st.just(SESSION)),
    ),
    st.builds(AddLink, memory_ids, memory_ids, st.sampled_from(["derived_from", "contradicts", "similar_to"])),
    st.builds(NotePattern, memory_ids, st.just(PROJECT.id)),
)
runs = st.lists(edits, min_size=1, max_size=5).map(tuple)
changes = st.one_of(
    st.builds(UpdateMemory, memory_ids, importance=levels, summary=st.none() | st.just("said")),
    st.builds(RestoreMemory, memory_ids, st.integers(1, 4)),
)
steps = st.lists(runs | changes | st.integers(0, 6), max_size=10)


@given(steps)
def test_no_run_or_undoing_takes_content_out_of_reach(planned: list[tuple[Edit, ...] | UpdateMemory | int]) -> None:
    with TemporaryDirectory() as directory:
        factory = SqliteFactory(Path(directory))
        records = factory.open()
        try:
            records.apply(stored())
            for place, step in enumerate(planned):
                if isinstance(step, tuple):
                    operation = run_operation(f"op{place}", *step, run_id=f"run{place}")
                elif isinstance(step, int):
                    operation = undo_operation(f"op{place}", f"run{step}")
                else:
                    operation = change_operation(f"op{place}", step)
                operation = msgspec.structs.replace(operation, requested_at=REQUESTED_AT + place)
                before = operation.change, [shown(records, memory_id).version for memory_id in CONTENTS]
                reply = records.apply([operation])[0].reply
                assert reachable(records) >= set(CONTENTS.values()), before
                if isinstance(operation.change, ApplyRun):
                    assert isinstance(reply, Applied)
                    assert isinstance(reply.result, RunResult)
                    assert reply.result.edits + len(reply.result.skipped) == len(operation.change.edits)
        finally:
            factory.close()


@given(st.lists(runs, min_size=1, max_size=3), st.lists(runs, max_size=2))
def test_what_is_undone_at_once_is_as_before(parts: list[tuple[Edit, ...]], earlier: list[tuple[Edit, ...]]) -> None:
    with TemporaryDirectory() as directory:
        factory = SqliteFactory(Path(directory))
        records = factory.open()
        try:
            records.apply(stored())
            for place, run in enumerate(earlier):
                carry_out(records, *run, run_id=f"earlier{place}")
            before = whole(records)
            for part, run in enumerate(parts):
                linked = [
                    each.source for each in run if isinstance(each, AddLink)
                ]  # links go with their source's version
                versions = [ReviseMemory(each, "merged", tags=(f"part {part}",)) for each in linked]
                carry_out(records, *versions, *run, part=part, at=REQUESTED_AT + 1)
            undone = undo(records, session_id="")
            assert undone.skipped == ()
            assert whole(records) == before
        finally:
            factory.close()


# A process that dies
def test_a_process_that_dies_between_two_statements_leaves_the_run_undone_or_whole(factory: SqliteFactory) -> None:
    records = factory.open()
    records.apply(stored())
    before = whole(records)
    records.close()
    deaths = 0
    for statements in range(1, 400, 7):
        status = run_forked(carry_out_and_die, factory.path, statements)
        records = factory.open()
        if status == APPLIED:
            break
        assert status == -signal.SIGKILL
        deaths += 1
        assert whole(records) == before
        assert records.portable(SUMMARY, None) is None
        assert records.surroundings(FOUR, "", None).promotions == ()
        records.close()
    assert deaths > 3
    assert shown(records, SUMMARY).forgotten_at is None
    assert [shown(records, memory_id).version for memory_id in CONTENTS] == [2, 2, 2, 2]


# --- The groups of a run: what it makes does not outlive its sources, and what was undone is known for it.
def summing_up(*sources: str, version: int = 1) -> list[Edit]:
    memory = NewMemory(SUMMARY, "several lights", "fact", "project", "session:s")
    return [
        AddMemory(memory, tuple((source, version) for source in sources)),
        *(
            ReviseMemory(source, "consolidated", version, status="consolidated", only_with=SUMMARY)
            for source in sources
        ),
        *(AddLink(SUMMARY, source, "derived_from") for source in sources),
    ]


@pytest.mark.parametrize("change", [ForgetMemory(TWO, "private"), UpdateMemory(TWO, content="something else")])
def test_no_summary_is_made_of_what_is_gone_or_changed(records: Records, change: ForgetMemory | UpdateMemory) -> None:
    records.apply([change_operation("meanwhile", change)])
    result = carry_out(records, *summing_up(ONE, TWO, THREE))
    assert result.edits == 0
    assert {skipped.memory_id for skipped in result.skipped} == {SUMMARY, ONE, TWO, THREE}
    assert records.portable(SUMMARY, None) is None
    assert [shown(records, each).status for each in CONTENTS] == ["active"] * 4


def test_a_summary_that_is_there_or_was_forgotten_marks_nothing_again(records: Records) -> None:
    carry_out(records, *summing_up(ONE))
    records.apply([change_operation("forget", ForgetMemory(SUMMARY))])
    assert carry_out(records, *summing_up(TWO), run_id="other").edits == 0
    assert shown(records, TWO).status == "active"


def read(records: Records) -> dict[str, Material]:
    return {each.id: each for each in records.materials(ReadMemories(None), None).memories}


def test_what_was_undone_is_known_until_the_memory_changes_again(records: Records) -> None:
    carry_out(records, *summing_up(ONE, TWO))
    carry_out(records, ReviseMemory(THREE, "archived", status="archived"), run_id="other")
    assert {each.undone for each in read(records).values()} == {""}
    undo(records)
    undo(records, "other", name="undo other")
    assert {memory_id: each.undone for memory_id, each in read(records).items() if each.undone} == {
        ONE: "consolidated",
        TWO: "consolidated",
        THREE: "archived",
    }
    records.apply([change_operation("update", UpdateMemory(ONE, importance=0.75))])
    assert {memory_id for memory_id, each in read(records).items() if each.undone} == {TWO, THREE}


# --- An archived memory that is used again is active again.
@pytest.fixture
def archived(factory: SqliteFactory) -> Records:
    made = factory.open()
    made.apply(stored())
    carry_out(made, *(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    return made


def test_an_access_makes_an_archived_memory_active_and_its_history_says_so(archived: Records) -> None:
    archived.touch([number(archived, ONE)] * 2, 5e9, OTHER_SESSION)
    one = shown(archived, ONE)
    assert (one.status, one.version, one.updated_at, one.access_count) == ("active", 3, 5e9, 2)
    last = one.history[-1]
    assert (last.change, last.session_id, last.details["fields"]) == ("revived", "", ["status"])
    assert last.record.status == "active"
    (material,) = archived.materials(ReadMemories(None, memory_ids=(ONE,)), None).memories
    assert material.archived_at is None
    assert shown(archived, TWO).status == "archived", "only what was used"


def test_the_time_of_archiving_is_known_in_spite_of_later_changes(factory: SqliteFactory, archived: Records) -> None:
    archived_at = archived_since(shown(archived, ONE))
    assert archived_at == factory.clock.now
    later = change_operation("tag", TagMemory(ONE, add=("later",)), requested_at=REQUESTED_AT + 1000)
    archived.apply([later])
    assert archived_since(shown(archived, ONE)) == archived_at
    assert archived_since(shown(archived, "mem_three")) is None


# --- The pruning of what grows with each session: it goes when nobody needs it any more, and nothing else does.
TURNS = tuple(Turn("user", f"turn {n}", float(n)) for n in range(5))
CALLS = (ToolCall("Bash", 1.5), ToolCall("Read", 2.5))


@pytest.fixture
def used(factory: SqliteFactory) -> Records:
    """A session that is closed and one that runs, each with turns and tool calls; and a run."""
    made = factory.open()
    made.apply(stored())
    for session in (SESSION, OTHER_SESSION):
        made.apply([change_operation(f"start {session}", StartSession(session), session_id=session)])
        events = RecordEvents(session, TURNS, CALLS)
        made.apply([change_operation(f"events {session}", events, session_id=session)])
    made.apply([change_operation("end", EndSession(SESSION))])
    carry_out(made, closing(made), run_id="closing")
    carry_out(made, *(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    return made


def nothing(limit: int = 1000, **fields: float) -> Prune:
    """To remove what is older than no time at all, but for what is given."""
    return Prune(**({"sessions_before": 0.0, "runs_before": 0.0, "operations_before": 0.0} | fields), limit=limit)


def pruned(used: Records, edit: Prune) -> int:
    """The number of rows removed, in as many transactions as it takes."""
    total, part = 0, 0
    while True:
        removed = carry_out(used, edit, run_id="pruning", name=f"prune {edit} {part}", at=REQUESTED_AT + 10).pruned
        assert removed <= edit.limit
        total, part = total + removed, part + 1
        if removed < edit.limit:
            return total


def test_turns_and_tool_calls_of_sessions_closed_long_ago_go(factory: SqliteFactory, used: Records) -> None:
    assert pruned(used, nothing(sessions_before=factory.clock.now)) == 0, "not before the time"
    edit = nothing(sessions_before=factory.clock.now + 1, limit=2)
    assert pruned(used, edit) == 7
    assert pruned(used, nothing(sessions_before=factory.clock.now + 1)) == 0
    assert used.describe_session(SESSION).started_at is not None
    kept = [
        used._file.read(f"SELECT session_id, count(*) FROM {table} WHERE space = @SPACE GROUP BY session_id")
        for table in ("turns", "tool_calls")
    ]
    assert kept == [[(OTHER_SESSION, 5)], [(OTHER_SESSION, 2)]]


def test_a_run_of_long_ago_cannot_be_undone_and_its_memories_stay(factory: SqliteFactory, used: Records) -> None:
    edit = nothing(runs_before=factory.clock.now + 1, limit=1)
    assert pruned(used, edit) == 2
    (outcome,) = used.apply([undo_operation("undo")])
    assert isinstance(outcome.reply, NotFound)
    assert "cannot be undone any more" in outcome.reply.message
    assert [entry.change for entry in shown(used, ONE).history] == ["stored", "archived"]


def test_what_came_of_operations_of_long_ago_goes(factory: SqliteFactory, used: Records) -> None:
    before = factory.clock.now + 1
    assert pruned(used, nothing(operations_before=before)) > 5
    assert used.outcome_of("end") is None


def test_old_versions_behind_many_newer_ones_go(factory: SqliteFactory, used: Records) -> None:
    for n in range(KEPT_VERSIONS + 5):
        used.apply([change_operation(f"update {n}", UpdateMemory(ONE, importance=0.1 + n / 1000))])
    before = shown(used, ONE).history
    long_ago = nothing(runs_before=factory.clock.now + 1)
    assert pruned(used, nothing(runs_before=factory.clock.now)) == 0, "not before the time"
    pruned(used, long_ago)
    after = shown(used, ONE).history
    assert after == (before[0], *before[-KEPT_VERSIONS:])
    assert pruned(used, nothing(runs_before=factory.clock.now + 2)) == 0


def test_what_went_to_the_user_loses_its_log_and_can_be_taken_back(factory: SqliteFactory, used: Records) -> None:
    user = Records(used._file.file, USER, factory.clock)
    writer = writer_of(used, user)
    writer.apply([change_operation("away", PromoteMemory(ONE, "user"))])
    long_ago = nothing(runs_before=factory.clock.now + 1)
    for each in (used, user):
        pruned(each, long_ago)
    assert rows(used, "history", ONE) == 0
    assert len(shown(user, ONE).history) == 3
    assert rows(user, "promotion_log", ONE) == 1, "it is there, and says why"
    (back,) = writer.apply([change_operation("back", PromoteMemory(ONE, "project"))])
    assert isinstance(back.reply, Applied)
    assert [entry.change for entry in shown(used, ONE).history] == ["stored", "archived", "promoted", "taken back"]
    pruned(user, long_ago)
    assert (rows(user, "promotion_log", ONE), rows(user, "history", ONE)) == (0, 0)


def rows(used: Records, table: str, memory_id: str = "%") -> int:
    """The number of a space's rows in a table, of one memory or of all."""
    count = f"SELECT count(*) FROM {table} WHERE space = @SPACE AND memory_id LIKE ?"
    ((found,),) = used._file.read(count, (memory_id,))
    return int(found)
