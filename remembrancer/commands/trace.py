"""`remembrancer status --trace`: what the processes noted of a call, put together: its way, hop by hop."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask, refusal
from remembrancer.protocol.control import AskTraces, ProcessTraces, TracesGathered
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.tracing import TraceReport

if TYPE_CHECKING:
    from rich.console import Console

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
    reports = tuple(processes)
    by_trace: dict[str, list[_Step]] = {}
    for each in reports:
        for report in each.traces:
            steps = by_trace.setdefault(report.trace, [])
            steps.extend(_Step(mark.at, each.process, mark.name, mark.took_s) for mark in report.marks)
    begun = (report for each in reports if each.process == FIRST_PROCESS for report in each.traces if report.marks)
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


def print_call(call: CallTrace, console: Console | None = None) -> None:
    """Print a call's way, a hop a line."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = console or Console(highlight=False, soft_wrap=True)
    state = "" if call.is_over else ", still under way"
    out.print(f"[bold]{escape(call.tool)}[/bold] {call.trace}, {_when(call)}: {call.total_ms:.2f} ms{state}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("hop")
    for heading in ("at ms", "took ms", "share"):
        table.add_column(heading, justify="right")
    for hop in call.hops:
        style = "dim" if hop.beside else ""
        share = "" if hop.beside else f"{hop.share:.0%}"
        table.add_row(escape(_name(hop)), f"{hop.at_ms:.2f}", f"{hop.took_ms:.2f}", share, style=style)
    out.print(table)
    if call.under_way_ms is not None:
        out.print(
            f"[dim]Before that, from the bridge to the gateway: up to {call.under_way_ms:.1f} ms (a bridge counts "
            "whole milliseconds).[/dim]"
        )


def print_calls(calls: Sequence[CallTrace], console: Console | None = None) -> None:
    """Print the calls that are kept, newest first, a call a line."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = console or Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("trace", "tool", "when"):
        table.add_column(heading)
    for heading in ("ms", "longest hop", "ms"):
        table.add_column(heading, justify="left" if heading == "longest hop" else "right")
    for call in reversed(calls):
        longest = max((hop for hop in call.hops if not hop.beside), key=lambda hop: hop.took_ms, default=None)
        name, took = ("", "") if longest is None else (_name(longest), f"{longest.took_ms:.2f}")
        table.add_row(call.trace, escape(call.tool), _when(call), f"{call.total_ms:.2f}", escape(name), took)
    out.print(table)


def _name(hop: Hop) -> str:
    where = hop.process if hop.came_from is None else f"{hop.came_from} → {hop.process}"
    return f"    {hop.process}: {hop.step}" if hop.beside else f"{where}: {hop.step}"


def _when(call: CallTrace) -> str:
    began = time.time() - (time.monotonic() - call.began_at)
    return datetime.fromtimestamp(began).astimezone().strftime("%H:%M:%S")


RECENT = "recent"


def show_trace(paths: RuntimePaths, wanted: str, *, as_json: bool) -> int:
    """Print where the time of one call went, or which calls are kept (`recent`). Returns the exit status."""
    try:
        answer = ask(paths, AskTraces("" if wanted in (RECENT, "last", "slowest") else wanted))
    except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
        return _fail(f"the launcher does not answer: {error.message}", exit_codes.DEGRADED)
    if not isinstance(answer, TracesGathered):
        return _fail(refusal(answer), exit_codes.DEGRADED)
    for process in answer.silent:
        print(f"remembrancer status: {process} did not answer in time: its part is missing", file=sys.stderr)
    calls = join(answer.processes)
    if wanted == RECENT:
        if as_json:
            print(json.dumps([msgspec.to_builtins(call) for call in reversed(calls)]))
        else:
            print_calls(calls)
        return exit_codes.OK
    call = choose(calls, wanted)
    if call is None:
        return _fail(f"no call {wanted!r} is kept: see `remembrancer status --trace recent`", exit_codes.REFUSED)
    if as_json:
        print(json.dumps(msgspec.to_builtins(call)))
    else:
        print_call(call)
    return exit_codes.OK


def _fail(reason: str, code: int) -> int:
    print(f"remembrancer status: {reason}", file=sys.stderr)
    return code
