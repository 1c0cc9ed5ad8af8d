"""Answers the indexer's long poll for its work."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from remembrancer.actors.store.requests import Handler, RequestContext
from remembrancer.protocol.code import AwaitIndexerWork, IndexerWork


class IndexerPoll:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.work = IndexerWork(0)
        self._news = anyio.Event()
        self._draining = False

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of the poll."""
        return {AwaitIndexerWork: self._await_work}

    def announce(self, **changed: Any) -> None:
        """Replace these fields of the work."""
        self.work = msgspec.structs.replace(self.work, revision=self.work.revision + 1, **changed)
        self._news.set()
        self._news = anyio.Event()

    def drain(self) -> None:
        """Answer the open poll, since the store is about to stop."""
        self._draining = True
        self._news.set()

    async def _await_work(self, request: AwaitIndexerWork, context: RequestContext) -> IndexerWork:
        with anyio.move_on_after(context.remaining_s()):
            while self.work.revision == request.seen and not self._draining:
                await self._news.wait()
        return self.work
