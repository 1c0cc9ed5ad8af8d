"""The indexer reads the notes and the code of the projects in use, and maintains both indexes. The process can be
killed at any moment: the next one compares the disk with the index again, and continues."""

import asyncio
import logging
import math
from typing import Final

import anyio
import anyio.abc

from remembrancer.actors.actor_process import Actor, LaunchSpec
from remembrancer.actors.indexer.code_reading import READERS, CodeFiles
from remembrancer.actors.indexer.file_reading import WorkspaceFiles
from remembrancer.actors.indexer.watching import Indexer, TreeFiles
from remembrancer.protocol.control import IndexerHealth
from remembrancer.protocol.files import AwaitIndexerWork, IndexedTree
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.system import lower_priority

POLL_S: Final = 10.0

logger = logging.getLogger(__name__)


class IndexerActor(Actor):
    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._client = StoreClient(spec.paths.store_endpoint, self.speaker, on_connection=self._on_connection)
        self._readers = asyncio.Semaphore(READERS)
        self._indexers: dict[IndexedTree, Indexer] = {}

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        lower_priority()
        async with self._client, anyio.create_task_group() as tasks:
            task_status.started()
            seen = -1
            while True:
                work = await self._client.ask(AwaitIndexerWork(seen), POLL_S, away_s=math.inf)
                seen = work.revision
                for tree in self._indexers.keys() - set(work.trees):
                    self._indexers.pop(tree).scope.cancel()
                for tree in set(work.trees) - self._indexers.keys():
                    self._indexers[tree] = Indexer(tree, self._files_of(tree), self._client.send)
                    tasks.start_soon(self._indexers[tree].run)
                for sync_id, asked in work.asked.items():
                    if asked.tree in self._indexers:
                        self._indexers[asked.tree].ask(sync_id, asked)

    def _files_of(self, tree: IndexedTree) -> TreeFiles:
        settings = self.spec.settings
        if tree.kind == "notes":
            return WorkspaceFiles(tree.root, settings)
        return CodeFiles(tree.root, self._readers, settings.code_exclude)

    def health(self) -> IndexerHealth:
        notes = [each for each in self._indexers.values() if each.tree.kind == "notes"]
        code = [each for each in self._indexers.values() if each.tree.kind == "code"]
        return IndexerHealth(
            workspaces=len(notes),
            files=sum(indexer.files for indexer in notes),
            watching=all(indexer.is_watching for indexer in notes),
            error=next((indexer.error for indexer in notes if indexer.error), None),
            code_trees=len(code),
            code_files=sum(indexer.files for indexer in code),
            native_files=sum(indexer.native_files for indexer in notes),
        )

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")
        if up:  # a new store does not know their progress
            for indexer in self._indexers.values():
                indexer.wake()
