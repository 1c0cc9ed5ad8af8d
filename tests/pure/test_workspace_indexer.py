"""One workspace is read and told to a store that plays its part: without processes, watching or a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from remembrancer.actors.indexer.workspace import BATCH_CHUNKS, WorkspaceIndexer
from remembrancer.config.settings import Settings
from remembrancer.protocol.files import Files, FilesIndexed, IndexFiles, ReadIndexed, SyncDone, SyncFiles, Workspace
from remembrancer.protocol.writes import ProjectRef

T = TypeVar("T")


class Store:
    """Takes in what it is told."""

    def __init__(self) -> None:
        self.left: list[int] = []
        self.told = anyio.Event()

    async def ask(self, body: Any) -> Any:
        if isinstance(body, ReadIndexed):
            return Files(())
        assert isinstance(body, IndexFiles)
        self.left.append(body.left)
        return FilesIndexed(added=len(body.updates))

    def tell(self, body: object) -> None:
        assert isinstance(body, SyncDone)
        self.told.set()


async def test_the_store_is_told_how_many_changed_files_are_left(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for number in range(4):
        (tmp_path / "memory" / f"{number}.md").write_text(
            f"note {number} " + "word " * 2 * BATCH_CHUNKS * Settings().chunk_tokens
        )
    store = Store()
    workspace = Workspace(ProjectRef("p_0123456789ab", str(tmp_path)), str(tmp_path))
    indexer = WorkspaceIndexer(workspace, store, Settings(watch=False))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        indexer.ask(1, SyncFiles(workspace))
        await store.told.wait()
        tasks.cancel_scope.cancel()
    assert store.left == [4, 3, 2, 1, 0]
