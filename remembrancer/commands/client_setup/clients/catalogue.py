"""The clients that are known: where each keeps its MCP servers, and in which form. Pure, but for looking whether it is
there.

Sources: the clients' own documentation. Claude Code: `.mcp.json` in a project, `mcpServers` at the top of
`~/.claude.json` for a user. Claude Desktop: `claude_desktop_config.json` in its Electron directory. Cursor:
`.cursor/mcp.json` in a project or in the user's home. VS Code: `.vscode/mcp.json` with `servers`, or `mcp.json` in the
user's profile.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ClientName = Literal["claude-code", "claude-desktop", "cursor", "vscode"]
Scope = Literal["project", "user"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the places depend on: the user's home, the machine's habits, the project."""

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
    has. `restart` is what a person does for it to see a change."""

    name: ClientName
    title: str
    key: str
    says_type: bool
    has_path: bool
    restart: str

    def places(self, around: Surroundings) -> tuple[Place, ...]:
        """Its files, the project's first."""
        return tuple(Place(self.name, scope, path, self.key) for scope, path in _files(self.name, around).items())

    def place(self, around: Surroundings, scope: Scope) -> Place | None:
        """Its file of that scope; None when it has none."""
        return next((place for place in self.places(around) if place.scope == scope), None)

    def is_found(self, around: Surroundings) -> bool:
        """Whether the client seems to be installed: its command, or what it keeps in the user's home."""
        command = _COMMANDS.get(self.name)
        if command and shutil.which(command, path=around.environ.get("PATH", "")):
            return True
        return any(trace.exists() for trace in _traces(self.name, around))


CLIENTS: Final = (
    Client("claude-code", "Claude Code", "mcpServers", True, True, "start a new session (/mcp shows the servers)"),
    Client("claude-desktop", "Claude Desktop", "mcpServers", False, False, "quit the application and open it again"),
    Client("cursor", "Cursor", "mcpServers", True, False, "switch the server on in Cursor's settings, under MCP"),
    Client("vscode", "VS Code", "servers", True, False, "run 'MCP: List Servers' and start it there"),
)
_COMMANDS: Final[Mapping[ClientName, str]] = {"claude-code": "claude", "cursor": "cursor", "vscode": "code"}


def client_named(name: str) -> Client:
    """The client of that name. Raises KeyError."""
    return {client.name: client for client in CLIENTS}[name]  # type: ignore[index]


def _files(name: ClientName, around: Surroundings) -> dict[Scope, Path]:
    match name:
        case "claude-code":
            return {"project": around.project / ".mcp.json", "user": _claude_directory(around) / ".claude.json"}
        case "claude-desktop":
            return {"user": around.applications / "Claude" / "claude_desktop_config.json"}
        case "cursor":
            return {
                "project": around.project / ".cursor" / "mcp.json",
                "user": around.home / ".cursor" / "mcp.json",
            }
        case "vscode":
            return {
                "project": around.project / ".vscode" / "mcp.json",
                "user": around.applications / "Code" / "User" / "mcp.json",
            }


def _claude_directory(around: Surroundings) -> Path:
    named = around.environ.get("CLAUDE_CONFIG_DIR")
    return Path(named).expanduser() if named else around.home


def _traces(name: ClientName, around: Surroundings) -> tuple[Path, ...]:
    match name:
        case "claude-code":
            return (_claude_directory(around) / ".claude.json", around.home / ".claude")
        case "claude-desktop":
            return (around.applications / "Claude",)
        case "cursor":
            return (around.home / ".cursor", around.applications / "Cursor")
        case "vscode":
            return (around.applications / "Code", around.home / ".vscode")
