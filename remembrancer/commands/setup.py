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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any, Final

import msgspec
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.clients import (
    CLAUDE_CODE,
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
from remembrancer.commands.runtime_client import ask, is_up, wait_down
from remembrancer.commands.terminal import Terminal
from remembrancer.protocol.control import AskDown
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

ALL: Final = "all-found"
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every client takes as a server's name."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROTOCOL: Final = "2025-11-25"
ANSWER_S: Final = 90.0
"""How long to wait for all answers of a check: a slow machine with a cold disk takes many seconds to give the
libraries, and that it is slow is no fault of the command."""
RETRY_S: Final = 0.2
STOP_S: Final = 10.0
STATES: Final[dict[Action, str]] = {
    "add": "not set up",
    "extend": "set up, without the variables of this environment",
    "replace": "has another entry of this name",
}


def main(argv: list[str]) -> int:
    """Write, print or remove the entry; without a client, say what is there."""
    parser = argparse.ArgumentParser(
        prog="remembrancer setup",
        description="Have an assistant's client start Remembrancer. Without a client: what is there, and what would be "
        "done. Everything else in a client's file stays as it is, and the state before is kept in <file>.bak.",
        epilog="exit status: 0 done (or nothing to do), 1 written and the command does not work, 2 wrong command line, "
        "8 a file was left as it is, and why",
    )
    names = [*(client.name for client in CLIENTS), ALL]
    parser.add_argument("client", nargs="?", choices=names, metavar="client", help=", ".join(names))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="DIR", help="the project whose file is written (default: this directory)")
    where.add_argument("--user", action="store_true", help="write the user's own file, for all projects")
    parser.add_argument("--hooks", action="store_true", help=f"have {CLAUDE_CODE.name} report its sessions, too")
    parser.add_argument("--print", action="store_true", help="print what the file should hold, and write nothing")
    parser.add_argument("--remove", action="store_true", help="take the entry out again")
    parser.add_argument("--force", action="store_true", help="replace (or remove) an entry that is not ours")
    parser.add_argument("--name", default="remembrancer", metavar="NAME", help="the entry's name (remembrancer)")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="a variable for the entry")
    parser.add_argument("--command", metavar="PATH", help="the remembrancer command to write, if not this one")
    parser.add_argument("--no-check", action="store_true", help="do not try the written command out")
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    return Setup(parser.parse_args(argv)).run()


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
    def wrote(self) -> bool:
        """Whether the file was changed."""
        return self.plan.after is not None and self.error is None


class Probed(msgspec.Struct, frozen=True):
    """What came of trying a command. `tools_ms`, until it has listed its tools, and `ready_ms`, until a tool answers,
    count from its start; `error` says why it did not work."""

    ok: bool
    tools_ms: float | None = None
    ready_ms: float | None = None
    tools: int | None = None
    error: str | None = None


