"""When a runtime that a session started goes down by itself."""

from __future__ import annotations


class IdleWatch:
    """Counts the time without a session. Times are seconds of any clock that only goes forward.

    It starts with the runtime, so that one which no session ever joins ends too. While the gateway is away the number
    of sessions is unknown, and the time goes on: a gateway that comes back soon reports its sessions soon enough.
    """

    def __init__(self, timeout_s: float, now: float) -> None:
        self._timeout_s = timeout_s
        self._idle_since = now

    def observe(self, sessions: int, now: float) -> None:
        """The gateway said how many sessions it has."""
        if sessions > 0:
            self._idle_since = now

    def excuse(self, late_s: float) -> None:
        """The launcher's own timer fired `late_s` after its time: reports may be waiting unread."""
        self._idle_since += max(0.0, late_s)

    @property
    def ends_at(self) -> float:
        """When the runtime goes down, if no session is seen before."""
        return self._idle_since + self._timeout_s
