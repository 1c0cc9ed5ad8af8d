"""What the processes noted of a call, put together: the way of the call, hop by hop. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from remembrancer.protocol.control import ProcessTraces
from remembrancer.protocol.tracing import TraceReport

FIRST_PROCESS: Final = "gateway"
"""Where a call's trace begins; the others know parts of it."""
Choice = Literal["last", "slowest", "recent"]


class Hop(msgspec.Struct, frozen=True):
    """One step of a call: what was done by `process`, or on the way to it (`came_from`).

    `at_ms` is when it began, from the call's first mark, and `took_ms` how long it took; `share` is its part of the
    whole. `beside`: it is within the steps around it, or beside another, and no step of its own.
    """

    process: str
    step: str
    at_ms: float
    took_ms: float
    share: float
    came_from: str | None = None
    beside: bool = False


class CallTrace(msgspec.Struct, frozen=True):
    """One call of a tool, from its first mark to its last. `began_at` is of `time.monotonic`.

    `under_way_ms`: how long it had been on its way from the bridge before that, as a bridge can tell: it counts whole
    milliseconds. None where no bridge was there to tell.
    """

    trace: str
    tool: str
    began_at: float
    total_ms: float
    is_over: bool
    hops: tuple[Hop, ...]
    under_way_ms: float | None = None


class _Step(msgspec.Struct, frozen=True):
    at: float
    process: str
    name: str
    took_s: float | None


def join(processes: Iterable[ProcessTraces]) -> list[CallTrace]:
    """Every call that the gateway noted, oldest first, with what the others noted of it.

    The moments of all processes are of one clock, and a call is in one place at a time: each mark ends the step that
    began with the mark before it, in whichever process that was.
    """
    told = tuple(processes)
    by_trace: dict[str, list[_Step]] = {}
    for each in told:
        for report in each.traces:
            steps = by_trace.setdefault(report.trace, [])
            steps.extend(_Step(mark.at, each.process, mark.name, mark.took_s) for mark in report.marks)
    begun = (report for each in told if each.process == FIRST_PROCESS for report in each.traces if report.marks)
    return sorted((_call(report, by_trace[report.trace]) for report in begun), key=lambda call: call.began_at)


def _call(begun: TraceReport, steps: list[_Step]) -> CallTrace:
    last = max(mark.at for mark in begun.marks)
    # What goes on elsewhere after the answer is not waited for.
    way = sorted((step for step in steps if step.at <= last or not begun.is_over), key=lambda step: step.at)
    total_s = way[-1].at - way[0].at
    return CallTrace(
        trace=begun.trace,
        tool=begun.title,
        began_at=way[0].at,
        total_ms=total_s * 1000,
        is_over=begun.is_over,
        hops=_hops(way, total_s),
        under_way_ms=None if begun.under_way_s is None else begun.under_way_s * 1000,
    )


def choose(calls: list[CallTrace], wanted: str) -> CallTrace | None:
    """The call of that id, or the `last` one or the `slowest` that is over; None if there is none."""
    over = [call for call in calls if call.is_over]
    match wanted:
        case "last":
            return over[-1] if over else None
        case "slowest":
            return max(over, key=lambda call: call.total_ms, default=None)
        case _:
            return next((call for call in calls if call.trace == wanted), None)


def _hops(way: list[_Step], total_s: float) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    began = before = way[0]
    for step in way[1:]:
        beside = step.took_s is not None
        at_s, took_s = (before.at, step.at - before.at) if step.took_s is None else (step.at, step.took_s)
        came_from = before.process if not beside and before.process != step.process else None
        share = took_s / total_s if total_s > 0 else 0.0
        hops.append(Hop(step.process, step.name, (at_s - began.at) * 1000, took_s * 1000, share, came_from, beside))
        before = before if beside else step
    return tuple(sorted(hops, key=lambda hop: hop.at_ms))
