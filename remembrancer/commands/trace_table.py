"""Where a call's time went, as a person reads it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from remembrancer.commands.call_traces import CallTrace, Hop


def print_call(call: CallTrace, console: Console | None = None) -> None:
    """Print a call's way, a hop a line."""
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
