"""The bridge: `remembrancer mcp`, started by a client. It passes lines between its client and the gateway, in one
thread with one `poll`. Every session waits for its bridge, so it imports little of the standard library."""

# ruff: noqa: PTH100, PTH118, PTH120
from __future__ import annotations

import contextlib
import getopt
import math
import os
import select
import signal
import socket
import stat
import sys
import time

from remembrancer.actors.bridge.places import SETTINGS, find_places, hello_line, named_project, session_id
from remembrancer.actors.bridge.replay import RETRY_S, Conversation, LineBuffer, PreparedAnswers
from remembrancer.actors.bridge.starter import Starter
from remembrancer.protocol.environment import TOOLSETS_VARIABLE, unknown_toolsets
from remembrancer.protocol.gateway_link import MAX_LINE_BYTES
from remembrancer.protocol.ulids import as_ulid, new_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from remembrancer.actors.bridge.remote import RemoteGateway

DEFAULT_BUDGET_S = 4.5
"""The time limit for a gateway's answer, counted from the client's request."""
PREPARED_FILE = os.path.join(os.path.dirname(__file__), "prepared_answers.json")
"""The answers to every session with the default toolsets. If they change, a test rewrites the file."""
LEAVE_S = 1.5
"""The time limit for pending requests after the client's input ends. The bridge exits within 2 s."""
CHUNK_BYTES = 64 * 1024
HIGH_WATER_BYTES = 1024 * 1024
"""When this many bytes are waiting in one direction, the bridge stops reading from the sender."""
_HANGUP = select.POLLHUP | select.POLLERR | select.POLLNVAL
_GONE = getattr(select, "POLLRDHUP", 0)
USAGE = """usage: remembrancer mcp [--project PATH] [--data-dir DIR]
                        [--url URL [--token-file FILE] [--ca-file FILE]]
"""
HELP = f"""{USAGE}
Speak MCP on standard input and output. Clients start this command
once 'remembrancer setup' has configured them.

  --project PATH  the project, if the client does not name a root
                  (default: REMEMBRANCER_PROJECT, else the current directory)
  --data-dir DIR  where everything is kept (default: REMEMBRANCER_HOME, else the
                  system's data directory)
  --model, --cache-size, --batch-size, --timeout, --log-level
                  settings of the runtime that this session starts, which other
                  memory servers call MEMORY_MCP_MODEL, _CACHE_SIZE, …
  --url URL       use the memory on another host, such as
                  https://memory.example/mcp; --project is then the absolute
                  path of a directory there (default: the token's first project)
  --token-file FILE
                  a file that contains only that host's token
  --ca-file FILE  a PEM file with a certificate to trust besides the system's

exit status: 0 the client disconnected (or SIGTERM, SIGHUP), 1 it sent a line
that is too long, 2 wrong command line
"""


OPTIONS = (*SETTINGS, "project", "data-dir", "url", "token-file", "ca-file")


