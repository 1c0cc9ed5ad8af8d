"""`remembrancer setup`: have a client start Remembrancer, by an entry in its configuration."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.clients import (
    CLIENTS,
    Action,
    Client,
    FileRefused,
    Place,
    Plan,
    Surroundings,
    client_named,
    document,
    hooks_document,
    hooks_place,
    is_temporary,
    make_entry,
    make_groups,
    own_command,
    plan_entry,
    plan_hooks,
    plan_hooks_removal,
    plan_removal,
    read_text,
    refused_plan,
    replace_text,
)
from remembrancer.commands.runtime_client import ask, is_up
from remembrancer.protocol.control import AskDown
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

ALL: Final = "all-found"
WITH_HOOKS: Final = "claude-code"
"""The client that has hooks."""
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every client takes as a server's name."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROTOCOL: Final = "2025-11-25"
ANSWER_S: Final = 20.0
"""How long to wait for all answers of a check: a cold disk may take seconds to give the libraries."""
STOP_S: Final = 10.0
WOULD: Final[dict[Action, str]] = {
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


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of trying a command. `initialize_ms` counts from its start; `error` says why it did not work."""

    initialize_ms: float | None = None
    tools: int | None = None
    tools_ms: float | None = None
    error: str | None = None


def main(argv: list[str]) -> int:
    """Write, print or remove the entry; without a client, say what is there."""
    asked = _parser().parse_args(argv)
    project = Path(asked.project or ".")
    if not project.is_dir():
        raise InvalidInput(f"{project} is not a directory")
    around = Surroundings.here(os.environ, project)
    command, environ = _command(asked), _environ(asked)
    if asked.client is None:
        return _overview(asked, around, command, environ)
    targets = _targets(asked, around)
    if asked.print:
        return _print(asked, targets, around, command, environ)
    plans = [_plan(asked, client, place, command, environ) for client, place in targets]
    plans += [
        plan
        for client, place in targets
        if client.name == WITH_HOOKS and (asked.hooks or asked.remove)
        for plan in [_hook_plan(asked, client, hooks_place(around, place.scope), command, environ)]
        if asked.hooks or plan.action != "nothing"  # whoever removes the entry would be left with hooks of no use
    ]
    outcomes = [_carry_out(plan) for plan in plans]
    wrote = any(outcome.plan.after is not None and outcome.error is None for outcome in outcomes)
    wants_check = not asked.remove and not asked.no_check and any(outcome.works for outcome in outcomes)
    probed = probe(command, environ) if wants_check else None
    if asked.json:
        print(json.dumps(as_json(command, outcomes, probed)))
    else:
        print_outcomes(command, outcomes, probed, removing=asked.remove, wrote=wrote, named=_named_home(asked))
    if any(outcome.refused for outcome in outcomes):
        return exit_codes.REFUSED
    return exit_codes.FAILED if probed is not None and probed.error else exit_codes.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="remembrancer setup",
        description="Have an assistant's client start Remembrancer. Without a client: what is there, and what would be "
        "done. Everything else in a client's file stays as it is, and the state before is kept in <file>.bak.",
        epilog="exit status: 0 done (or nothing to do), 1 written and the command does not work, 2 wrong command line, "
        "8 a file was left as it is, and why",
    )
    names = [client.name for client in CLIENTS]
    parser.add_argument("client", nargs="?", choices=[*names, ALL], metavar="client", help=", ".join([*names, ALL]))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="DIR", help="the project whose file is written (default: this directory)")
    where.add_argument("--user", action="store_true", help="write the user's own file, for all projects")
    parser.add_argument("--hooks", action="store_true", help=f"have {WITH_HOOKS} report its sessions, too")
    parser.add_argument("--print", action="store_true", help="print what the file should hold, and write nothing")
    parser.add_argument("--remove", action="store_true", help="take the entry out again")
    parser.add_argument("--force", action="store_true", help="replace (or remove) an entry that is not ours")
    parser.add_argument("--name", default="remembrancer", metavar="NAME", help="the entry's name (remembrancer)")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="a variable for the entry")
    parser.add_argument("--command", metavar="PATH", help="the remembrancer command to write, if not this one")
    parser.add_argument("--no-check", action="store_true", help="do not try the written command out")
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    return parser


