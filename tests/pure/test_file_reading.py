"""The indexer reads the transcripts of a project, and no other one's."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.indexer.file_reading import OTHER_PROJECT, FileReader
from remembrancer.config.settings import Settings
from remembrancer.protocol.files import FileChunk, FileState, FileUpdate
from remembrancer.toolsets.files.workspace_files import FoundFile, has_files, scan
from tests.git import make_worktree
from tests.pure.test_transcripts import lines, said

Chunks = tuple[FileChunk, ...]


class World:
    """A workspace, and a folder with the transcripts of its sessions, as Claude Code keeps them."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "code" / "app"
        self.root.mkdir(parents=True)
        self.projects = directory / "projects"
        self.settings = Settings(
            transcripts=True, transcripts_path=f"{self.projects}/*/*.jsonl", chunk_tokens=64, chunk_overlap=16
        )
        self.reader = FileReader(self.root, self.settings)

    def transcript(self, name: str = "s", folder: str | None = None) -> Path:
        folder = folder or "".join(each if each.isalnum() else "-" for each in str(self.root))
        (self.projects / folder).mkdir(parents=True, exist_ok=True)
        return self.projects / folder / f"{name}.jsonl"

    def says(self, number: int, **fields: Any) -> bytes:
        text = f"We talk about lantern {number}, the harbour and the ferry that leaves at {number}."
        return lines(said("user" if number % 2 else "assistant", text, number, **{"cwd": str(self.root), **fields}))

    def found(self) -> list[FoundFile]:
        return scan(self.root, self.settings)[0]

    def read(self, known: FileState | None = None) -> FileUpdate:
        """The one transcript."""
        (file,) = self.found()
        update = self.reader.read(file, known, force=False)
        assert isinstance(update, FileUpdate)
        return update

    def chunks(self) -> Chunks:
        return self.read().chunks or ()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_transcript_that_grows_keeps_its_earlier_chunks(world: World) -> None:
    path = world.transcript()
    before = Chunks()
    for number in range(1, 40, 3):
        with path.open("ab") as file:
            file.write(b"".join(world.says(each) for each in range(number, number + 3)) + world.says(99)[:50])
        chunks = world.chunks()
        assert chunks[: max(0, len(before) - 1)] == before[:-1]
        before = chunks
        path.write_bytes(path.read_bytes()[:-50])
    assert {number for chunk in before for number in range(chunk.start_line, chunk.end_line + 1)} == set(range(1, 40))
    assert len({chunk.text for chunk in before}) == len(before)


def test_what_is_repeated_written_anew_or_only_touched_gives_no_doubles(world: World) -> None:
    path = world.transcript()
    path.write_bytes(b"".join(map(world.says, range(1, 9))))
    chunks = world.chunks()
    with path.open("ab") as file:
        file.write(b"".join(map(world.says, range(1, 9))))
    assert world.chunks() == chunks
    path.write_bytes(world.says(50))
    (chunk,) = world.chunks()
    assert "lantern 50" in chunk.text
    assert chunk.heading == "2026-02-16"
    path = world.transcript()
    path.write_bytes(world.says(1))
    state = world.read().state
    os.utime(path, (1, 1))
    update = world.read(state)
    assert update.chunks is None
    assert update.state.mtime_ns == 10**9


def test_a_growing_session_is_read_in_larger_pieces(world: World) -> None:
    path = world.transcript()
    path.write_bytes(world.says(1))
    state = world.read().state

    def is_due(added: bytes, age_s: float = 0.0) -> bool:
        path.write_bytes(world.says(1) + added)
        os.utime(path, (time.time() - age_s,) * 2)
        (file,) = world.found()
        return world.reader.is_due(file, state)

    assert not is_due(world.says(2))
    assert is_due(world.says(2) * 50)
    assert is_due(world.says(2, padding="x" * 100_000))
    long = msgspec.structs.replace(state, size=2_000_000)
    assert not world.reader.is_due(replace(world.found()[0], size=2_150_000), long), "it is read as a whole"
    assert world.reader.is_due(replace(world.found()[0], size=2_250_000), long)
    assert is_due(world.says(2), age_s=600)
    path.write_bytes(b"")
    assert world.reader.is_due(world.found()[0], state), "it has been written anew"


def test_no_other_projects_session_is_read_and_a_directory_may_be_named(world: World) -> None:
    assert not has_files(world.root, world.settings)
    other = world.transcript(folder="-somewhere-else")
    other.write_bytes(world.says(1))
    assert world.found() == [], "by its folder"
    beside = world.transcript(folder=f"{world.transcript().parent.name}-2")
    beside.write_bytes(world.says(1, cwd=f"{world.root}-2"))
    (file,) = world.found()
    assert world.reader.read(file, None, force=False) == OTHER_PROJECT, "by what it says"
    inside = world.transcript(folder=f"{world.transcript().parent.name}-src")
    inside.write_bytes(world.says(1, cwd=str(world.root / "src")))
    assert isinstance(world.reader.read(world.found()[1], None, force=False), FileUpdate)
    assert has_files(world.root, world.settings)
    assert scan(world.root, Settings()) == ([], {}), "unless they are asked for, no transcript is read"
    sessions = world.transcript().parent / "sessions"
    sessions.mkdir()
    (sessions / "a.jsonl").write_bytes(world.says(1))
    (sessions / "a.txt").write_text("no transcript")
    settings = Settings(transcripts=True, transcripts_path=f"{world.projects}/*/sessions/")
    assert [file.path.name for file in scan(world.root, settings)[0]] == ["a.jsonl"]


@pytest.fixture
def native(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with what assistants remember there: in Claude Code's folder for the workspace, and elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = "".join(each if each.isalnum() else "-" for each in str(world.root))
    for path in (
        f".claude/projects/{folder}/memory/MEMORY.md",
        f".claude/projects/{folder}/memory/topics/deploy.md",
        ".claude/projects/-another-project/memory/MEMORY.md",
        ".codex/memories/style.md",
        ".gemini/GEMINI.md",
        ".claude/elsewhere/own.md",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"# {path}\n")
    return tmp_path / ".claude"


def test_what_assistants_remember_is_read_for_its_project_alone_and_where_asked_for(world: World, native: Path) -> None:
    def names(settings: Settings) -> list[str]:
        return [f"{file.path.parent.name}/{file.path.name}" for file in scan(world.root, settings)[0]]

    (world.root / "MEMORY.md").write_text("# Ours")
    assert names(Settings()) == ["app/MEMORY.md"]
    assert sorted(names(Settings(native_memories=True))) == [
        ".gemini/GEMINI.md",
        "app/MEMORY.md",
        "memories/style.md",
        "memory/MEMORY.md",
        "topics/deploy.md",
    ]
    (native / "settings.json").write_text(f'{{"autoMemoryDirectory": "{native}/elsewhere"}}')
    assert "elsewhere/own.md" in names(Settings(native_memories=True))
    (native / "settings.json").write_text("no JSON")
    assert len(names(Settings(native_memories=True))) == 5
    reader = FileReader(world.root, Settings(native_memories=True))
    updates = [reader.read(file, None, force=False) for file in scan(world.root, Settings(native_memories=True))[0]]
    assert all(isinstance(update, FileUpdate) and update.chunks for update in updates)


def test_a_worktree_has_what_is_remembered_of_its_repository(world: World, native: Path, tmp_path: Path) -> None:
    make_worktree(world.root, tmp_path / "tree")
    found, _ = scan(tmp_path / "tree", Settings(native_memories=True))
    assert "deploy.md" in [file.path.name for file in found]
