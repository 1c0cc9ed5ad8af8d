"""Sends requests to the indexer, records its reports, and compares the files of an index with the disk."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec

from remembrancer.actors.store.dispatcher import Handler, RequestContext
from remembrancer.protocol.errors import DeadlineExceeded
from remembrancer.protocol.files import (
    AwaitIndexerWork,
    Files,
    IndexedTree,
    IndexerWork,
    IndexState,
    ListedFile,
    SyncDone,
    ToRead,
)
from remembrancer.protocol.kinds import FileSource


class IndexerPoll:
    def __init__(self) -> None:
        self.work = IndexerWork(time.time_ns())  # so that revisions differ from an earlier store's
        self.done: dict[IndexedTree, tuple[SyncDone, float]] = {}
        """The last complete read of each tree, and when it ended (seconds since the epoch)."""
        self.left: dict[IndexedTree, int] = {}
        self._waiting: dict[int, asyncio.Future[SyncDone]] = {}
        self._ids = iter(range(time.time_ns() // 1_000_000, 2**63))
        self._news = anyio.Event()

    def handlers(self) -> dict[type, Handler]:
        return {AwaitIndexerWork: self._await_work}

    def use(self, kind: Literal["notes", "code"], trees: Iterable[IndexedTree]) -> None:
        in_use = {tree for tree in self.work.trees if tree.kind != kind} | set(trees)
        if in_use != set(self.work.trees):
            asked = {sync_id: each for sync_id, each in self.work.asked.items() if each.tree in in_use}
            self._announce(trees=tuple(in_use), asked=asked)

    def ask(
        self, tree: IndexedTree, *, force: bool = False, source: FileSource | None = None
    ) -> asyncio.Future[SyncDone]:
        sync_id = next(self._ids)
        self._waiting[sync_id] = asyncio.get_running_loop().create_future()
        trees = tuple({*self.work.trees, tree})
        self._announce(trees=trees, asked={**self.work.asked, sync_id: ToRead(tree, force, source)})
        return self._waiting[sync_id]

    def is_asked(self, tree: IndexedTree) -> bool:
        return any(each.tree == tree for each in self.work.asked.values())

    def note(self, done: SyncDone) -> None:
        self.left[done.tree] = done.left
        if done.left:
            return
        self.done[done.tree] = done, time.time()
        if self.work.asked.pop(done.sync_id or 0, None) is not None:  # not announced, since the indexer knows it
            waiting = self._waiting.pop(done.sync_id or 0)
            if not waiting.done():
                waiting.set_result(done)

    def _announce(self, **changed: Any) -> None:
        self.work = msgspec.structs.replace(self.work, revision=self.work.revision + 1, **changed)
        self._waiting = {sync_id: each for sync_id, each in self._waiting.items() if sync_id in self.work.asked}
        self._news.set()
        self._news = anyio.Event()

    async def _await_work(self, request: AwaitIndexerWork, context: RequestContext) -> IndexerWork:
        with anyio.move_on_after(context.remaining_s()):
            while self.work.revision == request.seen:
                await self._news.wait()
        return self.work


async def compared(root: str, files: Sequence[ListedFile], limit: int, changed: IndexState, within_s: float) -> Files:
    """Give files that differ from the disk the state `changed`. Raises `DeadlineExceeded` if the disk hangs."""

    def look() -> tuple[ListedFile, ...]:
        return tuple(
            each if _is_current(Path(root, each.path), each) else msgspec.structs.replace(each, state=changed)
            for each in files[:limit]
        )

    try:
        with anyio.fail_after(within_s):  # on its own thread, since the disk may hang
            found = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
    except TimeoutError as error:
        raise DeadlineExceeded(f"the disk of {root} does not respond") from error
    return Files(found, len(files) > limit)


def _is_current(path: Path, file: ListedFile) -> bool:
    try:
        about = path.stat()
    except OSError:
        return False
    return (about.st_mtime_ns, about.st_size) == (file.mtime_ns, file.size)
