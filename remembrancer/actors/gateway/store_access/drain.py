"""Emptying the write queue into the store: in order, in batches, each operation until the store has it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio

from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.read_cache import ReadCache
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.store_access.write_queue import WriteQueue
from remembrancer.protocol.errors import InternalError, RemembrancerError
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import BatchApplied, Operation, Rejected, Submit, SubmitBatch

BATCH_OPERATIONS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_TIMEOUT_S: Final = 10.0
STUCK_PAUSE_S: Final = 1.0
"""Before the oldest operation is tried again when the store has refused it for now (a full disk, say)."""
INTERNAL_TRIES: Final = 5
"""So often an operation is tried that makes the store fail; then it is set aside, so that the others can go on."""

logger = logging.getLogger(__name__)


class Drain:
    """Run `run` as a task. Operations leave the queue only after the store has said that it has them."""

    def __init__(self, queue: WriteQueue, link: StoreLink, cache: ReadCache, happenings: Happenings) -> None:
        self._queue = queue
        self._link = link
        self._cache = cache
        self._happenings = happenings
        self._internal_failures: dict[str, int] = {}
        self.stuck: str | None = None
        """Why the oldest operation is refused at the moment, if it is."""

    async def run(self) -> None:
        """Drain whenever there is something to drain and a store to take it. Ends when it is cancelled."""
        while True:
            if not self._queue.depth:
                await self._queue.wait_changed()
                continue
            await self._link.wait_answering()
            batch = await self._queue.head(BATCH_OPERATIONS, BATCH_BYTES)
            if not batch:  # an append is on its way to the disk
                with anyio.move_on_after(STUCK_PAUSE_S):
                    await self._queue.wait_changed()
                continue
            try:
                await self._send(batch)
            except AWAY as error:
                logger.info("draining stopped", extra={"code": error.code, "depth": self._queue.depth})

    async def _send(self, batch: list[Operation]) -> None:
        """Send a batch. What the store did not get to stays, and is sent again."""
        try:
            reply = await self._link.request(SubmitBatch(tuple(batch)), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError:
            await self._send_oldest(batch[0])
            return
        assert isinstance(reply, BatchApplied)
        if not reply.applied and not reply.rejected:
            await self._send_oldest(batch[0])
            return
        for each in reply.rejected:
            _log_rejected(each)
        self.stuck = None
        done = set(reply.applied)
        await self._settle([operation for operation in batch if operation.operation_id in done], reply.rejected)
        logger.info("drained", extra={"applied": len(reply.applied), "depth": self._queue.depth})

    async def _send_oldest(self, operation: Operation) -> None:
        """The store would not begin: ask it about the oldest operation alone, whose refusal has a reason."""
        try:
            await self._link.request(Submit(operation), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError as error:
            if not self._is_final(operation.operation_id, error):
                self.stuck = error.message
                logger.warning("queued writes have to wait", extra={"code": error.code, "reason": error.message})
                await anyio.sleep(STUCK_PAUSE_S)
                return
            rejected = Rejected(operation.operation_id, error.code, error.message)
            _log_rejected(rejected)
            await self._settle((), (rejected,))
        else:
            await self._settle((operation,), ())
        self.stuck = None
        self._internal_failures.pop(operation.operation_id, None)

    async def _settle(self, applied: Sequence[Operation], rejected: Sequence[Rejected]) -> None:
        """The cache hears of changes as they leave the mirror: no read sees them twice, or not at all."""
        for operation in applied:
            self._cache.note(operation)
        await self._queue.settle([operation.operation_id for operation in applied], rejected)
        self._happenings.applied(applied)

    def _is_final(self, operation_id: str, error: RemembrancerError) -> bool:
        if not isinstance(error, InternalError):
            return not error.retry_possible
        tries = self._internal_failures[operation_id] = self._internal_failures.get(operation_id, 0) + 1
        return tries >= INTERNAL_TRIES


def _log_rejected(rejected: Rejected) -> None:
    logger.error(
        "a queued write was rejected and is kept aside",
        extra={"operation_id": rejected.operation_id, "code": rejected.code, "reason": rejected.message},
    )
