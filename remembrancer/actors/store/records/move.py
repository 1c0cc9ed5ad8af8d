"""A move from a project's file to the user's: two files, and one operation that is applied once in both."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from remembrancer.actors.store.records.contract import Outcome, Records
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.writes import Applied, Operation, PortableMemory

logger = logging.getLogger(__name__)


class Move:
    """Takes memories from `source` to `destination`. From the store's one writer thread.

    An outcome's `to_embed` is a number in the destination, its `removed_passages` are the source's.
    """

    def __init__(self, source: Records, destination: Records) -> None:
        self.source = source
        self.destination = destination

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Move the memory of each promotion, in order. One that was moved by the same operation before is answered."""
        return [self._apply(operation) for operation in operations]

    def finish(self) -> bool:
        """Do what is left of the moves that a process did not live to end. Whether there were any.

        Raises:
            RemembrancerError: a file cannot be written now; what is left is done another time.
        """
        moves = self.source.moves()
        for operation in moves:
            outcome = self._apply(operation)
            if isinstance(outcome.reply, RemembrancerError):
                if outcome.reply.retry_possible:
                    raise outcome.reply
                self.source.cancel_move(operation)
            logger.info("a move was finished", extra={"file": self.source.name, "operation": operation.operation_id})
        return bool(moves)

    def _apply(self, operation: Operation) -> Outcome:
        try:
            begun = self.source.begin_move(operation)
            if not isinstance(begun, PortableMemory):
                return begun
            received = self._receive(operation, begun)
            if not isinstance(received.reply, Applied):
                return received
            ended = self.source.end_move(operation, received.reply)
        except RemembrancerError as error:
            return Outcome(error)
        return Outcome(received.reply, received.to_embed, ended)

    def _receive(self, operation: Operation, memory: PortableMemory) -> Outcome:
        """What came of the second step; if nothing, the first one is undone."""
        try:
            received = self.destination.receive_move(operation, memory)
        except RemembrancerError as error:
            received = Outcome(error)
        if not isinstance(received.reply, Applied):
            self.source.cancel_move(operation)
        return received
