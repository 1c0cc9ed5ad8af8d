"""A memory moves between two spaces once, and one that is erased is gone from both and from every byte."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.store.records.passage_rows import HomeTexts
from remembrancer.actors.store.records.types import USER, Filters
from remembrancer.memory.sentences import quotable
from remembrancer.protocol.consolidation import ReadMemories
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import AddLink, AddMemory, ApplyRun, Edit, NewMemory, ProposeMemory, ReviseMemory
from remembrancer.protocol.session_life import EndSession, RecordEvents, ToolCall, Turn
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    LinkRef,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    TextEdit,
    UndoChange,
    UpdateMemory,
)
from tests.contracts.dying_process import dies_of, kill_after
from tests.contracts.records_rig import (
    MODEL,
    RecordsRig,
    apply,
    check_derived,
    embedded,
    lanes_writer,
    pending,
    scrub,
)
from tests.operations import (
    OTHER_PROJECT,
    OTHER_SESSION,
    PROJECT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.spaces import write_rows

STORE, LAUNCHER = EntityRef("store", "service", "about"), EntityRef("launcher", "service", "starts")
STAYS = store_operation("stays", "a lantern that stays", related_entities=(LAUNCHER,), tags=("red",))
MOVES = store_operation(
    "moves", "a lantern that moves", scope="session", related_entities=(STORE, LAUNCHER), tags=("red", "blue")
)
ID = memory_id_of(MOVES)


PROMOTE = change_operation("promote", PromoteMemory(ID, "user", "of use everywhere"))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[RecordsRig]:
    """With two memories, one of which was changed, embedded and accessed."""
    with RecordsRig(tmp_path / "memory.db") as made:
        made.apply(STAYS, MOVES)
        made.do(UpdateMemory(ID, metadata={"a": 1}))
        for each in (memory_id_of(STAYS), ID):
            made.embed(each)
        made.records.touch([2, 2, 2], 88.5)
        yield made


@pytest.fixture
def user(project: RecordsRig) -> RecordsRig:
    return project.with_user()


def observations(user: RecordsRig) -> list[tuple[Any, ...]]:
    return user.rows("SELECT memory_id, source_projects, observation_count FROM cross_project_patterns")


def check_moved(project: RecordsRig, user: RecordsRig, before: PortableMemory) -> None:
    """The memory is the user's, with all that it had, and the project has kept its history alone."""
    moved, left, gone_to = user.shown(ID), project.records, user.records
    assert left.portable(ID, None) is None
    others = ("scope", "version", "updated_at", "history", "promotion_chain", "source_project")
    assert msgspec.structs.replace(moved, **{name: getattr(before, name) for name in others}) == before
    assert moved.history[:-1] == before.history
    (step,) = moved.promotion_chain
    assert (step.scope, step.memory_id, step.action, step.reason) == ("session", ID, "promoted", "of use everywhere")
    assert (step.session_id, step.source_project, moved.source_project) == (SESSION, PROJECT.id, PROJECT.id)
    (entry,) = gone_to.surroundings(ID, "", None).promotions
    assert (entry.from_scope, entry.to_scope, entry.reason) == ("session", "user", "explicit")
    assert entry.source_session == SESSION
    assert left.surroundings(ID, "", None).promotions == ()
    assert gone_to.surroundings(ID, "", None).observed_in == (PROJECT.id,)
    assert observations(user) == [(ID, f'["{PROJECT.id}"]', 1)]
    assert (moved.scope, moved.version, moved.metadata, moved.access_count) == ("user", 3, {"a": 1}, 3)
    last = moved.history[-1]
    assert (last.change, last.version, last.operation_id, last.session_id) == ("promoted", 3, "promote", SESSION)
    assert last.details == {"previous_scope": "session", "reason": "of use everywhere", "fields": ["scope"]}
    assert last.record.scope == "user"
    assert user.found("moves", Filters(OTHER_SESSION)) == [ID]
    assert gone_to.matching(Filters(OTHER_SESSION, tags=("blue",)), 5) == [2]
    assert pending(gone_to) == []
    (passage,) = user.passages(ID)
    assert passage > 2, "who knows the vectors up to a number finds it"
    assert project.found("moves") == []
    assert (left.counts(None).total, gone_to.counts(None).by_scope) == (1, {"user": 1})
    assert (left.counts(None).entities, gone_to.counts(None).entities) == (1, 2)
    assert left.passages(MODEL).numbers == [1]


