"""A memory moves from a project's file to the user's once, and is in one of them whatever happens on the way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from remembrancer.actors.store.memory_writer import MemoryWriter
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.passage_rows import HomeTexts
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.sqlite_edits import merge
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import (
    EmbeddedMemory,
    Filters,
    PassageFilter,
    Phrase,
)
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.runs import Skipped, UndoneResult, UndoRun
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    EntityRef,
    ImportMemory,
    Operation,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    UpdateMemory,
)
from tests.contracts.moving_process import promotion
from tests.contracts.records_factories import Clock, Move, pending
from tests.operations import (
    OTHER_PROJECT,
    OTHER_SESSION,
    PROJECT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.patience import PATIENCE_S

MODEL = "small.int8.0123456789ab.4"
STORE, LAUNCHER = EntityRef("store", "service", "about"), EntityRef("launcher", "service", "starts")
STAYS = store_operation("stays", "a lantern that stays", related_entities=(LAUNCHER,), tags=("red",))
MOVES = store_operation(
    "moves", "a lantern that moves", scope="session", related_entities=(STORE, LAUNCHER), tags=("red", "blue")
)
ID = memory_id_of(MOVES)
PROMOTE = promotion(ID, "promote")


class Files:
    """A database with the spaces of a project and of the user, which is opened again and again."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.path = directory / "memory.db"
        self._opened: list[Records] = []

    def open(self, *, user_limit_bytes: int | None = None) -> Move:
        self.close()
        database = SqliteFile(self.path)
        self._opened = [
            Records(database, PROJECT.id, self.clock),
            Records(database, "user", self.clock, limit_bytes=user_limit_bytes),
        ]
        source, destination = self._opened
        return Move(source, destination)

    def close(self) -> None:
        for records in self._opened:
            records.close()

    def are_sound(self) -> bool:
        with closing(sqlite3.connect(self.path)) as connection:
            sound = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return sound and not connection.execute("PRAGMA foreign_key_check").fetchall()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    """With two memories in the project's, one of which was changed, embedded and accessed."""
    made = Files(tmp_path)
    project = made.open().source
    update = change_operation("update", UpdateMemory(ID, metadata={"a": 1}))
    assert all(isinstance(outcome.reply, Applied) for outcome in project.apply([STAYS, MOVES, update]))
    vectors = np.eye(4, dtype=np.float32)[:1]
    for number, text in ((1, "a lantern that stays"), (2, "a lantern that moves")):
        project.save_embeddings(MODEL, [EmbeddedMemory(number, digest_of(text), (Passage(0, 9),), vectors)])
    project.touch([2, 2, 2], 88.5)
    yield made
    made.close()


def whole(move: Move) -> tuple[PortableMemory | None, PortableMemory | None]:
    """The memory in the project's file, and in the user's."""
    return move.source.portable(ID, None), move.destination.portable(ID, None)


def observations(move: Move) -> list[tuple[str, str, int]]:
    """The user's file on where its memories were observed, and how often."""
    assert isinstance(move.destination, Records)
    rows: list[tuple[str, str, int]] = move.destination._file.read(
        "SELECT memory_id, source_projects, observation_count FROM cross_project_patterns"
    )
    return rows


