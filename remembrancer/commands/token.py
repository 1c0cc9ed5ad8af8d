"""`remembrancer token`: who may come over HTTP, and to which projects."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from remembrancer.actors.store.home_reader import SHARED, lanes_of_projects
from remembrancer.commands.report import Group, Report, argument, command, flag, option
from remembrancer.commands.runtime_client import ask_store, paths_here
from remembrancer.config.project import project_of
from remembrancer.config.tokens import Grant, SharedGrant, Tokens, new_shared
from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import HomeUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.sharing import GrantToken, LanesDescribed, RevokeToken

_SPAN: Final = re.compile(r"(\d{1,5})([hdw])")
_SECRET: Final = ("sha256", "session_key")
_SECONDS: Final = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@command(
    argument("name", metavar="NAME", help="What you call its holder."),
    option(
        "--project",
        multiple=True,
        metavar="DIR",
        help="A project that it may work in (default: that of this directory); the first one is where it begins.",
    ),
    flag("--read-only", help="It may recall, and change nothing."),
    flag("--no-user", help="It sees its projects alone, and no memory of the user's."),
    flag(
        "--shared",
        help="It opens the project on each machine that shares it and takes such tokens (see http_shared_tokens).",
    ),
    option("--expires", metavar="WHEN", help="12h, 30d, 8w, or a date like 2027-01-31 (default: never)."),
)
def create(
    name: str, project: Sequence[str], read_only: bool, no_user: bool, shared: bool, expires: str | None
) -> Report:
    """Make a token, and print it. It is shown once; only its SHA-256 is kept."""
    home, now = paths_here().home, time.time()
    name = clean_name(name, field="NAME", longest=MAX_NAME)
    projects = tuple(map(_directory, project or ["."]))
    expires_at = None if expires is None else _moment(expires, now)
    if shared:
        lane = _lane_of(home, projects)
        token, grant = new_shared(name, now, expires_at=expires_at, read_only=read_only)
        ask_store(GrantToken(lane, grant), LanesDescribed)
    else:
        tokens = Tokens(home, takes_shared=True)
        token = tokens.create(name, projects, now, expires_at=expires_at, read_only=read_only, sees_user=not no_user)
    return Report({"name": name, "token": token, "projects": projects}, token)


@command(name="list")
def list_tokens() -> Report:
    """List the tokens."""
    grants = Tokens(paths_here().home, takes_shared=True).all()
    facts = [
        {name: getattr(grant, name) for name in grant.__struct_fields__ if name not in _SECRET} for grant in grants
    ]
    lines = [_line(grant, time.time()) for grant in grants]
    nothing = "There are no tokens: 'remembrancer token create NAME --project DIR' makes one."
    return Report({"tokens": facts}, lines or nothing)


@command(argument("name", metavar="NAME"))
def revoke(name: str) -> Report:
    """Have a token open nothing any more, open streams included."""
    tokens = Tokens(paths_here().home, takes_shared=True)
    named = [each for each in tokens.all() if each.name == name]
    shared = [each for each in named if isinstance(each, SharedGrant)]
    _revoke(tokens, name, shared, is_own=len(named) > len(shared) or not shared)
    return Report({"revoked": name}, f"Revoked {name}: it opens nothing any more.")


COMMANDS = {
    "token": Group(
        "token",
        *(create, list_tokens, revoke),
        help="The tokens with which clients may come over HTTP (remembrancer up --http).",
    )
}


def _revoke(tokens: Tokens, name: str, shared: Sequence[SharedGrant], *, is_own: bool) -> None:
    """Revoke a token of this home, and those of its name that other machines take: each, also where another one cannot
    be.

    Raises:
        HomeUnusable: the home's list cannot be written.
        RemembrancerError: what keeps the first of the others from being revoked.
    """
    failures = list[RemembrancerError]()
    for grant in shared:
        try:
            ask_store(RevokeToken(grant.lane, grant.name), LanesDescribed)
        except RemembrancerError as error:
            failures.append(error)
    if is_own:
        try:
            tokens.revoke(name)
        except OSError as error:
            done = "; the shared ones of that name are revoked" if shared and not failures else ""
            failures.append(
                HomeUnusable(f"{name} still opens this home: its list cannot be written ({error.strerror}){done}")
            )
    if failures:
        raise failures[0]


def _lane_of(home: Path, projects: tuple[str, ...]) -> str:
    """The lane that the one project of a shared token shares."""
    if len(projects) > 1:
        raise InvalidInput("a shared token is for one project: make another for the next one")
    lane = lanes_of_projects(home / SHARED).get(project_of(Path(projects[0])).id)
    if lane is None:
        raise InvalidInput(f"{projects[0]} is not shared: 'remembrancer share project' shares it")
    return lane


def _directory(named: str) -> str:
    path = Path(named).expanduser().absolute()
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a directory: a project is one")
    return str(path)


def _moment(text: str, now: float) -> float:
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now + int(span[1]) * _SECONDS[span[2]]
    try:
        at = datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise InvalidInput(f"--expires wants 12h, 30d, 8w or a date like 2027-01-31, not {text[:40]!r}") from None
    if at <= now:
        raise InvalidInput(f"--expires {text} is over already")
    return at


def _line(grant: Grant, now: float) -> str:
    ends = "" if grant.expires_at is None else f", until {datetime.fromtimestamp(grant.expires_at):%Y-%m-%d %H:%M}"
    over = " (over)" if grant.expires_at is not None and grant.expires_at <= now else ""
    may = f"{', read only' if grant.read_only else ''}{'' if grant.sees_user else ', not the user'}"
    may += f", at every machine that shares {grant.lane}" if isinstance(grant, SharedGrant) else ""
    return f"{grant.name}: {', '.join(grant.projects)}{may}{ends}{over}"
