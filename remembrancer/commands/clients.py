"""Changes the configuration files of MCP clients (`clients.toml`) so that a client starts Remembrancer. JSON and YAML
files with comments are left alone; in other files, only our own entries, tables and blocks are changed."""

import json
import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec
import tomlkit
import yaml

from remembrancer.protocol.paths import write_whole

ClientScope = Literal["project", "user"]
ClientPart = Literal["entry", "hooks", "rules"]
Json = dict[str, Any]

HOOK_TIMEOUT_S: Final = 10
TOOL_EVENTS: Final = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
COMMAND: Final = "remembrancer"
_YAML_COMMENT: Final = re.compile(r"(?:^|\s)#")
"""Also matches inside a string: leaving a file alone unnecessarily is the safer error."""
_BLOCK: Final = re.compile(r"\n*<!-- remembrancer -->.*?<!-- /remembrancer -->\n?", re.DOTALL)
RULES: Final = """<!-- remembrancer -->
Long-term memory is served by the MCP server `remembrancer`. Call `recall_memories` before a decision that may have been
made already and when earlier work is mentioned. Call `store_memory` when the user states a preference or corrects you,
and when a decision, the cause of a fault or a procedure is settled: one fact each, understandable without this
conversation; `scope` is `project`, or `user` for what holds everywhere. Never store credentials.
<!-- /remembrancer -->
"""
_ALWAYS: Final = "---\nalwaysApply: true\n---\n"
"""The front matter of a Cursor rule that applies to every request."""


class FileRefused(Exception):
    """Raised when a client's file cannot be read, written or changed safely, with the reason. Nothing was changed."""


