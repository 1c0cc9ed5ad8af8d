"""`remembrancer setup`: adds an entry that starts Remembrancer to a client's configuration."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from threading import Timer
from typing import Any, Final

import click
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.clients import (
    COMMAND,
    Client,
    ClientEnvironment,
    ClientFile,
    ClientPart,
    ClientScope,
    FileRefused,
    client_named,
    clients,
    merge,
    our_entries,
    own_command,
    read_text,
    write_text,
)
from remembrancer.commands.config import write_setting
from remembrancer.commands.gateway_client import PROTOCOL, ask_process
from remembrancer.commands.report import Line, Report, argument, command, flag
from remembrancer.commands.runtime_client import end_runtime
from remembrancer.commands.terminal import styled, unwrapped
from remembrancer.config.home import locate
from remembrancer.config.reading import read_configuration
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.toolsets.files.workspace_files import native_files

ALL: Final = "all-found"
NAMES: Final = (*(client.name for client in clients()), ALL)
PLUGIN: Final = Path(__file__).parents[1] / "claude_plugin"
ANSWER_S: Final = 90.0
"""The time limit for an answer. Loading the libraries from a cold disk can take many seconds."""
STOP_S: Final = 10.0
EXTRAS: Final[dict[ClientPart, str]] = {"hooks": "hooks", "rules": "instruction file"}
SELF: Final = "remembrancer setup: "
HOME: Final = "REMEMBRANCER_HOME"


@command(
    argument("client", required=False, type=click.Choice(NAMES), metavar="[CLIENT]", help=", ".join(NAMES)),
    flag(
        "--project",
        "for_project",
        help="Write the file of this directory's project instead of the user's. The file names the command without a "
        "path, so everyone who shares the project needs the command on the PATH.",
    ),
    flag("--hooks", help="Also have the client report its sessions."),
    flag("--rules", help="Also add a few lines to the client's instruction file."),
    flag("--print", "prints", help="Print what would be written."),
    flag("--remove", help="Remove everything that setup added, for you and in this directory's project."),
    flag("--no-check", help="Do not test the written command."),
    flag(
        "--plugin-path",
        help="Print the folder of the plugin for Claude Code, which is also a marketplace: run claude plugin "
        'marketplace add "$(remembrancer setup --plugin-path)", then claude plugin install remembrancer@remembrancer.',
    ),
)
def setup(
    client: str | None, for_project: bool, prints: bool, remove: bool, no_check: bool, plugin_path: bool, **extras: bool
) -> Report:
    """Connect an assistant's client to Remembrancer, for all of your projects. Without a client, show the clients that
    were found. Nothing else in a client's file is changed. Exit status 1: the entry was written, but its command does
    not work; 8: a file was not changed, and the message says why."""
    if plugin_path:
        return Report({"path": str(PLUGIN)}, str(PLUGIN))
    around = ClientEnvironment.here(os.environ, Path())
    scope: ClientScope = "project" if for_project else "user"
    # A project's file must not contain paths specific to this machine.
    line = (COMMAND, "mcp") if for_project else own_command(sys.argv[0], sys.executable, os.environ)
    if client is None:
        return _overview(around, scope, line)
    chosen = [known for known in clients() if known.name == client or (client == ALL and known.is_found(around))]
    if not chosen:
        raise InvalidInput("no client was found on this machine; name one (see 'remembrancer setup --help')")
    if all(scope not in target.files for target in chosen):
        raise InvalidInput(f"{chosen[0].title} has no per-project configuration; leave out --project")
    edits: list[tuple[Client, ClientFile, tuple[str, ...] | None]] = []
    notes: list[str] = []
    scopes: tuple[ClientScope, ...] = ("user", "project") if remove and not for_project else (scope,)
    parts: list[ClientPart] = ["entry", *(part for part in EXTRAS if remove or extras[part])]
    for known, where, part in product(chosen, scopes, parts):
        if place := known.place(around, where, part):
            edits.append((known, place, None if remove else line))
        elif part in EXTRAS and not remove:
            whose = "this project" if for_project else "all projects"
            notes.append(
                f"{SELF}{known.title} has no {EXTRAS[part]} that setup can write for {whose}; see docs/clients.md"
            )
    if prints:
        about = [
            (known.name, str(place.path), _merged("", known, place, start).rstrip()) for known, place, start in edits
        ]
        documents = [{"client": name, "path": path, "text": text} for name, path, text in about]
        notes += (f"{known.title}: {place.path}" for known, place, _ in edits)
        return Report({"documents": documents}, [unwrapped(document["text"]) for document in documents], notes=notes)
    notes += [
        f"{SELF}{known.title} was not found on this machine, but is set up for later"
        for known in chosen
        if not remove and not known.is_found(around)
    ]
    outcomes = [outcome for edit in edits if (outcome := _carry_out(*edit))["action"] != "nothing" or not remove]
    facts: dict[str, Any] = {"command": line, "clients": outcomes, "answered_after_s": None, "error": None}
    lines: list[Line] = []
    for outcome in outcomes:
        mark = "[yellow]![/]" if outcome["action"] == "refuse" else "[green]✓[/]"
        change = f"{client_named(outcome['client']).title}: {outcome['path']}: {outcome['said']}"
        lines.append(styled(f"{mark} {escape(change)}"))
        lines += [f"  Add this by hand:\n{outcome['paste']}"] if outcome["paste"] else []
    actions = {outcome["action"] for outcome in outcomes}
    status = exit_codes.REFUSED if "refuse" in actions else exit_codes.OK
    if remove:
        lines.append("Your memories are kept." if outcomes else "Its files have no entry for Remembrancer.")
    elif actions - {"refuse"}:
        took_s, fault = (0.0, "") if no_check else probe(line)
        facts |= {"answered_after_s": took_s or None, "error": fault or None}
        problems = read_configuration(os.environ, locate(os.environ).file).problems  # the test used its own home
        notes += [f"{SELF}no runtime can start until this is fixed: {problem}" for problem in problems]
        status = status or (exit_codes.FAILED if fault else exit_codes.CONFIGURATION if problems else exit_codes.OK)
        command_line = escape(shlex.join(line))
        if fault:
            lines.append(styled(f"[red]![/red] {command_line} does not work: {escape(fault)}"))
            lines.append("  run 'remembrancer doctor' to find the reason")
        elif took_s:
            lines.append(styled(f"[green]✓[/green] tested: {command_line} answers after {took_s:.1f} s"))
        added = [outcome["client"] for outcome in outcomes if outcome["action"] == "add"]
        if added and not fault:
            lines += _next_steps([*map(client_named, dict.fromkeys(added))], scope, with_hooks=extras["hooks"])
        lines += _offer_native_memories()
    return Report(facts, lines, status, notes)


def _merged(text: str, client: Client, place: ClientFile, line: Sequence[str] | None) -> str:
    home = os.environ.get(HOME) if place.scope == "user" else None
    return merge(client, place, text, line, {HOME: str(Path(home).expanduser().absolute())} if home else {})


def _carry_out(client: Client, place: ClientFile, line: Sequence[str] | None) -> dict[str, str]:
    """Returns the outcome as `--json` prints it; `paste` is the content to add by hand after a refusal."""
    paste, what = "", "instructions" if place.part == "rules" else place.part
    action, said = ("remove", f"{what} removed") if line is None else ("add", f"{what} added")
    try:
        before = read_text(place.path)
        after = _merged(before, client, place, line)
        if after == before:
            action, said = "nothing", f"{what}: nothing to do"
        else:
            write_text(place, after)
    except FileRefused as error:
        action, said, paste = "refuse", f"unchanged: {error}", _merged("", client, place, line).rstrip()
    about = {"client": client.name, "scope": place.scope, "path": str(place.path)}
    return {**about, "action": action, "said": said, "paste": paste}


def _overview(around: ClientEnvironment, scope: ClientScope, line: tuple[str, ...]) -> Report:
    rows: list[dict[str, Any]] = []
    lines: list[Line] = [styled(f"Clients start: [bold]{escape(shlex.join(line))}[/bold]")]
    for client in clients():
        if (place := client.place(around, scope)) is None:
            continue
        try:
            state = "set up" if our_entries(client, place, around) else "not set up"
        except FileRefused as error:
            state = str(error)
        row = {"client": client.name, "scope": scope, "path": str(place.path), "found": client.is_found(around)}
        rows.append(row | {"state": state})
        if row["found"] or state == "set up":
            lines.append(styled(f"[bold]{client.title}[/bold], {escape(f'{place.path}: {state}')}"))
    lines.append("Nothing was written. Run 'remembrancer setup CLIENT' to connect a client.")
    others = [row["client"] for row in rows if not row["found"]]
    lines.append(styled(f"[dim]Not found on this machine, but can be set up: {', '.join(others)}[/dim]"))
    return Report({"command": line, "clients": rows}, lines)


def _next_steps(done: Sequence[Client], scope: ClientScope, *, with_hooks: bool) -> list[Line]:
    lines: list[Line] = ["Next:", *(f"  {client.title}: {client.restart}" for client in done)]
    if hooked := [client.name for client in done if scope in client.hooks and not with_hooks]:
        again = f"remembrancer setup {hooked[0]} --hooks{' --project' if scope == 'project' else ''}"
        lines.append(f"  to get memories with the first prompt: {again} (docs/hooks.md)")
    if scope == "project":
        lines.append("  The client may ask whether to trust this project: approve remembrancer there")
    return [*lines, "  then tell the assistant: remember that I prefer short answers"]


def _offer_native_memories() -> list[Line]:
    home = locate(os.environ)
    folders = native_files()
    if not folders or read_configuration(os.environ, home.file).settings.native_memories:
        return []
    files = ", ".join(f"{client} {number}" for client, number in folders.items())
    question = f"Your assistants keep memory files of their own ({files}). Should searches read them, too?"
    if not sys.stdin.isatty():
        return [f"{question} 'remembrancer config --set native_memories=true'"]
    return [write_setting(home, "native_memories=true")] if click.confirm(question, err=True) else []


def probe(command: tuple[str, ...]) -> tuple[float, str]:
    """Start `command` in a scratch home without a model. Returns the seconds until a tool answers, or an error text."""
    home = Path(tempfile.mkdtemp(prefix="rmb-setup-", dir="/tmp"))
    scratch = {"REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_IDLE_TIMEOUT_S": "30", "REMEMBRANCER_HOME": str(home)}
    scratch["REMEMBRANCER_BRIDGE_BUDGET_S"] = str(ANSWER_S)  # the bridge waits for the runtime
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}
    client = {"name": "remembrancer setup", "version": "1"}
    initialize = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
    began = time.perf_counter()
    try:
        with subprocess.Popen(
            command,
            env={**inherited, **scratch},
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            watchdog = Timer(ANSWER_S, process.kill)
            watchdog.start()
            try:
                ask_process(process, 1, "initialize", initialize)
                ask_process(process, 2, "tools/call", {"name": "get_memory_status", "arguments": {}})
                return time.perf_counter() - began, ""
            except (OSError, ValueError, KeyError, TypeError) as error:
                process.kill()
                stderr = process.communicate()[1].decode(errors="replace").strip()[-300:]
                return 0.0, f"{error or type(error).__name__}{f' ({stderr})' if stderr else ''}"
            finally:
                watchdog.cancel()
    except OSError as error:
        return 0.0, f"{command[0]} cannot be started: {error.strerror or error}"
    finally:
        end_runtime(RuntimePaths(home), STOP_S)
        shutil.rmtree(home, ignore_errors=True)
