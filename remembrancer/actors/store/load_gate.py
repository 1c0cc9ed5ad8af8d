"""When background work may run: embedding and indexing step back while clients are being served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUIET_S: Final = 0.03
"""After so long without a request, clients are not in the middle of a burst: embedding may go on."""
IDLE_S: Final = 0.3
"""After so long without a request, nobody is at work: the index may be tidied, which takes longer at a time."""
LONGEST_HOLD_S: Final = 5.0
"""Embedding that has waited for so long goes on under load too, `JOBS_UNDER_LOAD` at a time."""
JOBS_UNDER_LOAD: Final = 16
"""About 50 ms of a worker's time."""


class LoadGate:
    """What the clients are doing. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._being_served = 0
        self._last_served_at = float("-inf")

    def begin(self) -> None:
        """A client's request has come."""
        self._being_served += 1

    def end(self, now: float) -> None:
        """A client's request has been answered."""
        self._being_served -= 1
        self._last_served_at = now

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While a client's request is being answered."""
        self.begin()
        try:
            yield
        finally:
            self.end(time.monotonic())

    def hold_s(self, now: float, waiting_since: float) -> float:
        """How long embedding that has waited since `waiting_since` should still wait; 0: it may go on."""
        return max(0.0, min(self._quiet_at(now), waiting_since + LONGEST_HOLD_S) - now)

    def is_serving(self, now: float) -> bool:
        """Whether clients are in the middle of a burst."""
        return now < self._quiet_at(now)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has been at work for a while."""
        return not self._being_served and now >= self._last_served_at + IDLE_S

    def _quiet_at(self, now: float) -> float:
        return (now if self._being_served else self._last_served_at) + QUIET_S
