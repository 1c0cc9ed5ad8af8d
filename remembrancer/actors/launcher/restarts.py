"""When a process that died is started again: at once, then with growing pauses, within a budget, then rarely."""

from __future__ import annotations

from typing import Final

import msgspec

DELAYS_S: Final = (0.0, 0.0, 0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The pause before each restart of a row; the last one stays. None at first: a crash or two should not be felt."""
FREE_RESTARTS: Final = DELAYS_S.count(0.0)
"""Restarts of a row that come without a pause."""
BUDGET: Final = 10
"""Restarts that are allowed within `WINDOW_S`."""
WINDOW_S: Final = 60.0
STABLE_S: Final = 30.0
"""A process that was ready for so long has had a good life: its earlier deaths are forgiven."""
SLOW_S: Final = 30.0
"""The pause when the budget is spent. Never giving up for good lets a full disk that was emptied heal by itself."""


class Retry(msgspec.Struct, frozen=True):
    """Start again `delay_s` from now. `exhausted` says that the budget is spent and a person should look."""

    delay_s: float
    exhausted: bool


class Restarts:
    """The restart policy of one process. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._recent: list[float] = []
        self._streak = 0
        self._exhausted = False

    def after_death(self, now: float, lived_s: float) -> Retry:
        """What to do about a death at `now` of a process that had been ready for `lived_s` (0: never ready)."""
        if lived_s >= STABLE_S:
            self.forgive()
        self._recent = [moment for moment in self._recent if now - moment < WINDOW_S]
        if self._exhausted or len(self._recent) >= BUDGET:
            return self.exhaust()
        delay_s = DELAYS_S[min(self._streak, len(DELAYS_S) - 1)]
        self._streak += 1
        self._recent.append(now + delay_s)
        return Retry(delay_s, exhausted=False)

    def exhaust(self) -> Retry:
        """Spend the whole budget, for a death that more haste would not mend."""
        self._exhausted = True
        return Retry(SLOW_S, exhausted=True)

    def forgive(self) -> None:
        """Begin anew."""
        self._recent.clear()
        self._streak = 0
        self._exhausted = False
