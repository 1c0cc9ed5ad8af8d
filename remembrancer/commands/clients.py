"""Changes the configuration files of MCP clients so that a client starts Remembrancer.

The clients are a table, `clients.toml`. A change is planned first (`Plan`) and made later (`replace_text`). JSON and
YAML files with comments are left alone; in a TOML file only our own tables are rewritten, and in a file of instructions
only our own block.
"""

from __future__ import annotations

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
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple

import msgspec
import tomlkit
import yaml

from remembrancer.protocol import gateway_link as link
from remembrancer.protocol.paths import write_whole

ClientScope = Literal["project", "user"]
Action = Literal["add", "extend", "replace", "remove", "nothing", "refuse"]
Json = dict[str, Any]

HOOKS: Final = "hooks"
HOOK_TIMEOUT_S: Final = 10
TOOL_EVENTS: Final = (link.TOOL_BEGINS, link.TOOL_DONE, link.TOOL_FAILED)
COMMAND: Final = "remembrancer"
ONE_RUN: Final = (
    *(("uv", "archive-v0"), ("uv", "builds-v0"), ("uv", "environments-v2")),
    *(("pipx", ".cache"), (".cache", "pipx")),
)
"""Adjacent parts of paths under which uvx and pipx keep environments for a single run."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/folders", "/dev/shm")  # noqa: S108 - to keep away
_STRING: Final = r'"(?:\\.|[^"\\])*"'
_COMMENTS: Final = re.compile(_STRING + r"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMAS: Final = re.compile(_STRING + r"|,(?=\s*[}\]])")
_YAML_COMMENT: Final = re.compile(r"(?:^|\s)#")
"""Also matches inside a string: leaving one file too many alone is the safer error."""
_BLOCK: Final = re.compile(r"\n*<!-- remembrancer -->.*?<!-- /remembrancer -->\n?", re.DOTALL)
RULES: Final = """<!-- remembrancer -->
Long-term memory is served by the MCP server `remembrancer`. Call `recall_memories` before a decision that may have been
made already and when earlier work is spoken of. Call `store_memory` when the user states a preference or corrects you,
and when a decision, the cause of a fault or a procedure is settled: one fact each, understandable without this
conversation; `scope` is `project`, or `user` for what holds everywhere. Never store credentials.
<!-- /remembrancer -->
"""
_ALWAYS: Final = "---\nalwaysApply: true\n---\n"
"""The front matter of a Cursor rule that applies to every request."""


class FileRefused(Exception):
    """A client's file cannot be read, written or changed safely, for this `reason`. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- the clients and their files ---


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts that determine the clients' paths: the user's home, the environment, the platform, the project."""

    home: Path
    environ: Mapping[str, str]
    platform: str
    project: Path

    @classmethod
    def here(cls, environ: Mapping[str, str], project: Path) -> Surroundings:
        """The facts of this process. `project` is made absolute."""
        return cls(Path.home(), environ, sys.platform, project.absolute())

    def path(self, template: str) -> Path:
        """The path that a template stands for. Its fields are `{home}`, `{project}`, `{config}` (XDG's),
        `{applications}` (where Electron keeps user data), `{claude}` (the settings directory of Claude Code),
        `{claude_home}` (the directory of its own file), `{codex}` and `{copilot}`."""
        named, claude = self.environ.get("XDG_CONFIG_HOME", ""), self.environ.get("CLAUDE_CONFIG_DIR")
        config = Path(named) if Path(named).is_absolute() else self.home / ".config"
        is_mac = self.platform == "darwin"
        chosen = Path(claude).expanduser() if claude else None
        places = {"claude": chosen or self.home / ".claude", "claude_home": chosen or self.home, "config": config}
        places["applications"] = self.home / "Library" / "Application Support" if is_mac else config
        for name in ("codex", "copilot"):
            places[name] = Path(self.environ.get(f"{name.upper()}_HOME") or self.home / f".{name}").expanduser()
        return Path(template.format(home=self.home, project=self.project, **places))


class ClientFile(NamedTuple):
    """A file from which a client reads its servers or hooks, in the top-level member `key`. A file of instructions has
    no such member."""

    scope: ClientScope
    path: Path
    key: str


class Client(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One client: a row of `clients.toml`, where each field is explained."""

    name: str
    title: str
    files: dict[ClientScope, str]
    traces: tuple[str, ...]
    restart: str
    key: str = "mcpServers"
    more: Json = {}
    words: tuple[str, str, str] = ("command", "args", "env")
    rules: dict[ClientScope, str] = {}
    hooks: dict[ClientScope, str] = {}
    hooks_of: str | None = None
    events: dict[str, str] = {}
    flat: bool = False
    command: str | None = None
    has_path: bool = False

    def places(self, around: Surroundings) -> tuple[ClientFile, ...]:
        """The files with its servers, the project's first."""
        return tuple(ClientFile(scope, around.path(file), self.key) for scope, file in self.files.items())

    def place(self, around: Surroundings, scope: ClientScope) -> ClientFile | None:
        """The file with its servers in that scope; None if there is none."""
        return next((place for place in self.places(around) if place.scope == scope), None)

    def hooks_place(self, around: Surroundings, scope: ClientScope) -> ClientFile | None:
        """The file with its hooks; None if there is none."""
        return ClientFile(scope, around.path(self.hooks[scope]), HOOKS) if scope in self.hooks else None

    def rules_place(self, around: Surroundings, scope: ClientScope) -> ClientFile | None:
        """The file with its instructions; None if there is none."""
        return ClientFile(scope, around.path(self.rules[scope]), "") if scope in self.rules else None

    def is_found(self, around: Surroundings) -> bool:
        """True if the client seems to be installed, by its command or its traces in the user's home."""
        if self.command and shutil.which(self.command, path=around.environ.get("PATH", "")):
            return True
        return any(around.path(trace).exists() for trace in self.traces)

    def started_by(self, entry: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
        """The command line of an entry, empty if it has none, and its environment variables."""
        command, args, env = (entry.get(word) for word in self.words)
        words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]
        is_line = all(isinstance(word, str) for word in words)
        return words if is_line else [], env if isinstance(env, Mapping) else {}


@cache
def clients() -> tuple[Client, ...]:
    """All known clients."""
    text = Path(__file__).with_suffix(".toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[Literal["clients"], tuple[Client, ...]])["clients"]


def client_named(name: str) -> Client:
    """The client of that name. Raises KeyError."""
    return {client.name: client for client in clients()}[name]


def own_command(program: str, interpreter: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of `mcp`, from this process's `sys.argv[0]`, `sys.executable` and environment.

    The program itself if it is the installed command (by the name used: a link in the user's `bin` outlives its
    target), else the command beside the interpreter, else the one on the PATH, else the interpreter with the module.
    Permanent places come before temporary ones.
    """
    on_path = shutil.which(COMMAND, path=environ.get("PATH", ""))
    candidates = [Path(program)] if Path(program).name == COMMAND else []
    candidates += [Path(interpreter).parent / COMMAND, *([Path(on_path)] if on_path else [])]
    usable = [candidate.absolute() for candidate in candidates if candidate.is_file() and os.access(candidate, os.X_OK)]
    for each in sorted(usable, key=is_temporary):  # a stable sort keeps the order among the permanent ones
        return (str(each), "mcp")
    return (interpreter, "-P", "-m", COMMAND, "mcp")


def is_temporary(path: Path) -> bool:
    """True if a path is made for a single run, or lasts only until the machine restarts."""
    return any(
        not set(pairwise(each.parts)).isdisjoint(ONE_RUN) or any(each.is_relative_to(root) for root in TEMPORARY)
        for each in (path, Path(os.path.realpath(path)))
    )


# --- what a file should say ---


def make_entry(client: Client, command: tuple[str, ...], environ: Mapping[str, str]) -> Json:
    """The entry with which `client` starts `command`."""
    named, args, env = client.words
    line: Json = {named: command[0], args: list(command[1:])} if args else {named: list(command)}
    return {**client.more, **line, **({env: dict(environ)} if environ else {})}


def make_groups(client: Client, command: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, Json]:
    """Our group of commands for each of its hook events. `command` is the command line before `hook`."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
    start = " ".join([*variables, shlex.join([*command, "hook"])])
    is_claude = client.name == "claude-code"
    groups: dict[str, Json] = {}
    for event, name in client.events.items():
        line = f"{start} {name}" if is_claude else f"{start} {name} {client.name}"
        # Clients differ in the unit of a timeout; their defaults are long enough.
        run = {"type": "command", "command": line, **({"timeout": HOOK_TIMEOUT_S} if is_claude else {})}
        groups[name] = {"command": line} if client.flat else {"hooks": [run]}
        if event in TOOL_EVENTS and not client.flat:
            groups[name] = {"matcher": "*", **groups[name]}
    return groups


def _document(place: ClientFile, wanted: Mapping[str, object]) -> str:
    """A whole file with nothing but our entries (or hooks)."""
    return _written(place, "", {place.key: dict(wanted)}).rstrip()


def is_ours(client: Client, entry: object) -> bool:
    """True if an entry starts Remembrancer, judged by its command or a module in its arguments."""
    line = client.started_by(entry)[0] if isinstance(entry, Mapping) else []
    return any(PurePath(word).stem == COMMAND for word in line)


def is_our_command(command: object) -> bool:
    """True if a hook's command runs `remembrancer hook`."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # unbalanced quotes
        return False
    return any(PurePath(word).stem == COMMAND and following == "hook" for word, following in pairwise(words))


# --- a change, decided ---


@dataclass(frozen=True, slots=True)
class Plan:
    """The change of one file. `after` is None if nothing changes; `said` describes it; `paste` is the text for a change
    by hand."""

    client: Client
    place: ClientFile
    action: Action
    said: str
    before: str | None
    after: str | None = None
    paste: str = ""
    wrote: bool = False
    """True if the file was changed."""

    def refused(self, reason: str) -> Plan:
        """The plan that leaves the file as it is."""
        return replace(self, action="refuse", said=f"is unchanged: {reason}", after=None)

    def carry_out(self, root: Path) -> Plan:
        """Change the file. Returns the plan as it was carried out; a refusal if the file cannot be changed.

        After a removal, directories below `root` that are empty are deleted: setup may have made them, and finds
        clients by them.
        """
        if self.after is None:
            return self
        try:
            replace_text(self.place.path, self.before, self.after, scope=self.place.scope)
        except FileRefused as error:
            return self.refused(error.reason)
        if self.action == "remove" and not self.after:
            with suppress(OSError):  # the first one that has something else
                for directory in self.place.path.parents:
                    if directory == root or not directory.is_relative_to(root):
                        break
                    directory.rmdir()
        return replace(self, wrote=True)


def plan_of(edit: Callable[[str | None], Plan], path: Path) -> Plan:
    """The plan of an edit for a file as it is now."""
    try:
        return edit(read_text(path))
    except FileRefused as error:
        return edit(None).refused(error.reason)


class _Change(NamedTuple):
    """The change of a file's member; None leaves it as it is. An empty member is removed."""

    action: Action
    said: str
    member: Json | None = None


def plan_entry(client: Client, place: ClientFile, text: str | None, name: str, wanted: Json, *, force: bool) -> Plan:
    """The plan that makes the file start `wanted` under `name`. `text` is the content of the file, None if it does not
    exist."""

    def change(servers: Json) -> _Change:
        present, env = servers.get(name), client.words[2]
        if present is None:
            return _Change("add", f"the entry {name!r} is added", {**servers, name: wanted})
        line, environ = client.started_by(present) if isinstance(present, Mapping) else ([], {})
        if isinstance(present, Mapping) and line == client.started_by(wanted)[0]:
            merged = {**environ, **wanted.get(env, {})}
            if merged == environ:
                return _Change("nothing", "already set up")
            message = f"the missing variables are added to the entry {name!r}"
            return _Change("extend", message, {**servers, name: {**present, env: merged}})
        if force:
            return _Change("replace", f"the entry {name!r} is replaced", {**servers, name: wanted})
        starts = f", which starts {shlex.join(line)}" if line else ""
        message = f"has another entry named {name!r}{starts}: --force replaces it, --name gives ours another name"
        return _Change("refuse", message)

    return _plan(client, place, text, change, _document(place, {name: wanted}))


def plan_removal(client: Client, place: ClientFile, text: str | None, name: str, *, force: bool) -> Plan:
    """The plan that removes our entry from the file."""

    def change(servers: Json) -> _Change:
        if servers.get(name) is None:
            return _Change("nothing", f"has no entry named {name!r}")
        if not is_ours(client, servers[name]) and not force:
            message = f"has an entry named {name!r} that does not start Remembrancer: --force removes it anyway"
            return _Change("refuse", message)
        others = {key: value for key, value in servers.items() if key != name}
        return _Change("remove", f"the entry {name!r} is removed", others)

    return _plan(client, place, text, change)


def plan_hooks(client: Client, place: ClientFile, text: str | None, wanted: Mapping[str, Json]) -> Plan:
    """The plan that makes every event run its command. Earlier forms of our commands are replaced."""

    def change(present: Json) -> _Change:
        others = _without_ours(present)
        made: Json = {event: [*others.get(event, [])] for event in {**present, **wanted}}
        for event, group in wanted.items():
            made[event].append(group)
        if made.keys() == present.keys() and all(
            sorted(map(repr, present[event])) == sorted(map(repr, made[event])) for event in made
        ):
            return _Change("nothing", "already has the hooks")
        if others == present:
            return _Change("add", "the hooks are added", made)
        return _Change("replace", "the hooks are replaced", made)

    document = _document(place, {event: [group] for event, group in wanted.items()})
    return _plan(client, place, text, change, document)


def plan_hooks_removal(client: Client, place: ClientFile, text: str | None) -> Plan:
    """The plan that removes our commands, and groups that are empty without them."""

    def change(present: Json) -> _Change:
        others = _without_ours(present)
        if others == present:
            return _Change("nothing", "has no Remembrancer hooks")
        remaining = {event: groups for event, groups in others.items() if groups or not present[event]}
        return _Change("remove", "the hooks are removed", remaining)

    return _plan(client, place, text, change)


def plan_rules(client: Client, place: ClientFile, text: str | None, *, remove: bool) -> Plan:
    """The plan that adds our block to a file of instructions, or removes it."""
    head = _ALWAYS if place.path.suffix == ".mdc" else ""
    others = _BLOCK.sub("\n", text or "")
    is_empty = others.strip() in ("", head.strip())
    if remove:
        if text is None or others == text:
            return Plan(client, place, "nothing", "has no Remembrancer block", text)
        message = "the block for the assistant is removed"
        return Plan(client, place, "remove", message, text, "" if is_empty else others)
    after = head + RULES if is_empty else f"{others.rstrip()}\n\n{RULES}"
    plan = Plan(client, place, "add", "the block for the assistant is added", text, after, RULES.rstrip())
    return replace(plan, action="nothing", said="already has the block", after=None) if text == after else plan


def _plan(
    client: Client, place: ClientFile, text: str | None, change: Callable[[Json], _Change], paste: str = ""
) -> Plan:
    """The plan for a change of a file's member."""
    plan = Plan(client, place, "nothing", "", text, paste=paste)
    try:
        content = _parsed(place, text or "")
        member = content.get(place.key, {})
        if not isinstance(member, dict):
            raise FileRefused(f"its member {place.key!r} is not an object")
        done = change(member)
        if done.member is None:
            return replace(plan, action=done.action, said=done.said, paste="")
        plan = replace(plan, action=done.action, said=done.said)
        content[place.key] = done.member
        own = {"version"} if client.flat and place.key == HOOKS else set()
        for name in own:
            content.setdefault(name, 1)
        if done.action == "remove" and not done.member:
            del content[place.key]
        is_empty = done.action == "remove" and content.keys() <= own
        return replace(plan, after="" if is_empty else _written(place, text or "", content))
    except FileRefused as error:
        return plan.refused(error.reason)


def _without_ours(present: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The groups of each event without our commands. Groups with nothing else are removed."""
    remaining: dict[str, list[Any]] = {}
    for event, groups in present.items():
        if not isinstance(groups, list):
            raise FileRefused(f"its hooks for the event {event} are not a list")
        remaining[event] = []
        for group in groups:
            if _runs_ours(group):
                continue
            commands = group.get("hooks") if isinstance(group, Mapping) else None
            others = (
                [command for command in commands if not _runs_ours(command)] if isinstance(commands, list) else commands
            )
            if others == commands:
                remaining[event].append(group)
            elif others:
                remaining[event].append({**group, "hooks": others})
    return remaining


def _runs_ours(entry: object) -> bool:
    return isinstance(entry, Mapping) and is_our_command(entry.get("command"))


# --- the text of a file ---


def read_object(place: ClientFile) -> Json:
    """The object in a file, empty if the file does not exist. Raises `FileRefused`."""
    return _parsed(place, read_text(place.path) or "")


def _parsed(place: ClientFile, text: str) -> Json:
    match place.path.suffix:
        case ".toml":
            return _parse_toml(text)
        case ".yaml":
            return _parse_yaml(text)
    return parse_with_comments(text)


def _written(place: ClientFile, before: str, content: Json) -> str:
    match place.path.suffix:
        case ".toml":
            return _written_toml(before, content, place.key)
        case ".yaml":
            return _written_yaml(before, content)
    return _written_json(before, content)


def _parse_toml(text: str) -> Json:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileRefused(f"it is not valid TOML: {error}") from error


def _written_toml(before: str, content: Json, key: str) -> str:
    """The text with only the changed servers rewritten."""
    file, wanted = tomlkit.parse(before), content.get(key, {})
    servers = file.setdefault(key, tomlkit.table(is_super_table=True))
    for name in {**servers, **wanted}:
        if name not in wanted:
            del servers[name]
        elif servers.get(name) != wanted[name]:
            servers[name] = wanted[name]
    if not servers:
        del file[key]
    after = tomlkit.dumps(file)
    if {key: {}, **_parse_toml(after)} != {key: {}, **content}:
        raise FileRefused("it cannot be changed without changing something else")
    return after


def _parse_yaml(text: str) -> Json:
    try:
        content = yaml.safe_load(text) if text.strip() else {}
    except (yaml.YAMLError, RecursionError) as error:
        raise FileRefused(f"it is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise FileRefused("it does not hold a mapping")
    return content


def _written_yaml(before: str, content: Json) -> str:
    """The mapping as text. Raises `FileRefused` if comments would be lost."""
    if any(_YAML_COMMENT.search(line) for line in before.splitlines()):
        raise FileRefused("it has comments, which would be lost")
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def parse_with_comments(text: str) -> Json:
    """The object in a text, ignoring comments and trailing commas; an empty text holds an empty object.

    Raises:
        FileRefused: it is not JSON, holds something other than an object, or has a duplicate key.
    """
    return _parse(_LAST_COMMAS.sub(_kept_if_string, _COMMENTS.sub(_kept_if_string, text)))


def _parse(text: str) -> Json:
    if not text.strip():
        return {}
    try:
        content = json.loads(text, object_pairs_hook=_no_key_twice)
    except RecursionError as error:
        raise FileRefused("it is nested too deeply") from error
    except ValueError as error:
        raise FileRefused(f"it is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise FileRefused("it does not hold a JSON object")
    return content


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise FileRefused("it has a key twice")
    return members


def _kept_if_string(match: re.Match[str]) -> str:
    return match.group() if match.group().startswith('"') else ""


def _written_json(before: str, content: Json) -> str:
    """The object as text, indented as before. Raises `FileRefused` if comments would be lost."""
    try:
        _parse(before)
    except FileRefused:
        raise FileRefused("it has comments or trailing commas, which would be lost") from None
    indented = re.search(r"\n([ \t]+)", before)
    return json.dumps(content, indent=indented.group(1) if indented else 2, ensure_ascii=False) + "\n"


def read_text(path: Path) -> str | None:
    """The content of the file with its own line ends; None if it does not exist.

    Raises:
        FileRefused: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")  # some editors begin a file with a mark
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileRefused(f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileRefused("it is not UTF-8 text") from error


def replace_text(path: Path, before: str | None, after: str, *, scope: ClientScope) -> None:
    """Replace the content of the file by `after`, as a whole or not at all. An empty `after` deletes it.

    A symbolic link stays one: its target is replaced. The file keeps its mode.

    Raises:
        FileRefused: it cannot be written, or no longer holds `before`.
    """
    real = Path(os.path.realpath(path))
    try:
        if read_text(real) != before:
            raise FileRefused("another program has just changed it: run this again")
        if before is None:
            # A new file in a user's home is private.
            real.parent.mkdir(mode=0o700 if scope == "user" else 0o777, parents=True, exist_ok=True)
            write_whole(real, after.encode(), 0o644 & ~_umask() if scope == "project" else 0o600)
        elif after or path.is_symlink():
            text = after or ("{}\n" if path.suffix == ".json" else "")
            write_whole(real, text.encode(), stat.S_IMODE(real.stat().st_mode))
        else:
            real.unlink()
    except OSError as error:
        raise FileRefused(f"it cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present
