"""The promises of a run: applied whole or not at all, nothing lost by it, undone as one, and pruned in the end."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records import browsing
from remembrancer.actors.store.records.background import KEPT_VERSIONS
from remembrancer.actors.store.records.types import USER, Filters, Phrase
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.memory.replacement import counted_among
from remembrancer.protocol.browsing import FindUndecided, ReadActivity
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    ChainLink,
    Edit,
    LogPromotion,
    NewMemory,
    NotePattern,
    ProposeMemory,
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
    EntityRef,
    EraseMemory,
    ForgetMemory,
    ImportMemory,
    LinkRef,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UndoChange,
    UpdateMemory,
)
from tests.cases import cases
from tests.contracts.dying_process import dies_of, kill_after
from tests.contracts.records_rig import RecordsRig, apply, pending, run_operation, work_of
from tests.contracts.runs_rig import (
    CONTENTS,
    EDITS,
    FOUR,
    KNOWN,
    LEVELS,
    ONE,
    STEP,
    SUMMARY,
    THREE,
    TWO,
    RunsRig,
    consolidating,
    undo_operation,
)
from tests.operations import (
    OTHER_PROJECT,
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    store_operation,
)

EVERYTHING = Filters(SESSION)


@pytest.fixture
def rig(runs: RunsRig) -> RunsRig:
    return runs


def reachable(rig: RunsRig) -> set[str]:
    found = {number for word in WORDS for number in rig.records.keyword_hits([Phrase(word)], EVERYTHING, 100)}
    return {record.content for record in rig.records.load(sorted(found), EVERYTHING).values()}


WORDS = ("lantern", "candle", "torch", "bottle", "lights")


def whole(rig: RunsRig) -> list[PortableMemory]:
    """Everything that a session can be shown of the memories, but for what any new version differs in, and accesses."""
    memories = [rig.records.portable(memory_id, None) for memory_id in CONTENTS]
    same: Any = {"version": 0, "updated_at": 0, "history": (), "access_count": 0, "last_accessed_at": None}
    return [msgspec.structs.replace(each, **same) for each in memories if each is not None]


def test_a_run_does_all_that_it_says(rig: RunsRig) -> None:
    assert rig.carry_out(*consolidating()) == RunResult(9)
    summary = rig.shown(SUMMARY)
    assert (summary.content, summary.kind, summary.type) == ("lights of several colours", "fact", "semantic")
    (made,) = summary.history
    assert (summary.scope, made.change, made.details) == ("project", "stored", {"run": "run"})
    assert [(link.target, link.relation) for link in summary.links] == [(ONE, "derived_from"), (TWO, "derived_from")]
    assert rig.records.number_of(SUMMARY) in pending(rig.records)
    one, two, three, four = (rig.shown(memory_id) for memory_id in CONTENTS)
    step = msgspec.structs.replace(STEP, run_id="run")
    assert (one.status, one.tags, one.version) == ("consolidated", ("light",), 2)
    assert (two.importance, two.confidence, two.access_count, two.promotion_chain) == (0.75, 0.55, 1, (step,))
    assert (three.status, three.scope) == ("promoted", "session")
    assert (four.scope, four.promotion_chain[0].session_id, four.history[-1].change) == ("project", SESSION, "promoted")
    assert rig.records.portable(FOUR, OTHER_SESSION) is not None
    assert two.history[-1].details == {"run": "run", "score": 0.75, "fields": ["importance", "confidence"]}
    logs = [rig.records.surroundings(each, "", None).promotions for each in (TWO, FOUR)]
    assert [[(entry.score, entry.merged_into) for entry in log] for log in logs] == [[(0.75, TWO)], [(0.875, None)]]


def test_what_changed_since_it_was_looked_at_is_passed_over_with_all_that_hangs_on_it(rig: RunsRig) -> None:
    rig.do(UpdateMemory(TWO, importance=0.25))
    rig.do(ForgetMemory(ONE))
    promoted = LogPromotion(THREE, "observation", "session", "project", "importance", SESSION, merged_into=TWO)
    edits: list[tuple[Edit, str]] = [
        (ReviseMemory(TWO, "merged", 1, importance=1.0), "it has been changed since: its version is 2, not 1"),
        (ReviseMemory(THREE, "promoted", status="promoted", only_with=TWO), f"{TWO} was skipped"),
        (promoted, f"{THREE} was skipped"),
        (AddLink(THREE, TWO, "supports"), f"{THREE} was skipped"),
        (NotePattern(TWO, PROJECT.id), f"{TWO} was skipped"),
        (ReviseMemory(ONE, "archived", status="archived"), "it is forgotten"),
        (ReviseMemory("mem_gone", "archived", status="archived"), "it is gone"),
        (ReviseMemory(FOUR, "promoted", scope="project"), ""),
        (ReviseMemory(FOUR, "promoted", scope="project"), "its scope is already project"),
    ]
    result = rig.carry_out(*(edit for edit, _ in edits))
    assert result.edits == 1
    assert [(each.reason, each.edit) for each in result.skipped] == [
        (why, type(edit).__name__) for edit, why in edits if why
    ]
    assert [each.memory_id for each in result.skipped] == [TWO, *[THREE] * 3, TWO, ONE, "mem_gone", FOUR]
    assert (rig.shown(TWO).importance, rig.shown(THREE).status) == (0.25, "active")
    around = rig.records.surroundings(TWO, "", None)
    assert (around.promotions, around.observed_in) == ((), ())


def test_a_memory_that_a_run_makes_has_its_entities_and_is_found_by_its_summary(rig: RunsRig) -> None:
    named = (("store", "service", "about"), ("launcher", "service", "starts"))
    fields: dict[str, Any] = {"tags": ("a", "a"), "entities": named, "metadata": {"sources": 2}, "occurred_at": 5.0}
    new = NewMemory("mem_new", "what they say", "procedure", "session", SESSION, "in short: lights", **fields)
    rig.carry_out(AddMemory(new))
    made = rig.shown("mem_new")
    assert (made.type, made.tags, made.metadata, made.occurred_at) == ("procedural", ("a",), {"sources": 2}, 5.0)
    assert made.related_entities[1] == EntityRef("launcher", "service", "starts")
    assert "what they say" in reachable(rig)
    assert rig.records.portable("mem_new", OTHER_SESSION) is None


def test_topics_are_replaced(rig: RunsRig) -> None:
    topics = SaveTopics((Topic("stores", ("a", "b")), Topic("lights", ("c",))))
    assert rig.carry_out(topics) == RunResult(1)
    assert Graph(rig.records.spaces, "").summary([rig.records.space], None, 1).topics == topics.topics
    rig.carry_out(SaveTopics(topics.topics[1:]), part=1)
    assert Graph(rig.records.spaces, "").summary([rig.records.space], None, 1).topics == topics.topics[1:]


def test_a_session_is_closed_if_its_end_is_the_one_dealt_with(rig: RunsRig) -> None:
    rig.do(StartSession(SESSION))
    rig.do(EndSession(SESSION))
    closed = rig.closing()
    assert closed.ended_at == rig.clock.now
    promoted = LogPromotion(ONE, "fact", "session", "project", "importance", SESSION)
    rig.carry_out(promoted, msgspec.structs.replace(promoted, memory_id=TWO), run_id="promotion")
    assert rig.carry_out(msgspec.structs.replace(closed, ended_at=1.0)).edits == 0
    assert rig.carry_out(closed, part=1).edits == 1
    assert list(work_of(rig.records).sessions) == []
    told = rig.records.describe_session(SESSION)
    assert (told.status, told.memories_promoted) == ("completed", 2)


def test_only_what_the_session_itself_writes_has_its_end_dealt_with_again(rig: RunsRig) -> None:
    rig.do(EndSession(SESSION))
    closed = rig.closing()
    rig.carry_out(closed)
    rig.records.touch([rig.number(ONE)], 5.0, SESSION)
    rig.carry_out(*consolidating(), session_id=SESSION, part=1)
    rig.undo(session="")
    rig.undo(session=SESSION)
    rig.do(TagMemory(ONE, ("theirs",)), session="")
    assert list(work_of(rig.records).sessions) == []
    rig.do(TagMemory(ONE, ("late",)))
    assert [session.ended_at for session in work_of(rig.records).sessions] == [None], "it goes on"
    rig.carry_out(closed, run_id="another")
    assert [session.status for session in work_of(rig.records).sessions] == ["active"]
    rig.do(EndSession(SESSION))
    rig.carry_out(rig.closing(), run_id="once more")
    assert list(work_of(rig.records).sessions) == []
    rig.do(ForgetMemory(FOUR))
    assert [session.ended_at for session in work_of(rig.records).sessions] == [None], "also if it only hides one"


@pytest.mark.parametrize("before", ["completed", "abandoned"])
@pytest.mark.parametrize("after", ["completed", "abandoned"])
def test_a_session_at_work_after_its_end_is_not_abandoned_for_it(rig: RunsRig, before: Any, after: Any) -> None:
    rig.do(EndSession(SESSION, before))
    rig.do(RecordEvents(SESSION, turns=(Turn("user", "One more thing", 5.0),)))
    assert [session.ended_at for session in work_of(rig.records).sessions] == [None]
    rig.do(EndSession(SESSION, after), at=REQUESTED_AT + 2)
    ending = "abandoned" if before == after == "abandoned" else "completed"
    assert [(each.ended_at, each.ending) for each in work_of(rig.records).sessions] == [(REQUESTED_AT + 2, ending)]


def test_a_summary_is_found_by_what_it_says_and_not_by_what_it_was_only_made_of(rig: RunsRig) -> None:
    summary = NewMemory(SUMMARY, f"{CONTENTS[ONE]}\nlights of several colours", "fact", "project", SESSION, "lights")
    rig.carry_out(AddMemory(summary), AddLink(SUMMARY, ONE, "derived_from"), AddLink(SUMMARY, TWO, "derived_from"))
    one, two, made = (rig.number(each) for each in (ONE, TWO, SUMMARY))
    assert rig.records.summaries_of([one, two]) == {made: [one]}
    rig.carry_out(AddLink(TWO, ONE, "supports"), run_id="same")
    assert rig.records.summaries_of([one, two]) == {made: [one, two]}, "or by another that says the same"
    rig.do(ForgetMemory(SUMMARY))
    assert rig.records.summaries_of([one, two]) == {}


def test_no_pair_of_one_summary_waits_for_a_decision_and_no_summary_replaces_another_memory(rig: RunsRig) -> None:
    rig.contradict(TWO, ONE)
    rig.contradict(THREE, ONE)
    assert set(rig.undecided()) == {(ONE, TWO), (ONE, THREE)}
    summary = NewMemory(SUMMARY, f"{CONTENTS[ONE]}\n{CONTENTS[TWO]}", "fact", "project", SESSION, "lights")
    marks = [ReviseMemory(each, "consolidated", status="consolidated", only_with=SUMMARY) for each in (ONE, TWO)]
    links = [AddLink(SUMMARY, each, "derived_from") for each in (ONE, TWO)]
    rig.carry_out(AddMemory(summary), *marks, *links, at=REQUESTED_AT + 1)
    rig.contradict(SUMMARY, THREE)
    assert rig.undecided() == [(ONE, THREE)]
    rig.undo()
    assert set(rig.undecided()) == {(ONE, TWO), (ONE, THREE)}


def test_no_memory_is_offered_for_all_projects_while_a_later_one_may_replace_it(rig: RunsRig) -> None:
    rig.carry_out(*(ProposeMemory(each, "it was used in 3 sessions") for each in (ONE, TWO)))
    rig.contradict(TWO, ONE, 0.3)
    assert [each.memory_id for each in rig.browse(FindUndecided(PROJECT, SESSION)).proposals] == [TWO]
    rig.do(UpdateMemory(TWO, add_links=(LinkRef("related_to", ONE),)))
    assert [each.memory_id for each in rig.browse(FindUndecided(PROJECT, SESSION)).proposals] == [ONE, TWO]


def test_review_shows_pairs_that_a_person_can_decide_once_each_and_counts_the_rest(
    rig: RunsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: dict[str, str] = cases("runs", "review")
    apply(rig.records, [store_operation(name, text, memory_id=name) for name, text in texts.items()])
    rig.carry_out(AddLink("made", "one", "derived_from"))
    series = ("two", "one"), ("three", "one"), ("three", "two"), ("item 2", "item 1"), ("item 4", "item 3")
    alike = ("high", "low"), ("new", "old"), ("made", "old"), ("made", "new")
    rig.records.link_similar([rig.pair(*pair, 0.97) for pair in (*series, ("batch 2", "batch 1"), *alike)])

    def found(**options: Any) -> Any:
        answer = rig.browse(FindUndecided(PROJECT, SESSION, **options))
        return [(each.newer.id, each.older.id, each.relation) for each in answer.pairs], answer.more

    def doubts_of(name: str) -> set[str]:
        return {*browsing.doubts_in_review(rig.records, SESSION).get(name, ())}

    def check_marks() -> None:
        marked = {(newer, name) for name in texts for newer in doubts_of(name)}
        assert marked == {pair[:2] for pair in found(alike=False, limit=500)[0]}

    same = [("new", "old", "similar_to"), ("high", "low", "similar_to")]
    assert found() == (same, 0), "not samples, nor what the machine made"
    rig.contradict("two", "one", 0.04)
    for later, earlier in (("crane 2", "crane 1"), ("crane 3", "crane 2")):
        rig.contradict(later, earlier, 0.1)
    for n in (4, 5, 6):
        rig.contradict(f"sprint {n}", f"sprint {n - 1}", 0.6)
    assert found() == (same, 0), "one of a series"
    rig.contradict("new", "old", 0.4)
    assert found() == ([("new", "old", "contradicts"), same[1]], 0)
    rig.contradict("old", "one", 0.3)
    check_marks()
    assert found(limit=1) == ([("new", "old", "contradicts")], 2)
    rig.contradict("last", "two", 0.2)
    changed, following = ("last", "two", "contradicts"), ("last", "new", "contradicts")
    assert changed in found()[0], "one change may follow another"
    for strength, is_shown in ((0.14, True), (0.13, False)):
        rig.contradict("crane 3", "old", strength)
        assert (("crane 3", "old", "contradicts") in found()[0]) is is_shown, (
            "another pair of the same memory is thrice as probable"
        )
    rig.contradict("last", "new", 0.19)
    assert following not in found()[0], "one after the other"
    assert following in found(alike=False, with_hidden=True)[0]
    rig.contradict("low", "two", 0.7)
    assert changed not in found()[0], "another is thrice as probable"
    assert following in found()[0], "it does not wait for one that is hidden"
    for decided in ("low", "last"):
        rig.do(UpdateMemory(decided, add_links=(LinkRef("related_to", "two"),)))
    assert following in found()[0]
    assert changed not in found()[0]
    rig.do(UpdateMemory("old", kind="open_end", done=True))
    assert found() == ([*same[1:], following], 0), "done, so only an older open end would be asked about"
    limits = [(f"limit {n}", f"limit {n - 30}") for n in (60, 90, 120)]
    for pair in limits:
        rig.contradict(*pair, 0.6)
    rig.contradict("limit 120", "limit 60", 0.7)
    assert {(*pair, "contradicts") for pair in limits} <= set(found()[0]), "values"
    assert ("limit 120", "limit 60", "contradicts") not in found()[0], "each replaced the last one"
    check_marks()
    counting = Mock(wraps=counted_among)
    monkeypatch.setattr(browsing, "counted_among", counting)
    rig.contradict("tern", "gull", 0.1)
    for _ in range(2):
        assert doubts_of("gull") == {"tern"}, "though many others are more probable"
    assert counting.call_count == 1, "the pairs are found once, until something changes"
    rig.carry_out(ReviseMemory("gull", "archived", status="archived"), run_id="archiving")
    assert doubts_of("gull") == set()
    rig.records.touch([rig.number("gull")], REQUESTED_AT)
    assert doubts_of("gull") == {"tern"}, "it is in use again"


def test_undoing_leaves_everything_as_it_was_and_is_done_once(rig: RunsRig) -> None:
    before = whole(rig)
    rig.carry_out(*consolidating())
    rig.carry_out(NotePattern(ONE, PROJECT.id), AddLink(ONE, TWO, "supports"), part=1)
    undone = rig.undo()
    assert set(undone.memories) == {SUMMARY, *CONTENTS}
    assert undone.skipped == ()
    assert whole(rig) == before
    summary = rig.shown(SUMMARY)
    assert (summary.forgotten_reason, summary.links) == ("the run that made it was undone", ())
    assert summary.forgotten_at is not None
    assert [entry.change for entry in rig.shown(FOUR).history] == ["stored", "promoted", "undone"]
    assert rig.records.portable(FOUR, OTHER_SESSION) is None
    assert [rig.records.surroundings(each, "", None).promotions for each in (FOUR, TWO)] == [(), ()]
    assert rig.undo().already
    assert [rig.shown(memory_id).version for memory_id in CONTENTS] == [3, 3, 3, 3]


@pytest.mark.parametrize("is_changed_back", [False, True])
def test_what_was_changed_since_stays_and_is_named_unless_it_was_changed_back(
    rig: RunsRig, is_changed_back: bool
) -> None:
    rig.carry_out(*consolidating())
    for change in (UpdateMemory(ONE, importance=1.0), UpdateMemory(SUMMARY, content="lights, said better")):
        rig.do(change)
        if is_changed_back:
            rig.do(UndoChange(change.memory_id))
    undone = rig.undo()
    assert {skipped.memory_id for skipped in undone.skipped} == (set() if is_changed_back else {ONE, SUMMARY})
    assert (rig.shown(SUMMARY).forgotten_at is None) is not is_changed_back
    one = rig.shown(ONE)
    assert (one.status, one.importance) == ("active", 0.5 if is_changed_back else 1.0), "nothing stands for it"
    assert rig.shown(THREE).status == "active"
    if is_changed_back:
        assert rig.do(UndoChange(ONE)).undone == "stored", "the run is undone already"


def test_runs_that_are_undone_in_the_other_order_leave_nothing_behind(rig: RunsRig) -> None:
    before = whole(rig)
    rig.carry_out(*consolidating())
    rig.carry_out(ReviseMemory(FOUR, "merged", importance=0.75), ReviseMemory(TWO, "merged"), run_id="second")
    rig.carry_out(ReviseMemory(SUMMARY, "archived", status="archived"), run_id="third")
    for run_id in ("third", "second", "run"):
        assert rig.undo(run_id).skipped == ()
    assert whole(rig) == before
    assert rig.shown(SUMMARY).forgotten_reason == "the run that made it was undone"
    assert read(rig)[FOUR].undone == "promoted"


def test_what_stood_behind_a_near_duplicate_is_active_again_when_that_says_something_else(rig: RunsRig) -> None:
    rig.records.link_similar([rig.pair(TWO, ONE, 0.97)])
    rig.carry_out(ReviseMemory(TWO, "consolidated", status="consolidated"))
    rig.do(TagMemory(ONE, ("red",)))
    assert rig.shown(TWO).status == "consolidated"
    rig.do(UpdateMemory(ONE, content="a red ship"))
    assert (rig.shown(TWO).status, rig.shown(TWO).history[-1].change) == ("active", "released")


def test_the_last_part_of_a_run_that_was_undone_meanwhile_only_closes_its_session(rig: RunsRig) -> None:
    rig.do(EndSession(SESSION))
    closed = rig.closing()
    rig.carry_out(ReviseMemory(ONE, "consolidated", status="consolidated"))
    rig.undo(session="")
    last = rig.carry_out(ReviseMemory(TWO, "consolidated", status="consolidated"), closed, part=1)
    assert (last.edits, last.skipped) == (1, (Skipped(TWO, "the run was undone", "ReviseMemory"),))
    assert list(work_of(rig.records).sessions) == []


def test_a_run_that_is_unknown_or_about_another_sessions_memories_cannot_be_undone(rig: RunsRig) -> None:
    rig.carry_out(ReviseMemory(THREE, "consolidated", status="consolidated"))
    for run_id, session in (("none", SESSION), ("run", OTHER_SESSION)):
        assert isinstance(rig.refused(UndoRun(run_id, "project"), session=session), NotFound)
    assert rig.shown(THREE).status == "consolidated"
    assert rig.undo(session=SESSION).memories == (THREE,)


def test_an_import_is_undone_by_a_persons_shell_alone_and_never_what_a_later_one_brought_back(rig: RunsRig) -> None:
    memory = msgspec.structs.replace(rig.shown(THREE), id="mem_imported")
    skipped = (Skipped("mem_imported", "it has been changed since"),)

    def undo(number: int) -> UndoneResult:
        return rig.undo(f"run:import-{number}", session=SHELL_SESSION)

    def take_in(number: int, **fields: Any) -> PortableMemory:
        rig.do(ImportMemory(msgspec.structs.replace(memory, **fields), run_id=f"run:import-{number}"), session="")
        return rig.shown(memory.id)

    take_in(1)
    assert isinstance(rig.refused(UndoRun("run:import-1", "project")), NotFound)
    assert undo(1).memories == (memory.id,)
    forgotten_at = rig.shown(memory.id).forgotten_at
    assert forgotten_at is not None
    assert take_in(2, forgotten_at=forgotten_at).forgotten_at, "an export made since says that it is forgotten"
    assert take_in(3).forgotten_at is None
    everything = ReadActivity(PROJECT, SESSION)
    runs = {each.run_id for each in rig.browse(everything).runs}
    assert runs == {"run:import-1", "run:import-3"}, "the other changed nothing"
    assert undo(1).skipped == skipped
    rig.do(TagMemory(memory.id, ("mine",)))
    assert undo(3).skipped == skipped
    rig.do(UndoChange(memory.id))
    assert undo(3).memories == (memory.id,)
    rig.do(EraseMemory(memory.id))
    assert rig.browse(everything).runs == (), "of which nothing is left"


@pytest.mark.parametrize("run_id", ["run", "run:import-1"])
def test_a_memory_that_has_replaced_another_since_stays_when_its_run_or_import_is_undone(
    rig: RunsRig, run_id: str
) -> None:
    new, other = ids = "mem_a", "mem_b"
    if run_id == "run":
        rig.carry_out(*(AddMemory(NewMemory(each, each, "fact", "project", SESSION)) for each in ids))
    else:
        for each in ids:
            rig.do(ImportMemory(msgspec.structs.replace(rig.shown(ONE), id=each), run_id=run_id), session="")
    rig.at(REQUESTED_AT + 9).replace(new, TWO)
    undone = rig.undo(run_id, session=SHELL_SESSION)
    assert (undone.memories, undone.skipped) == ((other,), (Skipped(new, "it has replaced another memory since"),))
    assert (rig.loaded(TWO).superseded_by, rig.shown(new).forgotten_at) == ((new,), None)
    assert rig.do(UndoChange(new)).memory_id == TWO
    assert rig.undo(run_id, session=SHELL_SESSION).memories == ((new,) if run_id != "run" else ())


def test_what_a_run_did_to_the_users_memories_is_undone_by_its_project_alone(rig: RunsRig) -> None:
    step = ChainLink("project", TWO, 5.0, "merged", source_project=PROJECT.id)
    rig.carry_out(ReviseMemory(ONE, "merged", importance=0.75, chain=step), place="user")
    for project, is_of_another in ((PROJECT, False), (OTHER_PROJECT, True)):
        runs = rig.browse(ReadActivity(project, SESSION)).runs
        assert [(each.of_user, each.of_another) for each in runs] == [(False, is_of_another)]
    undoing = UndoRun("run", "user", if_there=True)
    for name, project, change in (
        ("theirs", OTHER_PROJECT, undoing),
        ("none", PROJECT, UndoRun("unknown", "user", if_there=True)),
        ("mine", PROJECT, undoing),
    ):
        (reply,) = rig.apply(change_operation(name, change, project=project))
        assert (reply.result.found, reply.result.memories) == ((True, (ONE,)) if name == "mine" else (False, ()))
    assert rig.shown(ONE).importance == 0.5


runs = st.lists(EDITS, min_size=1, max_size=5).map(tuple)
changes = st.one_of(
    st.builds(UpdateMemory, KNOWN, importance=LEVELS, summary=st.none() | st.just("said")),
    st.builds(RestoreMemory, KNOWN, st.integers(1, 4)),
)
steps = st.lists(runs | changes | st.integers(0, 6), max_size=10)


@given(steps)
def test_no_run_or_undoing_takes_content_out_of_reach(planned: list[tuple[Edit, ...] | UpdateMemory | int]) -> None:
    with TemporaryDirectory() as directory, RunsRig(Path(directory) / "memory.db") as rig:
        for place, step in enumerate(planned):
            if isinstance(step, tuple):
                operation = run_operation(f"op{place}", *step, run_id=f"run{place}")
            elif isinstance(step, int):
                operation = undo_operation(f"op{place}", f"run{step}")
            else:
                operation = change_operation(f"op{place}", step)
            operation = msgspec.structs.replace(operation, requested_at=REQUESTED_AT + place)
            before = operation.change, [rig.shown(memory_id).version for memory_id in CONTENTS]
            (reply,) = rig.apply(operation)
            assert reachable(rig) >= set(CONTENTS.values()), before
            if isinstance(operation.change, ApplyRun):
                assert reply.result.edits + len(reply.result.skipped) == len(operation.change.edits)


@given(st.lists(runs, min_size=1, max_size=3), st.lists(runs, max_size=2))
def test_what_is_undone_at_once_is_as_before(parts: list[tuple[Edit, ...]], earlier: list[tuple[Edit, ...]]) -> None:
    with TemporaryDirectory() as directory, RunsRig(Path(directory) / "memory.db") as rig:
        for place, run in enumerate(earlier):
            rig.carry_out(*run, run_id=f"earlier{place}")
        before = whole(rig)
        for part, run in enumerate(parts):
            linked = [each.source for each in run if isinstance(each, AddLink)]  # links go with their source's version
            versions = [ReviseMemory(each, "merged", tags=(f"part {part}",)) for each in linked]
            rig.carry_out(*versions, *run, part=part, at=REQUESTED_AT + 1)
        undone = rig.undo(session="")
        assert undone.skipped == ()
        assert whole(rig) == before


def test_a_process_that_dies_between_two_statements_leaves_the_run_undone_or_whole(rig: RunsRig) -> None:
    before, deaths = whole(rig), 0
    for statements in range(1, 400, 21):
        rig.close()

        def carry_out(path: Path = rig.path, statements: int = statements) -> None:
            with RecordsRig(path) as dying:
                kill_after(dying.records._file.file.writer, statements)
                dying.do(run_operation("op", *consolidating()).change, session="")

        has_died = dies_of(carry_out)
        rig = RunsRig(rig.path)
        if not has_died:
            break
        deaths += 1
        assert whole(rig) == before
        assert rig.records.portable(SUMMARY, None) is None
        assert rig.records.surroundings(FOUR, "", None).promotions == ()
    assert deaths > 3
    assert rig.shown(SUMMARY).forgotten_at is None
    assert [rig.shown(memory_id).version for memory_id in CONTENTS] == [2, 2, 2, 2]
    rig.close()


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
def test_no_summary_is_made_of_what_is_gone_or_changed(rig: RunsRig, change: ForgetMemory | UpdateMemory) -> None:
    rig.do(change)
    result = rig.carry_out(*summing_up(ONE, TWO, THREE))
    assert result.edits == 0
    assert {skipped.memory_id for skipped in result.skipped} == {SUMMARY, ONE, TWO, THREE}
    assert rig.records.portable(SUMMARY, None) is None
    assert [rig.shown(each).status for each in CONTENTS] == ["active"] * 4


def test_a_summary_is_made_once_of_what_its_own_run_has_changed_but_of_nothing_older(rig: RunsRig) -> None:
    rig.do(TagMemory(TWO, ("theirs",)))
    rig.carry_out(ReviseMemory(TWO, "merged", tags=("own",)))
    assert [rig.carry_out(summing_up(TWO, version=n)[0], part=n).edits for n in (1, 2)] == [0, 1]
    rig.do(ForgetMemory(SUMMARY))
    assert rig.carry_out(*summing_up(ONE), run_id="other").edits == 0
    assert rig.shown(ONE).status == "active"


def read(rig: RunsRig) -> dict[str, Material]:
    return {each.id: each for each in rig.records.materials(ReadMemories(None), None).memories}


def test_what_was_undone_is_known_until_the_memory_changes_again(rig: RunsRig) -> None:
    rig.carry_out(*summing_up(ONE, TWO))
    rig.carry_out(ReviseMemory(THREE, "archived", status="archived"), run_id="other")
    assert {each.undone for each in read(rig).values()} == {""}
    rig.undo()
    rig.undo("other")
    undone = {memory_id: each.undone for memory_id, each in read(rig).items() if each.undone}
    assert undone == {ONE: "consolidated", TWO: "consolidated", THREE: "archived"}
    rig.do(UpdateMemory(ONE, importance=0.75))
    assert {memory_id for memory_id, each in read(rig).items() if each.undone} == {TWO, THREE}


def test_an_access_makes_an_archived_memory_active_and_its_history_says_so(rig: RunsRig) -> None:
    rig.carry_out(*(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    rig.records.touch([rig.number(ONE)] * 2, 5e9, OTHER_SESSION)
    one = rig.shown(ONE)
    assert (one.status, one.version, one.updated_at, one.access_count) == ("active", 3, 5e9, 2)
    last = one.history[-1]
    assert (last.change, last.session_id, last.details["fields"]) == ("revived", "", ["status"])
    assert last.record.status == "active"
    assert read(rig)[ONE].archived_at is None
    assert rig.shown(TWO).status == "archived", "only what was used"


# --- The pruning of what grows with each session: it goes when nobody needs it any more, and nothing else does.
@pytest.fixture
def used(rig: RunsRig) -> RunsRig:
    turns = tuple(Turn("user", f"turn {n}", float(n)) for n in range(5))
    for session in (SESSION, OTHER_SESSION):
        rig.do(StartSession(session), session=session)
        rig.do(RecordEvents(session, turns, (ToolCall("Bash", 1.5), ToolCall("Read", 2.5))), session=session)
    rig.do(EndSession(SESSION))
    rig.carry_out(rig.closing(), run_id="closing")
    rig.carry_out(*(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    return rig


def nothing(limit: int = 1000, **fields: float) -> Prune:
    """To remove what is older than no time at all, but for what is given."""
    return Prune(**({"sessions_before": 0.0, "runs_before": 0.0, "operations_before": 0.0} | fields), limit=limit)


def pruned(rig: RecordsRig, edit: Prune) -> int:
    """The number of rows removed, in as many transactions as it takes."""
    total = 0
    while True:
        removed: int = rig.do(
            run_operation("prune", edit, run_id="pruning").change, session="", at=REQUESTED_AT + 10
        ).pruned
        assert removed <= edit.limit
        total += removed
        if removed < edit.limit:
            return total


def test_turns_and_tool_calls_of_sessions_closed_long_ago_go(used: RunsRig) -> None:
    assert pruned(used, nothing(sessions_before=used.clock.now)) == 0, "not before the time"
    assert pruned(used, nothing(sessions_before=used.clock.now + 1, limit=2)) == 7
    assert pruned(used, nothing(sessions_before=used.clock.now + 1)) == 0
    assert used.records.describe_session(SESSION).started_at is not None
    kept = [
        used.records._file.read(f"SELECT session_id, count(*) FROM {table} WHERE space = @SPACE GROUP BY session_id")
        for table in ("turns", "tool_calls")
    ]
    assert kept == [[(OTHER_SESSION, 5)], [(OTHER_SESSION, 2)]]


def test_runs_of_long_ago_go_and_what_came_of_operations_and_their_memories_stay(used: RunsRig) -> None:
    assert pruned(used, nothing(runs_before=used.clock.now + 1, limit=1)) == 2
    error = used.refused(UndoRun("run", "project"))
    assert (type(error), "can no longer be undone" in error.message) == (NotFound, True)
    assert used.records.outcome_of("apply closing 0") is not None
    assert pruned(used, nothing(operations_before=used.clock.now + 1)) > 5
    assert used.records.outcome_of("apply closing 0") is None
    assert [entry.change for entry in used.shown(ONE).history] == ["stored", "archived"]


def test_sessions_of_long_ago_without_a_trace_go_though_nobody_closes_them_in_the_user_s_space(used: RunsRig) -> None:
    user = used.beside(USER)
    memory_id = user.say("tea", scope="user")
    for session in (OTHER_SESSION, "session:3"):
        user.do(TagMemory(memory_id, (session,)), session=session)
    assert pruned(user, nothing(runs_before=user.clock.now)) == 0, "not before the time"
    pruned(user, nothing(runs_before=user.clock.now + 1))
    kept = user.rows("SELECT session_id FROM sessions WHERE space = @SPACE")
    assert kept == [(SESSION,)], "the one that stored a memory"


def test_old_versions_behind_many_newer_ones_go(used: RunsRig) -> None:
    for n in range(KEPT_VERSIONS + 5):
        used.do(UpdateMemory(ONE, importance=0.1 + n / 1000))
    before = used.shown(ONE).history
    long_ago = nothing(runs_before=used.clock.now + 1)
    assert pruned(used, nothing(runs_before=used.clock.now)) == 0, "not before the time"
    pruned(used, long_ago)
    after = used.shown(ONE).history
    assert after == (before[0], *before[-KEPT_VERSIONS:])
    assert pruned(used, nothing(runs_before=used.clock.now + 2)) == 0


def test_what_went_to_the_user_loses_its_log_and_can_be_taken_back(used: RunsRig) -> None:
    user = used.with_user()
    used.do(PromoteMemory(ONE, "user"))
    long_ago = nothing(runs_before=used.clock.now + 1)
    for each in (used, user):
        pruned(each, long_ago)
    assert rows(used, "history", ONE) == 0
    assert len(user.shown(ONE).history) == 3
    assert rows(user, "promotion_log", ONE) == 1, "it is there, and says why"
    used.do(PromoteMemory(ONE, "project"))
    assert [entry.change for entry in used.shown(ONE).history] == ["stored", "archived", "promoted", "taken back"]
    pruned(user, long_ago)
    assert (rows(user, "promotion_log", ONE), rows(user, "history", ONE)) == (0, 0)


def rows(rig: RecordsRig, table: str, memory_id: str) -> int:
    ((found,),) = rig.rows(f"SELECT count(*) FROM {table} WHERE space = @SPACE AND memory_id = ?", (memory_id,))
    return int(found)
