"""Any sequence of changes leaves the records as the model says: contents, words, tallies, tags, graph and history."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from remembrancer.actors.store.records.contract import EmbeddedMemory, PassageFilter
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, Change, Operation, Result
from tests.contracts.records_factories import FACTORIES, SqliteFactory
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
from tests.operations import change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"
PLACES = st.integers(0, 7)
UNKNOWN = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Changing(RuleBasedStateMachine):
    """Applies operations in groups, repeats some, embeds some memories, and closes and opens the file."""

    kind: type[SqliteFactory] = SqliteFactory

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="rmb-state-"))
        self.factory = self.kind(self.directory)
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
        self.waiting.append(change_operation(name, change, session_id=session))

    @rule(place=PLACES)
    @precondition(lambda self: bool(self.sent))
    def repeat(self, place: int) -> None:
        self.waiting.append(self.sent[-1 - place % len(self.sent)])

    @rule()
    def commit(self) -> None:
        """All that waits, as one group."""
        self.factory.clock.now += 1
        group, self.waiting = self.waiting, []
        for operation, outcome in zip(group, self.records.apply(group), strict=True):
            known = operation.operation_id in self.model.answers
            expected = self.model.apply(operation)
            if isinstance(outcome.reply, RemembrancerError):
                assert type(outcome.reply) is expected, outcome.reply
                assert (outcome.to_embed, outcome.removed_passages) == (None, ())
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
        assert bool(saved.kept.numbers) == (fits and not memory.embedded)
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
    """What is derived in the file agrees with what it is derived from: full text, edges, entities and their words."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO memories_text (memories_text, rank) VALUES ('integrity-check', 1)")
        connection.execute("INSERT INTO entities_text (entities_text) VALUES ('integrity-check')")
        edges = connection.execute(
            """SELECT m.id, s.name, s.type, me.relationship, e.name, e.type FROM memory_entities AS me
               JOIN memories AS m ON m.number = me.memory JOIN entities AS e ON e.number = me.entity
               LEFT JOIN entities AS s ON s.number = me.subject ORDER BY m.number, me.ordinal"""
        ).fetchall()
        entities_there = connection.execute("SELECT name, type, key FROM entities").fetchall()
        worded = connection.execute(
            "SELECT e.name, e.type FROM entities_text AS t JOIN entities AS e ON e.number = t.rowid"
        ).fetchall()
        words_alone = connection.execute("SELECT count(*) FROM entities_text").fetchone()[0]
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


@pytest.mark.parametrize("kind", FACTORIES, ids=lambda kind: kind.__name__)
def test_any_changes_leave_the_records_as_the_model_says(kind: type[SqliteFactory]) -> None:
    machine = type("ChangingHere", (Changing,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=40,
            stateful_step_count=40,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
