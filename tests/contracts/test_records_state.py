"""Any sequence of changes leaves the records as the model says: contents, words, tallies, tags, graph and history."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.types import EmbeddedMemory, PassageFilter
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    ForgetMemory,
    Operation,
    PromoteMemory,
    RestoreMemory,
    Result,
    TagMemory,
    UpdateMemory,
)
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.records_model import (
    SESSIONS,
    Model,
    changes_of,
    check,
    contents,
    entities,
    importances,
    number_of,
    tags,
)
from tests.operations import REQUESTED_AT, change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"
PLACES = st.integers(0, 7)
UNKNOWN = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Changing(RuleBasedStateMachine):
    """Applies operations in groups, repeats some, embeds some memories, and closes and opens the file."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="rmb-state-"))
        self.factory = SqliteFactory(self.directory)
        self.records = self.factory.open()
        self.model = Model()
        self.waiting: list[Operation] = []
        self.sent: list[Operation] = []
        self.old_texts: dict[str, list[str]] = {}

    @rule(
        content=contents,
        scope=st.sampled_from(["session", "project"]),
        session=st.sampled_from(SESSIONS),
        importance=importances,
        named=tags,
        about=entities,
    )
    def store(self, content: str, scope: str, session: str, importance: float, named: object, about: object) -> None:
        self.waiting.append(
            store_operation(
                f"op{len(self.sent) + len(self.waiting)}",
                content,
                scope=scope,
                session_id=session,
                importance=importance,
                tags=named,
                related_entities=about,
            )
        )

    @rule(change=changes_of(st.just("")), place=PLACES, session=st.sampled_from(SESSIONS))
    def change(self, change: Change, place: int, session: str) -> None:
        stored = [memory_id_of(each) for each in (*self.sent, *self.waiting) if each.operation_id.startswith("op")]
        memory_id = dict(enumerate(dict.fromkeys(stored))).get(place, UNKNOWN)
        change = msgspec.structs.replace(change, memory_id=memory_id)
        name = f"change{len(self.sent) + len(self.waiting)}"
        asked_at = REQUESTED_AT + len(self.sent)
        self.waiting.append(change_operation(name, change, session_id=session, requested_at=asked_at))

    @rule(place=PLACES)
    @precondition(lambda self: bool(self.sent))
    def repeat(self, place: int) -> None:
        self.waiting.append(self.sent[-1 - place % len(self.sent)])

    @rule()
    def commit(self) -> None:
        """All that waits, as one group."""
        group, answers = [], []
        for operation in self.waiting:
            if not self.model.merges(operation):  # for which there is a test by itself
                group.append(operation)
                answers.append((operation.operation_id in self.model.answers, self.model.apply(operation)))
        self.waiting = []
        for outcome, (known, expected) in zip(self.records.apply(group), answers, strict=True):
            if isinstance(outcome.reply, RemembrancerError):
                assert type(outcome.reply) is expected, outcome.reply
                assert outcome.to_embed is None
            else:
                assert_answered(outcome.reply, expected, known)
        for memory_id, memory in self.model.memories.items():
            self.old_texts[memory_id] = [version.content for version in memory.versions]
        self.sent.extend(group)

    @rule(place=PLACES, age=st.integers(0, 2))
    @precondition(lambda self: bool(self.model.memories))
    def embed(self, place: int, age: int) -> None:
        """Vectors come of what a memory is, or of what it was some versions ago."""
        memory_id = list(self.model.memories)[place % len(self.model.memories)]
        memory = self.model.memories[memory_id]
        text = self.old_texts[memory_id][-1 - min(age, len(memory.versions) - 1)]
        vector = np.eye(4, dtype=np.float32)[:1]
        number = number_of(self.records, memory_id)
        saved = self.records.save_embeddings(
            MODEL, [EmbeddedMemory(number, digest_of(text), (Passage(0, len(text)),), vector)]
        )
        fits = text == memory.now.content
        assert saved.outdated == ([number] if not memory.embedded and not fits else [])
        assert bool(saved.kept) == (fits and not memory.embedded)
        memory.embedded = memory.embedded or fits

    @rule()
    def open_again(self) -> None:
        self.commit()
        self.records.close()
        self.records = self.factory.open()

    def teardown(self) -> None:
        try:
            self.commit()
            check(self.records, self.model)
            embedded = {
                number_of(self.records, each) for each, memory in self.model.memories.items() if memory.embedded
            }
            with_vectors = self.records.passages(PassageFilter(MODEL, range(1000))).memories
            assert sorted(with_vectors) == sorted(embedded)
            if isinstance(self.factory, SqliteFactory):
                check_rows(self.factory.path, self.model)
        finally:
            self.factory.close()
            shutil.rmtree(self.directory)


def assert_answered(reply: Applied, expected: object, known: bool) -> None:
    assert isinstance(expected, Result)
    assert reply.result == expected
    assert reply.replayed == known


