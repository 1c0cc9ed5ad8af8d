"""One runtime of a home, which carries out the decisions of `Supervision` with real processes, sockets and time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import anyio
import anyio.abc
import msgspec
import psutil

from remembrancer.actors.actor_process import EXIT_START_FAILED, LaunchSpec, configure_logs
from remembrancer.actors.launcher.home import (
    claim_home,
    clear_memory_home,
    leave_run_directory,
    prepare_home,
    take_home,
    write_record,
)
from remembrancer.actors.launcher.lifecycle import Lifecycle, System
from remembrancer.actors.launcher.supervision import Supervision
from remembrancer.config.reading import Configuration
from remembrancer.config.settings import REMOTE_ENGINES, Settings, secret_variables
from remembrancer.protocol.control import (
    AskScale,
    AskStatus,
    EmbedderHealth,
    PeerGone,
    Ping,
    ProcessStatus,
    RuntimeStatus,
    Stop,
    ToLauncher,
    to_launcher,
)
from remembrancer.protocol.environment import runtime_environment
from remembrancer.protocol.errors import Failure, RemembrancerError
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope

logger = logging.getLogger(__name__)

LOCK_WAIT_S: Final = 0.3
"""The maximum wait for the runtime's lock, which `status` and `down` hold briefly while checking it."""
SOCKETS_LOOK_S: Final = 1.0
"""The interval between checks that the sockets still exist. If they do not, the runtime stops."""
FRESH_ANSWERS_S: Final = 0.5
"""The maximum wait for new reports. After that, a command gets the last known ones."""
OUTPUT_LIMIT_BYTES: Final = 1024 * 1024
"""The size up to which a process's output file is kept across starts. The actual log rotates by itself."""
SMALL: Final = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "1"}
"""The matrices outside the model are small. NumPy's own threads would only take processor time from the model, and so
would the tokenizer's. Threads that take turns do not need separate heaps, which would use 30 MB more."""

_decode_failure: Final = msgspec.json.Decoder(Failure).decode


class Runtime(NamedTuple):
    """If `in_memory`, an orderly stop deletes the home's content. `when_started`: the start can no longer fail."""

    paths: RuntimePaths
    load_configuration: Callable[[], Configuration]
    environ: Mapping[str, str]
    secrets: Mapping[str, str]
    for_sessions: bool
    in_memory: bool
    no_token: bool
    when_started: Callable[[], None]

    def run(self) -> str:
        """Return why the runtime stopped. Raises `HomeUnusable`, `AlreadyRunning`, or `load_configuration`'s errors."""
        os.umask(0o077)  # child processes inherit the mask
        claim_home(self.paths, in_memory=self.in_memory)
        with take_home(self.paths, LOCK_WAIT_S):
            prepare_home(self.paths)
            with contextlib.suppress(OSError):  # e.g. a full disk: there is nothing to clean up yet
                write_record(self.paths, os.getpid())
            try:
                reason = self._supervise()
            finally:
                with contextlib.suppress(OSError):
                    self.paths.runtime_record.unlink(missing_ok=True)
                leave_run_directory(self.paths)
            if self.in_memory:  # after a failure, it is kept: it contains acknowledged writes
                clear_memory_home(self.paths)
            return reason

    def _supervise(self) -> str:
        settings = self._read_settings()
        self.when_started()
        logger.info("starting", extra={"home": str(self.paths.home), "for_sessions": self.for_sessions})
        supervisor = Supervisor(self, settings, self._take_secrets(settings))
        try:
            return anyio.run(supervisor.run)
        except Exception:
            logger.exception("the launcher crashed")
            raise

    def _take_secrets(self, settings: Settings) -> dict[str, str]:
        names = {name for engine in REMOTE_ENGINES for name in secret_variables(settings, engine)}
        taken = {name: self.secrets[name] for name in names if name in self.secrets}
        for name, value in taken.items():
            _blot_out(name, value)
        return taken

    def _read_settings(self) -> Settings:
        """Errors are logged, since nobody reads the error output of a runtime that a session started."""
        try:
            configuration = self.load_configuration()
        except RemembrancerError as error:
            configure_logs(self.paths.logs, "launcher", "info")
            logger.error("cannot start", extra={"code": error.code, "reason": error.message})
            raise
        configure_logs(self.paths.logs, "launcher", configuration.settings.log_level)
        for warning in configuration.warnings:
            logger.warning("configuration", extra={"reason": warning})
        return configuration.settings