def test_vectors_that_come_when_their_memory_has_moved_are_kept_in_the_space_that_it_is_in_now(
    project: RecordsRig, user: RecordsRig
) -> None:
    text = "a beacon that moves before it has vectors"
    late = project.say(text)
    number = project.number(late)
    texts = HomeTexts(project.records._file.file, time.time)
    missing = texts.missing(MODEL)
    assert texts.next_texts(MODEL, 1, 1)[0].number == number, "the newest of all spaces"
    project.do(PromoteMemory(late, "user"))
    vectors = [embedded(number, text)]
    assert project.records.save_embeddings(MODEL, vectors) == []
    saved = texts.save_embeddings(MODEL, vectors)
    assert texts.names_of([number]) == [USER]
    assert user.passages(late) == saved
    assert texts.missing(MODEL) == missing - 1
    assert number not in pending(project.records, MODEL) + pending(user.records, MODEL)
    while texts.prune_models(["another"], 1):
        pass
    assert user.records.passages(MODEL).numbers == []


@pytest.mark.parametrize("statement", range(1, 90, 8))
def test_a_move_that_was_killed_is_done_or_not_begun_and_never_done_twice(project: RecordsRig, statement: int) -> None:
    before = project.shown(ID)
    project.close()

    def move() -> None:
        dying = RecordsRig(project.path)
        dying.with_user()
        kill_after(dying.records._file.file.writer, statement)
        dying.apply(PROMOTE)

    is_moved = not dies_of(move)
    with RecordsRig(project.path) as again:
        user = again.with_user()
        whole = again.records.portable(ID, None), user.records.portable(ID, None)
        assert whole == (before, None) or (is_moved and whole[0] is None)
        for is_replay in (is_moved, True):
            (reply,) = again.apply(PROMOTE)
            assert reply.replayed == is_replay
        for records in (again.records, user.records):
            assert apply(records, [PROMOTE])[0] == reply, "it is answered alike by both"
        check_moved(again, user, before)
        check_derived(again.path)


def test_a_memory_keeps_its_links_aliases_and_entities_on_its_way_to_the_user_and_back(
    project: RecordsRig, user: RecordsRig
) -> None:
    links = (2, 1, "related_to", 1.0, 5.0), (1, 2, "supports", 1.0, 5.0), (2, 1, "similar_to", 0.99, 5.0)
    write_rows(project.path, *(f"INSERT INTO memory_links VALUES {link}" for link in links))
    write_rows(project.path, "INSERT INTO aliases VALUES ('memory:other', 2)")
    before = project.shown(ID)
    project.do(PromoteMemory(ID, "user"))
    moved = user.shown("memory:other")  # by its alias
    assert moved.related_entities == before.related_entities
    assert moved.links == tuple(link for link in before.links if link.relation != "similar_to")
    seen = user.records.follow([ID], OTHER_SESSION, 2, 5)[2]
    assert seen.related == (), "of a project another one learns nothing"
    project.do(PromoteMemory(ID, "project"))
    taken = project.shown("memory:other")
    assert taken.links == moved.links
    assert [link.target for link in project.shown(memory_id_of(STAYS)).links] == [ID]
    assert list(project.records.follow([ID], SESSION, 1, 5)) == [2, 1]
    assert user.records.portable(ID, None) is None
    assert (taken.scope, taken.source_project, taken.history[-1].change) == ("project", None, "taken back")
    assert [step.scope for step in taken.promotion_chain] == ["session"], "it came from its session, and stays there"
    assert observations(user) == []
    check_derived(project.path)