class Setup:
    """What was asked for, and what belongs into the files."""

    def __init__(self, asked: argparse.Namespace) -> None:
        project = Path(asked.project or ".")
        if not project.is_dir():
            raise InvalidInput(f"{project} is not a directory")
        self.asked = asked
        self.around = Surroundings.here(os.environ, project)
        self.command = _command(asked)
        self.environ = _environ(asked)
        self.out = Terminal()

    def run(self) -> int:
        """Do it, and say what was done. Returns the exit status."""
        asked = self.asked
        if asked.client is None:
            return self._overview()
        targets = self._targets()
        if asked.print:
            return self._print_documents(targets)
        plans = [self._plan(client, place) for client, place in targets]
        for client, place in targets:
            if client is CLAUDE_CODE and (asked.hooks or asked.remove):
                plan = self._plan_hooks(hooks_place(self.around, place.scope))
                # Whoever removes the entry would be left with hooks of no use.
                plans += [plan] if asked.hooks or plan.action != "nothing" else []
        outcomes = [_carry_out(plan) for plan in plans]
        works = not asked.remove and not all(outcome.refused for outcome in outcomes)
        probed = probe(self.command, self.environ) if works and not asked.no_check else None
        if asked.json:
            print(json.dumps(self._as_json(outcomes, probed)))
        else:
            self._print_outcomes(outcomes, probed)
        if any(outcome.refused for outcome in outcomes):
            return exit_codes.REFUSED
        return exit_codes.FAILED if probed is not None and probed.error else exit_codes.OK

    def _targets(self) -> list[tuple[Client, Place]]:
        """The files that are meant: the project's unless the user's are asked for, or are the only ones.

        Raises:
            InvalidInput: the client has no file of that scope, or no hooks, or none was found.
        """
        asked = self.asked
        if asked.hooks and asked.client not in (CLAUDE_CODE.name, ALL):
            raise InvalidInput(f"{asked.client} has no hooks: they are for {CLAUDE_CODE.name}")
        if asked.client == ALL:
            clients = [client for client in CLIENTS if client.is_found(self.around)]
        else:
            clients = [client_named(asked.client)]
        if not clients:
            raise InvalidInput("no client was found on this machine: name one (see 'remembrancer setup --help')")
        found = []
        for client in clients:
            place = None if asked.user else client.place(self.around, "project")
            if place is None and not asked.project:
                place = client.place(self.around, "user")
            if place is not None:
                found.append((client, place))
            elif asked.client != ALL:
                raise InvalidInput(f"{client.title} has no configuration for a project: leave out --project")
        return found

    def _plan(self, client: Client, place: Place) -> Plan:
        wanted, name, force = make_entry(client, self.command, self.environ), self.asked.name, self.asked.force

        def plan(text: str | None) -> Plan:
            if self.asked.remove:
                return plan_removal(client, place, text, name, force=force)
            return plan_entry(client, place, text, name, wanted, force=force)

        return self._planned(client, place, plan, document(place.key, {name: wanted}))

    def _plan_hooks(self, place: Place) -> Plan:
        wanted = make_groups(self.command[:-1], self.environ)

        def plan(text: str | None) -> Plan:
            if self.asked.remove:
                return plan_hooks_removal(CLAUDE_CODE, place, text)
            return plan_hooks(CLAUDE_CODE, place, text, wanted)

        return self._planned(CLAUDE_CODE, place, plan, hooks_document(wanted))

    def _planned(self, client: Client, place: Place, plan: Callable[[str | None], Plan], paste: str) -> Plan:
        try:
            return plan(read_text(place.path))
        except FileRefused as error:
            return refused_plan(client, place, None, error, "" if self.asked.remove else paste)

    def _print_documents(self, targets: list[tuple[Client, Place]]) -> int:
        for client, place in targets:
            print(f"{client.title}: {place.path}", file=sys.stderr)
            print(document(place.key, {self.asked.name: make_entry(client, self.command, self.environ)}))
            if self.asked.hooks and client is CLAUDE_CODE:
                print(f"{client.title}: {hooks_place(self.around, place.scope).path}", file=sys.stderr)
                print(hooks_document(make_groups(self.command[:-1], self.environ)))
        return exit_codes.OK

    def _overview(self) -> int:
        """Say which clients there are, whether each is set up, and how it would be."""
        rows = [
            (client, place, self._plan(client, place))
            for client in CLIENTS
            for place in client.places(self.around)
            if place.scope == "user" or not self.asked.user
        ]
        if self.asked.json:
            said = self._as_json([Outcome(plan) for *_, plan in rows], None)
            for each, (client, *_) in zip(said["clients"], rows, strict=True):
                each |= {"found": client.is_found(self.around), "done": False}
            print(json.dumps(said))
            return exit_codes.OK
        self.out.print(f"A client is to start: [bold]{escape(shlex.join(self.command))}[/bold]")
        if is_temporary(Path(self.command[0])):
            self.out.print(
                "  [yellow]that will not last: install it for good, or name a lasting one with --command[/yellow]"
            )
        for client, place, plan in rows:
            seen = "" if client.is_found(self.around) else " [dim](not found on this machine)[/dim]"
            self.out.print(f"[bold]{client.title}[/bold]{seen}, {place.scope}: {escape(str(place.path))}")
            if plan.action == "nothing":
                self.out.print("  [green]is set up[/green]")
            elif plan.action == "refuse":
                self.out.print(f"  [yellow]{escape(plan.said)}[/yellow]")
            else:
                scope = " --user" if place.scope == "user" and "project" in client.files and not self.asked.user else ""
                self.out.print(f"  {STATES[plan.action]}: 'remembrancer setup {client.name}{scope}' adds it")
        self.out.print("[dim]Nothing was written.[/dim]")
        return exit_codes.OK

    def _as_json(self, outcomes: list[Outcome], probed: Probed | None) -> dict[str, Any]:
        return {
            "command": list(self.command),
            "clients": [
                {
                    "client": outcome.plan.client.name,
                    "scope": outcome.plan.place.scope,
                    "path": str(outcome.plan.place.path),
                    "action": outcome.plan.action,
                    "done": outcome.wrote,
                    "said": outcome.error or outcome.plan.said,
                    "backup": None if outcome.backup is None else str(outcome.backup),
                    "difference": outcome.plan.difference or None,
                    "paste": outcome.plan.paste or None,
                }
                for outcome in outcomes
            ],
            "check": msgspec.to_builtins(probed),
        }

    def _print_outcomes(self, outcomes: list[Outcome], probed: Probed | None) -> None:
        """Say what was done, whether the command works, and what to do next."""
        say = self.out.print
        for outcome in outcomes:
            plan = outcome.plan
            mark = "[red]!" if outcome.error else "[yellow]!" if outcome.refused else "[green]✓"
            nothing = ", nothing to do" if plan.action == "nothing" else ""
            said = escape(outcome.error or plan.said + nothing)
            say(f"{mark}[/] {plan.client.title}: {escape(str(plan.place.path))}: {said}")
            if outcome.backup is not None:
                say(f"  [dim]as it was before: {escape(str(outcome.backup))}[/dim]")
            if plan.difference:
                say(escape(plan.difference))
            if plan.paste:
                say(f"  Put this in by hand:\n{escape(plan.paste)}")
        wrote, command = any(outcome.wrote for outcome in outcomes), escape(shlex.join(self.command))
        if self.asked.remove:
            if wrote:
                say("What was remembered stays where it is.")
            return
        home = self.environ.get("REMEMBRANCER_HOME")
        if wrote and home and not any(each.startswith("REMEMBRANCER_HOME=") for each in self.asked.env):
            say(f"The entry names the home {escape(home)}, since REMEMBRANCER_HOME is set here.")
        if probed is not None and probed.error:
            say(f"[red]![/red] {command} does not work: {escape(probed.error)}")
            say("  'remembrancer doctor' looks for the reason")
            return
        if probed is not None:
            say(
                f"[green]✓[/green] tried out with nothing running: {command} lists {probed.tools} tools after "
                f"{probed.tools_ms:.0f} ms, and answers calls after {probed.ready_ms:.0f} ms"
            )
        if not wrote:
            return
        say("Next:")
        done = [outcome.plan for outcome in outcomes if not outcome.refused]
        for title, restart in dict.fromkeys((plan.client.title, plan.client.restart) for plan in done):
            say(f"  {title}: {restart}")
        if any(plan.client is CLAUDE_CODE and plan.place.scope == "project" for plan in done):
            say(
                "  Claude Code asks at its start whether to use the servers of this project: approve remembrancer there"
            )
        if any(plan.place.scope == "project" for plan in done):
            say("  The project's file names a path of this machine: keep it out of version control, or use --user")
        say("  then say to the assistant: remember that I prefer short answers")


