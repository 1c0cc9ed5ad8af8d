"""The durations of tool calls. A slow call is logged in one line, without text from memories or queries."""

import logging
from collections import deque
from typing import Final

SLOW_S: Final = 0.25
"""A call that takes longer than this is logged."""
SLOW_CALL: Final = "slow call"
"""The event name in the log, with `tool` and `total_ms`."""
KEPT: Final = 512

logger = logging.getLogger(__name__)
_durations: deque[float] = deque(maxlen=KEPT)


def note_call(tool: str, total_s: float) -> None:
    _durations.append(total_s)
    if total_s > SLOW_S:
        logger.info(SLOW_CALL, extra={"tool": tool, "total_ms": round(total_s * 1000, 2)})


def last_durations_s() -> list[float]:
    return list(_durations)