def _blot_out(name: str, value: str) -> None:
    """Overwrite a variable in the environment that the system publishes for this process (`/proc/<pid>/environ`)."""
    if name in os.environ:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        address = getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("*"), len(os.fsencode(value)))
        del os.environ[name]


class Supervisor(System):
    """Each embedder gets the `secrets` that its engine needs; other processes get none."""

    def __init__(self, runtime: Runtime, settings: Settings, secrets: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._paths = runtime.paths
        self._settings = settings
        self._secrets = secrets
        self._started_at = time.monotonic()
        self._core = Supervision(settings, self, for_sessions=runtime.for_sessions, now=self._started_at)
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._changed = anyio.Event()
        self._router: Router[ToLauncher] = Router(
            runtime.paths.control_endpoint, Speaker("launcher", new_ulid()), to_launcher, self._hear
        )

    async def run(self) -> str:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # keep ignoring it, as nohup requires
                loop.add_signal_handler(number, self._decide, self._core.stop, number.name)
        async with self._router, anyio.create_task_group() as self._tasks:
            self._decide(self._core.tick)
            self._tasks.start_soon(self._watch_sockets)
            while not self._core.finished:
                self._changed = anyio.Event()
                with anyio.move_on_after(max(0.0, self._core.next_at - time.monotonic())):
                    await self._changed.wait()
                self._decide(self._core.tick)
            self._tasks.cancel_scope.cancel()
        reason = self._core.stopping or ""
        logger.info("stopped", extra={"reason": reason})
        return reason

    async def _watch_sockets(self) -> None:
        """Stop the runtime if its sockets are gone: it would hold the home, but no new session could reach it."""
        socket = self._paths.control_endpoint.removeprefix("ipc://")
        while os.path.lexists(socket):  # noqa: ASYNC110, ASYNC240 - no event reports it, and no disk is waited for
            await anyio.sleep(SOCKETS_LOOK_S)
        self._decide(self._core.stop, f"its sockets in {self._paths.run} are gone")

    def _decide(self, event: Callable[..., None], *about: object) -> None:
        event(*about, time.monotonic())
        self._changed.set()

    # --- carrying out the decisions ---

    def start(self, process: Lifecycle) -> str:
        settings, home = self._settings, str(self._paths.home)
        if process.model is not None:
            settings = msgspec.structs.replace(settings, engine=process.model.engine, model=process.model.model)
        spec = LaunchSpec(
            process.role, process.name, new_ulid(), home, settings, process.threads, self._runtime.no_token
        )
        wanted = secret_variables(self._settings, settings.engine) if process.role == "embedder" else ()
        secrets = {name: value for name, value in self._secrets.items() if name in wanted}
        self._tasks.start_soon(self._run_child, spec, secrets)
        return spec.incarnation

    def ping(self, process: Lifecycle) -> None:
        self._tasks.start_soon(self._ping, _peer(process))

    def tell(self, process: Lifecycle, message: Stop | PeerGone) -> None:
        self._router.send(_peer(process), message)

    def signal(self, process: Lifecycle, which: Literal["TERM", "KILL"]) -> None:
        child = self._children.get(process.name)
        if child is not None and which == "KILL":
            _kill_group(child)
        elif child is not None:
            with contextlib.suppress(ProcessLookupError):  # it has already exited
                child.terminate()

    async def _run_child(self, spec: LaunchSpec, secrets: Mapping[str, str]) -> None:
        """Run a process until it exits, in its own process group, with its output in `<name>.out`. End of file on its
        standard input tells it that the launcher is dead. Only this process gets `secrets`."""
        name, home, output = spec.name, self._paths.home, self._paths.logs / f"{spec.name}.out"
        inherited = runtime_environment(self._runtime.environ)
        try:
            with _open_output(output) as opened:
                child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "remembrancer.actors", spec.role),
                    stdin=subprocess.PIPE,
                    stdout=opened,
                    stderr=opened,
                    process_group=0,  # interrupts go to the launcher only, and the whole group can be killed
                    cwd=home,  # a session's directory may be deleted, or its disk unmounted, while the runtime lives
                    env={**SMALL, **inherited, "REMEMBRANCER_HOME": str(home), **secrets},
                )
        except OSError as error:
            logger.error("cannot start a process", extra={"child": name, "reason": str(error)})
            self._decide(self._core.on_exit, name, spec.incarnation, f"it cannot be started: {error.strerror}")
            return
        self._children[name] = child
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(spec) + b"\n")
        status = await child.wait()
        _kill_group(child)
        child.stdin.close()
        logger.info("process ended", extra={"child": name, "child_pid": child.pid, "status": status})
        if self._children.get(name) is child:
            del self._children[name]
        ending = _failure_in(output, name) if status == EXIT_START_FAILED else status
        self._decide(self._core.on_exit, name, spec.incarnation, ending)

    def _hear(self, peer: Peer, envelope: Envelope, message: ToLauncher) -> None:
        match message:
            case AskStatus():
                self._tasks.start_soon(self._report, peer, envelope.message_id)
            case AskScale(embedders=embedders):
                self._decide(self._core.scale, embedders)
                self._router.send(peer, embedders, in_reply_to=envelope.message_id)
            case health:
                self._decide(self._core.on_health, peer.name, peer.incarnation, health)

    async def _ping(self, peer: Peer) -> bool:
        with contextlib.suppress(RemembrancerError):
            health = await self._router.ask(peer, Ping(), timeout_s=self._settings.stall_timeout_s)
            self._decide(self._core.on_health, peer.name, peer.incarnation, health)
            return True
        return False

    async def _report(self, peer: Peer, asked: int) -> None:
        ready = [process for process in self._core.processes if process.state == "ready"]
        late = {process.name for process in ready}

        async def refresh(process: Lifecycle) -> None:
            if await self._ping(_peer(process)):
                late.discard(process.name)

        with anyio.move_on_after(FRESH_ANSWERS_S):
            async with anyio.create_task_group() as asking:
                for process in ready:
                    asking.start_soon(refresh, process)
        self._router.send(peer, self._status(time.monotonic(), late), in_reply_to=asked)

    def _status(self, now: float, late: set[str]) -> RuntimeStatus:
        own, uptime_s = os.getpid(), now - self._started_at
        launcher = ProcessStatus("launcher", own, "ready", 0, uptime_s, resident_bytes(own), name="launcher")
        reports: Mapping[str, Any] = self._core.reports
        return RuntimeStatus(
            home=str(self._paths.home),
            processes=(launcher, *(self._process_status(process, now) for process in self._core.processes)),
            gateway=reports.get("gateway"),
            store=reports.get("store"),
            consolidator=reports.get("consolidator"),
            indexer=reports.get("indexer"),
            is_resting=self._core.is_resting,
            late=tuple(sorted(late)),
        )

    def _process_status(self, process: Lifecycle, now: float) -> ProcessStatus:
        state, error, child = process.state, process.error, self._children.get(process.name)
        health = self._core.reports.get(process.name)
        if state == "ready" and isinstance(health, EmbedderHealth) and health.error:
            state, error = "degraded", health.error
        pid, rss_bytes = (child.pid, resident_bytes(child.pid)) if child else (0, 0)
        uptime_s = now - process.started_at if child else 0.0
        return ProcessStatus(process.role, pid, state, process.restarts, uptime_s, rss_bytes, error, process.name)


def resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _peer(process: Lifecycle) -> Peer:
    name, incarnation = process.name, process.incarnation
    return Peer(f"{name}/{incarnation}".encode(), name, incarnation)


def _kill_group(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _failure_in(output: Path, name: str) -> Failure:
    with contextlib.suppress(OSError, IndexError, msgspec.MsgspecError):
        return _decode_failure(output.read_bytes().splitlines()[-1])
    return Failure("start_failed", f"it cannot start; see {name}.log in the home's logs")


def _open_output(path: Path) -> BinaryIO:
    """The output file, or the null device if it cannot be opened."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    if os.fstat(descriptor).st_size > OUTPUT_LIMIT_BYTES:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab", buffering=0)
