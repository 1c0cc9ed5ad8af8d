import json
import os
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.index_file import FileState, ReadNote
from remembrancer.actors.indexer.file_reading import OTHER_PROJECT, WorkspaceFiles
from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import Chunk
from remembrancer.memory.markdown_index import with_block
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.memory.transcripts import TranscriptTurn, chunks_of_turns, read_turns
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.files.note_tools import read_note
from remembrancer.toolsets.files.workspace_files import FoundFile, has_files, native_files, scan
from tests.git import make_worktree

AT = 1_771_243_200.0  # 2026-02-16T12:00:00Z
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def said(role: str, content: Any, number: int = 1, **fields: Any) -> dict[str, Any]:
    written = {"type": role, "message": {"role": role, "content": content}, "uuid": f"uuid-{number}"}
    return {**written, "cwd": "/code/app", "timestamp": f"2026-02-16T12:00:{number % 60:02}.000Z", **fields}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def turns_in(data: bytes) -> list[TranscriptTurn]:
    return read_turns(data)[0]


def transcript(client: str) -> bytes:
    return (Path(__file__).parents[1] / "cases" / f"{client}.jsonl").read_bytes()


SESSION = transcript("claude_code")


def test_what_was_said_is_read_once_and_what_only_a_program_needs_is_not() -> None:
    turns, directory = read_turns(SESSION)
    assert turns == [
        TranscriptTurn(1, "user", "Which database do we use?", AT + 1),
        TranscriptTurn(2, "assistant", "I look it up.\n[Bash: cat README.md]", AT + 2),
        TranscriptTurn(3, "assistant", "[result: PostgreSQL 16]", AT + 3),
        TranscriptTurn(4, "assistant", "PostgreSQL 16.", AT + 4),
        TranscriptTurn(5, "user", "Thanks!", AT + 9),
    ]
    assert directory == "/code/app"
    half = lines(said("user", "And the cache?", 20))[:-5]
    assert turns_in(SESSION + half) == turns_in(SESSION)
    assert read_turns(b"") == ([], "")
    copied = SESSION + lines(said("user", "Which database do we use?", 1), said("user", "And the cache?", 20))
    assert [turn.text for turn in turns_in(copied)][-2:] == ["Thanks!", "And the cache?"]


def test_codex_is_read_as_well() -> None:
    turns, directory = read_turns(transcript("codex"))
    assert [(turn.number, turn.role, turn.text) for turn in turns] == [
        (1, "user", "Does it build?"),
        (2, "assistant", '[shell: {"command":["make"]}]'),
        (3, "assistant", "[result: ok]"),
        (4, "assistant", "It does."),
    ]
    assert directory == "/code/app"


def test_long_results_are_shortened_and_secrets_blotted_out() -> None:
    result = f"begin {'x' * 5000} token {TOKEN} {'y' * 5000} end"
    text = turns_in(
        lines(
            said("user", [{"type": "tool_result", "tool_use_id": "t", "content": result}]),
            said("user", f"use {TOKEN}", 2),
        )
    )
    assert text[0].text.startswith("[result: begin xxx")
    assert text[0].text.endswith("yyy end]")
    assert len(text[0].text) < 500
    assert TOKEN not in str(text)
    assert "hidden]" in text[1].text
    for place in range(260, 330):  # where it would be cut in the middle
        (cut,) = turns_in(
            lines(said("user", [{"type": "tool_result", "content": f"{'x ' * (place // 2)}{TOKEN} {'y' * 900}"}]))
        )
        assert "ghp_" not in cut.text


KEYS = st.sampled_from(["type", "message", "content", "payload", "text", "uuid", "cwd", "timestamp", "role"])
KINDS = st.sampled_from(["user", "assistant", "response_item", "message", "tool_result", "text"])
RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner | KINDS, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=40) | RECORDS.map(lambda value: json.dumps(value).encode()), max_size=8))
def test_no_line_is_so_strange_that_the_others_are_not_read(strange: list[bytes]) -> None:
    data = b"".join(line.replace(b"\n", b" ") + b"\n" for line in strange) + lines(said("user", "Here.", 50))
    assert turns_in(data)[-1].text == "Here."


def turn(number: int, text: str, role: Any = "user") -> TranscriptTurn:
    return TranscriptTurn(number, role, text, AT)


