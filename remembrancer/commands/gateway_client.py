"""Talks to the gateway for commands and hooks, as a session without a bridge. Standard library only, to start fast."""

from __future__ import annotations

import json
import select
import time

from remembrancer import __version__
from remembrancer.actors.bridge.places import hello_line
from remembrancer.protocol.gateway_link import CONTROL, INVALID, MAX_LINE_BYTES, REFUSED, stamped
from remembrancer.protocol.ulids import new_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Mapping
    from typing import Any

    from remembrancer.actors.bridge.places import Places
    from remembrancer.actors.bridge.starter import Starter

    Message = dict[str, Any]
PROTOCOL = "2025-11-25"
LOOK_S = 0.02
LEAST_START_S = 0.25
"""A runtime takes at least this long to start. Callers with less time do not wait for it."""


def reach(starter: Starter, until: float) -> socket.socket | None:
    """Connect by `until` (`time.monotonic`). Returns None on failure; `starter` may know the reason. Starts a
    runtime if none is running, even if it will be ready too late for this caller."""
    while (link := starter.dial()) is None:
        now = time.monotonic()
        starter.tend(now)
        if starter.failure is not None or now + LEAST_START_S >= until:
            return None
        pause(LOOK_S)  # there is no event for a new socket
    starter.connected()
    link.settimeout(max(LOOK_S, until - time.monotonic()))
    return link


def pause(seconds: float) -> None:
    """Sleep. `time.sleep` waits for a point on the monotonic clock, which fails under libfaketime."""
    select.select((), (), (), seconds)


class GatewayClient:
    """A session on one connection. Failures and refusals raise an `OSError` with the reason."""

    def __init__(
        self,
        link: socket.socket,
        places: Places,
        session: str,
        directory: str,
        environ: Mapping[str, str],
        client: str,
        named_project: Message | None = None,
    ) -> None:
        """`environ` is sent to the gateway; `named_project` (`id`, `path`) replaces the directory's project."""
        self._link = link
        self._lines = link.makefile("rb")
        self._number = 0
        others = {"passing": True, "directory": directory, "named_project": named_project}
        link.sendall(hello_line(new_identity(time.time()), session, directory, environ, places.config, **others))
        about = {"name": client, "version": __version__}
        self._send("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}, number=0)
        self._send("notifications/initialized", {})

    def call(self, tool: str, arguments: Message, until: float) -> Message:
        """Call a tool and return its structured answer. Raises `TimeoutError` after `until` (`time.monotonic`)."""
        _remaining_s(until)
        self._number += 1
        self._send("tools/call", {"name": tool, "arguments": arguments}, self._number)
        while True:
            self._link.settimeout(_remaining_s(until))
            line = self._lines.readline(4 * MAX_LINE_BYTES)
            if not line:
                raise ConnectionError("the connection was lost")
            if line.startswith((REFUSED, INVALID)):
                raise ConnectionError(line.partition(b" ")[2].decode(errors="replace").strip())
            message: Message = {} if line.startswith(CONTROL) else json.loads(line)
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    raise ConnectionError(message["error"]["message"])
                answer: Message = message["result"]["structuredContent"]
                _remaining_s(until)  # it may have arrived while this process was not scheduled
                return answer

    def close(self) -> None:
        self._lines.close()
        self._link.close()

    def _send(self, method: str, params: Message, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
        self._link.sendall(stamped(json.dumps(message, separators=(",", ":")).encode(), int(time.time() * 1000)))


def ask_process(process: subprocess.Popen[bytes], number: int, method: str, params: Message) -> Message:
    """Raises `ValueError` if the answer is an error or not JSON, and `OSError` if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    while line := process.stdout.readline():
        answer: Message = json.loads(line)
        if answer.get("id") == number and "method" not in answer:
            if "error" in answer:
                raise ValueError(f"{method} was answered with an error: {answer['error'].get('message')}")
            result: Message = answer["result"]
            return result
    raise ConnectionError("it exited, or did not answer in time")


def _remaining_s(until: float) -> float:
    """Raises `TimeoutError` if the deadline has passed."""
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("it took too long")
    return remaining
