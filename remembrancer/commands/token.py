"""`remembrancer token`: who may come over HTTP, and to which projects."""

from __future__ import annotations

import argparse
import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.tokens import Grant, Tokens
from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput

_SPAN: Final = re.compile(r"(\d{1,5})([hdw])")
_SECRET: Final = ("sha256",)
_SECONDS: Final = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def main(argv: list[str]) -> int:
    """Make, list or revoke tokens."""
    parser = argparse.ArgumentParser(
        prog="remembrancer token",
        description="The tokens with which clients may come over HTTP (remembrancer up --http). A token is shown once, "
        "when it is made; only its SHA-256 is kept. What is revoked stops at once, open streams too.",
        epilog="exit status: 0 done, 2 there is such a token already, or none",
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
    create.add_argument("--expires", metavar="WHEN", help="12h, 30d, 8w, or a date like 2027-01-31 (default: never)")
    listing = does.add_parser("list", help="which tokens there are")
    revoke = does.add_parser("revoke", help="have a token open nothing any more")
    revoke.add_argument("name", metavar="NAME")
    for each in (create, listing, revoke):
        each.add_argument("--json", action="store_true", help="for programs")
    asked = parser.parse_args(argv)
    home, now = paths_here().home, time.time()
    tokens = Tokens(home)
    if asked.does == "list":
        _list(tokens.all(), now, as_json=asked.json)
    elif asked.does == "revoke":
        tokens.revoke(asked.name)
        print(
            json.dumps({"revoked": asked.name}) if asked.json else f"Revoked {asked.name}: it opens nothing any more."
        )
    else:
        name = clean_name(asked.name, field="NAME", longest=MAX_NAME)
        projects = tuple(_directory(each) for each in asked.project or ["."])
        expires_at = None if asked.expires is None else _moment(asked.expires, now)
        token = tokens.create(
            name, projects, now, expires_at=expires_at, read_only=asked.read_only, sees_user=not asked.no_user
        )
        print(json.dumps({"name": name, "token": token, "projects": projects}) if asked.json else token)
    return exit_codes.OK


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
        print(f"{grant.name}: {', '.join(grant.projects)}{may}{ends}{over}")
