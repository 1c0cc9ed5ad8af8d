"""The configuration files of MCP clients: where each lies, and what makes a client start Remembrancer.

Sources: the clients' own documentation. Claude Code: `.mcp.json` in a project, `mcpServers` at the top of
`~/.claude.json` for a user, hooks in `settings.json` (https://code.claude.com/docs/en/hooks). Claude Desktop:
`claude_desktop_config.json` in its Electron directory. Cursor: `.cursor/mcp.json` in a project or in the user's home.
VS Code: `.vscode/mcp.json` with `servers`, or `mcp.json` in the user's profile.

A change is decided first (`Plan`) and carried out later (`replace_text`). Files are read and written as JSON; one with
comments is left as it is.
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
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, Literal

from remembrancer.protocol import gateway_link as link

ClientName = Literal["claude-code", "claude-desktop", "cursor", "vscode"]
Scope = Literal["project", "user"]
Action = Literal["add", "extend", "replace", "remove", "nothing", "refuse"]
State = Literal["absent", "same", "extended", "other"]
Json = dict[str, Any]

HOOKS: Final = "hooks"
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

    @property
    def applications(self) -> Path:
        """Where Electron applications keep what belongs to a user."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        named = self.environ.get("XDG_CONFIG_HOME")
        return Path(named) if named and Path(named).is_absolute() else self.home / ".config"

    @property
    def claude(self) -> Path | None:
        """The directory that the user gave Claude Code."""
        named = self.environ.get("CLAUDE_CONFIG_DIR")
        return Path(named).expanduser() if named else None


@dataclass(frozen=True, slots=True)
class Place:
    """One file that a client reads its servers from. `key` is the member of its top object that holds them."""

    client: ClientName
    scope: Scope
    path: Path
    key: str


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `says_type`: an entry says `"type": "stdio"`. `has_path`: it is started from a shell, whose PATH it
    has. `restart` is what a person does for it to see a change. `traces` show that it is installed."""

    name: ClientName
    title: str
    key: str
    says_type: bool
    has_path: bool
    restart: str
    command: str | None
    files: Callable[[Surroundings], dict[Scope, Path]]
    traces: Callable[[Surroundings], tuple[Path, ...]]

    def places(self, around: Surroundings) -> tuple[Place, ...]:
        """Its files, the project's first."""
        return tuple(Place(self.name, scope, path, self.key) for scope, path in self.files(around).items())

    def place(self, around: Surroundings, scope: Scope) -> Place | None:
        """Its file of that scope; None when it has none."""
        return next((place for place in self.places(around) if place.scope == scope), None)

    def is_found(self, around: Surroundings) -> bool:
        """Whether the client seems to be installed: its command, or what it keeps in the user's home."""
        if self.command and shutil.which(self.command, path=around.environ.get("PATH", "")):
            return True
        return any(trace.exists() for trace in self.traces(around))


CLIENTS: Final = (
    Client(
        *("claude-code", "Claude Code", "mcpServers", True, True),
        "start a new session (/mcp shows the servers)",
        "claude",
        lambda at: {"project": at.project / ".mcp.json", "user": (at.claude or at.home) / ".claude.json"},
        lambda at: ((at.claude or at.home) / ".claude.json", at.home / ".claude"),
    ),
    Client(
        *("claude-desktop", "Claude Desktop", "mcpServers", False, False),
        "quit the application and open it again",
        None,
        lambda at: {"user": at.applications / "Claude" / "claude_desktop_config.json"},
        lambda at: (at.applications / "Claude",),
    ),
    Client(
        *("cursor", "Cursor", "mcpServers", True, False),
        "switch the server on in Cursor's settings, under MCP",
        "cursor",
        lambda at: {"project": at.project / ".cursor" / "mcp.json", "user": at.home / ".cursor" / "mcp.json"},
        lambda at: (at.home / ".cursor", at.applications / "Cursor"),
    ),
    Client(
        *("vscode", "VS Code", "servers", True, False),
        "run 'MCP: List Servers' and start it there",
        "code",
        lambda at: {
            "project": at.project / ".vscode" / "mcp.json",
            "user": at.applications / "Code" / "User" / "mcp.json",
        },
        lambda at: (at.applications / "Code", at.home / ".vscode"),
    ),
)


