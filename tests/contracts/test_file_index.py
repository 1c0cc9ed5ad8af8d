"""The index of files: what is kept of a change, found by words, and given back from the cache."""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from remembrancer.actors.indexer import workspace
from remembrancer.actors.indexer.workspace import WorkspaceIndexer
from remembrancer.actors.store.file_index import FileFilter, FileIndex
from remembrancer.actors.store.file_memories import FileMemories
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.types import EmbeddedMemory, Filters, PassageFilter, Phrase
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.files import (
    FileChunk,
    Files,
    FilesIndexed,
    FileState,
    FileUpdate,
    IndexFiles,
    ReadIndexed,
    SyncDone,
    Workspace,
)
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import ProjectRef
from tests.contracts.records_factories import pending, texts_of
from tests.patience import PATIENCE_S

ROOT = "/shop"
MODEL = "a-model"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FileIndex]:
    made = FileIndex(tmp_path / "index.db", "p_0.files")
    yield made
    made.close()


def note(path: str, *texts: str, heading: str = "", mtime_s: int = 1) -> FileUpdate:
    state = FileState(path, "notes", mtime_s * 10**9, 10, hashlib.sha256("".join(texts).encode()).digest())
    chunks = (FileChunk(10 * place + 1, 10 * place + 10, heading, text) for place, text in enumerate(texts))
    return FileUpdate(state, tuple(chunks))


def change(index: FileIndex, *updates: FileUpdate, removed: Sequence[str] = (), root: str = ROOT) -> FilesIndexed:
    return index.change(root, updates, removed)


def embed(index: FileIndex, numbers: Sequence[int]) -> None:
    """A vector for each text, of its length."""
    embedded = [
        EmbeddedMemory(
            number, digest_of(text), (Passage(0, len(text)),), np.array([[len(text), 1.0]], dtype=np.float32)
        )
        for number, text in texts_of(index, numbers).items()
    ]
    index.save_embeddings(MODEL, embedded)


def found(index: FileIndex, word: str, wanted: FileFilter | None = None) -> list[str]:
    wanted = FileFilter(ROOT) if wanted is None else wanted
    hits = list(index.keyword_hits([Phrase(word)], wanted, 10))
    return [chunk.path for chunk in index.chunks(hits, wanted)]


def test_an_edit_embeds_the_chunks_that_it_changed_and_no_others(index: FileIndex) -> None:
    first = change(index, note("a.md", "one", "two", "three"))
    assert first == FilesIndexed(added=3)
    assert len(pending(index, MODEL)) == 3
    embed(index, pending(index, MODEL))
    second = change(index, note("a.md", "one", "zwei", "three", "four"))
    assert second == FilesIndexed(updated=1, added=1)
    assert set(texts_of(index, pending(index, MODEL)).values()) == {"zwei", "four"}
    assert len(index.passages(PassageFilter(MODEL)).numbers) == 2
    assert found(index, "two") == []
    assert found(index, "zwei") == ["a.md"]


def test_the_same_content_at_another_time_changes_nothing_but_that(index: FileIndex) -> None:
    change(index, note("a.md", "the lantern"))
    (state,) = index.states(ROOT)
    later = FileState(state.path, state.source, 99, 10, state.digest)
    assert change(index, FileUpdate(later)) == FilesIndexed()
    assert index.states(ROOT) == [later]
    assert found(index, "lantern") == ["a.md"]


def test_workspaces_and_paths_and_times_are_kept_apart(index: FileIndex) -> None:
    change(index, note("memory/a.md", "a lantern"), note("memory/ab/c.md", "another lantern", mtime_s=50))
    change(index, note("memory/a.md", "a lantern elsewhere"), root="/other")
    assert found(index, "lantern") == ["memory/a.md", "memory/ab/c.md"]
    assert found(index, "elsewhere") == []
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a")) == []
    assert found(index, "lantern", FileFilter(ROOT, path="./memory/ab/")) == ["memory/ab/c.md"]
    assert found(index, "lantern", FileFilter(ROOT, path="memory/a.md")) == ["memory/a.md"]
    assert found(index, "lantern", FileFilter(ROOT, sources=("sessions",))) == []
    assert found(index, "lantern", FileFilter(ROOT, after=20.0)) == ["memory/ab/c.md"]
    assert {source: counts.files for source, counts in index.counts(ROOT).items()} == {"notes": 2}