def test_a_move_is_undone_by_a_move_and_what_it_undid_is_not_undone_again(
    project: RecordsRig, user: RecordsRig
) -> None:
    stays = memory_id_of(STAYS)
    project.do(TagMemory(stays, ("green",)))
    project.do(PromoteMemory(stays, "user"))
    for other in (OTHER_PROJECT, msgspec.structs.replace(PROJECT, sees_user=False)):
        assert isinstance(project.try_to(UndoChange(stays), project=other), (InvalidInput, NotFound))
    assert isinstance(project.try_to(UndoChange(stays, 2)), InvalidInput), "it has been changed since"
    project.do(UndoChange(stays, 3))
    assert project.shown(stays).scope == "project"
    project.do(PromoteMemory(stays, "user"))
    project.do(PromoteMemory(stays, "project"))
    project.do(UndoChange(stays))
    assert user.shown(stays).scope == "user"
    for _ in range(2):
        project.do(UndoChange(stays))
    assert project.shown(stays).tags == ("red",)
    project.do(UndoChange(stays))
    assert project.shown(stays).forgotten_at is not None
    check_derived(project.path)


def test_undoing_a_move_brings_back_the_proposal_and_only_what_was_proposed(
    project: RecordsRig, user: RecordsRig
) -> None:
    proposed, plain = memory_id_of(STAYS), project.say("a lamp that nobody proposed")
    edit = ProposeMemory(proposed, "used in three sessions", 0.8)
    project.do(ApplyRun("run", "project", "promotion", (edit,)))
    (before,) = project.records.proposals()
    for _ in range(2):  # it can be accepted again
        for memory_id in (proposed, plain):
            project.do(PromoteMemory(memory_id, "user"))
        assert project.records.proposals() == ()
        for memory_id in (proposed, plain):
            project.do(UndoChange(memory_id))
        assert project.records.proposals() == (before,)
        assert project.records.surroundings(plain, "", None).proposal is None
    project.do(PromoteMemory(proposed, "project"))
    refused = project.records.surroundings(proposed, "", None).proposal
    project.do(PromoteMemory(proposed, "user"))
    project.do(UndoChange(proposed))
    assert project.records.surroundings(proposed, "", None).proposal == refused, "it is refused again"


def test_undoing_a_move_that_nobody_asked_for_refuses_it(project: RecordsRig, user: RecordsRig) -> None:
    stays = memory_id_of(STAYS)
    project.do(ApplyRun("run", "project", "promotion", (ProposeMemory(stays, "two projects say it", 0.8),)))
    project.do(PromoteMemory(stays, "user"), session="")
    project.do(UndoChange(stays))
    assert project.records.proposals() == ()
    project.do(RestoreMemory(stays))
    assert [each.reason for each in project.records.proposals()] == ["two projects say it"]


def test_what_was_another_projects_is_not_taken_back_and_what_was_always_the_users_can_be_moved(
    project: RecordsRig, user: RecordsRig
) -> None:
    project.do(PromoteMemory(ID, "user"))
    own = user.say("the user's own", scope="user")
    assert isinstance(project.try_to(PromoteMemory(ID, "project"), project=OTHER_PROJECT), InvalidInput)
    project.do(PromoteMemory(own, "project"))
    assert (project.shown(own).scope, project.records.proposals()) == ("project", ())
    project.do(UndoChange(own))
    assert user.shown(own).scope == "user"
    project.do(PromoteMemory(stays := memory_id_of(STAYS), "user"))
    shown = [user.records.portable(stays, OTHER_SESSION, each.id) for each in (PROJECT, OTHER_PROJECT)]
    changes = [[entry.change for entry in each.history] for each in shown if each is not None]
    assert changes == [["stored", "promoted"], ["promoted"]], "what it was in its project is nobody else's"


def test_a_repeated_store_for_the_user_is_answered_though_the_token_may_no_longer_see_the_user(tmp_path: Path) -> None:
    with RecordsRig(tmp_path / "memory.db", USER) as user:
        file = user.records._file.file
        writer = lanes_writer(file, {USER: user.records})
        store = store_operation("stays", "a lantern that stays", scope="user")
        for project in (PROJECT, msgspec.structs.replace(PROJECT, sees_user=False)):
            (outcome,) = writer.apply([msgspec.structs.replace(store, project=project)])
            assert isinstance(outcome, Applied)


# --- An erased memory is gone from answers, history and every byte of the file, and does not come back.
SECRET = "the vault opens with marigold"


