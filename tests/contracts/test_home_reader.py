"""A home read as of one moment."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.migrations import Step
from remembrancer.actors.store.home_reader import HomeReader
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.errors import InvalidInput, RecordsUnusable
from remembrancer.protocol.home import (
    CopyRecords,
    DescribeProjects,
    ExportWritten,
    FindMemories,
    MemoriesFound,
    ProjectsDescribed,
    WriteExport,
)
from remembrancer.protocol.paths import RuntimePaths
from tests.operations import OTHER_PROJECT, PROJECT, REQUESTED_AT, memory_id_of, store_operation

NONE = MemoriesFound({})
MOVED = memory_id_of(store_operation("moved", ""))


@pytest.fixture
def paths(tmp_path: Path) -> RuntimePaths:
    """A home whose user has a memory, and a project another."""
    paths = RuntimePaths(tmp_path)
    with closing(SqliteFile(paths.database)) as database:
        user, project = (Records(database, name, lambda: REQUESTED_AT) for name in ("user", PROJECT.id))
        user.apply([store_operation("moved", "I prefer tabs.", scope="user")])
        project.apply([store_operation("other", "The release is cut on Thursdays.")])
    return paths


def test_a_home_is_exported_copied_and_described_as_of_one_moment(paths: RuntimePaths) -> None:
    reader = HomeReader(paths)
    written = reader.answer(WriteExport(str(paths.home / "export")))
    assert written == ExportWritten(files=2, projects=1, memories=2, sessions=2)
    lines = [json.loads(line) for line in (paths.home / "export").read_bytes().splitlines()[1:]]
    assert [line["memory"]["content"] for line in lines if line["line"] == "memory"] == [
        "The release is cut on Thursdays.",
        "I prefer tabs.",
    ]
    copied = reader.answer(CopyRecords(str(paths.home / "copy")))
    assert [(file.name, file.counts["memories"]) for file in copied] == [("memory.db", 2)]
    described = reader.answer(DescribeProjects())
    assert isinstance(described, ProjectsDescribed)
    assert ([(each.id, each.memories) for each in described.projects], described.has_user) == ([(PROJECT.id, 1)], True)


def test_one_project_is_exported_without_the_others(paths: RuntimePaths) -> None:
    chosen = WriteExport(str(paths.home / "export"), (PROJECT.id,))
    assert HomeReader(paths).answer(chosen) == ExportWritten(files=2, projects=1, memories=1, sessions=1)
    with pytest.raises(InvalidInput, match=OTHER_PROJECT.id):
        HomeReader(paths).answer(WriteExport(str(paths.home / "export"), (OTHER_PROJECT.id,)))


def test_a_damaged_database_is_said(paths: RuntimePaths) -> None:
    paths.database.write_bytes(b"no database" * 500)
    described = HomeReader(paths).answer(DescribeProjects())
    assert isinstance(described, ProjectsDescribed)
    assert [failure.code for failure in described.unreadable] == ["records_unusable"]
    with pytest.raises(RecordsUnusable):
        HomeReader(paths).answer(WriteExport(str(paths.home / "export")))


def test_a_home_of_an_earlier_schema_is_read_and_stays_as_it_is(
    paths: RuntimePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MEMORY, "steps", (*MEMORY.steps, Step("99.0.0", "CREATE TABLE later (x);")))
    before = contents_of(paths.home)
    described = HomeReader(paths).answer(DescribeProjects())
    assert isinstance(described, ProjectsDescribed)
    assert [each.memories for each in described.projects] == [1]
    (copied,) = HomeReader(paths).answer(CopyRecords(str(paths.home / "copy")))
    assert copied.schema_version == MEMORY.latest
    shutil.rmtree(paths.home / "copy")
    assert contents_of(paths.home) == before


def contents_of(home: Path) -> dict[Path, bytes]:
    """The files of a home, but for logs."""
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and "-" not in path.suffix}


def test_nothing_outside_what_is_asked_for_is_looked_into(paths: RuntimePaths) -> None:
    assert HomeReader(paths).answer(FindMemories(PROJECT.id, (memory_id_of(store_operation("other", "")),))) != NONE
    assert HomeReader(paths).answer(FindMemories(PROJECT.id, (MOVED,))) == NONE
    assert HomeReader(paths).answer(FindMemories(f"../projects/{PROJECT.id}", (MOVED,))) == NONE
