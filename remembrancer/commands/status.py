"""`remembrancer status`: how each process, the write queue and the embedding are, what is wrong with them, and with
`--trace` where the time of a call went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.markup import escape

from remembrancer import __version__
from remembrancer.commands import exit_codes
from remembrancer.commands.model import describe
from remembrancer.commands.report import Report, command, option
from remembrancer.commands.runtime_client import (
    ask,
    ask_home,
    ask_running_home,
    is_up,
    nothing_runs,
    paths_here,
)
from remembrancer.commands.terminal import styled, table
from remembrancer.protocol.control import (
    AskStatus,
    AskTraces,
    ProcessState,
    ProcessTraces,
    RemoteEmbedders,
    RuntimeStatus,
)
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.home import DescribeReleases
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import MIB, Problem, find_problems
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.tracing import TraceReport

if TYPE_CHECKING:
    from rich.table import Table

    from remembrancer.commands.report import Line

PROCESS_FIELDS: Final = ("role", "name", "pid", "state", "restarts", "uptime_s", "rss_bytes", "error")
GATEWAY_FIELDS: Final = ("sessions", "http", "store", "store_attempts", "store_next_attempt_s")
CONSOLIDATOR_FIELDS: Final = ("job", "finished", "failed", "error")
INDEXER_FIELDS: Final = (
    "workspaces",
    "files",
    "syncs",
    "watching",
    "error",
    "code_trees",
    "code_files",
    "native_files",
)
COLOURS: Final[dict[ProcessState, str]] = {"ready": "green", "starting": "cyan", "failed": "red", "unresponsive": "red"}
FIRST_PROCESS: Final = "gateway"
"""The process where a call's trace begins; the others know parts of it."""
RECENT: Final = "recent"


@command(
    option(
        "--trace",
        metavar="ID",
        help="Where the time of one call went: its id, `last`, or `slowest`; `recent` lists what is kept.",
    )
)
def status(trace: str | None) -> Report:
    """Show the processes of the runtime of this home, their work, and what is wrong.

    Exit status 0: all is well, 3: degraded, 4: nothing runs."""
    paths = paths_here()
    try:
        if is_up(paths):
            return _trace(paths, trace) if trace is not None else _present(paths)
    except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
        if is_up(paths):
            advice = f"look at {paths.logs / 'launcher.log'}"
            what = f"the launcher does not answer: {error.message.removesuffix(f': {advice}')}"
            problem = Problem("peer_unavailable", "problem", what, advice)
            facts = {} if trace is not None else report(paths.home, None, (problem,))
            return Report(facts, (), exit_codes.DEGRADED, (f"remembrancer status: {problem}",))
    releases = ask_home(paths, DescribeReleases()).releases
    return Report(report(paths.home, None, (), releases), (), exit_codes.NOT_RUNNING, (nothing_runs(paths.home),))


COMMANDS = {"status": status}


def _present(paths: RuntimePaths) -> Report:
    state = ask(paths, AskStatus())
    problems = find_problems(state)
    releases = _releases(paths, state)
    lines = lines_of(state, problems, releases)
    status = exit_codes.DEGRADED if problems else exit_codes.OK
    return Report(report(paths.home, state, problems, releases), lines, status)


def _releases(paths: RuntimePaths, status: RuntimeStatus) -> dict[str, str]:
    """The releases of the files by the store's word: nobody else opens them while it runs."""
    if not any(process.role == "store" and process.state == "ready" for process in status.processes):
        return {}
    try:
        return ask_running_home(paths, DescribeReleases()).releases
    except AWAY:  # it went down or hangs, which the next status says
        return {}