def client_named(name: str) -> Client:
    """The client of that name. Raises KeyError."""
    return {client.name: client for client in CLIENTS}[name]  # type: ignore[index]


def hooks_place(around: Surroundings, scope: Scope) -> Place:
    """The settings that Claude Code reads hooks from."""
    directory = around.project / ".claude" if scope == "project" else around.claude or around.home / ".claude"
    return Place("claude-code", scope, directory / "settings.json", HOOKS)


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
    return json.dumps({key: wanted}, indent=2, ensure_ascii=False)


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
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that are not closed
        return False
    return any(PurePath(word).stem == COMMAND and following == "hook" for word, following in pairwise(words))


def difference(present: object, wanted: Json) -> str:
    """What would change, line by line; values of variables that may be secret are not shown."""
    before, after = (
        json.dumps(_without_secrets(each), indent=2, ensure_ascii=False).splitlines() for each in (present, wanted)
    )
    return "\n".join(list(difflib.unified_diff(before, after, "present", "wanted", lineterm="", n=99))[3:])


def is_plain(variable: str) -> bool:
    """Whether a variable's value may be shown: one of ours that holds no secret."""
    is_secret = any(word in variable for word in ("KEY", "TOKEN", "SECRET", "PASS"))
    return variable.startswith(("REMEMBRANCER_", "MEMORY_")) and not is_secret


