"""Moves of memories from one space to another: from a project's to the user's, or back.

Within a home a move is one transaction. To a shared lane, or from there, it has three steps, as what the lane takes in
is an entry of its journal: the one lane notes the move and keeps the memory; the other takes the memory in, and with it
the operation; the first one lets the memory go, notes the operation too, and forgets the move. A process that dies
between two of them leaves a note from which the rest is done: every step can be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.memory.edits import Move as MoveRow
from remembrancer.memory.moves import (
    begin_move,
    cancel_move,
    decode_operation,
    end_move,
    end_return,
    let_go,
    receive_return,
)
from remembrancer.protocol.errors import JournalAway, RemembrancerError
from remembrancer.protocol.writes import Applied, Operation, PortableMemory, PromotedResult, PromoteMemory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Move:
    """Takes memories that sessions of a project see from `source` to `destination`.

    An outcome's `to_embed` is a number in the destination.
    """

    source: Records
    destination: Records
    project_id: str

    @property
    def name(self) -> str:
        """The file whose thread carries it out: that of a shared lane, whose server may be slow, or else not that of
        the user's file, which all projects write to."""
        for each in (self.source, self.destination):
            if each.is_shared:
                return each.name
        return (self.source if self.destination.is_users else self.destination).name

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Move the memory of each promotion, in order. One that was moved by the same operation before is answered."""
        if not (self.source.is_shared or self.destination.is_shared):
            return self.source.promote(operations, self.destination)
        return [self._apply(operation) for operation in operations]

    def finish(self) -> bool:
        """Do what is left of the moves that a process did not live to end. True if there were any.

        Raises:
            RemembrancerError: a file cannot be written now; what is left is done another time.
        """
        if self.source.is_shared:
            return self._finish_returns()
        if not self.destination.is_shared:
            return False
        begun = [decode_operation(each.operation) for each in self.source.unfinished(MoveRow)]
        moves = [each for each in begun if self._is_ours(each)]
        for operation in moves:
            outcome = self._apply(operation)
            if isinstance(outcome.reply, RemembrancerError):
                if outcome.reply.retry_possible:
                    raise outcome.reply
                self.source.prepare(operation, cancel_move)
            logger.info("a move was finished", extra={"file": self.source.name, "operation": operation.operation_id})
        return bool(moves)

    def _is_ours(self, operation: Operation) -> bool:
        """True if a move that the source has noted goes here: it may have some to several lanes."""
        change = operation.change
        assert isinstance(change, PromoteMemory)
        goes_to_user = change.target_scope == "user"
        return goes_to_user == self.destination.is_users and operation.project.id == self.project_id

    def _finish_returns(self) -> bool:
        """As `finish`, of what the project has taken back and the user's shared lane may still have."""
        begun = [decode_operation(each.operation) for each in self.destination.unfinished(MoveRow)]
        returns = [each for each in begun if self.destination.outcome_of(each.operation_id) is not None]
        for operation in returns:
            error = self._take_back(operation).reply
            if isinstance(error, RemembrancerError) and error.retry_possible:
                raise error
            logger.info("a move was finished", extra={"file": self.source.name, "operation": operation.operation_id})
        return bool(returns)

    def _apply(self, operation: Operation) -> Outcome:
        if self.source.is_shared:
            return self._take_back(operation)
        with self.source.held():
            return self._take(operation)

    def _take_back(self, operation: Operation) -> Outcome:
        """Take a memory back out of the lane that the user shares, which notes nothing but operations: the project
        takes it in and notes the move, the lane lets it go by the operation, and the project forgets the move."""
        change, own = operation.change, self.destination
        assert isinstance(change, PromoteMemory)
        try:
            memory = self.source.portable(change.memory_id, None)
            received = None if memory is None else own.complete(operation, partial(receive_return, memory=memory))
            if received is not None and isinstance(received.reply, RemembrancerError):
                return received
            (ended,) = self.source.apply([operation])
            if isinstance(ended.reply, RemembrancerError) and ended.reply.retry_possible:
                return ended
            ending = msgspec.structs.replace(operation, operation_id=f"{operation.operation_id} ended")
            own.prepare(ending, partial(end_return, operation_id=operation.operation_id))
            if received is None:
                return ended
            if isinstance(ended.reply, RemembrancerError):  # another machine has erased it, or taken it back
                own.complete(ending, partial(let_go, memory_id=change.memory_id))
                return ended
        except RemembrancerError as error:
            return Outcome(error)
        return Outcome(ended.reply, received.to_embed)

    def _take(self, operation: Operation) -> Outcome:
        try:
            begun = self.source.prepare(operation, begin_move)
            if not isinstance(begun, PortableMemory):
                return begun
            received = self._receive(operation, begun)
            if not isinstance(received.reply, Applied):
                return received
            assert isinstance(received.reply.result, PromotedResult)
            self.source.complete(operation, partial(end_move, result=received.reply.result))
        except RemembrancerError as error:
            return Outcome(error)
        return Outcome(received.reply, received.to_embed)

    def _receive(self, operation: Operation, memory: PortableMemory) -> Outcome:
        """The outcome of the second step; if it is refused, the first one is undone. Of a journal that is away nobody
        knows what it has taken in: what was begun is finished later."""
        try:
            received = self.destination.receive(operation, memory)
        except RemembrancerError as error:
            received = Outcome(error)
        if not isinstance(received.reply, Applied | JournalAway):
            self.source.prepare(operation, cancel_move)
        return received
