"""`remembrancer setup`: adds an entry to a client's configuration that starts Remembrancer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any, Final, Literal, NamedTuple

import click
import msgspec
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.clients import (
    COMMAND,
    Client,
    ClientEnvironment,
    ClientFile,
    ClientScope,
    FileRefused,
    client_named,
    clients,
    make_entry,
    make_groups,
    merge_entry,
    merge_hooks,
    merge_rules,
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
"""The time to wait for all answers of the check. Loading the libraries from a cold disk can take many seconds, which is
no fault of the command."""
STOP_S: Final = 10.0
EXTRAS: Final = {"hooks": "hooks", "rules": "instruction file"}


@command(
    argument("client", required=False, type=click.Choice(NAMES), metavar="[CLIENT]", help=", ".join(NAMES)),
    flag(
        "--project",
        "for_project",
        help="Write the file of this directory's project instead of the user's. It names the command without a path, "
        "so everyone who shares the project needs it on the PATH.",
    ),
    flag("--hooks", help="Also have the client report its sessions."),
    flag("--rules", help="Also add a few lines to its instruction file."),
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
    # A project's file gets no path of this machine.
    line = (COMMAND, "mcp") if for_project else own_command(sys.argv[0], sys.executable, os.environ)
    if client is None:
        return _overview(around, scope, line)
    chosen = [known for known in clients() if known.name == client or (client == ALL and known.is_found(around))]
    if not chosen:
        raise InvalidInput("no client was found on this machine: name one (see 'remembrancer setup --help')")
    if all(scope not in target.files for target in chosen):
        raise InvalidInput(f"{chosen[0].title} has no configuration for a project: leave out --project")
    notes = []
    if remove:
        scopes: tuple[ClientScope, ...] = ("project",) if for_project else ("user", "project")
        edits = [edit for target in chosen for place in scopes for edit in _edits(target, around, place, None, EXTRAS)]
    else:
        wanted = [what for what in EXTRAS if extras[what]]
        edits = [edit for target in chosen for edit in _edits(target, around, scope, line, wanted)]
        whose = "this project" if for_project else "all projects"
        wants = [(known, part) for known in chosen for part in wanted]
        lacking = [(known.title, EXTRAS[part]) for known, part in wants if scope not in getattr(known, part)]
        reasons = [f"{title} has no {noun} that setup can write for {whose}" for title, noun in lacking]
        notes = [f"remembrancer setup: {reason}: see docs/clients.md" for reason in reasons]
    if prints:
        documents = [
            {"client": edit.client.name, "path": str(edit.place.path), "text": edit.document} for edit in edits
        ]
        notes += [f"{edit.client.title}: {edit.place.path}" for edit in edits]
        return Report({"documents": documents}, [unwrapped(edit.document) for edit in edits], notes=notes)
    missing = [known.title for known in chosen if not remove and not known.is_found(around)]
    notes += [f"remembrancer setup: {title} was not found on this machine: set up for later" for title in missing]
    outcomes = [_carry_out(edit, "remove" if remove else "add") for edit in edits]
    if remove:
        outcomes = [outcome for outcome in outcomes if outcome.action != "nothing"]
    works = not remove and any(outcome.action != "refuse" for outcome in outcomes)
    took_s, fault = probe(line) if works and not no_check else (0.0, "")
    status = exit_codes.FAILED if fault else exit_codes.OK
    if any(outcome.action == "refuse" for outcome in outcomes):
        status = exit_codes.REFUSED
    if works:  # the command was tested in a home of its own
        problems = read_configuration(os.environ, locate(os.environ).file).problems
        notes += [f"remembrancer setup: no runtime can start until this is fixed: {problem}" for problem in problems]
        status = exit_codes.CONFIGURATION if problems and status == exit_codes.OK else status
    lines = _lines_of(outcomes)
    command_line = escape(shlex.join(line))
    if fault:
        lines.append(styled(f"[red]![/red] {command_line} does not work: {escape(fault)}"))
        lines.append("  run 'remembrancer doctor' to find the reason")
    elif took_s:
        lines.append(styled(f"[green]✓[/green] tested: {command_line} answers after {took_s:.1f} s"))
    if works and not fault:
        lines += _next_steps(outcomes, scope, with_hooks=extras["hooks"])
    if remove:
        lines.append("Your memories are kept." if outcomes else "Its files have no entry for Remembrancer.")
    if works and (offer := _offer_native_memories()):
        lines.append(offer)
    facts = {"command": line, "clients": outcomes, "answered_after_s": took_s or None, "error": fault or None}
    return Report(facts, lines, status, notes)


class SetupOutcome(msgspec.Struct, frozen=True):
    """The outcome of one edit. `paste` is the text to add by hand if the edit was refused."""

    client: str
    scope: ClientScope
    path: str
    action: Literal["add", "remove", "nothing", "refuse"]
    said: str
    paste: str = ""


class FileEdit(NamedTuple):
    """The change of one client's file: a function from its text to a new one, or `FileRefused`."""

    client: Client
    place: ClientFile
    what: str
    merge: Callable[[str], str]

    @property
    def document(self) -> str:
        """The text of a file with only this edit."""
        return self.merge("").rstrip()