def _command(asked: argparse.Namespace) -> tuple[str, ...]:
    if not SERVER_NAME.fullmatch(asked.name):
        raise InvalidInput(f"a name has letters, digits, - and _, at most 64 of them: {asked.name[:80]!r} is none")
    if asked.command is not None:
        named = Path(asked.command).expanduser()
        if not named.is_absolute() or not os.access(named, os.X_OK) or named.is_dir():
            raise InvalidInput(f"--command wants the absolute path of a command, and {named} is none")
        return (str(named), "mcp")
    command = own_command(sys.argv[0], sys.executable, os.environ)
    if is_temporary(Path(command[0])) and not asked.remove:
        raise InvalidInput(
            f"this command lies in {Path(command[0]).parent}, which will not last: install it for good (pipx install "
            "or uv tool install), or name a lasting command with --command PATH"
        )
    return command


def _environ(asked: argparse.Namespace) -> dict[str, str]:
    """The entry's variables: those asked for, and the home when this command has one of its own."""
    home = os.environ.get("REMEMBRANCER_HOME")
    environ = {"REMEMBRANCER_HOME": str(Path(home).expanduser().absolute())} if home else {}
    for each in asked.env:
        name, separator, value = each.partition("=")
        if not separator or not VARIABLE.fullmatch(name):
            raise InvalidInput(f"--env wants KEY=VALUE, and {name[:60]!r} is not that")
        environ[name] = value
    return environ


def _named_home(asked: argparse.Namespace) -> str | None:
    """The home that got into the entry without having been asked for."""
    if any(each.startswith("REMEMBRANCER_HOME=") for each in asked.env):
        return None
    return os.environ.get("REMEMBRANCER_HOME") or None


def _targets(asked: argparse.Namespace, around: Surroundings) -> list[tuple[Client, Place]]:
    """The files that are meant.

    Raises:
        InvalidInput: the client has no file of that scope, or no hooks, or none was found.
    """
    if asked.hooks and asked.client not in (WITH_HOOKS, ALL):
        raise InvalidInput(f"{asked.client} has no hooks: they are for {WITH_HOOKS}")
    clients = [client_named(asked.client)] if asked.client != ALL else [c for c in CLIENTS if c.is_found(around)]
    if not clients:
        raise InvalidInput("no client was found on this machine: name one (see 'remembrancer setup --help')")
    found = []
    for client in clients:
        place = _place(client, asked, around)
        if place is not None:
            found.append((client, place))
        elif asked.client != ALL:
            raise InvalidInput(f"{client.title} has no configuration for a project: leave out --project")
    return found


def _place(client: Client, asked: argparse.Namespace, around: Surroundings) -> Place | None:
    """The project's file unless the user's is asked for; the only one of a client that has one, unless a project is."""
    if asked.user:
        return client.place(around, "user")
    place = client.place(around, "project")
    return place if place is not None or asked.project else client.place(around, "user")


def _plan(
    asked: argparse.Namespace, client: Client, place: Place, command: tuple[str, ...], environ: dict[str, str]
) -> Plan:
    wanted = make_entry(client, command, environ)
    try:
        text = read_text(place.path)
    except FileRefused as error:
        return refused_plan(
            client, place, None, error, "" if asked.remove else document(place.key, {asked.name: wanted})
        )
    if asked.remove:
        return plan_removal(client, place, text, asked.name, force=asked.force)
    return plan_entry(client, place, text, asked.name, wanted, force=asked.force)


def _hook_plan(
    asked: argparse.Namespace, client: Client, place: Place, command: tuple[str, ...], environ: dict[str, str]
) -> Plan:
    wanted = make_groups(command[:-1], environ)
    try:
        text = read_text(place.path)
    except FileRefused as error:
        return refused_plan(client, place, None, error, "" if asked.remove else hooks_document(wanted))
    return plan_hooks_removal(client, place, text) if asked.remove else plan_hooks(client, place, text, wanted)


def _carry_out(plan: Plan) -> Outcome:
    if plan.after is None:
        return Outcome(plan)
    try:
        backup = replace_text(plan.place.path, plan.before, plan.after, scope=plan.place.scope)
    except FileRefused as error:
        return Outcome(plan, error=error.reason)
    return Outcome(plan, backup=backup)