def test_an_erased_memory_leaves_no_word_in_the_file_and_what_was_derived_is_named(rig: RecordsRig) -> None:
    for number in range(50):
        rig.say(f"harmless note number {number}")
    secret, summary = rig.say(SECRET, "marigold:code"), rig.say("a summary of it")
    rig.do(UpdateMemory(summary, add_links=(LinkRef("derived_from", secret),)))
    rig.do(UpdateMemory(secret, content=f"{SECRET} in vault/marigold_drawer.txt and lavender", summary="marigold"))
    rig.find_names()
    assert rig.records.surroundings(secret, "", None).found_entities == ("vault/marigold_drawer.txt",)
    rig.do(TagMemory(secret, add=("marigold",)))
    rig.do(UpdateMemory(secret, content=TextEdit("lavender", "heather")))
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret, said_by=(summary,))
    scrub(rig.records, secret)
    assert rig.records.number_of(secret) is None
    assert rig.records.portable(secret, SESSION) is None
    assert rig.found("marigold") == []
    assert len(rig.found("harmless")) == rig.records.counts(None).total - 1 == 50
    assert [rig.files_with(word) for word in ("marigold", "lavender", "heather")] == [[]] * 3


def test_nothing_brings_it_back_and_a_second_call_says_that_it_was_erased(rig: RecordsRig) -> None:
    secret = rig.say(SECRET, memory_id="mem_secret")
    portable = rig.shown(secret)
    erase = change_operation("erase", EraseMemory(secret))
    first, replay = apply(rig.records, [erase, erase])
    assert (first.result, replay.result, replay.replayed) == (ErasedResult(secret),) * 2 + (True,)  # type: ignore[union-attr]
    assert rig.do(EraseMemory(secret)).already
    again = store_operation("another operation", SECRET, memory_id=secret)
    for change in (again.change, ImportMemory(portable)):
        error = rig.refused(change)
        assert (type(error), "erased" in error.message) == (InvalidInput, True)
    assert rig.records.number_of(secret) is None
    unknown = memory_id_of(store_operation("never stored", "x"))
    assert isinstance(rig.refused(EraseMemory(unknown)), NotFound)
    user, given = rig.with_user(), rig.say("the vault is behind the clock")
    portable = rig.shown(given)
    rig.do(PromoteMemory(given, "user"))
    user.do(EraseMemory(given))
    scrub(rig.records, given)
    assert "erased" in rig.refused(ImportMemory(portable)).message, "its project had its history"


def test_what_quotes_it_goes_along_and_the_record_of_its_session_stays(rig: RecordsRig) -> None:
    secret, other = rig.say(f"Next: {SECRET}", type="episodic"), rig.say("Next: paint the cellar", type="episodic")
    turns = (Turn("user", f"Next: {SECRET}, please", 1.0), Turn("user", "and thanks", 1.0))
    calls = (ToolCall("store_memory", 1.0, {"content": f"Next: {SECRET}"}), ToolCall("Edit", 1.0, {"path": "cellar"}))
    rig.do(RecordEvents(SESSION, turns, calls))
    rig.do(EndSession(SESSION))
    made = NewMemory("mem_summary", f"Next: {SECRET}\nNext: paint the cellar", "fact", "project", SESSION)
    edits: tuple[Edit, ...] = (
        AddMemory(made),
        *(ReviseMemory(each, "consolidated", status="consolidated") for each in (secret, other)),
        *(AddLink(made.id, each, "derived_from") for each in (secret, other)),
        AddLink(other, secret, "similar_to"),
    )
    rig.do(ApplyRun("run", "project", "consolidation", edits), session="")
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret, said_by=(other,), also_erased=(made.id,))
    assert rig.do(EraseMemory(secret)) == ErasedResult(secret, already=True, also_erased=(made.id,))
    scrub(rig.records, secret, quotes=(*quotable([f"Next: {SECRET}"]), "cellars", "-cellar"))
    told = rig.records.describe_session(SESSION)
    assert "worked on cellar" in (told.summary or "")
    assert (told.turns, told.tool_calls) == (1, 1), "what does not quote it stays"
    assert rig.records.materials(ReadMemories(None, memory_ids=(other,))).memories[0].status == "active"
    assert rig.files_with("marigold") == []