def test_turns_are_packed_with_the_last_of_the_chunk_before_and_a_long_one_is_cut() -> None:
    turns = [turn(number, f"We talk about lantern number {number}, and about the harbour.") for number in range(1, 101)]
    chunks = list(chunks_of_turns(turns, 200, 40))
    assert chunks[0].heading == "2026-02-16"
    assert (chunks[0].start_line, chunks[-1].end_line) == (1, 100)
    for before, after in pairwise(chunks):
        assert before.start_line < after.start_line <= before.end_line < after.end_line
    assert all(estimate_tokens(chunk.text) <= 200 for chunk in chunks)
    chunks = list(chunks_of_turns([turn(1, "Hello."), turn(2, "word " * 900, "assistant"), turn(3, "Bye.")], 200, 40))
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(1, 2), *[(2, 2)] * (len(chunks) - 2), (2, 3)]
    assert len(chunks) > 5
    assert list(chunks_of_turns([turn(1, "Hello."), turn(2, "Good day.", "assistant")])) == [
        Chunk(1, 2, "2026-02-16", "User: Hello.\n\nAssistant: Good day.")
    ]
    assert list(chunks_of_turns([])) == []


@pytest.mark.parametrize("timestamp", ["", "yesterday", 5, None, "2026-02-16T12:00:00", "2026-02-16T13:00:00+01:00"])
def test_a_time_that_cannot_be_read_is_none(timestamp: Any) -> None:
    (only,) = turns_in(lines(said("user", "Hello.", timestamp=timestamp)))
    assert only.at == (AT if str(timestamp).startswith("2026") else None)


# --- The indexer reads the transcripts of a project, and no other one's.
Chunks = tuple[Chunk, ...]


class World:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "code" / "app"
        self.root.mkdir(parents=True)
        self.projects = directory / "projects"
        self.settings = Settings(
            transcripts=True, transcripts_path=f"{self.projects}/*/*.jsonl", chunk_tokens=64, chunk_overlap=16
        )
        self.files = WorkspaceFiles(str(self.root), self.settings)

    def transcript(self, name: str = "s", folder: str | None = None) -> Path:
        folder = folder or "".join(each if each.isalnum() else "-" for each in str(self.root))
        (self.projects / folder).mkdir(parents=True, exist_ok=True)
        return self.projects / folder / f"{name}.jsonl"

    def says(self, number: int, **fields: Any) -> bytes:
        text = f"We talk about lantern {number}, the harbour and the ferry that leaves at {number}."
        return lines(said("user" if number % 2 else "assistant", text, number, **{"cwd": str(self.root), **fields}))

    def found(self) -> list[FoundFile]:
        return scan(self.root, self.settings)[0]

    def read(self, known: FileState | None = None) -> ReadNote:
        (file,) = self.found()
        read = self.files.read_file(file, known)
        assert read is not None
        return read

    def chunks(self) -> Chunks:
        return self.read().chunks or ()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def state_of(read: ReadNote) -> FileState:
    return FileState(read.kind, read.mtime_ns, read.size, read.digest, read.skipped)


def test_a_transcript_that_grows_keeps_its_earlier_chunks(world: World) -> None:
    path = world.transcript()
    before: Chunks = ()
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
    state = state_of(world.read())
    os.utime(path, (1, 1))
    touched = world.read(state)
    assert touched.chunks is None
    assert touched.mtime_ns == 10**9


def test_a_growing_session_is_read_in_larger_pieces(world: World) -> None:
    path = world.transcript()
    path.write_bytes(world.says(1))
    state = state_of(world.read())

    def is_due(added: bytes, age_s: float = 0.0) -> bool:
        path.write_bytes(world.says(1) + added)
        os.utime(path, (time.time() - age_s,) * 2)
        (file,) = world.found()
        return world.files.is_due(file, state)

    assert not is_due(world.says(2))
    assert is_due(world.says(2) * 50)
    assert is_due(world.says(2, padding="x" * 100_000))
    long = state._replace(size=2_000_000)
    assert not world.files.is_due(replace(world.found()[0], size=2_150_000), long), "it is read as a whole"
    assert world.files.is_due(replace(world.found()[0], size=2_250_000), long)
    assert is_due(world.says(2), age_s=600)
    path.write_bytes(b"")
    assert world.files.is_due(world.found()[0], state), "it has been written anew"


