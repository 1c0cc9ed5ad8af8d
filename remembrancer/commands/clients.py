"""The configuration files of MCP clients: where each lies, and what makes a client start Remembrancer.

Sources: the clients' own documentation, for Claude Code's hooks https://code.claude.com/docs/en/hooks. A change is
decided first (`Plan`) and carried out later (`replace_text`). A JSON file with comments is left as it is; Codex's file
is TOML, of which nothing but our own tables is rewritten.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple

import tomlkit

from remembrancer.protocol import gateway_link as link
from remembrancer.protocol.paths import write_whole

Scope = Literal["project", "user"]
Action = Literal["add", "extend", "replace", "remove", "nothing", "refuse"]
State = Literal["absent", "same", "extended", "other"]
Json = dict[str, Any]

HOOKS: Final = "hooks"
TOML_KEY: Final = "mcp_servers"
"""The member that has the servers in the one client's file that is TOML."""
HOOK_EVENTS: Final = tuple(event for event in link.HOOK_EVENTS if event != link.TOOL_FAILED)
"""The events that are asked for. With one that it does not know, an older client takes nothing from the whole file."""
TOOL_EVENTS: Final = (link.TOOL_BEGINS, link.TOOL_DONE)
HOOK_TIMEOUT_S: Final = 10
HIDDEN: Final = "(not shown)"
COMMAND: Final = "remembrancer"
ONE_RUN: Final = (
    *(("uv", "archive-v0"), ("uv", "builds-v0"), ("uv", "environments-v2")),
    *(("pipx", ".cache"), (".cache", "pipx")),
)
"""Neighbouring parts of paths under which uvx and pipx keep environments for one run."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/folders", "/dev/shm")  # noqa: S108 - to keep away
_STRING: Final = r'"(?:\\.|[^"\\])*"'
_COMMENTS: Final = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMAS: Final = re.compile(_STRING + r"|,(?=\s*[}\]])")
_MARK: Final = "\ufeff"


class FileRefused(Exception):
    """A client's file cannot be read, written or changed safely; `reason` says why. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- the clients and their files ---


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the places depend on: the user's home, the environment, the platform, the project."""

    home: Path
    environ: Mapping[str, str]
    platform: str
    project: Path

    @classmethod
    def here(cls, environ: Mapping[str, str], project: Path) -> Surroundings:
        """Those of this process. `project` is made absolute."""
        return cls(Path.home(), environ, sys.platform, project.absolute())

    def path(self, template: str) -> Path:
        """A path in which `{home}`, `{project}`, `{applications}` (where Electron keeps what belongs to a user),
        `{claude}` and `{claude_home}` (the directory given to Claude Code, or else where it keeps its settings, and its
        own file) and `{codex}` stand for what they are here."""
        named, claude = self.environ.get("XDG_CONFIG_HOME", ""), self.environ.get("CLAUDE_CONFIG_DIR")
        applications = Path(named) if Path(named).is_absolute() else self.home / ".config"
        if self.platform == "darwin":
            applications = self.home / "Library" / "Application Support"
        chosen = Path(claude).expanduser() if claude else None
        places = {"claude": chosen or self.home / ".claude", "claude_home": chosen or self.home}
        places["codex"] = Path(self.environ.get("CODEX_HOME") or self.home / ".codex").expanduser()
        return Path(template.format(home=self.home, project=self.project, applications=applications, **places))


class Place(NamedTuple):
    """One file that a client reads its servers (or hooks) from: they are in the member `key` of its top object."""

    scope: Scope
    path: Path
    key: str


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `files` by scope, the project's first, and `traces`, which show that it is installed, are templates
    for `Surroundings.path`. `restart` is what a person does for it to see a change. `says_type`: an entry says
    `"type": "stdio"`. `has_path`: it is started from a shell, whose PATH it has."""

    name: str
    title: str
    files: Mapping[Scope, str]
    traces: tuple[str, ...]
    restart: str
    command: str | None = None
    key: str = "mcpServers"
    says_type: bool = True
    has_path: bool = False

    def places(self, around: Surroundings) -> tuple[Place, ...]:
        """Its files, the project's first."""
        return tuple(Place(scope, around.path(file), self.key) for scope, file in self.files.items())

    def place(self, around: Surroundings, scope: Scope) -> Place | None:
        """Its file of that scope; None when it has none."""
        return next((place for place in self.places(around) if place.scope == scope), None)

    def is_found(self, around: Surroundings) -> bool:
        """Whether the client seems to be installed: its command, or what it keeps in the user's home."""
        if self.command and shutil.which(self.command, path=around.environ.get("PATH", "")):
            return True
        return any(around.path(trace).exists() for trace in self.traces)


