"""Whether the store can be asked now, and when it is tried again. Pure: events in, a state and a pause out.

The schedule: at once, after 1, 2, 4 and 8 s, and from then on, degraded, every 30 s. A connection
that comes about begins it anew, so a store that was restarted is asked at once.
"""

from __future__ import annotations

from typing import Final, Literal

LinkState = Literal["connected", "reconnecting", "away", "degraded"]
PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before each of the attempts that are made in a row."""
DEGRADED_PAUSE_S: Final = 30.0
"""Between attempts when those were in vain."""


class LinkHealth:
    """`connected`: the store answers. `reconnecting`: there is no connection, or a new one has not been tried yet.
    `away`: it is connected and did not answer in time. `degraded`: all attempts in a row were in vain."""

    def __init__(self) -> None:
        self.has_answered = False
        """Whether the store has ever answered this process."""
        self.attempts = 0
        """How often the store has been tried since it was lost."""
        self._is_up = False
        self._is_silent = False

    @property
    def state(self) -> LinkState:
        """How the store is seen from here."""
        if self._is_up:
            return "connected"
        if self.attempts >= len(PAUSES_S):
            return "degraded"
        return "away" if self._is_silent else "reconnecting"

    def connection(self) -> None:
        """The connection came about, or broke: what was known of the store is old."""
        self._is_up = self._is_silent = False
        self.attempts = 0

    def answered(self) -> None:
        """The store has answered."""
        self._is_up = self.has_answered = True
        self._is_silent = False
        self.attempts = 0

    def silent(self) -> None:
        """A request had no answer in time."""
        if self._is_up:
            self.attempts = 0
        self._is_up = False
        self._is_silent = True

    def next_pause_s(self) -> float:
        """How long to wait before the next attempt."""
        return PAUSES_S[self.attempts] if self.attempts < len(PAUSES_S) else DEGRADED_PAUSE_S

    def attempt(self) -> None:
        """The store is being tried."""
        self.attempts += 1
