"""A command of a client's configuration tried out: started as the client would, in a home of its own, and asked.

The home is a scratch one, so nothing of the user's memory is touched, and its runtime is stopped at the end.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from remembrancer.commands.runtime_client import ask, is_up
from remembrancer.protocol.control import AskDown
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

PROTOCOL: Final = "2025-11-25"
ANSWER_S: Final = 20.0
"""How long to wait for all answers: a cold disk may take seconds to give the libraries."""
LEAVE_S: Final = 5.0
STOP_S: Final = 10.0
LOOK_S: Final = 0.02
SCRATCH: Final = {"REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_IDLE_TIMEOUT_S": "5"}
"""No model is needed for the list of tools, and none should be loaded for it; what is not stopped ends by itself."""
READ_BYTES: Final = 65_536
TOLD_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of it. `initialize_ms` counts from the start of the command; `error` says why it did not work."""

    initialize_ms: float | None = None
    tools: int | None = None
    tools_ms: float | None = None
    error: str | None = None


def probe(command: tuple[str, ...], environ: Mapping[str, str]) -> Probed:
    """Start `command` with the entry's variables over this process's (less ours), and ask for its tools."""
    home = Path(tempfile.mkdtemp(prefix="rmb-setup-", dir="/tmp"))
    scratch = {**environ, **SCRATCH, "REMEMBRANCER_HOME": str(home)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}
    try:
        return _probe(command, {**inherited, **scratch}, home)
    finally:
        _stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _probe(command: tuple[str, ...], environ: dict[str, str], home: Path) -> Probed:
    began = time.perf_counter()
    try:
        process = subprocess.Popen(
            command, env=environ, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return Probed(error=f"{command[0]} cannot be started: {error.strerror or error}")
    talk = _Talk(process, began + ANSWER_S)
    try:
        client = {"name": "remembrancer setup", "version": "1"}
        talk.ask(1, "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client})
        initialized = time.perf_counter()
        talk.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = talk.ask(2, "tools/list", {})["tools"]
        ended = time.perf_counter()
        return Probed((initialized - began) * 1000, len(tools), (ended - initialized) * 1000)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Probed(error=talk.explain(error))
    finally:
        talk.end()


class _Talk:
    """Lines to and from the command, until a moment of `time.perf_counter`."""

    def __init__(self, process: subprocess.Popen[bytes], until: float) -> None:
        self._process = process
        self._until = until
        self._buffer = b""

    def say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result. Raises ValueError (an error, or no JSON), TimeoutError, or another OSError when it ended."""
        self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            message = json.loads(self._line())
            if message.get("id") == number and "method" not in message:
                break
        if "error" in message:
            raise ValueError(f"{method} was answered with an error: {message['error'].get('message')}")
        result: dict[str, Any] = message["result"]
        return result

    def explain(self, error: Exception) -> str:
        """Why it did not work, with the end of what the command said on standard error."""
        self._process.kill()
        _, said = self._process.communicate()
        told = said.decode(errors="replace").strip()[-TOLD_CHARACTERS:]
        return f"{error or type(error).__name__}{f' ({told})' if told else ''}"

    def end(self) -> None:
        """End its input and wait for it to leave."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = self._until - time.perf_counter()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError(f"it did not answer within {ANSWER_S:.0f} s")
            read = os.read(descriptor, READ_BYTES)
            if not read:
                raise ConnectionError("it ended before it answered")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _stop(home: Path) -> None:
    """Stop the runtime that the command started in the scratch home, and wait until it is gone."""
    paths = RuntimePaths(home)
    if not is_up(paths):
        return
    with suppress(RemembrancerError):  # gone already, or it ends by itself: no session is left
        ask(paths, AskDown("remembrancer setup has tried it out"))
    give_up_at = time.monotonic() + STOP_S
    while is_up(paths) and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)  # flock has no event to wait for
