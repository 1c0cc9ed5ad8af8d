"""How long tool calls take. A slow call is logged in one line, without any text of a memory or of a query."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

SLOW_S: Final = 0.25
"""A call that takes longer is logged."""
SLOW_CALL: Final = "slow call"
"""The event name in the log, with `tool`, `total_ms`, and `store_ms`: the sum of the waits for the store."""
KEPT: Final = 512
"""The number of calls whose duration is kept."""

logger = logging.getLogger(__name__)
_durations: deque[float] = deque(maxlen=KEPT)


class CallTiming:
    """The timing of a request, which counts once it is known to be a call of a `tool`."""

    __slots__ = ("began", "store_s", "tool")

    def __init__(self, began: float | None = None) -> None:
        self.began = time.monotonic() if began is None else began
        self.store_s = 0.0
        self.tool = ""

    def end(self) -> None:
        """Note the duration of a call, once, and log a slow one."""
        if not self.tool:
            return
        total_s = time.monotonic() - self.began
        _durations.append(total_s)
        if total_s > SLOW_S:
            took = {"total_ms": round(total_s * 1000, 2), "store_ms": round(self.store_s * 1000, 2)}
            logger.info(SLOW_CALL, extra={"tool": self.tool, **took})
        self.tool = ""


_current: ContextVar[CallTiming | None] = ContextVar("call", default=None)


@contextmanager
def timing_of(timing: CallTiming, tool: str) -> Iterator[None]:
    """Count waits for the store, here and in tasks that are started here, as those of a call of that tool."""
    timing.tool = tool
    token = _current.set(timing)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def waiting_for_store() -> Iterator[None]:
    """Add this time to the current call's."""
    began = time.monotonic()
    try:
        yield
    finally:
        if (timing := _current.get()) is not None:
            timing.store_s += time.monotonic() - began


def last_durations_s() -> list[float]:
    """The durations of the last calls in this process, in order."""
    return list(_durations)
