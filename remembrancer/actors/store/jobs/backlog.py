"""Whether the work on a whole file should wait, because memories are waiting for their vectors. Pure: times are passed
in, seconds of a clock that only goes forward."""

from __future__ import annotations

from typing import Final

BACKLOG: Final = 200
"""Memories that wait for vectors: a worker has so many done within seconds."""
STANDSTILL_S: Final = 60.0
"""After so long without a change in their number, nobody is at work on them, and to wait for them is of no use."""
LONGEST_HOLD_S: Final = 3600.0
"""A backlog that never ends, because more is written all the time, holds nothing for longer."""
LOOK_AGAIN_S: Final = 2.0


class Backlog:
    """Consolidation reads vectors, and it takes the processor from those who make them: it waits for a large backlog,
    as long as that is being worked on."""

    def __init__(self) -> None:
        self._pending = 0
        self._changed_at = float("-inf")
        self._began_at: float | None = None

    def held_until(self, pending: int, now: float) -> float:
        """Until when nothing long is to be begun, with so many memories waiting: ask again then. `now`: begin."""
        if pending != self._pending:
            self._pending, self._changed_at = pending, now
        if pending <= BACKLOG:
            self._began_at = None
            return now
        if self._began_at is None:
            self._began_at = now
        end = min(self._changed_at + STANDSTILL_S, self._began_at + LONGEST_HOLD_S)
        return max(now, min(end, now + LOOK_AGAIN_S))
