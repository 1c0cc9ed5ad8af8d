"""`remembrancer down`: stop the runtime, in order, and wait until it is gone."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask, is_up, nothing_runs, paths_here, refusal
from remembrancer.protocol.control import AskDown, GoingDown
from remembrancer.protocol.errors import PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths

STOP_LIMIT_S: Final = 15.0
"""How long to wait for the end. The launcher's stop sequence takes 9 s when every process has to be killed."""
LOOK_S: Final = 0.02


def main(argv: list[str]) -> int:
    """Stop the runtime of this home; says what happened."""
    parser = argparse.ArgumentParser(
        prog="remembrancer down",
        description="Stop the runtime of this home, in order. What was acknowledged is kept.",
        epilog="exit status: 0 stopped, 4 nothing runs, 6 the home cannot be used, 8 refused, 9 no answer or no end",
    )
    parser.parse_args(argv)
    paths = paths_here()
    if not is_up(paths):
        print(nothing_runs(paths.home), file=sys.stderr)
        return exit_codes.NOT_RUNNING
    began = time.monotonic()
    pid = None
    try:
        answer = ask(paths, AskDown("remembrancer down"))
    except (PeerLost, PeerUnavailable):
        if is_up(paths):
            raise
    else:
        if not isinstance(answer, GoingDown):
            print(f"remembrancer down: {refusal(answer)}", file=sys.stderr)
            return exit_codes.REFUSED
        pid = answer.pid
    if not _wait_until_gone(paths):
        print(
            f"remembrancer down: the runtime (process {pid}) has not ended after {STOP_LIMIT_S:.0f} s: "
            f"look at {paths.logs / 'launcher.log'}, or kill that process, and the others leave by themselves",
            file=sys.stderr,
        )
        return exit_codes.NO_ANSWER
    print(f"Stopped the runtime of {paths.home} in {time.monotonic() - began:.1f} s.")
    return exit_codes.OK


def _wait_until_gone(paths: RuntimePaths) -> bool:
    give_up_at = time.monotonic() + STOP_LIMIT_S
    while is_up(paths):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(LOOK_S)  # flock has no event to wait for
    return True
