"""A home read as of one moment, while memories move between its files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from remembrancer.actors.migrations import Schema
from remembrancer.actors.snapshots import Snapshot, take_snapshot
from remembrancer.actors.store import home_reader
from remembrancer.actors.store.home_reader import HomeReader
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.home import (
    CopyRecords,
    DescribeProjects,
    ExportWritten,
    FindMemories,
    MemoriesFound,
    ProjectsDescribed,
    RecordsCopied,
    WriteExport,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import ImportMemory, Operation
from tests.operations import OTHER_PROJECT, PROJECT, REQUESTED_AT, memory_id_of, store_operation

NONE = MemoriesFound({})
MOVED = memory_id_of(store_operation("moved", ""))


@pytest.fixture
def paths(tmp_path: Path) -> RuntimePaths:
    """A home whose user has a memory, and a project another."""
    paths = RuntimePaths(tmp_path)
    with closing(SqliteRecords(SqliteFile(paths.user_database), "user", lambda: REQUESTED_AT)) as user:
        user.apply([store_operation("moved", "I prefer tabs.", scope="user")])
    with closing(
        SqliteRecords(SqliteFile(paths.project_database(PROJECT.id)), PROJECT.id, lambda: REQUESTED_AT)
    ) as project:
        project.apply([store_operation("other", "The release is cut on Thursdays.")])
    return paths


def take_back(paths: RuntimePaths) -> None:
    """Have the project's file take the user's memory in, and then the user's let it go."""
    with closing(SqliteRecords(SqliteFile(paths.user_database), "user", lambda: REQUESTED_AT)) as user:
        memory = user.portable(MOVED, "")
    assert memory is not None
    taken = ImportMemory(msgspec.structs.replace(memory, scope="project"))
    with closing(
        SqliteRecords(SqliteFile(paths.project_database(PROJECT.id)), PROJECT.id, lambda: REQUESTED_AT)
    ) as project:
        project.apply([Operation("take back", PROJECT, "", REQUESTED_AT, taken)])
    with closing(sqlite3.connect(paths.user_database)) as connection, connection:
        connection.execute("DELETE FROM memories WHERE id = ?", (MOVED,))


@pytest.fixture
def moving(paths: RuntimePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the user's memory taken back to the project, once, between the moments of their two files."""
    moves = [take_back]

    def take(path: Path, schema: Schema) -> Snapshot:
        taken = take_snapshot(path, schema)
        if path == paths.project_database(PROJECT.id) and moves:
            moves.pop()(paths)
        return taken

    monkeypatch.setattr(home_reader, "take_snapshot", take)


@pytest.mark.usefixtures("moving")
def test_a_memory_that_is_taken_back_meanwhile_is_exported_once(tmp_path: Path) -> None:
    written = HomeReader(RuntimePaths(tmp_path)).answer(WriteExport(str(tmp_path / "export")))
    assert isinstance(written, ExportWritten)
    lines = [json.loads(line) for line in (tmp_path / "export").read_bytes().splitlines()[1:]]
    assert [line["memory"]["id"] for line in lines if line["line"] == "memory"].count(MOVED) == 1
    assert written.memories == 2


@pytest.mark.usefixtures("moving")
def test_a_memory_that_is_taken_back_meanwhile_is_in_a_copy_once(tmp_path: Path) -> None:
    copied = HomeReader(RuntimePaths(tmp_path)).answer(CopyRecords(str(tmp_path / "copy")))
    assert isinstance(copied, RecordsCopied)
    assert [file.counts["memories"] for file in copied.files] == [2, 0]


def test_one_project_is_exported_beside_the_damaged_file_of_another(paths: RuntimePaths) -> None:
    damaged = paths.project_database(OTHER_PROJECT.id)
    damaged.parent.mkdir()
    damaged.write_bytes(b"no database" * 500)
    chosen = WriteExport(str(paths.home / "export"), (PROJECT.id,))
    assert HomeReader(paths).answer(chosen) == ExportWritten(files=1, projects=1, memories=1, sessions=1)
    with pytest.raises(RecordsUnusable, match=OTHER_PROJECT.id):
        HomeReader(paths).answer(WriteExport(str(paths.home / "export")))
    described = HomeReader(paths).answer(DescribeProjects())
    assert isinstance(described, ProjectsDescribed)
    assert {each.id: each.memories for each in described.projects} == {PROJECT.id: 1, OTHER_PROJECT.id: 0}
    assert [failure.code for failure in described.unreadable] == ["records_unusable"]


def test_nothing_outside_the_home_is_looked_into(paths: RuntimePaths) -> None:
    assert HomeReader(paths).answer(FindMemories(PROJECT.id, (memory_id_of(store_operation("other", "")),))) != NONE
    assert HomeReader(paths).answer(FindMemories(f"../projects/{PROJECT.id}", (MOVED,))) == NONE
