"""A recall asks the databases few questions, however much there is to weigh."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from remembrancer.actors.store.file_index import FileIndex
from remembrancer.actors.store.file_memories import FileMemories
from remembrancer.actors.store.records import sqlite_file
from remembrancer.actors.store.records.contract import EmbeddedMemory, Vectors
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval import recalls
from remembrancer.actors.store.retrieval.question import Question, read_question
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.protocol.files import FileChunk, FileState, FileUpdate
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import EntityRef, Scope
from tests.operations import PROJECT, SESSION, store_operation

MOST_STATEMENTS = 20
MOST_OF_A_STORE = 10
NOW = 2_000_000_000.0
THINGS = ("lantern", "harbour", "ferry", "pier", "beacon", "chart", "anchor", "tide")
SAID = ("is checked by", "depends on", "was moved next to", "is older than", "is painted like")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement of every connection from now on. Those that FTS5 makes by itself begin with a comment."""
    seen: list[str] = []
    connect = sqlite_file._connect

    def note(statement: str) -> None:
        if not statement.startswith("--"):
            seen.append(statement)

    def traced(path: Path, wait_s: float) -> sqlite3.Connection:
        connection = connect(path, wait_s)
        connection.set_trace_callback(note)
        return connection

    monkeypatch.setattr(sqlite_file, "_connect", traced)
    return seen


def vector_of(text: str) -> Vectors:
    vector = np.array([text.count(each) + 0.01 for each in (*THINGS, *SAID)], dtype=np.float32)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def a_space(database: SqliteFile, name: str, scopes: tuple[Scope, ...]) -> Source:
    """Facts and turns that name two things each, of several sessions, with their vectors."""
    records = Records(database, name, lambda: NOW)
    texts = [
        f"The {one} {said} the {other}, {number}"
        for number, said in enumerate(SAID)
        for one in THINGS
        for other in THINGS
    ]
    operations = [
        store_operation(
            f"{name}{place}",
            text,
            type="episodic" if place % 3 == 0 else "semantic",
            scope=scopes[place % len(scopes)],
            session_id=SESSION if place % 4 == 0 else f"other {place // 40}",
            occurred_at=NOW - 100_000 + 20 * place,
            related_entities=tuple(EntityRef(each, "thing", "about") for each in THINGS if each in text),
        )
        for place, text in enumerate(texts)
    ]
    outcomes = records.apply(operations)
    made = [
        EmbeddedMemory(outcome.to_embed, digest_of(text), (Passage(0, len(text)),), vector_of(text).reshape(1, -1))
        for outcome, text in zip(outcomes, texts, strict=True)
        if outcome.to_embed is not None
    ]
    records.save_embeddings("m", made)
    return Source(records, ExactVectors(records, "m"))


@pytest.fixture
def sources(tmp_path: Path, statements: list[str]) -> Iterator[list[Source]]:
    database = SqliteFile(tmp_path / "memory.db")
    files = [
        a_space(database, PROJECT.id, ("project", "project", "session")),
        a_space(database, "user", ("user",)),
    ]
    yield files
    for source in files:
        records = source.texts
        assert isinstance(records, Records)
        records.close()


async def test_a_hybrid_recall_of_a_project_and_its_user_takes_few_statements(
    sources: list[Source], statements: list[str]
) -> None:
    questions = [f"Which {one} of 1847 goes with the {other}?" for one in THINGS for other in THINGS[::3]]
    questions += ["lantern", "What is older than the tide?", "zeppelin", "Was the ferry moved?", "beacon-7 chart_old"]
    counts: dict[str, int] = {}
    walked = 0
    with ThreadPoolExecutor(1) as threads:

        async def embed(text: str) -> Vectors:
            return vector_of(text)

        for question in ("warm", *questions):  # FTS5 reads its settings for the first question of a thread
            statements.clear()
            request = Recall(SESSION, project=PROJECT, query=question, strategy="hybrid")
            answer, _ = await recall(request, View(sources), embed, threads, NOW)
            assert answer.memories
            if question == "warm":
                continue
            counts[question] = len(statements)
            walked += any("memory_links AS l" in each and "most" in each for each in statements)
    assert walked > len(questions) / 2, "the graph has a part in most of them"
    assert max(counts.values()) <= MOST_STATEMENTS, counts


async def test_a_question_is_read_beside_the_event_loop_while_its_vector_is_made(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[tuple[str, bool]] = []

    def read(request: Recall, now: float) -> Question:
        happened.append(("read", threading.current_thread() is threading.main_thread()))
        return read_question(request, now)

    async def embed(text: str) -> Vectors:
        happened.append(("asked for its vector", True))
        return vector_of(text)

    monkeypatch.setattr(recalls, "read_question", read)
    request = Recall(SESSION, project=PROJECT, query="Where is the lantern?", strategy="vector")
    with ThreadPoolExecutor(1) as threads:
        answer, _ = await recall(request, View(sources), embed, threads, NOW)
    assert happened == [("asked for its vector", True), ("read", False)]
    assert answer.memories
    assert answer.strategy_used == "vector", "the vector is searched"


def test_a_store_takes_few_statements(sources: list[Source], statements: list[str]) -> None:
    records = sources[0].texts
    assert isinstance(records, Records)
    for name, text in (
        ("warm", "The winch of the lantern needs grease."),
        ("counted", "Grease for the winch is in the harbour."),
    ):
        statements.clear()
        (outcome,) = records.apply([store_operation(name, text)])
        stored = dict.fromkeys(statements)  # a statement is seen once more for each trigger that it sets off
    assert outcome.to_embed is not None
    assert len(stored) <= MOST_OF_A_STORE, stored


async def test_the_notes_beside_memories_are_counted_once_and_asked_without_a_transaction(
    sources: list[Source], statements: list[str], tmp_path: Path
) -> None:
    index = FileIndex(tmp_path / "index.db", f"{PROJECT.id}.files", cached=0)
    chunk = FileChunk(1, 2, "", "The lantern stands at the pier.")
    index.change("/root", [FileUpdate(FileState("a.md", "notes", 1, 1, b"digest"), (chunk,))], [], "m")

    async def embed(text: str) -> Vectors:
        return vector_of(text)

    with ThreadPoolExecutor(1) as threads:
        for question in ("warm", "Which lantern stands at the pier?"):
            statements.clear()
            view = View(sources[:1]).beside(Source(FileMemories(index, "/root", ("notes",))))
            request = Recall(SESSION, project=PROJECT, query=question, limit=50)
            answer, _ = await recall(request, view, embed, threads, NOW)
    index.close()
    assert any(memory.origin == "notes" for memory in answer.memories)
    of_notes = [place for place, each in enumerate(statements) if "FROM texts" in each or "FROM words" in each]
    assert sum("count(*) FROM texts" in statements[place] for place in of_notes) == 1
    assert all(statements[place - 1] != "BEGIN" for place in of_notes)
