"""The time that a client waits for each hook: `python -m bench.hooks [--rounds N] [--json]`.

Each event is said by a process of its own, as a client does, to a home with a runtime and a memory that answers, and to
one without, in turn with a bare `python -c pass`: the wall clock, and the seconds of a processor of that process alone.
Where a hook has started a runtime, that is stopped before the next. Python finds its bytecode.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.harness import Figure, Runtime, drained, print_figures, runtime, wait_until
from remembrancer.commands.runtime_client import is_up
from remembrancer.protocol.paths import RuntimePaths

ROUNDS: Final = 15
REACH_MS: Final = 100.0
QUESTION: Final = "What do we cache with?"
STARTERS: Final = frozenset({"SessionStart", "UserPromptSubmit"})
"""The events that start a runtime where none is up."""
REMEMBRANCER: Final = str(Path(sys.executable).with_name("remembrancer"))


class Cost(NamedTuple):
    """Milliseconds of one process."""

    wall: float
    processor: float


def run(arguments: Sequence[str], given: bytes, environ: dict[str, str]) -> tuple[Cost, bytes]:
    """The cost of a process, and what it printed."""
    began = time.perf_counter()
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(given)
    process.stdin.close()
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    return Cost(wall * 1000, (used.ru_utime + used.ru_stime) * 1000), printed


def inputs(session: str, directory: Path) -> dict[str, dict[str, Any]]:
    """The events of a session, in their order, with what a client says of each."""
    tool = {"tool_name": "Bash", "tool_use_id": session, "tool_input": {"command": "make test"}}
    done = {**tool, "tool_response": {"stdout": "12 passed\n" * 40}}
    said: dict[str, dict[str, Any]] = {
        "SessionStart": {"source": "startup"},
        "UserPromptSubmit": {"prompt": QUESTION},
        "PreToolUse": tool,
        "PostToolUse": done,
        "Stop": {"last_assistant_message": "The cache is Valkey."},
        "PreCompact": {"trigger": "auto"},
        "SessionEnd": {"reason": "exit"},
    }
    return {name: {**each, "session_id": session, "cwd": str(directory)} for name, each in said.items()}


async def stop_started(home: Runtime) -> None:
    """Stop the runtime that a hook has started, and leave nothing of its home."""
    await wait_until(lambda: asyncio.to_thread(is_up, RuntimePaths(home.home)), 120)
    await home.stop()
    shutil.rmtree(home.home, ignore_errors=True)


async def measure(rounds: int) -> list[Figure]:
    """The medians, of both homes in turn."""
    costs: dict[str, list[Cost]] = {}
    told = 0
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        async with runtime() as up, up.client() as client:
            await client.store("The cache is Valkey 8: we cache sessions and rates with it.", scope="user")
            await wait_until(lambda: drained(client), 120)
            for number in range(rounds + 1):
                if number == 1:  # the one before has written the bytecode
                    costs.clear()
                    told = 0
                down = Runtime()
                for where, home in (("runtime up", up), ("none up", down)):
                    environ = {**os.environ, **home.environ, "REMEMBRANCER_HOME": str(home.home)}
                    environ.pop("PYTHONDONTWRITEBYTECODE", None)
                    for name, given in inputs(f"{where} {number}", directory).items():
                        bare, _ = run([sys.executable, "-c", "pass"], b"", environ)
                        costs.setdefault("python -c pass", []).append(bare)
                        cost, printed = run([REMEMBRANCER, "hook", name], json.dumps(given).encode(), environ)
                        costs.setdefault(f"{name}, {where}", []).append(cost)
                        told += name == "UserPromptSubmit" and b"Valkey" in printed
                        if home is down and name in STARTERS:
                            await stop_started(down)
                shutil.rmtree(down.home, ignore_errors=True)
    figures = [Figure("prompts with a runtime up that were answered", 100 * told / rounds, "%", 0)]
    bare_ms = statistics.median(each.processor for each in costs["python -c pass"])
    for name, values in costs.items():
        wall, used = (statistics.median(column) for column in zip(*values, strict=True))
        figures.append(Figure(f"{name}: wall, p50", wall, "ms", REACH_MS))
        figures.append(Figure(f"{name}: processor, p50", used, "ms", 0))
        figures.append(Figure(f"{name}: processor / that of bare Python", used / bare_ms, "times", 0))
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    print_figures(asyncio.run(measure(asked.rounds)), as_json=asked.json)


if __name__ == "__main__":
    main()
