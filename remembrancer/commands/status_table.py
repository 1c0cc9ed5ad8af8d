"""The status as a person reads it."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from remembrancer.commands.health import Problem
from remembrancer.protocol.control import ConsolidatorHealth, ProcessState, ProcessStatus, RuntimeStatus

COLOURS: Final[dict[ProcessState, str]] = {"ready": "green", "starting": "cyan", "failed": "red", "unresponsive": "red"}
MIB: Final = 1024 * 1024


def print_status(status: RuntimeStatus, problems: tuple[Problem, ...], console: Console | None = None) -> None:
    """Print the processes, what they have done, and what to do about that which is wrong."""
    out = console or Console(highlight=False, soft_wrap=True)
    out.print(f"[bold]Remembrancer[/bold], home {escape(status.home)}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("process", "state"):
        table.add_column(heading)
    for heading in ("pid", "restarts", "up", "memory"):
        table.add_column(heading, justify="right")
    for process in status.processes:
        table.add_row(*_cells(process))
    out.print(table)
    _print_work(out, status)
    if not problems:
        out.print("[green]All is well.[/green]")
    for problem in problems:
        out.print(f"[yellow]![/yellow] {escape(problem.what)}")
        out.print(f"  [dim]{escape(problem.advice)}[/dim]")


def _cells(process: ProcessStatus) -> tuple[str, ...]:
    colour = COLOURS.get(process.state, "yellow")
    return (
        escape(process.name or process.role),
        f"[{colour}]{process.state}[/{colour}]",
        str(process.pid or "-"),
        str(process.restarts),
        duration(process.uptime_s) if process.pid else "-",
        f"{process.rss_bytes / MIB:.0f} MiB" if process.pid else "-",
    )


def _print_work(out: Console, status: RuntimeStatus) -> None:
    if status.store is not None:
        counts, embedding = status.store.counts, status.store.embedding
        out.print(f"memories    {counts.total} ({counts.forgotten} forgotten), {counts.entities} entities")
        out.print(
            f"embedding   {escape(embedding.model)} by {escape(embedding.engine)}, {embedding.dimensions} dimensions, "
            f"{embedding.workers} at work, {embedding.pending} pending"
        )
        if embedding.given_up:
            out.print(f"            {embedding.given_up} without vectors: {escape(embedding.given_up_error or '')}")
    if status.gateway is not None:
        rejected = f", {status.gateway.queue_rejected} rejected" if status.gateway.queue_rejected else ""
        out.print(f"sessions    {status.gateway.sessions}; writes queued: {status.gateway.queue_depth}{rejected}")
    if status.consolidator is not None:
        out.print(f"consolidator {escape(_of_consolidator(status.consolidator))}")


def _of_consolidator(health: ConsolidatorHealth) -> str:
    now = f"at work: {health.duty}" if health.duty else "waits for work"
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
