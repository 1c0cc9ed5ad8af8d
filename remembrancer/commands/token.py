"""`remembrancer token` and `ui`: manage access to projects over HTTP, and open the memory browser."""

import html
import re
import time
import webbrowser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from remembrancer.commands.report import Group, Report, argument, command, flag, option
from remembrancer.commands.runtime_client import paths_here
from remembrancer.commands.selection import WHERE, GatewayConnection, Where
from remembrancer.config.project import directory_here
from remembrancer.config.tokens import LINK, Grant, Tokens
from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.paths import write_whole

_SPAN: Final = re.compile(r"(\d{1,5})([hdw])")
_SECONDS: Final = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@command(
    argument("name", metavar="NAME", help="A name for the token's holder."),
    option(
        "--project",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="A project that the holder can use (default: this directory's project); sessions start in the first one.",
    ),
    flag("--read-only", help="Allow reading memories, but not changing them."),
    flag("--no-user", help="Hide the user's own memories."),
    option("--expires", metavar="WHEN", help="12h, 30d or 8w (default: never)."),
)
def create(name: str, project: Sequence[Path], read_only: bool, no_user: bool, expires: str | None) -> Report:
    """Create a token and print it. It is shown only this once, since only its SHA-256 is kept."""
    now = time.time()
    name = clean_name(name, field="NAME", longest=MAX_NAME)
    projects = tuple(str(directory.absolute()) for directory in project or [Path()])
    span = None if expires is None else _SPAN.fullmatch(expires)
    if expires is not None and span is None:
        raise InvalidInput(f"--expires needs 12h, 30d or 8w, not {expires[:40]!r}")
    expires_at = None if span is None else now + int(span[1]) * _SECONDS[span[2]]
    token = Tokens(paths_here().home).create(
        name, projects, now, expires_at=expires_at, read_only=read_only, sees_user=not no_user
    )
    return Report({"name": name, "token": token, "projects": projects}, token)


@command(name="list")
def list_tokens() -> Report:
    """List the tokens."""
    grants = Tokens(paths_here().home).all()
    facts = [msgspec.structs.asdict(grant) for grant in grants]
    for row in facts:
        del row["sha256"]
    now = time.time()
    lines = [_line(grant, now) for grant in grants if not (grant.name.startswith(LINK) and _is_over(grant, now))]
    nothing = "There are no tokens. Run 'remembrancer token create NAME --project DIR' to create one."
    return Report({"tokens": facts}, lines or nothing)


@command(argument("name", metavar="NAME"))
def revoke(name: str) -> Report:
    """Revoke a token and close its open streams."""
    Tokens(paths_here().home).revoke(name)
    return Report({"revoked": name}, f"Revoked {name}: it no longer works.")


token = Group("token", *(create, list_tokens, revoke), help="Manage the tokens for HTTP (remembrancer up --http).")


def _is_over(grant: Grant, now: float) -> bool:
    return grant.expires_at is not None and grant.expires_at <= now


def _line(grant: Grant, now: float) -> str:
    ends = "" if grant.expires_at is None else f", until {datetime.fromtimestamp(grant.expires_at):%Y-%m-%d %H:%M}"
    over = " (expired)" if _is_over(grant, now) else ""
    may = f"{', read only' if grant.read_only else ''}{'' if grant.sees_user else ', without user memories'}"
    return f"{grant.name}: {', '.join(grant.projects)}{may}{ends}{over}"


@command(WHERE[0], flag("--print", "prints", help="Print the link instead of opening it."))
def ui(project: str | None, prints: bool) -> Report:
    """Open the memory browser: see, correct and undo what is remembered. It is served only to this machine, and signs
    you in with a link that works once, within 10 minutes."""
    place = Where(project).places[0]
    url = GatewayConnection(place).call("open_browser")["url"]
    home = paths_here().home
    # The directory of a project given by its id may by now be gone, or be part of another project.
    tree, to = (str(directory_here().absolute()), f"&project={place.name}") if place.name else (place.directory, "")
    link = f"{url}/enter?link={Tokens(home).link(tree, time.time())}{to}"
    prints |= click.get_current_context().params["as_json"]
    is_open = not prints and webbrowser.open(_page_to(link, home).as_uri())
    return Report({"link": link}, f"The memory browser is at {url}/" if is_open else link)


def _page_to(link: str, home: Path) -> Path:
    """A private page that redirects to a link, since all users on a machine can see a browser's arguments."""
    page = home / "browse.html"
    address = html.escape(link)
    lead = f'<meta http-equiv="refresh" content="0; url={address}">'
    text = f'<!doctype html><title>Remembrancer</title>{lead}<a href="{address}">Continue to your memories</a>\n'
    write_whole(page, text.encode())
    return page