def _print(
    asked: argparse.Namespace,
    targets: list[tuple[Client, Place]],
    around: Surroundings,
    command: tuple[str, ...],
    environ: dict[str, str],
) -> int:
    for client, place in targets:
        print(f"{client.title}: {place.path}", file=sys.stderr)
        print(document(place.key, {asked.name: make_entry(client, command, environ)}))
        if asked.hooks and client.name == WITH_HOOKS:
            print(f"{client.title}: {hooks_place(around, place.scope).path}", file=sys.stderr)
            print(hooks_document(make_groups(command[:-1], environ)))
    return exit_codes.OK


def _overview(
    asked: argparse.Namespace, around: Surroundings, command: tuple[str, ...], environ: dict[str, str]
) -> int:
    rows = [
        (client.is_found(around), _plan(asked, client, place, command, environ))
        for client in CLIENTS
        for place in client.places(around)
        if place.scope == "user" or not asked.user
    ]
    if asked.json:
        outcomes = [Outcome(plan) for _, plan in rows]
        found = {client.name: client.is_found(around) for client in CLIENTS}
        said: dict[str, Any] = as_json(command, outcomes, None)
        for each in said["clients"]:
            each["found"] = found[each["client"]]
            each["done"] = False
        print(json.dumps(said))
    else:
        print_overview(command, rows)
    return exit_codes.OK


# --- the check of what was written ---


def probe(command: tuple[str, ...], environ: Mapping[str, str]) -> Probed:
    """Start `command` as a client would, in a scratch home and without a model, and ask for its tools."""
    home = Path(tempfile.mkdtemp(prefix="rmb-setup-", dir="/tmp"))
    scratch = {"REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_IDLE_TIMEOUT_S": "5", "REMEMBRANCER_HOME": str(home)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}
    client = {"name": "remembrancer setup", "version": "1"}
    initialize = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
    began = time.perf_counter()
    try:
        with subprocess.Popen(
            command,
            env={**inherited, **environ, **scratch},
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            watchdog = Timer(ANSWER_S, process.kill)
            watchdog.start()
            try:
                _ask(process, 1, "initialize", initialize)
                initialized = time.perf_counter()
                tools = _ask(process, 2, "tools/list", {})["tools"]
                return Probed((initialized - began) * 1000, len(tools), (time.perf_counter() - initialized) * 1000)
            except (OSError, ValueError, KeyError, TypeError) as error:
                process.kill()
                _, said = process.communicate()
                told = said.decode(errors="replace").strip()[-300:]
                return Probed(error=f"{error or type(error).__name__}{f' ({told})' if told else ''}")
            finally:
                watchdog.cancel()
    except OSError as error:
        return Probed(error=f"{command[0]} cannot be started: {error.strerror or error}")
    finally:
        _stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request. Raises ValueError (an error, or no JSON) or an OSError when the process ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    while line := process.stdout.readline():
        answer = json.loads(line)
        if answer.get("id") == number and "method" not in answer:
            if "error" in answer:
                raise ValueError(f"{method} was answered with an error: {answer['error'].get('message')}")
            result: dict[str, Any] = answer["result"]
            return result
    raise ConnectionError(f"it ended, or did not answer within {ANSWER_S:.0f} s")


def _stop(home: Path) -> None:
    """Stop the runtime that the command started in the scratch home, and wait until it is gone."""
    paths = RuntimePaths(home)
    if not is_up(paths):
        return
    with suppress(RemembrancerError):  # gone already, or it ends by itself: no session is left
        ask(paths, AskDown("remembrancer setup has tried it out"))
    give_up_at = time.monotonic() + STOP_S
    while is_up(paths) and time.monotonic() < give_up_at:
        time.sleep(0.02)  # flock has no event to wait for


# --- what is said ---


def as_json(command: tuple[str, ...], outcomes: Sequence[Outcome], probed: Probed | None) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "command": list(command),
        "clients": [_outcome(outcome) for outcome in outcomes],
        "check": None
        if probed is None
        else {
            "ok": probed.error is None,
            "initialize_ms": probed.initialize_ms and round(probed.initialize_ms, 1),
            "tools_ms": probed.tools_ms and round(probed.tools_ms, 1),
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
    out = Console(highlight=False, soft_wrap=True)
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
    out = Console(highlight=False, soft_wrap=True)
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
                scopes = {other.place.scope for _, other in rows if other.client is plan.client}
                scope = " --user" if plan.place.scope == "user" and len(scopes) > 1 else ""
                would = f"'remembrancer setup {plan.client.name}{scope}' adds it"
                out.print(f"  {WOULD[plan.action]}: {would}")
    out.print("[dim]Nothing was written.[/dim]")


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
