"""What the clients on this machine are set up to start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from remembrancer.commands.checking.running_checks import ClientFacts, EntryFacts
from remembrancer.commands.clients import (
    CLIENTS,
    Client,
    FileRefused,
    Place,
    Surroundings,
    is_ours,
    parse_with_comments,
    read_text,
)


def client_facts(around: Surroundings) -> list[ClientFacts]:
    """Each file of each known client, once: a project may be the user's home itself."""
    places = {place.path: (client, place) for client in CLIENTS for place in reversed(client.places(around))}
    return [_facts(client, place, around) for client, place in places.values()]


def _facts(client: Client, place: Place, around: Surroundings) -> ClientFacts:
    found = client.is_found(around)
    try:
        text = read_text(place.path)
        whole = parse_with_comments(text or "")
    except FileRefused as error:
        return ClientFacts(client.name, client.title, found, place.path, client.has_path, error=error.reason)
    entries = tuple(
        _entry(name, entry, around)
        for servers in _server_lists(client, place, whole, around)
        for name, entry in servers.items()
        if isinstance(entry, Mapping) and is_ours(entry)
    )
    return ClientFacts(client.name, client.title, found, place.path, client.has_path, entries)


def _server_lists(
    client: Client, place: Place, whole: Mapping[str, object], around: Surroundings
) -> Iterator[Mapping[str, object]]:
    """The servers of the file; Claude Code keeps those of one user in one project in the user's file, too."""
    servers = whole.get(place.key)
    if isinstance(servers, Mapping):
        yield servers
    if client.name == "claude-code" and place.scope == "user":
        projects = whole.get("projects")
        own = projects.get(str(around.project)) if isinstance(projects, Mapping) else None
        servers = own.get(place.key) if isinstance(own, Mapping) else None
        if isinstance(servers, Mapping):
            yield servers


def _entry(name: str, entry: Mapping[str, object], around: Surroundings) -> EntryFacts:
    command = str(entry.get("command") or "")
    environ = entry.get("env")
    home = environ.get("REMEMBRANCER_HOME") if isinstance(environ, Mapping) else None
    bare = "/" not in command
    return EntryFacts(name, command, _exists(command, around), bare, home if isinstance(home, str) else None)


def _exists(command: str, around: Surroundings) -> bool:
    """Whether a client would find the command; one with a variable of the client's own in it is taken at its word."""
    if "${" in command:
        return True
    if "/" not in command:
        return shutil.which(command, path=around.environ.get("PATH", "")) is not None
    path = Path(command)
    path = path if path.is_absolute() else around.project / path
    return path.is_file() and os.access(path, os.X_OK)