# --- the clients and their files ---


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The facts that determine the clients' paths: the user's home, the environment, the platform and the project."""

    home: Path
    environ: Mapping[str, str]
    platform: str
    project: Path

    @classmethod
    def here(cls, environ: Mapping[str, str], project: Path) -> Self:
        return cls(Path.home(), environ, sys.platform, project.absolute())

    def path(self, template: str) -> Path:
        """Fill in the fields of a template, such as `{home}`, `{config}` (XDG's), `{applications}` (Electron's user
        data), and `{claude_home}` (the directory of Claude Code's own file)."""
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
    """A file from which a client reads its servers or hooks (in the top-level member `key`), or its instructions."""

    scope: ClientScope
    part: ClientPart
    path: Path
    key: str = ""


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
    events: dict[str, str] = {}
    flat: bool = False
    command: str | None = None
    has_path: bool = False

    def places(self, around: ClientEnvironment) -> tuple[ClientFile, ...]:
        return tuple(place for scope in self.files if (place := self.place(around, scope)))

    def place(self, around: ClientEnvironment, scope: ClientScope, part: ClientPart = "entry") -> ClientFile | None:
        files = {"entry": self.files, "hooks": self.hooks, "rules": self.rules}[part]
        key = self.key if part == "entry" else part
        return ClientFile(scope, part, around.path(files[scope]), key) if scope in files else None

    def is_found(self, around: ClientEnvironment) -> bool:
        if self.command and shutil.which(self.command, path=around.environ.get("PATH", "")):
            return True
        paths = map(around.path, self.traces)
        return any(path.is_file() or any(path.glob("*")) for path in paths)  # setup leaves directories empty

    def started_by(self, entry: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
        command, args, env = (entry.get(word) for word in self.words)
        words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]
        is_line = all(isinstance(word, str) for word in words)
        return words if is_line else [], env if isinstance(env, Mapping) else {}


@cache
def clients() -> tuple[Client, ...]:
    text = Path(__file__).with_suffix(".toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[Literal["clients"], tuple[Client, ...]])["clients"]


def client_named(name: str) -> Client:
    return {client.name: client for client in clients()}[name]


def own_command(program: str, interpreter: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Keep the name by which the command was called, since a link in the user's `bin` outlives its target."""
    candidates = [program] if Path(program).name == COMMAND else []
    for candidate in (*candidates, str(Path(interpreter).parent / COMMAND), COMMAND):
        if found := shutil.which(candidate, path=environ.get("PATH", "")):
            return (str(Path(found).absolute()), "mcp")
    return (interpreter, "-P", "-m", COMMAND, "mcp")


# --- our part of a file ---


def is_ours(client: Client, entry: object) -> bool:
    line = client.started_by(entry)[0] if isinstance(entry, Mapping) else []
    return any(PurePath(word).stem == COMMAND for word in line)


def is_our_command(command: object) -> bool:
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # unbalanced quotes
        return False
    return any(PurePath(word).stem == COMMAND and following == "hook" for word, following in pairwise(words))


def our_entries(client: Client, place: ClientFile, around: ClientEnvironment) -> list[tuple[str, Mapping[str, object]]]:
    """Our entries in a client's file. Raises `FileRefused` if it cannot be read."""
    content = _parsed(place, read_text(place.path))
    lists = [content.get(place.key)]
    projects = content.get("projects")
    if client.name == "claude-code" and isinstance(projects, Mapping):  # this user's servers in this project
        own = projects.get(str(around.project))
        lists.append(own.get(place.key) if isinstance(own, Mapping) else None)
    servers = [item for entries in lists if isinstance(entries, Mapping) for item in entries.items()]
    return [(name, entry) for name, entry in servers if isinstance(entry, Mapping) and is_ours(client, entry)]


def merge(
    client: Client, place: ClientFile, text: str, command: Sequence[str] | None, environ: Mapping[str, str]
) -> str:
    """The text of a client's file with our entry, which runs `command` (the command line of `mcp`). With None, the
    entry is removed; the result is empty if nothing else is left. Raises `FileRefused` if the file cannot be changed
    safely, or an entry with our name starts something else."""
    if place.part == "rules":
        return _with_block(place, text, remove=command is None)
    content = _parsed(place, text)
    member = content.get(place.key, {})
    if not isinstance(member, dict):
        raise FileRefused(f"its member {place.key!r} is not an object")
    change = _entry if place.part == "entry" else _hooks
    changes = change(client, member, command, environ)
    merged = {name: value for name, value in {**member, **changes}.items() if name not in changes or value is not None}
    if merged == member:
        return text
    after = {**content, place.key: merged}
    is_versioned = client.flat and place.part == "hooks"
    if not merged:
        del after[place.key]
        if not after or (is_versioned and after.keys() == {"version"}):
            return ""
    elif is_versioned:
        after = {"version": 1, **after}
    written = _written(place, text, after, changes)
    if _parsed(place, written) != after:
        raise FileRefused("it cannot be changed without changing something else")
    return written


def _entry(client: Client, member: Json, command: Sequence[str] | None, environ: Mapping[str, str]) -> Json:
    """An existing entry keeps its other members, and its arguments if it starts the same command."""
    present = member.get(COMMAND)
    if present is not None and not is_ours(client, present):
        raise FileRefused(f"its entry {COMMAND!r} starts something else")
    if command is None:
        return {COMMAND: None}
    named, args, env = client.words
    words = {named: command[0], args: list(command[1:])} if args else {named: list(command)}
    present = present or {}
    before, variables = client.started_by(present)
    wanted, both = {**client.more, **words}, {**variables, **environ}
    entry = {**wanted, **present} if before[:1] == [command[0]] else {**present, **wanted}
    return {COMMAND: {**entry, **({env: both} if both else {})}}


def _hooks(client: Client, member: Json, command: Sequence[str] | None, environ: Mapping[str, str]) -> Json:
    """The groups of commands for each event. Ours replace our earlier ones, and None removes an event."""
    ours: Json = {}
    if command is not None:
        variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
        start = " ".join([*variables, shlex.join([*command[:-1], "hook"])])
        is_claude = client.name == "claude-code"
        for event, name in client.events.items():
            line = f"{start} {name}" if is_claude else f"{start} {name} {client.name}"
            # Clients differ in the unit of a timeout; their defaults are long enough.
            run = {"type": "command", "command": line, **({"timeout": HOOK_TIMEOUT_S} if is_claude else {})}
            matcher = {"matcher": "*"} if event in TOOL_EVENTS else {}
            ours[name] = {"command": line} if client.flat else {**matcher, "hooks": [run]}
    events: Json = {}
    for event in {**member, **ours}:
        groups = member.get(event, [])
        if not isinstance(groups, list):
            raise FileRefused(f"its hooks for the event {event} are not a list")
        others = [group for group in groups if not _is_our_group(group)]
        events[event] = [*others, *([ours[event]] if event in ours else [])] or (None if groups else [])
    return events


def _is_our_group(group: object) -> bool:
    if not isinstance(group, Mapping):
        return False
    commands = group.get("hooks", [group])
    return bool(isinstance(commands, list) and commands) and all(
        isinstance(command, Mapping) and is_our_command(command.get("command")) for command in commands
    )


def _with_block(place: ClientFile, text: str, *, remove: bool) -> str:
    head = _ALWAYS if place.path.suffix == ".mdc" else ""
    others = _BLOCK.sub("\n", text)
    is_empty = others.strip() in ("", head.strip())
    if remove:
        return "" if is_empty and others != text else others
    return head + RULES if is_empty else f"{others.rstrip()}\n\n{RULES}"


def _written(place: ClientFile, text: str, content: Json, changes: Json) -> str:
    match place.path.suffix:
        case ".toml":
            file = tomlkit.parse(text)
            member = file.setdefault(place.key, tomlkit.table(is_super_table=True))
            for name, value in changes.items():
                if value is None:
                    del member[name]
                else:
                    member[name] = value
            if place.key not in content:
                del file[place.key]
            written = tomlkit.dumps(file)
            # tomlkit adds a blank line before a table, which remains when the last table is deleted.
            return written if text.endswith("\n\n") else f"{written.rstrip()}\n"
        case ".yaml":
            if any(_YAML_COMMENT.search(line) for line in text.splitlines()):
                raise FileRefused("it has comments, which would be lost")
            return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        case _:
            indented = re.search(r"\n([ \t]+)", text)
            end = "" if text.strip() and not text.endswith("\n") else "\n"
            return json.dumps(content, indent=indented.group(1) if indented else 2, ensure_ascii=False) + end


def _parsed(place: ClientFile, text: str) -> Json:
    try:
        match place.path.suffix:
            case ".toml":
                content = tomllib.loads(text)
            case ".yaml":
                content = yaml.safe_load(text) or {}
            case _:
                content = json.loads(text if text.strip() else "{}")
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        kind = {".toml": "TOML", ".yaml": "YAML"}.get(place.path.suffix, "JSON without comments")
        raise FileRefused(f"it is not valid {kind}: {error}") from error
    if not isinstance(content, dict):
        raise FileRefused("it does not contain an object")
    return content


# --- files ---


def read_text(path: Path) -> str:
    """The content of a file, with its line endings unchanged; empty if it does not exist. Raises `FileRefused`."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # some editors add a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileRefused(f"it cannot be read: {error}") from error


def write_text(place: ClientFile, text: str) -> None:
    """Replace a file (or a link's target) atomically; an empty text deletes it. Raises `FileRefused`."""
    real = Path(os.path.realpath(place.path))
    try:
        if not text:
            place.path.unlink(missing_ok=True)
            return
        real.parent.mkdir(parents=True, exist_ok=True)
        new = 0o600 if place.scope == "user" else 0o644
        write_whole(real, text.encode(), stat.S_IMODE(real.stat().st_mode) if real.exists() else new)
    except OSError as error:
        raise FileRefused(f"it cannot be written: {error.strerror or error}") from error
