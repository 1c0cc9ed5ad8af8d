"""`remembrancer status --trace`: where the time of a call went."""

from __future__ import annotations

import json
import sys

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.call_traces import choose, join
from remembrancer.commands.runtime_client import ask, refusal
from remembrancer.protocol.control import AskTraces, TracesGathered
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths

RECENT = "recent"


def show_trace(paths: RuntimePaths, wanted: str, *, as_json: bool) -> int:
    """Print where the time of one call went, or which calls are kept (`recent`). Returns the exit status."""
    try:
        answer = ask(paths, AskTraces("" if wanted in (RECENT, "last", "slowest") else wanted))
    except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
        return _fail(f"the launcher does not answer: {error.message}", exit_codes.DEGRADED)
    if not isinstance(answer, TracesGathered):
        return _fail(refusal(answer), exit_codes.DEGRADED)
    for process in answer.silent:
        print(f"remembrancer status: {process} did not answer in time: its part is missing", file=sys.stderr)
    calls = join(answer.processes)
    if wanted == RECENT:
        if as_json:
            print(json.dumps([msgspec.to_builtins(call) for call in reversed(calls)]))
        else:
            from remembrancer.commands.trace_table import print_calls

            print_calls(calls)
        return exit_codes.OK
    call = choose(calls, wanted)
    if call is None:
        return _fail(f"no call {wanted!r} is kept: see `remembrancer status --trace recent`", exit_codes.REFUSED)
    if as_json:
        print(json.dumps(msgspec.to_builtins(call)))
    else:
        from remembrancer.commands.trace_table import print_call

        print_call(call)
    return exit_codes.OK


def _fail(reason: str, code: int) -> int:
    print(f"remembrancer status: {reason}", file=sys.stderr)
    return code
