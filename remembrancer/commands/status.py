"""`remembrancer status`: how each process, the write queue and the embedding are, and what is wrong with them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask_status, is_up, nothing_runs, paths_here
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    ProcessState,
    ProcessStatus,
    RuntimeStatus,
)
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import EmbeddingSummary

if TYPE_CHECKING:
    from rich.console import Console

ADVICE: Final = {
    "starting": "it starts; ask again in a moment",
    "degraded": "mend what it says; it tries again by itself",
    "unresponsive": "it hangs and is being replaced",
    "restarting": "it is being started again",
    "stopping": "it is being stopped",
    "stopped": "start the runtime again",
    "failed": "mend what it says, then run 'remembrancer down'; the next session starts everything again",
}
"""By the state of a process."""


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and what a person does about it."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what} ({self.advice})"


def find_problems(status: RuntimeStatus) -> tuple[Problem, ...]:
    """Everything that makes the runtime degraded, the most important first; empty when all is well."""
    problems = [_of_process(process) for process in status.processes if process.state != "ready"]
    problems += _of_files(status)
    problems += _of_gateway(status)
    problems += _of_embedding(status)
    return tuple(problems)


def exit_code(problems: tuple[Problem, ...]) -> int:
    """The exit status that says the same."""
    return exit_codes.DEGRADED if problems else exit_codes.OK


def _of_process(process: ProcessStatus) -> Problem:
    reason = f": {process.error}" if process.error else ""
    return Problem(f"{process.name or process.role} is {process.state}{reason}", ADVICE[process.state])


def _of_files(status: RuntimeStatus) -> list[Problem]:
    advice = "until that is mended, what it has is missing from answers; 'remembrancer doctor' looks at all files"
    return [Problem(reason, advice) for reason in (status.store.unusable if status.store is not None else ())]


def _of_gateway(status: RuntimeStatus) -> list[Problem]:
    if status.gateway is None:
        return [] if _not_ready(status, "gateway") else [Problem("the gateway has not reported", "ask again")]
    found = []
    if status.gateway.store != "connected":
        found.append(
            Problem(
                f"the gateway sees the store as {status.gateway.store} after {status.gateway.store_attempts} attempts: "
                "writes are queued, reads come from the cache",
                f"it is tried again in {status.gateway.store_next_attempt_s or 0:.0f} s, and then the queue drains",
            )
        )
    for lane, why in status.gateway.queue_stuck.items():
        whose = "the user's memory" if lane == "user" else f"the project {lane}"
        found.append(Problem(f"queued writes for {whose} have to wait: {why}", "they are tried again by themselves"))
    if status.gateway.queue_damage is not None:
        found.append(Problem(status.gateway.queue_damage, "delete the file set aside when it is not needed"))
    if status.gateway.queue_rejected:
        rejected = f"{status.gateway.queue_rejected} queued writes were refused and are set aside"
        found.append(Problem(rejected, "`remembrancer queue` lists, retries, exports and drops them"))
    if status.gateway.queue_depth:
        found.append(
            Problem(f"{status.gateway.queue_depth} writes are queued", "they are applied by themselves, in order")
        )
    return found


def _of_embedding(status: RuntimeStatus) -> list[Problem]:
    if status.store is None:
        return [] if _not_ready(status, "store") else [Problem("the store has not reported", "ask again")]
    embedding = status.store.embedding
    if embedding.error:
        return [Problem(f"no vectors are made: {embedding.error}", "mend that; until then search is by keyword only")]
    embedders = [process for process in status.processes if process.role == "embedder"]
    if embedders and not embedding.workers:
        return [
            Problem("no embedder works for the store", "ask again in a moment; until then search is by keyword only")
        ]
    return []


def _not_ready(status: RuntimeStatus, role: str) -> bool:
    return any(process.role == role and process.state != "ready" for process in status.processes)


def report(home: Path, status: RuntimeStatus | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    """The object that `status --json` prints; `status` None means that nothing runs or answers."""
    store, gateway = (status.store, status.gateway) if status else (None, None)
    embedding = msgspec.structs.asdict(store.embedding) if store else dict.fromkeys(EmbeddingSummary.__struct_fields__)
    return {
        "home": str(home),
        "processes": [_process(process) for process in status.processes] if status else [],
        "write_queue": {
            "depth": gateway.queue_depth if gateway else None,
            "rejected": gateway.queue_rejected if gateway else None,
            "stuck": gateway.queue_stuck if gateway else None,
            "damage": gateway.queue_damage if gateway else None,
        },
        "embedding": embedding,
        "unusable": list(store.unusable) if store else [],
        "counts": msgspec.to_builtins(store.counts) if store else {},
        "gateway": _fields(gateway, "sessions", "store", "store_attempts", "store_next_attempt_s"),
        "consolidator": _fields(status.consolidator if status else None, *CONSOLIDATOR_FIELDS),
        "warnings": [*(status.warnings if status else ()), *map(str, problems)],
    }


def _fields(health: msgspec.Struct | None, *names: str) -> dict[str, Any]:
    return {name: None if health is None else getattr(health, name) for name in names}


def _process(process: ProcessStatus) -> dict[str, Any]:
    said = {**msgspec.structs.asdict(process), "name": process.name or process.role}
    return {name: said[name] for name in PROCESS_FIELDS} | {"uptime_s": round(process.uptime_s, 3)}


PROCESS_FIELDS: Final = ("role", "name", "pid", "state", "restarts", "uptime_s", "rss_bytes", "error")
CONSOLIDATOR_FIELDS: Final = ("job", "finished", "failed", "error")
COLOURS: Final[dict[ProcessState, str]] = {"ready": "green", "starting": "cyan", "failed": "red", "unresponsive": "red"}
MIB: Final = 1024 * 1024


def print_status(status: RuntimeStatus, problems: tuple[Problem, ...], console: Console | None = None) -> None:
    """Print the processes, what they have done, and what to do about that which is wrong."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = console or Console(highlight=False, soft_wrap=True)
    out.print(f"[bold]Remembrancer[/bold], home {escape(status.home)}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("process", "state"):
        table.add_column(heading)
    for heading in ("pid", "restarts", "up", "memory"):
        table.add_column(heading, justify="right")
    for process in status.processes:
        colour = COLOURS.get(process.state, "yellow")
        table.add_row(
            escape(process.name or process.role),
            f"[{colour}]{process.state}[/{colour}]",
            str(process.pid or "-"),
            str(process.restarts),
            duration(process.uptime_s) if process.pid else "-",
            f"{process.rss_bytes / MIB:.0f} MiB" if process.pid else "-",
        )
    out.print(table)
    _print_work(out, status)
    if not problems:
        out.print("[green]All is well.[/green]")
    for problem in problems:
        out.print(f"[yellow]![/yellow] {escape(problem.what)}")
        out.print(f"  [dim]{escape(problem.advice)}[/dim]")


def _print_work(out: Console, status: RuntimeStatus) -> None:
    from rich.markup import escape

    if status.store is not None:
        counts, embedding = status.store.counts, status.store.embedding
        out.print(f"memories    {counts.total} ({counts.forgotten} forgotten), {counts.entities} entities")
        out.print(
            f"embedding   {escape(embedding.model)} by {escape(embedding.engine)}, {embedding.dimensions} dimensions, "
            f"{embedding.workers} at work, {embedding.pending} pending"
        )
        if embedding.dead_letters:
            out.print(
                f"            {embedding.dead_letters} without vectors: {escape(embedding.dead_letter_error or '')}"
            )
    if status.gateway is not None:
        rejected = f", {status.gateway.queue_rejected} rejected" if status.gateway.queue_rejected else ""
        out.print(f"sessions    {status.gateway.sessions}; writes queued: {status.gateway.queue_depth}{rejected}")
    if status.consolidator is not None:
        out.print(f"consolidator {escape(_of_consolidator(status.consolidator))}")


def _of_consolidator(health: ConsolidatorHealth) -> str:
    now = f"at work: {health.job}" if health.job else "waits for work"
    failed = f", {health.failed} failed (the last: {health.error})" if health.failed and health.error else ""
    return f"{now}; {health.finished} done{failed}"


def duration(seconds: float) -> str:
    """A time span as a person says it: 42 s, 5 min, 3 h 20 min, 2 d 4 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"


def main(argv: list[str]) -> int:
    """Print the status of the runtime of this home."""
    parser = argparse.ArgumentParser(
        prog="remembrancer status",
        description="How the runtime of this home is.",
        epilog="exit status: 0 all is well, 3 degraded, 4 nothing runs, 6 the home cannot be used",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    parser.add_argument(
        "--trace",
        metavar="ID",
        help="where the time of one call went: its id, `last`, or `slowest`; `recent` lists what is kept",
    )
    options = parser.parse_args(argv)
    as_json = options.json
    paths = paths_here()
    if not is_up(paths):
        return _say_nothing_runs(paths.home, as_json=as_json)
    if options.trace is not None:
        from remembrancer.commands.trace import show_trace

        return show_trace(paths, options.trace, as_json=as_json)
    try:
        answer = ask_status(paths)
    except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
        if not is_up(paths):
            return _say_nothing_runs(paths.home, as_json=as_json)
        return _say_no_answer(paths, error.message, as_json=as_json)
    problems = find_problems(answer)
    if as_json:
        print(json.dumps(report(paths.home, answer, problems)))
    else:
        print_status(answer, problems)
    return exit_code(problems)


def _say_nothing_runs(home: Path, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(report(home, None, ())))
    else:
        print(nothing_runs(home), file=sys.stderr)
    return exit_codes.NOT_RUNNING


def _say_no_answer(paths: RuntimePaths, reason: str, *, as_json: bool) -> int:
    advice = f"look at {paths.logs / 'launcher.log'}"
    problem = Problem(f"the launcher does not answer: {reason.removesuffix(f': {advice}')}", advice)
    if as_json:
        print(json.dumps(report(paths.home, None, (problem,))))
    else:
        print(f"remembrancer status: {problem}", file=sys.stderr)
    return exit_codes.DEGRADED
