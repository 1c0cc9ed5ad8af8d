"""What happens in the gateway, told to whoever wants to know: writes and recalls. Synchronous and small.

Listeners are called once the answer is decided, in the order in which they came. One that fails is logged, and hurts
neither the answer nor the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from remembrancer.actors.gateway.toolkit.tools import Caller
from remembrancer.protocol.writes import Operation

logger = logging.getLogger(__name__)


class Happenings:
    """Append a function to a list to be told.

    `on_write` is told of an operation and whether the store has it: False when it was queued, and True when it was
    applied, which for a queued one comes later. A replay is told again. `on_recall` is told who was shown which
    memories.
    """

    def __init__(self) -> None:
        self.on_write: list[Callable[[Operation, bool], None]] = []
        self.on_recall: list[Callable[[Caller, tuple[str, ...]], None]] = []

    def applied(self, operations: Iterable[Operation]) -> None:
        """The store has these."""
        for operation in operations:
            self._tell_of_write(operation, is_applied=True)

    def queued(self, operation: Operation) -> None:
        """This waits in the write queue."""
        self._tell_of_write(operation, is_applied=False)

    def recalled(self, caller: Caller, memory_ids: tuple[str, ...]) -> None:
        """These memories were found for somebody (none: the question found nothing)."""
        for listener in self.on_recall:
            try:
                listener(caller, memory_ids)
            except Exception:
                logger.exception("a listener to recalls failed")

    def _tell_of_write(self, operation: Operation, *, is_applied: bool) -> None:
        for listener in self.on_write:
            try:
                listener(operation, is_applied)
            except Exception:
                logger.exception("a listener to writes failed")
