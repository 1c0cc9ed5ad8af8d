"""Trees of code: they are compared with their indexes, read where they have changed, and watched.

The indexer writes each tree's index, and the store reads it. Decisions rest on the disk and the index alone, so a kill
costs nothing but the time to compare again.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from watchfiles import Change, awatch

from remembrancer.actors.indexer.code_reading import CodeReaders
from remembrancer.actors.indexer.watching import RETRY_S, UNWATCHED_LOOK_S, portions
from remembrancer.code.index import UNDECODABLE, CodeIndex
from remembrancer.code.languages import language_of
from remembrancer.code.tree import FOREIGN, IGNORE_FILES, SourceFile, Tree
from remembrancer.config.settings import Settings
from remembrancer.protocol.code import CodeTree
from remembrancer.protocol.paths import delete_database

READERS: Final = 2
"""Reading processes that run at once."""
UNDER_WAY: Final = 2 * READERS
"""Batches of files that are being read or wait to be indexed."""
BATCH_FILES: Final = 200
BATCH_BYTES: Final = 2 * 1024 * 1024
STEP_MS: Final = 150
GROUPED_MS: Final = 1000
"""Files are read after `STEP_MS` without a change, and after `GROUPED_MS` at the latest."""

logger = logging.getLogger(__name__)


class CodeTrees:
    """Keeps the indexes of all trees in use up to date."""

    def __init__(self, settings: Settings, readers: CodeReaders | None = None) -> None:
        self._settings = settings
        self._readers = readers or CodeReaders(max(1, min(READERS, os.cpu_count() or 1)))
        self._indexers: dict[str, tuple[TreeIndexer, anyio.CancelScope]] = {}
        """By the path of the index, since two projects may have the same tree."""

    @property
    def syncs(self) -> int:
        """The number of completed comparisons of a tree with its index."""
        return sum(indexer.syncs for indexer, _ in self._indexers.values())

    @property
    def trees(self) -> list[CodeTree]:
        """The trees whose indexes are kept up to date."""
        return [indexer.tree for indexer, _ in self._indexers.values()]

    @property
    def files(self) -> int:
        """The number of files in all trees, as of the last comparison."""
        return sum(indexer.files for indexer, _ in self._indexers.values())

    def take_up(self, trees: Sequence[CodeTree], tasks: anyio.abc.TaskGroup) -> None:
        """Index these trees, and no others, in tasks of a group."""
        wanted = {tree.database: tree for tree in trees}
        for database, (indexer, scope) in list(self._indexers.items()):
            tree = wanted.get(database)
            if tree is None or (tree.root, tree.watch) != (indexer.tree.root, indexer.tree.watch):
                scope.cancel()
                del self._indexers[database]
            elif tree.asked != indexer.tree.asked:
                indexer.ask(tree)
        for tree in trees:
            if tree.database not in self._indexers:
                indexer = TreeIndexer(tree, self._readers, self._settings)
                self._indexers[tree.database] = indexer, anyio.CancelScope()
                tasks.start_soon(self._work_on, *self._indexers[tree.database])

    async def _work_on(self, indexer: TreeIndexer, scope: anyio.CancelScope) -> None:
        with scope:
            await indexer.run()


class TreeIndexer:
    """Keeps the index of one tree up to date. Use `run` as a task."""

    def __init__(self, tree: CodeTree, readers: CodeReaders, settings: Settings) -> None:
        self.tree = tree
        self._readers = readers
        self._files = Tree(tree.root, settings.code_exclude)
        self._wake = anyio.Event()
        self._watching = False
        self.files = 0
        self.syncs = 0

    def ask(self, tree: CodeTree) -> None:
        """Read the tree again, on a client's request."""
        self.tree = tree
        self._wake.set()

    async def run(self) -> None:
        """Read the tree now and after every change, until cancelled or until its index is deleted: the store has a lost
        one made anew."""
        async with anyio.create_task_group() as tasks:
            if self.tree.watch:
                tasks.start_soon(self._watch)
            while True:
                self._wake = anyio.Event()
                again_s = await self._tolerantly()
                if not await anyio.Path(self.tree.database).exists():
                    tasks.cancel_scope.cancel()
                with anyio.move_on_after(again_s):
                    await self._wake.wait()

    async def _tolerantly(self) -> float | None:
        """Compare the tree with its index. Returns the seconds until the next comparison is due, None if only a change
        is waited for."""
        path = Path(self.tree.database)
        try:
            with closing(await anyio.to_thread.run_sync(CodeIndex, path, "write")) as index:
                await self._sync(index)
                self.syncs += 1
        except (sqlite3.Error, OSError, MemoryError, *UNDECODABLE) as error:
            logger.warning("code was not indexed", extra={"root": self.tree.root, "reason": str(error)})
            if not isinstance(error, sqlite3.OperationalError | OSError | MemoryError):  # damage
                await anyio.to_thread.run_sync(delete_database, path)
            return RETRY_S
        return UNWATCHED_LOOK_S if self.tree.watch and not self._watching else None

    async def _sync(self, index: CodeIndex) -> None:
        def look() -> tuple[list[SourceFile], list[str], int]:
            """The changed files, the paths that no longer exist, and the number of all files."""
            known, changed, total = index.known(), list[SourceFile](), 0
            for file in self._files.files():
                total += 1
                if known.pop(file.path, None) != (file.mtime_ns, file.size):
                    changed.append(file)
            return changed, list(known), total

        asked = self.tree.asked
        if not await anyio.to_thread.run_sync(os.path.isdir, self.tree.root):
            await self._note(index, status="failed", error="the directory is not there")
            return
        changed, removed, total = await anyio.to_thread.run_sync(look)
        about = await anyio.to_thread.run_sync(index.about)
        skipped = msgspec.json.encode(dict(sorted(self._files.skipped.items()))).decode()
        if changed or removed or about.get("status") != "ready":
            started_at = time.time()
            await self._note(index, status="indexing", total_files=total, started_at=started_at, error="")
            lock, few = anyio.Lock(), anyio.Semaphore(UNDER_WAY)
            try:
                async with anyio.create_task_group() as tasks:
                    for batch in portions(changed, lambda file: file.size, BATCH_BYTES, BATCH_FILES):
                        await few.acquire()
                        tasks.start_soon(self._take_in, index, batch, lock, few)
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
            for start in range(0, len(removed), BATCH_FILES):
                gone = removed[start : start + BATCH_FILES]
                await anyio.to_thread.run_sync(index.take, (), gone)
            await anyio.to_thread.run_sync(index.checkpoint)
            now = time.time()
            await self._note(
                index, status="ready", asked=asked, total_files=total, completed_at=now, error="", skipped=skipped
            )
        elif (about.get("skipped"), about.get("asked", 0)) != (skipped, asked):
            await self._note(index, skipped=skipped, asked=asked)
        self.files = total

    async def _take_in(
        self, index: CodeIndex, batch: Sequence[SourceFile], lock: anyio.Lock, few: anyio.Semaphore
    ) -> None:
        files = await self._readers.read(self._files.root, batch)
        async with lock:
            await anyio.to_thread.run_sync(index.take, files)
        few.release()

    async def _note(self, index: CodeIndex, **about: object) -> None:
        await anyio.to_thread.run_sync(partial(index.note, **about))

    async def _watch(self) -> None:
        """Wake the indexer when a relevant file changes, and note when the system cannot report changes."""
        root = self._files.root
        is_gone = anyio.Event()

        def is_wanted(change: Change, path: str) -> bool:
            parts = Path(os.path.relpath(path, root)).parts
            if not parts:  # the root itself; once it was moved or deleted, nothing is told of its successor
                if change is Change.deleted:
                    is_gone.set()
                return True
            if any(part.startswith(".") or part in FOREIGN for part in parts[:-1]):
                return False
            name = parts[-1]
            return name in IGNORE_FILES or language_of(name) is not None or "." not in name

        while True:
            try:
                self._watching = True
                is_gone = anyio.Event()
                watched = awatch(
                    root,
                    watch_filter=is_wanted,
                    debounce=GROUPED_MS,
                    step=STEP_MS,
                    rust_timeout=1000,
                    yield_on_timeout=True,
                    stop_event=is_gone,
                )
                is_first = True
                async for told in watched:
                    if told or is_first:  # earlier changes were not reported
                        self._wake.set()
                    is_first = False
            except* (OSError, RuntimeError) as errors:  # RuntimeError also for a name that is not UTF-8
                logger.info("no changes of code are told", extra={"root": root, "reason": repr(errors)})
            self._watching = False
            self._wake.set()
            await anyio.sleep(UNWATCHED_LOOK_S)
