"""A recall asks the databases few questions, however much there is to weigh."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from remembrancer.actors.store.file_index import FileFilter, FileIndex
from remembrancer.actors.store.file_memories import FileMemories
from remembrancer.actors.store.records import sqlite_file
from remembrancer.actors.store.records.types import Vectors
from remembrancer.actors.store.retrieval.view import Source
from remembrancer.protocol.files import FileChunk, FileState, FileUpdate
from remembrancer.protocol.writes import EntityRef
from tests.actors.spaces_rig import NOW, Spaces
from tests.operations import PROJECT, SESSION

MOST_STATEMENTS = 20
MOST_OF_A_STORE = 10
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


@pytest.fixture
def spaces(tmp_path: Path, statements: list[str]) -> Iterator[Spaces]:
    """Facts and turns that name two things each, of several sessions, in a project's space and the user's."""
    with closing(Spaces(tmp_path)) as spaces:
        spaces.vector_of = vector_of
        texts = [
            f"The {one} {said} the {other}, {number}"
            for number, said in enumerate(SAID)
            for one in THINGS
            for other in THINGS
        ]
        for scopes in (("project", "project", "session"), ("user",)):
            for place, text in enumerate(texts):
                spaces.store(
                    text,
                    scopes[place % len(scopes)],
                    type="episodic" if place % 3 == 0 else "semantic",
                    session_id=SESSION if place % 4 == 0 else f"other {place // 40}",
                    occurred_at=NOW - 100_000 + 20 * place,
                    related_entities=tuple(EntityRef(each, "thing", "about") for each in THINGS if each in text),
                )
        yield spaces


async def test_a_hybrid_recall_of_a_project_and_its_user_takes_few_statements(
    spaces: Spaces, statements: list[str]
) -> None:
    questions = [f"Which {one} of 1847 goes with the {other}?" for one in THINGS for other in THINGS[::3]]
    questions += ["lantern", "What is older than the tide?", "zeppelin", "Was the ferry moved?", "beacon-7 chart_old"]
    spaces.threads = ThreadPoolExecutor(1)
    await spaces.recall("warm")  # FTS5 reads its settings for the first question of a thread
    counts: dict[str, int] = {}
    walked = 0
    for question in questions:
        statements.clear()
        assert await spaces.found(question)
        counts[question] = len(statements)
        walked += any("memory_links AS l" in each and "most" in each for each in statements)
    assert walked > len(questions) / 2, "the graph has a part in most of them"
    assert max(counts.values()) <= MOST_STATEMENTS, counts


def test_a_store_takes_few_statements(spaces: Spaces, statements: list[str]) -> None:
    for text in ("The winch of the lantern needs grease.", "Grease for the winch is in the harbour."):
        statements.clear()
        spaces.store(text, passages=0)
    assert len(dict.fromkeys(statements)) <= MOST_OF_A_STORE, "one is seen once more for each trigger that it sets off"


async def test_the_notes_beside_memories_are_counted_once_and_asked_without_a_transaction(
    spaces: Spaces, statements: list[str], tmp_path: Path
) -> None:
    chunk = FileChunk(1, 2, "", "The lantern stands at the pier.")
    with closing(FileIndex(tmp_path / "index.db", f"{PROJECT.id}.files")) as index:
        index.change("/root", [FileUpdate(FileState("a.md", "notes", 1, 1, b"digest"), (chunk,))], [])
        spaces.threads = ThreadPoolExecutor(1)
        for question in ("warm", "Which lantern stands at the pier?"):
            statements.clear()
            view = spaces.view(PROJECT.id).beside(Source(FileMemories(index, FileFilter("/root", ("notes",)))))
            answer = await spaces.recall(question, view=view, limit=50)
    assert any(memory.origin == "notes" for memory in answer.memories)
    of_notes = [place for place, each in enumerate(statements) if "FROM texts" in each or "FROM words" in each]
    assert sum("count(*) FROM texts" in statements[place] for place in of_notes) == 1
    assert all(statements[place - 1] != "BEGIN" for place in of_notes)
