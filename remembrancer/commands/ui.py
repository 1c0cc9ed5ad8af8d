"""`remembrancer ui`: open the memory browser."""

import html
import time
import webbrowser
from pathlib import Path

import click

from remembrancer.commands.report import Report, command, flag
from remembrancer.commands.runtime_client import directory_here, paths_here
from remembrancer.commands.selection import WHERE, GatewayConnection, Where
from remembrancer.config.tokens import Tokens
from remembrancer.protocol.paths import write_whole


@command(WHERE[0], flag("--print", "prints", help="Print the link instead of opening it."))
def ui(project: str | None, prints: bool) -> Report:
    """Open the memory browser: see, correct and undo what is remembered. It is served to this machine alone, and signs
    you in by a link that works once, within 10 minutes."""
    place = Where(project).places[0]
    url = GatewayConnection(place).call("open_browser")["url"]
    home = paths_here().home
    # The directory of a project that is named by its id may be gone, or be a part of another project now.
    tree, to = (str(directory_here().absolute()), f"&project={place.name}") if place.name else (place.tree, "")
    link = f"{url}/enter?link={Tokens(home).link(tree, time.time())}{to}"
    prints |= click.get_current_context().params["as_json"]
    is_open = not prints and webbrowser.open(_page_to(link, home).as_uri())
    return Report({"link": link}, f"The memory browser is at {url}/" if is_open else link)


def _page_to(link: str, home: Path) -> Path:
    """A private page that redirects to a link, since all users of a machine can see the arguments of a browser."""
    page = home / "browse.html"
    address = html.escape(link)
    lead = f'<meta http-equiv="refresh" content="0; url={address}">'
    text = f'<!doctype html><title>Remembrancer</title>{lead}<a href="{address}">Continue to your memories</a>\n'
    write_whole(page, text.encode())
    return page
