"""`remembrancer setup`: have a client start Remembrancer, by an entry in its configuration."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from remembrancer.commands import exit_codes
from remembrancer.commands.client_setup.clients.catalogue import (
    CLIENTS,
    Client,
    Place,
    Scope,
    Surroundings,
    client_named,
)
from remembrancer.commands.client_setup.clients.config_file import FileRefused, read_text, replace_text
from remembrancer.commands.client_setup.clients.entries import make_entry
from remembrancer.commands.client_setup.clients.hooks_plan import (
    hooks_document,
    hooks_place,
    make_groups,
    plan_hooks,
    plan_hooks_removal,
)
from remembrancer.commands.client_setup.clients.json_text import NotEditable
from remembrancer.commands.client_setup.clients.own_command import own_command, passes_away
from remembrancer.commands.client_setup.clients.plan import Plan, document, plan_entry, plan_removal
from remembrancer.commands.client_setup.clients.probe import Probed, probe
from remembrancer.commands.client_setup.setup_report import Outcome, as_json, print_outcomes, print_overview
from remembrancer.protocol.errors import InvalidInput

ALL: Final = "all-found"
WITH_HOOKS: Final = "claude-code"
"""The client that has hooks."""
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every client takes as a server's name."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    plans += _hook_plans(asked, targets, around, command, environ)
    outcomes = [_carry_out(plan) for plan in plans]
    wrote = any(outcome.plan.after is not None and outcome.error is None for outcome in outcomes)
    wants_check = not asked.remove and not asked.no_check and any(outcome.works for outcome in outcomes)
    probed = probe(command, environ) if wants_check else None
    if asked.json:
        print(json.dumps(as_json(command, outcomes, probed)))
    else:
        print_outcomes(command, outcomes, probed, removing=asked.remove, wrote=wrote, named=_named_home(asked))
    return _exit_code(outcomes, probed)


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
    if passes_away(Path(command[0])) and not asked.remove:
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
    except (FileRefused, NotEditable) as error:
        paste = "" if asked.remove else document(place.key, asked.name, wanted)
        return Plan(client, place, "refuse", f"is left as it is: {error.reason}", None, paste=paste)
    if asked.remove:
        return plan_removal(client, place, text, asked.name, force=asked.force)
    return plan_entry(client, place, text, asked.name, wanted, force=asked.force)


def _hook_plans(
    asked: argparse.Namespace,
    targets: list[tuple[Client, Place]],
    around: Surroundings,
    command: tuple[str, ...],
    environ: dict[str, str],
) -> list[Plan]:
    """The changes of hooks that are asked for. Whoever removes the entry would be left with hooks of no use."""
    plans = []
    for client, entry in targets:
        if client.name != WITH_HOOKS or not (asked.hooks or asked.remove):
            continue
        place, wanted = hooks_place(around, entry.scope), make_groups(command[:-1], environ)
        try:
            text = read_text(place.path)
        except (FileRefused, NotEditable) as error:
            said, paste = f"is left as it is: {error.reason}", "" if asked.remove else hooks_document(wanted)
            plans.append(Plan(client, place, "refuse", said, None, paste=paste))
            continue
        plan = plan_hooks_removal(client, place, text) if asked.remove else plan_hooks(client, place, text, wanted)
        if asked.hooks or plan.action != "nothing":
            plans.append(plan)
    return plans


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
        print(document(place.key, asked.name, make_entry(client, command, environ)))
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
        for place in _of_scope(client, around, "user" if asked.user else None)
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


def _of_scope(client: Client, around: Surroundings, scope: Scope | None) -> Sequence[Place]:
    return [place for place in client.places(around) if scope is None or place.scope == scope]


def _exit_code(outcomes: list[Outcome], probed: Probed | None) -> int:
    if any(outcome.refused for outcome in outcomes):
        return exit_codes.REFUSED
    return exit_codes.FAILED if probed is not None and probed.error else exit_codes.OK
