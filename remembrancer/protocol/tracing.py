"""The time of a call, by its parts: each process notes moments of a call under the call's trace id, and keeps the last
ones.

The id travels in the envelope. Within a process the trace that is being worked on is a context variable, which tasks
inherit; a thread is handed the trace itself. Moments are of `time.monotonic`, which Linux and macOS count alike in all
processes of a host. What is noted are names of ours and moments: never anything of a memory or of a question.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

KEPT: Final = 512
"""Traces that a process keeps: some 1.5 KB each."""
MOST_MARKS: Final = 64
"""Of one trace in one process: a call that does something a thousand times notes the first."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A moment that a call has reached: `name` says what was done by then.

    With `took_s` it is a part of the way that ran beside others, and began at `at`.
    """

    name: str
    at: float
    took_s: float | None = None


class TraceReport(msgspec.Struct, frozen=True):
    """The notes of one process about a call. `title` is what it was asked for.

    `under_way_s`: how long the call had been under way at the first mark, by the bridge's stamp, which has milliseconds
    and is cut off; None where that is not known.
    """

    trace: str
    title: str
    marks: tuple[Mark, ...]
    is_over: bool
    under_way_s: float | None = None


class Trace:
    """The notes of a process about a call while it works on it. Cheap: a mark is an entry of a list.

    Marks may come from any thread. After `end` nothing is added: what a call leaves behind is not its own time.
    """

    __slots__ = ("_marks", "id", "is_open", "title", "under_way_s")

    def __init__(self, trace_id: str, title: str) -> None:
        self.id = trace_id
        self.title = title
        self.under_way_s: float | None = None
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

    def end(self, name: str | None = None) -> None:
        """The last mark, if any, and the end."""
        if name is not None:
            self.mark(name)
        self.is_open = False

    def report(self) -> TraceReport:
        """The notes so far."""
        marks = tuple(Mark(*mark) for mark in self._marks)
        return TraceReport(self.id, self.title, marks, not self.is_open, self.under_way_s)


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


class Traces:
    """The last traces of a process."""

    def __init__(self) -> None:
        self._kept: deque[Trace] = deque(maxlen=KEPT)
        self._numbers = itertools.count(secrets.randbits(31))

    def begin(self, title: str) -> Trace:
        """The trace of a call that has just come, under a new id."""
        return self.follow(f"{next(self._numbers):08x}", title)

    def follow(self, trace_id: str, title: str) -> Trace:
        """A trace that another process began. Without an id there is nothing to note."""
        if not trace_id:
            return NO_TRACE
        trace = Trace(trace_id, title)
        self._kept.append(trace)
        return trace

    def reports(self, trace_id: str = "") -> tuple[TraceReport, ...]:
        """The notes that are kept of a call, or of all of them, oldest first."""
        return tuple(each.report() for each in tuple(self._kept) if not trace_id or each.id == trace_id)
