"""A runtime that a person started in the foreground: watched, and ended."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from remembrancer.protocol.control import ProcessStatus
from remembrancer.protocol.paths import RuntimePaths
from tests.forked import start_command
from tests.patience import PATIENCE_S, wait_until
from tests.runtime import status_of


def is_dead(pid: int) -> bool:
    """True if that process runs no more: a zombie is dead, though process 1 may never collect it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class RunningRuntime:
    def __init__(self, home: Path, *arguments: str, settings: dict[str, str] | None = None) -> None:
        self.home = home
        self.paths = RuntimePaths(home)
        descriptor, output_name = tempfile.mkstemp(prefix="rmb-output-")
        self.output = Path(output_name)
        environ = {**os.environ, "REMEMBRANCER_HOME": str(home), **(settings or {})}
        os.close(descriptor)
        self.process = start_command("up", *arguments, environ=environ, printed=self.output)

    def until_state(self, name: str, state: str, *, besides_pid: int = -1) -> ProcessStatus:
        """Wait until the process is in that state (and has another pid)."""

        def reached() -> ProcessStatus | None:
            status = status_of(self.home)
            assert status or self.process.poll() is None, f"the launcher has ended: {self.output.read_text()}"
            found = {each.name: each for each in (status.processes if status else ())}.get(name)
            return found if found and found.state == state and found.pid != besides_pid else None

        return wait_until(reached)

    def until_ready(self, *names: str) -> dict[str, ProcessStatus]:
        return {name: self.until_state(name, "ready") for name in names or ("gateway", "store", "embedder-1")}


@contextmanager
def runtime(home: Path, *arguments: str, settings: dict[str, str] | None = None) -> Iterator[RunningRuntime]:
    """A runtime that is stopped in order at the end, if the test has not ended it."""
    running = RunningRuntime(home, *arguments, settings=settings)
    try:
        yield running
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(2 * PATIENCE_S) == 0
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        running.output.unlink(missing_ok=True)
