"""The indexer reads the notes of the projects in use, sends them to the store, and indexes their code.

It owns only the code indexes, which can be rebuilt. The store says which workspaces and trees are in use; the disk says
what is in them. Changed notes are cut into chunks and sent. The process can be killed at any moment: the next one
compares disk and index again, and continues.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import anyio.abc

from remembrancer.actors.indexer.code_trees import CodeTrees
from remembrancer.actors.indexer.workspace import WorkspaceIndexer
from remembrancer.actors.shell import Actor, LaunchSpec, lower_priority
from remembrancer.protocol.code import AwaitIndexerWork, IndexerWork
from remembrancer.protocol.control import IndexerHealth
from remembrancer.protocol.files import Workspace
from remembrancer.protocol.store_client import StoreClient

POLL_S: Final = 10.0
"""The time for which a request for work stays open."""

logger = logging.getLogger(__name__)


class IndexerActor(Actor):
    """Runs a `WorkspaceIndexer` for each workspace in use."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._client = StoreClient(spec.paths.store_endpoint, self.speaker, on_connection=self._on_connection)
        self._indexers: dict[Workspace, tuple[WorkspaceIndexer, anyio.CancelScope]] = {}
        self._code = CodeTrees(spec.settings)
        self._seen = -1

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        lower_priority()
        async with self._client, anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                work = await self._client.await_news(lambda: AwaitIndexerWork(self._seen), POLL_S)
                self._seen = work.revision
                self._take_up(work, tasks)
                self._code.take_up(work.trees, tasks)

    def _take_up(self, work: IndexerWork, tasks: anyio.abc.TaskGroup) -> None:
        for workspace in self._indexers.keys() - set(work.workspaces):
            self._indexers.pop(workspace)[1].cancel()
        for workspace in work.workspaces:
            if workspace not in self._indexers:
                indexer = WorkspaceIndexer(workspace, self._client, self.spec.settings)
                self._indexers[workspace] = indexer, anyio.CancelScope()
                tasks.start_soon(self._work_on, *self._indexers[workspace])
        for sync_id, asked in work.asked.items():
            if asked.workspace in self._indexers:
                self._indexers[asked.workspace][0].ask(sync_id, asked)

    def health(self) -> IndexerHealth:
        indexers = [indexer for indexer, _ in self._indexers.values()]
        return IndexerHealth(
            workspaces=len(indexers),
            files=sum(indexer.files for indexer in indexers),
            syncs=sum(indexer.syncs for indexer in indexers),
            watching=all(indexer.is_watching for indexer in indexers),
            error=next((indexer.error for indexer in indexers if indexer.error), None),
            code_trees=len(self._code.trees),
            code_files=self._code.files,
            native_files=sum(indexer.native_files for indexer in indexers),
        )

    async def _work_on(self, indexer: WorkspaceIndexer, scope: anyio.CancelScope) -> None:
        with scope:
            await indexer.run()

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")
        self._seen = -1
        if up:
            for indexer, _ in self._indexers.values():
                indexer.forget()
