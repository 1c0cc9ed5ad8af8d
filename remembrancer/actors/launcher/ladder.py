"""How a process is brought to its end: ask, then TERM, then KILL, each with its time."""

from __future__ import annotations

from typing import Final, Literal

Step = Literal["terminate", "kill", "abandon"]

GRACE_S: Final = 1.2
"""What `Stop` grants a process to finish what it has begun: longer than any commit, hardly felt by a person."""
ASK_S: Final = 1.6
"""From `Stop` to SIGTERM: the grace, and the time to close files and leave."""
TERM_S: Final = 0.4
"""From SIGTERM to SIGKILL, which every process survives without harm to its data."""
KILL_S: Final = 1.0
"""From SIGKILL until the launcher stops waiting; only a process that the kernel holds (state D) takes so long."""
STARTING_S: Final = 0.5
"""From Stop and SIGTERM together to SIGKILL, for a process that is still starting: it has nothing to finish."""


class Ladder:
    """The steps of one stop, each due at its time. Begun when the process was asked to stop."""

    def __init__(self, now: float, *, starting: bool) -> None:
        self._steps: list[tuple[float, Step]]
        if starting:
            kill_at = now + STARTING_S
            self._steps = [(now, "terminate"), (kill_at, "kill"), (kill_at + KILL_S, "abandon")]
        else:
            kill_at = now + ASK_S + TERM_S
            self._steps = [(now + ASK_S, "terminate"), (kill_at, "kill"), (kill_at + KILL_S, "abandon")]

    def climb(self, now: float) -> list[Step]:
        """The steps that have come due since the last call, in order."""
        due = [step for at, step in self._steps if at <= now]
        del self._steps[: len(due)]
        return due

    @property
    def next_at(self) -> float | None:
        """When the next step is due; None at the top."""
        return self._steps[0][0] if self._steps else None
