"""Whether a process hangs: how long it has left the launcher's pings without an answer."""

from __future__ import annotations


class Heartbeat:
    """The pings and pongs of one process. Times are seconds of any clock that only goes forward.

    Silence counts from the first ping without an answer, and only while the launcher itself was running: time in which
    the launcher was suspended or starved is excused, since the pongs may be waiting unread.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._unanswered_since: float | None = None

    def pinged(self, now: float) -> None:
        """A ping was sent."""
        if self._unanswered_since is None:
            self._unanswered_since = now

    def answered(self) -> None:
        """A sign of life arrived: whatever was asked before is answered."""
        self._unanswered_since = None

    def excuse(self, late_s: float) -> None:
        """The launcher's own timer fired `late_s` after its time."""
        if self._unanswered_since is not None:
            self._unanswered_since += max(0.0, late_s)

    def silent_s(self, now: float) -> float:
        """Seconds of silence that count."""
        if self._unanswered_since is None:
            return 0.0
        return max(0.0, now - self._unanswered_since)

    def hangs(self, now: float) -> bool:
        """Whether the silence is longer than the timeout."""
        return self.silent_s(now) > self._timeout_s
