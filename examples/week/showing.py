"""Shows the week to a person: each day in a few lines, then the predictions and the results."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.week.playing import Week
from examples.week.predictions import Outcome, outcomes


async def show_week(home: Path, console: Console) -> bool:
    """Play the week in a home and show it. Returns whether it went as predicted."""
    console.rule("[bold]A week of ten sessions in two projects")
    console.print(
        "  tidewatch is the API of a small harbour, slipway its web front end.\n"
        "  Days pass while the runtime is down: all times in the records are set back."
    )
    played = await Week(home, lambda line: console.print(line, soft_wrap=True)).play()
    found = outcomes(played)
    console.print(_table(found))
    missed = [each for each in found if not each.kept]
    if missed:
        console.print(f"[red]{len(missed)} of {len(found)} predictions did not come about.")
    else:
        console.print(f"[green]All {len(found)} predictions came about.[/] docs/memory-model.md explains them.")
    return not missed


def _table(found: list[Outcome]) -> Table:
    table = Table("", "the rule", "predicted", "happened", show_lines=True)
    for each in found:
        same = "[dim]the same" if each.kept else f"[red]{escape(each.happened)}"
        table.add_row("[green]✓" if each.kept else "[red]✗", escape(each.rule), escape(each.predicted), same)
    return table
