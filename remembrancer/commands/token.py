"""`remembrancer token`: who may come over HTTP, and to which projects."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from remembrancer.actors.store.home_reader import SHARED, lanes_of_projects
from remembrancer.commands import exit_codes
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


def main(argv: list[str]) -> int:
    """Make, list or revoke tokens."""
    parser = argparse.ArgumentParser(
        prog="remembrancer token",
        description="The tokens with which clients may come over HTTP (remembrancer up --http). A token is shown once, "
        "when it is made; only its SHA-256 is kept. What is revoked stops at once, open streams too.",
        epilog="exit status: 0 done, 2 there is such a token already, or none, 8 the server of what is shared refuses, "
        "9 it does not answer",
    )
    does = parser.add_subparsers(dest="does", required=True, metavar="create | list | revoke")
    create = does.add_parser("create", help="make a token, and print it")
    create.add_argument("name", metavar="NAME", help="what you call its holder")
    create.add_argument(
        "--project",
        action="append",
        default=[],
        metavar="DIR",
        help="a project that it may work in (default: that of this directory); the first one is where it begins",
    )
    create.add_argument("--read-only", action="store_true", help="it may recall, and change nothing")
    create.add_argument(
        "--no-user", action="store_true", help="it sees its projects alone, and no memory of the user's"
    )
    create.add_argument(
        "--shared",
        action="store_true",
        help="it opens the project on each machine that shares it and takes such tokens (see http_shared_tokens)",
    )
    create.add_argument("--expires", metavar="WHEN", help="12h, 30d, 8w, or a date like 2027-01-31 (default: never)")
    listing = does.add_parser("list", help="which tokens there are")
    revoke = does.add_parser("revoke", help="have a token open nothing any more")
    revoke.add_argument("name", metavar="NAME")
    for each in (create, listing, revoke):
        each.add_argument("--json", action="store_true", help="for programs")
    asked = parser.parse_args(argv)
    home, now = paths_here().home, time.time()
    tokens = Tokens(home, takes_shared=True)
    if asked.does == "list":
        _list(tokens.all(), now, as_json=asked.json)
    elif asked.does == "revoke":
        named = [each for each in tokens.all() if each.name == asked.name]
        shared = [each for each in named if isinstance(each, SharedGrant)]
        _revoke(tokens, asked.name, shared, is_own=len(named) > len(shared) or not shared)
        print(
            json.dumps({"revoked": asked.name}) if asked.json else f"Revoked {asked.name}: it opens nothing any more."
        )
    else:
        name = clean_name(asked.name, field="NAME", longest=MAX_NAME)
        projects = tuple(_directory(each) for each in asked.project or ["."])
        expires_at = None if asked.expires is None else _moment(asked.expires, now)
        if asked.shared:
            lane = _lane_of(home, projects)
            token, told = new_shared(name, now, expires_at=expires_at, read_only=asked.read_only)
            ask_store(GrantToken(lane, told), LanesDescribed)
        else:
            token = tokens.create(
                name, projects, now, expires_at=expires_at, read_only=asked.read_only, sees_user=not asked.no_user
            )
        print(json.dumps({"name": name, "token": token, "projects": projects}) if asked.json else token)
    return exit_codes.OK


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


def _list(grants: tuple[Grant, ...], now: float, *, as_json: bool) -> None:
    if as_json:
        listed = [
            {name: getattr(grant, name) for name in grant.__struct_fields__ if name not in _SECRET} for grant in grants
        ]
        print(json.dumps({"tokens": listed}))
        return
    if not grants:
        print("There are no tokens: 'remembrancer token create NAME --project DIR' makes one.")
    for grant in grants:
        ends = "" if grant.expires_at is None else f", until {datetime.fromtimestamp(grant.expires_at):%Y-%m-%d %H:%M}"
        over = " (over)" if grant.expires_at is not None and grant.expires_at <= now else ""
        may = f"{', read only' if grant.read_only else ''}{'' if grant.sees_user else ', not the user'}"
        may += f", at every machine that shares {grant.lane}" if isinstance(grant, SharedGrant) else ""
        print(f"{grant.name}: {', '.join(grant.projects)}{may}{ends}{over}")
