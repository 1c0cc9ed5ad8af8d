"""`remembrancer browse`: open the memory browser."""

from __future__ import annotations

import argparse
import html
import json
import time
import webbrowser
from pathlib import Path

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import directory_here, paths_here
from remembrancer.commands.shell import Place, connected
from remembrancer.config.tokens import LINK_S, Tokens
from remembrancer.protocol.paths import write_whole


def main(argv: list[str]) -> int:
    """Open the memory browser, signed in, or print the link that does."""
    parser = argparse.ArgumentParser(
        prog="remembrancer browse",
        description="Open the memory browser: see, correct and undo what is remembered. It is served to this machine "
        f"alone, and signs you in by a link that works once, within {LINK_S / 60:.0f} minutes.",
        epilog="exit status: 0 done, 9 no answer",
    )
    parser.add_argument("--project", metavar="DIR", help="the project where it begins (default: of this directory)")
    parser.add_argument("--print", action="store_true", help="print the link instead of opening it")
    parser.add_argument("--json", action="store_true", help="print it for programs")
    asked = parser.parse_args(argv, argparse.Namespace(session=None))
    directory = str(directory_here(asked.project).absolute())
    with connected(Place(directory), asked) as session:
        url = session.call("open_browser")["url"]
    link = f"{url}/enter?link={Tokens(paths_here().home).link(directory, time.time())}"
    if asked.json:
        print(json.dumps({"link": link}))
    elif asked.print or not webbrowser.open(_page_to(link).as_uri()):
        print(link)
    else:
        print(f"The memory browser is at {url}/")
    return exit_codes.OK


def _page_to(link: str) -> Path:
    """A page of the user's alone that leads on to a link: what a browser is started with all users of a machine see."""
    page = paths_here().home / "browse.html"
    address = html.escape(link)
    lead = f'<meta http-equiv="refresh" content="0; url={address}">'
    text = f'<!doctype html><title>Remembrancer</title>{lead}<a href="{address}">Go on to your memories</a>\n'
    write_whole(page, text.encode())
    return page
