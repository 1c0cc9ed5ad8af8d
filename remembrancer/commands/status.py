"""`remembrancer status`: how each process, the write queue and the embedding are."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from remembrancer.commands import exit_codes
from remembrancer.commands.health import Problem, exit_code, find_problems
from remembrancer.commands.report import report
from remembrancer.commands.runtime_client import ask, is_up, nothing_runs, paths_here, refusal
from remembrancer.protocol.control import AskStatus, RuntimeStatus
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths


def main(argv: list[str]) -> int:
    """Print the status of the runtime of this home."""
    parser = argparse.ArgumentParser(
        prog="remembrancer status",
        description="How the runtime of this home is.",
        epilog="exit status: 0 all is well, 3 degraded, 4 nothing runs, 6 the home cannot be used",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    parser.add_argument(
        "--trace",
        metavar="ID",
        help="where the time of one call went: its id, `last`, or `slowest`; `recent` lists what is kept",
    )
    options = parser.parse_args(argv)
    as_json = options.json
    paths = paths_here()
    if not is_up(paths):
        return _say_nothing_runs(paths.home, as_json=as_json)
    if options.trace is not None:
        from remembrancer.commands.trace import show_trace

        return show_trace(paths, options.trace, as_json=as_json)
    try:
        answer = ask(paths, AskStatus())
    except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
        if not is_up(paths):
            return _say_nothing_runs(paths.home, as_json=as_json)
        return _say_no_answer(paths, error.message, as_json=as_json)
    if not isinstance(answer, RuntimeStatus):
        return _say_no_answer(paths, refusal(answer), as_json=as_json)
    problems = find_problems(answer)
    if as_json:
        print(json.dumps(report(paths.home, answer, problems)))
    else:
        from remembrancer.commands.status_table import print_status

        print_status(answer, problems)
    return exit_code(problems)


def _say_nothing_runs(home: Path, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(report(home, None, ())))
    else:
        print(nothing_runs(home), file=sys.stderr)
    return exit_codes.NOT_RUNNING


def _say_no_answer(paths: RuntimePaths, reason: str, *, as_json: bool) -> int:
    advice = f"look at {paths.logs / 'launcher.log'}"
    problem = Problem(f"the launcher does not answer: {reason.removesuffix(f': {advice}')}", advice)
    if as_json:
        print(json.dumps(report(paths.home, None, (problem,))))
    else:
        print(f"remembrancer status: {problem}", file=sys.stderr)
    return exit_codes.DEGRADED
