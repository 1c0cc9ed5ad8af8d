"""Servers that tests start, and their ports; web servers of this process."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

from tests.patience import wait_until

EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST: Final = 10_000
WORKERS: Final = 16
"""Each of so many processes that run the tests side by side has ports of its own."""
_chooser = random.SystemRandom()
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_given: set[int] = set()


def _first_ephemeral() -> int:
    """The first of the ports that the system gives to whoever asks for any; as IANA has it where it does not say."""
    return int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 49_152


def free_port(apart: int = 0) -> int:
    """A port of 127.0.0.1 on which nobody listens, and which the system gives to nobody by itself: it is as free when
    the server starts, or starts again after a kill. So is the port that is `apart` from it, a multiple of `WORKERS`."""
    while True:
        port = _chooser.randrange(FIRST + _worker, max(_first_ephemeral() - apart, FIRST + 1000), WORKERS)
        ports = {port, port + apart}
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class ServerProcess:
    """A server that works in a directory and listens at an address, which a test kills and starts again."""

    def __init__(self, directory: Path, address: str, *command: str) -> None:
        self.directory = directory
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "REMEMBRANCER_HOME"}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self.directory, stdout=log, stderr=log, env=environ)
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((self._host, self._port)) == 0

    def end(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def again(self) -> None:
        """Kill it, and start it on what it has left."""
        self.end()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class QuietHandler(BaseHTTPRequestHandler):
    def answer(self) -> None:
        raise NotImplementedError

    def asked(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": content_type, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving(handler: type[QuietHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
