"""`remembrancer scale embedder=N`: another number of embedding workers, while everything runs."""

from __future__ import annotations

import argparse
import sys

from remembrancer.actors.launcher.supervision import parse_scale
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask, is_up, nothing_runs, paths_here, refusal
from remembrancer.protocol.control import AskScale, Scaled


def main(argv: list[str]) -> int:
    """Tell the runtime of this home how many embedders to run."""
    parser = argparse.ArgumentParser(
        prog="remembrancer scale",
        description="Run another number of embedding workers, on a runtime that is up. Until it is restarted.",
        epilog="exit status: 0 being brought about, 2 not a possible number, 4 nothing runs, 8 refused, 9 no answer",
    )
    parser.add_argument("what", metavar="embedder=N", help="N workers, 0 to 64")
    wanted = parse_scale(parser.parse_args(argv).what)
    paths = paths_here()
    if not is_up(paths):
        print(nothing_runs(paths.home), file=sys.stderr)
        return exit_codes.NOT_RUNNING
    answer = ask(paths, AskScale(wanted))
    if not isinstance(answer, Scaled):
        print(f"remembrancer scale: {refusal(answer)}", file=sys.stderr)
        return exit_codes.REFUSED
    workers = "embedder" if answer.embedders == 1 else "embedders"
    print(f"Scaling to {answer.embedders} {workers}; 'remembrancer status' shows when they are ready.")
    return exit_codes.OK
