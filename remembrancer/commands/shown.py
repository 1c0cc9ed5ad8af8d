"""`remembrancer shown`: which memories were shown to whom, when, and for which question."""

from __future__ import annotations

import argparse
import json
import time
from itertools import groupby

from rich.markup import escape

from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import paths_here
from remembrancer.commands.terminal import Terminal
from remembrancer.memory.short_ids import id_or_part
from remembrancer.protocol.ids import MEMORY_PREFIX


def main(argv: list[str]) -> int:
    """Print what was shown of a memory, or what was shown last."""
    parser = argparse.ArgumentParser(
        prog="remembrancer shown",
        description="Which memories were shown to which session, when, and for which question. Kept for 90 days (the "
        "setting shown_kept_s), and written down some seconds later.",
        epilog="exit status: 0 done",
    )
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="a memory (default: all)")
    parser.add_argument("--session", default="", metavar="ID", help="to that session alone")
    parser.add_argument("-n", "--number", type=int, default=50, metavar="N", help="so many at most (50)")
    parser.add_argument("--json", action="store_true", help="for programs")
    asked = parser.parse_args(argv)
    memory_id = asked.id and id_or_part(asked.id)
    log = ShownLog(paths_here().home, kept_s=0.0)
    found = log.read(memory_id=memory_id, session_id=asked.session, limit=asked.number)
    if asked.json:
        print(json.dumps({"shown": [each._asdict() for each in found]}, ensure_ascii=False))
        return exit_codes.OK
    if not found:
        print("Nothing is known to have been shown.")
        return exit_codes.OK
    out = Terminal()
    for (at, session_id, tool, question), answer in groupby(
        found, key=lambda each: (each.at, each.session_id, each.tool, each.question)
    ):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        out.print(escape(f"{when}  {session_id}, {tool}: {' '.join(question.split())}"))
        for each in answer:
            name = each.memory_id.removeprefix(MEMORY_PREFIX)
            out.print(f"  {each.place}  {escape(name)}" if name else "  nothing was found")
    return exit_codes.OK
