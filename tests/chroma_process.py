"""A real Chroma server (`chroma run`) in a process of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.patience import PATIENCE_S
from tests.ports import free_port


class ChromaProcess:
    """A server over a directory, which may be killed, paused and started again on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        run = "import sys, chromadb_rust_bindings as chroma; chroma.cli(['chroma', *sys.argv[1:]])"  # as `chroma` does
        where = ("--path", str(self._directory), "--host", "127.0.0.1", "--port", str(self._port))
        self._process = subprocess.Popen(
            [sys.executable, "-c", run, "run", *where],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "REMEMBRANCER_HOME"},
            cwd=self._directory,
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                httpx.get(f"{self.url}/api/v2/heartbeat", timeout=1.0).raise_for_status()
                return
            except httpx.HTTPError:
                assert time.monotonic() < deadline, "the Chroma server does not come up"
                time.sleep(0.05)

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self, *, on: bool) -> None:
        """Have it hang, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def collections(self) -> dict[str, int]:
        """Its collections, and how much is in each."""
        base = f"{self.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
        listed = httpx.get(base).raise_for_status().json()
        counts = {each["name"]: httpx.get(f"{base}/{each['id']}/count") for each in listed}
        return {name: count.json() for name, count in counts.items() if count.is_success}  # not deleted meanwhile

    def wipe(self) -> None:
        """Delete all its collections, as if its disk had been lost."""
        base = f"{self.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
        for name in self.collections():
            httpx.delete(f"{base}/{name}").raise_for_status()


@contextmanager
def chroma_process(directory: Path) -> Iterator[ChromaProcess]:
    """A server that is up, and is killed at the end."""
    server = ChromaProcess(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
