"""`python -m examples.week`: plays the week in its own home; exit status 0 if every prediction came true."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.sessions import in_a_home_of_its_own
from examples.week.playing import play
from examples.week.predictions import outcomes


async def show_week(home: Path, console: Console) -> bool:
    """Play the week in a home and show it. Returns whether it went as predicted."""
    console.rule("[bold]A week of ten sessions in two projects")
    console.print(
        "  tidewatch is the API of a small harbour, slipway its web front end.\n"
        "  Days pass while the runtime is down: all times in the records are set back."
    )
    results = outcomes(await play(home, lambda line: console.print(line, soft_wrap=True)))
    table = Table("", "memory or rule", "predicted", "happened", show_lines=True)
    missed = 0
    for subject, predicted, happened in results:
        kept = predicted == happened
        missed += not kept
        table.add_row(
            "[green]✓" if kept else "[red]✗",
            subject,
            escape(str(predicted)),
            "[dim]the same" if kept else f"[red]{escape(str(happened))}",
        )
    console.print(table)
    if missed:
        console.print(f"[red]{missed} of {len(results)} predictions did not come about.")
    else:
        console.print(f"[green]All {len(results)} predictions came about.[/] docs/memory-model.md explains them.")
    return not missed


if __name__ == "__main__":
    sys.exit(0 if anyio.run(in_a_home_of_its_own, show_week, Console()) else 1)
