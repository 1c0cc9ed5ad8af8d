"""The way of a write: to the store if it answers, else into the write queue, and behind what is queued already."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.read_cache import ReadCache
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.store_access.write_queue import WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import QueueFull, RemembrancerError
from remembrancer.protocol.reads import AwaitEmbedding, EmbeddingState, Notice
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import Applied, Operation, Result, Submit

LEAST_BUDGET_S: Final = 0.25
"""What a replayed write still gets when the client has waited long for it."""
MARGIN_S: Final = 0.2
"""Kept from a call's budget for the way back."""


class Written(msgspec.Struct, frozen=True):
    """A write that is durable. `result` is None when it is queued: the store has yet to apply it.

    `degraded`: the store is away (and not only busy with older writes). `embedding_error` is the store's word on why
    what was written cannot be embedded now.
    """

    result: Result | None
    notices: tuple[Notice, ...] = ()
    degraded: bool = False
    embedding_error: str | None = None

    @property
    def queued(self) -> bool:
        """Whether the store has yet to apply it."""
        return self.result is None


class WritePath:
    """Takes operations and makes them durable."""

    def __init__(
        self,
        link: StoreLink,
        queue: WriteQueue,
        cache: ReadCache,
        happenings: Happenings,
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._queue = queue
        self._cache = cache
        self._happenings = happenings
        self._settings = settings
        self._clock = clock

    def remaining_s(self, received_at: float) -> float:
        """What is left of the budget of a call that the client made at `received_at`."""
        return max(LEAST_BUDGET_S, received_at + self._settings.call_budget_s - self._clock())

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the queue. Must not be cancelled half-way.

        Raises:
            RemembrancerError: it is neither in the one nor in the other, and why.
        """
        budget_s = min(self._settings.write_budget_s, self.remaining_s(received_at))
        reason = "older writes go first"
        if not self._queue.depth and await self._is_store_there(budget_s):
            try:
                reply = await self._link.request(Submit(operation), budget_s)
            except (*AWAY, QueueFull):  # whatever was done with it: its id is known when it comes again
                pass
            else:
                assert isinstance(reply, Applied)
                if not reply.replayed:
                    self._cache.note(operation)
                self._happenings.applied((operation,))
                return Written(reply.result, embedding_error=reply.embedding_error)
        await self._queue.append(operation)
        self._happenings.queued(operation)
        return Written(None, (self._queued_notice(reason),), degraded=not self._link.usable)

    async def _is_store_there(self, budget_s: float) -> bool:
        """At the very start the store may take a moment longer than this process. Later nobody waits for it."""
        return self._link.usable or (not self._link.has_answered and await self._link.wait_usable(budget_s))

    def _queued_notice(self, reason: str) -> Notice:
        why = reason if self._link.usable else self._link.explain_away()
        text = f"Queued durably, and stored as soon as possible ({why}). Recalls may miss it until then."
        return Notice("queued", text)

    async def await_embedding(self, operation: Operation, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait until a stored memory has its vector, within the call's budget. Says so if it has none by then."""
        timeout_s = max(LEAST_BUDGET_S, self.remaining_s(received_at) - MARGIN_S)
        question = AwaitEmbedding(operation.project, operation.session_id, memory_id)
        try:
            reply = await self._link.request(question, timeout_s)
        except RemembrancerError as error:  # the memory is stored all the same
            return EmbeddingState(memory_id, embedded=False, error=error.message)
        assert isinstance(reply, EmbeddingState)
        return reply


def not_embedded(error: str | None) -> Notice:
    """That a text has no vector yet, and why if there is a reason."""
    if error is None:
        return Notice("embedding_pending", "The vector is still being made: for now it is found by its words only.")
    return Notice("embedding_failed", f"Found by its words only for now (keyword_only): {error}")
