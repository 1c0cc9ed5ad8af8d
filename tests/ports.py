"""Ports for servers that tests start, and web servers of this process."""

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

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


class QuietHandler(BaseHTTPRequestHandler):
    def answer(self) -> None:
        """Answer a POST."""
        raise NotImplementedError

    def do_POST(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving(handler: type[QuietHandler]) -> Iterator[str]:
    """The address of a web server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
