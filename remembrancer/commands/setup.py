"""`remembrancer setup`: adds an entry to a client's configuration that starts Remembrancer."""

from __future__ import annotations

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
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.markup import escape

from remembrancer.commands import exit_codes
from remembrancer.commands.clients import (
    COMMAND,
    Action,
    Client,
    ClientFile,
    ClientScope,
    FileRefused,
    Json,
    Plan,
    Surroundings,
    client_named,
    clients,
    is_temporary,
    make_entry,
    make_groups,
    own_command,
    plan_entry,
    plan_hooks,
    plan_hooks_removal,
    plan_of,
    plan_removal,
    plan_rules,
    read_object,
)
from remembrancer.commands.config import write_setting
from remembrancer.commands.report import Report, argument, command, flag, option
from remembrancer.commands.runtime_client import ask, is_up, wait_down
from remembrancer.commands.terminal import styled
from remembrancer.config.home import locate
from remembrancer.config.reading import read_configuration
from remembrancer.protocol.control import AskDown
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.toolsets.files.workspace_files import native_files

if TYPE_CHECKING:
    from remembrancer.commands.report import Line

ALL: Final = "all-found"
PLUGIN: Final = Path(__file__).parents[1] / "claude_plugin"
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of servers that every client accepts."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROTOCOL: Final = "2025-11-25"
ANSWER_S: Final = 90.0
"""The time to wait for all answers of the check. Loading the libraries from a cold disk can take many seconds, which is
no fault of the command."""
RETRY_S: Final = 0.2
STOP_S: Final = 10.0
WILL_NOT_LAST: Final = "this command is temporary: install it permanently, or name a permanent one with --command"
STATES: Final[dict[Action, str]] = {
    "add": "not set up",
    "extend": "set up, without the variables of this environment",
    "replace": "has another entry of this name",
}


NAMES: Final = (*(client.name for client in clients()), ALL)


@command(
    argument("client", required=False, type=click.Choice(NAMES), metavar="[CLIENT]", help=", ".join(NAMES)),
    option(
        "--project",
        is_flag=False,
        flag_value=".",
        metavar="[DIR]",
        help="Write the file of one project (default: this directory) instead of the user's. It names the command "
        "without a path, so everyone who shares the project needs it on the PATH.",
    ),
    flag("--hooks", help="Also have the client report its sessions."),
    flag("--rules", help="Also add a few lines to its instruction file."),
    flag("--print", "prints", help="Print the entry instead of writing it."),
    flag("--remove", help="Remove everything that setup added, for you and in this directory's project."),
    flag("--force", help="Replace (or remove) an entry that is not Remembrancer's."),
    option("--name", default="remembrancer", metavar="NAME", help="The entry's name (remembrancer)."),
    option("--env", multiple=True, metavar="KEY=VALUE", help="A variable for the entry."),
    option("--command", metavar="PATH", help="The remembrancer command to write, if not this one."),
    flag("--no-check", help="Do not test the written command."),
    flag(
        "--plugin-path",
        help="Print the folder of the plugin for Claude Code, which is a marketplace, too: claude plugin marketplace "
        'add "$(remembrancer setup --plugin-path)" && claude plugin install remembrancer@remembrancer',
    ),
)
def setup(plugin_path: bool, **given: Any) -> Report:
    """Connect an assistant's client to Remembrancer, for all of your projects. Without a client, show the clients that
    were found and what would be done. Nothing else in a client's file is changed. Exit status 1: the entry was written,
    but its command does not work; 8: a file was not changed, with the reason."""
    if plugin_path:
        return Report({"path": str(PLUGIN)}, str(PLUGIN))
    project = given["project"]
    if given["client"] is None and project in NAMES and not Path(project).is_dir():
        given |= {"client": project, "project": "."}  # `setup --project codex`
    return Setup(**given).run()


COMMANDS = {"setup": setup}


Edit = tuple[ClientFile, Callable[[str | None], Plan]]
"""A client's file, and the function that plans its change for a text."""


class Probed(msgspec.Struct, frozen=True):
    """The outcome of trying the command. `tools_ms` (until it lists its tools) and `ready_ms` (until a tool answers)
    count from its start; `error` says why it did not work."""

    ok: bool
    tools_ms: float | None = None
    ready_ms: float | None = None
    tools: int | None = None
    error: str | None = None


