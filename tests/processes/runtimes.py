"""A runtime of badly behaved processes in a test: started, steered, watched, and ended.

What a process does is written in `<home>/behaviour/<name>`, read at each of its starts; without the file it behaves
well. Each start appends its incarnation to `<name>.starts`, each message from the launcher to `<name>.heard`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
import psutil

from remembrancer import command_line
from remembrancer.actors.actor_process import Actor, LaunchSpec, run_actor
from remembrancer.actors.launcher import lifecycle
from remembrancer.commands import runtime_commands
from remembrancer.protocol import sockets, wire
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    EmbedderHealth,
    GatewayHealth,
    IndexerHealth,
    PeerGone,
    ProcessHealth,
    ProcessStatus,
    RuntimeStatus,
    StoreHealth,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.wire import PROTOCOL_VERSION
from tests.forked import ForkedProcess, forking, redirect
from tests.patience import PATIENCE_S, pause_s
from tests.runtime import status_of

ORDINARY = ("gateway", "store", "embedder-1")

T = TypeVar("T")


def until(what: Callable[[], T | None]) -> T:
    """The first result of `what` that is true; fails the test when there is none in time."""
    began = time.monotonic()
    give_up_at = began + PATIENCE_S
    while not (result := what()):
        assert time.monotonic() < give_up_at, "what was waited for has not come about"
        time.sleep(pause_s(began, 0.02))
        began = time.monotonic()
    return result


def is_dead(pid: int) -> bool:
    """True if that process runs no more: a zombie is dead, though process 1 may never collect it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class RunningRuntime:
    """A launcher process of a home. Its processes have all the time that they take to stop."""

    def __init__(self, home: Path, *arguments: str, settings: dict[str, str] | None = None) -> None:
        self.home = home
        self.paths = RuntimePaths(home)
        descriptor, output_name = tempfile.mkstemp(prefix="rmb-output-")
        self.output = Path(output_name)
        environ = {**os.environ, "REMEMBRANCER_HOME": str(home), **(settings or {})}
        os.close(descriptor)
        self.process = ForkedProcess(launch, self.output, *arguments, environ=environ)
        self.process.stdin.close()

    def status(self) -> RuntimeStatus | None:
        status = status_of(self.home)
        if status is None:
            assert self.process.poll() is None, f"the launcher has ended: {self.output.read_text()}"
        return status

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

    def lines(self, file: str) -> list[str]:
        path = self.home / "behaviour" / file
        return path.read_text().splitlines() if path.exists() else []


def behave(home: Path, name: str, how: str) -> None:
    """From its next start on, the process behaves so."""
    directory = home / "behaviour"
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(how)


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


class BadlyBehaved(Actor):
    """Is of another release, has a child or counts sessions, as its file says."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._directory = Path(spec.home) / "behaviour"
        self._directory.mkdir(exist_ok=True)
        file = self._directory / spec.name
        self._behaviour = file.read_text() if file.exists() else ""
        self._note("starts", spec.incarnation)  # from here on the file may be changed
        if self._behaviour == "is of another release":
            for module in (wire, sockets):
                setattr(module, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)  # noqa: B010 - it is final

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        if self._behaviour == "has a child":
            self._note("child", str(subprocess.Popen(["sleep", "600"]).pid))
        task_status.started()
        await anyio.sleep_forever()

    def health(self) -> ProcessHealth:
        match self.spec.role:
            case "gateway":
                sessions = self._directory / "sessions"
                count = int(sessions.read_text()) if sessions.exists() else 0
                return GatewayHealth(sessions=count, queue_depth=0, queue_rejected=0, store="connected")
            case "store":
                summary = EmbeddingSummary("onnx", "test", 384, pending=0, workers=1)
                return StoreHealth(counts=Counts(total=7), embedding=summary)
            case "embedder":
                return EmbedderHealth()
            case "consolidator":
                return ConsolidatorHealth()
            case "indexer":
                return IndexerHealth()

    async def drain(self, reason: str) -> None:
        self._note("heard", f"stop: {reason}")
        with (self._directory / "ended").open("a") as log:
            log.write(f"{self.spec.name}\n")

    def on_peer_gone(self, peer: PeerGone) -> None:
        self._note("heard", f"gone: {peer.role} {peer.incarnation}")

    def _note(self, what: str, line: str) -> None:
        with (self._directory / f"{self.spec.name}.{what}").open("a") as log:
            log.write(f"{line}\n")


def main(_: list[str]) -> None:
    run_actor(BadlyBehaved)


def launch(output: Path, *arguments: str) -> None:
    """The launcher's process: `remembrancer up` with these actors instead of the real ones."""
    redirect(output, output)
    setattr(lifecycle, "ASK_S", PATIENCE_S)  # noqa: B010 - it is final where nobody is patient
    with forking():
        setattr(runtime_commands, "ACTOR", lambda role: [sys.executable, "-P", "-m", __name__, role])  # noqa: B010
        raise SystemExit(command_line.main(["up", *arguments]))
