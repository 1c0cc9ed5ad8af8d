"""Trees of code: they are compared with their indexes, read where they have changed, and watched.

The indexer writes each tree's index, and the store reads it. Decisions rest on the disk and the index alone, so a kill
costs nothing but the time to compare again.
"""

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
import anyio.to_thread
import msgspec

from remembrancer.actors.indexer.code_reading import READERS, CodeReaders
from remembrancer.actors.indexer.watching import RETRY_S, Indexer, portions
from remembrancer.code.index import UNDECODABLE, CodeIndex
from remembrancer.code.languages import language_of
from remembrancer.code.tree import FOREIGN, IGNORE_FILES, SourceFile, Tree
from remembrancer.config.settings import Settings
from remembrancer.protocol.code import CodeTree
from remembrancer.protocol.paths import delete_database

UNDER_WAY: Final = 2 * READERS
"""Batches of files that are being read or wait to be indexed."""
BATCH_FILES: Final = 200
BATCH_BYTES: Final = 2 * 1024 * 1024

logger = logging.getLogger(__name__)


class TreeIndexer(Indexer):
    """Keeps the index of one tree up to date."""

    quiet_s = 0.15
    longest_s = 1.0

    def __init__(self, tree: CodeTree, readers: CodeReaders, settings: Settings) -> None:
        self.tree = tree
        self._readers = readers
        self._files = Tree(tree.root, settings.code_exclude)
        super().__init__(Path(self._files.root), watch=tree.watch)
        self.files = 0
        """The number of files, as of the last comparison."""

    def ask(self, tree: CodeTree) -> None:
        """Read the tree again if a client has requested it."""
        if tree.asked != self.tree.asked:
            self.tree = tree
            self._wake.set()

    def _directories(self) -> set[Path]:
        return {self._root}

    def _concerns(self, path: Path) -> bool:
        if path == self._root:
            return True
        *above, name = Path(os.path.relpath(path, self._root)).parts
        if any(part.startswith(".") or part in FOREIGN for part in above):
            return False
        return name in IGNORE_FILES or language_of(name) is not None or "." not in name

    async def _compare(self) -> float | None:
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
        return None

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
        about = await anyio.to_thread.run_sync(index.about)
        if not await anyio.to_thread.run_sync(os.path.isdir, self.tree.root):
            if about.get("status") != "failed":
                await self._note(index, status="failed", error="the directory does not exist")
            return
        changed, removed, total = await anyio.to_thread.run_sync(look)
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