def _without_secrets(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    shown = dict(entry)
    for name in ("env", "headers"):
        if isinstance(values := entry.get(name), Mapping):
            shown[name] = {key: value if is_plain(key) else HIDDEN for key, value in values.items()}
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


def plan_entry(client: Client, place: Place, text: str | None, name: str, wanted: Json, *, force: bool) -> Plan:
    """What makes the file start `wanted` under `name`. `text` is what the file holds, None when there is none."""
    try:
        whole, servers = _read_member(text, place.key)
        present = servers.get(name)
        state = compare(present, wanted)
        if state == "same":
            return Plan(client, place, "nothing", "is set up already", text)
        if state == "other" and not force:
            said = f"has another entry named {name!r}: --force replaces it, --name gives ours another name"
            return Plan(client, place, "refuse", said, text, difference=difference(present, wanted))
        entry = extend(present, wanted) if state == "extended" and isinstance(present, Mapping) else wanted
        after = _written(text, {**whole, place.key: {**servers, name: entry}})
    except FileRefused as refused:
        return refused_plan(client, place, text, refused, document(place.key, {name: wanted}))
    action: dict[State, tuple[Action, str]] = {
        "absent": ("add", "added"),
        "extended": ("extend", "given the variables that it lacked"),
        "other": ("replace", "replaced"),
    }
    return Plan(client, place, action[state][0], f"the entry {name!r} is {action[state][1]}", text, after)


def plan_removal(client: Client, place: Place, text: str | None, name: str, *, force: bool) -> Plan:
    """What takes our entry out of the file again."""
    try:
        whole, servers = _read_member(text, place.key)
        if servers.get(name) is None:
            return Plan(client, place, "nothing", f"has no entry named {name!r}", text)
        if not is_ours(servers[name]) and not force:
            said = f"has an entry named {name!r} that does not start Remembrancer: --force removes it all the same"
            return Plan(client, place, "refuse", said, text)
        others = {key: value for key, value in servers.items() if key != name}
        after = _written(text, {**whole, place.key: others})
    except FileRefused as refused:
        return refused_plan(client, place, text, refused, "")
    return Plan(client, place, "remove", f"the entry {name!r} is removed", text, after)


def plan_hooks(client: Client, place: Place, text: str | None, wanted: Mapping[str, Json]) -> Plan:
    """What makes every event run its command. One of ours that is there already, in another form, is replaced."""
    try:
        whole, present = _read_member(text, HOOKS)
        others = _without_ours(present)
        made = {event: [*others.get(event, []), *_wanted(wanted, event)] for event in {**present, **wanted}}
        if all(made[event] == present.get(event) or _says_the_same(present.get(event), made[event]) for event in made):
            return Plan(client, place, "nothing", "has its hooks already", text)
        after = _written(text, {**whole, HOOKS: made})
    except FileRefused as refused:
        return refused_plan(client, place, text, refused, hooks_document(wanted))
    was_there = others != present
    done = "replaced" if was_there else "added"
    return Plan(client, place, "replace" if was_there else "add", f"its hooks are {done}", text, after)


def plan_hooks_removal(client: Client, place: Place, text: str | None) -> Plan:
    """What takes our commands out again, and what is empty without them."""
    try:
        whole, present = _read_member(text, HOOKS)
        others = _without_ours(present)
        if others == present:
            return Plan(client, place, "nothing", "has no hooks of ours", text)
        left = {event: groups for event, groups in others.items() if groups or not present[event]}
        rest = {key: value for key, value in whole.items() if key != HOOKS or left}
        after = _written(text, {**rest, HOOKS: left} if left else rest)
    except FileRefused as refused:
        return refused_plan(client, place, text, refused, "")
    return Plan(client, place, "remove", "its hooks are removed", text, after)


def hooks_document(wanted: Mapping[str, Json]) -> str:
    """A whole file with our hooks alone."""
    return document(HOOKS, {event: [group] for event, group in wanted.items()})


def refused_plan(client: Client, place: Place, text: str | None, refused: FileRefused, paste: str) -> Plan:
    """A file that is left as it is, with what a person would put in."""
    return Plan(client, place, "refuse", f"is left as it is: {refused.reason}", text, paste=paste)


def _wanted(wanted: Mapping[str, Json], event: str) -> list[Json]:
    return [wanted[event]] if event in wanted else []


def _says_the_same(present: object, made: list[Any]) -> bool:
    """Whether the groups are those, in whatever order."""
    return isinstance(present, list) and len(present) == len(made) and all(group in present for group in made)


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


def parse_with_comments(text: str) -> Json:
    """The object that a text holds, comments and trailing commas left out; an empty text holds an empty one.

    Raises:
        FileRefused: it is no JSON, holds something else than an object, or names a key twice.
    """
    return _parse(_LAST_COMMAS.sub(_kept_if_string, _COMMENTS.sub(_kept_if_string, text.removeprefix(_MARK))))


def _read_member(text: str | None, key: str) -> tuple[Json, Json]:
    """The whole object of a file, and its member `key`."""
    whole = parse_with_comments(text or "")
    member = whole.get(key, {})
    if not isinstance(member, dict):
        raise FileRefused(f"its member {key!r} is not a JSON object")
    return whole, member


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


def _written(before: str | None, whole: Json) -> str:
    """The object as text, indented as it was before. Raises `FileRefused` where comments would be lost."""
    text = before or ""
    try:
        _parse(text.removeprefix(_MARK))
    except FileRefused:
        raise FileRefused("it has comments or trailing commas, which would be lost") from None
    indented = re.search(r"\n([ \t]+)", text)
    mark = _MARK if text.startswith(_MARK) else ""
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


def replace_text(path: Path, before: str | None, after: str, *, scope: Scope) -> Path | None:
    """Make the file hold `after`, whole or not at all; returns the backup of `before`, None for a new file.

    A symbolic link stays one: the file behind it is replaced. The file keeps its mode. No backup is written over.

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
            _replace(real, after, 0o644 & ~_umask() if scope == "project" else 0o600)
            return None
        mode = stat.S_IMODE(real.stat().st_mode)
        number, backup = 1, path.with_name(f"{path.name}.bak")
        while backup.exists() and backup.read_bytes() != before.encode():
            number += 1
            backup = path.with_name(f"{path.name}.bak.{number}")
        _replace(backup, before, mode)
        _replace(real, after, mode)
    except OSError as error:
        raise FileRefused(f"it cannot be written: {error.strerror or error}") from error
    return backup


def _replace(path: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(text.encode())
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present