def check_moved(move: Move, before: PortableMemory) -> None:
    """The memory is the user's, with all that it had, and the project has kept its history alone."""
    left, moved = whole(move)
    assert left is None
    assert moved is not None
    assert moved.history[:-1] == before.history
    as_before = msgspec.structs.replace(
        moved,
        scope=before.scope,
        version=before.version,
        updated_at=before.updated_at,
        history=before.history,
        promotion_chain=before.promotion_chain,
        source_project=before.source_project,
    )
    assert as_before == before
    (step,) = moved.promotion_chain
    assert (step.scope, step.memory_id, step.action, step.reason) == ("session", ID, "promoted", "of use everywhere")
    assert (step.session_id, step.source_project, moved.source_project) == (SESSION, PROJECT.id, PROJECT.id)
    (entry,) = move.destination.surroundings(ID, "", None).promotions
    assert (entry.from_scope, entry.to_scope, entry.reason, entry.source_session) == (
        "session",
        "user",
        "explicit",
        SESSION,
    )
    assert move.source.surroundings(ID, "", None).promotions == ()
    assert move.destination.surroundings(ID, "", None).observed_in == (PROJECT.id,)
    assert observations(move) == [(ID, f'["{PROJECT.id}"]', 1)]
    assert (moved.scope, moved.version, moved.metadata, moved.access_count) == ("user", 3, {"a": 1}, 3)
    last = moved.history[-1]
    assert (last.change, last.version, last.operation_id, last.session_id) == ("promoted", 3, "promote", SESSION)
    assert last.details == {"previous_scope": "session", "reason": "of use everywhere", "fields": ["scope"]}
    assert last.record.scope == "user"
    everyone = Filters(OTHER_SESSION)
    assert list(move.destination.keyword_hits([Phrase("moves")], everyone, 5)) == [2]
    assert move.destination.matching(Filters(OTHER_SESSION, tags=("blue",)), 5) == [2]
    assert pending(move.destination) == []
    (passage,) = move.destination.passages(PassageFilter(MODEL, vectors=False)).numbers
    assert passage > 2, "who knows the vectors up to a number finds it"
    assert move.source.keyword_hits([Phrase("moves")], Filters(SESSION), 5) == {}
    assert (move.source.counts(None).total, move.destination.counts(None).by_scope) == (1, {"user": 1})
    assert (move.source.counts(None).entities, move.destination.counts(None).entities) == (1, 2)
    assert move.source.passages(PassageFilter(MODEL, vectors=False)).numbers == [1]


def before_the_move(move: Move) -> PortableMemory:
    memory, _ = whole(move)
    assert memory is not None
    return memory


def test_vectors_that_come_when_their_memory_has_moved_are_kept_in_the_space_that_it_is_in_now(files: Files) -> None:
    move = files.open()
    late = store_operation("late", "a beacon that moves before it has vectors")
    move.source.apply([late])
    number = move.source.number_of(memory_id_of(late))
    assert number is not None
    texts = HomeTexts(move.source._file.file, time.time)
    missing = texts.missing(MODEL)
    assert texts.next_texts(MODEL, 1, 1)[0].number == number, "the newest of all spaces"
    (moved,) = move.apply([promotion(memory_id_of(late), "promote late")])
    assert isinstance(moved.reply, Applied)
    text = "a beacon that moves before it has vectors"
    vectors = np.eye(1, 4, dtype=np.float32)
    embedded = EmbeddedMemory(number, digest_of(text), (Passage(0, len(text)),), vectors)
    assert move.source.save_embeddings(MODEL, [embedded]).kept == []
    saved = texts.save_embeddings(MODEL, [embedded])
    assert saved.spaces == {move.destination.name: 1}
    assert move.destination.passages(PassageFilter(MODEL, [number])).numbers == saved.kept
    assert texts.missing(MODEL) == missing - 1
    assert number not in pending(move.source, MODEL) + pending(move.destination, MODEL)
    while texts.prune_models(["another"], 1):
        pass
    assert move.destination.passages(PassageFilter(MODEL)).numbers == []


