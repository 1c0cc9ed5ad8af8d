"""A runtime of badly behaved processes in a test: started, steered, watched, and ended."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from unittest import mock

import psutil

from remembrancer.commands import runtime_client
from remembrancer.commands.runtime_client import ask
from remembrancer.protocol.control import AskScale, AskStatus, ProcessStatus, RuntimeStatus
from remembrancer.protocol.errors import DeadlineExceeded, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths
from tests.forked import ForkedProcess
from tests.patience import PATIENCE_S, pause_s
from tests.processes.badly_behaved import launch

ORDINARY = ("gateway", "store", "embedder-1")

T = TypeVar("T")


def until(what: Callable[[], T | None], *, within_s: float = PATIENCE_S) -> T:
    """The first result of `what` that is true; fails the test when there is none in time."""
    began = time.monotonic()
    give_up_at = began + within_s
    while not (result := what()):
        assert time.monotonic() < give_up_at, "what was waited for has not come about"
        time.sleep(pause_s(began, 0.02))
        began = time.monotonic()
    return result


def is_dead(pid: int) -> bool:
    """True if that process runs no more; nobody may have collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until_dead(processes: Iterable[psutil.Process]) -> None:
    """Wait until none of them runs: a zombie is dead, though process 1 may never collect it."""
    give_up_at = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if not is_dead(process.pid)]:
        assert time.monotonic() < give_up_at, f"they go on: {left}"
        time.sleep(0.02)


class RunningRuntime:
    """A launcher process of a home. Its processes have all the time that they take to stop, unless they have to be
    `quick_to_stop`, as in every runtime."""

    def __init__(
        self, home: Path, *arguments: str, settings: dict[str, str] | None = None, quick_to_stop: bool = False
    ) -> None:
        self.home = home
        self.paths = RuntimePaths(home)
        descriptor, output_name = tempfile.mkstemp(prefix="rmb-output-")
        self.output = Path(output_name)
        environ = {**os.environ, "REMEMBRANCER_HOME": str(home), **(settings or {})}
        os.close(descriptor)
        stops_within_s = None if quick_to_stop else PATIENCE_S
        self.process = ForkedProcess(launch, self.output, stops_within_s, *arguments, environ=environ)
        self.process.stdin.close()

    def status(self) -> RuntimeStatus | None:
        try:
            answer = ask(self.paths, AskStatus())
        except (PeerUnavailable, PeerLost, DeadlineExceeded):
            assert self.process.poll() is None, f"the launcher has ended: {self.output.read_text()}"
            return None
        assert isinstance(answer, RuntimeStatus)
        return answer

    def until_state(self, name: str, state: str, *, besides_pid: int = -1) -> ProcessStatus:
        """Wait until the process is in that state (and has another pid)."""

        def reached() -> ProcessStatus | None:
            status = self.status()
            processes = status.processes if status else ()
            of_name = (each for each in processes if each.name == name)
            return next((each for each in of_name if each.state == state and each.pid != besides_pid), None)

        return until(reached)

    def until_ready(self, *names: str) -> dict[str, ProcessStatus]:
        """Wait until the named processes (default: those that an ordinary start has) are ready."""
        return {name: self.until_state(name, "ready") for name in names or ORDINARY}

    def scale(self, embedders: int) -> int:
        with mock.patch.multiple(runtime_client, CONNECT_S=PATIENCE_S, ANSWER_S=PATIENCE_S):
            return ask(self.paths, AskScale(embedders))

    def heard(self, name: str) -> list[str]:
        return self.lines(f"{name}.heard")

    def starts(self, name: str) -> list[str]:
        return self.lines(f"{name}.starts")

    def lines(self, file: str) -> list[str]:
        path = self.home / "behaviour" / file
        return path.read_text().splitlines() if path.exists() else []


def behave(home: Path, name: str, how: str) -> None:
    """From its next start on, the process behaves so."""
    directory = home / "behaviour"
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(how)


@contextmanager
def runtime(
    home: Path, *arguments: str, settings: dict[str, str] | None = None, quick_to_stop: bool = False
) -> Iterator[RunningRuntime]:
    """A runtime that is stopped in order at the end, if the test has not ended it."""
    running = RunningRuntime(home, *arguments, settings=settings, quick_to_stop=quick_to_stop)
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