CLAUDE_CODE: Final = Client(
    "claude-code",
    "Claude Code",
    {"project": "{project}/.mcp.json", "user": "{claude_home}/.claude.json"},
    ("{claude_home}/.claude.json", "{home}/.claude"),
    "start a new session (/mcp shows the servers)",
    command="claude",
    has_path=True,
)
CLIENTS: Final = (
    CLAUDE_CODE,
    Client(
        "claude-desktop",
        "Claude Desktop",
        {"user": "{applications}/Claude/claude_desktop_config.json"},
        ("{applications}/Claude",),
        "quit the application and open it again",
        says_type=False,
    ),
    Client(
        "cursor",
        "Cursor",
        {"project": "{project}/.cursor/mcp.json", "user": "{home}/.cursor/mcp.json"},
        ("{home}/.cursor", "{applications}/Cursor"),
        "switch the server on in Cursor's settings, under MCP",
        command="cursor",
    ),
    Client(
        "vscode",
        "VS Code",
        {"project": "{project}/.vscode/mcp.json", "user": "{applications}/Code/User/mcp.json"},
        ("{applications}/Code", "{home}/.vscode"),
        "run 'MCP: List Servers' and start it there",
        command="code",
        key="servers",
    ),
    Client(
        "codex",
        "Codex",
        {"user": "{codex}/config.toml"},
        ("{codex}",),
        "start a new session (/mcp shows the servers)",
        command="codex",
        key=TOML_KEY,
        says_type=False,
        has_path=True,
    ),
)


def client_named(name: str) -> Client:
    """The client of that name. Raises KeyError."""
    return {client.name: client for client in CLIENTS}[name]


def hooks_place(around: Surroundings, scope: Scope) -> Place:
    """The settings that Claude Code reads hooks from."""
    directory = around.path("{project}/.claude" if scope == "project" else "{claude}")
    return Place(scope, directory / "settings.json", HOOKS)