def test_what_a_memory_of_the_user_was_before_is_shown_to_its_session_and_its_project_alone(files: Files) -> None:
    move = files.open()
    before = before_the_move(move)
    to_project = change_operation("to project", PromoteMemory(ID, "project"))
    assert isinstance(move.source.apply([to_project])[0].reply, Applied)
    to_user = change_operation("to user", PromoteMemory(ID, "user"))
    assert isinstance(move.apply([to_user])[0].reply, Applied)
    first = before.version + 1
    everything = list(range(1, first + 2))
    for session, project, versions in (
        (None, None, everything),
        (SESSION, PROJECT, everything),
        (OTHER_SESSION, PROJECT, [first, first + 1]),
        (SESSION, OTHER_PROJECT, [first + 1]),
        (SESSION, None, [first + 1]),
    ):
        seen = move.destination.portable(ID, session, None if project is None else project.id)
        assert seen is not None
        assert [entry.version for entry in seen.history] == versions
    for project in (PROJECT, OTHER_PROJECT):
        back = RestoreMemory(ID, 1)
        away = change_operation(f"back {project.id}", back, session_id=OTHER_SESSION, project=project)
        (outcome,) = move.destination.apply([away])
        assert isinstance(outcome.reply, InvalidInput)
        assert "has no version 1: known are" in outcome.reply.message
    own = change_operation("back", RestoreMemory(ID, 1))
    assert isinstance(move.destination.apply([own])[0].reply, Applied)


def test_a_promotion_is_done_once_and_answered_alike_by_both_files(files: Files) -> None:
    move = files.open()
    before = before_the_move(move)
    first, twice = move.apply([PROMOTE, PROMOTE])
    assert isinstance(first.reply, Applied)
    replayed = msgspec.structs.replace(first.reply, replayed=True)
    move = files.open()
    answers = [twice, *move.apply([PROMOTE]), *move.source.apply([PROMOTE]), *move.destination.apply([PROMOTE])]
    assert [answer.reply for answer in answers] == [replayed] * 4
    assert all(answer.to_embed is None for answer in answers)
    check_moved(move, before)


@pytest.mark.parametrize("statement", range(1, 90, 4))
def test_a_move_that_was_killed_is_done_or_not_begun_and_never_done_twice(files: Files, statement: int) -> None:
    before = before_the_move(files.open())
    files.close()
    process = subprocess.run(
        [sys.executable, "-m", "tests.contracts.moving_process", str(files.path), ID, "promote", str(statement)],
        timeout=PATIENCE_S,
        check=False,
    )
    move = files.open()
    is_moved = process.returncode == 0
    assert whole(move) == (before, None) or (is_moved and whole(move)[0] is None)
    (outcome,) = move.apply([PROMOTE])
    assert isinstance(outcome.reply, Applied)
    assert outcome.reply.replayed == is_moved
    check_moved(move, before)
    assert files.are_sound()


def test_a_memory_keeps_its_links_aliases_and_entities_on_its_way_to_the_user_and_back(files: Files) -> None:
    move = files.open()
    stays = memory_id_of(STAYS)
    with closing(sqlite3.connect(files.path)) as connection:
        connection.execute("INSERT INTO memory_links VALUES (2, 1, 'related_to', 1.0, 5.0)")
        connection.execute("INSERT INTO memory_links VALUES (1, 2, 'supports', 1.0, 5.0)")
        connection.execute("INSERT INTO memory_links VALUES (2, 1, 'similar_to', 0.99, 5.0)")
        connection.execute("INSERT INTO aliases VALUES ('memory:other', 2)")
        connection.commit()
    before = before_the_move(move)
    assert isinstance(move.apply([PROMOTE])[0].reply, Applied)
    moved = move.destination.portable("memory:other", None)
    assert moved is not None, "by its alias"
    assert moved.related_entities == before.related_entities
    assert moved.links == tuple(link for link in before.links if link.relation != "similar_to")
    assert move.destination.follow([ID], OTHER_SESSION, 2, 5)[2].related == (), (
        "of a project another one learns nothing"
    )
    returning, operation = back(move)
    assert isinstance(returning.apply([operation])[0].reply, Applied)
    again = move.source.portable("memory:other", None)
    assert again is not None
    assert again.links == moved.links
    there = move.source.portable(stays, None)
    assert there is not None
    assert [link.target for link in there.links] == [ID]
    assert list(move.source.follow([ID], SESSION, 1, 5)) == [2, 1]
    assert files.are_sound()


