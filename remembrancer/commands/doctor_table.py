"""What the doctor found, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from remembrancer.commands.checking.checks import Check, Status

MARKS: Final[dict[Status, str]] = {
    "ok": "[green]ok[/green]     ",
    "warning": "[yellow]warning[/yellow]",
    "problem": "[red]problem[/red]",
}
CLOSING: Final[dict[Status, str]] = {
    "problem": "[red]{} to mend[/red]",
    "warning": "[yellow]{} to look at[/yellow]",
}


def print_checks(home: Path, found: Sequence[Check], console: Console | None = None) -> None:
    """Print each finding with its advice, and a last line that counts them."""
    out = console or Console(highlight=False, soft_wrap=True)
    out.print(f"[bold]Remembrancer[/bold], home {escape(str(home))}")
    width = max(len(check.name) for check in found)
    for check in found:
        out.print(f"{MARKS[check.status]}  {check.name:<{width}}  {escape(check.found)}")
        for line in check.details:
            out.print(f"[dim]{'':{width + 11}}{escape(line)}[/dim]")
        if check.advice:
            out.print(f"{'':{width + 11}}[bold]→[/bold] {escape(check.advice)}")
    counted = {status: sum(check.status == status for check in found) for status in CLOSING}
    said = [
        text.format(f"{counted[status]} {_noun(status, counted[status])}")
        for status, text in CLOSING.items()
        if counted[status]
    ]
    out.print("; ".join(said) if said else "[green]All is well.[/green]")


def _noun(status: Status, count: int) -> str:
    return status if count == 1 else f"{status}s"
