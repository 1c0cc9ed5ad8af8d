"""One workspace is read and told to a store that plays its part: without processes, watching or a database."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import pytest

from remembrancer.actors.indexer.workspace import BATCH_CHARACTERS, WorkspaceIndexer
from remembrancer.config.settings import Settings
from remembrancer.protocol.files import AskedSync, Files, FilesIndexed, IndexFiles, ReadIndexed, SyncDone, Workspace
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.files.workspace_files import FoundFile
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class SlowStore:
    """Takes a file in only when the next one has been read."""

    def __init__(self) -> None:
        self.reads = [threading.Event() for _ in range(4)]
        self.taken: list[str] = []
        self.ahead: list[int] = []
        self.left: list[int] = []
        self.done: SyncDone | None = None
        self.told = anyio.Event()

    async def ask(self, body: Any) -> Any:
        answer: Any = Files(())
        if not isinstance(body, ReadIndexed):
            assert isinstance(body, IndexFiles)
            self.left.append(body.left)
            if not body.updates:  # how many there will be
                return FilesIndexed()
            self.taken += [update.state.path for update in body.updates]
            following = self.reads[min(len(self.taken), 3)]
            await anyio.to_thread.run_sync(following.wait, PATIENCE_S)
            self.ahead.append(sum(read.is_set() for read in self.reads) - len(self.taken))
            answer = FilesIndexed(added=1)
        return answer

    def tell(self, body: object) -> None:
        assert isinstance(body, SyncDone)
        self.done = body
        self.told.set()


async def test_the_store_is_told_how_many_changed_files_are_left(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for number in range(4):
        (tmp_path / "memory" / f"{number}.md").write_text(f"note {number} " + "word " * (BATCH_CHARACTERS // 5))
    store = SlowStore()
    for read in store.reads:
        read.set()
    workspace = Workspace(ProjectRef("p_0123456789ab", str(tmp_path)), str(tmp_path))
    indexer = WorkspaceIndexer(workspace, store, Settings(watch=False))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        indexer.ask(AskedSync(1, workspace, force=False, source=None))
        await store.told.wait()
        tasks.cancel_scope.cancel()
    assert store.left == [4, 3, 2, 1, 0]


async def test_the_next_files_are_read_while_the_store_takes_in_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    for number in range(4):
        (tmp_path / "memory" / f"{number}.md").write_text(f"note {number} " + "word " * (BATCH_CHARACTERS // 5))
    store = SlowStore()
    workspace = Workspace(ProjectRef("p_0123456789ab", str(tmp_path)), str(tmp_path))
    indexer = WorkspaceIndexer(workspace, store, Settings(watch=False))
    read = indexer._reader.read

    def read_and_say(file: FoundFile, *arguments: Any, **named: Any) -> Any:
        answer = read(file, *arguments, **named)
        store.reads[int(file.path.stem)].set()
        return answer

    monkeypatch.setattr(indexer._reader, "read", read_and_say)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        with anyio.fail_after(PATIENCE_S):
            await store.told.wait()
        tasks.cancel_scope.cancel()
    assert store.done is not None
    assert store.done.error is None
    assert store.taken == [f"memory/{number}.md" for number in range(4)]
    assert store.ahead == [1, 1, 1, 0]
    assert store.done.updated == 0
    assert store.done.added == 4
