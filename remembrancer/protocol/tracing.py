"""The time of a call, by its parts: each process notes moments of a call, and logs those of a slow one in a line.

The id travels in the envelope. Within a process the trace that is being worked on is a context variable, which tasks
inherit; a thread is handed the trace itself. Moments are of `time.monotonic`, which Linux and macOS count alike in all
processes of a host. What is noted are names of ours and moments: never anything of a memory or of a question.
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
"""The event under which it is logged, with `trace`, `title` and `marks`: name, moment, and the seconds of a part."""
KEPT: Final = 512
"""Calls whose duration a process keeps."""
MOST_MARKS: Final = 64
"""Of one trace in one process: a call that does something a thousand times notes the first."""

logger = logging.getLogger(__name__)
_numbers = itertools.count(secrets.randbits(31))
_durations: deque[float] = deque(maxlen=KEPT)


class Trace:
    """The notes of a process about a call while it works on it. Cheap: a mark is an entry of a list.

    Marks may come from any thread. After `end` nothing is added: what a call leaves behind is not its own time.
    """

    __slots__ = ("_is_begun_here", "_marks", "id", "is_open", "title")

    def __init__(self, trace_id: str, title: str, *, is_begun_here: bool = False) -> None:
        self.id = trace_id
        self.title = title
        self._is_begun_here = is_begun_here
        self._marks: list[tuple[str, float, float | None]] = []
        self.is_open = bool(trace_id)
        """True if the call is still being worked on here."""

    def mark(self, name: str, at: float | None = None) -> None:
        """Note that something has been done by now, or by `at` (of `time.monotonic`)."""
        if self.is_open and len(self._marks) < MOST_MARKS:
            self._marks.append((name, time.monotonic() if at is None else at, None))

    def part(self, name: str, began: float) -> None:
        """Note what began then (of `time.monotonic`), ends now, and may run beside other parts."""
        if self.is_open and len(self._marks) < MOST_MARKS:
            self._marks.append((name, began, time.monotonic() - began))

    def end(self, name: str) -> None:
        """The last mark, and the end."""
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
"""Takes marks and keeps none."""
_current: ContextVar[Trace] = ContextVar("trace", default=NO_TRACE)


def current() -> Trace:
    """The trace of the call that is being worked on; `NO_TRACE` if none is, or if it is over."""
    trace = _current.get()
    return trace if trace.is_open else NO_TRACE


@contextmanager
def working_on(trace: Trace) -> Iterator[Trace]:
    """Work on that call; tasks that are started in here do as well."""
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


def begin(title: str) -> Trace:
    """The trace of a call that has just come, under a new id."""
    return Trace(f"{next(_numbers):08x}", title, is_begun_here=True)


def follow(trace_id: str, title: str) -> Trace:
    """A trace that another process began. Without an id there is nothing to note."""
    return Trace(trace_id, title) if trace_id else NO_TRACE


def last_durations_s() -> list[float]:
    """The durations of the last calls that began in this process, in their order."""
    return list(_durations)