def test_a_damaged_index_is_made_anew_and_its_passages_have_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    first = FileIndex(path, "p_0.files")
    change(first, note("a.md", "the lantern"))
    embed(first, pending(first, MODEL))
    before = first.passages(PassageFilter(MODEL)).numbers
    first.close()
    path.write_bytes(b"this is no database" * 100)
    second = FileIndex(path, "p_0.files")
    assert second.states(ROOT) == []
    change(second, note("a.md", "the lantern"))
    embed(second, pending(second, MODEL))
    assert not set(before) & set(second.passages(PassageFilter(MODEL)).numbers)
    second.close()


def test_a_zeroed_page_is_damage_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    made = FileIndex(path, "p_0.files")
    notes = (note(f"{n}.md", *(f"lantern {n} {k} " * 40 for k in range(4))) for n in range(40))
    change(made, *notes)
    embed(made, pending(made, MODEL))
    made.close()
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        index = FileIndex(path, "p_0.files")
        try:
            found(index, "lantern")
            change(index, note("1.md", "the windmill"), removed=["2.md"])
            embed(index, pending(index, MODEL))
            index.passages(PassageFilter(MODEL))
        except RecordsUnusable:
            assert index.is_damaged
        index.close()


def test_a_recall_sees_chunks_as_memories_that_say_where_they_are(index: FileIndex) -> None:
    change(index, note("memory/a.md", "the lantern", mtime_s=50))
    memories = FileMemories(index, FileFilter(ROOT, ("notes",)))
    everything = Filters("session")
    (hit,) = memories.keyword_hits([Phrase("lantern")], everything, 5)
    record = memories.load([hit], everything)[hit]
    assert (record.content, record.origin, record.lines, record.source.file) == (
        "the lantern",
        "notes",
        (1, 10),
        "memory/a.md",
    )
    assert memories.ranking_facts([hit], everything)[hit].happened_at == 50.0
    assert memories.ranking_facts([hit], Filters("session", after=60.0)) == {}
    assert memories.matching(Filters("session", scopes=("session",)), 5) == []
    assert memories.matching(everything, 5) == memories.top(everything, "latest", 5) == [hit]


class IndexStore:
    """A store for a `WorkspaceIndexer`: an index, and the messages of each reading."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        self.taken: list[str] = []
        self.told: list[SyncDone] = []
        self.heard = anyio.Event()

    async def ask(self, body: Any) -> Any:
        answer: object
        if isinstance(body, ReadIndexed):
            answer = Files(tuple(self._index.states(ROOT, body.after)))
        else:
            assert isinstance(body, IndexFiles)
            answer = self._index.change(ROOT, body.updates, body.removed)
            self.taken += [update.state.path for update in body.updates]
        return answer

    def tell(self, body: object) -> None:
        assert isinstance(body, SyncDone)
        self.told.append(body)
        self.heard.set()


async def test_a_disk_that_is_full_in_the_middle_of_a_sync_is_told_and_what_is_left_is_read_when_there_is_room(
    index: FileIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    (root / "memory").mkdir(parents=True)
    for number in range(24):
        words = " ".join(f"word{number}x{each}" for each in range(1500))
        (root / "memory" / f"{number:02}.md").write_text(f"lantern{number}\n\n{words}\n")
        os.utime(root / "memory" / f"{number:02}.md", (1, 1))
    monkeypatch.setattr(workspace, "RETRY_S", 0.05)
    store = IndexStore(index)
    indexer = WorkspaceIndexer(Workspace(ProjectRef("p_0", ROOT), str(root)), store, Settings(watch=False))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with anyio.create_task_group() as tasks:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))  # no file may be larger, as if no room were left
        try:
            tasks.start_soon(indexer.run)
            with anyio.fail_after(PATIENCE_S):
                await store.heard.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        first, before = store.told[0], list(store.taken)
        assert "no room" in (first.error or "")
        assert 0 < len(before) < 24
        assert {state.path for state in index.states(ROOT)} == set(before)
        with anyio.fail_after(PATIENCE_S):
            while store.told[-1].error is not None:
                store.heard = anyio.Event()
                await store.heard.wait()
        tasks.cancel_scope.cancel()
    assert sorted(store.taken) == [f"memory/{number:02}.md" for number in range(24)], "each is taken in once"
    assert all(found(index, f"lantern{number}") == [f"memory/{number:02}.md"] for number in range(24))