def _command(asked: argparse.Namespace) -> tuple[str, ...]:
    if not SERVER_NAME.fullmatch(asked.name):
        raise InvalidInput(f"a name has letters, digits, - and _, at most 64 of them: {asked.name[:80]!r} is none")
    if asked.command is not None:
        named = Path(asked.command).expanduser()
        if not named.is_absolute() or not os.access(named, os.X_OK) or named.is_dir():
            raise InvalidInput(f"--command wants the absolute path of a command, and {named} is none")
        return (str(named), "mcp")
    command = own_command(sys.argv[0], sys.executable, os.environ)
    if is_temporary(Path(command[0])) and asked.client is not None and not asked.remove:
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


def _carry_out(plan: Plan) -> Outcome:
    if plan.after is None:
        return Outcome(plan)
    try:
        place, is_removal = plan.place, plan.action == "remove"
        return Outcome(
            plan, replace_text(place.path, plan.before, plan.after, scope=place.scope, is_removal=is_removal)
        )
    except FileRefused as error:
        return Outcome(plan, error=error.reason)


# --- the check of what was written ---


def probe(command: tuple[str, ...], environ: Mapping[str, str]) -> Probed:
    """Start `command` as a client would, in a scratch home and without a model; ask for its tools and call one."""
    home = Path(tempfile.mkdtemp(prefix="rmb-setup-", dir="/tmp"))
    scratch = {"REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_IDLE_TIMEOUT_S": "30", "REMEMBRANCER_HOME": str(home)}
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
                tools = _ask(process, 2, "tools/list", {})["tools"]
                listed = time.perf_counter()
                _ask(process, 3, "tools/call", {"name": "get_memory_status", "arguments": {}})
                answered = time.perf_counter()
                tools_ms, ready_ms = (round((moment - began) * 1000, 1) for moment in (listed, answered))
                return Probed(True, tools_ms, ready_ms, len(tools))
            except (OSError, ValueError, KeyError, TypeError) as error:
                process.kill()
                stderr = process.communicate()[1].decode(errors="replace").strip()[-300:]
                return Probed(False, error=f"{error or type(error).__name__}{f' ({stderr})' if stderr else ''}")
            finally:
                watchdog.cancel()
    except OSError as error:
        return Probed(False, error=f"{command[0]} cannot be started: {error.strerror or error}")
    finally:
        _stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, which is asked again while the runtime is still starting.

    Raises:
        ValueError: it was answered with an error, or with no JSON.
        OSError: the process ended.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    while line := process.stdout.readline():
        answer = json.loads(line)
        if answer.get("id") == number and "method" not in answer:
            if "error" in answer and (answer["error"].get("data") or {}).get("retry_possible"):
                time.sleep(RETRY_S)  # when it is up, nobody says so to a client that waits for nothing
                return _ask(process, number, method, params)
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
    wait_down(paths, STOP_S)