def test_no_other_projects_session_is_read_and_a_directory_may_be_named(world: World) -> None:
    assert not has_files(world.root, world.settings)
    other = world.transcript(folder="-somewhere-else")
    other.write_bytes(world.says(1))
    assert world.found() == [], "by its folder"
    beside = world.transcript(folder=f"{world.transcript().parent.name}-2")
    beside.write_bytes(world.says(1, cwd=f"{world.root}-2"))
    assert world.read().skipped == OTHER_PROJECT, "by what it says"
    inside = world.transcript(folder=f"{world.transcript().parent.name}-src")
    inside.write_bytes(world.says(1, cwd=str(world.root / "src")))
    read = world.files.read_file(world.found()[1], None)
    assert read is not None
    assert read.chunks
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
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = "".join(each if each.isalnum() else "-" for each in str(world.root))
    for path in (
        f".claude/projects/{folder}/memory/MEMORY.md",
        f".claude/projects/{folder}/memory/topics/deploy.md",
        ".claude/projects/-another-project/memory/MEMORY.md",
        ".codex/memories/style.md",
        ".codeium/windsurf/memories/global_rules.md",
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
        "memories/global_rules.md",
        "memories/style.md",
        "memory/MEMORY.md",
        "topics/deploy.md",
    ]
    (native / "settings.json").write_text(f'{{"autoMemoryDirectory": "{native}/elsewhere"}}')
    assert "elsewhere/own.md" in names(Settings(native_memories=True))
    (native / "settings.json").write_text("no JSON")
    assert len(names(Settings(native_memories=True))) == 6
    files = WorkspaceFiles(str(world.root), Settings(native_memories=True))
    read = [files.read_file(file, None) for file in scan(world.root, Settings(native_memories=True))[0]]
    assert all(each is not None and each.chunks for each in read)


def test_a_file_that_an_assistant_keeps_is_read_like_a_note_unless_the_token_hides_the_user(
    world: World, native: Path
) -> None:
    (world.root / "MEMORY.md").write_text("# Ours")
    root = str(world.root)
    mine, guest = (ProjectRef("p_0123456789ab", root, sees_user=each) for each in (True, False))
    settings = Settings(native_memories=True)
    for file in scan(world.root, settings)[0]:
        assert read_note(file.shown, mine, root, settings).startswith("# ")
    style = str(native.parent / ".codex/memories/style.md")
    for project, chosen in ((mine, Settings()), (guest, settings), (guest, Settings(notes_extra_paths=(style,)))):
        with pytest.raises(InvalidInput, match="outside the workspace"):
            read_note(style, project, root, chosen)
        assert read_note("MEMORY.md", project, root, chosen) == "# Ours"


def test_what_vscode_remembers_of_a_project_is_read_there_alone(world: World, native: Path) -> None:
    data = native.parent / ".config" / "Code" / "User"
    for name, folder in (("a", world.root), ("b", "/another/project")):
        memories = data / "workspaceStorage" / name / "GitHub.copilot-chat" / "memory-tool" / "memories"
        for path in ("repo/build.md", "MTIz/plan.md"):
            (memories / path).parent.mkdir(parents=True)
            (memories / path).write_text(f"# {name}\n")
        (data / "workspaceStorage" / name / "workspace.json").write_text(f'{{"folder": "file://{folder}"}}')
    user = data / "globalStorage" / "github.copilot-chat" / "memory-tool" / "memories"
    user.mkdir(parents=True)
    (user / "style.md").write_text("# Style\n")
    found, _ = scan(world.root, Settings(native_memories=True))
    read = [str(file.path.relative_to(data)) for file in found if file.path.is_relative_to(data)]
    assert read == [
        "globalStorage/github.copilot-chat/memory-tool/memories/style.md",
        "workspaceStorage/a/GitHub.copilot-chat/memory-tool/memories/repo/build.md",
    ]
    assert native_files()["vscode"] == 3


def test_a_note_around_the_block_of_memories_is_found_without_its_blank_lines(world: World) -> None:
    (world.root / "MEMORY.md").write_text(with_block("# Ours", "- AB12 one\n" * 50, 0.0) + "\nBelow.\n")
    (file,) = scan(world.root, Settings())[0]
    read = WorkspaceFiles(str(world.root), Settings()).read_file(file, None)
    assert read is not None
    assert read.chunks == (Chunk(1, 56, "Ours", "# Ours\n\nBelow."),)


def test_a_worktree_has_what_is_remembered_of_its_repository(world: World, native: Path, tmp_path: Path) -> None:
    make_worktree(world.root, tmp_path / "tree")
    found, _ = scan(tmp_path / "tree", Settings(native_memories=True))
    assert "deploy.md" in [file.path.name for file in found]