def _edits(
    client: Client, around: ClientEnvironment, scope: ClientScope, line: tuple[str, ...] | None, extras: Collection[str]
) -> Iterator[FileEdit]:
    """The edits of a client's files in a scope; without a command line, those that remove everything."""
    home = os.environ.get("REMEMBRANCER_HOME") if scope == "user" else None
    environ = {"REMEMBRANCER_HOME": str(Path(home).expanduser().absolute())} if home else {}
    if place := client.place(around, scope):
        entry = make_entry(client, line, environ) if line else None
        yield FileEdit(client, place, "entry", partial(merge_entry, client, place, wanted=entry))
    if "hooks" in extras and (place := client.place(around, scope, "hooks")):
        groups = make_groups(client, line[:-1], environ) if line else None
        yield FileEdit(client, place, "hooks", partial(merge_hooks, client, place, wanted=groups))
    if "rules" in extras and (place := client.place(around, scope, "rules")):
        yield FileEdit(client, place, "instructions", partial(merge_rules, place, remove=line is None))


def _carry_out(edit: FileEdit, action: Literal["add", "remove"]) -> SetupOutcome:
    """Change the file, or report why that cannot be done safely."""
    client, place, what, merge = edit
    about = (client.name, place.scope, str(place.path))
    try:
        before = read_text(place.path)
        after = merge(before)
        if after == before:
            return SetupOutcome(*about, "nothing", f"{what}: nothing to do")
        write_text(place, after)
    except FileRefused as error:
        return SetupOutcome(*about, "refuse", f"unchanged: {error}", edit.document if action == "add" else "")
    return SetupOutcome(*about, action, f"{what} {'added' if action == 'add' else 'removed'}")


def _overview(around: ClientEnvironment, scope: ClientScope, line: tuple[str, ...]) -> Report:
    """The clients that were found, and whether their files have our entry."""
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
    lines.append("'remembrancer setup CLIENT' connects one. Nothing was written.")
    others = [row["client"] for row in rows if not row["found"]]
    lines.append(styled(f"[dim]Not found on this machine, but can be set up: {', '.join(others)}[/dim]"))
    return Report({"command": line, "clients": rows}, lines)


def _lines_of(outcomes: Sequence[SetupOutcome]) -> list[Line]:
    """The changes."""
    lines: list[Line] = []
    for outcome in outcomes:
        mark = "[yellow]![/]" if outcome.action == "refuse" else "[green]✓[/]"
        change = f"{client_named(outcome.client).title}: {outcome.path}: {outcome.said}"
        lines.append(styled(f"{mark} {escape(change)}"))
        if outcome.paste:
            lines.append(f"  Add this by hand:\n{outcome.paste}")
    return lines


def _next_steps(outcomes: Sequence[SetupOutcome], scope: ClientScope, *, with_hooks: bool) -> list[Line]:
    done = [client_named(name) for name in dict.fromkeys(each.client for each in outcomes if each.action == "add")]
    if not done:
        return []
    lines: list[Line] = ["Next:", *(f"  {client.title}: {client.restart}" for client in done)]
    if hooked := [client.name for client in done if scope in client.hooks and not with_hooks]:
        again = f"remembrancer setup {hooked[0]} --hooks{' --project' if scope == 'project' else ''}"
        lines.append(f"  to get memories with the first prompt: {again} (docs/hooks.md)")
    if scope == "project":
        lines.append("  The client may ask whether to trust this project: approve remembrancer there")
    return [*lines, "  then tell the assistant: remember that I prefer short answers"]


def _offer_native_memories() -> str:
    """Let searches read the assistants' own memories if a person says yes; where nobody can be asked, say how."""
    home = locate(os.environ)
    folders = native_files()
    if not folders or read_configuration(os.environ, home.file).settings.native_memories:
        return ""
    files = ", ".join(f"{client} {number}" for client, number in folders.items())
    question = f"Your assistants keep memory files of their own ({files}). Should searches read them, too?"
    if not sys.stdin.isatty():
        return f"{question} 'remembrancer config --set native_memories=true'"
    return write_setting(home, "native_memories=true") if click.confirm(question, err=True) else ""


# --- checking the command ---


def probe(command: tuple[str, ...]) -> tuple[float, str]:
    """Start `command` as a client would, in a scratch home and without a model, and call a tool. Returns the time until
    its answer in seconds, and the reason if there was none."""
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