def check_rows(path: Path, model: Model) -> None:
    """Check that derived rows agree with their sources: full text, edges, entities and their words."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO words_1 (words_1) VALUES ('integrity-check')")
        assert (
            connection.execute("SELECT id FROM words_1_docsize").fetchall()
            == connection.execute("SELECT number FROM memories ORDER BY number").fetchall()
        )
        connection.execute("INSERT INTO names_1 (names_1) VALUES ('integrity-check')")
        edges = connection.execute(
            """SELECT m.id, s.name, s.type, me.relationship, e.name, e.type FROM memory_entities AS me
               JOIN memories AS m ON m.number = me.memory JOIN entities AS e ON e.number = me.entity
               LEFT JOIN entities AS s ON s.number = me.subject ORDER BY m.number, me.ordinal"""
        ).fetchall()
        entities_there = connection.execute("SELECT name, type, key FROM entities").fetchall()
        worded = connection.execute(
            "SELECT e.name, e.type FROM names_1 AS t JOIN entities AS e ON e.number = t.rowid"
        ).fetchall()
        words_alone = connection.execute("SELECT count(*) FROM names_1").fetchone()[0]
    expected = []
    for memory_id, memory in model.memories.items():
        for place, entity in enumerate(memory.now.related_entities):
            first = memory.now.related_entities[0]
            is_subject = place == 0 or (entity.name, entity.type) == (first.name, first.type)
            subject = (None, None) if is_subject else (first.name, first.type)
            expected.append((memory_id, *subject, entity.relationship, entity.name, entity.type))
    assert edges == expected
    named = {(name, kind) for *_, name, kind in expected}
    assert sorted(entities_there) == sorted((name, kind, name_key(name)) for name, kind in named)
    assert sorted(worded) == sorted(named)
    assert words_alone == len(named)


def test_any_changes_leave_the_records_as_the_model_says() -> None:
    run_state_machine_as_test(Changing, settings=settings(stateful_step_count=40, report_multiple_bugs=False))


STORE, LAUNCHER, INDEX = (EntityRef(name, "service", "about") for name in ("Store", "launcher", "vector index"))
FIRST = store_operation(
    "first", "the first lantern", tags=("red", "blue"), importance=0.25, related_entities=(STORE, LAUNCHER, STORE)
)
OWN = store_operation("own", "a torch", scope="session", related_entities=(STORE,))
ID, OWN_ID = memory_id_of(FIRST), memory_id_of(OWN)
EVERYTHING = UpdateMemory(
    ID,
    "a second candle",
    0.75,
    ("green", "red"),
    ("blue", "never there"),
    {"why": {"deep": [1, None]}, "n": 1},
    (INDEX, STORE),
    ("launcher",),
)
SOONER_OR_LATER: tuple[Change, ...] = (
    *(UpdateMemory(ID, importance=0.5), UpdateMemory(ID, add_tags=("new",)), UpdateMemory(ID, metadata={"a": 1})),
    UpdateMemory(ID, remove_entities=("store",)),
    *(EVERYTHING, EVERYTHING, UpdateMemory(ID), TagMemory(ID, ("red",), ("unknown",))),
    UpdateMemory(ID, add_tags=("red",), metadata={"unknown": None}, remove_entities=("nothing of the sort",)),
    UpdateMemory(ID, metadata={"why": {"y": 2}, "n": None, "c": True}),
    *(UpdateMemory(ID, metadata={"c": 1}), UpdateMemory(ID, metadata={"c": 1})),
    UpdateMemory(ID, add_entities=(EntityRef("vector-index", "module", "about"), LAUNCHER, LAUNCHER)),
    *(UpdateMemory(ID, remove_entities=(name,)) for name in ("vector-index", "VectorIndex", "STORE", "launcher")),
    TagMemory(ID, ("green", "green", "blue"), ("red",)),
    *(ForgetMemory(ID, "outdated"), ForgetMemory(ID, "another reason")),
    *(UpdateMemory(ID, "x"), TagMemory(ID, ("x",)), PromoteMemory(ID, "user")),
    *(RestoreMemory(ID, version) for version in (None, None, 1, 1, 2, 0, -1, 99)),
    *(PromoteMemory(ID, "project"), PromoteMemory(OWN_ID, "project"), UpdateMemory(OWN_ID, "a bottle")),
    *(RestoreMemory(OWN_ID, 1), UpdateMemory(UNKNOWN, "x")),
)
"""The cases that random changes may miss: each sort, what changes nothing, what is refused, and ways back."""


def test_each_sort_of_change_leaves_the_records_as_the_model_says_and_is_made_once(factory: SqliteFactory) -> None:
    records, model = factory.open(), Model()
    changes = [
        change_operation(f"change {place}", change, requested_at=REQUESTED_AT + place)
        for place, change in enumerate(SOONER_OR_LATER)
    ]
    for operation in (FIRST, OWN, *changes):
        outcomes = records.apply([operation, operation])
        for outcome, again in zip(outcomes, (False, True), strict=True):
            expected = model.apply(operation)
            if isinstance(outcome.reply, RemembrancerError):
                assert type(outcome.reply) is expected, operation
            else:
                assert_answered(outcome.reply, expected, again)
        for memory_id, memory in model.memories.items():
            if not memory.embedded:
                embedded = EmbeddedMemory(
                    number_of(records, memory_id),
                    digest_of(memory.now.content),
                    (Passage(0, 1),),
                    np.eye(4, dtype=np.float32)[:1],
                )
                check(records, model)
                memory.embedded = bool(records.save_embeddings(MODEL, [embedded]).kept)
                assert memory.embedded
        check(records, model)
    records.close()
    again_open = factory.open()
    for operation in (FIRST, OWN, *changes):
        if operation.operation_id in model.answers:
            reply = again_open.apply([operation])[0].reply
            assert isinstance(reply, Applied)
            assert_answered(reply, model.answers[operation.operation_id], known=True)
    check(again_open, model)
    if isinstance(factory, SqliteFactory):
        check_rows(factory.path, model)
