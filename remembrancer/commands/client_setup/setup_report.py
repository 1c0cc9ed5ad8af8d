"""What `remembrancer setup` says: to a person, and to a program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from remembrancer.commands.client_setup.clients.plan import Action, Plan
from remembrancer.commands.client_setup.clients.probe import Probed

WOULD: dict[Action, str] = {
    "add": "not set up",
    "extend": "set up, without the variables of this environment",
    "replace": "has another entry of this name",
    "remove": "set up",
    "nothing": "set up",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan: `backup` is what the file held before; `error` says why it could not be carried out."""

    plan: Plan
    backup: Path | None = None
    error: str | None = None

    @property
    def refused(self) -> bool:
        """Whether the file was left as it is although it should have been changed."""
        return self.error is not None or self.plan.action == "refuse"

    @property
    def works(self) -> bool:
        """Whether the file has the entry now."""
        return not self.refused and self.plan.action != "remove"


def as_json(command: tuple[str, ...], outcomes: Sequence[Outcome], probed: Probed | None) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "command": list(command),
        "clients": [_outcome(outcome) for outcome in outcomes],
        "check": None
        if probed is None
        else {
            "ok": probed.error is None,
            "initialize_ms": _rounded(probed.initialize_ms),
            "tools_ms": _rounded(probed.tools_ms),
            "tools": probed.tools,
            "error": probed.error,
        },
    }


def print_outcomes(
    command: tuple[str, ...],
    outcomes: Sequence[Outcome],
    probed: Probed | None,
    *,
    removing: bool,
    wrote: bool,
    named: str | None,
) -> None:
    """Say what was done, whether the command works, and what to do next."""
    out = _console()
    for outcome in outcomes:
        _print_outcome(out, outcome)
    if removing:
        if wrote:
            out.print("What was remembered stays where it is.")
        return
    if named and wrote:
        out.print(f"The entry names the home {escape(named)}, since REMEMBRANCER_HOME is set here.")
    if probed is not None:
        _print_probe(out, command, probed)
    if wrote and (probed is None or probed.error is None):
        _print_next(out, [outcome for outcome in outcomes if outcome.works])


def print_overview(command: tuple[str, ...], rows: Sequence[tuple[bool, Plan]]) -> None:
    """Say which clients there are, whether each is set up, and how it would be."""
    out = _console()
    out.print(f"A client is to start: [bold]{escape(shlex.join(command))}[/bold]")
    for found, plan in rows:
        seen = "" if found else " [dim](not found on this machine)[/dim]"
        out.print(f"[bold]{plan.client.title}[/bold]{seen}, {plan.place.scope}: {escape(str(plan.place.path))}")
        match plan.action:
            case "nothing":
                out.print("  [green]is set up[/green]")
            case "refuse":
                out.print(f"  [yellow]{escape(plan.said)}[/yellow]")
            case _:
                scope = " --user" if plan.place.scope == "user" and len(_scopes(rows, plan)) > 1 else ""
                would = f"'remembrancer setup {plan.client.name}{scope}' adds it"
                out.print(f"  {WOULD[plan.action]}: {would}")
    out.print("[dim]Nothing was written.[/dim]")


def _scopes(rows: Sequence[tuple[bool, Plan]], plan: Plan) -> set[str]:
    return {other.place.scope for _, other in rows if other.client is plan.client}


def _print_outcome(out: Console, outcome: Outcome) -> None:
    plan = outcome.plan
    where = f"{plan.client.title}: {escape(str(plan.place.path))}"
    if outcome.error is not None:
        out.print(f"[red]![/red] {where}: {escape(outcome.error)}")
        return
    colour = "yellow" if outcome.refused else "green"
    nothing = ", nothing to do" if plan.action == "nothing" else ""
    out.print(f"[{colour}]{'!' if outcome.refused else '✓'}[/{colour}] {where}: {escape(plan.said)}{nothing}")
    if outcome.backup is not None:
        out.print(f"  [dim]as it was before: {escape(str(outcome.backup))}[/dim]")
    if plan.difference:
        out.print(escape(plan.difference))
    if plan.paste:
        out.print("  Put this in by hand:")
        out.print(escape(plan.paste))


def _print_probe(out: Console, command: tuple[str, ...], probed: Probed) -> None:
    if probed.error is not None:
        out.print(f"[red]![/red] {escape(shlex.join(command))} does not work: {escape(probed.error)}")
        out.print("  'remembrancer doctor' looks for the reason")
        return
    out.print(
        f"[green]✓[/green] tried out: {escape(shlex.join(command))} answers after {probed.initialize_ms:.0f} ms "
        f"with nothing running, and lists {probed.tools} tools in {probed.tools_ms:.0f} ms"
    )


def _print_next(out: Console, done: Sequence[Outcome]) -> None:
    out.print("Next:")
    for client in dict.fromkeys(outcome.plan.client for outcome in done):
        out.print(f"  {client.title}: {client.restart}")
    if any(outcome.plan.place.scope == "project" for outcome in done):
        out.print("  The project's file names a path of this machine: keep it out of version control, or use --user")
    out.print("  then say to the assistant: remember that I prefer short answers")


def _outcome(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    return {
        "client": plan.client.name,
        "scope": plan.place.scope,
        "path": str(plan.place.path),
        "action": plan.action,
        "done": plan.after is not None and outcome.error is None,
        "said": outcome.error or plan.said,
        "backup": None if outcome.backup is None else str(outcome.backup),
        "difference": plan.difference or None,
        "paste": plan.paste or None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
