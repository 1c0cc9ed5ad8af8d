"""What is known of the embedding engine while memories are stored: asked in the background, never waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import anyio.abc

from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.toolkit.tools import Caller
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.reads import DescribeStore, Notice, StoreDescription

LOOK_AT_ENGINE_S: Final = 5.0
"""How often, while memories are stored, it is asked whether there is an engine to embed them."""

logger = logging.getLogger(__name__)


class EngineWatch:
    """Why nothing can be embedded, as last heard."""

    def __init__(
        self,
        reads: ReadPath,
        link: StoreLink,
        tasks: anyio.abc.TaskGroup,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reads = reads
        self._link = link
        self._tasks = tasks
        self._clock = clock
        self._error: str | None = None
        self._looked_at = 0.0

    def heard(self, description: StoreDescription) -> None:
        """The store has just said how the engine is."""
        self._error = description.embedding.error

    def notices(self, caller: Caller) -> list[Notice]:
        """The notice for an answer about a text that is to be embedded, if there is no engine."""
        now = self._clock()
        if now - self._looked_at > LOOK_AT_ENGINE_S and self._link.usable:
            self._looked_at = now
            self._tasks.start_soon(self._look, DescribeStore(caller.project, caller.session_id), now)
        return [] if self._error is None else [not_embedded(self._error)]

    async def _look(self, request: DescribeStore, now: float) -> None:
        try:
            description, is_fresh = await self._reads.describe(request, now)
        except RemembrancerError as error:
            logger.debug("the store was not described", extra={"code": error.code})
            return
        if description is not None and is_fresh:
            self.heard(description)


def not_embedded(error: str | None) -> Notice:
    """That a text has no vector yet, and why if there is a reason."""
    if error is None:
        return Notice("embedding_pending", "The vector is still being made: for now it is found by its words only.")
    return Notice("embedding_failed", f"Found by its words only for now (keyword_only): {error}")