def test_undoing_the_end_of_a_session_names_what_went_to_the_user_then_and_leaves_it_there(files: Files) -> None:
    move = files.open()
    change = PromoteMemory(ID, "user", "of use everywhere", "pattern_match", run_id="run")
    (outcome,) = move.apply([change_operation("promote", change, session_id=SESSION)])
    assert isinstance(outcome.reply, Applied)
    (undone,) = move.source.apply([change_operation("undo", UndoRun("run", "project"))])
    assert isinstance(undone.reply, Applied)
    assert undone.reply.result == UndoneResult(
        "run", skipped=(Skipped(ID, "it has gone to the user, and stays there"),)
    )
    assert whole(move)[1] is not None


def back(move: Move, reason: str = "not everywhere") -> tuple[Move, Operation]:
    """The way back of a memory, and what asks for it."""
    operation = change_operation("back", PromoteMemory(ID, "project", reason))
    return Move(move.destination, move.source), operation


def test_a_memory_that_is_taken_back_is_the_projects_again(files: Files) -> None:
    move = files.open()
    assert isinstance(move.apply([PROMOTE])[0].reply, Applied)
    returning, operation = back(move)
    assert isinstance(returning.apply([operation])[0].reply, Applied)
    taken, left = whole(move)
    assert left is None
    assert taken is not None
    assert (taken.scope, taken.source_project, taken.history[-1].change) == ("project", None, "taken back")
    assert [step.scope for step in taken.promotion_chain] == ["session"], "it came from its session, and stays there"
    assert observations(move) == []
    assert files.are_sound()


def test_what_never_was_a_projects_or_was_another_ones_is_not_taken_back(files: Files) -> None:
    move = files.open()
    move.apply([PROMOTE])
    returning, operation = back(move)
    elsewhere = msgspec.structs.replace(operation, project=OTHER_PROJECT)
    assert isinstance(returning.apply([elsewhere])[0].reply, InvalidInput)
    own = store_operation("own", "the user's own", scope="user")
    move.destination.apply([own])
    asked = change_operation("own back", PromoteMemory(memory_id_of(own), "project"))
    assert isinstance(returning.apply([asked])[0].reply, InvalidInput)


def test_a_memory_that_is_in_both_of_two_merged_spaces_keeps_its_own_history(tmp_path: Path) -> None:
    clock, database = Clock(), SqliteFile(tmp_path / "memory.db")
    with closing(database):
        target, source = Records(database, PROJECT.id, clock), Records(database, OTHER_PROJECT.id, clock)
        target.apply([STAYS])
        before = target.portable(memory_id_of(STAYS), None)
        assert before is not None
        update = UpdateMemory(before.id, content="a green lantern")
        for name, change in (("import", ImportMemory(before)), ("update", update)):
            (outcome,) = source.apply([change_operation(name, change, project=OTHER_PROJECT)])
            assert isinstance(outcome.reply, Applied)
        with database.transaction() as connection:
            merge(SpaceConnection(connection, target.space), SpaceConnection(connection, source.space), clock())
        assert Records(database, PROJECT.id, clock).portable(before.id, None) == before


def test_a_repeated_store_for_the_user_is_answered_though_the_token_may_no_longer_see_the_user(tmp_path: Path) -> None:
    with closing(SqliteFile(tmp_path / "memory.db")) as database:
        users = Records(database, "user", Clock())
        writer = MemoryWriter(lambda: database, lambda _: {"user": users}, lambda _: None)
        store = store_operation("stays", "a lantern that stays", scope="user")
        for project in (PROJECT, msgspec.structs.replace(PROJECT, sees_user=False)):
            (outcome,) = writer.apply([msgspec.structs.replace(store, project=project)])
            assert isinstance(outcome.reply, Applied)
