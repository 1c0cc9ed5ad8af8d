"""A home read as of one moment."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.migrations import Step
from remembrancer.actors.store.home_reader import HomeReader
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.home import CopyRecords, DescribeProjects, FindMemories, MemoriesFound, ProjectsDescribed
from remembrancer.protocol.paths import RuntimePaths
from tests.operations import PROJECT, REQUESTED_AT, memory_id_of, store_operation

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
