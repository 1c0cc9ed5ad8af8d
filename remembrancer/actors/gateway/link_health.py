"""Whether the store can be asked now. Pure: events in, a state and a pause out."""

from __future__ import annotations

from typing import Final, Literal

LinkState = Literal["connected", "reconnecting", "away"]
PROBE_PAUSES_S: Final = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Between two questions whether the store is back: at once, then ever more slowly."""


class LinkHealth:
    """`connected`: the store answers. `reconnecting`: there is no connection, or a new one has not been tried yet.
    `away`: it is connected and did not answer in time, or it cannot be started."""

    def __init__(self) -> None:
        self.state: LinkState = "reconnecting"
        self.has_answered = False
        """Whether the store has ever answered this process."""
        self._probes = 0

    def connection(self, *, up: bool) -> None:
        """The connection came about, or broke."""
        self.state = "reconnecting"
        if up:
            self._probes = 0

    def answered(self) -> None:
        """The store has answered."""
        self.state = "connected"
        self.has_answered = True
        self._probes = 0

    def silent(self) -> None:
        """A request had no answer in time."""
        if self.state == "connected":
            self._probes = 0
        self.state = "away"

    def next_probe_s(self) -> float:
        """How long to wait before the next probe."""
        pause = PROBE_PAUSES_S[min(self._probes, len(PROBE_PAUSES_S) - 1)]
        self._probes += 1
        return pause