def report(
    home: Path,
    status: RuntimeStatus | None,
    problems: tuple[Problem, ...],
    releases: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The object that `status --json` prints; `status` None means that nothing runs or answers."""
    store, gateway = (status.store, status.gateway) if status else (None, None)
    embedding = store.embedding if store else None
    return {
        "home": str(home),
        "release": __version__,
        "formats": dict(releases),
        "processes": [
            _fields(process, *PROCESS_FIELDS)
            | {"name": process.name or process.role, "uptime_s": round(process.uptime_s, 3)}
            for process in (status.processes if status else ())
        ],
        "write_queue": {
            "depth": gateway.queue_depth if gateway else None,
            "rejected": gateway.queue_rejected if gateway else None,
            "stuck": gateway.queue_stuck if gateway else None,
            "damage": gateway.queue_damage if gateway else None,
        },
        "embedding": msgspec.to_builtins(embedding)
        if embedding is not None
        else dict.fromkeys(EmbeddingSummary.__struct_fields__),
        "remote_embedders": msgspec.to_builtins(store.remote) if store else None,
        "resting": status.is_resting if status else None,
        "unusable": list(store.unusable) if store else [],
        "counts": msgspec.to_builtins(store.counts) if store else {},
        "gateway": _fields(gateway, *GATEWAY_FIELDS),
        "consolidator": _fields(status.consolidator if status else None, *CONSOLIDATOR_FIELDS),
        "indexer": _fields(status.indexer if status else None, *INDEXER_FIELDS),
        "problems": msgspec.to_builtins(problems),
        "warnings": [*(status.warnings if status else ()), *map(str, problems)],
    }


def _fields(struct: msgspec.Struct | None, *names: str) -> dict[str, Any]:
    return {name: None if struct is None else getattr(struct, name) for name in names}


def lines_of(
    status: RuntimeStatus, problems: tuple[Problem, ...], releases: Mapping[str, str] = MappingProxyType({})
) -> list[Line]:
    """The processes, what they have done, and what to do about that which is wrong."""
    listed = table("process", "state", ">pid", ">restarts", ">up", ">memory")
    for process in status.processes:
        colour = COLOURS.get(process.state, "yellow")
        listed.add_row(
            escape(process.name or process.role),
            f"[{colour}]{process.state}[/{colour}]",
            str(process.pid or "-"),
            str(process.restarts),
            duration(process.uptime_s) if process.pid else "-",
            f"{process.rss_bytes / MIB:.0f} MiB" if process.pid else "-",
        )
    lines: list[Line] = [f"Remembrancer {__version__}, home {status.home}", listed, *_work(status, releases)]
    for problem in problems:
        lines += [styled(f"[yellow]![/yellow] {escape(problem.what)}"), f"  {problem.advice}"]
    return lines if problems else [*lines, styled("[green]All is well.[/green]")]


def _work(status: RuntimeStatus, releases: Mapping[str, str]) -> list[str]:
    """The work that the processes have done, in lines."""
    lines = ["Embedders, consolidator and indexer rest until somebody asks for something."] if status.is_resting else []
    formats = Counter(releases.values())
    lines += [f"files       {count} of release {release}" for release, count in sorted(formats.items())]
    if status.store is not None:
        counts, embedding = status.store.counts, status.store.embedding
        lines.append(f"memories    {counts.total} ({counts.forgotten} forgotten), {counts.entities} entities")
        lines.append(
            f"embedding   {embedding.model} by {embedding.engine}, {embedding.dimensions} dimensions, "
            f"{embedding.workers} at work, {embedding.pending} pending"
        )
        if len(embedding.models) > 1:
            lines += [f"            {describe(model)}" for model in embedding.models]
        if (remote := status.store.remote) is not None:
            lines.append(f"            for other hosts at {remote.address}: {describe_remote(remote)}")
        if embedding.dead_letters:
            lines.append(f"            {embedding.dead_letters} without vectors: {embedding.dead_letter_error or ''}")
    if status.gateway is not None:
        rejected = f", {status.gateway.queue_rejected} rejected" if status.gateway.queue_rejected else ""
        if status.gateway.http is not None:
            lines.append(f"http        {status.gateway.http}")
        lines.append(f"sessions    {status.gateway.sessions}; writes queued: {status.gateway.queue_depth}{rejected}")
    if status.consolidator is not None:
        health = status.consolidator
        now = f"at work: {health.job}" if health.job else "waits for work"
        failed = f", {health.failed} failed (the last: {health.error})" if health.failed and health.error else ""
        lines.append(f"consolidator {now}; {health.finished} done{failed}")
    if status.indexer is not None:
        indexer = status.indexer
        trouble = f"; {indexer.error}" if indexer.error else "" if indexer.watching else "; the system tells no changes"
        native = f" ({indexer.native_files} of your assistants' own)" if indexer.native_files else ""
        notes = f"{indexer.files} files of notes in {indexer.workspaces} working trees{native}"
        code = f"{indexer.code_files} files of code in {indexer.code_trees} trees"
        lines.append(f"indexer     {notes}, {code}{trouble}")
    return lines


def describe_remote(remote: RemoteEmbedders) -> str:
    """The embedders on other hosts, and what each has done."""
    said = []
    for each in remote.workers:
        done = f", {each.embedded} texts embedded" if each.embedded else ""
        why = f" ({each.error})" if each.error and each.state != "refused" else ""
        said.append(f"{each.name} {each.state}{done}{why}")
    return "; ".join(said) or "nobody is invited"


def duration(seconds: float) -> str:
    """A time span as a person says it: 42 s, 5 min, 3 h 20 min, 2 d 4 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"


# --- traces: what the processes noted of a call, put together ---


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

    def __str__(self) -> str:
        where = self.process if self.came_from is None else f"{self.came_from} → {self.process}"
        return f"{'    ' if self.beside else ''}{where}: {self.step}"


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

    @property
    def when(self) -> str:
        """The time of day at which it began."""
        began = time.time() - (time.monotonic() - self.began_at)
        return datetime.fromtimestamp(began).astimezone().strftime("%H:%M:%S")


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
    begun: list[TraceReport] = []
    by_trace: dict[str, list[_Step]] = {}
    for each in processes:
        for report in each.traces:
            steps = by_trace.setdefault(report.trace, [])
            steps.extend(_Step(mark.at, each.process, mark.name, mark.took_s) for mark in report.marks)
            if each.process == FIRST_PROCESS and report.marks:
                begun.append(report)
    return sorted((_call(report, by_trace[report.trace]) for report in begun), key=lambda call: call.began_at)


def _call(begun: TraceReport, steps: list[_Step]) -> CallTrace:
    last = max(mark.at for mark in begun.marks)
    # What goes on elsewhere after the answer is not waited for.
    way = sorted((step for step in steps if step.at <= last or not begun.is_over), key=lambda step: step.at)
    total_s = way[-1].at - way[0].at
    hops: list[Hop] = []
    before = way[0]
    for step in way[1:]:
        beside = step.took_s is not None
        at_s, took_s = (before.at, step.at - before.at) if step.took_s is None else (step.at, step.took_s)
        came_from = before.process if not beside and before.process != step.process else None
        share = took_s / total_s if total_s > 0 else 0.0
        hops.append(Hop(step.process, step.name, (at_s - way[0].at) * 1000, took_s * 1000, share, came_from, beside))
        before = before if beside else step
    return CallTrace(
        trace=begun.trace,
        tool=begun.title,
        began_at=way[0].at,
        total_ms=total_s * 1000,
        is_over=begun.is_over,
        hops=tuple(sorted(hops, key=lambda hop: hop.at_ms)),
        under_way_ms=None if begun.under_way_s is None else begun.under_way_s * 1000,
    )


def choose(calls: list[CallTrace], wanted: str) -> CallTrace | None:
    """The call of that id, or the `last` one or the `slowest` that is over; None if there is none."""
    over = [call for call in calls if call.is_over]
    if wanted == "last":
        return over[-1] if over else None
    if wanted == "slowest":
        return max(over, key=lambda call: call.total_ms, default=None)
    return next((call for call in calls if call.trace == wanted), None)


def _trace(paths: RuntimePaths, wanted: str) -> Report:
    """The time of one call, step by step, or the calls that are kept (`recent`)."""
    answer = ask(paths, AskTraces("" if wanted in (RECENT, "last", "slowest") else wanted))
    notes = [f"remembrancer status: {process} did not answer in time: its part is missing" for process in answer.silent]
    calls = join(answer.processes)
    if wanted == RECENT:
        return Report(calls[::-1], table_of_calls(calls), notes=notes)
    call = choose(calls, wanted)
    if call is None:
        unknown = f"remembrancer status: no call {wanted!r} is kept: see `remembrancer status --trace recent`"
        return Report({}, (), exit_codes.REFUSED, (*notes, unknown))
    return Report(msgspec.to_builtins(call), lines_of_call(call), notes=notes)


def lines_of_call(call: CallTrace) -> list[Line]:
    """A call's way, a hop a line."""
    state = "" if call.is_over else ", still under way"
    listed = table("hop", ">at ms", ">took ms", ">share")
    for hop in call.hops:
        share = "" if hop.beside else f"{hop.share:.0%}"
        style = "dim" if hop.beside else ""
        listed.add_row(escape(str(hop)), f"{hop.at_ms:.2f}", f"{hop.took_ms:.2f}", share, style=style)
    lines: list[Line] = [f"{call.tool} {call.trace}, {call.when}: {call.total_ms:.2f} ms{state}", listed]
    if call.under_way_ms is not None:
        before = f"up to {call.under_way_ms:.1f} ms (a bridge counts whole milliseconds)"
        lines.append(f"Before that, from the bridge to the gateway: {before}.")
    return lines


def table_of_calls(calls: Sequence[CallTrace]) -> Table:
    """The calls that are kept, newest first, a call a line."""
    listed = table("trace", "tool", "when", ">ms", "longest hop", ">ms")
    for call in reversed(calls):
        longest = max((hop for hop in call.hops if not hop.beside), key=lambda hop: hop.took_ms, default=None)
        name, took = ("", "") if longest is None else (str(longest), f"{longest.took_ms:.2f}")
        listed.add_row(call.trace, escape(call.tool), call.when, f"{call.total_ms:.2f}", escape(name), took)
    return listed
