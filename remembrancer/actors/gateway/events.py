"""What happens in the gateway, told to whoever wants to know: writes and recalls.

Listeners are called once the answer is decided, in the order in which they came. One that fails is logged, and hurts
neither the answer nor the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from remembrancer.protocol.writes import Operation
from remembrancer.toolsets.service import Caller

logger = logging.getLogger(__name__)


class Events:
    """Append a function to a list to be told. It must be small: it is called in the middle of a request.

    `on_write` is told of an operation and whether the store has it: False when it was queued, and True when it was
    applied, which for a queued one comes later. A replay is told again. `on_recall` is told who was shown which
    memories.
    """

    def __init__(self) -> None:
        self.on_write: list[Callable[[Operation, bool], None]] = []
        self.on_recall: list[Callable[[Caller, tuple[str, ...]], None]] = []

    def written(self, operations: Sequence[Operation], *, is_applied: bool) -> None:
        """The store has these, or they wait in the write queue."""
        for operation in operations:
            for listener in self.on_write:
                try:
                    listener(operation, is_applied)
                except Exception:
                    logger.exception("a listener to writes failed")

    def recalled(self, caller: Caller, memory_ids: tuple[str, ...]) -> None:
        """These memories were found for somebody (none: the question found nothing)."""
        for listener in self.on_recall:
            try:
                listener(caller, memory_ids)
            except Exception:
                logger.exception("a listener to recalls failed")
