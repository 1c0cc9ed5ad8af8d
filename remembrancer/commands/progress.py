"""What `remembrancer up` shows: each process as it comes and goes, and how to connect a client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from remembrancer import __version__
from remembrancer.actors.launcher.lifecycle import Changed

FIRST_NEEDED: Final = frozenset({"gateway", "store"})
"""The processes without which a client is not served."""


class _PatientConsole(Console):
    def on_broken_pipe(self) -> None:
        self.quiet = True  # instead of leaving the process


class Progress:
    """Prints a line for each change of a process. `named`: the home came from REMEMBRANCER_HOME."""

    def __init__(self, home: Path, *, named: bool, console: Console | None = None) -> None:
        self._home = home
        self._named = named
        self._console = console or _PatientConsole(highlight=False, soft_wrap=True)
        self._awaited = set(FIRST_NEEDED)
        self._console.print(f"[bold]Remembrancer {__version__}[/bold], home {escape(str(home))}")

    def show(self, change: Changed) -> None:
        """Print what has become of a process. A terminal that was closed is no reason for the runtime to fall."""
        try:
            self._print(change)
        except OSError:
            self._console.quiet = True

    def _print(self, change: Changed) -> None:
        name, why = escape(change.name), escape(change.error or "")
        match change.state:
            case "ready":
                self._console.print(f"  [green]ready[/green]         {name} after {change.after_s:.1f} s")
                self._await(change.name)
            case "starting":
                self._console.print(f"  [dim]starting[/dim]      {name}")
            case "failed":
                self._console.print(f"  [red]failed[/red]        {name}: {why}")
            case "restarting" | "unresponsive":
                self._console.print(f"  [yellow]{change.state:<12}[/yellow]  {name}: {why}")
            case _:
                self._console.print(f"  [dim]{change.state:<12}[/dim]  {name}")

    def _await(self, name: str) -> None:
        if name not in self._awaited:
            return
        self._awaited.discard(name)
        if self._awaited:
            return
        self._console.print("Ready. Connect a client with the command [bold]remembrancer mcp[/bold]", end="")
        if self._named:
            self._console.print(f" and REMEMBRANCER_HOME={escape(str(self._home))} in its environment", end="")
        self._console.print(", for example:")
        setting = f"-e REMEMBRANCER_HOME={self._home} " if self._named else ""
        self._console.print(escape(f"  claude mcp add remembrancer {setting}-- remembrancer mcp"))
        self._console.print("'remembrancer status' shows how it is; Ctrl-C stops it.")
