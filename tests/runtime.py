"""A runtime seen from outside, for the tests with real processes: its processes, its status, its records on disk."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil

from bench.client import LINE_LIMIT_BYTES, StdioClient
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import end_runtime, is_up, look
from remembrancer.commands.runtime_commands import STOP_LIMIT_S
from remembrancer.commands.status import report
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import find_problems
from tests.forked import run_command, start_bridge, start_runtime
from tests.patience import PATIENCE_S, until, wait_until
from tests.spaces import rows_of

ERAS: Final = ("legacy", "2026-07-28")
"""Modes of the SDK's client: the handshake, and the newest protocol."""
READ_AT_ONCE: Final = "watch_quiet_s = 0.05\n"
"""A configuration file with which changed files are read at once, and an indexer ends at once."""


def command(
    *arguments: str,
    home: Path,
    stdin: str = "",
    directory: Path | None = None,
    timeout_s: float = PATIENCE_S,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "REMEMBRANCER_HOME": str(home), **variables}
    done = run_command(*arguments, environ=environ, stdin=stdin.encode(), timeout_s=timeout_s, directory=directory)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def done(*arguments: str, home: Path, status: int = exit_codes.OK, **options: Any) -> str:
    """As `command`, which has to end with that exit status: what it printed, or else what it complained of."""
    finished = command(*arguments, home=home, **options)
    assert (finished.returncode, "Traceback" in finished.stderr) == (status, False), finished.stderr
    return finished.stdout if status == exit_codes.OK else finished.stderr


def patiently(*arguments: str, home: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `command`, by somebody who runs it again where something does not answer, as such a command says."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        done = command(*arguments, home=home, **options)
        if done.returncode != exit_codes.NO_ANSWER or time.monotonic() > give_up_at:
            return done
        time.sleep(0.1)


def files_with(home: Path, word: bytes) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file() and word in path.read_bytes()]


def start(home: Path, **environ: str) -> None:
    """Start a runtime as a session does. Fails the test where it does not come up."""
    start_runtime({**os.environ, "REMEMBRANCER_HOME": str(home), **environ})
    assert is_up(RuntimePaths(home))


def stop_runtime(home: Path) -> None:
    """Stop the runtime of a home, if one is up, as `remembrancer down` does, though on a busy machine not at once."""
    paths, give_up_at = RuntimePaths(home), time.monotonic() + PATIENCE_S
    while is_up(paths):
        assert time.monotonic() < give_up_at, f"the runtime of {home} does not end"
        end_runtime(paths, STOP_LIMIT_S)


def status_of(home: Path) -> RuntimeStatus | None:
    """The answer of a home's launcher; None where none runs, or it is held up."""
    state = look(RuntimePaths(home))
    return state if isinstance(state, RuntimeStatus) else None


class Runtime:
    def __init__(self, home: Path) -> None:
        self.home = home

    async def status(self) -> dict[str, Any]:
        # Without this task's context, by which a library could take the thread to have an event loop already.
        return await asyncio.get_running_loop().run_in_executor(None, self._status)

    async def fresh_status(self) -> dict[str, Any]:
        """The same, once no process is late with what it says of itself."""
        status: dict[str, Any] = await until(self.status, lambda said: said["processes"] and not _is_late(said))
        return status

    def _status(self) -> dict[str, Any]:
        give_up_at = time.monotonic() + PATIENCE_S
        while (status := status_of(self.home)) is None and is_up(RuntimePaths(self.home)):
            if time.monotonic() >= give_up_at:  # one that is held up is there all the same
                break
        printed: dict[str, Any] = json.loads(
            json.dumps(report(self.home, status, find_problems(status) if status else ()))
        )
        return printed

    async def is_ready(self) -> bool:
        """Every process is ready, none is only said to be so from before, and a worker has its model."""
        return _is_ready(await self.status())

    async def is_drained(self) -> bool:
        """Everything is up, nothing is queued, nothing waits for a vector."""
        status = await self.status()
        return _is_ready(status) and status["write_queue"]["depth"] == 0 and status["embedding"]["pending"] == 0

    async def down(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, stop_runtime, self.home)

    def recorded(self) -> list[tuple[str, int]]:
        """Role and process id of what the launcher runs now; it is asked again while it does not answer."""
        deadline = time.monotonic() + PATIENCE_S
        with ThreadPoolExecutor(1) as thread:  # it wants an event loop of its own
            while True:
                processes = thread.submit(self._status).result()["processes"]
                if processes or not is_up(RuntimePaths(self.home)) or time.monotonic() > deadline:
                    return [(process["role"], process["pid"]) for process in processes]

    def process(self, role: str) -> psutil.Process:
        return psutil.Process(self.pid(role))

    def pid(self, role: str) -> int:
        """The process id of the first process of a role; 0 while there is none, because it is started anew."""
        return next((pid for each, pid in self.recorded() if each == role), 0)

    def kill(self, role: str | None = None) -> None:
        """`kill -9`, of all without a role; nothing when it is dead already."""
        for each, pid in self.recorded():
            if role in (None, each) and pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @contextmanager
    def suspended(self, role: str) -> Iterator[psutil.Process]:
        """A process stands still meanwhile. The launcher may have put another in its place at the end."""
        process = self.process(role)
        process.suspend()
        try:
            wait_until(
                lambda: process.status() == psutil.STATUS_STOPPED
            )  # it arrives when its threads have a processor
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    @property
    def database(self) -> Path:
        return self.home / "memory.db"

    def contents(self) -> dict[str, str]:
        """Every memory on disk, id to content, but the records that sessions leave when they end. The file is whole."""
        assert self.rows("PRAGMA integrity_check") == [("ok",)]
        return dict(self.rows(f"SELECT id, content FROM memories WHERE kind != '{SESSION_RECORD}'"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return rows_of(self.database, query)


def _is_ready(status: dict[str, Any]) -> bool:
    states = {process["state"] for process in status["processes"]}
    return states == {"ready"} and not _is_late(status) and bool(status["embedding"]["workers"])


def _is_late(status: dict[str, Any]) -> bool:
    """True if something may be known from before alone. Consolidator and indexer, which give way to all others, may be
    late for long on a busy machine."""
    return not {"consolidator", "indexer"}.issuperset(status["late"])


def embedded(told: dict[str, Any]) -> bool:
    """True if a status says of embedding that its worker is there, and nothing waits for it."""
    return (told["workers"], told["pending"]) == (1, 0)


class ColdSession(StdioClient):
    """A session of a client whose bridge is forked, and the runtime that this starts where none is up."""

    async def start(self) -> None:
        self.process = await start_bridge(  # type: ignore[assignment]
            *self._arguments, environ=self._environ, directory=self._cwd, limit_bytes=LINE_LIMIT_BYTES
        )
        self._reader = asyncio.create_task(self._read())


class Session(ColdSession):
    """As its base; a runtime is up before it begins."""

    async def start(self) -> None:
        await asyncio.to_thread(start_runtime, self._environ)
        await super().start()


class PatientSession(Session):
    """As an assistant that calls again while it is told that it may: for calls that bear being done twice."""

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await super().call(tool, **arguments)
            if not ("error" in answer and answer.get("retry_possible")) or time.monotonic() > deadline:
                return answer


def note_session(home: Path, workspace: Path, *, session: type[StdioClient] = Session, **settings: str) -> StdioClient:
    (home / "config.toml").write_text(READ_AT_ONCE)
    environ = {"REMEMBRANCER_TOOLSETS": "memory,files"}
    environ |= {f"REMEMBRANCER_{name.upper()}": value for name, value in settings.items()}
    return session(home, cwd=workspace, environ=environ)
