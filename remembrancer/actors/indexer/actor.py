"""The indexer reads the notes of the projects in use, sends them to the store, and indexes their code.

It owns only the code indexes, which can be rebuilt. The store says which workspaces and trees are in use; the disk says
what is in them. Changed notes are cut into chunks and sent. The process can be killed at any moment: the next one
compares disk and index again, and continues.
"""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.abc

from remembrancer.actors.indexer.code_reading import CodeReaders
from remembrancer.actors.indexer.code_trees import TreeIndexer
from remembrancer.actors.indexer.watching import Indexer
from remembrancer.actors.indexer.workspace import WorkspaceIndexer
from remembrancer.actors.shell import Actor, LaunchSpec, lower_priority
from remembrancer.protocol.code import AwaitIndexerWork
from remembrancer.protocol.control import IndexerHealth
from remembrancer.protocol.files import Workspace
from remembrancer.protocol.store_client import StoreClient

POLL_S: Final = 10.0
"""The time for which a request for work stays open."""

K = TypeVar("K")
R = TypeVar("R", bound=Indexer)
logger = logging.getLogger(__name__)


class IndexerActor(Actor):
    """Runs an indexer for each workspace and each tree of code in use."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._client = StoreClient(spec.paths.store_endpoint, self.speaker, on_connection=self._on_connection)
        self._readers = CodeReaders()
        self._workspaces: dict[Workspace, WorkspaceIndexer] = {}
        self._trees: dict[tuple[str, str, bool], TreeIndexer] = {}
        """By index, root and `watch`: two projects may have the same tree."""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        lower_priority()
        settings = self.spec.settings
        async with self._client, anyio.create_task_group() as tasks:
            task_status.started()
            seen = -1
            while True:
                work = await self._client.ask(AwaitIndexerWork(seen), POLL_S, away_s=math.inf)
                seen = work.revision
                workspaces = {each: partial(WorkspaceIndexer, each, self._client, settings) for each in work.workspaces}
                _run_these(workspaces, self._workspaces, tasks)
                for sync_id, asked in work.asked.items():
                    if asked.workspace in self._workspaces:
                        self._workspaces[asked.workspace].ask(sync_id, asked)
                trees = {(each.database, each.root, each.watch): each for each in work.trees}
                making = {key: partial(TreeIndexer, tree, self._readers, settings) for key, tree in trees.items()}
                _run_these(making, self._trees, tasks)
                for key, tree in trees.items():
                    self._trees[key].ask(tree)

    def health(self) -> IndexerHealth:
        indexers = self._workspaces.values()
        return IndexerHealth(
            workspaces=len(indexers),
            files=sum(indexer.files for indexer in indexers),
            watching=all(indexer.is_watching for indexer in indexers),
            error=next((indexer.error for indexer in indexers if indexer.error), None),
            code_trees=len(self._trees),
            code_files=sum(indexer.files for indexer in self._trees.values()),
            native_files=sum(indexer.native_files for indexer in indexers),
        )

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")
        if up:
            for indexer in self._workspaces.values():
                indexer.forget()


def _run_these(wanted: Mapping[K, Callable[[], R]], running: dict[K, R], tasks: anyio.abc.TaskGroup) -> None:
    """Run these indexers, which are made unless they run already, and no others."""
    for key in running.keys() - wanted.keys():
        running.pop(key).cancel()
    for key in wanted.keys() - running.keys():
        running[key] = wanted[key]()
        tasks.start_soon(running[key].run)