class Bridge:
    def __init__(
        self,
        hello: bytes,
        starter: Starter | RemoteGateway,
        environ: Mapping[str, str],
        prepared: PreparedAnswers | None = None,
    ) -> None:
        self._conversation = Conversation(_budget(environ), prepared, hello)
        self._starter = starter
        self._client_in, self._client_out = 0, _claim_output()
        mode = os.fstat(self._client_out).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # a terminal is shared with other programs
            os.set_blocking(self._client_out, False)
        self._from_client = LineBuffer(MAX_LINE_BYTES)
        self._from_gateway = LineBuffer()
        self._gateway: socket.socket | None = None
        self._leave_at = math.inf

    def run(self) -> int:
        try:
            while not self._is_over():
                self._wait()
                now = time.monotonic()
                self._conversation.expire(now)
                if self._gateway is None and now >= self._conversation.connect_at:
                    self._seek_gateway(now)
                self._write_gateway()
                self._write_client()
        except BrokenPipeError:  # the client no longer reads
            pass
        finally:
            self._conversation.end()
            self._write_gateway()
            if self._gateway is not None:
                self._gateway.close()
            self._starter.finish()
        return 0

    def _is_over(self) -> bool:
        conversation = self._conversation
        if time.monotonic() >= self._leave_at:
            conversation.fail_all("the client's input has ended")
            self._write_client()
            return True
        return conversation.has_ended and not (
            conversation.has_open or conversation.to_gateway or conversation.to_client
        )

    def _wait(self) -> None:
        wanted = self._wanted()
        until = min(self._conversation.next_expiry(), self._leave_at)
        if self._gateway is None:
            until = min(until, self._conversation.connect_at)
        timeout_ms = None if until == math.inf else max(0.0, (until - time.monotonic()) * 1000) + 1
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        for descriptor, events in poll.poll(timeout_ms):
            if descriptor == self._client_in:
                if events & (_HANGUP | _GONE):
                    self._leave_soon()
                if wanted[descriptor] & select.POLLIN:
                    self._read_client()
            elif descriptor != self._client_out and events & (select.POLLIN | _HANGUP):
                self._read_gateway()

    def _wanted(self) -> dict[int, int]:
        """The events to wait for, by descriptor. While the buffer for one side is full, the other side is not read."""
        wanted: dict[int, int] = {}
        to_gateway, to_client = self._conversation.to_gateway, self._conversation.to_client
        client_is_behind = len(to_client) >= HIGH_WATER_BYTES
        if not self._conversation.has_ended:
            if len(to_gateway) < HIGH_WATER_BYTES and not client_is_behind:
                wanted[self._client_in] = select.POLLIN
            elif self._leave_at == math.inf:
                wanted[self._client_in] = _GONE
        if to_client:
            wanted[self._client_out] = select.POLLOUT
        if self._gateway is not None:
            interest = (0 if client_is_behind else select.POLLIN) | (select.POLLOUT if to_gateway else 0)
            if interest:
                wanted[self._gateway.fileno()] = interest
        return wanted

    # --- the client ---

    def _read_client(self) -> None:
        try:
            data = os.read(self._client_in, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the client died, which also ends the input
        now, stamp_ms = time.monotonic(), int(time.time() * 1000)
        for line in self._from_client.feed(data) if data else self._from_client.finish():
            if text := line.strip():
                self._conversation.from_client(text, now, stamp_ms)
        if not data:
            self._leave_soon()
            self._conversation.end()

    def _leave_soon(self) -> None:
        self._leave_at = min(self._leave_at, time.monotonic() + LEAVE_S)

    def _write_client(self) -> None:
        buffer = self._conversation.to_client
        try:
            del buffer[: os.write(self._client_out, buffer[:CHUNK_BYTES]) if buffer else 0]
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenPipeError from error

    # --- the gateway ---

    def _seek_gateway(self, now: float) -> None:
        self._gateway = self._starter.dial()
        if self._gateway is not None:
            self._from_gateway = LineBuffer()
            self._conversation.connect(int(time.time() * 1000))
            return
        self._conversation.connect_at = now + RETRY_S
        if self._starter.failure is None or self._conversation.has_open:
            self._starter.tend(now)
        if self._starter.failure is not None:
            self._conversation.fail_all(self._starter.failure, retry=not self._starter.is_lasting)

    def _write_gateway(self) -> None:
        buffer = self._conversation.to_gateway
        if self._gateway is not None and buffer:
            with contextlib.suppress(OSError):  # busy or gone: its last lines can still be read
                del buffer[: self._gateway.send(buffer)]

    def _read_gateway(self) -> None:
        assert self._gateway is not None
        try:
            data = self._gateway.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.monotonic()
        for line in self._from_gateway.feed(data):
            self._conversation.from_gateway(line, now)
        if self._conversation.is_served:
            self._starter.connected()
        if not data:
            self._gateway.close()
            self._gateway = None
            self._conversation.disconnect(now)


def _budget(environ: Mapping[str, str]) -> float:
    try:
        budget_s = float(environ.get("REMEMBRANCER_BRIDGE_BUDGET_S", ""))
    except ValueError:
        return DEFAULT_BUDGET_S
    return budget_s if 0 < budget_s < math.inf else DEFAULT_BUDGET_S


def _claim_output() -> int:
    """Reserve standard output for the protocol; other output of this process goes to standard error."""
    claimed = os.dup(1)
    os.dup2(2, 1)
    return claimed


def _options(argv: list[str]) -> dict[str, str]:
    try:
        given, others = getopt.getopt(argv, "", [f"{name}=" for name in OPTIONS])
    except getopt.GetoptError as error:
        raise ValueError(error.msg) from error
    options = {name.removeprefix("--"): value for name, value in given}
    if others or len(options) < len(given) or "" in options.values():
        raise ValueError("give each option as --NAME VALUE, and only once")
    if "url" not in options and not options.keys().isdisjoint({"token-file", "ca-file"}):
        raise ValueError("--token-file and --ca-file need --url")
    if "url" in options and (local := options.keys() & {"data-dir", *SETTINGS}):
        raise ValueError(f"--{min(local)} cannot be combined with --url")
    return options


def with_settings(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, **{variable: options[name] for name, variable in SETTINGS.items() if name in options}}


def _bridge(options: Mapping[str, str], environ: Mapping[str, str]) -> Bridge:
    environ = with_settings(options, environ)
    if "data-dir" in options:
        environ = {**environ, "REMEMBRANCER_HOME": os.path.abspath(options["data-dir"])}
    now, places = time.time(), find_places(environ)
    whose = named_project(options.get("project"), environ)
    hello = hello_line(new_identity(now), session_id(environ, now), whose, environ, places.config)
    prepared = None if environ.get(TOOLSETS_VARIABLE) else PreparedAnswers(PREPARED_FILE)
    return Bridge(hello, Starter(places, environ), environ, prepared)


def _remote_bridge(options: Mapping[str, str], environ: Mapping[str, str]) -> Bridge:
    """The gateway at an address may give other answers, so no prepared answers are used."""
    from remembrancer.actors.bridge.remote import RemoteGateway

    remote = RemoteGateway(
        options["url"],
        as_ulid(new_identity(time.time())),
        token_file=options.get("token-file"),
        ca_file=options.get("ca-file"),
        project=options.get("project") or environ.get("REMEMBRANCER_PROJECT", ""),
        toolsets=environ.get(TOOLSETS_VARIABLE, ""),
    )
    return Bridge(b"\n", remote, environ)


def main(argv: list[str]) -> int:
    if argv in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    try:
        options = _options(argv)
        bridge = _remote_bridge(options, os.environ) if "url" in options else _bridge(options, os.environ)
    except ValueError as error:
        sys.stderr.write(f"remembrancer mcp: {error}\n{USAGE}")
        return 2
    for text in unknown_toolsets(os.environ.get(TOOLSETS_VARIABLE, "")):
        sys.stderr.write(f"remembrancer mcp: {TOOLSETS_VARIABLE}: {text}\n")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))  # sent by the client, or when the terminal closes
    try:
        return bridge.run()
    except OverflowError as error:
        sys.stderr.write(f"remembrancer mcp: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
