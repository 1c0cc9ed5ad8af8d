"""A real bridge, as a client starts it, and a real gateway whose launcher is the test."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from remembrancer.actors.bridge.bridge import LEAVE_S, START_S
from remembrancer.config.settings import Settings
from remembrancer.protocol.paths import RuntimePaths
from tests.actors.store_process import Launched
from tests.forked import ForkedProcess, run_bridge
from tests.patience import PATIENCE_S
from tests.processes.runtimes import until

HANDSHAKE: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


OF_ANOTHER_PATIENCE = (
    "import sys, remembrancer.actors.bridge.bridge as bridge\n"
    "bridge.LEAVE_S, bridge.START_S = map(float, sys.argv[1:3])\n"
    "sys.exit(bridge.main(sys.argv[3:]))"
)
"""A bridge with another `LEAVE_S` and `START_S`."""


class BridgeClient:
    """A client that has started `remembrancer mcp` and speaks to it.

    `waits`: other times that the bridge waits: for open answers when its input has ended, and for a runtime to start.
    `is_forked`: the bridge is, and the runtime that it starts.
    """

    process: subprocess.Popen[bytes] | ForkedProcess

    def __init__(
        self, *arguments: str, waits: tuple[float, float] | None = None, is_forked: bool = False, **environ: str
    ) -> None:
        if is_forked:
            source, sink = os.pipe()
            self.process = ForkedProcess(run_bridge, *arguments, environ={**os.environ, **environ}, stdout=sink)
            os.close(sink)
            self._output: IO[bytes] = os.fdopen(source, "rb", buffering=0)
        else:
            program = ["-c", OF_ANOTHER_PATIENCE, *map(str, waits)] if waits else ["-m", "remembrancer", "mcp"]
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environ},
            )
            assert self.process.stdout is not None
            self._output = self.process.stdout
        self._rest = b""
        self._next = 0
        self.lines: list[bytes] = []
        """Every line that came out."""

    def send(self, **message: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def hear(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next message; raises `TimeoutError` when none comes, `EOFError` at the end."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            data = os.read(self._output.fileno(), 65536)
            if not data:
                raise EOFError
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        self.lines.append(line)
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message of a kind; what comes before it is passed over."""
        while not is_it(message := self.hear()):
            pass
        return message

    def notification(self, method: str) -> dict[str, Any]:
        """The first notification of a method, also where it came before an answer that was waited for."""
        heard = (json.loads(line) for line in self.lines)
        known = next((message for message in heard if message.get("method") == method), None)
        return known or self.until(lambda message: message.get("method") == method)

    def answer(self, request_id: int | str) -> dict[str, Any]:
        """The answer to a request, among whatever else comes."""
        return self.until(lambda message: message.get("id") == request_id and "method" not in message)

    def request(self, method: str, timeout_s: float = PATIENCE_S, **params: Any) -> dict[str, Any]:
        self._next += 1
        self.send(id=self._next, method=method, params=params)
        answer = self.hear(timeout_s)
        assert answer["id"] == self._next
        return answer

    def initialize(self) -> dict[str, Any]:
        answer = self.request("initialize", **HANDSHAKE)
        self.send(method="notifications/initialized")
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured content of a tool's answer."""
        answer = self.request("tools/call", name=tool, arguments=arguments)
        structured: dict[str, Any] = answer["result"]["structuredContent"]
        return structured

    def store(self, content: str, **arguments: Any) -> dict[str, Any]:
        return self.call("store_memory", **{"content": content, "type": "semantic", "scope": "project", **arguments})

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """End this client, whatever state it is in."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._output.close()


@contextmanager
def bridge(leave_s: float = LEAVE_S, start_s: float = START_S, /, **environ: str) -> Iterator[BridgeClient]:
    """Its requests wait long for their answers, unless `environ` says otherwise."""
    waits = None if (leave_s, start_s) == (LEAVE_S, START_S) else (leave_s, start_s)
    with _closed(
        BridgeClient(waits=waits, is_forked=False, **{"REMEMBRANCER_BRIDGE_BUDGET_S": "90", **environ})
    ) as client:
        yield client


@contextmanager
def session(project: Path, session_id: str = "other") -> Iterator[BridgeClient]:
    """A session in a project, which has shaken hands, and ends in order."""
    with bridge(REMEMBRANCER_PROJECT=str(project), REMEMBRANCER_SESSION_ID=session_id) as client:
        client.initialize()
        yield client
        client.end_input()


@contextmanager
def forked_bridge(**environ: str) -> Iterator[BridgeClient]:
    """As `bridge`, for what is not about the start of a process: it is forked, and the runtime that it starts."""
    with _closed(
        BridgeClient(waits=None, is_forked=True, **{"REMEMBRANCER_BRIDGE_BUDGET_S": "90", **environ})
    ) as client:
        yield client


@contextmanager
def _closed(client: BridgeClient) -> Iterator[BridgeClient]:
    try:
        yield client
    finally:
        client.close()


class GatewayProcess(Launched):
    """A gateway with this test as its launcher."""

    def __init__(self, home: Path, settings: Settings) -> None:
        RuntimePaths(home).run.mkdir(mode=0o700, exist_ok=True)
        self._socket = RuntimePaths(home).gateway_socket
        super().__init__("gateway", home, settings, {})

    def until_open(self) -> None:
        """Wait until a bridge can connect."""
        until(self._socket.exists)

    def close(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


@contextmanager
def gateway(home: Path, settings: Settings) -> Iterator[GatewayProcess]:
    process = GatewayProcess(home, settings)
    try:
        yield process
    finally:
        process.close()
