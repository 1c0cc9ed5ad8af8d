"""The durations of tool calls. A slow call is logged in one line, without any text of a memory or of a query."""

import logging
import time
from collections import deque
from typing import Final

SLOW_S: Final = 0.25
"""A call that takes longer is logged."""
SLOW_CALL: Final = "slow call"
"""The event name in the log, with `tool` and `total_ms`."""
KEPT: Final = 512
"""The number of calls whose duration is kept."""

logger = logging.getLogger(__name__)
_durations: deque[float] = deque(maxlen=KEPT)


class CallTiming:
    """The timing of a request, which counts once it is known to be a call of a `tool`."""

    __slots__ = ("began", "tool")

    def __init__(self, began: float | None = None) -> None:
        self.began = time.monotonic() if began is None else began
        self.tool = ""

    def end(self) -> None:
        """Note the duration of a call, once, and log a slow one."""
        if not self.tool:
            return
        total_s = time.monotonic() - self.began
        _durations.append(total_s)
        if total_s > SLOW_S:
            logger.info(SLOW_CALL, extra={"tool": self.tool, "total_ms": round(total_s * 1000, 2)})
        self.tool = ""


def last_durations_s() -> list[float]:
    """The durations of the last calls in this process, in order."""
    return list(_durations)
