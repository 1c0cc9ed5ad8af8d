"""Answers the indexer's long poll for its work, and compares the files of an index with the disk."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from remembrancer.actors.store.requests import Handler, RequestContext
from remembrancer.protocol.code import AwaitIndexerWork, IndexerWork
from remembrancer.protocol.errors import DeadlineExceeded
from remembrancer.protocol.files import Files, IndexState, ListedFile


class IndexerPoll:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.work = IndexerWork(time.time_ns())  # no revision is one of an earlier store
        self._news = anyio.Event()

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of the poll."""
        return {AwaitIndexerWork: self._await_work}

    def announce(self, **changed: Any) -> None:
        """Replace these fields of the work."""
        self.work = msgspec.structs.replace(self.work, revision=self.work.revision + 1, **changed)
        self._news.set()
        self._news = anyio.Event()

    async def _await_work(self, request: AwaitIndexerWork, context: RequestContext) -> IndexerWork:
        with anyio.move_on_after(context.remaining_s()):
            while self.work.revision == request.seen:
                await self._news.wait()
        return self.work


async def compared(root: str, files: Sequence[ListedFile], limit: int, changed: IndexState, within_s: float) -> Files:
    """The first of these files of an index with their states, for a person who wants to know whether the index is up to
    date; those that differ from the disk are `changed`.

    Raises:
        DeadlineExceeded: the disk does not answer in time.
    """

    def look() -> tuple[ListedFile, ...]:
        return tuple(
            each if _is_current(Path(root, each.path), each) else msgspec.structs.replace(each, state=changed)
            for each in files[:limit]
        )

    # On a thread of its own: the disk of a workspace may hang.
    looking = asyncio.get_running_loop().run_in_executor(None, look)
    try:
        with anyio.fail_after(within_s):
            found = await asyncio.shield(looking)
    except TimeoutError as error:
        raise DeadlineExceeded(f"the disk of {root} does not respond") from error
    return Files(found, len(files) > limit)


def _is_current(path: Path, file: ListedFile) -> bool:
    try:
        about = path.stat()
    except OSError:
        return False
    return (about.st_mtime_ns, about.st_size) == (file.mtime_ns, file.size)