def own_command(program: str, interpreter: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of `mcp`, from this process's `sys.argv[0]`, `sys.executable` and environment.

    The program itself if it is the installed command (as it was named: a link in the user's `bin` outlives what it
    points at), else the command beside the interpreter, else the one on the PATH, else the interpreter with the module.
    A place that lasts goes before one that does not.
    """
    on_path = shutil.which(COMMAND, path=environ.get("PATH", ""))
    candidates = [Path(program)] if Path(program).name == COMMAND else []
    candidates += [Path(interpreter).parent / COMMAND, *([Path(on_path)] if on_path else [])]
    usable = [each.absolute() for each in candidates if each.is_file() and os.access(each, os.X_OK)]
    for each in sorted(usable, key=is_temporary):  # stable: the order stands among those that last
        return (str(each), "mcp")
    return (interpreter, "-P", "-m", COMMAND, "mcp")


def is_temporary(path: Path) -> bool:
    """Whether what lies there is made for one run, or for the time until the next start of the machine."""
    return any(
        not set(pairwise(each.parts)).isdisjoint(ONE_RUN) or any(each.is_relative_to(root) for root in TEMPORARY)
        for each in (path, Path(os.path.realpath(path)))
    )


# --- what a file should say ---


def make_entry(client: Client, command: tuple[str, ...], environ: Mapping[str, str]) -> Json:
    """The entry that has `client` start `command`."""
    entry: Json = {"type": "stdio"} if client.says_type else {}
    entry |= {"command": command[0], "args": list(command[1:])}
    return {**entry, "env": dict(environ)} if environ else entry


def make_groups(command: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, Json]:
    """Our group of commands for each event of the hooks. `command` is the command line before the word `hook`."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
    start = " ".join([*variables, shlex.join([*command, "hook"])])
    return {
        event: {
            **({"matcher": "*"} if event in TOOL_EVENTS else {}),
            "hooks": [{"type": "command", "command": f"{start} {event}", "timeout": HOOK_TIMEOUT_S}],
        }
        for event in HOOK_EVENTS
    }


def document(key: str, wanted: Mapping[str, object]) -> str:
    """A whole file with ours alone: entries by their names, or hooks by their events."""
    if key == TOML_KEY:
        return tomlkit.dumps({TOML_KEY: wanted}).rstrip()
    return json.dumps({key: wanted}, indent=2, ensure_ascii=False)


def hooks_document(wanted: Mapping[str, Json]) -> str:
    """A whole file with our hooks alone."""
    return document(HOOKS, {event: [group] for event, group in wanted.items()})


def compare(present: object, wanted: Json) -> State:
    """How the entry that is there stands to the wanted one: `extended` starts the same command and only lacks (or has
    other values of) wanted variables; `other` starts something else."""
    if present is None:
        return "absent"
    if not isinstance(present, Mapping):
        return "other"
    said = (present.get("type", "stdio"), present.get("command"), present.get("args", []))
    if said != ("stdio", wanted["command"], wanted["args"]):
        return "other"
    return "same" if wanted.get("env", {}).items() <= _variables(present).items() else "extended"


def extend(present: Mapping[str, Any], wanted: Json) -> Json:
    """The present entry with the wanted variables; whatever else it has stays."""
    return {**present, "env": {**_variables(present), **wanted["env"]}}


def _variables(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    found = entry.get("env")
    return found if isinstance(found, Mapping) else {}


def is_ours(entry: object) -> bool:
    """Whether an entry starts Remembrancer, by the name of its command or of a module in its arguments."""
    if not isinstance(entry, Mapping):
        return False
    args = entry.get("args")
    words = [entry.get("command"), *(args if isinstance(args, list) else [])]
    return any(isinstance(word, str) and PurePath(word).stem == COMMAND for word in words)


def is_our_command(command: object) -> bool:
    """Whether a hook's command runs `remembrancer hook`."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # quotes that are not closed
        return False
    return any(PurePath(word).stem == COMMAND and following == "hook" for word, following in pairwise(words))


def difference(present: object, wanted: Json) -> str:
    """What would change, line by line; values of variables that may be secret are not shown."""
    before, after = (
        json.dumps(_without_secrets(each), indent=2, ensure_ascii=False).splitlines() for each in (present, wanted)
    )
    return "\n".join(list(difflib.unified_diff(before, after, "present", "wanted", lineterm="", n=99))[3:])


def _is_plain(variable: str) -> bool:
    is_secret = any(word in variable for word in ("KEY", "TOKEN", "SECRET", "PASS"))
    return variable.startswith(("REMEMBRANCER_", "MEMORY_")) and not is_secret


def _without_secrets(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    shown = dict(entry)
    for name in ("env", "headers"):
        if isinstance(values := entry.get(name), Mapping):
            shown[name] = {key: value if _is_plain(key) else HIDDEN for key, value in values.items()}
    return shown


# --- a change, decided ---


@dataclass(frozen=True, slots=True)
class Plan:
    """One file's change. `after` is None when nothing is changed; `said` says it to a person; `difference` shows an
    entry that is in the way; `paste` is what a person would put in by hand."""

    client: Client
    place: Place
    action: Action
    said: str
    before: str | None
    after: str | None = None
    difference: str = ""
    paste: str = ""


class _Change(NamedTuple):
    """What becomes of a file's member, None: it stays as it is. An empty one of hooks goes."""

    action: Action
    said: str
    member: Json | None = None
    difference: str = ""


def plan_entry(client: Client, place: Place, text: str | None, name: str, wanted: Json, *, force: bool) -> Plan:
    """What makes the file start `wanted` under `name`. `text` is what the file holds, None when there is none."""

    def change(servers: Json) -> _Change:
        present = servers.get(name)
        state = compare(present, wanted)
        if state == "same":
            return _Change("nothing", "is set up already")
        if state == "other" and not force:
            said = f"has another entry named {name!r}: --force replaces it, --name gives ours another name"
            return _Change("refuse", said, difference=difference(present, wanted))
        if state == "extended":
            said = f"the entry {name!r} is given the variables that it lacked"
            return _Change("extend", said, {**servers, name: extend(servers[name], wanted)})
        done: tuple[Action, str] = ("add", "added") if state == "absent" else ("replace", "replaced")
        return _Change(done[0], f"the entry {name!r} is {done[1]}", {**servers, name: wanted})

    return _plan(client, place, text, change, document(place.key, {name: wanted}))


def plan_removal(client: Client, place: Place, text: str | None, name: str, *, force: bool) -> Plan:
    """What takes our entry out of the file again."""

    def change(servers: Json) -> _Change:
        if servers.get(name) is None:
            return _Change("nothing", f"has no entry named {name!r}")
        if not is_ours(servers[name]) and not force:
            said = f"has an entry named {name!r} that does not start Remembrancer: --force removes it all the same"
            return _Change("refuse", said)
        others = {key: value for key, value in servers.items() if key != name}
        return _Change("remove", f"the entry {name!r} is removed", others)

    return _plan(client, place, text, change)


def plan_hooks(client: Client, place: Place, text: str | None, wanted: Mapping[str, Json]) -> Plan:
    """What makes every event run its command. One of ours that is there already, in another form, is replaced."""

    def change(present: Json) -> _Change:
        others = _without_ours(present)
        made: Json = {event: [*others.get(event, [])] for event in {**present, **wanted}}
        for event, group in wanted.items():
            made[event].append(group)
        if made.keys() == present.keys() and all(_has_same_groups(present[event], made[event]) for event in made):
            return _Change("nothing", "has its hooks already")
        if others == present:
            return _Change("add", "its hooks are added", made)
        return _Change("replace", "its hooks are replaced", made)

    return _plan(client, place, text, change, hooks_document(wanted))


def plan_hooks_removal(client: Client, place: Place, text: str | None) -> Plan:
    """What takes our commands out again, and what is empty without them."""

    def change(present: Json) -> _Change:
        others = _without_ours(present)
        if others == present:
            return _Change("nothing", "has no hooks of ours")
        left = {event: groups for event, groups in others.items() if groups or not present[event]}
        return _Change("remove", "its hooks are removed", left)

    return _plan(client, place, text, change)


def refused_plan(client: Client, place: Place, text: str | None, refused: FileRefused, paste: str) -> Plan:
    """A file that is left as it is, with what a person would put in."""
    return Plan(client, place, "refuse", f"is left as it is: {refused.reason}", text, paste=paste)


def _plan(client: Client, place: Place, text: str | None, change: Callable[[Json], _Change], paste: str = "") -> Plan:
    """The plan that makes a change to a file's member."""
    try:
        whole = _parsed(place, text or "")
        member = whole.get(place.key, {})
        if not isinstance(member, dict):
            raise FileRefused(f"its member {place.key!r} is not a JSON object")
        done = change(member)
        after = None
        if done.member is not None:
            whole[place.key] = done.member
            if done.action == "remove" and not done.member and place.key != TOML_KEY:
                del whole[place.key]
            after = (_written_toml if place.key == TOML_KEY else _written)(text or "", whole)
            after = after if whole or done.action != "remove" else ""
    except FileRefused as refused:
        return refused_plan(client, place, text, refused, paste)
    return Plan(client, place, done.action, done.said, text, after, done.difference)


def _has_same_groups(present: list[Any], made: list[Any]) -> bool:
    return len(present) == len(made) and all(group in present for group in made)


def _without_ours(present: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The groups of each event without our commands; a group that had no others is gone."""
    left: dict[str, list[Any]] = {}
    for event, groups in present.items():
        if not isinstance(groups, list):
            raise FileRefused(f"what it has for the event {event} is not a list")
        left[event] = []
        for group in groups:
            commands = group.get("hooks") if isinstance(group, Mapping) else None
            others = [each for each in commands if not _runs_ours(each)] if isinstance(commands, list) else commands
            if others == commands:
                left[event].append(group)
            elif others:
                left[event].append({**group, "hooks": others})
    return left


def _runs_ours(entry: object) -> bool:
    return isinstance(entry, Mapping) and is_our_command(entry.get("command"))


# --- the text of a file ---


def read_object(place: Place) -> Json:
    """The object that a file holds, empty when there is no file. Raises `FileRefused`."""
    return _parsed(place, read_text(place.path) or "")


def _parsed(place: Place, text: str) -> Json:
    return _parse_toml(text) if place.key == TOML_KEY else parse_with_comments(text)


def _parse_toml(text: str) -> Json:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileRefused(f"it is not valid TOML: {error}") from error


def _written_toml(before: str, whole: Json) -> str:
    """The text with those servers written anew that differ, and all else as it was."""
    file, wanted = tomlkit.parse(before), whole[TOML_KEY]
    servers = file.setdefault(TOML_KEY, tomlkit.table(is_super_table=True))
    for name in {**servers, **wanted}:
        if name not in wanted:
            del servers[name]
        elif servers.get(name) != wanted[name]:
            servers[name] = wanted[name]
    if not servers:
        del file[TOML_KEY]
    after = tomlkit.dumps(file)
    if {TOML_KEY: {}, **_parse_toml(after)} != {TOML_KEY: {}, **whole}:
        raise FileRefused("it cannot be changed without a change of something else")
    return after


def parse_with_comments(text: str) -> Json:
    """The object that a text holds, comments and trailing commas left out; an empty text holds an empty one.

    Raises:
        FileRefused: it is no JSON, holds something else than an object, or names a key twice.
    """
    return _parse(_LAST_COMMAS.sub(_kept_if_string, _COMMENTS.sub(_kept_if_string, text.removeprefix(_MARK))))


def _parse(text: str) -> Json:
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_no_key_twice)
    except RecursionError as error:
        raise FileRefused("it is nested too deeply") from error
    except ValueError as error:
        raise FileRefused(f"it is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise FileRefused("it does not hold a JSON object")
    return found


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FileRefused("it names a key twice")
    return found


def _kept_if_string(found: re.Match[str]) -> str:
    return found.group() if found.group().startswith('"') else ""


def _written(before: str, whole: Json) -> str:
    """The object as text, indented as it was before. Raises `FileRefused` where comments would be lost."""
    try:
        _parse(before.removeprefix(_MARK))
    except FileRefused:
        raise FileRefused("it has comments or trailing commas, which would be lost") from None
    indented = re.search(r"\n([ \t]+)", before)
    mark = _MARK if before.startswith(_MARK) else ""
    return mark + json.dumps(whole, indent=indented.group(1) if indented else 2, ensure_ascii=False) + "\n"


def read_text(path: Path) -> str | None:
    """What the file holds, with its own line ends; None when there is none.

    Raises:
        FileRefused: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileRefused(f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileRefused("it is not UTF-8 text") from error


def replace_text(path: Path, before: str | None, after: str, *, scope: Scope, is_removal: bool = False) -> Path | None:
    """Make the file hold `after`, whole or not at all; returns the backup of `before`, None for a new file.

    A symbolic link stays one: the file behind it is replaced. The file keeps its mode. No backup is written over. With
    nothing left to hold (`after` is empty) the file goes. In a project, which others share, what `setup` brought is
    all taken away again: there is no backup of a removal, and one that says what the file says now is gone.

    Raises:
        FileRefused: it cannot be written, or does not hold `before` any more.
    """
    real = Path(os.path.realpath(path))
    try:
        if read_text(real) != before:
            raise FileRefused("it was changed by another program just now: run this again")
        if before is None:
            # The project itself has to be there; what is made for a user is private.
            real.parent.mkdir(mode=0o700 if scope == "user" else 0o777, parents=scope == "user", exist_ok=True)
            write_whole(real, after.encode(), 0o644 & ~_umask() if scope == "project" else 0o600)
            return None
        mode = stat.S_IMODE(real.stat().st_mode)
        if is_removal and scope == "project":
            _remove_from_project(path, real, after, mode)
            return None
        number, backup = 1, path.with_name(f"{path.name}.bak")
        while backup.exists() and backup.read_bytes() != before.encode():
            number += 1
            backup = path.with_name(f"{path.name}.bak.{number}")
        write_whole(backup, before.encode(), mode)
        _replace_or_remove(path, real, after, mode)
    except OSError as error:
        raise FileRefused(f"it cannot be written: {error.strerror or error}") from error
    return backup


def _replace_or_remove(path: Path, real: Path, after: str, mode: int) -> None:
    if after or path.is_symlink():
        write_whole(real, (after or ("" if path.suffix == ".toml" else "{}\n")).encode(), mode)
    else:
        real.unlink()


def _remove_from_project(path: Path, real: Path, after: str, mode: int) -> None:
    """Leave a project's file without our entry, and nothing beside it that `setup` has made."""
    for backup in path.parent.glob(f"{path.name}.bak*"):
        kept = backup.read_text(encoding="utf-8", errors="replace")
        with suppress(FileRefused):
            if (_parse(kept.removeprefix(_MARK)) or {}) == (_parse(after.removeprefix(_MARK)) or {}):
                after = kept
                backup.unlink()
    _replace_or_remove(path, real, after, mode)
    if not after and path.parent.name.startswith("."):  # .cursor, .vscode, .claude
        with suppress(OSError):
            path.parent.rmdir()


def _umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present
