"""Timing of calls: each process notes moments of a call, and logs a slow call in one line.

The id travels in the envelope. Within a process the current trace is a context variable, which tasks inherit; a thread
gets the trace itself. Moments are of `time.monotonic`, which all processes of a host share on Linux and macOS. Only
names from this code and moments are noted, never any text of a memory or of a query.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

SLOW_S: Final = 0.25
"""A call that takes longer in a process is logged there."""
SLOW_CALL: Final = "slow call"
"""The event name in the log, with `trace`, `title` and `marks`: name, moment, and the seconds of a part."""
KEPT: Final = 512
"""The number of calls whose duration a process keeps."""
MOST_MARKS: Final = 64
"""The most marks of one trace in one process: of a thousand similar steps, only the first are noted."""

logger = logging.getLogger(__name__)
_numbers = itertools.count(secrets.randbits(31))
_durations: deque[float] = deque(maxlen=KEPT)


class Trace:
    """The notes of a process about a call that it works on. A mark is cheap: one entry of a list.

    Marks may come from any thread. Nothing is added after `end`: work that a call leaves behind is not part of its
    time.
    """

    __slots__ = ("_is_begun_here", "_marks", "id", "is_open", "title")

    def __init__(self, trace_id: str, title: str, *, is_begun_here: bool = False) -> None:
        self.id = trace_id
        self.title = title
        self._is_begun_here = is_begun_here
        self._marks: list[tuple[str, float, float | None]] = []
        self.is_open = bool(trace_id)
        """True while the call is being worked on here."""

    def mark(self, name: str, at: float | None = None) -> None:
        """Note that a step is done now, or was at `at` (of `time.monotonic`)."""
        if self.is_open and len(self._marks) < MOST_MARKS:
            self._marks.append((name, time.monotonic() if at is None else at, None))

    def part(self, name: str, began: float) -> None:
        """Note a part that began then (of `time.monotonic`), ends now, and may run beside other parts."""
        if self.is_open and len(self._marks) < MOST_MARKS:
            self._marks.append((name, began, time.monotonic() - began))

    def end(self, name: str) -> None:
        """Set the last mark, and end the trace."""
        if not self.is_open:
            return
        self._marks.append((name, time.monotonic(), None))
        self.is_open = False
        lasted_s = self._marks[-1][1] - self._marks[0][1]
        if self._is_begun_here:
            _durations.append(lasted_s)
        if lasted_s > SLOW_S:
            logger.info(SLOW_CALL, extra={"trace": self.id, "title": self.title, "marks": self._marks})


NO_TRACE: Final = Trace("", "")
"""A trace that ignores all marks."""
_current: ContextVar[Trace] = ContextVar("trace", default=NO_TRACE)


def current() -> Trace:
    """The trace of the current call; `NO_TRACE` if there is none, or if it has ended."""
    trace = _current.get()
    return trace if trace.is_open else NO_TRACE


@contextmanager
def working_on(trace: Trace) -> Iterator[Trace]:
    """Make that trace current here, and for tasks that are started here."""
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


def begin(title: str) -> Trace:
    """A trace with a new id, for a call that has just arrived."""
    return Trace(f"{next(_numbers):08x}", title, is_begun_here=True)


def follow(trace_id: str, title: str) -> Trace:
    """A trace that another process began. Without an id, nothing is noted."""
    return Trace(trace_id, title) if trace_id else NO_TRACE


def last_durations_s() -> list[float]:
    """The durations of the last calls that began in this process, in order."""
    return list(_durations)