@dataclass
class Setup:
    """The command line, and the content for the files: `line` is what an entry starts."""

    client: str | None
    project: str | None
    hooks: bool
    rules: bool
    prints: bool
    remove: bool
    force: bool
    name: str
    env: tuple[str, ...]
    command: str | None
    no_check: bool

    def __post_init__(self) -> None:
        directory = Path(self.project or ".")
        if not directory.is_dir():
            raise InvalidInput(f"{directory} is not a directory")
        self.scope: ClientScope = "user" if self.project is None else "project"
        self.around = Surroundings.here(os.environ, directory)
        self.line = self._command_line()
        self.environ = self._variables()
        self.lines: list[Line] = []
        self.notes: list[str] = []

    def say(self, markup: str) -> None:
        """Add a line to the report."""
        self.lines.append(styled(markup))

    def run(self) -> Report:
        """Set the clients up, and report it."""
        if self.client is None:
            return self._overview()
        targets = self._targets()
        if self.prints:
            return self._documents(targets)
        plans: list[Plan] = []
        for client, place in targets:
            root = Path.home() if place.scope == "user" else self.around.project
            # One after the other: two of them may change the same file.
            done = [plan_of(edit, file.path).carry_out(root) for file, edit in self._edits(client, place)]
            plans += [
                plan
                for number, plan in enumerate(done)
                if plan.action != "nothing" or not self.remove or (number == 0 and place.scope == self.scope)
            ]
        works = not self.remove and not all(plan.action == "refuse" for plan in plans)
        probed = probe(self.line, self.environ) if works and not self.no_check else None
        self._tell(plans, probed)
        if works:
            self._offer_native_memories()
        failed = probed is not None and probed.error is not None
        status = exit_codes.FAILED if failed else exit_codes.OK
        if any(plan.action == "refuse" for plan in plans):
            status = exit_codes.REFUSED
        return Report(self._facts(plans, probed), self.lines, status, self.notes)

    def _offer_native_memories(self) -> None:
        """Let searches read the assistants' own memories if a person says yes; where nobody can be asked, say how."""
        home = locate(os.environ)
        folders = native_files()
        if not folders or read_configuration(os.environ, home.file).settings.native_memories:
            return
        files = ", ".join(f"{client} {number}" for client, number in folders.items())
        question = f"Your assistants keep memory files of their own ({files}). Should searches read them, too?"
        if not sys.stdin.isatty():
            self.say(f"{question} 'remembrancer config --set native_memories=true'")
        elif click.confirm(question, err=True):
            self.say(escape(write_setting(home, "native_memories=true")))

    def _targets(self) -> list[tuple[Client, ClientFile]]:
        """The files to change.

        Raises:
            InvalidInput: the client has no file of that scope, or no client was found.
        """
        if self.client == ALL:
            chosen = [client for client in clients() if client.is_found(self.around)]
            names = [client.name for client in chosen if self.hooks]
            for client in chosen:
                if client.hooks and client.hooks_of in names:
                    self._note(self._about_hooks(client))
        else:
            chosen = [client_named(self.client or ALL)]
            if self.hooks and (self.scope not in chosen[0].hooks or chosen[0].hooks_of):
                self._note(self._about_hooks(chosen[0]))
            if self.rules and self.scope not in chosen[0].rules:
                which = "all projects: name one with --project" if self.scope == "user" else "a project"
                self._note(f"{self.client} has no instruction file for {which}: none is written")
        targets = [(client, place) for client in chosen if (place := client.place(self.around, self.scope)) is not None]
        if self.remove and self.scope == "user":  # those of this directory's project as well
            known = {place.path for _, place in targets}
            own = [(client, place) for client in chosen if (place := client.place(self.around, "project")) is not None]
            targets += [each for each in own if each[1].path not in known]
        if targets:
            return targets
        if self.client == ALL:
            raise InvalidInput("no client was found on this machine: name one (see 'remembrancer setup --help')")
        raise InvalidInput(f"{chosen[0].title} has no configuration for a project: leave out --project")

    def _about_hooks(self, client: Client) -> str:
        if client.hooks_of is None:
            return f"setup knows no hooks for {client.name}: none are written"
        other = client_named(client.hooks_of)
        if client.hooks:
            return (
                f"{client.title} runs the hooks of {other.title}, too: have one of the two, or it reports events twice"
            )
        return f"{client.title} runs the hooks of {other.title}: write them with 'setup {other.name} --hooks'"

    def _note(self, text: str) -> None:
        self.notes.append(f"remembrancer setup: {text}")

    def _edits(self, client: Client, place: ClientFile) -> list[Edit]:
        """The edits of a client's files: of the entry, and of the hooks and rules that are requested."""
        hooks, rules = client.hooks_place(self.around, place.scope), client.rules_place(self.around, place.scope)
        edits: list[Edit] = []
        if self.remove:
            edits.append((place, partial(plan_removal, client, place, name=self.name, force=self.force)))
            if hooks is not None:
                edits.append((hooks, partial(plan_hooks_removal, client, hooks)))
        else:
            entry = make_entry(client, self.line, self.environ)
            edits.append((place, partial(plan_entry, client, place, name=self.name, wanted=entry, force=self.force)))
            if hooks is not None and self.hooks:
                groups = make_groups(client, self.line[:-1], self.environ)
                edits.append((hooks, partial(self._plan_hooks, client, hooks, wanted=groups)))
        if rules is not None and (self.rules or self.remove):
            edits.append((rules, partial(plan_rules, client, rules, remove=self.remove)))
        return edits

    def _plan_hooks(self, client: Client, hooks: ClientFile, text: str | None, wanted: Mapping[str, Json]) -> Plan:
        if not self.prints and self._has_plugin(client):
            return Plan(client, hooks, "nothing", "is unchanged: the plugin provides the hooks", text)
        return plan_hooks(client, hooks, text, wanted)

    def _has_plugin(self, client: Client) -> bool:
        """True if our plugin is enabled in the client."""
        for scope in client.hooks:
            place = client.hooks_place(self.around, scope)
            with suppress(FileRefused):  # the plan for that file says why
                enabled = read_object(place).get("enabledPlugins") if place is not None else None
                plugins = enabled.items() if isinstance(enabled, Mapping) else ()
                if any(is_on and name.partition("@")[0] == COMMAND for name, is_on in plugins):
                    return True
        return False

    def _documents(self, targets: list[tuple[Client, ClientFile]]) -> Report:
        """The texts for adding the entry by hand."""
        plans = [edit(None) for client, place in targets for _, edit in self._edits(client, place)]
        notes = [f"{plan.client.title}: {plan.place.path}" for plan in plans]
        if self.project is None and is_temporary(Path(self.line[0])):
            notes.insert(0, f"{self.line[0]}: {WILL_NOT_LAST}")
        documents = [{"client": plan.client.name, "path": str(plan.place.path), "text": plan.paste} for plan in plans]
        lines = [plan.paste for plan in plans]
        return Report({"documents": documents}, lines, notes=[*self.notes, *notes], piped=lines)

    def _overview(self) -> Report:
        """List the clients, whether each is set up, and the change that would be made."""
        rows = [
            (client, place, plan_of(self._edits(client, place)[0][1], place.path))
            for client in clients()
            for place in client.places(self.around)
            if place.scope == self.scope
        ]
        facts = self._facts([plan for *_, plan in rows], None)
        for each, (client, *_) in zip(facts["clients"], rows, strict=True):
            each |= {"found": client.is_found(self.around), "done": False}
        self.say(f"Clients start: [bold]{escape(shlex.join(self.line))}[/bold]")
        if self.scope == "user" and is_temporary(Path(self.line[0])):
            self.say(f"  [yellow]{WILL_NOT_LAST}[/yellow]")
        others: list[str] = []
        for client, place, plan in rows:
            if plan.action == "add" and not client.is_found(self.around):
                others.append(client.name)
                continue
            self.say(f"[bold]{client.title}[/bold], {place.scope}: {escape(str(place.path))}")
            if plan.action == "nothing":
                self.say("  [green]is set up[/green]")
            elif plan.action == "refuse":
                self.say(f"  [yellow]{escape(plan.said)}[/yellow]")
            else:
                scope = " --project" if place.scope == "project" else ""
                self.say(f"  {STATES[plan.action]}: 'remembrancer setup {client.name}{scope}' adds it")
        if others:
            self.say(f"[dim]Not found on this machine: {', '.join(others)}[/dim]")
        self.say("[dim]Nothing was written.[/dim]")
        return Report(facts, self.lines, notes=self.notes)

    def _facts(self, plans: list[Plan], probed: Probed | None) -> dict[str, Any]:
        return {
            "command": list(self.line),
            "clients": [
                {
                    "client": plan.client.name,
                    "scope": plan.place.scope,
                    "path": str(plan.place.path),
                    "action": plan.action,
                    "done": plan.wrote,
                    "said": plan.said,
                    "paste": (plan.action == "refuse" and plan.paste) or None,
                }
                for plan in plans
            ],
            "check": msgspec.to_builtins(probed),
        }

    def _tell(self, plans: list[Plan], probed: Probed | None) -> None:
        """Report the changes, whether the command works, and the next steps."""
        say = self.say
        for plan in plans:
            mark = "[yellow]!" if plan.action == "refuse" else "[green]✓"
            nothing = ", nothing to do" if plan.action == "nothing" else ""
            say(f"{mark}[/] {plan.client.title}: {escape(str(plan.place.path))}: {escape(plan.said + nothing)}")
            if plan.action == "refuse" and plan.paste:
                say(f"  Add this by hand:\n{escape(plan.paste)}")
        wrote, command = any(plan.wrote for plan in plans), escape(shlex.join(self.line))
        if self.remove:
            if wrote:
                say("Your memories are kept.")
            return
        home = self.environ.get("REMEMBRANCER_HOME")
        if wrote and home and not any(each.startswith("REMEMBRANCER_HOME=") for each in self.env):
            say(f"The entry names the home {escape(home)}, because REMEMBRANCER_HOME is set here.")
        if probed is not None and probed.error:
            say(f"[red]![/red] {command} does not work: {escape(probed.error)}")
            say("  run 'remembrancer doctor' to find the reason")
            return
        if probed is not None:
            say(
                f"[green]✓[/green] tested: {command} lists {probed.tools} tools after {probed.tools_ms:.0f} ms, "
                f"and answers calls after {probed.ready_ms:.0f} ms"
            )
        if not wrote:
            return
        say("Next:")
        done = [plan.client for plan in plans if plan.action != "refuse"]
        for title, restart in dict.fromkeys((client.title, client.restart) for client in done):
            say(f"  {title}: {restart}")
        if self.scope == "project":
            say("  The client may ask whether to trust this project when it starts: approve remembrancer there")
        say("  then tell the assistant: remember that I prefer short answers")

    def _command_line(self) -> tuple[str, ...]:
        if not SERVER_NAME.fullmatch(self.name):
            raise InvalidInput(f"a name may have up to 64 letters, digits, - and _: {self.name[:80]!r} is not valid")
        if self.project is not None:
            if self.command is not None:
                raise InvalidInput(
                    "a project's file names the command without a path, since others share it: leave out --command"
                )
            return (COMMAND, "mcp")
        if self.command is not None:
            named = Path(self.command).expanduser()
            if not named.is_absolute() or not os.access(named, os.X_OK) or named.is_dir():
                raise InvalidInput(f"--command needs the absolute path of an executable: {named} is not one")
            return (str(named), "mcp")
        command = own_command(sys.argv[0], sys.executable, os.environ)
        if is_temporary(Path(command[0])) and self.client is not None and not self.remove and not self.prints:
            raise InvalidInput(
                f"this command lies in {Path(command[0]).parent}, which is a temporary directory: install it elsewhere "
                "(pipx install or uv tool install), or name another command with --command PATH"
            )
        return command

    def _variables(self) -> dict[str, str]:
        """The entry's variables: the requested ones, and this command's home if it is not the default. A project's file
        gets no path of this machine."""
        home = os.environ.get("REMEMBRANCER_HOME") if self.project is None else None
        environ = {"REMEMBRANCER_HOME": str(Path(home).expanduser().absolute())} if home else {}
        for each in self.env:
            name, separator, value = each.partition("=")
            if not separator or not VARIABLE.fullmatch(name):
                raise InvalidInput(f"--env needs KEY=VALUE, not {name[:60]!r}")
            environ[name] = value
        return environ


# --- checking the command ---


def probe(command: tuple[str, ...], environ: Mapping[str, str]) -> Probed:
    """Start `command` as a client would, in a scratch home and without a model; list its tools and call one."""
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
    """The result of a request, which is repeated while the runtime is starting.

    Raises:
        ValueError: the answer is an error, or not JSON.
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
                time.sleep(RETRY_S)  # no message says when it is up
                return _ask(process, number, method, params)
            if "error" in answer:
                raise ValueError(f"{method} was answered with an error: {answer['error'].get('message')}")
            result: dict[str, Any] = answer["result"]
            return result
    raise ConnectionError(f"it exited, or did not answer within {ANSWER_S:.0f} s")


def _stop(home: Path) -> None:
    """Stop the runtime in the scratch home, and wait until it is gone."""
    paths = RuntimePaths(home)
    if not is_up(paths):
        return
    with suppress(RemembrancerError):  # it is gone, or will end by itself without a session
        ask(paths, AskDown("remembrancer setup has tried it out"))
    wait_down(paths, STOP_S)
