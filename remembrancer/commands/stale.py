"""`remembrancer stale`: the memories about code that is not as it was when they were stored."""

from __future__ import annotations

import argparse
import json
import sys

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask_store, directory_here
from remembrancer.commands.terminal import Terminal
from remembrancer.config.project import project_of
from remembrancer.protocol.code import ListStale, StaleListed


def main(argv: list[str]) -> int:
    """List them: what is gone first, then what has changed most."""
    parser = argparse.ArgumentParser(
        prog="remembrancer stale",
        description="The memories of this directory's project (or of REMEMBRANCER_PROJECT) that are about code which "
        "has changed, moved or gone since they were stored. 'remembrancer edit ID' with the new text makes one fresh, "
        "'remembrancer forget ID' hides it.",
        epilog="exit status: 0 listed (or there are none)",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    as_json = parser.parse_args(argv).json
    listed = ask_store(ListStale(project_of(directory_here())), StaleListed)
    if as_json:
        print(json.dumps({"memories": msgspec.to_builtins(listed.memories)}))
    elif not listed.memories:
        print("No memory here is about code that is not as it was.", file=sys.stderr)
    terminal = Terminal()
    for memory in () if as_json else listed.memories:
        terminal.print(f"{memory.memory_id}  {memory.code}", markup=False, highlight=False)
        terminal.print(f"    {' '.join(memory.content.split())[:160]}", markup=False, highlight=False)
    return exit_codes.OK
